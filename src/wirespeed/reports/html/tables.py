"""Tables of cells: heat maps with values, and the values of curves."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from ...document import Table, TestcaseResult
from ...judging.verdicts import Judgement, Verdict
from ...results.cells import Key, key_of
from ...terminal import one_line, visible
from .._grid import Grid, GridCell, digest
from .._plots import Scale, scale_of, short
from .charts import curve_chart
from .embedded_data import packed
from .svg import markup

if TYPE_CHECKING:
    from markupsafe import Markup

_STEPS = 10
#: Tables with more cells are embedded packed, and unpacked when you open them.
_LARGE = 400
_SIGNS = {Verdict.WARN: "low", Verdict.FAIL: "bad", Verdict.IMPLAUSIBLE: "odd"}
Judgements = Mapping[Key, Judgement]


def spelled(
    heading: str, columns: Sequence[str], rows: Iterable[tuple[str, Iterable[str]]], attributes: str = ""
) -> str:
    """Return a table as markup.

    Parameters
    ----------
    heading : str
        Heading of the labels of the rows.
    columns : Sequence[str]
        Headings of the other columns.
    rows : Iterable of (str, Iterable[str])
        For each row its label, and its cells as markup.
    attributes : str
        Markup of the attributes of the table, and of what stands in it above the headings.

    Returns
    -------
    str
        The markup; labels are escaped.
    """
    head = "".join(f'<th scope="col">{_label(label)}</th>' for label in (heading, *columns))
    body = "".join(f'<tr><th scope="row">{_label(name)}</th>{"".join(cells)}</tr>' for name, cells in rows)
    return f"<table{attributes}><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"


def notebook_table(
    caption: str, heading: str, columns: Sequence[str], rows: Iterable[Sequence[str]], note: str
) -> str:
    """Return a table of texts for a notebook, with a caption above and a note below it.

    Parameters
    ----------
    caption, note : str
        Texts above and below the table.
    heading : str
        Heading of the first column, which holds the labels of the rows.
    columns : Sequence[str]
        Headings of the other columns.
    rows : Iterable of Sequence[str]
        For each row its label and its other texts.

    Returns
    -------
    str
        The markup; all texts are escaped.
    """
    from markupsafe import escape

    right = '<td style="text-align:right">'
    above = '><caption style="caption-side:top;text-align:left;font-weight:bold;white-space:nowrap">'
    inside = ((label, [f"{right}{escape(text)}</td>" for text in texts]) for label, *texts in rows)
    table = spelled(heading, columns, inside, f"{above}{escape(caption)}</caption")
    return f"{table}<small>{escape(note)}</small>"


def table_markup(result: TestcaseResult, table: Table, at: str, judgements: Judgements) -> Markup:
    """Return a table as a heat map, or as a chart with its values below.

    Parameters
    ----------
    result : TestcaseResult
        The testcase of the table.
    table : Table
        The measured values.
    at : str
        Index of run, testcase and table in the page, as its script reads it.
    judgements : Mapping[Key, Judgement]
        The verdicts on the cells.

    Returns
    -------
    Markup
        The table, under its title if the testcase has several.
    """
    from markupsafe import Markup, escape

    known = table.values()
    title = escape(visible(table.title))
    heading = Markup("<h4>{}</h4>").format(title) if len(result.tables) > 1 else Markup()
    if not known:
        reasons = dict.fromkeys(one_line(cell.reason) for cell in table.cells)
        return heading + Markup("<p>{}</p>").format("; ".join(reasons) or digest(table))
    body = _heat(result, table, at, judgements, scale_of(known))
    if table.is_curve:
        chart = curve_chart(table)
        assert chart is not None
        return heading + Markup("<figure>{}</figure><details><summary>Values</summary>{}</details>").format(
            markup(chart), body
        )
    if len(table.cells) <= _LARGE:
        return heading + body
    return heading + Markup(
        '<p>{}</p><details class="packed needs-js"><summary>Show the {} x {} table</summary>'
        '<script type="application/octet-stream">{}</script></details>'
    ).format(digest(table), len(table.rows.labels), len(table.columns.labels), packed(body.encode()))


def _heat(result: TestcaseResult, table: Table, at: str, judgements: Judgements, scale: Scale) -> Markup:
    """Return the cells as a table with colours."""
    from markupsafe import Markup, escape

    grid = Grid.of(table, short)
    rows, columns, unit = grid.rows, grid.columns, grid.unit

    def cell(entry: GridCell) -> str:
        judgement = judgements.get(key_of(result, table, entry.cell)) if entry.cell else None
        return _cell(entry, judgement, scale)

    body = ((label, map(cell, entries)) for label, entries in zip(rows.labels, grid.entries, strict=True))
    turned = ' data-turned="1"' if grid.turned else ""
    caption = f"{one_line(table.title)}, {unit}; rows: {rows.name}, columns: {columns.name}"
    name = f"table-{at.replace('.', '-')}"
    attributes = (
        f' class="heat" aria-labelledby="{name}" data-at="{at}"{turned}'
        f' data-unit="{unit}" data-divisor="{grid.scale:g}"'
    )
    text = (
        f'<p class="caption" id="{name}">{escape(visible(caption))}</p>'
        f'<div class="scroll">{spelled(unit, columns.labels, body, attributes)}</div>'
        f"{_scale(scale, grid.scale, unit)}"
        '<div class="detail" role="region" aria-live="polite" aria-label="Samples of the chosen cell" hidden>'
        "</div>"
    )
    return Markup(text)


def _label(label: str) -> str:
    """Return a label as markup; the title of a long one shows all of it."""
    from markupsafe import escape

    shown = one_line(label)
    title = f' title="{escape(shown)}"' if len(shown) > 24 else ""
    return f"<span{title}>{escape(shown)}</span>" if title else str(escape(shown))


def _cell(entry: GridCell, judgement: Judgement | None, scale: Scale) -> str:
    """Return a cell as markup: colour of its value, mark, and its verdict or remark as title."""
    from markupsafe import escape

    cell = entry.cell
    if cell is None:
        return f"<td>{entry.text}</td>"
    if cell.value is None:
        return f'<td class="none" title="{escape(one_line(cell.reason))}">{entry.text}</td>'
    css, title = f"h{scale.step(cell.value, _STEPS)}", cell.reason
    if judgement is not None and judgement.verdict in _SIGNS:
        css = f'"{css} {_SIGNS[judgement.verdict]}"'
        title = f"{judgement.verdict}: {judgement.explanation}"
    about = f' title="{escape(one_line(title))}"' if title else ""
    return f"<td class={css}{about}>{entry}</td>"


def _scale(scale: Scale, divisor: float, unit: str) -> str:
    """Return the scale of the colours as markup."""
    low, high = short(scale.low / divisor), short(scale.high / divisor)
    swatches = "".join(f'<span class="h{i}"></span>' for i in range(_STEPS))
    return (
        f'<div class="scale" role="img" aria-label="Colours from {low} to {high} {unit}">'
        f"{low} {swatches} {high} {unit}</div>"
    )
