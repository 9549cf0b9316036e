"""One row per cell (tidy data), for spreadsheets and data frames."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Iterator

from ..document import Cell, Document, Table, TestcaseResult
from ..results.cells import key_of
from .signs import data_word
from .style import Style

_COLUMNS = (
    "testcase", "table", "verdict", "row", "column", "value", "unit", "reason", "n", "median", "mean", "min",
    "max", "cv", "low", "high", "bytes", "copies", "host", "started", "simulated", "limit", "at", "imported",
    "testcase_verdict", "data", "run_verdict",
)  # fmt: skip
#: Beginnings of texts that spreadsheets evaluate as formulas.
_FORMULA = ("=", "+", "-", "@", "\t", "\r", "\n")


def render(document: Document, style: Style) -> str:
    """Return a header and one row per cell, in base units; ``verbose`` gives one row per sample.

    ``verdict`` is that on the cell, empty if another table of its testcase is judged in its place; ``data``
    says whether the data was verified. ``at`` is the position of a value on the curve's axis: bytes, number
    of threads or blocks, or delay.

    A testcase without cells has one row, which gives the reason. A text that a spreadsheet would evaluate
    as a formula begins with an apostrophe.
    """
    text = io.StringIO()
    columns = (*_COLUMNS, "samples") if style.verbose else _COLUMNS
    writer = csv.DictWriter(text, columns, lineterminator="\n", extrasaction="ignore")
    writer.writeheader()
    check = style.check(document)
    verdicts = {one.key: one.verdict for one in check.judgements}
    about = origin(document) | {"simulated": "SIMULATED" if document.simulated else ""}
    about["run_verdict"] = str(check.verdict)
    for result in document.testcases:
        of_testcase = check.testcases[result.name]
        about |= {"testcase_verdict": str(of_testcase), "data": data_word(document, result)}
        places = [key_of(result, table, cell) for table in result.tables for cell in table.cells]
        of_cells = [str(verdicts.get(key, "")) for key in places] or [str(of_testcase)]
        for row, verdict in zip(cells([result]), of_cells, strict=True):
            row |= {**about, "verdict": verdict}
            writer.writerow({name: _inert(value) for name, value in row.items()})
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
        s, (low, high) = cell.statistics, cell.interval or (None, None)
        row |= {
            "n": s.n, "median": s.median, "mean": s.mean, "min": s.min, "max": s.max, "cv": s.cv,
            "low": low, "high": high, "rounds": len(cell.rounds) or 1, "bytes": cell.bytes,
            "copies": cell.copies,
            "samples": " ".join(repr(value) for value in cell.samples),
        }  # fmt: skip
    return row
