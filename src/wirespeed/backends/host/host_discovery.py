"""Description of a host: NUMA nodes with the CPUs that this process may use, caches, huge pages. It needs
only the standard library, so that listing a machine stays fast.
"""

from __future__ import annotations

import os
from collections.abc import Collection
from dataclasses import dataclass, field, replace

from ...hardware.devices import NumaNode
from ...hardware.topology import Cache, Link, LinkKind, Machine
from ...units import GIB, KIB, MIB
from ..system_files import HERE, TreePath
from .procfs import allowed, cpu_list, first_cpu, meminfo, number, read, whole

_SIZE_UNITS = {"K": KIB, "M": MIB, "G": GIB}

#: (implementer, part) -> name, for arm64, whose /proc/cpuinfo names no model.
#: Source: the MIDR_EL1 registers in Arm's technical reference manuals; `lscpu` has the same table.
_ARM_CORES = {
    ("0x41", "0xd0c"): "Arm Neoverse-N1",
    ("0x41", "0xd40"): "Arm Neoverse-V1",
    ("0x41", "0xd49"): "Arm Neoverse-N2",
    ("0x41", "0xd4f"): "Arm Neoverse-V2",
    ("0x41", "0xd84"): "Arm Neoverse-V3",
    ("0x41", "0xd8e"): "Arm Neoverse-N3",
    ("0xc0", "0xac3"): "Ampere-1",
    ("0xc0", "0xac4"): "Ampere-1a",
}


def cpus_of_nodes(root: TreePath) -> dict[str, tuple[int, ...]]:
    """NUMA node -> its CPUs."""
    nodes = root.glob("sys/devices/system/node/node[0-9]*")
    return {node.name: cpu_list(read(node / "cpulist") or "") for node in nodes}


def socket_of(root: TreePath, cpu: int) -> str | None:
    """The number of the socket of a CPU; None if the kernel does not report it."""
    return read(root / f"sys/devices/system/cpu/cpu{cpu}/topology/physical_package_id")


def huge_page_mode(root: TreePath) -> str:
    """The bracketed word of ``always [madvise] never``; empty if the kernel does not report it."""
    modes = read(root / "sys/kernel/mm/transparent_hugepage/enabled") or ""
    return modes.partition("[")[2].partition("]")[0]


def is_virtual(root: TreePath) -> bool:
    """Whether the CPU shows a hypervisor, which only CPUs of x86 do."""
    return "hypervisor" in first_cpu(root).get("flags", "").split()


def is_wsl(root: TreePath) -> bool:
    """Whether this is the Windows Subsystem for Linux, whose kernel says so."""
    return "microsoft" in (read(root / "proc/sys/kernel/osrelease") or "").lower()


def discover(machine: Machine, root: TreePath = HERE, cpus: Collection[int] | None = None) -> Machine:
    """Add the kernel's description of this host to a Machine.

    Args:
        root: Folder that contains ``sys`` and ``proc``.
        cpus: Logical CPUs that may be used; None for those that the kernel lets this process use.

    Returns:
        The machine. Values that could not be read are unchanged and named in ``notes``.
    """
    usable = frozenset(_usable(root) if cpus is None else cpus)
    reader = _SysReader(root, usable)
    huge = number(root / "sys/kernel/mm/transparent_hugepage/hpage_pmd_size")
    nodes = reader.nodes()
    return replace(
        machine,
        host=reader.known("host name", read(root / "proc/sys/kernel/hostname")) or machine.host,
        cpu=reader.known("CPU model", reader.cpu_model()) or machine.cpu,
        architecture=read(root / "proc/sys/kernel/arch")
        or (machine.architecture if root.tree.recorded else os.uname().machine),
        kernel=reader.known("kernel release", read(root / "proc/sys/kernel/osrelease")) or machine.kernel,
        page_bytes=machine.page_bytes if root.tree.recorded else os.sysconf("SC_PAGE_SIZE"),
        huge_page_bytes=huge or reader.memory.get("Hugepagesize", 0) or machine.huge_page_bytes,
        transparent_huge_pages=reader.known("transparent huge pages", huge_page_mode(root))
        or machine.transparent_huge_pages,
        caches=reader.caches() or machine.caches,
        numa=nodes,
        links=(*machine.links, *_links(nodes)),
        notes=(*machine.notes, *reader.notes),
    )


def _usable(root: TreePath) -> Collection[int]:
    """The CPUs that this process may use, or that the one that recorded a tree could use."""
    listed = allowed(root).get("Cpus", ())  # read on this machine too, so that it is recorded
    if not root.tree.recorded:
        return os.sched_getaffinity(0)
    online = cpu_list(read(root / "sys/devices/system/cpu/online") or "")
    return set(listed) & set(online) if listed and online else listed or online


def _links(nodes: tuple[NumaNode, ...]) -> list[Link]:
    """The memory of each node and the links between nodes; their speeds are unknown here."""
    links = [
        Link(node.name, node.name, LinkKind.MEMORY, origin="unknown") for node in nodes if node.memory_bytes
    ]
    links += [
        Link(a.name, b.name, LinkKind.SOCKET, origin="unknown") for a in nodes for b in nodes if a is not b
    ]
    return links


@dataclass
class _SysReader:
    """Read one host, and note what could not be read."""

    root: TreePath
    usable: frozenset[int]
    notes: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.memory = meminfo(self.root / "proc/meminfo")
        self._cpus = self.root / "sys/devices/system/cpu"
        self._nodes = self.root / "sys/devices/system/node"

    def known(self, subject: str, value: str | None) -> str | None:
        """The value; a note is added if it is missing."""
        if not value:
            self.notes.append(f"{subject}: unknown, not reported by the kernel")
        return value

    def cpu_model(self) -> str | None:
        """The model's name, or on arm64 the name of the core's design."""
        fields = first_cpu(self.root)
        for name in ("model name", "cpu model", "cpu"):  # x86 and others, MIPS, POWER
            if fields.get(name):
                return " ".join(fields[name].split())
        maker, part = fields.get("CPU implementer"), fields.get("CPU part")
        if not maker or not part:
            return None
        return _ARM_CORES.get((maker, part), f"Arm implementer {maker} part {part}")

    def caches(self) -> tuple[Cache, ...]:
        """The caches of the first usable CPU; the other CPUs are assumed to be equal."""
        caches: list[Cache] = []
        if self.usable:
            folder = self._cpus / f"cpu{min(self.usable)}/cache"
            for place in sorted(folder.glob("index*")):
                level, size = number(place / "level"), _size(read(place / "size"))
                kind, sharers = read(place / "type"), cpu_list(read(place / "shared_cpu_list") or "")
                if level and size and kind:
                    caches.append(Cache(level, kind.lower(), size, max(1, len(sharers))))
        if not caches:
            self.notes.append("caches: unknown, not reported by the kernel")
        return tuple(sorted(caches, key=lambda cache: (cache.level, cache.type)))

    def nodes(self) -> tuple[NumaNode, ...]:
        """The online NUMA nodes; if none is reported, one with all CPUs and memory."""
        listed = cpu_list(read(self._nodes / "online") or "")
        indices = [index for index in listed if (self._nodes / f"node{index}").exists()]
        if not indices:
            self.notes.append("NUMA: unknown, not reported by the kernel; assuming one node")
            return (self._node(0, self.usable, self._total("MemTotal"), self._total("MemFree")),)
        nodes = []
        for index in indices:
            place = self._nodes / f"node{index}"
            cpus = self.usable & set(cpu_list(read(place / "cpulist") or ""))
            fields = meminfo(place / "meminfo")
            total, free = fields.get("MemTotal"), fields.get("MemFree")
            if total is None:
                self.notes.append(f"memory of numa{index}: unknown, not reported by the kernel")
            distances = (read(place / "distance") or "").split()
            nodes.append(
                self._node(index, cpus, total or 0, free or 0,
                           tuple(d for d in map(whole, distances) if d is not None))
            )  # fmt: skip
        may_use = allowed(self.root).get("Mems", ())
        if len(nodes) > 1 and may_use:
            nodes = [replace(node, allowed=not node.memory_bytes or node.index in may_use) for node in nodes]
        if len(nodes) == 1:
            # The node's own count can lack memory that was plugged in later.
            nodes[0] = replace(
                nodes[0],
                memory_bytes=max(nodes[0].memory_bytes, self._total("MemTotal")),
                free_bytes=max(nodes[0].free_bytes, self._total("MemFree")),
            )
        if homeless := sorted(self.usable.difference(*(node.cpus for node in nodes))):
            self.notes.append(f"CPUs {', '.join(map(str, homeless))} belong to no NUMA node and are not used")
        return tuple(nodes)

    def _total(self, name: str) -> int:
        if name not in self.memory:
            self.notes.append(f"{name} of the machine: unknown, not in /proc/meminfo")
        return self.memory.get(name, 0)

    def _node(
        self, index: int, cpus: Collection[int], total: int, free: int, distances: tuple[int, ...] = ()
    ) -> NumaNode:
        """A node whose CPUs are ordered: first one per physical core, then the siblings.

        Only usable threads count, so that a CPU set with holes does not hide cores. Those of hybrid CPUs have
        unequal numbers of threads.
        """
        seen: dict[tuple[int, ...], int] = {}
        ranked = []
        for cpu in sorted(cpus):
            siblings = cpu_list(read(self._cpus / f"cpu{cpu}/topology/thread_siblings_list") or "") or (cpu,)
            ranked.append((seen.get(siblings, 0), cpu))
            seen[siblings] = seen.get(siblings, 0) + 1
        if len(set(seen.values())) > 1:
            self.notes.append(f"numa{index}: some cores have more usable threads than others")
        threads = max(1, *seen.values()) if seen else 1
        uneven = len(seen) if len(seen) * threads != len(ranked) else 0
        cpus = tuple(cpu for _, cpu in sorted(ranked))
        return NumaNode(index, cpus, threads, total, free, distances, uneven)


def _size(text: str | None) -> int:
    """The bytes of a cache size such as ``48K``; 0 if it is not a size."""
    size = whole(text.rstrip("KMG")) if text else None
    return size * _SIZE_UNITS.get(text[-1], 1) if text and size else 0
