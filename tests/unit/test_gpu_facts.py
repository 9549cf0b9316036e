"""Facts of GPUs, with NVML and the PCI bus replaced."""

from __future__ import annotations

import sys
from ctypes import Structure, c_ubyte, c_uint
from importlib import import_module
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.unit.test_cuda_discovery import FakeNvml, NVMLError
from wirespeed.backends.cuda.gpu_facts import facts, problems
from wirespeed.backends.cuda.nvml import Nvml
from wirespeed.backends.system_files import Tree
from wirespeed.hardware.devices import Gpu
from wirespeed.hardware.facts import OFF, ON, Facts, Known

GPU = Gpu(0, "NVIDIA H200", "00000000:03:00")


def bus(root: Path, width: int = 8, vendor: str = "0x1000") -> Path:
    """A GPU below a switch below a root port; one link of the switch runs at another width."""
    place = root / "sys/devices/pci0000:00"
    for name, now in (
        ("0000:00:01.0", width),
        ("0000:01:00.0", width),
        ("0000:02:00.0", 16),
        ("0000:03:00.0", 16),
    ):
        place = place / name
        place.mkdir(parents=True)
        (place / "vendor").write_text(vendor)
        for file, value in (
            ("max_link_speed", "32.0 GT/s PCIe"), ("current_link_speed", "2.5 GT/s PCIe"),
            ("max_link_width", 16), ("current_link_width", now),
        ):  # fmt: skip
            (place / file).write_text(f"{value}\n")
    (place / "aer_dev_nonfatal").write_text("Undefined 0\nDLP 2\nTOTAL_ERR_NONFATAL 2\n")
    (place / "aer_dev_fatal").write_text("nonsense\n")
    group = root / "sys/kernel/iommu_groups/7"
    group.mkdir(parents=True)
    (place / "iommu_group").symlink_to(group)
    (root / "sys/bus/pci/devices").mkdir(parents=True)
    (root / "sys/bus/pci/devices/0000:03:00.0").symlink_to(place)
    (root / "proc/driver/nvidia").mkdir(parents=True)
    (root / "proc/driver/nvidia/version").write_text(
        "NVRM version: NVIDIA UNIX Module  580.159.03  Release\n"
    )
    return root


def read(root: Path, **answers: Any) -> Facts:
    return Facts(facts([GPU], Nvml(FakeNvml(**answers)), Tree(root).root))


def test_the_bus(tmp_path: Path) -> None:
    found = read(bus(tmp_path))
    assert (found.number(Known.PCIE_WIDTH, "gpu0"), found.number(Known.PCIE_WIDTH_POSSIBLE, "gpu0")) == (
        8,
        16,
    )
    assert found.text(Known.PCIE_NARROWEST, "gpu0") == "0000:01:00.0" == found.text(Known.SWITCH, "gpu0")
    assert found.text(Known.IOMMU_GROUP, "gpu0") == "7"
    assert found.number(Known.AER, "gpu0") == 2
    assert found.unreadable(Known.AER_CORRECTED, "gpu0")
    assert (found.text(Known.DRIVER_KERNEL), found.text(Known.DRIVER_LIBRARY)) == ("580.159.03", "580.159.04")


def test_emulated_ports_say_nothing_about_speed(tmp_path: Path) -> None:
    found = read(bus(tmp_path, vendor="0x1b36"))
    assert found.number(Known.PCIE_WIDTH, "gpu0") is None and found.text(Known.IOMMU_GROUP, "gpu0") == "7"
    assert not [fact for fact in read(tmp_path / "none") if fact.name == Known.IOMMU_GROUP]


@pytest.mark.parametrize(("model", "off"), [("NVIDIA GB10", True), ("NVIDIA GB200", False)])
def test_gpus_whose_memory_no_nic_can_access(model: str, off: bool, tmp_path: Path) -> None:
    """NVIDIA's forum for developers, "DGX Spark GPUDirect RDMA", topic 348787."""
    found = Facts(facts([Gpu(0, model, "00000000:03:00")], Nvml(FakeNvml()), Tree(tmp_path).root))
    assert (found.text(Known.GPUDIRECT, "gpu0") == OFF) is off


def test_what_nvml_reports(tmp_path: Path) -> None:
    def state(_: Any, link: int) -> int:
        if link > 2:
            raise NVMLError("Invalid Argument")
        return int(link != 1)

    found = read(
        tmp_path,
        nvmlDeviceGetBAR1MemoryInfo=SimpleNamespace(bar1Total=256 << 20),
        nvmlDeviceGetNvLinkState=state,
        nvmlDeviceGetCurrentClocksThrottleReasons=0x4, nvmlDeviceGetVbiosVersion="96.00.74",
        nvmlDeviceGetEnforcedPowerLimit=600_000, nvmlDeviceGetPowerManagementDefaultLimit=700_000,
        nvmlDeviceGetApplicationsClock=2619, nvmlDeviceGetRemappedRows=(0, 1, 1, 0),
        nvmlSystemGetConfComputeState=SimpleNamespace(ccFeature=0), nvmlDeviceGetMigMode=(0, 0),
        nvmlDeviceGetUtilizationRates=SimpleNamespace(gpu=97), nvmlDeviceGetComputeRunningProcesses=[1, 2],
        nvmlSystemGetNvlinkBwMode=3, fields={59: 4, 4: 1, 161: lambda link: link + 1},
    )  # fmt: skip
    assert found.number(Known.BAR1, "gpu0") == 256 << 20
    assert (found.number(Known.NVLINKS, "gpu0"), found.number(Known.NVLINKS_INACTIVE, "gpu0")) == (2, 1)
    assert found.several(Known.NVLINK_ERRORS, "gpu0") == ("4 recoveries", "6 replays")
    assert found.text(Known.BANDWIDTH_MODE, "gpu0") == "half"
    assert found.several(Known.THROTTLED, "gpu0") == ("power cap",)
    assert (found.number(Known.POWER_LIMIT, "gpu0"), found.number(Known.POWER_LIMIT_USUAL, "gpu0")) == (
        600,
        700,
    )
    assert found.number(Known.MEMORY_CLOCK, "gpu0") == 2.619e9
    assert found.text(Known.VBIOS, "gpu0") == "96.00.74"
    assert found.number(Known.ECC_ERRORS, "gpu0") == 1
    assert (found.text(Known.REMAP_PENDING, "gpu0"), found.text(Known.REMAP_FAILED, "gpu0")) == (ON, OFF)
    assert (found.text(Known.MIG, "gpu0"), found.text(Known.CONFIDENTIAL, "gpu0")) == (OFF, OFF)
    assert (found.number(Known.UTILISATION, "gpu0"), found.number(Known.PROCESSES, "gpu0")) == (97, 2)
    assert found.unreadable(Known.PERSISTENCE, "gpu0") == "NVML does not report it"
    assert found.unreadable(Known.FABRIC_HEALTH, "gpu0")  # the fake has no structure of the fabric


def test_where_a_gpu_is_in_the_fabric(tmp_path: Path) -> None:
    class Info(Structure):
        _fields_ = (
            ("clusterUuid", c_ubyte * 16),
            ("status", c_uint),
            ("cliqueId", c_uint),
            ("state", c_ubyte),
        )

    def read_in(state: int) -> Facts:
        def fill(_: Any, info: Any) -> int:
            info._obj.clusterUuid[:] = range(16)
            info._obj.cliqueId, info._obj.state = 32766, state
            return 0

        return read(
            tmp_path, nvmlDeviceGetNvLinkState=lambda _, link: 1 if link < 2 else 0,
            c_nvmlGpuFabricInfoV_t=Info, nvmlDeviceGetGpuFabricInfoV=fill,
        )  # fmt: skip

    joined = read_in(3)
    assert joined.text(Known.FABRIC_CLUSTER, "gpu0") == "00010203-0405-0607-0809-0a0b0c0d0e0f"
    assert joined.number(Known.FABRIC_CLIQUE, "gpu0") == 32766
    assert not read_in(1).knows(Known.FABRIC_CLUSTER, "gpu0") and not read_in(1).knows(
        Known.FABRIC_CLIQUE, "gpu0"
    )


@pytest.mark.parametrize(
    ("mask", "expected"),
    [
        (0xAA, ()),
        (0, ()),
        (0x1, ("degraded bandwidth",)),
        (0x10 | 0x400, ("unhealthy route", "no partition")),
        (0x2000 | 0x8000, ("no partition assigned", "fabric manager not connected")),
        (0x1000 | 0x4000 | 0x100, ()),
    ],
)
def test_health_masks(mask: int, expected: tuple[str, ...]) -> None:
    assert problems(mask) == expected


def test_they_need_no_bindings_of_cuda(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "cuda.bindings", None)
    for name in ("cuda_driver", "driver", "gpu_facts"):
        monkeypatch.delitem(sys.modules, f"wirespeed.backends.cuda.{name}", raising=False)
    import_module("wirespeed.backends.cuda.gpu_facts")
