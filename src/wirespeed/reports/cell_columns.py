"""The columns of a value in CSV, data frames and notebooks, which come from the fields of ``Cell``."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from operator import attrgetter, itemgetter
from typing import Any

import msgspec

from ..document import Document, TestcaseResult
from ..tables import Calls, Cell, Statistics, Table

#: Fields with a column for each of two numbers, and for each of their fields.
_PAIRS = {"expected": ("least", "normal"), "interval": ("low", "high")}
_STRUCTURES: dict[str, type[msgspec.Struct]] = {"statistics": Statistics, "calls": Calls}
_TYPES = {
    msgspec.inspect.FloatType: float, msgspec.inspect.IntType: int, msgspec.inspect.BoolType: bool,
    msgspec.inspect.StrType: str,
}  # fmt: skip


@dataclass(frozen=True)
class CellColumn:
    """A column of values.

    Attributes:
        name: Its name.
        kind: Type of its entries: float in base units, int, bool, str, or tuple if a value has several.
        get: Returns the entry of a cell; None if it is unknown.
        field: Field of ``Cell`` that it shows; empty for what testcase and table say of the cell.
    """

    name: str
    kind: type
    get: Callable[[TestcaseResult, Table, Cell], Any]
    field: str = ""


def cell_columns(cell: type[msgspec.Struct]) -> Iterator[CellColumn]:
    """The columns of a type of cells: where a value is, and all of its fields."""
    yield CellColumn("testcase", str, lambda result, _, __: result.name)
    yield CellColumn("table", str, lambda _, table, __: table.key)
    yield CellColumn("status", str, lambda result, _, __: result.status)
    yield CellColumn("at", float, lambda _, t, cell: t.columns.values[cell.column] if t.is_curve else None)
    yield CellColumn("unit", str, lambda _, table, __: str(table.unit))
    yield CellColumn("share", float, _share)
    yield CellColumn("row", str, lambda _, table, cell: table.rows.labels[cell.row], "row")
    yield CellColumn("column", str, lambda _, table, cell: table.columns.labels[cell.column], "column")
    for field in msgspec.structs.fields(cell):
        if field.name in _PAIRS:
            for i, name in enumerate(_PAIRS[field.name]):
                yield CellColumn(name, float, _entry(field.name, itemgetter(i)), field.name)
        elif field.name in _STRUCTURES:
            for part in msgspec.structs.fields(_STRUCTURES[field.name]):
                name = "calls" if (field.name, part.name) == ("calls", "n") else part.name
                yield CellColumn(
                    name, _kind(part.type), _entry(field.name, attrgetter(part.name)), field.name
                )
        elif field.name not in ("row", "column"):
            yield CellColumn(field.name, _kind(field.type), _entry(field.name), field.name)


def _share(_: TestcaseResult, __: Table, cell: Cell) -> float | None:
    return cell.value / cell.limit if cell.value is not None and cell.limit else None


def _entry(
    field: str, part: Callable[[Any], Any] = lambda value: value
) -> Callable[[TestcaseResult, Table, Cell], Any]:
    """Returns a field of a cell, or a part of it."""
    return lambda _, __, cell: None if (value := getattr(cell, field)) is None else part(value)


def _kind(annotation: Any) -> type:
    """The type of the entries of a field: that of its values, or tuple for a structure."""
    info = msgspec.inspect.type_info(annotation)
    members = info.types if isinstance(info, msgspec.inspect.UnionType) else (info,)
    (kind,) = (member for member in members if not isinstance(member, msgspec.inspect.NoneType))
    return _TYPES.get(type(kind), tuple)


#: All columns of a cell.
COLUMNS = tuple(cell_columns(Cell))


def cells(results: Iterable[TestcaseResult]) -> Iterator[Mapping[str, Any]]:
    """The columns of each cell, in base units; for a testcase without cells, its status and reason."""
    for result in results:
        rows = [
            {column.name: column.get(result, table, cell) for column in COLUMNS}
            for table in result.tables
            for cell in table.cells
        ]
        yield from rows or [{"testcase": result.name, "status": result.status, "reason": result.reason}]


def origin(document: Document) -> dict[str, object]:
    """The columns that all rows of a run share."""
    return {
        "host": document.hostname,
        "started": document.started,
        "simulated": document.simulated,
        "imported": document.origin,
    }
