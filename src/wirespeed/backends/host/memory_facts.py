"""The memory modules in the SMBIOS table of a host's firmware.

Source of the layout: DMTF DSP0134, System Management BIOS Reference Specification 3.7, sections 6.1.2
(structures), 7.1 (type 0), 7.18 (type 17). The table is not trusted: lengths are checked, and what does not
fit is left out.

Facts of how fast a host's memory can be: from the firmware, the kernel's EDAC drivers, the CPU's model.

Best is what the firmware says about the modules (SMBIOS), which often only the administrator may read; then
what it says about the performance of each node (HMAT). The maximum of the CPU's model bounds both. In a
virtual machine, only the model of the CPU says something: the hypervisor invents the other tables.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Iterator
from dataclasses import dataclass

from ...data import CHANNEL_BYTES, CpuSheet, cpu_sheet
from ...hardware.devices import NumaNode
from ...hardware.facts import Fact, Known
from ...hardware.topology import Machine
from ...units import KIB, MB, MIB, NANO, many
from ..tree import HERE, TreePath
from .host_discovery import cpus_of_nodes, is_virtual, socket_of
from .load import first_cpu, number, read

_BIOS, _MODULE, _END = 0, 17, 127
#: Bytes of the header of a structure: type, length, handle.
_HEADER = 4
#: Largest number of structures that is read; a server has some hundreds.
_MOST_STRUCTURES = 4096
#: Bytes of a type 17 structure that are kept: all up to the extended configured speed.
_KEPT = 0x5C
#: Fields of type 17 that refer to texts: places, maker, serial number, asset tag, part number, firmware.
_TEXTS = (0x10, 0x11, 0x17, 0x18, 0x19, 0x1A, 0x2B)
#: Types of memory whose modules are channels of 64 bits. Source: 7.18.2.
_TYPES = {0x18: "DDR3", 0x1A: "DDR4", 0x22: "DDR5"}
#: Technologies of persistent memory, which is slower than its channel. Source: 7.18.6.
_PERSISTENT = (0x05, 0x06, 0x07)
#: Second extension byte of the BIOS structure, and its bit for a virtual machine. Source: 7.1.2.2.
_EXTENSION, _VIRTUAL = 0x13, 1 << 4
#: Largest speed that is believed, in millions of transfers per second; the slowest DDR3 has 800.
_SPEEDS = range(400, 20_000)
_WIDTHS = (64, 32)
_UNKNOWN, _EXTENDED = 0xFFFF, 0x7FFF


@dataclass(frozen=True)
class Module:
    """A memory module that is plugged in.

    Attributes:
        bytes: Size.
        kind: Kind of memory, e.g. ``DDR5``; empty if it is none whose modules are channels.
        transfers: Configured speed in millions of transfers per second; None if unknown.
        width: Bits of data, without those for error correction.
    """

    bytes: int
    kind: str
    transfers: int | None
    width: int


@dataclass(frozen=True)
class Modules:
    """What the table says about memory.

    Attributes:
        virtual: Whether the table describes a virtual machine, whose modules are invented.
        modules: The modules that are plugged in.
    """

    virtual: bool
    modules: tuple[Module, ...]


def modules(table: bytes) -> Modules:
    """The memory modules of a table."""
    virtual, installed = False, []
    for kind, body in _structures(table):
        if kind == _BIOS and len(body) > _EXTENSION:
            virtual = bool(body[_EXTENSION] & _VIRTUAL)
        elif kind == _MODULE and (module := _module(body)):
            installed.append(module)
    return Modules(virtual, tuple(installed))


def reduced(table: bytes) -> bytes:
    """A table with what ``modules`` needs, without texts and serial numbers."""
    parts = []
    for kind, body in _structures(table):
        if kind not in (_BIOS, _MODULE):
            continue
        kept = bytearray(body[:_KEPT])
        kept[1] = len(kept)
        for place in _TEXTS if kind == _MODULE else ():
            if place < len(kept):
                kept[place] = 0
        if kind == _BIOS:
            kept = bytearray(_HEADER) + bytearray(len(kept) - _HEADER)
            kept[1] = len(kept)
            if len(body) > _EXTENSION:
                kept[_EXTENSION] = body[_EXTENSION]
        parts.append(bytes(kept) + b"\0\0")
    return b"".join((*parts, bytes((_END, _HEADER, 0, 0, 0, 0))))


def _structures(table: bytes) -> Iterator[tuple[int, bytes]]:
    """Yield type and formatted part of each structure, until the end or the first one that does not fit."""
    at = 0
    for _ in range(_MOST_STRUCTURES):
        header = table[at : at + _HEADER]
        if len(header) < _HEADER or header[1] < _HEADER or at + header[1] > len(table):
            return
        kind, length = header[0], header[1]
        yield kind, table[at : at + length]
        texts_end = table.find(b"\0\0", at + length)
        if kind == _END or texts_end < 0:
            return
        at = texts_end + 2


def _module(body: bytes) -> Module | None:
    """A memory module; None if its slot is empty or its size is unknown."""
    size = _field(body, 0x0C, "<H")
    if size is None or size in (0, _UNKNOWN):
        return None
    if size == _EXTENDED:
        large = _field(body, 0x1C, "<I")
        bytes_ = (large & 0x7FFFFFFF) * MIB if large else 0
    else:
        bytes_ = (size & 0x7FFF) * (KIB if size & 0x8000 else MIB)
    if not bytes_:
        return None
    technology = _field(body, 0x28, "<B")
    kind = "" if technology in _PERSISTENT else _TYPES.get(_field(body, 0x12, "<B") or 0, "")
    width = _field(body, 0x0A, "<H")
    return Module(bytes_, kind, _speed(body), width if width in _WIDTHS else _WIDTHS[0])


def _speed(body: bytes) -> int | None:
    """The configured speed; the maximum speed of the module, which may be higher, is not used."""
    speed = _field(body, 0x20, "<H")
    if speed == _UNKNOWN:
        speed = _field(body, 0x58, "<I")
    return speed if speed in _SPEEDS else None


def _field(body: bytes, offset: int, layout: str) -> int | None:
    """A number; None if the structure is too short for it."""
    if offset + struct.calcsize(layout) > len(body):
        return None
    (value,) = struct.unpack_from(layout, body, offset)
    return int(value)


_TABLE = "sys/firmware/dmi/tables/DMI"
#: Vendors of virtual machines, for arm64, whose CPUs show no hypervisor. Source: detect-virt of systemd.
_VIRTUAL_VENDORS = (
    "QEMU", "KVM", "OpenStack", "KubeVirt", "Amazon EC2", "VMware", "innotek", "Xen", "Bochs", "Parallels",
    "BHYVE", "Hyper-V", "Microsoft Corporation", "Apple Virtualization", "Google", "Alibaba",
)  # fmt: skip
_CHANNEL = re.compile(r"\bchannel (\d{1,4})\b")
#: Rates and latencies of HMAT that are believed, in MiB/s and ns: some firmware has placeholders.
_HMAT_RATES, _HMAT_LATENCIES = range(4_000, 4_000_000), range(20, 2_000)
_NO_TABLE = "the firmware's table is missing, or readable only by root"
_UNKNOWN_MODULE = "neither the firmware nor the CPU model reports it"
_HYPERVISORS = "virtual machine: its firmware tables do not describe the host's hardware"


def facts(machine: Machine, root: TreePath = HERE) -> Iterator[Fact]:
    """Yield what is known about the rate of the memory of each node.

    Args:
        machine: The machine, with its NUMA nodes.
        root: Folder that contains ``sys`` and ``proc``.
    """
    design, vendor = _design(root), read(root / "sys/class/dmi/id/sys_vendor") or ""
    yield Fact.of(Known.CPU_DESIGN, design or None, why="the kernel does not show it")
    table = (root / _TABLE).table(reduced)
    installed = modules(table) if table is not None else Modules(virtual=False, modules=())
    virtual = is_virtual(root) or vendor.startswith(_VIRTUAL_VENDORS) or installed.virtual
    plugged = () if virtual else installed.modules
    hidden = "" if plugged else _HYPERVISORS if virtual else _NO_TABLE
    yield Fact(Known.MODULES, len(plugged) or None, reason=hidden)
    channels = None if virtual else _channels(root)
    if channels:
        yield Fact(Known.MEMORY_CHANNELS, channels)
    sheet = cpu_sheet(machine.cpu, design)
    host = _Host(root, sheet, plugged, channels, virtual, _packages(root))
    for node in machine.numa:
        if node.memory_bytes and node.cpus:
            yield from _of_node(node, host)


def _design(root: TreePath) -> str:
    """The vendor, family and model of the CPU; empty if the kernel does not show them."""
    fields = first_cpu(root)
    design = [fields.get(name, "") for name in ("vendor_id", "cpu family", "model")]
    return " ".join(design) if all(design) else ""


@dataclass(frozen=True)
class _Host:
    """What is known of all nodes together; ``packages`` has the socket of each node with CPUs."""

    root: TreePath
    sheet: tuple[str, CpuSheet] | None
    modules: tuple[Module, ...]
    channels: int | None
    virtual: bool
    packages: dict[str, str]

    @property
    def sockets(self) -> int:
        """Number of sockets; hypervisors hide some, cpusets none."""
        return max(1, len(set(self.packages.values())))

    @property
    def nodes_of_socket(self) -> int:
        """Number of nodes with CPUs that share a socket."""
        return max(1, -(-len(self.packages) // self.sockets))

    def speeds(self) -> list[int]:
        """The speed of each module in millions of transfers per second; none if one is unknown."""
        known = [module.transfers for module in self.modules if module.kind and module.transfers]
        return known if len(known) == len(self.modules) else []


def _of_node(node: NumaNode, host: _Host) -> Iterator[Fact]:
    """Yield the rate of a node's memory if it is known, the highest possible one, and its source."""
    rate, source = _by_modules(host)
    most, bound = _highest(node, host)
    by_firmware, latency = (None, None) if host.virtual else _hmat(host.root, node)
    if rate is None and by_firmware and (most is None or by_firmware <= most):
        rate, source = by_firmware, "HMAT of the firmware"
    yield Fact(Known.MEMORY_RATE_MOST, most, "B/s", node.name, "" if most else _UNKNOWN_MODULE)
    for name, value, unit in (
        (Known.MEMORY_RATE, rate, "B/s"), (Known.MEMORY_RATE_SOURCE, source or bound, ""),
        (Known.MEMORY_LATENCY, latency, "s"),
    ):  # fmt: skip
        if value:
            yield Fact(name, value, unit, node.name)


def _by_modules(host: _Host) -> tuple[float | None, str]:
    """The line rate of a node by the modules, and its source; None without the number of channels."""
    speeds = host.speeds()
    if not speeds or host.sheet is None:
        return None, ""
    name, sheet = host.sheet
    channels, slowest = min(len(speeds), sheet.channels * host.sockets), min(speeds)
    width = min(module.width for module in host.modules) // 8
    rate = channels * slowest * MB * width / (host.sockets * host.nodes_of_socket)
    plugged = f"{many(len(speeds), 'module')} of {host.modules[0].kind}-{slowest}"
    return rate, f"SMBIOS: {plugged} on {channels} channels of {name}"


def _highest(node: NumaNode, host: _Host) -> tuple[float | None, str]:
    """The highest possible rate of a node, and its source.

    There are at most as many channels as modules, and the modules may be unequally distributed.
    """
    speeds, sockets = host.speeds(), 1
    if host.sheet is None:
        if not speeds:
            return None, ""
        channels, speed, source = len(speeds), max(speeds), "SMBIOS"
    else:
        name, sheet = host.sheet
        limit = len(speeds) or host.channels or sheet.channels
        channels, speed = min(limit, sheet.channels), max(speeds, default=sheet.transfers[1])
        source = "SMBIOS and " if speeds else "EDAC and " if host.channels else ""
        source += f"maximum of {name}"
        sockets = _spanned(node, host, sheet)
    shared = host.nodes_of_socket if not host.virtual and not speeds and not host.channels else 1
    rate = sockets * channels * speed * MB * CHANNEL_BYTES / shared
    spans = f" of each of {sockets} sockets" if sockets > 1 else ""
    shares = f", shared by {shared} nodes" if shared > 1 else ""
    each = f"{channels} channels{spans} of {speed} MT/s"
    if speed not in _SPEEDS:  # a rate that stands for both kinds of memory
        each = f"HBM and {channels} channels of DDR5 together"
    return rate, f"{source}: {each}{shares}"


def _spanned(node: NumaNode, host: _Host, sheet: CpuSheet) -> int:
    """How many sockets a node may span: hypervisors hide them, and firmware interleaves them."""
    cpus = cpus_of_nodes(host.root).get(node.name) or node.cpus
    ends = {socket_of(host.root, cpu) for cpu in (cpus[0], cpus[-1])}
    return max(len(ends), sheet.sockets(len(cpus)) if host.virtual else 1)


def _packages(root: TreePath) -> dict[str, str]:
    """The socket of each node with CPUs."""
    return {node: socket_of(root, cpus[0]) or "0" for node, cpus in cpus_of_nodes(root).items() if cpus}


def _channels(root: TreePath) -> int | None:
    """The number of memory channels with modules, as EDAC drivers show them; None if they do not."""
    channels: set[tuple[str, str]] = set()
    for controller in root.glob("sys/devices/system/edac/mc/mc[0-9]*"):
        for module in (*controller.glob("dimm[0-9]*"), *controller.glob("rank[0-9]*")):
            place = _CHANNEL.search(read(module / "dimm_location") or "")
            if place is None:
                return None
            if number(module / "size"):
                channels.add((controller.name, place[1]))
    return len(channels) or None


def _hmat(root: TreePath, node: NumaNode) -> tuple[float | None, float | None]:
    """Rate and latency of a node's memory for its own CPUs, by the firmware, in B/s and s."""
    folder = root / f"sys/devices/system/node/node{node.index}/access0/initiators"
    rates = [rate for name in ("read_bandwidth", "write_bandwidth") if (rate := number(folder / name))]
    rate, wait = max(rates, default=0), number(folder / "read_latency") or 0
    return (
        rate * MIB if rate in _HMAT_RATES else None,
        wait * NANO if wait in _HMAT_LATENCIES else None,
    )
