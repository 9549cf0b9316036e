"""A Testcase restricted to some of its cells, such as one device or one pair."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

from ..model import Axis
from ..topology import Machine
from .base import Plan, PlanOptions, Testcase


def narrow(case: Testcase, rows: Collection[str] = (), columns: Collection[str] = ()) -> Testcase:
    """Return a testcase with the same name and only the rows and columns with these labels.

    Measurements that fill no remaining cell are omitted. No labels select all.

    Parameters
    ----------
    case : Testcase
        The testcase to restrict.
    rows, columns : Collection[str]
        Labels, such as ``gpu0``; labels that a table does not have are ignored.
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
        reason = plan.reason or (waived[0].reason if waived and not measurements else "")
        return Plan(tables, tuple(measurements), waived, reason)

    return replace(case, pattern=pattern)


def _kept(axis: Axis, labels: Collection[str]) -> dict[int, int]:
    """Return the remaining indices of an axis: old -> new."""
    kept = [i for i, label in enumerate(axis.labels) if not labels or label in labels]
    return {old: new for new, old in enumerate(kept)}


def _only(axis: Axis, kept: Collection[int]) -> Axis:
    labels = tuple(axis.labels[i] for i in kept)
    return replace(axis, labels=labels, values=tuple(axis.values[i] for i in kept) if axis.values else ())
