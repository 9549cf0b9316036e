"""Results in notebooks: the page's tables, without its script, and readable in light and dark themes."""

from __future__ import annotations

from functools import singledispatch
from typing import Any

from ...document import Document
from ...judging.judged import Judged
from ...measurement import Unit
from ...tables import Cell
from ...terminal import Tabular
from ...units import format_time, many
from ..additions import covered, of_result, page_parts
from ..figure_texts import extent, leading
from ..looks import SIGNS, marked
from ..records import NUMBERS, TIMES, WHOLES, Record, Section, records
from ..style import SIMULATED
from ..values import quantity
from .headline import headline, notes
from .measurements import families, path_groups
from .templates import rendered, source

#: Maximum number of rows of a table of records.
_MOST_ROWS = 40
#: Fields whose values are fractions, with the format of each.
_FRACTIONS = {
    "share": ".0%", "change": "+.1%", "change_low": "+.1%", "change_high": "+.1%", "spread": ".1%",
    "factor": ".0%", "margin": ".2f",
}  # fmt: skip


@singledispatch
def notebook_html(result: Tabular | Section) -> str:
    """A result as markup. All texts are escaped; it has neither scripts nor links.

    Args:
        result: A result of a public function, or a part of one with a name.
    """
    if own := of_result(notebook_html, result):
        return str(own(result))
    recorded = records(result)
    shown = recorded.rows[: _MOST_ROWS if recorded.relevant is None else min(recorded.relevant, _MOST_ROWS)]
    first, *others = [
        name for name in recorded.shown if any(row.get(name) not in (None, "") for row in shown)
    ] or [""]
    rows = [(_text(first, row), [_text(name, row) for name in others]) for row in shown]
    more = len(recorded.rows) - len(shown)
    return notebook(
        title=repr(result)[1:-1],
        columns=(first, *others),
        numeric=NUMBERS | WHOLES,
        rows=rows,
        note=f"{many(more, 'more row')}: to_pandas() has all" if more > 0 else "",
        simulated=SIMULATED if result.simulated else "",
    )


@notebook_html.register
def _(document: Document) -> str:
    return notebook_html(Judged(document))


@notebook_html.register
def _(judged: Judged) -> str:
    from markupsafe import Markup

    document, parts = judged.document, list(page_parts(judged))
    return notebook(
        headline=headline(judged),
        notes=list(notes(judged)),
        columns=("path", "slowest", "share"),
        rows=[
            (f"{SIGNS[figure.verdict].mark} {figure.title}", [leading(figure), extent(figure)])
            for figure in judged.overview.figures
        ],
        groups=path_groups(None, judged, covered(parts)),
        parts=Markup("").join(part.markup("", 4) for part in parts if part.in_notebooks),
        simulated=SIMULATED if document.simulated else "",
    )


@notebook_html.register
def _(section: Section) -> str:
    judgements = Judged(section.document).judgements if section.document else {}
    blocks = [
        block for family in families(None, enumerate(section.results), judgements) for block in family.blocks
    ]
    cells = [
        (cell, table.unit) for result in section.results for table in result.tables for cell in table.cells
    ]
    rows = _statistics(*cells[0]) if len(cells) == 1 else []
    blocks = [] if rows else blocks
    return notebook(title=section.title, columns=("", "value"), rows=rows, blocks=blocks, note=section.note)


def _statistics(cell: Cell, unit: Unit) -> list[tuple[str, list[str]]]:
    """The rows of the statistics of a value."""
    known = cell.statistics
    if known is None:
        return []
    values = (("median", known.median), ("lowest", known.min), ("highest", known.max), ("limit", cell.limit))
    return [(name, [_text("value", {"value": value, "unit": unit})]) for name, value in values if value]


def notebook(**variables: Any) -> str:
    """The variables of ``notebook.html`` as markup."""
    return rendered("notebook.html", source("notebook.css"), **variables)


def _text(name: str, row: Record) -> str:
    """A field of a record as text, with its unit; a verdict has its sign."""
    value = row.get(name)
    if value is None:
        return ""
    if name in _FRACTIONS:
        return format(value, _FRACTIONS[name])
    if name in TIMES:
        return format_time(value)
    if name in NUMBERS:
        return quantity(value, Unit(row.get("unit", Unit.RATE)))
    return marked(str(value))
