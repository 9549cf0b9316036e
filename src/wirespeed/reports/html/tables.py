"""Tables of measured values in pages: heat maps, curves, and tables of one row as the rows of one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from ...document import TestcaseResult
from ...judging.verdict import Judgement, Verdict, worst
from ...results.cells import key_of
from ...tables import Cell, Table
from ...terminal import one_line
from ...units import fitting
from ..grid import Grid, digest
from ..looks import shown
from ..values import GLANCE, mark, number
from .charts import ColorScale, Judgements, curve_chart, markup
from .embedded import packed
from .templates import made

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


#: CSS classes, links, title and text of a cell as markup.
_Shown = tuple[str, str, str, str]


def matrix(part: Part) -> Markup:
    """A table as a heat map; a large one is packed in a page, and elsewhere only described.

    Args:
        part: The table.
    """
    table = part.table
    if len(table.cells) <= _LARGE:
        return _heat(part, part.colors)
    data = packed(_heat(part, part.colors).encode()) if part.at else ""
    return made(
        "tables.html", "large", digest(table), len(table.rows.labels), len(table.columns.labels), data
    )


def curve(part: Part) -> Markup:
    """A chart with its values below, folded."""
    chart = curve_chart(part.table)
    assert chart is not None
    return made(
        "tables.html", "curve", markup(chart), _heat(part, ColorScale(part.table.unit, colored=False))
    )


def _heat(part: Part, colors: ColorScale) -> Markup:
    """The cells of one table, with colours if there is something expected."""
    grid = Grid.of(part.table, GLANCE)
    judged = {(cell.row, cell.column): judgement for cell, judgement in part.judged}
    lines = [
        {
            "at": part.at, "fixed": "j" if part.table.is_curve else "i", "index": i, "name": name,
            "cells": [
                _cell(entry.cell, judged[entry.cell.row, entry.cell.column], str(entry), colors)
                if entry.cell else ("", "", "", entry.text)
                for entry in entries
            ],
        }
        for i, (name, entries) in enumerate(zip(grid.rows.labels, grid.entries, strict=True))
    ]  # fmt: skip
    about = f"{grid.unit}; rows: {grid.rows.name}, columns: {grid.columns.name}"
    caption = one_line("; ".join(filter(None, (about, _expectation(part, grid.scale)))))
    labels = (grid.unit, *grid.columns.labels)
    return made("tables.html", "heat", part.at, caption, "", grid.unit, grid.scale, labels, lines)


def rows(title: str, parts: Sequence[Part]) -> Markup:
    """Tables of one row or one column each as the rows of one table, the worst first.

    Args:
        title: Title of the table.
        parts: Tables with equal labels and unit.

    Returns:
        A table with a row for each testcase.
    """
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
        cells = [cell_of.get(i, ("", "", "", "-")) for i in range(len(labels))]
        cells += [("x", "", "", expectation.removeprefix("expected "))] if any(ranges) else []
        name, is_known = part.result.name, part.at or part.verdict is not Verdict.NOT_JUDGED
        lines.append(
            {"at": part.at, "fixed": "i" if across else "j", "index": 0, "case": one_line(name), "name": name,
             "sign": shown(part.verdict) if is_known else None, "cells": cells}
        )  # fmt: skip
    head = (unit, *labels, "expected") if any(ranges) else (unit, *labels)
    return made(
        "tables.html", "heat", parts[0].at, "", one_line(f"{title}, {unit}"), unit, scale, head, lines
    )


def _vector(table: Table) -> tuple[str, ...]:
    """The labels along a table of one row or one column."""
    return tuple(table.columns.labels if len(table.rows.labels) == 1 else table.rows.labels)


def vector_key(part: Part) -> tuple[object, ...] | None:
    """What tables that share one table in the page have in common; None for matrices and curves."""
    table = part.table
    if len(table.columns.labels) == 1 or (len(table.rows.labels) == 1 and not table.is_curve):
        return table.unit, table.key, _vector(table)
    return None


def _expectation(part: Part, scale: float) -> str:
    """The expected range of a table: the lowest and the highest typical value."""
    known = {(judgement.least, judgement.normal) for _, judgement in part.judged if judgement}
    ends = [bound for bounds in known if all(bounds) for bound in bounds if bound]
    return (
        f"expected {number(min(ends), scale, GLANCE)} to {number(max(ends), scale, GLANCE)}" if ends else ""
    )


def _text(cell: Cell, scale: float) -> str:
    return "n/a" if cell.value is None else mark(cell) + number(cell.value, scale, GLANCE)


def _cell(cell: Cell, judgement: Judgement | None, text: str, colors: ColorScale) -> _Shown:
    """A cell as markup: colour of its value, mark, links, and its verdict or remark as title."""
    if cell.value is None:
        css = "w4 bad" if judgement and judgement.verdict.is_bad else "none"
        return css, "", one_line(cell.reason), text
    classes, title = [colors.css(cell.value, judgement)], cell.reason
    if judgement is not None and judgement.verdict in _MARKED:
        classes.append("odd" if judgement.is_above else _MARKED[judgement.verdict])
        title = f"{judgement.verdict}: {judgement.explanation}"
    if cell.is_wrong and (judgement is None or not judgement.verdict.is_bad):
        classes.append("bad")
    links = " ".join(str(link) for link, load, _ in cell.links if load >= _LOADED)
    return " ".join(filter(None, classes)), links, one_line(title), text
