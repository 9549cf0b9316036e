"""Tables as grids of texts, which each report only spells in its markup."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ..measurement import Axis
from ..statistics import median
from ..tables import Cell, Table
from ..units import fitting, many
from .values import EXACT, mark, number

#: Maximum number of rows or columns of a matrix that people read.
_READABLE = 16


@dataclass(frozen=True)
class GridCell:
    """One cell of a Grid.

    Attributes:
        cell: The cell; None if it does not exist.
        text: Its value in the unit of the Grid; ``n/a`` without a value, ``-`` without a cell.
        mark: Its mark, a key of ``FOOTNOTES``; empty for most cells.
    """

    cell: Cell | None
    text: str
    mark: str = ""

    def __str__(self) -> str:
        return self.mark + self.text


@dataclass(frozen=True)
class Grid:
    """A table of texts. The points of curves are its rows, because there can be many.

    Attributes:
        rows, columns: Names and labels of the axes.
        entries: The cells, rows x columns.
        scale: Base units per display unit.
        unit: Name of the display unit.
    """

    rows: Axis
    columns: Axis
    entries: tuple[tuple[GridCell, ...], ...]
    scale: float
    unit: str

    @classmethod
    def of(cls, table: Table, digits: int = EXACT, beside: Sequence[Table] = ()) -> Grid:
        """The values of a Table as texts in the unit of the tables beside it."""
        values = [v for other in beside or (table,) if other.unit is table.unit for v in other.values()]
        scale, unit = fitting(table.unit, values)

        def entry(cell: Cell | None) -> GridCell:
            if cell is None:
                return GridCell(cell, "-")
            if cell.value is None:
                return GridCell(cell, "n/a")
            return GridCell(cell, number(cell.value, scale, digits), mark(cell))

        rows, columns = table.rows, table.columns
        entries = [tuple(map(entry, row)) for row in table.grid()]
        if table.is_curve:
            rows, columns, entries = columns, rows, list(zip(*entries, strict=True))
        return cls(rows, columns, tuple(entries), scale, unit)


def is_large(table: Table) -> bool:
    """Whether a matrix has more rows or columns than people read."""
    return not table.is_curve and max(len(table.rows.labels), len(table.columns.labels)) > _READABLE


def place_of(table: Table, cell: Cell) -> str:
    """The labels of a cell; only the column if the table has one row."""
    column = table.columns.labels[cell.column]
    return column if len(table.rows.labels) == 1 else f"{table.rows.labels[cell.row]}, {column}"


def digest(table: Table, digits: int = EXACT) -> str:
    """Number, range and median of the values of a table that is too large to read, and where the ends are."""
    measured = [(cell.value, place_of(table, cell)) for cell in table.cells if cell.value is not None]
    if not measured:
        return "no value was measured"
    scale, unit = fitting(table.unit, table.values())
    ends = (("lowest", *min(measured)), ("highest", *max(measured)))
    low, high = (f"{end} {number(value, scale, digits)} {unit} ({place})" for end, value, place in ends)
    middle = number(median(sorted(value for value, _ in measured)), scale, digits)
    lost = len(table.cells) - len(measured)
    text = f"{many(len(measured), 'value')}: {low}, median {middle}, {high}"
    return text + (f"; {lost} without a value" if lost else "")
