"""One row per cell (tidy data), for spreadsheets and data frames."""

from __future__ import annotations

import csv
import io

import msgspec

from ..document import Document
from ..results.cells import key_of
from .columns import COLUMNS, cells
from .signs import data_word
from .style import Style

#: The first columns, which programs may read by position; further fields of a cell follow.
_FIRST = (
    "testcase", "table", "verdict", "row", "column", "value", "unit", "reason", "n", "median", "mean", "min",
    "max", "cv", "low", "high", "bytes", "copies", "host", "started", "simulated", "limit", "at", "imported",
    "testcase_verdict", "data", "run_verdict",
)  # fmt: skip
_LAST = "samples"
#: Beginnings of texts that spreadsheets evaluate as formulas.
_FORMULA = ("=", "+", "-", "@", "\t", "\r", "\n")


def render(document: Document, style: Style) -> str:
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
    check = style.check(document)
    verdicts = {judgement.key: judgement.verdict for judgement in check.judgements}
    shared = origin(document) | {"simulated": "SIMULATED" if document.simulated else ""}
    shared["run_verdict"] = str(check.verdict)
    for result in document.testcases:
        of_testcase = check.testcases[result.name]
        shared |= {"testcase_verdict": str(of_testcase), "data": data_word(document, result)}
        places = [key_of(result, table, cell) for table in result.tables for cell in table.cells]
        of_cells = [str(verdicts.get(key, "")) for key in places] or [str(of_testcase)]
        for row, verdict in zip(cells([result]), of_cells, strict=True):
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
