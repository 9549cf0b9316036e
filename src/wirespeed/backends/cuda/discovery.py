"""Discovery of the GPUs of this host that ``CUDA_VISIBLE_DEVICES`` selects, with their links and peers, by
NVML and CUDA; no context is created.
"""

from __future__ import annotations

import math
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from ...errors import BackendError
from ...hardware import pcie
from ...hardware.devices import Gpu, NumaNode
from ...hardware.topology import Link, LinkKind, Machine
from ...units import GB, MB
from .. import pci
from ..system_files import HERE, TreePath
from .nvml import REFUSALS, Nvml, Silence, decoded, kernel_module
from .packages import BINDINGS, INSTALL, NVML_MISSING
from .recorded_nvml import opened

if TYPE_CHECKING:
    from .cuda_driver import Cuda


def visible(uuids: Sequence[str], environment: Mapping[str, str]) -> tuple[list[int], str]:
    """The devices that ``CUDA_VISIBLE_DEVICES`` selects, in its order, and its first entry without a match.

    Entries are numbers or prefixes of UUIDs. The list ends at the first entry without a match, which is
    empty if there is none, or if it is meant to hide devices.
    """
    text = environment.get("CUDA_VISIBLE_DEVICES")
    if text is None:
        return list(range(len(uuids))), ""
    chosen = list[int]()
    for entry in (part.strip() for part in text.split(",")):
        if entry.isdecimal():
            fitting = [int(entry)] if int(entry) < len(uuids) else []
        else:
            fitting = [i for i, uuid in enumerate(uuids) if entry and uuid.startswith(entry)]
        if len(fitting) != 1:
            return chosen, "" if entry in ("-1", "NoDevFiles") else entry
        chosen.append(fitting[0])
    return chosen, ""


#: Location of devices if the PCI bus is not visible.
_NODES = ("dev/nvidiactl", "dev/dxg")

#: CUDA cores per multiprocessor, where not 128. Source: CUDA C++ Programming Guide.
_CORES = {"6.0": 64, "7.0": 64, "7.2": 64, "7.5": 64, "8.0": 64}
_MOST_LINKS = 36
_SWITCH = "nvswitch"
#: NVML fields without names in old packages. Source: NVML_FI_DEV_* in nvml.h.
_C2C_LINKS, _C2C_STATUS, _C2C_MB_PER_S = 170, 171, 172
#: Speed of all NVLinks of a GPU, and of the first one, on drivers before 530.
_NVLINK_COMMON, _NVLINK_FIRST = 90, 84
#: GB/s per direction of an NVLink, by nvmlNvlinkVersion_t. Source: NVIDIA's data sheets of P100 to B200.
_NVLINK_GB = {1: 20, 2: 25, 3: 25, 4: 25, 5: 25, 6: 25, 7: 50}
#: Source: NVML_CLOCK_MEM, NVML_NVLINK_DEVICE_TYPE_SWITCH, NVML_FI_DEV_NVLINK_GET_SPEED in nvml.h.
_MEMORY_CLOCK, _IS_SWITCH, _NVLINK_SPEED = 2, 2, 164


def discover(machine: Machine, root: TreePath = HERE, library: Any = None, *, exact: bool = True) -> Machine:
    """Add the GPUs of this host to a Machine, numbered as in CUDA.

    Args:
        root: Folder that contains ``sys`` and ``dev``.
        library: Replacement for ``pynvml``; None for the installed one.
        exact: Whether CUDA confirms peer access that NVML allows. Its initialisation takes half a second.

    Returns:
        The machine; ``notes`` name what could not be determined.
    """
    if not is_present(root):
        return machine
    if root.tree.recorded:
        reader = _Reader(opened(root, None), root)
        described = reader.nvml.ask("nvmlDeviceGetCount") is not None
        return reader.describe(machine) if described else reader.describe_bus(machine)

    def unable(why: str) -> Machine:
        seen = len(pci.gpus(root))
        note = f"NVIDIA GPUs cannot be used, although the PCI bus shows {seen or 'some'}: {why}"
        return replace(machine, notes=(*machine.notes, note))

    missing = ""
    if library is None:
        if find_spec("pynvml") is None:
            library, missing = Silence(), NVML_MISSING
        else:
            import pynvml

            library = pynvml
    try:
        nvml = opened(root, library)
    except library.NVMLError as error:
        nvml = Nvml(Silence())
        missing = f"NVML reports {error}; install the NVIDIA driver, or restart after a driver update"
    reader = _Reader(nvml, root, exact)
    try:
        if not missing:
            return reader.describe(machine)
        if reader.cuda is None:
            return unable(missing)
        reader.notes.append(
            f"link speeds, clocks, errors and users of GPUs are unknown without NVML: {missing}"
        )
        return reader.describe(machine)
    except BackendError as error:  # CUDA enumerates GPUs but cannot describe them
        return unable(f"{missing or 'CUDA does not describe them'}; {error}")
    finally:
        nvml.close()


def is_present(root: TreePath) -> bool:
    """Whether there may be NVIDIA GPUs: on the PCI bus, or behind a device of the driver."""
    on_bus = bool(pci.gpus(root))
    return any([on_bus, *((root / node).exists() for node in _NODES)])  # a recorder notes all of them


@dataclass
class _Reader:
    """Read one host with NVML, CUDA and sysfs, and note what could not be read.

    Without NVML, GPUs have no NVML handle and are described by CUDA.
    """

    nvml: Nvml
    root: TreePath
    exact: bool = True
    notes: list[str] = field(default_factory=list)

    def describe(self, machine: Machine) -> Machine:
        """The Machine with its GPUs."""
        handles: list[Any] = [h for h in self._visible(self._handles()) if not self._partitioned(h)]
        gpus = [self._gpu(i, handle, machine.numa) for i, handle in enumerate(handles)]
        if not handles and isinstance(self.nvml.library, Silence):
            gpus = self._gpus_by_cuda(machine.numa)
            handles = [None] * len(gpus)
        gpus, refused = self._with_peers(gpus, handles)
        links = list[Link]()
        for gpu, handle in zip(gpus, handles, strict=True):
            links += self._memory(gpu, handle)
            links += self._pcie(gpu, handle, links)
            links += self._c2c(gpu, handle)
            links += self._nvlink(gpu, handle, gpus)
            if unready := self.nvml.fabric(handle):
                self.notes.append(f"NVLink fabric of {gpu.name}: {unready}")
        self.notes += refused
        return replace(
            machine,
            driver=self._text("nvmlSystemGetDriverVersion") or kernel_module(self.root),
            cuda=self.nvml.ask("nvmlSystemGetCudaDriverVersion_v2")
            or (self.cuda.version() if self.cuda else 0),
            confidential=self._confidential(),
            gpus=tuple(gpus),
            links=(*machine.links, *links),
            notes=(*machine.notes, *self.notes),
        )

    def describe_bus(self, machine: Machine) -> Machine:
        """The Machine of a tree without NVML's answers, with GPUs as the PCI bus shows them."""
        gpus, links = list[Gpu](), list[Link]()
        for device in pci.gpus(self.root):
            address = device.name
            if not address.endswith(".0") or not pci.ADDRESS.fullmatch(address):
                continue
            name, bus_id = f"gpu{len(gpus)}", address.removesuffix(".0").rjust(14, "0")
            information = pci.information(address, self.root)
            model = information.get("Model") or f"NVIDIA device {pci.read(device / 'device')}".strip()
            gpus.append(Gpu(len(gpus), model, bus_id, 0, self._node(name, bus_id, machine.numa), 0, ""))
            above, notes = pci.links_above(device, name, f"numa{gpus[-1].numa}", links)
            links += above
            self.notes += notes
        self.notes.append("the tree has no answers of NVML: GPUs are described by the PCI bus only")
        return replace(
            machine,
            driver=kernel_module(self.root),
            gpus=tuple(gpus),
            links=(*machine.links, *links),
            notes=(*machine.notes, *self.notes),
        )

    @cached_property
    def cuda(self) -> Cuda | None:
        """CUDA, initialised on first use, which takes a quarter of a second; None if that fails.

        None for a recorded tree, too: its GPUs are not here.
        """
        if self.root.tree.recorded:
            return None
        if find_spec("cuda") is None or find_spec("cuda.bindings") is None:
            self.notes.append(f"the GPUs cannot be measured: the package {BINDINGS} is missing: {INSTALL}")
            return None
        from .cuda_driver import Cuda

        try:
            return Cuda()
        except BackendError as error:
            self.notes.append(f"the GPUs cannot be measured: {error}")
            return None

    def _confidential(self) -> bool:
        state = self.nvml.ask("nvmlSystemGetConfComputeState")
        if state is None or not state.ccFeature:
            return False
        self.notes.append(
            "the GPUs are in confidential computing mode: the host's clock times copies with it"
        )
        return True

    def _handles(self) -> list[Any]:
        count = self.nvml.ask("nvmlDeviceGetCount") or 0
        handles = [self.nvml.ask("nvmlDeviceGetHandleByIndex", i) for i in range(count)]
        if None in handles:
            self.notes.append(
                f"{handles.count(None)} GPUs do not answer NVML (no permission, or lost) and are ignored"
            )
        return [handle for handle in handles if handle is not None]

    def _visible(self, handles: list[Any]) -> list[Any]:
        """Select and order GPUs as CUDA does.

        NVML uses the order of the PCI bus; CUDA puts the fastest first unless configured otherwise.
        """
        names = {self._text("nvmlDeviceGetName", handle) for handle in handles}
        if self.root.tree.recorded:
            return handles
        if len(names) > 1 and os.environ.get("CUDA_DEVICE_ORDER") != "PCI_BUS_ID":
            by_bus_id = {self._bus_id(handle): handle for handle in handles}
            return [by_bus_id[bus_id] for bus_id in self._cuda_order() if bus_id in by_bus_id]
        uuids = [self._text("nvmlDeviceGetUUID", handle) for handle in handles]
        chosen, unknown = visible(uuids, os.environ)
        if unknown:
            why = "no GPU matches"
            if unknown.startswith("MIG-"):
                why = "MIG instances are not supported; choose GPUs that are not in MIG mode"
            self.notes.append(f"CUDA_VISIBLE_DEVICES: {unknown} and the entries after it are ignored: {why}")
        return [handles[i] for i in chosen]

    def _cuda_order(self) -> Sequence[str]:
        """Bus IDs in CUDA's order, for GPUs of several models."""
        return self.cuda.bus_ids if self.cuda else ()

    def _partitioned(self, handle: Any) -> bool:
        """Whether a GPU is divided into MIG instances, without peers and copy engines."""
        mode = self.nvml.ask("nvmlDeviceGetMigMode", handle)
        if mode and mode[0]:
            self._leave_out(self._bus_id(handle))
            return True
        return False

    def _leave_out(self, bus_id: str) -> None:
        self.notes.append(f"the GPU at {bus_id} is in MIG mode and is ignored")

    def _gpus_by_cuda(self, nodes: Sequence[NumaNode]) -> list[Gpu]:
        cuda, gpus = self.cuda, list[Gpu]()
        for bus_id in cuda.bus_ids if cuda else ():
            assert cuda is not None
            name = cuda.name(bus_id)
            if " MIG " in name:
                self._leave_out(bus_id)
                continue
            major, minor = (
                cuda.attribute(bus_id, f"COMPUTE_CAPABILITY_{part}") for part in ("MAJOR", "MINOR")
            )
            gpus.append(
                Gpu(
                    len(gpus),
                    name,
                    bus_id,
                    cuda.memory_bytes(bus_id),
                    self._node(f"gpu{len(gpus)}", bus_id, nodes),
                    cuda.attribute(bus_id, "MULTIPROCESSOR_COUNT"),
                    f"{major}.{minor}",
                    uuid=cuda.uuid(bus_id),
                )
            )
        return gpus

    def _gpu(self, index: int, handle: Any, nodes: Sequence[NumaNode]) -> Gpu:
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
            self._node(f"gpu{index}", bus_id, nodes),
            cores // _CORES.get(text, 128),
            text,
            uuid=self._text("nvmlDeviceGetUUID", handle),
        )

    def _bus_id(self, handle: Any) -> str:
        """The bus ID in the form ``00000000:00:06``."""
        info = self.nvml.ask("nvmlDeviceGetPciInfo", handle)
        return self.nvml.bus_id(info) if info else ""

    def _node(self, gpu: str, bus_id: str, nodes: Sequence[NumaNode]) -> int:
        """The NUMA node of a PCI device; the first one if the kernel reports none.

        For a node without CPUs (memory of a GPU, or of a board), the nearest node with CPUs.
        """
        text = pci.read(pci.entry(bus_id, self.root) / "numa_node")
        index = int(text) if re.fullmatch(r"[0-9]{1,4}", text) else 0
        folder = self.root / f"sys/devices/system/node/node{index}"
        known = pci.read(folder / "cpulist") if folder.exists() else index in {node.index for node in nodes}
        hosts = [node for node in nodes if node.cpus and node.memory_bytes]
        if known or not hosts:
            return index
        distances = [int(text) for text in re.findall(r"\b\d{1,9}\b", pci.read(folder / "distance"))]
        far = dict(zip((node.index for node in nodes), distances, strict=False))
        nearest = min(hosts, key=lambda node: far.get(node.index, 0))
        self.notes.append(
            f"{gpu} is at numa{index}, which has no CPUs; the nearest with CPUs is {nearest.name}"
        )
        return nearest.index

    def _with_peers(self, gpus: Sequence[Gpu], handles: Sequence[Any]) -> tuple[list[Gpu], list[str]]:
        """The GPUs with their peers, and a note for each reason why others are not peers."""
        with_peers, refused = list[Gpu](), dict[str, dict[tuple[str, ...], None]]()
        for gpu, handle in zip(gpus, handles, strict=True):
            peers = []
            for other, h in zip(gpus, handles, strict=True):
                if other is gpu:
                    continue
                if not (why := self._refusal(gpu, other, handle, h)):
                    peers.append(other.name)
                    continue
                pair = tuple(end.name for end in sorted((gpu, other), key=lambda end: end.index))
                refused.setdefault(why, {})[pair] = None
            with_peers.append(replace(gpu, peers=tuple(peers)))
        return with_peers, [_refusal_note(why, list(pairs), len(gpus)) for why, pairs in refused.items()]

    def _refusal(self, gpu: Gpu, other: Gpu, handle: Any, of_other: Any) -> str:
        """Why a GPU has no peer access to another; empty if it has.

        CUDA decides and NVML explains; NVML decides only if CUDA does not know, or need not be exact.
        """
        ways = [self.nvml.ask("nvmlDeviceGetP2PStatus", handle, of_other, way) for way in (0, 1)]
        if not self.exact and ways == [0, 0]:
            return ""
        allowed = None
        try:
            allowed = self.cuda.can_access(gpu.bus_id, other.bus_id) if self.cuda else None
        except BackendError as error:
            self.notes.append(f"CUDA does not report whether {gpu.name} can access {other.name}: {error}")
        if allowed:
            return ""
        for status in ways:
            if status:
                return REFUSALS.get(status, f"status {status}")
        if None in ways:
            return "denied by CUDA and NVML" if allowed is None else "denied by CUDA"
        return "" if allowed is None else "denied by CUDA, although NVML allows it"

    def _memory(self, gpu: Gpu, handle: Any) -> list[Link]:
        clock = self.nvml.ask("nvmlDeviceGetMaxClockInfo", handle, _MEMORY_CLOCK)
        width = self.nvml.ask("nvmlDeviceGetMemoryBusWidth", handle)
        if handle is None and self.cuda:
            clock = self.cuda.attribute(gpu.bus_id, "MEMORY_CLOCK_RATE") // 1000  # kHz
            width = self.cuda.attribute(gpu.bus_id, "GLOBAL_MEMORY_BUS_WIDTH")
        if not clock or not width:
            self.notes.append(f"memory speed of {gpu.name}: unknown, not reported by NVML")
            return [Link(gpu.name, gpu.name, LinkKind.MEMORY, origin="unknown")]
        capacity = clock * MB * 2 * width / 8
        return [Link(gpu.name, gpu.name, LinkKind.MEMORY, capacity, f"{clock} MHz x 2 x {width} bit")]

    def _pcie(self, gpu: Gpu, handle: Any, known: Sequence[Link]) -> list[Link]:
        """The links up to the NUMA node, at full speed: an idle link runs at a lower speed."""
        node = f"numa{gpu.numa}"
        links, notes = pci.links_above(pci.entry(gpu.bus_id, self.root), gpu.name, node, known)
        self.notes += notes
        if links:
            return links
        generation = self.nvml.ask("nvmlDeviceGetMaxPcieLinkGeneration", handle)
        width = self.nvml.ask("nvmlDeviceGetMaxPcieLinkWidth", handle)
        rate = pcie.rate(generation or 0, width or 0)
        if rate is None:
            self.notes.append(f"PCIe speed of {gpu.name}: unknown, not reported by NVML")
        return pci.both_ways(node, gpu.name, *(rate or (None, "unknown")))

    def _c2c(self, gpu: Gpu, handle: Any) -> list[Link]:
        """The sum of the active NVLink-C2C links between a GPU and the CPU of its module."""
        ends = ((f"numa{gpu.numa}", gpu.name), (gpu.name, f"numa{gpu.numa}"))
        if handle is None and self.cuda:
            coherent = self.cuda.attribute(gpu.bus_id, "PAGEABLE_MEMORY_ACCESS_USES_HOST_PAGE_TABLES")
            return [Link(*way, LinkKind.C2C, origin="unknown") for way in ends if coherent]
        count = self.nvml.fields(handle, {"links": _C2C_LINKS}).get("links", 0)
        active = list[float]()
        for link in range(min(int(count), _MOST_LINKS)):
            wanted = {"status": (_C2C_STATUS, link), "speed": (_C2C_MB_PER_S, link)}
            link_fields = self.nvml.fields(handle, wanted)
            if link_fields.get("status") == 1:
                active.append(link_fields.get("speed", 0) * MB)
        if not active:
            return []
        sum_of_all = self._sum(active, f"NVLink-C2C speed of {gpu.name}")
        return [Link(*way, LinkKind.C2C, *sum_of_all) for way in ends]

    def _sum(self, rates: Sequence[float | None], subject: str) -> tuple[float | None, str]:
        """The capacity of several links together, and its origin; a note is added if one is unknown."""
        known = [rate for rate in rates if rate]
        if len(known) < len(rates):
            self.notes.append(f"{subject}: unknown, not reported by NVML")
            return None, "unknown"
        capacity = math.fsum(known)
        return capacity, f"{len(known)} links x {capacity / len(known) / GB:.5g} GB/s"

    def _nvlink(self, gpu: Gpu, handle: Any, gpus: Sequence[Gpu]) -> list[Link]:
        """The sum of the active links to each remote end: a switch or another GPU."""
        if handle is None:
            return [
                Link(gpu.name, other.name, LinkKind.NVLINK, origin="unknown")
                for other in gpus
                if other is not gpu and self.cuda and self.cuda.has_native_atomics(gpu.bus_id, other.bus_id)
            ]
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
            sum_of_all = self._sum(rates, f"NVLink speed of {gpu.name}")
            links.append(Link(gpu.name, end, LinkKind.NVLINK, *sum_of_all))
            if end == _SWITCH:
                links.append(Link(end, gpu.name, LinkKind.NVLINK, *sum_of_all))
        return links

    def _far_end(self, handle: Any, link: int, others: Sequence[Gpu]) -> str:
        """The remote end: a switch, unless NVML names a GPU or only one GPU is possible."""
        kind = self.nvml.ask("nvmlDeviceGetNvLinkRemoteDeviceType", handle, link)
        if kind == _IS_SWITCH:
            return _SWITCH
        info = self.nvml.ask("nvmlDeviceGetNvLinkRemotePciInfo", handle, link)
        if info:
            for other in others:
                if other.bus_id == self.nvml.bus_id(info):
                    return other.name
        return others[0].name if len(others) == 1 else _SWITCH

    def _speed(self, handle: Any, link: int) -> float | None:
        """The speed of an NVLink by its field, by the fields of old drivers, or by its version."""
        newest = {"speed": (_NVLINK_SPEED, link)}
        older = {"common": _NVLINK_COMMON, "first": _NVLINK_FIRST}
        for wanted in (newest, older):
            for speed in self.nvml.fields(handle, wanted).values():
                if speed:
                    return speed * MB
        version = self.nvml.ask("nvmlDeviceGetNvLinkVersion", handle, link)
        return _NVLINK_GB[version] * GB if version in _NVLINK_GB else None

    def _text(self, function: str, *arguments: Any) -> str:
        return decoded(self.nvml.ask(function, *arguments) or "")


def _refusal_note(why: str, pairs: Sequence[tuple[str, ...]], gpus: int) -> str:
    of_all = 1 < len(pairs) == gpus * (gpus - 1) // 2
    who = "any two GPUs" if of_all else ", ".join(" and ".join(pair) for pair in pairs)
    return f"no peer access between {who}: {why}"
