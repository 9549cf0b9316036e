"""Some of what could be measured: the cells and pairs of a testcase that are measured, and the testcases that
come first in a run with a time limit, because they find most per second.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import replace
from itertools import permutations

from ..errors import MachineError
from ..hardware.topology import Machine
from ..measurement import Axis, Measurement
from .base import Plan, PlanOptions, Testcase, WaivedCell

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
