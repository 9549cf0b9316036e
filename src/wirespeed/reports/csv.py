"""One row per cell (tidy data), for spreadsheets and data frames."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Iterator

from ..document import Cell, Document, Table, TestcaseResult
from . import Style

_COLUMNS = (
    "testcase", "table", "status", "row", "column", "value", "unit", "reason", "n", "median", "mean", "min",
    "max", "cv", "low", "high", "bytes", "copies", "host", "started", "simulated", "limit", "at", "imported",
)  # fmt: skip
#: Beginnings of texts that spreadsheets evaluate as formulas.
_FORMULA = ("=", "+", "-", "@", "\t", "\r", "\n")


def render(document: Document, style: Style) -> str:
    """Return a header and one row per cell, in base units; ``verbose`` gives one row per sample.

    ``at`` is the position of a value on the curve's axis: bytes, number of threads or blocks, or delay.

    A testcase without cells has one row, which gives the reason. A text that a spreadsheet would evaluate
    as a formula begins with an apostrophe.
    """
    text = io.StringIO()
    columns = (*_COLUMNS, "samples") if style.verbose else _COLUMNS
    writer = csv.DictWriter(text, columns, lineterminator="\n", extrasaction="ignore")
    writer.writeheader()
    about = origin(document) | {"simulated": "SIMULATED" if document.simulated else ""}
    for row in cells(document.testcases):
        writer.writerow({name: _inert(value) for name, value in {**row, **about}.items()})
    return text.getvalue()


def origin(document: Document) -> dict[str, object]:
    """Return the columns that all rows of a run share."""
    return {
        "host": document.machine.host or document.host,
        "started": document.started,
        "simulated": document.simulated,
        "imported": document.origin,
    }


def cells(results: Iterable[TestcaseResult]) -> Iterator[dict[str, object]]:
    """Yield the columns of each cell, in base units; for a testcase without cells, its status and reason."""
    for result in results:
        rows = [_cell(result, table, cell) for table in result.tables for cell in table.cells]
        yield from rows or [{"testcase": result.name, "status": result.status, "reason": result.reason}]


def _inert(value: object) -> object:
    """Return a value that no spreadsheet evaluates; numbers are unchanged."""
    return f"'{value}" if isinstance(value, str) and value.startswith(_FORMULA) else value


def _cell(result: TestcaseResult, table: Table, cell: Cell) -> dict[str, object]:
    """Return the columns of a cell, and its share of the limit and expected range, which data frames have."""
    least, normal = cell.expected or (None, None)
    row: dict[str, object] = {
        "testcase": result.name,
        "table": table.key,
        "status": result.status,
        "row": table.rows.labels[cell.row],
        "column": table.columns.labels[cell.column],
        "value": cell.value,
        "unit": str(table.unit),
        "reason": cell.reason,
        "limit": cell.limit,
        "share": cell.value / cell.limit if cell.value is not None and cell.limit else None,
        "least": least,
        "normal": normal,
        "at": table.columns.values[cell.column] if table.is_curve else None,
    }
    if cell.statistics is not None:
        s = cell.statistics
        row |= {
            "n": s.n, "median": s.median, "mean": s.mean, "min": s.min, "max": s.max, "cv": s.cv,
            "low": s.low, "high": s.high, "bytes": cell.bytes, "copies": cell.copies,
            "samples": " ".join(repr(value) for value in cell.samples),
        }  # fmt: skip
    return row
