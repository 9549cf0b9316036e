"""Tables of cells: heat maps with values, and the values of curves."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from ...document import Cell, Table, TestcaseResult
from ...judging.verdicts import Judgement, Verdict
from ...results.cells import Key
from ...terminal import one_line, visible
from ...units import fitting, many
from .._console import number
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


def table_markup(result: TestcaseResult, table: Table, at: str, judgements: Judgements) -> Markup:
    """Return a table as a heat map, or as a chart with its values below.

    Parameters
    ----------
    at : str
        Index of run, testcase and table in the page, as its script reads it.
    """
    from markupsafe import Markup, escape

    known = [cell.value for cell in table.cells if cell.value is not None]
    title = escape(visible(table.title))
    heading = Markup("<h4>{}</h4>").format(title) if len(result.tables) > 1 else Markup()
    if not known:
        reasons = dict.fromkeys(one_line(cell.reason) for cell in table.cells)
        return heading + Markup("<p>{}</p>").format("; ".join(reasons) or "no cell was measured")
    body = _heat(result, table, at, judgements, scale_of(known))
    if table.is_curve:
        chart = curve_chart(table)
        assert chart is not None
        return heading + Markup("<figure>{}</figure><details><summary>Values</summary>{}</details>").format(
            markup(chart), body
        )
    if len(table.cells) <= _LARGE:
        return heading + body
    scale, unit = fitting(table.unit, known)
    ordered = sorted(known)
    about = (
        f"{many(len(known), 'value')}: lowest {number(ordered[0], scale)}, median "
        f"{number(ordered[len(ordered) // 2], scale)}, highest {number(ordered[-1], scale)} {unit}"
    )
    return heading + Markup(
        '<p>{}</p><details class="packed needs-js"><summary>Show the {} x {} table</summary>'
        '<script type="application/octet-stream">{}</script></details>'
    ).format(about, len(table.rows.labels), len(table.columns.labels), packed(body.encode()))


def _heat(result: TestcaseResult, table: Table, at: str, judgements: Judgements, scale: Scale) -> Markup:
    """Return the cells as a table; sizes of curves are rows, because there can be many."""
    from markupsafe import Markup, escape

    divisor, unit = fitting(table.unit, table.values())
    rows, columns, cells = table.rows, table.columns, table.grid()
    if table.is_curve:
        rows, columns = columns, rows
        cells = [list(row) for row in zip(*cells, strict=True)]
    head = "".join(f'<th scope="col">{_label(label)}</th>' for label in columns.labels)
    body = []
    for label, row in zip(rows.labels, cells, strict=True):
        inside = [_cell(result, table, cell, judgements, scale, divisor) for cell in row]
        body.append(f'<tr><th scope="row">{_label(label)}</th>{"".join(inside)}</tr>')
    turned = ' data-turned="1"' if table.is_curve else ""
    caption = f"{one_line(table.title)}, {unit}; rows: {rows.name}, columns: {columns.name}"
    name = f"table-{at.replace('.', '-')}"
    text = (
        f'<p class="caption" id="{name}">{escape(visible(caption))}</p>'
        f'<div class="scroll"><table class="heat" aria-labelledby="{name}" data-at="{at}"{turned}'
        f' data-unit="{unit}" data-divisor="{divisor:g}">'
        f'<thead><tr><th scope="col">{unit}</th>{head}</tr></thead><tbody>{"".join(body)}</tbody>'
        f"</table></div>{_scale(scale, divisor, unit)}"
        '<div class="detail" role="region" aria-live="polite" aria-label="Samples of the chosen cell" hidden>'
        "</div>"
    )
    return Markup(text)


def _label(label: str) -> str:
    from markupsafe import escape

    shown = one_line(label)
    title = f' title="{escape(shown)}"' if len(shown) > 24 else ""
    return f"<span{title}>{escape(shown)}</span>" if title else str(escape(shown))


def _cell(
    result: TestcaseResult, table: Table, cell: Cell | None, judgements: Judgements, scale: Scale,
    divisor: float,
) -> str:  # fmt: skip
    from markupsafe import escape

    if cell is None:
        return "<td>-</td>"
    if cell.value is None:
        return f'<td class="none" title="{escape(one_line(cell.reason))}">n/a</td>'
    key = Key(
        result.name, table.key, table.rows.labels[cell.row], table.columns.labels[cell.column], cell.bytes
    )
    judgement = judgements.get(key)
    css, title = f"h{scale.step(cell.value, _STEPS)}", ""
    if judgement is not None and judgement.verdict in _SIGNS:
        css += f" {_SIGNS[judgement.verdict]}"
        title = f' title="{escape(one_line(f"{judgement.verdict}: {judgement.explanation}"))}"'
    elif cell.reason:  # the cell has a value and a remark
        title = f' title="{escape(one_line(cell.reason))}"'
    quoted = f'"{css}"' if " " in css else css
    return f"<td class={quoted}{title}>{'*' if cell.reason else ''}{short(cell.value / divisor)}</td>"


def _scale(scale: Scale, divisor: float, unit: str) -> str:
    low, high = short(scale.low / divisor), short(scale.high / divisor)
    swatches = "".join(f'<span class="h{i}"></span>' for i in range(_STEPS))
    return (
        f'<div class="scale" role="img" aria-label="Colours from {low} to {high} {unit}">'
        f"{low} {swatches} {high} {unit}</div>"
    )
