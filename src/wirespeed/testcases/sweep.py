"""A sweep over sizes turns any testcase into curves."""

from __future__ import annotations

from dataclasses import replace

from ..errors import UsageError
from ..model import Axis
from ..topology import Machine
from ..units import format_size, parse_size
from .base import Layout, Plan, PlanOptions, Testcase, WaivedCell

_MOST = 64


def parse_sizes(text: str) -> tuple[int, ...]:
    """Return the sizes that ``4KiB:1GiB``, ``4KiB:1GiB:x4`` or ``1MiB,3MiB`` stands for.

    A range grows by the factor behind the last colon, 2 where there is none; its end is included
    if the factor hits it.

    Raises
    ------
    UsageError
        If it is neither, or more than 64 sizes.
    """
    first, *rest = text.split(":")
    if not rest:
        sizes = tuple(parse_size(part) for part in text.split(","))
    else:
        factor_text = rest[1] if len(rest) > 1 else "x2"
        factor = factor_text.removeprefix("x")
        if len(rest) > 2 or not factor_text.startswith("x") or not factor.isdecimal() or int(factor) < 2:
            raise UsageError(f"{text!r} is not a range of sizes; write it like 4KiB:1GiB:x4 or 1MiB,3MiB")
        size, last, grown = parse_size(first), parse_size(rest[0]), list[int]()
        while size <= last and len(grown) <= _MOST:
            grown.append(size)
            size *= int(factor)
        sizes = tuple(grown)
    if not 1 <= len(sizes) <= _MOST:
        raise UsageError(f"{text!r} is {len(sizes) or 'no'} sizes; give from 1 to {_MOST}")
    return sizes


def sweep(case: Testcase, sizes: tuple[int, ...]) -> Testcase:
    """Return a testcase with the same name that measures every cell over sizes of a buffer.

    Each cell of the original becomes a curve. A testcase whose size is part of what it measures
    is returned as it is. Sizes are measured from the smallest on, each once.
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
        columns = Axis(
            "size of a buffer", tuple(format_size(s) for s in sizes), tuple(float(s) for s in sizes), "B"
        )
        tables, rows = [], dict[tuple[str, int, int], int]()
        for layout in first.tables:
            there = [(p.row, p.column) for m in first.measurements for p in m.places if p.table == layout.key]
            there += [(w.row, w.column) for w in first.waived if w.table == layout.key]
            cells = sorted(set(there))
            rows |= {(layout.key, *cell): i for i, cell in enumerate(cells)}
            labels = tuple(_label(layout, row, column) for row, column in cells)
            tables.append(Layout(layout.key, layout.title, Axis("cell", labels), columns, layout.unit))
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
    """Name a cell: by its column alone where there is one row."""
    if len(layout.rows.labels) == 1:
        return layout.columns.labels[column]
    return f"{layout.rows.labels[row]},{layout.columns.labels[column]}"
