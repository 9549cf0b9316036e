"""Slow rows of tables whose rows should have equal times, such as the ranks of a job."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from msgspec.structs import replace

from ..statistics import summarise
from ..tables import Cell, Table
from ..thresholds.values import SLOW_ROW
from ..units import format_time


def slow(samples: Sequence[Sequence[float]]) -> list[str]:
    """For each row of a column the reason why it is slow (see `SLOW_ROW`); empty if it is not.

    Args:
        samples: Times of each row, in s.
    """
    medians = [summarise(times).median if times else float("inf") for times in samples]
    best = min(range(len(medians)), key=lambda i: medians[i], default=0)
    reasons = []
    for times, middle in zip(samples, medians, strict=True):
        is_slow = bool(times) and middle >= SLOW_ROW * medians[best] and min(times) > max(samples[best])
        reasons.append(f"{middle / medians[best]:.3g} times the fastest of this phase" if is_slow else "")
    return reasons


def marked(cells: Iterable[Cell]) -> tuple[Cell, ...]:
    """The cells; slow ones with the reason."""
    rows = list(cells)
    for column in {cell.column for cell in rows}:
        own = [i for i, cell in enumerate(rows) if cell.column == column and cell.value is not None]
        for i, why in zip(own, slow([rows[i].samples for i in own]), strict=True):
            rows[i] = replace(rows[i], reason=why)
    return tuple(rows)


def slow_rows(name: str, table: Table) -> list[str]:
    """A warning for each column with slow cells."""
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
