"""Whether pairs that were measured at the same time slowed each other down."""

from __future__ import annotations

from collections.abc import Sequence

from .results.document import Cell, Table
from .testcases.rounds import ALONE

#: A difference below this part of the value is not worth telling.
_NOISE = 0.02


def blocking(tables: Sequence[Table]) -> str:
    """Return where pairs were slower at the same time than alone, beyond noise; empty if nowhere.

    Beyond noise: the intervals of the two medians are apart, and the medians by more than 2 %.
    """
    alone = next((table for table in tables if table.key == ALONE), None)
    others = [table for table in tables if table.key != ALONE]
    if alone is None or not others:
        return ""
    together = others[-1]  # of several, the last is the total
    cells = {f"{together.rows.labels[c.row]}->{together.columns.labels[c.column]}": c for c in together.cells}
    slower: list[tuple[float, str]] = []
    compared = 0
    for cell in alone.cells:
        pair = alone.columns.labels[cell.column]
        other = cells.get(pair)
        if other is None or not other.value or not cell.value:
            continue
        compared += 1
        if _apart(other, cell):
            slower.append((1 - other.value / cell.value, pair))
    if not slower:
        return ""
    most, where = max(slower)
    return (
        f"the fabric blocks: {len(slower)} of {compared} pairs that were measured alone too are slower while "
        f"others run, {where} by {most:.0%}; without --parallel-pairs every pair runs alone"
    )


def slowed(cells: Sequence[tuple[Cell, Cell]], left: int) -> list[str]:
    """Return what to warn of pairs that looked low while others ran and were measured again alone.

    Parameters
    ----------
    cells
        Of each pair its cell while others ran, and alone.
    left
        How many more looked low and were not measured again.
    """
    changes = [1 - slow.value / fast.value for slow, fast in cells
               if _apart(slow, fast) and slow.value and fast.value]  # fmt: skip
    found = []
    if changes:
        found.append(
            f"{len(changes)} cells were up to {max(changes):.0%} slower while other pairs ran: "
            "they were measured again alone"
        )
    if left:
        found.append(f"{left} more pairs look low; not all were measured again alone")
    return found


def _apart(slow: Cell, fast: Cell) -> bool:
    """Whether one value is below another beyond noise."""
    if slow.value is None or fast.value is None or slow.statistics is None or fast.statistics is None:
        return False
    return slow.value < (1 - _NOISE) * fast.value and slow.statistics.high < fast.statistics.low
