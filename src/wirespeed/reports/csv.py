"""The columns of a value, from the fields of ``Cell``: CSV and data frames are made of them.

One row per cell (tidy data), for spreadsheets and data frames.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import msgspec

from ..document import Document, TestcaseResult
from ..judging.judged import Judged
from ..results.cells import key_of
from ..tables import Calls, Cell, Statistics, Table
from .findings import data_word
from .style import Style

#: Fields that are an index into labels, and those with a column for each of two numbers or of their fields.
_LABELS = ("row", "column")
_PAIRS = {"expected": ("least", "normal"), "interval": ("low", "high")}
_STRUCTURES: dict[str, type[msgspec.Struct]] = {"statistics": Statistics, "calls": Calls}
_TYPES = {msgspec.inspect.FloatType: float, msgspec.inspect.IntType: int, msgspec.inspect.BoolType: bool}


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
    yield CellColumn("at", float, _position)
    yield CellColumn("unit", str, lambda _, table, __: str(table.unit))
    yield CellColumn("share", float, _share)
    for field in msgspec.structs.fields(cell):
        if field.name in _LABELS:
            yield CellColumn(field.name, str, _label(field.name), field.name)
        elif field.name in _PAIRS:
            for i, name in enumerate(_PAIRS[field.name]):
                yield CellColumn(name, float, _item(field.name, i), field.name)
        elif field.name in _STRUCTURES:
            for part in msgspec.structs.fields(_STRUCTURES[field.name]):
                name = "calls" if (field.name, part.name) == ("calls", "n") else part.name
                yield CellColumn(name, _kind(part.type), _part(field.name, part.name), field.name)
        else:
            yield CellColumn(field.name, _kind(field.type), _plain(field.name), field.name)


def _position(_: TestcaseResult, table: Table, cell: Cell) -> float | None:
    return table.columns.values[cell.column] if table.is_curve else None


def _share(_: TestcaseResult, __: Table, cell: Cell) -> float | None:
    return cell.value / cell.limit if cell.value is not None and cell.limit else None


def _label(name: str) -> Callable[[TestcaseResult, Table, Cell], str]:
    return lambda _, table, cell: str(getattr(table, f"{name}s").labels[getattr(cell, name)])


def _item(name: str, index: int) -> Callable[[TestcaseResult, Table, Cell], float | None]:
    return lambda _, __, cell: (getattr(cell, name) or (None, None))[index]


def _part(field: str, name: str) -> Callable[[TestcaseResult, Table, Cell], Any]:
    return lambda _, __, cell: getattr(getattr(cell, field), name, None)


def _plain(name: str) -> Callable[[TestcaseResult, Table, Cell], Any]:
    return lambda _, __, cell: getattr(cell, name)


def _kind(annotation: Any) -> type:
    """The type of the entries of a field: that of its values, or tuple for a structure."""
    info = msgspec.inspect.type_info(annotation)
    members = info.types if isinstance(info, msgspec.inspect.UnionType) else (info,)
    (kind,) = (member for member in members if not isinstance(member, msgspec.inspect.NoneType))
    if isinstance(kind, msgspec.inspect.StrType):
        return str
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


#: The first columns, which programs may read by position; further fields of a cell follow.
_FIRST = (
    "testcase", "table", "verdict", "row", "column", "value", "unit", "reason", "n", "median", "mean", "min",
    "max", "cv", "low", "high", "bytes", "copies", "host", "started", "simulated", "limit", "at", "imported",
    "testcase_verdict", "data", "run_verdict",
)  # fmt: skip
_LAST = "samples"
#: Beginnings of texts that spreadsheets evaluate as formulas.
_FORMULA = ("=", "+", "-", "@", "\t", "\r", "\n")


def render(judged: Judged, style: Style) -> str:
    """A header and one row per cell, in base units; ``verbose`` adds fields that are lists.

    ``verdict`` is that on the cell, empty if another table of its testcase is judged in its place; ``data``
    says whether the data was verified. ``at`` is the position of a value on the curve's axis: bytes, number
    of threads or blocks, or delay.

    A testcase without cells has one row, which gives the reason. A text that a spreadsheet would evaluate
    as a formula begins with an apostrophe.
    """
    text = io.StringIO()
    fields = (column for column in COLUMNS if column.field)
    fields_shown = [column.name for column in fields if style.verbose or column.kind is not tuple]
    columns = sorted(dict.fromkeys((*_FIRST, *fields_shown)), key=lambda name: name == _LAST)
    writer = csv.DictWriter(text, columns, lineterminator="\n", extrasaction="ignore")
    writer.writeheader()
    document, check, judgements = judged.document, judged.check, judged.judgements
    shared = origin(document) | {"simulated": "SIMULATED" if document.simulated else ""}
    shared["run_verdict"] = str(check.verdict)
    for result in document.testcases:
        of_testcase = check.testcases[result.name]
        shared |= {"testcase_verdict": str(of_testcase), "data": data_word(document, result)}
        places = [key_of(result, table, cell) for table in result.tables for cell in table.cells]
        of_cells = [str(judgements[key].verdict) if key in judgements else "" for key in places]
        for row, verdict in zip(cells([result]), of_cells or [str(of_testcase)], strict=True):
            written = {**row, **shared, "verdict": verdict}
            writer.writerow({name: _inert(_written(value)) for name, value in written.items()})
    return text.getvalue()


def origin(document: Document) -> dict[str, object]:
    """The columns that all rows of a run share."""
    return {
        "host": document.hostname,
        "started": document.started,
        "simulated": document.simulated,
        "imported": document.origin,
    }


def _written(value: object) -> object:
    """A list of numbers or texts with blanks between them; a structure as JSON."""
    if isinstance(value, tuple) and not any(isinstance(item, tuple) for item in value):
        return " ".join(item if isinstance(item, str) else repr(item) for item in value)
    is_plain = value is None or isinstance(value, (str, int, float))
    return value if is_plain else msgspec.json.encode(value).decode()


def _inert(value: object) -> object:
    """A value that no spreadsheet evaluates; numbers are unchanged."""
    return f"'{value}" if isinstance(value, str) and value.startswith(_FORMULA) else value
