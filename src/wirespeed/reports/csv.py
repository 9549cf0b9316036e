"""CSV: a header and one row for each value, without what a spreadsheet would evaluate."""

from __future__ import annotations

import csv
import io

import msgspec

from ..judging.judged import Judged
from ..results.cells import key_of
from .cell_columns import COLUMNS, cells, origin
from .style import Style
from .testcase_texts import data_word

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


def _written(value: object) -> object:
    """A list of numbers or texts with blanks between them; a structure as JSON."""
    if isinstance(value, tuple) and not any(isinstance(item, tuple) for item in value):
        return " ".join(item if isinstance(item, str) else repr(item) for item in value)
    is_plain = value is None or isinstance(value, (str, int, float))
    return value if is_plain else msgspec.json.encode(value).decode()


def _inert(value: object) -> object:
    """A value that no spreadsheet evaluates; numbers are unchanged."""
    return f"'{value}" if isinstance(value, str) and value.startswith(_FORMULA) else value
