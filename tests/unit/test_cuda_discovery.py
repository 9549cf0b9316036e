"""Discovery of GPUs with NVML and sysfs replaced."""

from __future__ import annotations

import ctypes
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from wirespeed.backends.cuda.discovery import discover, visible
from wirespeed.backends.cuda.nvml import Nvml
from wirespeed.limits import Network, ceilings
from wirespeed.model import Engine, Executor, Measurement, Memory, MemoryKind, Place, Transfer
from wirespeed.topology import Gpu, Link, LinkKind, Machine

SWITCH, DIRECT, UNKNOWN = 2, 0, 255


class NVMLError(Exception):
    """As pynvml's."""


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
        speed = SimpleNamespace(uiVal=26562)
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
            "nvmlDeviceGetFieldValues": [SimpleNamespace(nvmlReturn=0, valueType=1, value=speed)],
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


def links(machine: Machine, kind: LinkKind) -> set[tuple[str, str, float | None, str]]:
    return {(x.source, x.destination, x.capacity, x.origin) for x in machine.links if x.kind is kind}


def test_two_gpus(root: Path) -> None:
    library = FakeNvml()
    before = Machine("", links=(Link("numa0", "numa0", LinkKind.MEMORY),), notes=("kept",))
    machine = discover(before, root, library)
    assert machine.driver == "580.159.04"
    assert machine.cuda == 13000
    assert machine.gpus == (
        Gpu(0, "NVIDIA H200", "00000000:00:06", 150_754_820_096, 1, 132, "9.0", ("gpu1",)),
        Gpu(1, "NVIDIA H200", "00000000:00:07", 150_754_820_096, 0, 132, "9.0", ("gpu0",)),
    )
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


def test_what_nvml_does_not_say_is_noted(root: Path) -> None:
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
    assert machine.notes[0] == "memory speed of gpu0: unknown, NVML does not say"


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


def on_bus(root: Path, ports: dict[str, str]) -> Machine:
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

    return discover(Machine(""), root, FakeNvml(nvmlDeviceGetPciInfo=pci))


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
        "PCIe link pcie:0000:39:02.0-numa0: x8, although gpu0 can x16",
        "PCIe link pcie:0000:39:02.0-numa0: generation 4, which is all that 0000:39:02.0 can; gpu0 can 5",
    )


@pytest.mark.parametrize(
    ("slot", "gpu", "origin", "notes"),
    [
        ("32 8 8", "32 16 8", "PCIe 5 x8", ["x8, although gpu0 can x16"]),
        ("32 16 4", "32 16 4", "PCIe 5 x16",
         ["x4 now, although both ends can x16; is the card seated well?"]),
        ("16 16", "32 16", "PCIe 4 x16", ["generation 4, which is all that 0000:3a:01.0 can; gpu0 can 5"]),
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
        (3, 999, "failed (999): see the log of the fabric manager"),
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
    ("count", "status", "notes"),
    [
        (1, lambda a, b, way: 1, ()),
        (2, lambda a, b, way: 1, ("no peer access between gpu0 and gpu1: chipset not supported",)),
        (2, lambda a, b, way: 77 * way, ("no peer access between gpu0 and gpu1: status 77",)),
        (2, NVMLError("Not Supported"), ()),
        (3, lambda a, b, way: 5, ("no peer access between any two GPUs: not supported",)),
        (3, lambda a, b, way: 5 * (2 in (a, b)),
         ("no peer access between gpu0 and gpu2, gpu1 and gpu2: not supported",)),
    ],
)  # fmt: skip
def test_refused_peers(root: Path, count: int, status: Any, notes: tuple[str, ...]) -> None:
    machine = discover(Machine(""), root, FakeNvml(count, nvmlDeviceGetP2PStatus=status))
    assert machine.notes == notes


def test_nothing_without_a_gpu(tmp_path: Path) -> None:
    machine = Machine("x")
    assert discover(machine, tmp_path) is machine


def test_a_gpu_without_a_driver(root: Path) -> None:
    library = FakeNvml(nvmlInit=NVMLError("NVML Shared Library Not Found"))
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
    assert machine.notes == ("1 GPUs do not answer NVML (no permission, or lost); they are left out",)


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
    assert "".join(visible("abc", ["GPU-a1", "GPU-b2", "GPU-c3"], environment)) == chosen


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
    replays = SimpleNamespace(nvmlReturn=0, valueType=3, value=SimpleNamespace(ullVal=4))
    nvml = Nvml(
        FakeNvml(
            nvmlDeviceGetClockInfo=lambda h, kind: {1: 1980, 2: 3201}[kind],
            nvmlDeviceGetPowerUsage=120_500,
            nvmlDeviceGetCurrentClocksThrottleReasons=0x4 | 0x20,
            nvmlDeviceGetFieldValues=[replays],
            nvmlDeviceGetComputeRunningProcesses=[SimpleNamespace(pid=2**22 + 1)],
        )
    )
    gpu = Gpu(0, "NVIDIA H200", "00000000:00:06")
    assert nvml.state(gpu) == {
        "gpu0 SM clock [Hz]": 1980e6,
        "gpu0 memory clock [Hz]": 3201e6,
        "gpu0 power [W]": 120.5,
        "gpu0 clocks held back by": "power cap, thermal slowdown",
        "gpu0 PCIe replays": 4.0,
        "gpu0 processes": 1,
    }
    assert list(nvml.users(gpu)) == [f"a process (PID {2**22 + 1})"]
