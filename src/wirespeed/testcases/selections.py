"""Selections: some cells of a testcase, several sizes, an order of testcases, nvbandwidth's versions.

A sweep over sizes turns any testcase into curves. In a run with a time limit, what finds most per second
comes first.

The numbers of testcases between processes in 0.10 are derived: its published lists end at 43. Of 0.11 only
two names are published.
"""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import replace
from functools import partial
from itertools import permutations

from ..errors import MachineError, UnknownTestcase
from ..hardware.topology import Machine
from ..measurement import Axis, Measurement, Reduce
from ..model import Access, Engine
from . import TABLE, device, find, missing, processes, select
from .base import Layout, Pattern, Plan, PlanOptions, Testcase, WaivedCell, size_axis
from .patterns import gpus, ranks, star

#: Row and column of cells of a table of pairs, by label.
Pairs = Collection[tuple[str, str]]


def narrow(case: Testcase, rows: Collection[str] = (), columns: Collection[str] = ()) -> Testcase:
    """A testcase with the same name and only the rows and columns with these labels.

    Measurements that fill no remaining cell are omitted. No labels select all.

    Args:
        case: The testcase to restrict.
        rows, columns: Labels, such as ``gpu0``; labels that a table does not have are ignored.
    """

    def pattern(machine: Machine, _: Testcase, options: PlanOptions) -> Plan:
        plan = case.pattern(machine, case, options)
        kept = {t.key: (_kept(t.rows, rows), _kept(t.columns, columns)) for t in plan.tables}

        def at(table: str, row: int, column: int) -> tuple[int, int] | None:
            in_rows, in_columns = kept[table]
            return (in_rows[row], in_columns[column]) if row in in_rows and column in in_columns else None

        measurements = []
        for measurement in plan.measurements:
            places = tuple(
                replace(place, row=there[0], column=there[1])
                for place in measurement.places
                if (there := at(place.table, place.row, place.column))
            )
            if places:
                measurements.append(replace(measurement, places=places))
        waived = tuple(
            replace(cell, row=there[0], column=there[1])
            for cell in plan.waived
            if (there := at(cell.table, cell.row, cell.column))
        )
        tables = tuple(
            replace(t, rows=_only(t.rows, kept[t.key][0]), columns=_only(t.columns, kept[t.key][1]))
            for t in plan.tables
        )
        return Plan(tables, tuple(measurements), waived, plan.reason)

    return replace(case, pattern=pattern)


def only_pairs(case: Testcase, chosen: Callable[[Machine], Pairs], why: str) -> Testcase:
    """A testcase that measures only some pairs. Its tables keep their shape.

    Testcases without a table of pairs are not changed.

    Args:
        case: The testcase to restrict.
        chosen: Returns the cells to measure.
        why: Reason of the cells that are left out.
    """

    def pattern(machine: Machine, _: Testcase, options: PlanOptions) -> Plan:
        plan = case.pattern(machine, case, options)
        if not plan.measurements or plan.tables[0].rows.labels != plan.tables[0].columns.labels:
            return plan
        labels, pairs = plan.tables[0].rows.labels, chosen(machine)
        measurements, waived = list[Measurement](), list(plan.waived)
        for whole in plan.measurements:
            for measurement in whole.separate() if whole.independent else (whole,):
                kept = [p for p in measurement.places if (labels[p.row], labels[p.column]) in pairs]
                if kept:
                    measurements.append(replace(measurement, places=tuple(kept)))
                left = [place for place in measurement.places if place not in kept]
                waived += [WaivedCell(place.table, place.row, place.column, why) for place in left]
        return replace(plan, measurements=tuple(measurements), waived=tuple(waived))

    return replace(case, pattern=pattern)


def named_pair(machine: Machine, uuids: Sequence[str]) -> Pairs:
    """The pair of GPUs with these UUIDs, which may be shortened, or of their ranks; in both directions.

    Raises:
        MachineError: If a UUID does not name one GPU, or both name the same.
    """
    known = [(gpu.name, gpu.uuid) for gpu in machine.gpus if not machine.ranks]
    known += [(str(rank.index), rank.uuid) for rank in machine.ranks]
    names = []
    for wanted in uuids:
        fitting = [name for name, uuid in known if wanted and uuid.startswith(wanted)]
        if len(fitting) != 1:
            there = ", ".join(uuid for _, uuid in known if uuid) or "unknown"
            fits = "several GPUs have" if fitting else "no GPU has"
            raise MachineError(f"{fits} the UUID {wanted!r}; UUIDs of this machine: {there}")
        names += fitting
    if len(set(names)) < len(names):
        raise MachineError(f"a pair has two different GPUs, but both UUIDs are {uuids[0]!r}")
    one, other = names
    return {(one, other), (other, one)}


def random_pairs(machine: Machine, count: int, seed: int) -> Pairs:
    """Random pairs of ranks, each in one direction: first so that each rank is in one, then any others."""
    ranks = [str(rank.index) for rank in machine.ranks]
    drawn = random.Random(seed)
    others = list(permutations(ranks, 2))
    drawn.shuffle(others)
    drawn.shuffle(ranks)
    chosen: dict[tuple[str, str], None] = {}
    covered: set[str] = set()
    for rank in ranks:
        if rank not in covered and (pair := next((pair for pair in others if rank in pair), None)):
            chosen[pair] = None
            covered |= {*pair}
    chosen |= dict.fromkeys(others)
    return set(list(chosen)[:count])


def _kept(axis: Axis, labels: Collection[str]) -> dict[int, int]:
    """The remaining indices of an axis: old -> new."""
    kept = [i for i, label in enumerate(axis.labels) if not labels or label in labels]
    return {old: new for new, old in enumerate(kept)}


def _only(axis: Axis, kept: Collection[int]) -> Axis:
    labels = tuple(axis.labels[i] for i in kept)
    return replace(axis, labels=labels, values=tuple(axis.values[i] for i in kept) if axis.values else ())


def sweep(case: Testcase, sizes: tuple[int, ...]) -> Testcase:
    """A testcase with the same name that measures every cell over buffer sizes.

    Each cell of the original becomes a curve. A testcase with a fixed size is returned unchanged. Sizes
    are measured in ascending order, each once.
    """
    if case.fixed_size:
        return case
    sizes = tuple(sorted(set(sizes)))
    if case.swept is not None:
        return replace(case, pattern=case.swept(sizes))

    def pattern(machine: Machine, _: Testcase, options: PlanOptions) -> Plan:
        plans = [case.pattern(machine, case, replace(options, size=size)) for size in sizes]
        first = plans[0]
        if first.reason or any(layout.columns.values for layout in first.tables):
            return case.pattern(machine, case, options)  # nothing to sweep, or a curve already
        columns = size_axis("buffer size", sizes)
        tables, rows = [], dict[tuple[str, int, int], int]()
        for layout in first.tables:
            there = [(p.row, p.column) for m in first.measurements for p in m.places if p.table == layout.key]
            there += [(w.row, w.column) for w in first.waived if w.table == layout.key]
            cells = sorted(set(there))
            rows |= {(layout.key, *cell): i for i, cell in enumerate(cells)}
            labels = tuple(_label(layout, row, column) for row, column in cells)
            tables.append(replace(layout, rows=Axis("cell", labels), columns=columns, rows_alike=False))
        measurements = tuple(
            replace(
                m,
                places=tuple(replace(p, row=rows[p.table, p.row, p.column], column=j) for p in m.places),
            )
            for j, plan in enumerate(plans)
            for m in plan.measurements
        )
        waived = tuple(
            WaivedCell(w.table, rows[w.table, w.row, w.column], j, w.reason)
            for j, plan in enumerate(plans)
            for w in plan.waived
        )
        return Plan(tuple(tables), measurements, waived)

    return replace(case, pattern=pattern)


def _label(layout: Layout, row: int, column: int) -> str:
    """The name of a cell: only its row if the columns have no name; only its column in one row."""
    if not layout.columns.name:
        return layout.rows.labels[row]
    if len(layout.rows.labels) == 1:
        return layout.columns.labels[column]
    return f"{layout.rows.labels[row]},{layout.columns.labels[column]}"


#: Testcases that together use every device and every link of a machine at least once, in the order in which
#: they run: each GPU with its host, in both directions; each pair of GPUs; GPU memory; host memory; the links
#: between NUMA nodes.
COVERING = (
    "host_to_device_memcpy_ce", "device_to_host_memcpy_ce", "device_to_device_memcpy_read_ce",
    "device_local_copy", "host_stream_copy", "numa_to_numa_memcpy_read_cpu",
)  # fmt: skip
#: What follows them: collectives, paths that several devices share, and the other direction of execution.
_NEXT = (
    "all_reduce", "host_to_all_memcpy_ce", "all_to_host_memcpy_ce", "device_to_device_memcpy_write_ce",
    "device_stream_triad", "host_stream_triad",
)  # fmt: skip
_RANKS = {name: rank for rank, name in enumerate((*COVERING, *_NEXT))}


def by_value(cases: Iterable[Testcase]) -> tuple[Testcase, ...]:
    """Testcases in the order of a run with a time limit; the others keep their order at the end."""
    return tuple(sorted(cases, key=lambda case: _RANKS.get(case.name, len(_RANKS))))


#: How the names of testcases between processes begin.
PROCESSES = "multinode_"
_MULTICAST = "requires NVLink multicast objects, which wirespeed does not create"
#: Numbers of the two testcases of broadcasts in 0.10.
_BROADCASTS = {"one_to_all": 54, "all_to_all": 55}
_SPLIT = frozenset({"host_to_device_bidirectional_memcpy_sm", "device_to_host_bidirectional_memcpy_sm"})
_LATENCIES = frozenset({"host_device_latency_sm", "device_to_device_latency_sm"})
_LOCAL = frozenset({"device_local_copy"})
#: Version -> names of the testcases of 0.10 in one process that it lacks; it has those of several processes.
_LACKING = {
    "0.4": device.LATER | _SPLIT | _LATENCIES | _LOCAL,
    "0.8": device.LATER,
    "sailbandwidth-2.2.1": device.LATER
    | {f"{PROCESSES}device_to_device_broadcast_{name}_sm" for name in _BROADCASTS}
    | {f"{PROCESSES}bisect_write_ce"},
    "0.10": frozenset[str](),
    "0.11": frozenset[str](),
}
#: The version without testcases of several processes, and that in which the sender executes two reads.
_WITHOUT_PROCESSES, _PUSHING = "0.4", "0.8"
#: Testcase of such a read -> whether the column is the sender.
_PUSHED = {"all_to_one_read_sm": True, "one_to_all_read_sm": False}
#: Major compute capability from which GPUs have the Compute Fabric Transport.
_FABRIC_TRANSPORT = 10
#: Why other pairs are not measured.
_OTHER_PAIR, _NOT_CHOSEN = "not the pair of --pair", "not one of the pairs of --targetNumPairs"


def of_nvbandwidth(version: str) -> tuple[Testcase, ...]:
    """The testcases of a version of nvbandwidth, with its numbers, in its order.

    Args:
        version: 0.4, 0.8, 0.10 or 0.11; or sailbandwidth-2.2.1.
    """
    between = (
        () if version == _WITHOUT_PROCESSES
        else sorted((*processes.TESTCASES, *_broadcasts()), key=lambda case: case.index or 0)
    )  # fmt: skip
    kept = [case for case in (*device.TESTCASES, *between) if case.name not in _LACKING[version]]
    if version == "0.11":  # its numbers after those of 0.10 in one process are not published
        unnumbered = [replace(case, index=None) for case in between]
        return (*device.TESTCASES, _COUNTED, *unnumbered, _REDUCED)
    numbered = (replace(case, index=index) for index, case in enumerate(kept))
    return tuple(_pushing(case) if version == _PUSHING else case for case in numbered)


def listed(version: str, *, several: bool) -> list[Testcase]:
    """The testcases of one process, or those of several processes too."""
    return [case for case in of_nvbandwidth(version) if several or not case.name.startswith(PROCESSES)]


def selected(
    names: Sequence[str], prefixes: Sequence[str], version: str, *, several: bool, exact: bool
) -> list[Testcase]:
    """The requested testcases; by default all of this kind of job.

    Args:
        names, prefixes: Names or numbers of testcases, or how names begin; not both.
        version: As for ``of_nvbandwidth``.
        several: Whether the job has several processes.
        exact: Whether a prefix that fits no testcase is ignored, as by nvbandwidth.

    Raises:
        UnknownTestcase: If no testcase starts with a prefix that is not ignored.
    """
    known = listed(version, several=several)
    if names:
        return [_found(name, version, known, exact=exact) for name in names]
    if prefixes and exact:
        return [case for case in known if case.name.startswith(tuple(prefixes))]
    return list(select(prefixes=prefixes, table=known))


def _found(name: str, version: str, known: Sequence[Testcase], *, exact: bool) -> Testcase:
    """A testcase; if it does not exist, one that reports this when it runs.

    The name of a testcase between processes is known in one process too, where it is waived.
    """
    if number := re.fullmatch(r"\s*([+-]?\d+)", name, re.ASCII):
        absent = missing(name, f"Testcase index {name} {'out of bound' if exact else 'not found'}!")
        return next((case for case in known if case.index == int(number[1])), absent)
    table = of_nvbandwidth(version)
    try:  # those between processes are those of this version
        return find(name, table if name.startswith(PROCESSES) else (*table, *TABLE))
    except UnknownTestcase:
        return missing(name, f"Testcase {name} not found!")


def restricted(
    cases: Iterable[Testcase], pair: Sequence[str] | None, pairs: int | None, seed: int
) -> list[Testcase]:
    """Testcases of which only some pairs are measured.

    Args:
        cases: The testcases.
        pair: UUIDs of the only pair of GPUs; None for all.
        pairs: Number of random pairs of processes; None for all.
        seed: Seed of their selection.
    """
    choose = partial(random_pairs, count=pairs or 0, seed=seed)
    if pair:
        cases = [only_pairs(case, partial(named_pair, uuids=pair), _OTHER_PAIR) for case in cases]
    return [
        only_pairs(case, choose, _NOT_CHOSEN)
        if pairs is not None and case.name.startswith(PROCESSES) else case for case in cases
    ]  # fmt: skip


def _pushing(case: Testcase) -> Testcase:
    """A read between one GPU and all others, executed by the sender as in the old versions."""
    if (column := _PUSHED.get(case.name)) is None:
        return case
    sender, receivers = ("the column's GPU", "all peers") if column else ("all peers", "the column's GPU")
    return replace(
        case,
        access=Access.WRITE,
        pattern=star(gpus, column_executes=column, reduce=Reduce.WALL),
        description=f"{sender} push to {receivers} at once; total",
    )


def _broadcasts() -> tuple[Testcase, ...]:
    return tuple(
        Testcase(
            f"{PROCESSES}device_to_device_broadcast_{name}_sm",
            "kernels copy into multicast memory of all ranks; not implemented",
            _waived(_MULTICAST, several=True), "", Engine.SM, Access.WRITE, index=index,
        )
        for name, index in _BROADCASTS.items()
    )  # fmt: skip


def _waived(reason: str, *, several: bool = False) -> Pattern:
    """The pattern of a testcase that is not implemented; the more general reasons come first."""

    def pattern(machine: Machine, case: Testcase, options: PlanOptions) -> Plan:
        group = ranks(machine) if several else gpus(machine)
        return Plan.waive(group.lacks(2) or _old(machine, case) or reason)

    return pattern


def _old(machine: Machine, case: Testcase) -> str:
    """Which GPU lacks the Compute Fabric Transport that a testcase requires; empty if none does."""
    if case.name not in (_COUNTED.name, _REDUCED.name):
        return ""
    for gpu in machine.gpus:
        major = gpu.compute_capability.partition(".")[0]
        if major.isdigit() and int(major) < _FABRIC_TRANSPORT:
            return f"{gpu.name} has no Compute Fabric Transport (compute capability 10.0 or later)"
    return ""


_COUNTED = Testcase(
    "device_to_device_latency_counted",
    "latency of counted writes over the Compute Fabric Transport; not implemented",
    _waived("counted writes of the Compute Fabric Transport are not implemented"),
    "", Engine.SM, Access.WRITE,
)  # fmt: skip
_REDUCED = Testcase(
    f"{PROCESSES}multicast_reduce", "reductions in the NVLink switches; not implemented",
    _waived(_MULTICAST, several=True), "", Engine.SM,
)  # fmt: skip
