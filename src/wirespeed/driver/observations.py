"""Warnings from the tables of a collective: stragglers, and switches that reduce."""

from __future__ import annotations

from collections.abc import Sequence

from ..tables import LATE, Table

#: Thresholds for reporting a straggler: delay as a fraction of the operation's time, and in s.
STRAGGLER_FRACTION, STRAGGLER_S = 0.1, 5e-6


def observations(tables: Sequence[Table]) -> list[str]:
    """Warnings: bus bandwidth above the rate of the slowest link, and the slowest process to enter."""
    by_key = {table.key: table for table in tables}
    if "busbw" not in by_key:
        return []
    warnings = []
    for cell in by_key["busbw"].cells:
        if cell.limit and cell.value and cell.value > cell.limit:
            size = by_key["busbw"].columns.labels[cell.column]
            warnings.append(
                f"the bus bandwidth at {size} exceeds the "
                f"{cell.limit / 1e9:.0f} GB/s of the slowest link: the switch reduces, so it is effective"
            )
            break
    late = [
        (cell.value or 0.0, cell.row, cell.column, place)
        for place, key in enumerate(LATE) if key in by_key for cell in by_key[key].cells
    ]  # fmt: skip
    if late:
        seconds, process, column, place = max(late, key=lambda entry: entry[:3])
        times = {(c.row, c.column): c.value or 0.0 for c in by_key["time"].cells}
        if seconds > max(STRAGGLER_FRACTION * times[place, column], STRAGGLER_S):
            size = by_key["time"].columns.labels[column]
            warnings.append(
                f"straggler: process {process} starts {seconds * 1e6:.1f} µs late on average at {size}"
            )
    return warnings
