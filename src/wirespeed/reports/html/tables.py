"""Tables of cells: matrices, testcases as rows of one table, and the values of curves."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from ...document import TestcaseResult
from ...judging.verdict import Judgement, Verdict, worst
from ...results.cells import key_of
from ...tables import Cell, Table
from ...terminal import one_line, visible
from ...units import fitting
from ..findings import GLANCE, number, shown
from ..grid import Grid, digest, mark
from .charts import ColorScale, Judgements, curve_chart, markup
from .templates import packed

if TYPE_CHECKING:
    from markupsafe import Markup

#: Tables with more cells are embedded packed, and unpacked when you open them.
_LARGE = 400
#: Classes of the cells that a sign marks.
_MARKED = {Verdict.WARN: "low", Verdict.FAIL: "bad", Verdict.IMPLAUSIBLE: "odd", Verdict.BUSY: "busy"}
#: A cell uses a link that its transfers load by this fraction of the capacity.
_LOADED = 0.2


@dataclass(frozen=True)
class Part:
    """A table of a testcase, and where it is in the page.

    Attributes:
        at: Index of run, testcase and table in the page, as its script reads it; empty without a page.
        result: The testcase.
        table: The measured values.
        judged: Its cells with their verdicts.
    """

    at: str
    result: TestcaseResult
    table: Table
    judged: tuple[tuple[Cell, Judgement | None], ...]

    @classmethod
    def of(cls, at: str, result: TestcaseResult, table: Table, judgements: Judgements) -> Part:
        """A table with the verdicts on its cells, None where a cell has none."""
        judged = ((cell, judgements.get(key_of(result, table, cell))) for cell in table.cells)
        return cls(at, result, table, tuple(judged))

    @cached_property
    def verdict(self) -> Verdict:
        """The worst verdict of its cells; of those without a value, only failures count."""
        known = ((cell, judgement.verdict) for cell, judgement in self.judged if judgement)
        return worst(verdict for cell, verdict in known if cell.value is not None or verdict.is_bad)

    @property
    def colors(self) -> ColorScale:
        """What the colours of its values are relative to."""
        return ColorScale.of(self.table.unit, self.judged)


def _head(labels: Sequence[str]) -> str:
    cells = "".join(f'<th scope="col">{label(name)}</th>' for name in labels)
    return f"<thead><tr>{cells}</tr></thead>"


def matrix(part: Part) -> Markup:
    """A table as a heat map; a large one is packed in a page, and elsewhere only described.

    Args:
        part: The table.
    """
    from markupsafe import Markup

    table = part.table
    if len(table.cells) > _LARGE and not part.at:
        return Markup("<p>{}</p>").format(digest(table))
    body = _heat(part, part.colors)
    if len(table.cells) <= _LARGE:
        return body
    return Markup(
        '<p>{}</p><details class="packed needs-js"><summary>Show the {} x {} table</summary>'
        '<script type="application/octet-stream">{}</script></details>'
    ).format(digest(table), len(table.rows.labels), len(table.columns.labels), packed(body.encode()))


def curve(part: Part) -> Markup:
    """A chart with its values below, folded."""
    from markupsafe import Markup

    chart = curve_chart(part.table)
    assert chart is not None
    values = _heat(part, ColorScale(part.table.unit, colored=False))
    return Markup("<figure>{}</figure><details><summary>Values</summary>{}</details>").format(
        markup(chart), values
    )


def _heat(part: Part, colors: ColorScale) -> Markup:
    """The cells of one table, with colours if there is something expected."""
    from markupsafe import Markup

    grid = Grid.of(part.table, GLANCE)
    judged = {(cell.row, cell.column): judgement for cell, judgement in part.judged}
    fixed, lines = "j" if grid.turned else "i", []
    for i, (name, entries) in enumerate(zip(grid.rows.labels, grid.entries, strict=True)):
        cells = "".join(
            _cell(entry.cell, judged[entry.cell.row, entry.cell.column], str(entry), colors)
            if entry.cell
            else f"<td>{entry.text}</td>"
            for entry in entries
        )
        lines.append(f'<tr{_at(part, fixed, i)}><th scope="row">{label(name)}</th>{cells}</tr>')
    about = f"{grid.unit}; rows: {grid.rows.name}, columns: {grid.columns.name}"
    caption = "; ".join(filter(None, (about, _expectation(part, grid.scale))))
    return Markup(
        _framed(part.at, one_line(caption), "", grid.unit, grid.scale, grid.columns.labels, "".join(lines))
    )


def rows(title: str, parts: Sequence[Part]) -> Markup:
    """Tables of one row or one column each as the rows of one table, the worst first.

    Args:
        title: Title of the table.
        parts: Tables with equal labels and unit.

    Returns:
        A table with a row for each testcase.
    """
    from markupsafe import Markup

    scale, unit = fitting(parts[0].table.unit, [v for part in parts for v in part.table.values()])
    labels = _vector(parts[0].table)
    ranges = [_expectation(part, scale) for part in parts]
    lines = []
    for part, expectation in zip(parts, ranges, strict=True):
        colors, across = part.colors, len(part.table.rows.labels) == 1
        cell_of = {
            cell.column if across else cell.row: _cell(cell, judgement, _text(cell, scale), colors)
            for cell, judgement in part.judged
        }
        cells = "".join(cell_of.get(i, "<td>-</td>") for i in range(len(labels)))
        if any(ranges):
            cells += f'<td class="x">{expectation.removeprefix("expected ")}</td>'
        word = shown(part.verdict)
        sign = f'<span class="verdict {word.css}" title="{word.text}">{word.mark}</span> '
        if not part.at and part.verdict is Verdict.UNKNOWN:
            sign = ""
        name, fixed = part.result.name, "i" if across else "j"
        lines.append(
            f"<tr{_at(part, fixed, 0)}{_given('data-case', name)}>"
            f'<th scope="row">{sign}{label(name)}</th>{cells}</tr>'
        )
    head = (*labels, "expected") if any(ranges) else labels
    return Markup(_framed(parts[0].at, "", f"{title}, {unit}", unit, scale, head, "".join(lines)))


def _vector(table: Table) -> tuple[str, ...]:
    """The labels along a table of one row or one column."""
    return tuple(table.columns.labels if len(table.rows.labels) == 1 else table.rows.labels)


def vector_key(part: Part) -> tuple[object, ...] | None:
    """What tables that share one table in the page have in common; None for matrices and curves."""
    table = part.table
    if len(table.columns.labels) == 1 or (len(table.rows.labels) == 1 and not table.is_curve):
        return table.unit, table.key, _vector(table)
    return None


def _framed(
    at: str, caption: str, title: str, unit: str, scale: float, labels: Sequence[str], body: str
) -> str:
    """A table with its caption; in a page, also a title for screen readers and a place for samples."""
    from markupsafe import escape

    if not at:
        above = f"<caption>{escape(visible(caption))}</caption>" if caption else ""
        return f'<table class="heat">{above}{_head((unit, *labels))}<tbody>{body}</tbody></table>'
    name = f"table-{at.replace('.', '-')}"
    above = f'<p class="caption" id="{name}">{escape(visible(caption))}</p>' if caption else ""
    named = (
        f'class="heat" aria-labelledby="{name}"'
        if caption
        else f'class="heat cases"{_given("aria-label", title)}'
    )
    return (
        f'<div class="block">{above}<div class="scroll">'
        f'<table {named} data-unit="{unit}" data-divisor="{scale:g}">'
        f"{_head((unit, *labels))}<tbody>{body}</tbody></table></div>"
        '<div class="detail" role="region" aria-live="polite" aria-label="Samples of the chosen cell" hidden>'
        "</div></div>"
    )


def _at(part: Part, fixed: str, index: int) -> str:
    """The attributes by which the script of a page finds the cells of a row."""
    return f' data-at="{part.at}" data-{fixed}="{index}"' if part.at else ""


def _expectation(part: Part, scale: float) -> str:
    """The expected range of a table: the lowest and the highest typical value."""
    known = {(judgement.least, judgement.normal) for _, judgement in part.judged if judgement}
    ends = [bound for bounds in known if all(bounds) for bound in bounds if bound]
    return (
        f"expected {number(min(ends), scale, GLANCE)} to {number(max(ends), scale, GLANCE)}" if ends else ""
    )


def label(text: str) -> Markup:
    """A label as markup that breaks after underscores; the title of a long one shows all of it."""
    from markupsafe import Markup, escape

    shown = one_line(text)
    title = f' title="{escape(shown)}"' if len(shown) > 48 else ""
    broken = str(escape(shown)).replace("_", "_<wbr>")
    return Markup(f"<span{title}>{broken}</span>" if title else broken)


def _attribute(text: str) -> str:
    from markupsafe import escape

    return str(escape(one_line(text)))


def _text(cell: Cell, scale: float) -> str:
    return "n/a" if cell.value is None else mark(cell) + number(cell.value, scale, GLANCE)


def _cell(cell: Cell, judgement: Judgement | None, text: str, colors: ColorScale) -> str:
    """A cell as markup: colour of its value, mark, links, and its verdict or remark as title."""
    if cell.value is None:
        css = "w4 bad" if judgement and judgement.verdict.is_bad else "none"
        return f'<td class="{css}"{_given("title", cell.reason)}>{text}</td>'
    classes, title = [colors.css(cell.value, judgement)], cell.reason
    if judgement is not None and judgement.verdict in _MARKED:
        classes.append(_MARKED[judgement.verdict])
        title = f"{judgement.verdict}: {judgement.explanation}"
    if cell.is_wrong and (judgement is None or not judgement.verdict.is_bad):
        classes.append("bad")
    css = " ".join(filter(None, classes))
    links = " ".join(str(link) for link, load, _ in cell.links if load >= _LOADED)
    of_links = f' data-l="{links}"' if links else ""
    of_css = f' class="{css}"' if css else ""
    return f"<td{of_css}{of_links}{_given('title', title)}>{text}</td>"


def _given(name: str, value: str) -> str:
    """An attribute with a leading space; empty without a value."""
    return f' {name}="{_attribute(value)}"' if value else ""


def unique_names(files: Sequence[str]) -> list[str]:
    """The names of the files, with their folders if the names are not unique."""
    names = [Path(file).name for file in files]
    return names if len(set(names)) == len(names) else list(files)
