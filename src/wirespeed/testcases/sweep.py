"""Any testcase as curves over buffer sizes."""

from __future__ import annotations

from dataclasses import replace

from ..hardware.topology import Machine
from ..measurement import Axis
from .base import Layout, Plan, PlanOptions, Testcase, WaivedCell, size_axis


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
                m, places=tuple(replace(p, row=rows[p.table, p.row, p.column], column=j) for p in m.places)
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
