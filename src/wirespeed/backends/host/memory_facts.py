"""Facts of how fast a host's memory can be. The best source is what the firmware says about the modules
(SMBIOS), which often only the administrator may read; then what it says about the performance of each node
(HMAT). The maximum of the CPU's model bounds both. In a virtual machine, only the model of the CPU says
something: the hypervisor invents the other tables.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from ...data import CHANNEL_BYTES, CpuSheet, cpu_sheet
from ...hardware.devices import NumaNode
from ...hardware.facts import Fact, Known
from ...hardware.topology import Machine
from ...units import MB, MIB, NANO, many
from ..system_files import HERE, TreePath
from .host_discovery import cpus_of_nodes, is_virtual, socket_of
from .procfs import first_cpu, number, read
from .smbios import SPEEDS, Module, Modules, modules, reduced

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
    if speed not in SPEEDS:  # a rate that stands for both kinds of memory
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
    return (rate * MIB if rate in _HMAT_RATES else None, wait * NANO if wait in _HMAT_LATENCIES else None)
