"""Facts of how fast a host's memory can be: from the firmware, the kernel's EDAC drivers, the CPU's model.

Best is what the firmware says about the modules (SMBIOS), which often only the administrator may read; then
what it says about the performance of each node (HMAT). The maximum of the CPU's model bounds both. In a
virtual machine, only the model of the CPU says something: the hypervisor invents the other tables.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from ...data.cpus import CHANNEL_BYTES, CpuSheet, sheet_of
from ...devices.numa import NumaNode
from ...facts import Fact, Known
from ...topology import Machine
from ...units import MB, MIB, NANO, many
from ..tree import HERE, TreePath
from .procfs import FIRST_CPU, cpu_list, number, read
from .smbios import Module, Modules, modules, reduced

_TABLE = "sys/firmware/dmi/tables/DMI"
#: Vendors of virtual machines, for arm64, whose CPUs show no hypervisor. Source: detect-virt of systemd.
_VIRTUAL_VENDORS = (
    "QEMU", "KVM", "OpenStack", "KubeVirt", "Amazon EC2", "VMware", "innotek", "Xen", "Bochs", "Parallels",
    "BHYVE", "Hyper-V", "Microsoft Corporation", "Apple Virtualization", "Google", "Alibaba",
)  # fmt: skip
_CHANNEL = re.compile(r"\bchannel (\d{1,4})\b")
#: Rates and latencies of HMAT that are believed, in MiB/s and ns: some firmware has placeholders.
_HMAT_RATES, _HMAT_LATENCIES = range(4_000, 4_000_000), range(20, 2_000)
_NO_TABLE = "only the administrator may read the firmware's table, or there is none"
_UNKNOWN = "neither the firmware nor the model of the CPU tells it"
_VIRTUAL = "virtual machine: the hypervisor invents the firmware's tables"


def facts(machine: Machine, root: TreePath = HERE) -> Iterator[Fact]:
    """Yield what is known about the rate of the memory of each node.

    Args:
        machine: The machine, with its NUMA nodes.
        root: Folder that contains ``sys`` and ``proc``.
    """
    cpu = _Cpu.of(root)
    yield Fact(
        Known.CPU_DESIGN, cpu.design or None, reason="" if cpu.design else "the kernel does not show it"
    )
    table = (root / _TABLE).table(reduced)
    installed = modules(table) if table is not None else Modules(virtual=False, modules=())
    virtual = cpu.virtual or installed.virtual
    plugged = () if virtual else installed.modules
    hidden = "" if plugged else _VIRTUAL if virtual else _NO_TABLE
    yield Fact(Known.MODULES, len(plugged) or None, reason=hidden)
    channels = None if virtual else _channels(root)
    if channels:
        yield Fact(Known.MEMORY_CHANNELS, channels)
    sheet = sheet_of(machine.cpu, cpu.design)
    host = _Host(root, sheet, plugged, channels, virtual, _packages(root))
    for node in machine.numa:
        if node.memory_bytes and node.cpus:
            yield from _of_node(node, host)


@dataclass(frozen=True)
class _Cpu:
    """What ``/proc/cpuinfo`` tells."""

    design: str
    virtual: bool

    @classmethod
    def of(cls, root: TreePath) -> _Cpu:
        fields: dict[str, str] = {}
        for line in (read(root / "proc/cpuinfo", FIRST_CPU) or "").splitlines():
            name, _, value = line.partition(":")
            fields.setdefault(name.strip(), value.strip())
        design = [fields.get(name, "") for name in ("vendor_id", "cpu family", "model")]
        vendor = read(root / "sys/class/dmi/id/sys_vendor") or ""
        inside = "hypervisor" in fields.get("flags", "").split() or vendor.startswith(_VIRTUAL_VENDORS)
        return cls(" ".join(design) if all(design) else "", inside)


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
    yield Fact(Known.MEMORY_RATE_MOST, most, "B/s", node.name, "" if most else _UNKNOWN)
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
    return rate, f"{source}: {channels} channels{spans} of {speed} MT/s{shares}"


def _spanned(node: NumaNode, host: _Host, sheet: CpuSheet) -> int:
    """How many sockets a node may span: hypervisors hide them, and firmware interleaves them."""
    folder = host.root / "sys/devices/system"
    cpus = cpu_list(read(folder / f"node/node{node.index}/cpulist") or "") or node.cpus
    ends = {read(folder / f"cpu/cpu{cpu}/topology/physical_package_id") for cpu in (cpus[0], cpus[-1])}
    return max(len(ends), sheet.sockets(len(cpus)) if host.virtual else 1)


def _packages(root: TreePath) -> dict[str, str]:
    """The socket of each node with CPUs."""
    sockets = {}
    for node in root.glob("sys/devices/system/node/node[0-9]*"):
        if cpus := cpu_list(read(node / "cpulist") or ""):
            place = root / f"sys/devices/system/cpu/cpu{cpus[0]}/topology/physical_package_id"
            sockets[node.name] = read(place) or "0"
    return sockets


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
