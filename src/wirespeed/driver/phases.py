"""Rows of a table that should have equal times: which are slow for their column."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from msgspec.structs import replace

from ..document import Cell, Table
from ..summary import summarise
from ..units import format_time

#: A cell is slow if it takes this much longer than the fastest of its column, and every sample of it takes
#: longer than all of that one.
SLOW = 1.5
#: The explanation of the mark on slow cells.
FOOTNOTE = "* half as long again as the fastest of the phase, or longer, in every sample"


def slow(samples: Sequence[Sequence[float]]) -> list[str]:
    """Return for each row of a column why it is slow; empty where it is not.

    It is where its median is half as long again as the fastest of the column, or more, and each of its
    samples is above all of that one's.
    """
    medians = [summarise(some).median if some else float("inf") for some in samples]
    best = min(range(len(medians)), key=lambda i: medians[i], default=0)
    found = []
    for some, median in zip(samples, medians, strict=True):
        is_slow = bool(some) and median >= SLOW * medians[best] and min(some) > max(samples[best])
        found.append(f"{median / medians[best]:.3g} times the fastest of this phase" if is_slow else "")
    return found


def marked(cells: Iterable[Cell]) -> tuple[Cell, ...]:
    """Return cells with the reason why they are slow."""
    found = list(cells)
    for column in {cell.column for cell in found}:
        own = [i for i, cell in enumerate(found) if cell.column == column and cell.value is not None]
        for i, why in zip(own, slow([found[i].samples for i in own]), strict=True):
            found[i] = replace(found[i], reason=why)
    return tuple(found)


def warnings(name: str, table: Table) -> list[str]:
    """Return a line for each column that has slow cells."""
    lines = []
    for j, phase in enumerate(table.columns.labels):
        cells = [cell for cell in table.cells if cell.column == j and cell.value is not None]
        slowest = [cell for cell in cells if cell.is_slow]
        if slowest:
            fastest = min(cell.value or 0 for cell in cells)
            over = ", ".join(table.rows.labels[cell.row] for cell in slowest)
            most = max(cell.value or 0 for cell in slowest)
            lines.append(
                f"{name}: {phase} takes up to {format_time(most)} in place of {format_time(fastest)} "
                f"with {over} over"
            )
    return lines
