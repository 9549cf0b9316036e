"""State of GPUs from NVML: clocks, throttle reasons, temperatures, errors, processes."""

from __future__ import annotations

import re
from collections.abc import Callable, Hashable, Mapping, Sequence
from ctypes import byref
from itertools import takewhile
from typing import Any, TypeVar

from ...hardware.devices import Gpu
from ...tables import GENERATION, IDLE, P_STATE, RETRAINED, THROTTLED, THROTTLED_BY, Quantity, State
from ..gpu.gpu_driver import Monitor
from ..pci import LinkSpeed, read
from ..system_files import TreePath

K = TypeVar("K", bound=Hashable)

#: Maximum number of fields of one call. After CUDA was initialised, NVML of driver 580 crashed in half of the
#: processes that asked for the 51 counters of all NVLinks in one call, after six of one link with three.
_FIELDS_AT_ONCE = 3
_MEGA = 1e6
_MILLI, _NANO = 1e-3, 1e-9

#: Bits of throttle reasons. Source: nvmlClocksEventReason* in nvml.h.
_REASONS = {
    0x1: IDLE,
    0x2: "application clocks",
    0x4: "power cap",
    0x8: "hardware slowdown",
    0x10: "sync boost",
    0x20: "thermal slowdown",
    0x40: "hardware thermal slowdown",
    0x80: "power brake",
    0x100: "display clocks",
}

#: States of a GPU in the fabric of NVLink switches: joined, and the states before.
#: Source: NVML_GPU_FABRIC_STATE_* in nvml.h.
JOINED = 3
_JOINING = {1: "not started", 2: "in progress"}

#: Counter of errors -> name of the field in NVML.
_COUNTERS = {
    "PCIe replays": "NVML_FI_DEV_PCIE_REPLAY_COUNTER",
    "corrected ECC errors": "NVML_FI_DEV_ECC_SBE_VOL_TOTAL",
    "uncorrected ECC errors": "NVML_FI_DEV_ECC_DBE_VOL_TOTAL",
    "NVLink CRC errors": "NVML_FI_DEV_NVLINK_CRC_FLIT_ERROR_COUNT_TOTAL",
    "NVLink replays": "NVML_FI_DEV_NVLINK_REPLAY_ERROR_COUNT_TOTAL",
    "NVLink recoveries": "NVML_FI_DEV_NVLINK_RECOVERY_ERROR_COUNT_TOTAL",
}
#: Throttle reason -> field of its time, in ns. 269 to 271 are of newer drivers; 75 contains the thermal ones.
#: Source: NVML_FI_DEV_CLOCKS_EVENT_REASON_* and NVML_FI_DEV_PERF_POLICY_* in nvml.h.
_THROTTLED = {"power cap": 74, "thermal slowdown": 269, "hardware thermal slowdown": 270, "power brake": 271,
              "sync boost": 76, "board limit": 77, "temperature": 75}  # fmt: skip
#: Counter of the PCIe link of a GPU -> its field. Source: NVML_FI_DEV_PCIE_* in nvml.h.
_PCIE = {RETRAINED: 169, "PCIe NAKs received": 174, "PCIe receiver errors": 175, "PCIe bad TLPs": 176,
         "PCIe NAKs sent": 177, "PCIe bad DLLPs": 178, "PCIe LCRC errors": 182, "PCIe lane errors": 183,
         "PCIe non-fatal errors": 179, "PCIe fatal errors": 180}  # fmt: skip
#: NVML fields that count NVLink errors: of all links of a GPU up to the third generation, of one link from
#: the fourth, and more of one link from the fifth. Source: NVML_FI_DEV_NVLINK_* in nvml.h.
_ERRORS = {"CRC errors": 38, "CRC errors of data": 45, "replays": 52, "recoveries": 59}
_ERRORS_OF_LINK = {"CRC errors": 163, "replays": 161, "recoveries": 162, "link recoveries": 215,
                   "failed link recoveries": 214, "integrity errors": 211}  # fmt: skip
_MAX_LINKS = 36
#: Reasons why NVML denies peer access, by status; 0 is no reason. Source: NVML_P2P_STATUS_* in nvml.h.
REFUSALS = {
    1: "chipset not supported",
    2: "GPU not supported",
    3: "topology of the I/O hubs not supported",
    4: "disabled by a setting of the driver",
    5: "not supported",
    6: "unknown reason",
}


def kernel_module(root: TreePath) -> str:
    """The driver version as the kernel module reports it, e.g. 580.95.05; empty if it is not loaded."""
    version = re.search(r"\b\d{3,}\.\d[\d.]*", read(root / "proc/driver/nvidia/version"))
    return version[0] if version else ""


class Silence:
    """Replacement for ``pynvml`` without NVML: answers nothing."""

    class NVMLError(Exception):
        """Never raised."""

    def nvmlInit(self) -> None: ...

    def nvmlShutdown(self) -> None: ...

    def __getattr__(self, name: str) -> int:
        if name.startswith("NVML_"):
            return -1
        raise AttributeError(name)


class Nvml(Monitor):
    """NVML, initialised. A query that NVML does not answer returns None.

    Attributes:
        library: The module ``pynvml``, or a replacement in a test.
    """

    def __init__(self, library: Any) -> None:
        self.library = library
        library.nvmlInit()

    def close(self) -> None:
        """Shut NVML down."""
        self.library.nvmlShutdown()

    def ask(self, function: str, *arguments: Any) -> Any:
        """The result of an NVML function; None if it fails or does not exist."""
        call: Callable[..., Any] | None = getattr(self.library, function, None)
        if call is None:
            return None
        try:
            return call(*arguments)
        except self.library.NVMLError:
            return None

    @staticmethod
    def bus_id(info: Any) -> str:
        """The bus ID of NVML's structure about a PCI device, in the form ``00000000:00:06``."""
        return f"{info.domain:08x}:{info.bus:02x}:{info.device:02x}"

    def handle(self, gpu: Gpu) -> Any:
        """NVML's handle of a GPU, by bus ID, since CUDA may number GPUs differently."""
        return self.ask("nvmlDeviceGetHandleByPciBusId", f"{gpu.bus_id}.0".encode())

    def fields(self, handle: Any, wanted: Mapping[K, Any]) -> dict[K, float]:
        """Name -> value of the fields that NVML knows."""
        values = self.field_values(handle, list(wanted.values()))
        return {name: value for name, value in zip(wanted, values, strict=False) if value is not None}

    def field_values(self, handle: Any, fields: Sequence[Any]) -> list[float | None]:
        """The value of each field, which is a number, or a number and a link; None if unknown."""
        values: list[float | None] = []
        for start in range(0, len(fields), _FIELDS_AT_ONCE):
            asked = list(fields[start : start + _FIELDS_AT_ONCE])
            answers = self.ask("nvmlDeviceGetFieldValues", handle, asked) or [None] * len(asked)
            values += [
                _value(answer) if answer is not None and answer.nvmlReturn == 0 else None
                for answer in answers
            ]
        return values

    def of_links(self, handle: Any, wanted: Mapping[str, int], links: int) -> dict[str, float]:
        """Name -> sum over the NVLinks of the fields that NVML knows of each.

        A field of a link takes 0.7 ms (on an H200), so those that the first link lacks are not asked.
        """
        sums = self.fields(handle, {name: (field, 0) for name, field in wanted.items()})
        asked = {(name, i): (wanted[name], i) for name in sums for i in range(1, links)}
        for (name, _), value in self.fields(handle, asked).items():
            sums[name] += value
        return sums

    def links(self, handle: Any) -> list[bool]:
        """Whether each NVLink of a GPU is active."""
        states = (self.ask("nvmlDeviceGetNvLinkState", handle, link) for link in range(_MAX_LINKS))
        return [bool(state) for state in takewhile(lambda state: state is not None, states)]

    def nvlink_errors(self, handle: Any, links: int) -> dict[str, float]:
        """The counters of NVLink errors of a GPU with this number of links: up to 4 ms per link."""
        return self.fields(handle, _ERRORS) | self.of_links(handle, _ERRORS_OF_LINK, links)

    def counters(self, gpu: Gpu) -> State:
        """The counters of errors that take too long to be read during measurements."""
        if (handle := self.handle(gpu)) is None:
            return ()
        counts = self.fields(handle, _PCIE)
        errors = self.of_links(handle, _ERRORS_OF_LINK, len(self.links(handle)))
        counts |= {f"{name} of all NVLinks": count for name, count in errors.items()}
        return tuple(Quantity(gpu.name, name, count, counter=True) for name, count in counts.items())

    def fabric_info(self, handle: Any) -> Any:
        """NVML's structure about a GPU in the NVLink fabric; None if there is none."""
        for function in ("GpuFabricInfoV", "GpuFabricInfo"):  # the second is for old drivers
            info = self.ask(f"c_nvml{function}_t")
            if info is not None and self.ask(f"nvmlDeviceGet{function}", handle, byref(info)) is not None:
                return info
        return None

    def fabric(self, handle: Any) -> str:
        """Why a GPU is not in the NVLink fabric; empty if it is, or if there is no fabric."""
        info = self.fabric_info(handle)
        if info is not None and info.state in _JOINING:
            return f"not ready ({_JOINING[info.state]}): is the fabric manager running?"
        if info is not None and info.state == JOINED and info.status:  # the status is meaningless before
            error = self.ask("nvmlErrorString", info.status) or f"error {info.status}"
            return f"failed ({decoded(error)}): see the log of the fabric manager"
        return ""

    def pcie(self, gpu: Gpu) -> LinkSpeed | None:
        """The speed of the PCIe link of a GPU, and what GPU and system support."""
        if (handle := self.handle(gpu)) is None:
            return None
        read = [
            self.ask(f"nvmlDeviceGet{limit}PcieLink{quantity}", handle)
            for limit in ("Curr", "Max")
            for quantity in ("Generation", "Width")
        ]
        return LinkSpeed(f"{gpu.bus_id[4:]}.0", *read) if all(read) else None

    def state(self, gpu: Gpu) -> State:
        """The readings that affect the speed of a GPU."""
        handle, lib = self.handle(gpu), self.library
        if handle is None:
            return ()
        readings: list[Quantity] = []

        def note(name: str, function: str, *arguments: Any, scale: float = 1, unit: str = "") -> None:
            if (value := self.ask(function, handle, *arguments)) is not None:
                readings.append(Quantity(gpu.name, name, value * scale, unit))

        note("SM clock", "nvmlDeviceGetClockInfo", lib.NVML_CLOCK_SM, scale=_MEGA, unit="Hz")
        note("memory clock", "nvmlDeviceGetClockInfo", lib.NVML_CLOCK_MEM, scale=_MEGA, unit="Hz")
        note(P_STATE, "nvmlDeviceGetPerformanceState")
        note("temperature", "nvmlDeviceGetTemperature", lib.NVML_TEMPERATURE_GPU, unit="°C")
        ecc = self.ask("nvmlDeviceGetEccMode", handle)
        if ecc is not None:
            readings.append(Quantity(gpu.name, "ECC", "on" if ecc[0] else "off"))
        note("power", "nvmlDeviceGetPowerUsage", scale=_MILLI, unit="W")
        note(GENERATION, "nvmlDeviceGetCurrPcieLinkGeneration")
        note("PCIe width", "nvmlDeviceGetCurrPcieLinkWidth")
        reasons = self.ask("nvmlDeviceGetCurrentClocksThrottleReasons", handle)
        if reasons is not None:
            readings.append(Quantity(gpu.name, THROTTLED, reasons_of(reasons)))
        wanted = {name: getattr(lib, field) for name, field in _COUNTERS.items() if hasattr(lib, field)}
        for name, value in self.fields(handle, wanted).items():
            readings.append(Quantity(gpu.name, name, value, counter=True))
        for reason, value in self.fields(handle, _THROTTLED).items():
            readings.append(Quantity(gpu.name, THROTTLED_BY + reason, value * _NANO, "s", counter=True))
        processes = self.ask("nvmlDeviceGetComputeRunningProcesses", handle)
        if processes is not None:
            readings.append(Quantity(gpu.name, "processes", len(processes)))
        return tuple(readings)

    def processes(self, gpu: Gpu) -> dict[int, int | None]:
        """The processes that compute on a GPU: ID -> bytes of its memory; None if not known."""
        running = self.ask("nvmlDeviceGetComputeRunningProcesses", self.handle(gpu)) or ()
        return {process.pid: process.usedGpuMemory for process in running}

    def free_memory(self, gpu: Gpu) -> tuple[int, int] | None:
        """The free and all bytes of the memory of a GPU; None if not known."""
        memory = self.ask("nvmlDeviceGetMemoryInfo", self.handle(gpu))
        return (int(memory.free), int(memory.total)) if memory else None


def decoded(answer: str | bytes) -> str:
    """A text of NVML, which is bytes in old packages."""
    return answer.decode() if isinstance(answer, bytes) else answer


def reasons_of(bits: int) -> tuple[str, ...]:
    """The throttle reasons in NVML's bits."""
    return tuple(text for bit, text in _REASONS.items() if bits & bit)


def _value(answer: Any) -> float:
    """The union member that the type of an answer names. Source: nvmlValueType_t in nvml.h."""
    member = ("dVal", "uiVal", "ulVal", "ullVal", "sllVal", "siVal", "usVal")[answer.valueType]
    return float(getattr(answer.value, member))
