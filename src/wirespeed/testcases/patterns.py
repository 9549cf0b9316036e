"""Who talks to whom: patterns over a group of parties, be they GPUs, ranks or NUMA nodes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from ..model import (
    Access,
    Axis,
    Executor,
    Measurement,
    Memory,
    MemoryKind,
    Operation,
    Place,
    Reduce,
    Transfer,
)
from ..topology import Machine
from .base import Cells, Layout, Pattern, Plan, PlanOptions, Testcase, both_ways, single
from .pair_schedule import at_once, sampled

NO_GPU = "no GPU was found"
NO_PEER = "no GPU has peer access to another"
ONE_GPU = "it needs two GPUs or more"
NO_CPU = "no NUMA node with both cores and memory was found"
ONE_NODE = "it needs two NUMA nodes or more"
ONE_RANK = (
    "it needs two processes or more, each with a device (start them with mpirun, srun or torchrun, "
    "or here with --processes N)"
)


@dataclass(frozen=True)
class Party:
    """One end of a transfer: a Memory and the Executor that owns it."""

    label: str
    memory: Memory
    executor: Executor


@dataclass(frozen=True)
class Parties:
    """Parties of one kind. ``none`` and ``few`` say why there are no, or too few of them."""

    kind: str
    parties: tuple[Party, ...]
    none: str
    few: str
    peers: tuple[tuple[str, ...], ...] | None = None  # names that each can reach; None: all
    disjoint: bool = False  # whether pairs without a common party normally share nothing

    def scheduled(self, plan: Plan, options: PlanOptions, title: str) -> Plan:
        """Return a plan of pairs whose disjoint pairs are measured at the same time, where that is wanted."""
        if options.parallel_pairs or (options.concurrent and self.disjoint):
            return at_once(plan, len(self.parties), title, checked=options.parallel_pairs)
        return plan

    @property
    def axis(self) -> Axis:
        """The axis of a table over these parties."""
        return Axis(self.kind, tuple(party.label for party in self.parties))

    def lacks(self, number: int) -> str:
        """Return why there are not so many parties; empty if there are."""
        if not self.parties:
            return self.none
        if len(self.parties) < number:
            return self.few
        return NO_PEER if number > 1 and self.peers is not None and not any(self.peers) else ""

    def barrier(self, executor: int, owner: int) -> str:
        """Return why one party's executor cannot reach another's memory; empty if it can."""
        name, other = self.parties[executor].memory.device, self.parties[owner].memory.device
        if self.peers is None or executor == owner or other in self.peers[executor]:
            return ""
        return f"{name} has no peer access to {other}"


Grouping = Callable[[Machine], Parties]


def gpus(machine: Machine) -> Parties:
    """The GPUs of this process."""
    parties = tuple(
        Party(gpu.name, Memory(gpu.name, MemoryKind.DEVICE), Executor(gpu.name)) for gpu in machine.gpus
    )
    return Parties("GPU", parties, NO_GPU, ONE_GPU, tuple(gpu.peers for gpu in machine.gpus), disjoint=True)


def nodes(machine: Machine) -> Parties:
    """The NUMA nodes that have cores and memory; one thread for each core."""
    parties = tuple(
        Party(node.name, Memory(node.name, MemoryKind.PAGEABLE), Executor(node.name, cpus=node.cores))
        for node in machine.numa
        if node.cpus and node.memory_bytes
    )
    return Parties("NUMA node", parties, NO_CPU, ONE_NODE)


def ranks(machine: Machine) -> Parties:
    """The processes of the job, each with its device."""
    parties = []
    for rank in machine.ranks:
        kind = MemoryKind.DEVICE if rank.device.startswith("gpu") else MemoryKind.PAGEABLE
        memory = Memory(rank.device, kind, rank.index)
        parties.append(Party(str(rank.index), memory, Executor(rank.device, rank.index, rank.cpus)))
    return Parties("rank", tuple(parties), ONE_RANK, ONE_RANK)


def copy(case: Testcase, active: Party, passive: Party, size: int) -> Transfer:
    """A copy that ``active`` executes: it pulls where the access is a read, else it pushes."""
    pulls = case.access is Access.READ
    source, destination = (passive, active) if pulls else (active, passive)
    return Transfer(
        source.memory, destination.memory, active.executor, case.engine, size, counted=case.counted
    )


def pairs(group_of: Grouping, *, diagonal: bool = False) -> Pattern:
    """Every party with every other, one pair at a time: the row executes."""

    def pattern(machine: Machine, case: Testcase, options: PlanOptions) -> Plan:
        group, size = group_of(machine), case.buffer_size(machine, options)
        with_local = diagonal or options.local_copy
        if reason := group.lacks(1 if diagonal else 2):
            return Plan.waive(reason)
        cells: Cells = [
            (i, j, group.barrier(i, j) or (copy(case, row, column, size),))
            for i, row in enumerate(group.parties)
            for j, column in enumerate(group.parties)
            if with_local or i != j
        ]
        cells = sampled(cells, len(group.parties), options.sample_peers)
        plan = single(case, group.axis, group.axis, cells)
        return group.scheduled(plan, options, case.title)

    return pattern


def pairs_both_ways(group_of: Grouping) -> Pattern:
    """Every party with every other, both directions at once, each executed by its puller (pusher)."""

    def pattern(machine: Machine, case: Testcase, options: PlanOptions) -> Plan:
        group, size = group_of(machine), case.buffer_size(machine, options)
        if reason := group.lacks(2):
            return Plan.waive(reason)
        cells: Cells = [
            (i, j, group.barrier(i, j) or group.barrier(j, i)
             or (copy(case, row, column, size), copy(case, column, row, size)))
            for i, row in enumerate(group.parties)
            for j, column in enumerate(group.parties)
            if i != j
        ]  # fmt: skip
        cells = sampled(cells, len(group.parties), options.sample_peers)
        plan = both_ways(case, group.axis, group.axis, cells)
        return group.scheduled(plan, options, case.title.format(part="Total", engine="{engine}"))

    return pattern


def star(group_of: Grouping, *, column_executes: bool, reduce: Reduce) -> Pattern:
    """One party (the column) and all others at once.

    The column pulls from (or pushes to) every other; or every other does so with the column.
    """

    def pattern(machine: Machine, case: Testcase, options: PlanOptions) -> Plan:
        group, size = group_of(machine), case.buffer_size(machine, options)
        if reason := group.lacks(2):
            return Plan.waive(reason)
        cells: Cells = []
        for j, column in enumerate(group.parties):
            transfers, reason = [], ""
            for i, other in enumerate(group.parties):
                active, passive = (j, i) if column_executes else (i, j)
                if i == j:
                    continue
                if barrier := group.barrier(active, passive):
                    reason = barrier
                    continue
                ends = (column, other) if column_executes else (other, column)
                transfers.append(copy(case, *ends, size))
            cells.append((0, j, tuple(transfers) or reason))
        return single(case, Axis(group.kind, ("all",)), group.axis, cells, reduce)

    return pattern


def within(group_of: Grouping, *, together: bool = False) -> Pattern:
    """1 x parties: each works in its own memory, one after the other, or all at the same time."""

    def pattern(machine: Machine, case: Testcase, options: PlanOptions) -> Plan:
        group, size = group_of(machine), case.buffer_size(machine, options)
        if reason := group.lacks(1):
            return Plan.waive(reason)
        transfers = tuple(
            Transfer(p.memory, p.memory, p.executor, case.engine, size,
                     operation=case.operation, counted=case.counted)
            for p in group.parties
        )  # fmt: skip
        rows = Axis(group.kind, ("local",))
        if not together:
            cells: Cells = [(0, i, (transfer,)) for i, transfer in enumerate(transfers)]
            return single(case, rows, group.axis, cells)
        places = tuple(Place("", 0, i, Reduce.FIRST, (i,)) for i in range(len(transfers)))
        layout = Layout("", case.title, rows, group.axis, case.unit)
        return Plan((layout,), (Measurement(transfers, places),))

    return pattern


def chase(group_of: Grouping, *, diagonal: bool) -> Pattern:
    """The row follows a random cycle through the column's memory, on one core or one SM at a time."""

    def pattern(machine: Machine, case: Testcase, options: PlanOptions) -> Plan:
        group, size = group_of(machine), case.buffer_size(machine, options)
        if reason := group.lacks(1 if diagonal else 2):
            return Plan.waive(reason)
        cells: Cells = [
            (i, j, group.barrier(i, j) or (chasing(case, row.executor, column.memory, size),))
            for i, row in enumerate(group.parties)
            for j, column in enumerate(group.parties)
            if diagonal or i != j
        ]
        plan = single(case, group.axis, group.axis, cells, Reduce.LATENCY)
        return group.scheduled(plan, options, case.title)

    return pattern


def chasing(case: Testcase, executor: Executor, memory: Memory, size: int) -> Transfer:
    """A chase through ``size`` bytes; it only reads, so its destination is its source."""
    one = replace(executor, cpus=executor.cpus[:1])
    return Transfer(memory, memory, one, case.engine, size, operation=Operation.CHASE)


def bisect(group_of: Grouping) -> Pattern:
    """Parties x 1: each copies to the one half of the group away, all at once; each its own rate."""

    def pattern(machine: Machine, case: Testcase, options: PlanOptions) -> Plan:
        group, size = group_of(machine), case.buffer_size(machine, options)
        if reason := group.lacks(2):
            return Plan.waive(reason)
        parties, n = group.parties, len(group.parties)
        partner = [(i + n // 2) % n for i in range(n)]
        transfers = tuple(copy(case, parties[i], parties[partner[i]], size) for i in range(n))
        places = tuple(Place("", i, 0, Reduce.FIRST, (i,)) for i in range(n))
        labels = tuple(f"{parties[i].label}->{parties[partner[i]].label}" for i in range(n))
        layout = Layout("", case.title, Axis("pair", labels), Axis("rate", ("0",)), case.unit)
        return Plan((layout,), (Measurement(transfers, places),))

    return pattern
