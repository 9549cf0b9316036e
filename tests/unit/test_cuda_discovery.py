"""Discovery of GPUs with NVML and sysfs replaced."""

from __future__ import annotations

import ctypes
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import wirespeed

pytest.importorskip("cuda.bindings")

from cuda.bindings import driver as real

from tests.fakes.cuda import FakeCuda
from wirespeed.backends.cuda import discovery
from wirespeed.backends.cuda.discovery import visible
from wirespeed.backends.cuda.nvml import Nvml
from wirespeed.backends.gpu.device import process_name
from wirespeed.backends.system_files import Tree
from wirespeed.hardware.devices import Gpu, NumaNode
from wirespeed.hardware.limits import ceilings
from wirespeed.hardware.link_graph import Network
from wirespeed.hardware.topology import Link, LinkKind, Machine
from wirespeed.measurement import Measurement, Place
from wirespeed.model import Engine, Executor, Memory, MemoryKind, Transfer
from wirespeed.tables import Quantity
from wirespeed.testcases.table import PlanOptions

SWITCH, DIRECT, UNKNOWN = 2, 0, 255


def discover(machine: Machine, root: Path, library: Any = None, *, exact: bool = True) -> Machine:
    """Discover GPUs with files below a folder."""
    return discovery.discover(machine, Tree(root).root, library, exact=exact)


class NVMLError(Exception):
    """As pynvml's."""


def field(values: dict[int, Any], wanted: Any) -> SimpleNamespace:
    """Return NVML's answer for a field: a value, or what makes one of the link; not supported without."""
    number, link = wanted if isinstance(wanted, tuple) else (wanted, 0)
    value = values.get(number)
    found = value(link) if callable(value) else value
    return SimpleNamespace(
        nvmlReturn=0 if found is not None else 3, valueType=1, value=SimpleNamespace(uiVal=found)
    )


class FakeNvml:
    """Two GPUs with three links of 26562 MB/s each, as far as NVML would be asked."""

    NVMLError = NVMLError
    NVML_CLOCK_SM, NVML_CLOCK_MEM, NVML_TEMPERATURE_GPU = 1, 2, 0
    NVML_P2P_STATUS_OK, NVML_P2P_STATUS_CHIPSET_NOT_SUPPORED, NVML_P2P_STATUS_NOT_SUPPORTED = 0, 1, 5
    NVML_NVLINK_DEVICE_TYPE_SWITCH = SWITCH
    NVML_FI_DEV_NVLINK_GET_SPEED = 164
    NVML_FI_DEV_PCIE_REPLAY_COUNTER = 94

    def __init__(self, count: int = 2, remote: int = SWITCH, **answers: Any) -> None:
        self.count, self.remote, self.answers, self.open = count, remote, answers, 0

    def __getattr__(self, name: str) -> Any:
        if name.startswith("NVML_"):
            raise AttributeError(name)

        def call(*arguments: Any) -> Any:
            if name == "nvmlDeviceGetFieldValues" and "fields" in self.answers:
                return [field(self.answers["fields"], each) for each in arguments[1]]
            answer = self.answers[name] if name in self.answers else self.usual(name, *arguments)
            if isinstance(answer, Exception):
                raise answer
            return answer(*arguments) if callable(answer) else answer

        return call

    def nvmlInit(self) -> None:
        if "nvmlInit" in self.answers:
            raise self.answers["nvmlInit"]
        self.open += 1

    def nvmlShutdown(self) -> None:
        self.open -= 1

    def usual(self, name: str, *arguments: Any) -> Any:
        def pci(i: int) -> SimpleNamespace:
            return SimpleNamespace(domain=0, bus=0, device=6 + i)

        first = arguments[0] if arguments and isinstance(arguments[0], int) else 0
        link = arguments[1] if len(arguments) > 1 and isinstance(arguments[1], int) else 0
        answers: dict[str, Any] = {
            "nvmlDeviceGetCount": self.count,
            "nvmlDeviceGetHandleByIndex": first,
            "nvmlDeviceGetHandleByPciBusId": 0,
            "nvmlSystemGetDriverVersion": "580.159.04",
            "nvmlSystemGetCudaDriverVersion_v2": 13000,
            "nvmlDeviceGetName": "NVIDIA H200",
            "nvmlDeviceGetUUID": f"GPU-{first}abc",
            "nvmlDeviceGetMigMode": NVMLError("Not Supported"),
            "nvmlDeviceGetCudaComputeCapability": (9, 0),
            "nvmlDeviceGetNumGpuCores": 16896,
            "nvmlDeviceGetMemoryInfo": SimpleNamespace(total=150_754_820_096),
            "nvmlDeviceGetPciInfo": pci(first),
            "nvmlDeviceGetP2PStatus": 0,
            "nvmlDeviceGetMaxClockInfo": 3201,
            "nvmlDeviceGetMemoryBusWidth": 6016,
            "nvmlDeviceGetMaxPcieLinkGeneration": 5,
            "nvmlDeviceGetMaxPcieLinkWidth": 16,
            "nvmlDeviceGetNvLinkState": 1 if link < 3 else NVMLError("Invalid Argument"),
            "nvmlDeviceGetNvLinkRemoteDeviceType": self.remote,
            "nvmlDeviceGetNvLinkRemotePciInfo": pci(1 - first),
            "nvmlDeviceGetFieldValues": lambda handle, wanted: [field({164: 26562}, each) for each in wanted],
        }
        return answers.get(name, NVMLError("Not Supported"))


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A PCI bus with two GPUs on NUMA node 1, their audio function, and a network card."""
    devices = {
        "0000:00:06.0": ("0x10de", "0x030200", "1"),
        "0000:00:07.0": ("0x10de", "0x030200", "-1"),
        "0000:00:07.1": ("0x10de", "0x040300", "0"),
        "0000:00:08.0": ("0x15b3", "0x020000", "0"),
    }
    for name, (vendor, kind, node) in devices.items():
        place = tmp_path / "sys/bus/pci/devices" / name
        place.mkdir(parents=True)
        (place / "vendor").write_text(f"{vendor}\n")
        (place / "class").write_text(f"{kind}\n")
        (place / "numa_node").write_text(f"{node}\n")
    return tmp_path


@pytest.fixture(autouse=True)
def environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("CUDA_VISIBLE_DEVICES", "CUDA_DEVICE_ORDER"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture(autouse=True)
def cuda(monkeypatch: pytest.MonkeyPatch) -> FakeCuda:
    """CUDA has the GPUs that NVML has, all of them peers."""
    return FakeCuda(4).install(monkeypatch)


def links(machine: Machine, kind: LinkKind) -> set[tuple[str, str, float | None, str]]:
    return {(x.source, x.destination, x.capacity, x.origin) for x in machine.links if x.kind is kind}


def test_two_gpus(root: Path) -> None:
    library = FakeNvml()
    before = Machine("", links=(Link("numa0", "numa0", LinkKind.MEMORY),), notes=("kept",))
    machine = discover(before, root, library)
    assert machine.driver == "580.159.04"
    assert machine.cuda == 13000
    assert machine.gpus == (
        Gpu(0, "NVIDIA H200", "00000000:00:06", 150_754_820_096, 1, 132, "9.0", ("gpu1",),
            uuid="GPU-0abc"),
        Gpu(1, "NVIDIA H200", "00000000:00:07", 150_754_820_096, 0, 132, "9.0", ("gpu0",),
            uuid="GPU-1abc"),
    )  # fmt: skip
    assert machine.links[0] == before.links[0]
    assert machine.notes == ("kept",)
    assert library.open == 0
    memory = links(machine, LinkKind.MEMORY) - links(before, LinkKind.MEMORY)
    assert {(a, b, round(c or 0), o) for a, b, c, o in memory} == {
        (f"gpu{i}", f"gpu{i}", 4_814_304_000_000, "3201 MHz x 2 x 6016 bit") for i in (0, 1)
    }
    assert {(a, b, round(c or 0), o) for a, b, c, o in links(machine, LinkKind.PCIE)} == {
        (a, b, 63_008_000_000, "PCIe 5 x16")
        for a, b in (("numa1", "gpu0"), ("gpu0", "numa1"), ("numa0", "gpu1"), ("gpu1", "numa0"))
    }


@pytest.mark.parametrize(
    ("remote", "ends"),
    [
        (SWITCH, {("gpu0", "nvswitch"), ("nvswitch", "gpu0"), ("gpu1", "nvswitch"), ("nvswitch", "gpu1")}),
        (DIRECT, {("gpu0", "gpu1"), ("gpu1", "gpu0")}),
        (UNKNOWN, {("gpu0", "gpu1"), ("gpu1", "gpu0")}),
    ],
)
def test_nvlink(root: Path, remote: int, ends: set[tuple[str, str]]) -> None:
    found = links(discover(Machine(""), root, FakeNvml(remote=remote)), LinkKind.NVLINK)
    assert {(a, b) for a, b, _, _ in found} == ends
    assert {c for _, _, c, _ in found} == {3 * 26562e6}
    assert {o for _, _, _, o in found} == {"3 links x 26.562 GB/s"}


def test_an_unknown_end_among_several_is_a_switch(root: Path) -> None:
    library = FakeNvml(4, UNKNOWN, nvmlDeviceGetNvLinkRemotePciInfo=NVMLError("Unknown Error"))
    found = links(discover(Machine(""), root, library), LinkKind.NVLINK)
    assert ("gpu3", "nvswitch") in {(a, b) for a, b, _, _ in found}


def test_what_nvml_does_not_say_is_noted(root: Path, cuda: FakeCuda) -> None:
    cuda.peers = lambda a, b: False
    library = FakeNvml(
        nvmlDeviceGetMaxClockInfo=NVMLError("Not Supported"),
        nvmlDeviceGetMaxPcieLinkGeneration=9,
        nvmlDeviceGetFieldValues=NVMLError("Not Supported"),
        nvmlDeviceGetP2PStatus=5,
        nvmlDeviceGetNumGpuCores=NVMLError("Not Supported"),
    )
    machine = discover(Machine(""), root, library)
    assert {x.capacity for x in machine.links} == {None}
    assert {x.origin for x in machine.links} == {"unknown"}
    assert [gpu.peers for gpu in machine.gpus] == [(), ()]
    assert len(machine.notes) == 7
    assert machine.notes[0] == "memory speed of gpu0: unknown, not reported by NVML"


GPU0, GPU1 = "0000:3d:00.0", "0000:3e:00.0"
SWITCH_PORT = "0000:3a:01.0/0000:3b:00.0"
BELOW_A_SWITCH = {
    "0000:3a:01.0": "32 16",
    SWITCH_PORT: "32 16",
    f"{SWITCH_PORT}/0000:3c:00.0": "32 16",
    f"{SWITCH_PORT}/0000:3c:01.0": "32 16",
    f"{SWITCH_PORT}/0000:3c:00.0/{GPU0}": "32 16",
    f"{SWITCH_PORT}/0000:3c:01.0/{GPU1}": "32 16",
}
IN_SLOTS = {
    "0000:3a:01.0": "32 16",
    f"0000:3a:01.0/{GPU0}": "32 16",
    "0000:3a:02.0": "32 16",
    f"0000:3a:02.0/{GPU1}": "32 16",
}


def on_bus(root: Path, ports: dict[str, str], machine: Machine | None = None, **more: Any) -> Machine:
    """Describe the GPUs of a PCI bus; a port is its greatest speed and width, and the width that it has."""
    entries = root / "sys/bus/pci/devices"
    entries.mkdir(parents=True)
    for port, text in ports.items():
        place = root / "sys/devices/pci0000:3a" / port
        place.mkdir(parents=True, exist_ok=True)
        speed, width, *rest = text.split()
        now, vendor = (*rest, *(width, "0x10de")[len(rest) :])
        attributes = {
            "vendor": vendor, "class": "0x030200" if port.endswith((GPU0, GPU1)) else "0x060400",
            "numa_node": "0", "max_link_speed": f"{speed}.0 GT/s PCIe", "max_link_width": width,
            "current_link_speed": "2.5 GT/s PCIe", "current_link_width": now,
        }  # fmt: skip
        for name, value in attributes.items():
            if not value.startswith("-"):
                (place / name).write_text(f"{value}\n")
        (entries / place.name).symlink_to(place)

    def pci(handle: int) -> SimpleNamespace:
        return SimpleNamespace(domain=0, bus=0x3D + handle, device=0)

    return discover(machine or Machine(""), root, FakeNvml(nvmlDeviceGetPciInfo=pci, **more))


def to_hosts(machine: Machine, gpus: int) -> list[float | None]:
    transfers = tuple(
        Transfer(
            Memory(f"gpu{i}", MemoryKind.DEVICE),
            Memory("numa0", MemoryKind.PINNED),
            Executor(f"gpu{i}"),
            Engine.CE,
            1 << 30,
        )
        for i in range(gpus)
    )
    places = tuple(Place("", 0, i, transfers=(i,)) for i in range(gpus))
    return ceilings(Network(machine), Measurement(transfers, places))


def test_gpus_below_one_switch_share_its_uplink(tmp_path: Path) -> None:
    machine = on_bus(tmp_path, BELOW_A_SWITCH)
    switch = "pcie:0000:3b:00.0"
    found = [(x.source, x.destination) for x in machine.links if x.kind is LinkKind.PCIE]
    assert sorted(found) == sorted(
        way for a, b in (("gpu0", switch), ("gpu1", switch), (switch, "numa0")) for way in ((a, b), (b, a))
    )
    assert {x.origin for x in machine.links if x.kind is LinkKind.PCIE} == {"PCIe 5 x16"}
    assert to_hosts(machine, 1) == [pytest.approx(63.008e9)]
    assert to_hosts(machine, 2) == [pytest.approx(31.504e9)] * 2
    assert machine.notes == ()


def test_gpus_in_slots_of_their_own_share_nothing(tmp_path: Path) -> None:
    machine = on_bus(tmp_path, IN_SLOTS)
    assert to_hosts(machine, 2) == [pytest.approx(63.008e9)] * 2
    assert machine.notes == ()


def test_switches_below_switches(tmp_path: Path) -> None:
    deeper = {f"0000:39:01.0/0000:39:02.0/{port}": text for port, text in BELOW_A_SWITCH.items()}
    machine = on_bus(tmp_path, {"0000:39:01.0": "32 16 8", "0000:39:01.0/0000:39:02.0": "16 8", **deeper})
    found = {(a, b, o) for a, b, _, o in links(machine, LinkKind.PCIE)}
    assert ("pcie:0000:3b:00.0", "pcie:0000:39:02.0", "PCIe 5 x16") in found
    assert ("pcie:0000:39:02.0", "numa0", "PCIe 4 x8") in found
    assert len(found) == 8
    assert machine.notes == (
        "PCIe link pcie:0000:39:02.0-numa0: x8, but gpu0 supports x16",
        "PCIe link pcie:0000:39:02.0-numa0: generation 4, the maximum of 0000:39:02.0; gpu0 supports 5",
    )


@pytest.mark.parametrize(
    ("slot", "gpu", "origin", "notes"),
    [
        ("32 8 8", "32 16 8", "PCIe 5 x8", ["x8, but gpu0 supports x16"]),
        ("32 16 4", "32 16 4", "PCIe 5 x16",
         ["x4 now, but both ends support x16; reseat the card"]),
        ("16 16", "32 16", "PCIe 4 x16", ["generation 4, the maximum of 0000:3a:01.0; gpu0 supports 5"]),
        ("32 16", "16 16", "PCIe 4 x16", []),  # nothing is lost
        ("- -", "32 16", "PCIe 5 x16", []),
        ("32 16 0", "32 16 255", "PCIe 5 x16", []),  # asleep
    ],
)  # fmt: skip
def test_slots(tmp_path: Path, slot: str, gpu: str, origin: str, notes: list[str]) -> None:
    machine = on_bus(tmp_path, IN_SLOTS | {"0000:3a:01.0": slot, f"0000:3a:01.0/{GPU0}": gpu})
    found = {(a, b, o) for a, b, _, o in links(machine, LinkKind.PCIE)}
    assert ("gpu0", "numa0", origin) in found
    assert machine.notes == tuple(f"PCIe link gpu0-numa0: {note}" for note in notes)


@pytest.mark.parametrize(
    "ports",
    [
        {GPU0: "8 8", GPU1: "8 8"},  # no bridge
        dict.fromkeys(IN_SLOTS, "- -"),
        IN_SLOTS | {"0000:3a:01.0": "16 16 16 0x1b36", "0000:3a:02.0": "2 1 16"},  # not what they say
    ],
)
def test_without_bridges_nvml_is_believed(tmp_path: Path, ports: dict[str, str]) -> None:
    machine = on_bus(tmp_path, ports)
    found = [(x.source, x.destination, x.origin) for x in machine.links if x.kind is LinkKind.PCIE]
    ways = [way for i in (0, 1) for way in (("numa0", f"gpu{i}"), (f"gpu{i}", "numa0"))]
    assert found == [(*way, "PCIe 5 x16") for way in ways]
    assert machine.notes == ()


class FabricInfo(ctypes.Structure):
    """As pynvml's, as far as it is read."""

    _fields_ = (("status", ctypes.c_uint), ("state", ctypes.c_uint))


@pytest.mark.parametrize("function", ["GpuFabricInfoV", "GpuFabricInfo"])
@pytest.mark.parametrize(
    ("state", "status", "note"),
    [
        (0, 0, None),
        (3, 0, None),
        (1, 999, "not ready (not started): is the fabric manager running?"),
        (2, 0, "not ready (in progress): is the fabric manager running?"),
        (3, 999, "failed (error 999): see the log of the fabric manager"),
    ],
)
def test_the_fabric(root: Path, function: str, state: int, status: int, note: str | None) -> None:
    def fill(handle: int, info: Any) -> int:
        info._obj.state, info._obj.status = (state, status) if handle == 0 else (3, 0)
        return 0

    answers = {f"c_nvml{function}_t": FabricInfo, f"nvmlDeviceGet{function}": fill}
    machine = discover(Machine(""), root, FakeNvml(**answers))
    assert machine.notes == ((f"NVLink fabric of gpu0: {note}",) if note else ())


@pytest.mark.parametrize(
    ("count", "peers", "status", "notes"),
    [
        (1, False, 1, ()),
        (2, False, 1, ("no peer access between gpu0 and gpu1: chipset not supported",)),
        (2, False, lambda a, b, way: 77 * way, ("no peer access between gpu0 and gpu1: status 77",)),
        (2, False, NVMLError("Unknown Error"),
         ("no peer access between gpu0 and gpu1: denied by CUDA",)),
        (2, False, 0, ("no peer access between gpu0 and gpu1: denied by CUDA, although NVML allows it",)),
        (3, False, 5, ("no peer access between any two GPUs: not supported",)),
        (3, lambda a, b: 2 not in (a, b), 5,
         ("no peer access between gpu0 and gpu2, gpu1 and gpu2: not supported",)),
        (2, True, NVMLError("Unknown Error"), ()),
        (2, True, 5, ()),  # CUDA decides
    ],
)  # fmt: skip
def test_peers_are_what_cuda_allows(
    root: Path, cuda: FakeCuda, count: int, peers: Any, status: Any, notes: tuple[str, ...]
) -> None:
    cuda.peers = peers if callable(peers) else lambda a, b: peers
    machine = discover(Machine(""), root, FakeNvml(count, nvmlDeviceGetP2PStatus=status))
    assert machine.notes == notes
    for a, gpu in enumerate(machine.gpus):
        assert gpu.peers == tuple(f"gpu{b}" for b in range(count) if b != a and cuda.peers(a, b))


def test_what_cuda_does_not_allow_is_waived_in_its_cells(root: Path, cuda: FakeCuda) -> None:
    cuda.peers = lambda a, b: {a, b} != {0, 1}
    machine = discover(Machine(""), root, FakeNvml(3))
    (case,) = wirespeed.testcases.table.select(["device_to_device_memcpy_read_ce"])
    waived = {(w.row, w.column): w.reason for w in case.plan(machine, PlanOptions()).waived}
    assert waived == {(0, 1): "gpu0 has no peer access to gpu1", (1, 0): "gpu1 has no peer access to gpu0"}


@pytest.mark.parametrize(
    ("status", "peers", "notes"),
    [
        (0, ("gpu1",), ()),
        (NVMLError("Unknown Error"), (),
         ("no peer access between gpu0 and gpu1: denied by CUDA and NVML",)),
    ],
)  # fmt: skip
def test_without_cuda_nvml_has_the_word(
    root: Path, cuda: FakeCuda, status: Any, peers: tuple[str, ...], notes: tuple[str, ...]
) -> None:
    cuda.refused["cuInit"] = real.CUresult.CUDA_ERROR_SYSTEM_NOT_READY
    machine = discover(Machine(""), root, FakeNvml(nvmlDeviceGetP2PStatus=status))
    assert machine.gpus[0].peers == peers
    failed = "the GPUs cannot be measured: cuInit failed: CUDA_ERROR_SYSTEM_NOT_READY (refused by the fake)"
    assert machine.notes == (failed, *notes)


def test_a_glance_initialises_cuda_only_for_peers_that_nvml_denies(root: Path, cuda: FakeCuda) -> None:
    cuda.refused["cuInit"] = real.CUresult.CUDA_ERROR_SYSTEM_NOT_READY  # a note says that it was called
    machine = discover(Machine(""), root, FakeNvml(nvmlDeviceGetP2PStatus=0), exact=False)
    assert (machine.gpus[0].peers, machine.notes) == (("gpu1",), ())
    machine = discover(Machine(""), root, FakeNvml(nvmlDeviceGetP2PStatus=5), exact=False)
    assert machine.gpus[0].peers == () and machine.notes[0].startswith("the GPUs cannot be measured: cuInit")


def test_where_cuda_refuses_to_say_nvml_has_the_word(root: Path, cuda: FakeCuda) -> None:
    cuda.refused["cuDeviceCanAccessPeer"] = real.CUresult.CUDA_ERROR_INVALID_DEVICE
    machine = discover(Machine(""), root, FakeNvml())
    assert machine.gpus[0].peers == ("gpu1",)
    assert machine.notes[0].startswith(
        "CUDA does not report whether gpu0 can access gpu1: cuDeviceCanAccessPeer"
    )


# Without NVML: containers without its library, systems that forbid it.

NO_NVML = NVMLError("NVML Shared Library Not Found")


def test_without_nvml_cuda_says_what_it_can(root: Path, cuda: FakeCuda) -> None:
    cuda.count = 2
    cuda.attributes |= {"MEMORY_CLOCK_RATE": 3_201_000, "GLOBAL_MEMORY_BUS_WIDTH": 6016, "NVLINK": 1,
                        "PAGEABLE_MEMORY_ACCESS_USES_HOST_PAGE_TABLES": 0}  # fmt: skip
    (root / "proc/driver/nvidia").mkdir(parents=True)
    (root / "proc/driver/nvidia/version").write_text(
        "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.95.05  Release Build  (builder@U22)\n"
    )
    with_nvml = discover(Machine(""), root, FakeNvml())
    machine = discover(Machine(""), root, FakeNvml(nvmlInit=NO_NVML))
    uuids = [f"GPU-00010203-0405-0607-0809-0a0b0c0d0e{i:02x}" for i in range(2)]
    assert machine.gpus == tuple(
        replace(gpu, uuid=uuid) for gpu, uuid in zip(with_nvml.gpus, uuids, strict=True)
    )
    assert (machine.driver, machine.cuda) == ("580.95.05", 13000)
    assert links(machine, LinkKind.MEMORY) == links(with_nvml, LinkKind.MEMORY)
    assert links(machine, LinkKind.NVLINK) == {
        ("gpu0", "gpu1", None, "unknown"), ("gpu1", "gpu0", None, "unknown")
    }  # fmt: skip
    assert machine.notes[0] == (
        "link speeds, clocks, errors and users of GPUs are unknown without NVML: NVML reports NVML Shared "
        "Library Not Found; install the NVIDIA driver, or restart after a driver update"
    )


def test_without_nvml_a_driver_that_describes_no_gpu(root: Path, cuda: FakeCuda) -> None:
    cuda.refused["cuDeviceTotalMem"] = real.CUresult.CUDA_ERROR_NOT_SUPPORTED
    machine = discover(Machine(""), root, FakeNvml(nvmlInit=NO_NVML))
    assert machine.gpus == ()
    assert "cuDeviceTotalMem failed: CUDA_ERROR_NOT_SUPPORTED" in machine.notes[0]


def test_without_nvml_an_instance_of_a_gpu_is_left_out(root: Path, cuda: FakeCuda) -> None:
    cuda.cuDeviceGetName = lambda size, device: b"NVIDIA H200 MIG 1g.18gb\0"  # type: ignore[method-assign]
    machine = discover(Machine(""), root, FakeNvml(nvmlInit=NO_NVML))
    assert machine.gpus == ()
    assert "is in MIG mode" in machine.notes[1]


def test_without_nvml_a_coherent_gpu_has_a_c2c_link(root: Path, cuda: FakeCuda) -> None:
    cuda.count = 1
    cuda.attributes |= {"MEMORY_CLOCK_RATE": 0, "GLOBAL_MEMORY_BUS_WIDTH": 0,
                        "PAGEABLE_MEMORY_ACCESS_USES_HOST_PAGE_TABLES": 1}  # fmt: skip
    machine = discover(Machine(""), root, FakeNvml(nvmlInit=NO_NVML))
    assert links(machine, LinkKind.C2C) == {
        ("numa1", "gpu0", None, "unknown"), ("gpu0", "numa1", None, "unknown")
    }  # fmt: skip


# GH200, GB200.

C2C = {170: 10, 171: 1, 172: 44_712}


def grace(tmp_path: Path, fields: dict[int, Any]) -> Machine:
    """A module with one CPU, whose memory is numa0, and one GPU in a PCIe slot as the kernel shows it."""
    node = Machine("", numa=(NumaNode(0, tuple(range(72)), memory_bytes=2**38),),
                   links=(Link("numa0", "numa0", LinkKind.MEMORY, 500e9, "LPDDR5X"),))  # fmt: skip
    return on_bus(tmp_path, IN_SLOTS, node, count=1, fields=fields)


def test_host_copies_go_over_c2c(tmp_path: Path) -> None:
    machine = grace(tmp_path, {164: 26562} | C2C)
    ways = (("numa0", "gpu0"), ("gpu0", "numa0"))
    assert links(machine, LinkKind.C2C) == {(*way, 447.12e9, "10 links x 44.712 GB/s") for way in ways}
    assert links(machine, LinkKind.PCIE)  # it is there, and not on the way
    assert to_hosts(machine, 1) == [pytest.approx(447.12e9)]
    network = Network(machine)
    assert [machine.links[i].kind for i in network.route("numa0", "gpu0")] == [LinkKind.C2C]
    assert machine.notes == ()


def test_only_active_c2c_links_count(tmp_path: Path) -> None:
    machine = grace(tmp_path, C2C | {171: lambda link: int(link < 8)})
    assert {(c, o) for _, _, c, o in links(machine, LinkKind.C2C)} == {
        (8 * 44.712e9, "8 links x 44.712 GB/s")
    }


@pytest.mark.parametrize("fields", [{}, {170: 0}, {170: 10, 171: 0, 172: 44_712}])
def test_without_c2c(tmp_path: Path, fields: dict[int, Any]) -> None:
    machine = grace(tmp_path, fields)
    assert links(machine, LinkKind.C2C) == set()
    assert to_hosts(machine, 1) == [pytest.approx(63.008e9)]


def test_c2c_of_unknown_speed(tmp_path: Path) -> None:
    machine = grace(tmp_path, {164: 26562, 170: 10, 171: 1})
    assert {(c, o) for _, _, c, o in links(machine, LinkKind.C2C)} == {(None, "unknown")}
    assert to_hosts(machine, 1) == [None]  # not PCIe's
    assert machine.notes == ("NVLink-C2C speed of gpu0: unknown, not reported by NVML",)


# NVLink on drivers that do not have the newest field.


@pytest.mark.parametrize(
    ("fields", "version", "capacity"),
    [
        ({90: 25_781}, 3, 3 * 25_781e6),
        ({84: 25_781}, 3, 3 * 25_781e6),
        ({164: 0, 90: 0, 84: 25_000}, 6, 3 * 25_000e6),
        ({}, 3, 3 * 25e9),
        ({}, 7, 3 * 50e9),
        ({}, 99, None),
        ({}, NVMLError("Not Supported"), None),
    ],
)
def test_nvlink_speed_on_old_drivers(
    root: Path, fields: dict[int, int], version: Any, capacity: float | None
) -> None:
    machine = discover(Machine(""), root, FakeNvml(fields=fields, nvmlDeviceGetNvLinkVersion=version))
    assert {c for _, _, c, _ in links(machine, LinkKind.NVLINK)} == {capacity}
    assert bool(machine.notes) == (capacity is None)


def test_pcie_6(root: Path) -> None:
    machine = discover(Machine(""), root, FakeNvml(1, nvmlDeviceGetMaxPcieLinkGeneration=6))
    assert {(c, o) for _, _, c, o in links(machine, LinkKind.PCIE)} == {(16 * 7.375e9, "PCIe 6 x16")}


# NUMA nodes.


def nodes(root: Path, cpus: list[str]) -> None:
    for index, text in enumerate(cpus):
        folder = root / f"sys/devices/system/node/node{index}"
        folder.mkdir(parents=True)
        (folder / "cpulist").write_text(f"{text}\n")
        (folder / "distance").write_text(" ".join(str(10 + 10 * abs(index - i)) for i in range(len(cpus))))


def test_a_gpu_at_a_node_without_cpus_has_the_nearest_with_some(root: Path) -> None:
    """As where the memory of a GPU, or of an expander, is a node."""
    nodes(root, ["0-3", "", "4-7"])
    hosts = tuple(NumaNode(i, c, memory_bytes=2**34) for i, c in ((0, (0, 1)), (1, ()), (2, ())))
    machine = discover(Machine("", numa=hosts), root, FakeNvml())
    assert [gpu.numa for gpu in machine.gpus] == [0, 0]
    assert ("numa0", "gpu0") in {(a, b) for a, b, _, _ in links(machine, LinkKind.PCIE)}
    assert machine.notes == ("gpu0 is at numa1, which has no CPUs; the nearest with CPUs is numa0",)


def test_a_node_whose_cpus_others_use_is_a_node(root: Path) -> None:
    nodes(root, ["0-3", "4-7"])
    hosts = (NumaNode(0, (0, 1), memory_bytes=2**34), NumaNode(1, (), memory_bytes=2**34))
    machine = discover(Machine("", numa=hosts), root, FakeNvml())
    assert [gpu.numa for gpu in machine.gpus] == [1, 0]
    assert machine.notes == ()


# Modes.


def test_confidential_computing(root: Path) -> None:
    on, off = (SimpleNamespace(environment=2, ccFeature=feature, devToolsMode=0) for feature in (1, 0))
    machine = discover(Machine(""), root, FakeNvml(nvmlSystemGetConfComputeState=on))
    assert machine.confidential
    assert "confidential computing" in machine.notes[0]
    assert not discover(Machine(""), root, FakeNvml(nvmlSystemGetConfComputeState=off)).confidential


@pytest.mark.parametrize(
    ("text", "gpus", "note"),
    [
        ("MIG-3f1a", 0, "CUDA_VISIBLE_DEVICES: MIG-3f1a and the entries after it are ignored: MIG instances"),
        ("0,MIG-GPU-0abc/1/2", 1, "CUDA_VISIBLE_DEVICES: MIG-GPU-0abc/1/2 and the entries after"),
        ("1,7,0", 1, "CUDA_VISIBLE_DEVICES: 7 and the entries after it are ignored: no GPU matches"),
        ("", 0, None), ("-1", 0, None), ("1", 1, None),
    ],
)  # fmt: skip
def test_what_is_not_visible_is_noted(
    root: Path, monkeypatch: pytest.MonkeyPatch, text: str, gpus: int, note: str | None
) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", text)
    machine = discover(Machine(""), root, FakeNvml())
    assert len(machine.gpus) == gpus
    assert len(machine.notes) == (note is not None)
    assert machine.notes == () or machine.notes[0].startswith(note or "")


def test_ecc_off() -> None:
    """The counters of errors are not supported then."""
    gpu = Gpu(0, "NVIDIA A10", "00000000:00:06")
    assert Nvml(FakeNvml(fields={94: 4}, nvmlDeviceGetEccMode=[0, 0])).state(gpu) == (
        Quantity("gpu0", "ECC", "off"), Quantity("gpu0", "PCIe replays", 4.0, counter=True)
    )  # fmt: skip


def test_nothing_without_a_gpu(tmp_path: Path) -> None:
    machine = Machine("x")
    assert discover(machine, tmp_path) is machine


def test_a_gpu_without_a_driver(root: Path, cuda: FakeCuda) -> None:
    cuda.refused["cuInit"] = RuntimeError("no driver")
    library = FakeNvml(nvmlInit=NO_NVML)
    (note,) = discover(Machine(""), root, library).notes
    assert "PCI bus shows 2" in note
    assert "NVML Shared Library Not Found" in note
    assert "install the NVIDIA driver" in note


def test_a_gpu_without_the_packages(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("wirespeed.backends.cuda.discovery.find_spec", lambda name: None)
    (note,) = discover(Machine(""), root).notes
    assert "pip install 'wirespeed[cuda]'" in note


def test_a_gpu_that_does_not_answer_is_left_out(root: Path) -> None:
    lost = FakeNvml(nvmlDeviceGetHandleByIndex=_raises_from_one)
    machine = discover(Machine(""), root, lost)
    assert [gpu.name for gpu in machine.gpus] == ["gpu0"]
    assert machine.notes == ("1 GPUs do not answer NVML (no permission, or lost) and are ignored",)


def _raises_from_one(index: int) -> int:
    if index:
        raise NVMLError("GPU is lost")
    return index


def test_a_divided_gpu_is_left_out(root: Path) -> None:
    machine = discover(Machine(""), root, FakeNvml(nvmlDeviceGetMigMode=lambda h: [1 - h, 1 - h]))
    assert [gpu.bus_id for gpu in machine.gpus] == ["00000000:00:07"]
    assert "MIG" in machine.notes[0]


def test_visible_devices_are_chosen_and_ordered(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "1,0")
    machine = discover(Machine(""), root, FakeNvml())
    assert [gpu.bus_id for gpu in machine.gpus] == ["00000000:00:07", "00000000:00:06"]
    assert [gpu.uuid for gpu in machine.gpus] == ["GPU-1abc", "GPU-0abc"]
    assert [gpu.index for gpu in machine.gpus] == [0, 1]


@pytest.mark.parametrize(
    ("text", "chosen"),
    [
        (None, "abc"), ("", ""), ("0", "a"), ("2,0", "ca"), ("1,9,0", "b"), ("-1", ""),
        ("GPU-b", "b"), ("GPU-a, 2", "ac"), ("GPU-", ""), ("NoDevFiles", ""),
    ],
)  # fmt: skip
def test_visible(text: str | None, chosen: str) -> None:
    environment = {} if text is None else {"CUDA_VISIBLE_DEVICES": text}
    indices, _ = visible(["GPU-a1", "GPU-b2", "GPU-c3"], environment)
    assert "".join("abc"[i] for i in indices) == chosen


def test_different_models_are_numbered_by_cuda(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        "wirespeed.backends.cuda.discovery._Reader._cuda_order",
        lambda self: ("00000000:00:07", "00000000:00:06"),
    )
    library = FakeNvml(nvmlDeviceGetName=lambda h: f"model {h}")
    machine = discover(Machine(""), root, library)
    assert [gpu.model for gpu in machine.gpus] == ["model 1", "model 0"]
    monkeypatch.setenv("CUDA_DEVICE_ORDER", "PCI_BUS_ID")
    assert [gpu.model for gpu in discover(Machine(""), root, library).gpus] == ["model 0", "model 1"]


def test_state() -> None:
    nvml = Nvml(
        FakeNvml(
            nvmlDeviceGetEccMode=[1, 1],
            nvmlDeviceGetClockInfo=lambda h, kind: {1: 1980, 2: 3201}[kind],
            nvmlDeviceGetPowerUsage=120_500,
            nvmlDeviceGetCurrentClocksThrottleReasons=0x4 | 0x20,
            fields={94: 4},
            nvmlDeviceGetComputeRunningProcesses=[SimpleNamespace(pid=2**22 + 1, usedGpuMemory=78 * 2**30)],
        )
    )
    gpu = Gpu(0, "NVIDIA H200", "00000000:00:06")
    assert nvml.state(gpu) == (
        Quantity("gpu0", "SM clock", 1980e6, "Hz"),
        Quantity("gpu0", "memory clock", 3201e6, "Hz"),
        Quantity("gpu0", "ECC", "on"),
        Quantity("gpu0", "power", 120.5, "W"),
        Quantity("gpu0", "throttle reasons", ("power cap", "thermal slowdown")),
        Quantity("gpu0", "PCIe replays", 4.0, counter=True),
        Quantity("gpu0", "processes", 1),
    )
    assert nvml.processes(gpu) == {2**22 + 1: 78 * 2**30}
    assert process_name(2**22 + 1, 78 * 2**30) == f"a process (PID {2**22 + 1}, 78 GiB)"
    assert process_name(2**22 + 1) == f"a process (PID {2**22 + 1})"
