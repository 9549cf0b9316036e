"""What GPUs there are, how they are linked and what they reach: from NVML, without a CUDA context."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from ...topology import Gpu, Link, LinkKind, Machine
from ...units import GB, MB
from . import pci
from .nvml import Nvml
from .packages import INSTALL

_NVIDIA, _DISPLAY = "0x10de", "0x03"
#: Where devices are when the PCI bus cannot be seen.
_NODES = ("dev/nvidiactl", "dev/dxg")

#: CUDA cores of a multiprocessor where they are not 128. Source: CUDA C++ Programming Guide.
_CORES = {"6.0": 64, "7.0": 64, "7.2": 64, "7.5": 64, "8.0": 64}
_MOST_LINKS = 36
_SWITCH = "nvswitch"
#: Why NVML refuses peer access. The first is how old packages spell it.
_REFUSALS = {
    "NVML_P2P_STATUS_CHIPSET_NOT_SUPPORED": "chipset not supported",
    "NVML_P2P_STATUS_CHIPSET_NOT_SUPPORTED": "chipset not supported",
    "NVML_P2P_STATUS_GPU_NOT_SUPPORTED": "GPU not supported",
    "NVML_P2P_STATUS_IOH_TOPOLOGY_NOT_SUPPORTED": "topology of the I/O hubs not supported",
    "NVML_P2P_STATUS_DISABLED_BY_REGKEY": "disabled by a setting of the driver",
    "NVML_P2P_STATUS_NOT_SUPPORTED": "not supported",
    "NVML_P2P_STATUS_UNKNOWN": "the driver does not say why",
}


def discover(machine: Machine, root: Path = Path("/"), library: Any = None) -> Machine:
    """Add the GPUs of this host to a Machine, numbered as CUDA numbers them.

    Parameters
    ----------
    root
        Where ``sys`` and ``dev`` are.
    library
        What stands in for ``pynvml``; None: the installed one.

    Returns
    -------
    Machine
        What could not be found out is named in ``notes``.
    """
    seen = _on_bus(root)
    if not seen and not any((root / node).exists() for node in _NODES):
        return machine

    def unable(why: str) -> Machine:
        note = f"NVIDIA GPUs cannot be used, although the PCI bus shows {seen or 'some'}: {why}"
        return replace(machine, notes=(*machine.notes, note))

    if library is None:
        if find_spec("pynvml") is None:
            return unable(f"the Python package nvidia-ml-py is missing: {INSTALL}")
        import pynvml

        library = pynvml
    try:
        nvml = Nvml(library)
    except library.NVMLError as error:
        return unable(f"NVML says {error}; install the NVIDIA driver, or restart after its update")
    try:
        return _Reader(nvml, root).describe(machine)
    finally:
        nvml.close()


def _on_bus(root: Path) -> int:
    """How many NVIDIA GPUs the PCI bus shows."""
    found = 0
    for device in (root / "sys/bus/pci/devices").glob("*"):
        if pci.read(device / "vendor") == _NVIDIA and pci.read(device / "class").startswith(_DISPLAY):
            found += 1
    return found


@dataclass
class _Reader:
    """Reads one host by NVML and sysfs, and notes what it could not read."""

    nvml: Nvml
    root: Path
    notes: list[str] = field(default_factory=list)

    def describe(self, machine: Machine) -> Machine:
        """Return the Machine with its GPUs."""
        handles = [h for h in self._visible(self._handles()) if not self._partitioned(h)]
        gpus = [self._gpu(i, handle) for i, handle in enumerate(handles)]
        gpus, refused = self._with_peers(gpus, handles)
        links = list[Link]()
        for gpu, handle in zip(gpus, handles, strict=True):
            links += self._memory(gpu, handle)
            links += self._pcie(gpu, handle, links)
            links += self._nvlink(gpu, handle, gpus)
            if unready := self.nvml.fabric(handle):
                self.notes.append(f"NVLink fabric of {gpu.name}: {unready}")
        self.notes += refused
        return replace(
            machine,
            driver=self._text("nvmlSystemGetDriverVersion"),
            cuda=self.nvml.ask("nvmlSystemGetCudaDriverVersion_v2") or 0,
            gpus=tuple(gpus),
            links=(*machine.links, *links),
            notes=(*machine.notes, *self.notes),
        )

    def _handles(self) -> list[Any]:
        count = self.nvml.ask("nvmlDeviceGetCount") or 0
        handles = [self.nvml.ask("nvmlDeviceGetHandleByIndex", i) for i in range(count)]
        if None in handles:
            self.notes.append(
                f"{handles.count(None)} GPUs do not answer NVML (no permission, or lost); they are left out"
            )
        return [handle for handle in handles if handle is not None]

    def _visible(self, handles: list[Any]) -> list[Any]:
        """Choose and order GPUs as CUDA does.

        NVML has them in the order of the PCI bus; CUDA puts the fastest first, unless told otherwise.
        """
        names = {self._text("nvmlDeviceGetName", handle) for handle in handles}
        if len(names) > 1 and os.environ.get("CUDA_DEVICE_ORDER") != "PCI_BUS_ID":
            found = {self._bus_id(handle): handle for handle in handles}
            return [found[bus_id] for bus_id in self._cuda_order() if bus_id in found]
        return visible(
            handles,
            [self._text("nvmlDeviceGetUUID", handle) for handle in handles],
            os.environ,
        )

    def _cuda_order(self) -> Sequence[str]:
        """Bus ids as CUDA enumerates them, for GPUs of several models; this starts CUDA."""
        if find_spec("cuda") is None or find_spec("cuda.bindings") is None:
            self.notes.append(f"the numbers of the GPUs are unknown without cuda-bindings: {INSTALL}")
            return ()
        from ...errors import BackendError
        from .device import handles

        try:
            return tuple(handles())
        except BackendError as error:
            self.notes.append(f"the GPUs cannot be measured: {error}")
            return ()

    def _partitioned(self, handle: Any) -> bool:
        """Whether a GPU is divided into instances, which have no peers and no copy engines of their own."""
        mode = self.nvml.ask("nvmlDeviceGetMigMode", handle)
        if mode and mode[0]:
            self.notes.append(f"the GPU at {self._bus_id(handle)} is in MIG mode; it is left out")
            return True
        return False

    def _gpu(self, index: int, handle: Any) -> Gpu:
        bus_id = self._bus_id(handle)
        capability = self.nvml.ask("nvmlDeviceGetCudaComputeCapability", handle)
        text = ".".join(str(part) for part in capability) if capability else ""
        cores = self.nvml.ask("nvmlDeviceGetNumGpuCores", handle) or 0
        memory = self.nvml.ask("nvmlDeviceGetMemoryInfo", handle)
        return Gpu(
            index,
            self._text("nvmlDeviceGetName", handle),
            bus_id,
            memory.total if memory else 0,
            self._node(bus_id),
            cores // _CORES.get(text, 128),
            text,
        )

    def _bus_id(self, handle: Any) -> str:
        """In the form ``00000000:00:06``."""
        info = self.nvml.ask("nvmlDeviceGetPciInfo", handle)
        return f"{info.domain:08x}:{info.bus:02x}:{info.device:02x}" if info else ""

    def _device(self, bus_id: str) -> Path:
        """Where sysfs has a PCI device."""
        return self.root / f"sys/bus/pci/devices/{bus_id[4:]}.0"

    def _node(self, bus_id: str) -> int:
        """The NUMA node of a PCI device; the first one where the kernel says none."""
        text = pci.read(self._device(bus_id) / "numa_node")
        return int(text) if text.isdecimal() else 0

    def _with_peers(self, gpus: Sequence[Gpu], handles: Sequence[Any]) -> tuple[list[Gpu], list[str]]:
        """The GPUs with the names of their peers, and why the others are none, a note for each reason."""
        allowed = self.nvml.library.NVML_P2P_STATUS_OK
        found, refused = list[Gpu](), dict[int, dict[tuple[str, ...], None]]()
        for gpu, handle in zip(gpus, handles, strict=True):
            peers = []
            for other, h in zip(gpus, handles, strict=True):
                if other is gpu:
                    continue
                read, write = (self.nvml.ask("nvmlDeviceGetP2PStatus", handle, h, way) for way in (0, 1))
                if read == write == allowed:
                    peers.append(other.name)
                pair = tuple(x.name for x in sorted((gpu, other), key=lambda x: x.index))
                for status in {read, write} - {allowed, None}:
                    refused.setdefault(status, {})[pair] = None
            found.append(replace(gpu, peers=tuple(peers)))
        return found, [self._refusal(status, list(pairs), len(gpus)) for status, pairs in refused.items()]

    def _refusal(self, status: int, pairs: Sequence[tuple[str, ...]], gpus: int) -> str:
        lib = self.nvml.library
        why = {getattr(lib, name): text for name, text in _REFUSALS.items() if hasattr(lib, name)}
        of_all = 1 < len(pairs) == gpus * (gpus - 1) // 2
        who = "any two GPUs" if of_all else ", ".join(" and ".join(pair) for pair in pairs)
        return f"no peer access between {who}: {why.get(status, f'status {status}')}"

    def _memory(self, gpu: Gpu, handle: Any) -> list[Link]:
        clock = self.nvml.ask("nvmlDeviceGetMaxClockInfo", handle, self.nvml.library.NVML_CLOCK_MEM)
        width = self.nvml.ask("nvmlDeviceGetMemoryBusWidth", handle)
        if not clock or not width:
            self.notes.append(f"memory speed of {gpu.name}: unknown, NVML does not say")
            return [Link(gpu.name, gpu.name, LinkKind.MEMORY, origin="unknown")]
        capacity = clock * MB * 2 * width / 8
        return [Link(gpu.name, gpu.name, LinkKind.MEMORY, capacity, f"{clock} MHz x 2 x {width} bit")]

    def _pcie(self, gpu: Gpu, handle: Any, known: Sequence[Link]) -> list[Link]:
        """Up to the NUMA node, by what the ends of each link can do: an idle one sleeps at a lower speed."""
        node = f"numa{gpu.numa}"
        links, notes = pci.links_above(self._device(gpu.bus_id), gpu.name, node, known)
        self.notes += notes
        if links:
            return links
        generation = self.nvml.ask("nvmlDeviceGetMaxPcieLinkGeneration", handle)
        width = self.nvml.ask("nvmlDeviceGetMaxPcieLinkWidth", handle)
        rate = pci.rate(generation or 0, width or 0)
        if rate is None:
            self.notes.append(f"PCIe speed of {gpu.name}: unknown, NVML does not say")
        return pci.both_ways(node, gpu.name, *(rate or (None, "unknown")))

    def _nvlink(self, gpu: Gpu, handle: Any, gpus: Sequence[Gpu]) -> list[Link]:
        """The sum of the active links to each other end: the switch, or another GPU."""
        speeds: dict[str, list[float | None]] = {}
        others = [other for other in gpus if other.name in gpu.peers]
        for link in range(_MOST_LINKS):
            active = self.nvml.ask("nvmlDeviceGetNvLinkState", handle, link)
            if active is None:
                break
            if active:
                speeds.setdefault(self._far_end(handle, link, others), []).append(self._speed(handle, link))
        links = []
        for end, rates in speeds.items():
            known = [rate for rate in rates if rate]
            capacity, origin = None, "unknown"
            if len(known) == len(rates):
                capacity, origin = sum(known), f"{len(known)} links x {sum(known) / len(known) / GB:.5g} GB/s"
            else:
                self.notes.append(f"NVLink speed of {gpu.name}: unknown, NVML does not say")
            links.append(Link(gpu.name, end, LinkKind.NVLINK, capacity, origin))
            if end == _SWITCH:
                links.append(Link(end, gpu.name, LinkKind.NVLINK, capacity, origin))
        return links

    def _far_end(self, handle: Any, link: int, others: Sequence[Gpu]) -> str:
        """A switch, unless NVML names a GPU, or does not say and there is only one that it can be."""
        lib = self.nvml.library
        kind = self.nvml.ask("nvmlDeviceGetNvLinkRemoteDeviceType", handle, link)
        if kind == lib.NVML_NVLINK_DEVICE_TYPE_SWITCH:
            return _SWITCH
        info = self.nvml.ask("nvmlDeviceGetNvLinkRemotePciInfo", handle, link)
        if info:
            bus_id = f"{info.domain:08x}:{info.bus:02x}:{info.device:02x}"
            for other in others:
                if other.bus_id == bus_id:
                    return other.name
        return others[0].name if len(others) == 1 else _SWITCH

    def _speed(self, handle: Any, link: int) -> float | None:
        wanted = {"speed": (self.nvml.library.NVML_FI_DEV_NVLINK_GET_SPEED, link)}
        speed = self.nvml.fields(handle, wanted).get("speed")
        return speed * MB if speed else None

    def _text(self, function: str, *arguments: Any) -> str:
        answer = self.nvml.ask(function, *arguments) or ""
        return answer.decode() if isinstance(answer, bytes) else str(answer)


def visible(handles: Sequence[Any], uuids: Sequence[str], environment: Mapping[str, str]) -> list[Any]:
    """Return the devices that ``CUDA_VISIBLE_DEVICES`` leaves, in its order.

    Numbers, or the beginnings of UUIDs; the list ends at the first entry that fits none.
    """
    text = environment.get("CUDA_VISIBLE_DEVICES")
    if text is None:
        return list(handles)
    chosen = []
    for entry in (part.strip() for part in text.split(",")):
        if entry.isdecimal():
            fitting = [int(entry)] if int(entry) < len(handles) else []
        else:
            fitting = [i for i, uuid in enumerate(uuids) if entry and uuid.startswith(entry)]
        if len(fitting) != 1:
            break
        chosen.append(handles[fitting[0]])
    return chosen
