"""What the tables of a collective show beyond their values: stragglers, and switches that reduce."""

from __future__ import annotations

from collections.abc import Sequence

from ..document import LATE, Table

#: A late process is worth a line from this share of the operation's time on, and from this time on, in s.
_LATE, _LATE_S = 0.1, 5e-6


def observations(tables: Sequence[Table]) -> list[str]:
    """Return a line where the bus bandwidth is above the link, and one for the process that comes latest."""
    by_key = {table.key: table for table in tables}
    if "busbw" not in by_key:
        return []
    found = []
    for cell in by_key["busbw"].cells:
        if cell.limit and cell.value and cell.value > cell.limit:
            size = by_key["busbw"].columns.labels[cell.column]
            found.append(
                f"the bus bandwidth at {size} is above the slowest link's "
                f"{cell.limit / 1e9:.0f} GB/s: it is effective, the switch reduces on the way"
            )
            break
    late = [
        (cell.value or 0.0, cell.row, cell.column, place)
        for place, key in enumerate(LATE) if key in by_key for cell in by_key[key].cells
    ]  # fmt: skip
    if late:
        seconds, process, column, place = max(late, key=lambda one: one[:3])
        times = {(c.row, c.column): c.value or 0.0 for c in by_key["time"].cells}
        if seconds > max(_LATE * times[place, column], _LATE_S):
            size = by_key["time"].columns.labels[column]
            found.append(f"process {process} comes {seconds * 1e6:.1f} µs late on average at {size}")
    return found
