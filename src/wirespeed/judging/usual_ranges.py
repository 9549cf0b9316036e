"""What is known about values that no known link limits: from the CPU's model, published latencies, and shape.
The ranges are wide, because they are of models, not of this machine: values outside are warnings, and only
values far outside fail.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import cached_property
from statistics import median

from ..data import cpu_sheet, factors, fail_factor, path_latency
from ..document import Document
from ..errors import MachineError
from ..hardware.devices import NumaNode
from ..hardware.facts import OFF, Facts, Known
from ..hardware.link_graph import Network
from ..hardware.topology import Cache, LinkKind
from ..measurement import Unit
from ..model import BUFFERS, Engine, Operation
from ..peer_access import PEER_ACCESS
from ..results.cells import Placed
from ..tables import Table
from ..testcases.host import LEAST_PART
from ..testcases.table import TABLE
from ..thresholds.values import (
    CLEARLY_SHARED,
    FAR_BELOW_MEMORY,
    FITS,
    FITS_BESIDE,
    JUDGED_BYTES,
    KEPT_OF_BUFFER,
    LARGE_CACHE,
    LOADED_LEAST,
    LOADED_MOST,
    NO_SLOWER,
    SAVED,
    SLOW_CACHE,
    SMALL_CACHE,
)
from ..units import KIB
from .verdict import Verdict

#: Testcases that have more than one rate per node, whose values are judged in their own way.
_LATENCY, _LADDER, _LOADED = "host_latency", "host_latency_ladder", "host_loaded_latency"
SIZES = "host_bandwidth_ladder"
_CURVES = (_LADDER, _LOADED, SIZES)
#: Latencies of GPUs -> where the memory is.
_GPU_LATENCIES = {
    "host_device_latency_sm": "host", "device_to_device_latency_sm": "gpu",
    "device_to_device_latency_tma": "gpu", "device_to_device_signal_latency": "flag",
}  # fmt: skip
#: Table of the testcase of peer access with round trips of flags.
_FLAG = "flag"
#: Cache of the second level that all servers have, in bytes.
_SECOND_BYTES = 256 * KIB


@dataclass(frozen=True)
class UsualRange:
    """What is known about a value.

    Attributes:
        bound: The lowest rate, or the highest latency, that passes, in B/s or s.
        basis: What it is known from.
        usual: Typical value.
        far: A rate below, or a latency above, fails; None: a value outside is only a warning.
        limit: What the line rate of the memory allows, in B/s; None if it is not known.
        most: The highest possible rate, which this machine may be far from, in B/s.
        floor: A latency below is a warning, in s.
    """

    bound: float
    basis: str
    usual: float | None = None
    far: float | None = None
    limit: float | None = None
    most: float | None = None
    floor: float = 0.0

    def verdict(self, value: float, unit: Unit, tolerance: float) -> tuple[Verdict, str]:
        """The verdict on a value, and why it is no pass; a rate may exceed ``most`` by a fraction."""
        if self.most is not None and value > self.most * (1 + tolerance):
            why = f"{value / self.most - 1:.0%} above the highest possible ({self.basis})"
            return Verdict.IMPLAUSIBLE, why
        if value < self.floor:
            return Verdict.WARN, "lower under load than without"
        rises = unit.more_is_better
        if value >= self.bound if rises else value <= self.bound:
            return Verdict.PASS, ""
        far = self.far is not None and (value < self.far if rises else value > self.far)
        why = f"{'far ' if far else ''}{'below' if rises else 'above'} what is usual ({self.basis})"
        return Verdict.FAIL if far else Verdict.WARN, why


class UsualRanges:
    """The usual ranges of the values of one run."""

    def __init__(self, document: Document) -> None:
        self._machine = document.machine
        self._facts = Facts(document.facts)
        self._nodes = {node.name: node for node in self._machine.numa if node.cpus}
        self._without_cores = {node.name for node in self._machine.numa} - self._nodes.keys()
        self._sheet = cpu_sheet(self._machine.cpu, self._facts.text(Known.CPU_DESIGN))
        self._cases = {case.name: case for case in TABLE if case.engine is Engine.CPU}

    def of(self, measured: Placed) -> UsualRange | None:
        """What is known about a value; None if nothing is."""
        name, row, column = measured.key.tested, measured.key.row, measured.key.column
        if name in _GPU_LATENCIES:
            return self._of_gpu(_GPU_LATENCIES[name], row, column)
        if name == PEER_ACCESS:
            return self._of_gpu(_FLAG, row, column) if measured.key.table == _FLAG else None
        if name in _CURVES and measured.cell.column >= len(_curve(measured)[1].columns.values):
            return None
        case = self._cases.get(name)
        node = self._nodes.get(row) or (self._nodes.get(column) if row == "local" else None)
        if case is None or node is None:
            return None
        if name == _LATENCY:
            return self._latency(node, self._nodes.get(column))
        if name == _LADDER:
            return _unless_disturbed(measured, self._of_ladder(measured, node))
        if name == _LOADED:
            return self._loaded(measured, node)
        if measured.unit is not Unit.RATE:
            return None
        if name == SIZES:
            return self._of_sizes(measured, node)
        buffers = sum(BUFFERS[case.operation]) / case.counted
        size = measured.key.bytes / case.counted
        if size < self._uncached:
            return None
        other = self._nodes.get(column, node) if row != "local" else node
        if column in self._without_cores:
            return None  # memory of another kind
        if other is not node:
            return self._remote(node)
        reads = case.operation is Operation.READ
        ways = 2 if "bidirectional" in name else 1
        return self._rate(node, self._cpus(node), buffers, size if reads else 0.0, 1 / ways)

    def _positive(self, name: str, device: str = "") -> float | None:
        """A number of the facts; None if it is unknown, or impossible, as in a file of another."""
        number = self._facts.number(name, device)
        return number if number is not None and number > 0 else None

    @property
    def bounds_memory(self) -> bool:
        """Whether something is known about the rate of host memory."""
        return any(self._rate(node, 1.0) is not None for node in self._nodes.values())

    @cached_property
    def _uncached(self) -> float:
        return max(JUDGED_BYTES, self._machine.last_cache_bytes())

    def _cpus(self, node: NumaNode) -> float:
        """How many CPUs of a node are used at a time: one per core, at most a part of the quota."""
        quota = (self._positive(Known.CPU_QUOTA) or math.inf) / len(self._nodes)
        return min(float(len(node.cores)), quota)

    def _memory(self, node: NumaNode) -> tuple[float | None, float | None, float, str]:
        """Line rate, highest rate and slowest common rate of a node's memory, and their source."""
        name = node.name
        rate, most = (self._positive(fact, name) for fact in (Known.MEMORY_RATE, Known.MEMORY_RATE_MOST))
        source = self._facts.text(Known.MEMORY_RATE_SOURCE, name)
        for link in self._machine.links:
            if link.source == link.destination == name and link.capacity:
                return link.capacity, None, link.capacity, link.origin
        slowest = (most or 0.0) / 2
        if self._sheet is not None:
            title, sheet = self._sheet
            shared = self._positive(Known.NODES_PER_SOCKET) or len(self._nodes)
            slowest = sheet.slowest / max(1.0, shared)
            if most is None:  # recorded by a version that did not read it
                most = sheet.fastest * sheet.sockets(len(node.cpus))
                source = f"maximum of {title}"
        return rate, most, slowest, source

    def _rate(
        self, node: NumaNode, cpus: float, buffers: float = 1.0, read: float = 0.0, share: float = 1.0
    ) -> UsualRange | None:
        """What some CPUs reach in their own memory.

        Args:
            node: The node.
            cpus: Number of CPUs.
            buffers: Bytes read and written per byte of the value.
            read: Bytes of the buffer if it is only read, of which caches may keep a part; 0 for other
                kernels.
            share: Share of the lowest and typical rate, if other transfers run at the same time.
        """
        rate, most, slowest, source = self._memory(node)
        if most is None and rate is None:
            return None
        by = factors()
        line = rate or most or 0.0
        lowest = by.lowest_line * rate if rate else by.lowest_share * slowest
        least = min(cpus * by.core(), lowest) * share / buffers
        usual = min(cpus * by.core(typical=True), by.typical_share * line) * share / buffers
        kept = min(KEPT_OF_BUFFER, self._machine.last_cache_bytes() / read) if read else 0.0
        far = least * FAR_BELOW_MEMORY if rate and self._facts.knows(Known.CPU_QUOTA) else None
        limit, highest = rate and rate / buffers, most and most / buffers / (1 - kept)
        return UsualRange(least, f"{source}, {cpus:g} CPUs in use", max(usual, least), far, limit, highest)

    def _remote(self, node: NumaNode) -> UsualRange | None:
        _, most, _, source = self._memory(node)
        if most is None:
            return None
        return UsualRange(factors().remote(self._cpus(node)), f"between sockets; {source}", most=most / 2)

    def _local_latency(self, node: NumaNode) -> tuple[float | None, str]:
        for link in self._machine.links:
            if link.source == link.destination == node.name and link.latency:
                return link.latency, "the machine's description"
        if self._sheet is None:
            return None, ""
        read = self._positive(Known.MEMORY_LATENCY, node.name) or 0.0
        title, sheet = self._sheet
        return max(read, sheet.local), f"published latencies of {title}"

    def _latency(self, node: NumaNode, other: NumaNode | None) -> UsualRange | None:
        """The latency of the memory of a node for its own cores, or for the cores of another one."""
        usual, source = self._local_latency(node)
        if usual is None or other is None:  # memory without cores: of another kind
            return None
        if other is not node:
            if source.startswith("the machine"):  # the links between two nodes add their described time
                between = (link for link in self._machine.links if link.ends == (node.name, other.name))
                usual += max((link.latency or 0.0 for link in between), default=0.0)
            elif self._sheet:
                usual = max(usual, self._sheet[1].remote)
        return self._of_memory(usual, source)

    def _of_memory(self, usual: float, source: str, loaded: float = 1.0) -> UsualRange:
        """The range of a latency of memory around its usual value, in s."""
        return _within(usual, source, loaded * (1.0 if self._is_bare else factors().virtual))

    @cached_property
    def _is_bare(self) -> bool:
        """Whether no other system uses the CPUs: no hypervisor is there, or they are described."""
        return bool(self._machine.rates) or self._facts.text(Known.HYPERVISOR) == OFF

    def _of_ladder(self, measured: Placed, node: NumaNode) -> UsualRange | None:
        """The latency of a working set: of the smallest cache that holds it, or of the memory."""
        row, table = _curve(measured)
        set_bytes = table.columns.values[measured.cell.column]
        caches = self._data_caches
        level = next((cache for cache in caches if set_bytes <= cache.bytes * FITS), None)
        of_memory = row.get(max(row, default=0.0))
        memory, source = self._local_latency(node)
        if level is None:
            return self._of_memory(memory, source) if memory else None
        usual = self._cache_latency(level)
        shared = level is caches[-1] and len(caches) > len(caches[:2])
        if shared:  # a virtual machine may get little of it, but memory is not faster
            known = self._of_memory(memory, source) if memory else None
            if of_memory and self._trusts(level, set_bytes):
                bound = (1 - SAVED) * of_memory
                shape = UsualRange(bound, "shape of the ladder", far=known.far if known else None)
                known = shape if known is None or bound < known.bound else known
            elif known is None and of_memory:
                known = UsualRange(NO_SLOWER * of_memory, "shape of the ladder")
            return known and replace(known, usual=usual)
        if usual is None:
            return UsualRange(of_memory * FITS, "shape of the ladder") if of_memory else None
        known = _within(usual, source or "the machine's description")
        if not self._is_bare and set_bytes > level.bytes * FITS_BESIDE:
            return replace(known, bound=known.far or known.bound)
        relative = self._by_other_cache(level, row)
        if relative is not None and relative * usual < known.bound:
            return replace(known, bound=relative * usual, basis=f"shape of the ladder; {known.basis}")
        return known

    @cached_property
    def _data_caches(self) -> list[Cache]:
        """The caches of data, the smallest first; the second at most as large as the CPU's model has it."""
        caches = sorted((c for c in self._machine.caches if c.type != "instruction"), key=lambda c: c.level)
        if self._machine.rates:
            return caches
        second = self._sheet[1].second_kib * KIB if self._sheet else _SECOND_BYTES
        return [replace(c, bytes=min(c.bytes, second)) if c.level <= 2 else c for c in caches]

    def _trusts(self, cache: Cache, set_bytes: float) -> bool:
        """Whether a working set is clearly in a shared cache, and in no smaller one."""
        smaller = [other.bytes for other in self._data_caches if other.level < cache.level]
        bare = self._facts.text(Known.HYPERVISOR) == OFF
        return bare and CLEARLY_SHARED * max(smaller, default=0) <= set_bytes <= cache.bytes / CLEARLY_SHARED

    def _cache_latency(self, cache: Cache) -> float | None:
        return cache.latency or (self._sheet[1].cache(cache.level) if self._sheet else None)

    def _by_other_cache(self, cache: Cache, row: dict[float, float]) -> float | None:
        """The highest latency of a small cache over the usual one, by the other small cache."""
        other = next((candidate for candidate in self._data_caches[:2] if candidate is not cache), None)
        usual = self._cache_latency(other) if other else None
        if other is None or usual is None or self._machine.rates:
            return None
        inner = max((small.bytes for small in self._data_caches if small.level < other.level), default=0)
        held = [value for size, value in row.items() if inner / FITS**2 <= size <= other.bytes * FITS]
        return SLOW_CACHE * median(held) / usual if held else None

    def _loaded(self, measured: Placed, node: NumaNode) -> UsualRange | None:
        """The latency under load, or the rate of the load."""
        row, table = _curve(measured)
        pace = table.columns.values[measured.cell.column]
        if measured.unit is Unit.RATE:
            cpus, read = max(1.0, self._cpus(node) - 1), 2 * self._machine.last_cache_bytes()
            return self._rate(node, cpus, 1.0, read, pace)
        usual, source = self._local_latency(node)
        idle = row.get(0.0)
        if pace == 0:
            return self._of_memory(usual, source) if usual else None
        floor = LOADED_LEAST * idle if idle else 0.0
        if usual is None:
            return UsualRange(LOADED_MOST * idle, "latency without load", floor=floor) if idle else None
        known = self._of_memory(usual, source, factors().loaded)
        return UsualRange(known.bound, known.basis, None, known.far, floor=floor)

    def _of_sizes(self, measured: Placed, node: NumaNode) -> UsualRange | None:
        """The rate of copies of one size by all cores, or of the largest size by some."""
        row, table = _curve(measured)
        at = table.columns.values[measured.cell.column]
        cpus = self._cpus(node)
        if table.key != "size":
            return self._rate(node, min(at, cpus), 2.0) if measured.key.bytes >= self._uncached else None
        if at >= self._uncached:
            return self._rate(node, cpus, 2.0)
        memory = row.get(max(row, default=0.0))
        if not memory or at == max(row) or self._machine.rates:  # simulated: no caches for copies
            return None
        if at < LEAST_PART * len(node.cores):  # the start of the threads dominates
            return None
        small = sum(cache.bytes for cache in self._data_caches[:2]) * len(node.cores) * FITS
        bound = (SMALL_CACHE if 2 * at <= small else LARGE_CACHE) * memory
        # A cache that is missing shows at several sizes; a single one is the moment when it was measured.
        sizes = sorted(row)
        index = sizes.index(at)
        beside = [row[size] for size in sizes[max(0, index - 1) : index + 2] if size < self._uncached]
        return UsualRange(min(bound, row[at]) if max(beside) >= bound else bound, "shape of the ladder")

    def _of_gpu(self, ends: str, row: str, column: str) -> UsualRange | None:
        """The latency of memory that a GPU reads: of its host, or of another GPU."""
        name = column if ends == "host" else row
        gpu = next((gpu for gpu in self._machine.gpus if gpu.name == name), None)
        if gpu is None:
            return None
        near = (node.name for node in self._machine.numa if node.index == gpu.numa)
        there = next(near, "") if ends == "host" else column
        try:
            kinds = {self._machine.links[i].kind for i in self._network.route(gpu.name, there)}
        except MachineError:  # the path is unknown
            return None
        link = next((kind for kind in (LinkKind.PCIE, LinkKind.C2C, LinkKind.NVLINK) if kind in kinds), None)
        published = path_latency(ends, link, gpu.compute_capability) if link else None
        if published is None:
            return None
        basis, most = f"published latencies over {published.link}", published.most
        return UsualRange(most, basis, published.typical, most * fail_factor())

    @cached_property
    def _network(self) -> Network:
        return Network(self._machine)


def _unless_disturbed(measured: Placed, usual: UsualRange | None) -> UsualRange | None:
    """The range of a latency, up to its value if another program disturbed the one size.

    A cache that is slow is so in every sample; one whose quickest sample and next smaller size are within
    the range is not.
    """
    value, statistics = measured.cell.value, measured.cell.statistics
    if usual is None or value is None or statistics is None or not statistics.min <= usual.bound < value:
        return usual
    row, table = _curve(measured)
    set_bytes = table.columns.values[measured.cell.column]
    smaller = max((size for size in row if size < set_bytes), default=None)
    alone = smaller is None or row[smaller] <= usual.bound
    return replace(usual, bound=value) if alone else usual


def _within(usual: float, source: str, factor: float = 1.0) -> UsualRange:
    """The range of a latency around its usual value, in s."""
    by = factors()
    return UsualRange(usual * by.warn * factor, source, usual, usual * by.fail * factor)


def _curve(measured: Placed) -> tuple[dict[float, float], Table]:
    """The measured values of a cell's row by the value of their column, and the table."""
    table = next(t for t in measured.result.tables if t.key == measured.key.table)
    at = table.columns.values
    row = {
        at[cell.column]: cell.value
        for cell in table.cells
        if cell.row == measured.cell.row and cell.value is not None and cell.column < len(at)
    }
    return row, table
