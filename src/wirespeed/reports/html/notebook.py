"""Results in notebooks: the page's tables, without its script, and readable in light and dark themes."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import singledispatch
from typing import TYPE_CHECKING, Any

from ...document import Document
from ...judging.judged import Judged
from ...judging.overview import KeyFigure
from ...measurement import Unit
from ...tables import Cell
from ...tabular import Tabular
from ...terminal import one_line
from ...units import fitting, format_time, many
from ..findings import GLANCE, SIGNS, extent, marked, number, rate
from ..records import NUMBERS, WHOLES, Record, Section, records
from ..style import SIMULATED
from .headline import headline, notes
from .measurements import families, grouped
from .tables import spelled
from .templates import rendered, source

if TYPE_CHECKING:
    from markupsafe import Markup

#: Maximum number of rows of a table of records.
_MOST_ROWS = 40
_LIST = ' class="list"'
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
    recorded = records(result)
    shown = recorded.rows[: _MOST_ROWS if recorded.relevant is None else min(recorded.relevant, _MOST_ROWS)]
    first, *others = [
        name for name in recorded.shown if any(row.get(name) not in (None, "") for row in shown)
    ] or [""]
    rows = [(_text(first, row), [_cell(name, row) for name in others]) for row in shown]
    more = len(recorded.rows) - len(shown)
    return _rendered(
        title=repr(result)[1:-1],
        table=_table(first, others, rows) if rows else "",
        note=f"{many(more, 'more row')}: to_pandas() has all" if more > 0 else "",
        simulated=SIMULATED if result.simulated else "",
    )


@notebook_html.register
def _(document: Document) -> str:
    judged = Judged(document)
    check, summary = judged.check, judged.overview
    return _rendered(
        headline=headline(document, check, summary),
        notes=notes(document, check, summary),
        table=_key_figures(summary.figures),
        groups=grouped(None, document, check, judged.judgements, summary.figures),
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
    table = _statistics(*cells[0]) if len(cells) == 1 else ""
    return _rendered(title=section.title, table=table, blocks=[] if table else blocks, note=section.note)


def _statistics(cell: Cell, unit: Unit) -> Markup | str:
    """The statistics of a value as a table; empty without any."""
    from markupsafe import Markup

    known = cell.statistics
    if known is None:
        return ""
    values = (("median", known.median), ("lowest", known.min), ("highest", known.max), ("limit", cell.limit))
    texts = ((name, _text("value", {"value": value, "unit": unit})) for name, value in values if value)
    return _table("", ["value"], [(name, [Markup("<td>{}</td>").format(text)]) for name, text in texts])


def _rendered(**variables: Any) -> str:
    return rendered("notebook.html", source("notebook.css"), **variables)


def _key_figures(figures: tuple[KeyFigure, ...]) -> Markup | str:
    """The key figures of a run as a table; empty without any."""
    from markupsafe import Markup

    cell = Markup("<td>{}</td>").format
    rows = [
        (f"{SIGNS[figure.verdict].mark} {figure.title}", [cell(rate(figure.typical)), cell(extent(figure))])
        for figure in figures
    ]
    return _table("path", ["typical", "share"], rows) if rows else ""


def _table(heading: str, columns: Sequence[str], rows: Iterable[tuple[str, Iterable[str]]]) -> Markup:
    """Rows as a table that scrolls if it is wide."""
    from markupsafe import Markup

    return Markup(f'<div class="scroll">{spelled(heading, columns, rows, _LIST)}</div>')


def _cell(name: str, row: Record) -> str:
    """The ``<td>`` of a field of a record; numbers are aligned."""
    from markupsafe import escape

    css = ' class="number"' if name in NUMBERS or name in WHOLES else ""
    return f"<td{css}>{escape(one_line(_text(name, row)))}</td>"


def _text(name: str, row: Record) -> str:
    """A field of a record as text, with its unit; a verdict has its sign."""
    value = row.get(name)
    if value is None:
        return ""
    if name in _FRACTIONS:
        return format(value, _FRACTIONS[name])
    if name == "latency":
        return format_time(value)
    if name in NUMBERS:
        scale, unit = fitting(Unit(row.get("unit", Unit.RATE)), [value])
        return f"{number(value, scale, GLANCE)} {unit}"
    return marked(str(value))
