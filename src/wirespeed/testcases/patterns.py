"""Patterns of transfers in a group of parties (GPUs, ranks or NUMA nodes), and tables of pairs in fewer
steps: disjoint pairs concurrently, or only some of the pairs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import partial, wraps

from ..hardware.devices import DeviceKind, NumaNode, kind_of
from ..hardware.topology import Machine
from ..measurement import Axis, Measurement, Place, Reduce
from ..model import Access, Executor, Memory, MemoryKind, Operation, Transfer
from .base import Cells, Layout, Pattern, Plan, PlanOptions, Testcase, WaivedCell, both_ways, single

#: Key of the table of pairs that are also measured separately, and the maximum number of these pairs. Small
#: groups have none, because every pair with a low value is measured again separately.
ALONE = "alone"
_MAX_SEPARATE_PAIRS = 8

#: Indices of two parties.
Pair = tuple[int, int]


def tournament(parties: int) -> list[list[Pair]]:
    """Rounds of disjoint pairs that together contain every pair exactly once.

    With an odd number, one party has no partner in each round. Source: the circle method for round-robin
    tournaments (Kirkman 1850).

    >>> tournament(4)
    [[(3, 0), (1, 2)], [(3, 1), (2, 0)], [(3, 2), (0, 1)]]
    """
    last = parties - 1 + parties % 2  # with an odd number, no party
    rounds = []
    for turn in range(last):
        pairs = [(last, turn), *(((turn + i) % last, (turn - i) % last) for i in range(1, (last + 1) // 2))]
        rounds.append([pair for pair in pairs if max(pair) < parties])
    return rounds


def peers(parties: int, chosen: int) -> set[int]:
    """The distances from a row to the columns that are measured, evenly spread.

    Each party is a column as often as it is a row. ``chosen`` 0 selects all.

    >>> sorted(peers(9, 2)), len(peers(72, 4)), sorted(peers(4, 9))
    ([1, 5], 4, [1, 2, 3])
    """
    others = parties - 1
    if chosen <= 0 or chosen >= others:
        return set(range(1, parties))
    return {1 + i * others // chosen for i in range(chosen)}


def at_once(plan: Plan, parties: int, title: str, *, checked: bool) -> Plan:
    """A plan of pairs in rounds.

    Each round has two Measurements, one per direction of its pairs; one if both cells of a pair have the same
    transfers.

    Args:
        plan: A plan with one Measurement per pair.
        parties: Number of parties.
        title: Title of the table, without the unit.
        checked: Whether a few pairs of large groups are also measured separately, to detect blocking.
    """
    by_cell = {(m.places[0].row, m.places[0].column): m for m in plan.measurements}
    local = [m for (row, column), m in by_cell.items() if row == column]
    merged = [_merged(local)] if local else []
    for pairs in tournament(parties):
        one_way, other_way = [], []
        for a, b in pairs:
            forward, backward = by_cell.get((a, b)), by_cell.get((b, a))
            if forward and backward and set(forward.transfers) == set(backward.transfers):
                forward, backward = _filling_both(forward, backward), None
            one_way += [forward] if forward else []
            other_way += [backward] if backward else []
        merged += [_merged(together) for together in (one_way, other_way) if together]
    far = [pair for pair in by_cell if pair[0] != pair[1]]
    far.sort(key=lambda pair: ((pair[1] - pair[0]) % parties, pair))
    step = max(
        1, len(far) // _MAX_SEPARATE_PAIRS + parties // _MAX_SEPARATE_PAIRS
    )  # other rows at other distances
    checks = min(_MAX_SEPARATE_PAIRS, parties // (_MAX_SEPARATE_PAIRS + 1)) if checked else 0
    alone_too = list(dict.fromkeys(far[k * step % len(far)] for k in range(checks))) if far else []
    axis = plan.tables[0].rows if plan.tables else Axis("", ())
    labels = tuple(f"{axis.labels[row]}->{axis.labels[column]}" for row, column in alone_too)
    extra = [_alone(by_cell[pair], i) for i, pair in enumerate(alone_too)]
    if not extra:
        return replace(plan, measurements=tuple(merged))
    columns, unit = Axis("pair", labels), plan.tables[0].unit
    alone = Layout(ALONE, f"{title}, pairs measured separately", Axis("", (ALONE,)), columns, unit)
    return replace(plan, tables=(*plan.tables, alone), measurements=(*merged, *extra))


def _filling_both(kept: Measurement, other: Measurement) -> Measurement:
    """A Measurement that also fills the cells of another one with the same transfers."""
    places = [
        replace(place, transfers=tuple(kept.transfers.index(other.transfers[i]) for i in place.transfers))
        for place in other.places
    ]
    return replace(kept, places=(*kept.places, *places))


def _merged(measurements: Sequence[Measurement]) -> Measurement:
    """Several Measurements merged into one."""
    transfers: list[Transfer] = []
    places: list[Place] = []
    for measurement in measurements:
        first = len(transfers)
        transfers += measurement.transfers
        places += _moved(measurement.places, first)
    return Measurement(tuple(transfers), tuple(places), independent=True)


def _moved(places: Iterable[Place], by: int) -> list[Place]:
    return [replace(place, transfers=tuple(i + by for i in place.transfers)) for place in places]


def _alone(measurement: Measurement, column: int) -> Measurement:
    """A Measurement whose last value, the total, fills the table of separate pairs."""
    place = replace(measurement.places[-1], table=ALONE, row=0, column=column)
    return replace(measurement, places=(place,))


NO_GPU = "no GPU was found"
NO_PEER = "no GPU has peer access to another"
ONE_GPU = "requires at least two GPUs"
NO_CPU = "no NUMA node with both cores and memory was found"
ONE_NODE = "requires at least two NUMA nodes"
ONE_RANK = (
    "requires at least two processes with one device each: start them with mpirun, srun or torchrun, or, on "
    "this host, with --processes N"
)


@dataclass(frozen=True)
class Party:
    """One end of a transfer.

    Attributes:
        label: Label in tables.
        memory: Its memory.
        executor: What moves bytes for it.
    """

    label: str
    memory: Memory
    executor: Executor


@dataclass(frozen=True)
class Parties:
    """Parties of one kind.

    Attributes:
        kind: Name of the kind, for axes.
        parties: The parties.
        none, few: Reasons if there are none, or too few.
        peers: Names that each party can reach; None for all.
        disjoint: Whether pairs without a common party normally share no links.
    """

    kind: str
    parties: tuple[Party, ...]
    none: str
    few: str
    peers: tuple[tuple[str, ...], ...] | None = None
    disjoint: bool = False

    def scheduled(self, plan: Plan, options: PlanOptions, title: str) -> Plan:
        """The plan, with disjoint pairs measured concurrently if the options allow it."""
        if options.parallel_pairs or (options.concurrent and self.disjoint):
            return at_once(plan, len(self.parties), title, checked=options.parallel_pairs)
        return plan

    @property
    def axis(self) -> Axis:
        """Axis of a table over these parties."""
        return Axis(self.kind, tuple(party.label for party in self.parties))

    def lacks(self, number: int) -> str | None:
        """Why there are fewer parties than this number; None if there are enough."""
        if not self.parties:
            return self.none
        if len(self.parties) < number:
            return self.few
        return NO_PEER if number > 1 and self.peers is not None and not any(self.peers) else None

    def barrier(self, executor: int, owner: int) -> str | None:
        """Why one party's executor cannot reach another's memory; None if it can."""
        name, other = self.parties[executor].memory.device, self.parties[owner].memory.device
        if self.peers is None or executor == owner or other in self.peers[executor]:
            return None
        return f"{name} has no peer access to {other}"


#: Returns the parties of a machine.
Grouping = Callable[[Machine], Parties]


def gpus(machine: Machine) -> Parties:
    """The GPUs of this process."""
    parties = tuple(
        Party(gpu.name, Memory(gpu.name, MemoryKind.DEVICE), Executor(gpu.name)) for gpu in machine.gpus
    )
    return Parties("GPU", parties, NO_GPU, ONE_GPU, tuple(gpu.peers for gpu in machine.gpus), disjoint=True)


def attached(kind: DeviceKind) -> Grouping:
    """The function that returns the devices of a kind; none of them reaches the memory of another."""

    def group(machine: Machine) -> Parties:
        parties = tuple(
            Party(device.name, Memory(device.name, kind.memories[0]), Executor(device.name))
            for device in machine.others.get(kind.name, ())
        )
        noun, several = kind.words
        few = f"requires at least two {several}"
        return Parties(noun, parties, f"no {noun} was found", few, ((),) * len(parties), disjoint=True)

    return group


def _numa(machine: Machine, user: Callable[[NumaNode], NumaNode | None]) -> Parties:
    """The NUMA nodes whose memory the cores of a node use: their own, or another one."""
    parties = tuple(
        Party(node.name, Memory(node.name, MemoryKind.PAGEABLE), Executor(near.name, cpus=near.cores))
        for node in machine.numa
        if (near := user(node))
    )
    return Parties("NUMA node", parties, NO_CPU, ONE_NODE)


def nodes(machine: Machine) -> Parties:
    """The NUMA nodes with cores and memory; one thread per core."""
    return _numa(machine, lambda node: node if node.cpus and node.memory_bytes and node.allowed else None)


def memories(machine: Machine) -> Parties:
    """The NUMA nodes with memory, each with its cores or, if it has none, the nearest ones."""
    return _numa(
        machine, lambda node: machine.nearest_cores(node) if node.memory_bytes and node.allowed else None
    )


def cores(machine: Machine) -> Parties:
    """The NUMA nodes with cores, also those without memory, which may only execute."""
    return _numa(machine, lambda node: node if node.cpus else None)


def ranks(machine: Machine) -> Parties:
    """The processes of the job, each with its device."""
    parties = []
    for rank in machine.ranks:
        memory = Memory(rank.device, kind_of(rank.device).memories[0], rank.index)
        parties.append(Party(str(rank.index), memory, Executor(rank.device, rank.index, rank.cpus)))
    return Parties("rank", tuple(parties), ONE_RANK, ONE_RANK)


#: Makes the plan of parties, whose number suffices, with buffers of a size.
PartiesPlan = Callable[[Machine, Testcase, PlanOptions, Parties, int], Plan]


def of_parties(group_of: Grouping, least: int) -> Callable[[PartiesPlan], Pattern]:
    """Make a pattern of a function that plans for parties; it is waived if there are fewer than ``least``."""

    def decorate(plan: PartiesPlan) -> Pattern:
        @wraps(plan)
        def pattern(machine: Machine, case: Testcase, options: PlanOptions) -> Plan:
            group = group_of(machine)
            if reason := group.lacks(least):
                return Plan.waive(reason)
            return plan(machine, case, options, group, case.buffer_size(machine, options))

        return pattern

    return decorate


def copy(case: Testcase, active: Party, passive: Party, size: int) -> Transfer:
    """A copy or signal that ``active`` executes: it pulls in a read and pushes in a write."""
    pulls = case.access is Access.READ
    source, destination = (passive, active) if pulls else (active, passive)
    return Transfer(
        source.memory,
        destination.memory,
        active.executor,
        case.engine,
        size,
        operation=case.operation,
        counted=case.counted,
    )


def _of_pairs(
    group_of: Grouping,
    work: Callable[[Testcase, Party, Party, int], tuple[Transfer, ...]],
    table: Callable[[Testcase, Axis, Axis, Cells], Plan] = single,
    *,
    diagonal: bool = False,
    columns_of: Grouping | None = None,
    mutual: bool = False,
    samples: bool = True,
) -> Pattern:
    """The pattern of all pairs of a row and a column.

    Args:
        group_of: Returns the rows.
        work: Returns the transfers of a pair.
        table: Makes the plan of the cells.
        diagonal: Whether a party is also paired with itself; in a copy it is if the options say so.
        columns_of: Returns the columns, if they are not the rows; then all are within reach.
        mutual: Whether each of a pair must reach the other, not only the row the column.
        samples: Whether only some peers may be measured.
    """

    @of_parties(group_of, 1 if diagonal else 2)
    def pattern(machine: Machine, case: Testcase, options: PlanOptions, group: Parties, size: int) -> Plan:
        columns = columns_of(machine) if columns_of else group
        local = diagonal or (options.local_copy and not mutual)
        is_square = columns.axis == group.axis
        kept = peers(len(group.parties), options.sample_peers if is_square and samples else 0)
        cells: Cells = [
            (i, j, (columns is group and (group.barrier(i, j) or (mutual and group.barrier(j, i))))
             or work(case, row, column, size))
            for i, row in enumerate(group.parties)
            for j, column in enumerate(columns.parties)
            if (local or row.label != column.label)
            and (i == j or not is_square or (j - i) % len(group.parties) in kept)
        ]  # fmt: skip
        plan = table(case, group.axis, columns.axis, cells)
        title = case.title.replace("{part}", "Total")
        return group.scheduled(plan, options, title) if is_square else plan

    return pattern


_LATENCIES = partial(single, reduce=Reduce.LATENCY)


def pairs(group_of: Grouping, *, diagonal: bool = False, columns_of: Grouping | None = None) -> Pattern:
    """The pattern of all pairs, one at a time; the row executes. ``columns_of`` gives other columns."""
    return _of_pairs(group_of, lambda *pair: (copy(*pair),), diagonal=diagonal, columns_of=columns_of)


def pairs_both_ways(group_of: Grouping) -> Pattern:
    """The pattern of all pairs in both directions at once; each party executes one direction."""
    return _of_pairs(
        group_of, lambda case, a, b, size: (copy(case, a, b, size), copy(case, b, a, size)), both_ways,
        mutual=True,
    )  # fmt: skip


def signals(group_of: Grouping) -> Pattern:
    """The pattern in which the row sets flags in the column's memory, which answers."""
    return _of_pairs(group_of, lambda *pair: (copy(*pair),), _LATENCIES, mutual=True, samples=False)


def chase(group_of: Grouping, *, diagonal: bool, columns_of: Grouping | None = None) -> Pattern:
    """The pattern in which the row follows a random cycle through the column's memory."""
    return _of_pairs(
        group_of, lambda case, row, column, size: (chasing(case, row.executor, column.memory, size),),
        _LATENCIES, diagonal=diagonal, columns_of=columns_of, samples=False,
    )  # fmt: skip


def bulk(pattern: Pattern) -> Pattern:
    """A pattern without the cells whose GPUs have no bulk copies."""

    def planned(machine: Machine, case: Testcase, options: PlanOptions) -> Plan:
        plan = pattern(machine, case, options)
        lacking = {gpu.name for gpu in machine.gpus if not gpu.has_bulk_copy}
        measurements, waived = list[Measurement](), list[WaivedCell]()
        for measurement in plan.measurements:
            without = [t.executor.device for t in measurement.transfers if t.executor.device in lacking]
            if not without:
                measurements.append(measurement)
                continue
            reason = f"{without[0]} has no bulk copies (compute capability 9.0 or later)"
            waived += [WaivedCell(p.table, p.row, p.column, reason) for p in measurement.places]
        return replace(plan, measurements=tuple(measurements), waived=(*waived, *plan.waived))

    return planned


def star(group_of: Grouping, *, column_executes: bool, reduce: Reduce) -> Pattern:
    """The pattern of one party (the column) with all others at once.

    Either the column executes all transfers, or each of the others executes one.
    """

    @of_parties(group_of, 2)
    def pattern(machine: Machine, case: Testcase, options: PlanOptions, group: Parties, size: int) -> Plan:
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
    """The pattern 1 x parties: each works in its own memory, one at a time or all together."""

    @of_parties(group_of, 1)
    def pattern(machine: Machine, case: Testcase, options: PlanOptions, group: Parties, size: int) -> Plan:
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


def chasing(case: Testcase, executor: Executor, memory: Memory, size: int) -> Transfer:
    """A chase through ``size`` bytes. It only reads: source and destination are the same."""
    single_cpu = replace(executor, cpus=executor.cpus[:1])
    return Transfer(memory, memory, single_cpu, case.engine, size, operation=Operation.CHASE)


def bisect(group_of: Grouping) -> Pattern:
    """The pattern parties x 1: each copies to the party half the group away, all at once."""

    @of_parties(group_of, 2)
    def pattern(machine: Machine, case: Testcase, options: PlanOptions, group: Parties, size: int) -> Plan:
        parties, n = group.parties, len(group.parties)
        partner = [(i + n // 2) % n for i in range(n)]
        transfers = tuple(copy(case, parties[i], parties[partner[i]], size) for i in range(n))
        places = tuple(Place("", i, 0, Reduce.FIRST, (i,)) for i in range(n))
        labels = tuple(f"{parties[i].label}->{parties[partner[i]].label}" for i in range(n))
        layout = Layout("", case.title, Axis("pair", labels), Axis("rate", ("0",)), case.unit)
        return Plan((layout,), (Measurement(transfers, places),))

    return pattern
