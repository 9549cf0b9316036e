"""How pages are made: their templates, embedded data and tables of cells. Data is embedded as gzip in base64,
so that none can be interpreted as markup.
"""

from __future__ import annotations

import base64
import gzip
import hashlib
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from ...document import Document, TestcaseResult
from ...judging.verdict import Judgement, Verdict, worst
from ...results.cells import key_of
from ...results.store import encode
from ...tables import Cell, Table
from ...terminal import one_line, visible
from ...units import GB, fitting, format_size, many
from ...version import __version__
from ..comparisons import difference, moved, values_of
from ..console import Grid, digest
from ..findings import GLANCE, VERDICTS, applicable, css_of, gate_text, mark, marked, number, shown
from .charts import ColorScale, Judgements, curve_chart, markup

if TYPE_CHECKING:
    from jinja2 import Environment
    from markupsafe import Markup

#: Maximum size of the embedded Documents in a page, in bytes of base64.
ROOM = 6_000_000
#: Significant digits of values in shortened Documents: a hundred times finer than measurement noise.
_DIGITS = 5
_ROUND = f"%.{_DIGITS}g"
#: Minimum size of a packed sample in bytes (most of its bits are noise), and of a cell's other fields.
_SAMPLE, _CELL = 7 * 4 / 3, 60


def packed(data: bytes) -> Markup:
    """Data as gzip in base64; without a timestamp, so that pages are reproducible."""
    from markupsafe import Markup

    return Markup(base64.b64encode(gzip.compress(data, 6, mtime=0)).decode())


def packed_document(document: Document, room: int = ROOM) -> tuple[Markup, str]:
    """Pack a Document into at most ``room`` bytes; return it with a note on what was left out.

    Args:
        document: The run.
        room: Maximum size of the packed text, in bytes.

    Returns:
        The packed Document as JSON, and the note; empty if it is complete.
    """
    text, left_out = packed(b""), ""
    for data, note in _forms(document, room):
        text, left_out = packed(data), note
        if len(text) <= room:
            break
    return text, left_out


def _forms(document: Document, room: int) -> Iterator[tuple[bytes, str]]:
    """Yield the Document, then shorter forms of it, each with a note on what was left out."""
    cells = [cell for result in document.testcases for table in result.tables for cell in table.cells]
    samples = sum(len(cell.samples) for cell in cells)
    if samples * _SAMPLE + len(cells) * _CELL <= room:
        yield encode(document), ""
    shorter = msgspec.to_builtins(document)
    _shorten(shorter, keep_samples=True)
    note = f"The run in this page has values of {_DIGITS} digits"
    yield msgspec.json.encode(shorter), f"{note}, to keep the page small."
    _shorten(shorter, keep_samples=False)
    yield msgspec.json.encode(shorter), f"{note} and no samples, to keep the page small."


def _shorten(document: Any, *, keep_samples: bool) -> None:
    """Round the values of all cells of a Document as plain data, or remove its samples."""
    for result in document["testcases"]:
        for table in result.get("tables", ()):
            for cell in table.get("cells", ()):
                if not keep_samples:
                    for key in ("samples", "rounds"):
                        cell.pop(key, None)
                    continue
                cell.update((key, _rounded(value)) for key, value in cell.items())


def _rounded(value: Any) -> Any:
    """Data with its numbers rounded."""
    if type(value) is float:
        return float(_ROUND % value)
    if type(value) is dict:
        return {key: _rounded(entry) for key, entry in value.items()}
    return [_rounded(entry) for entry in value] if type(value) in (list, tuple) else value


def rendered(template: str, style: str, script: str = "", **variables: Any) -> str:
    """Render a template with the version of wirespeed.

    Args:
        template: Its file, as `source` reads it; a page extends ``base.html``.
        style, script: CSS and JavaScript, the only ones that the page permits.
        **variables: The variables of the template.
    """
    from markupsafe import Markup

    text: str = _environment().get_template(template).render(
        style=Markup(style), script=Markup(script), policy=_policy(style, script), version=__version__,
        **variables,
    )  # fmt: skip
    return text


def fragment(
    template: str, macro: str, variables: dict[str, Any], content: Any, id: str = "", level: int = 0
) -> Markup:
    """What a macro of a template of a feature makes of its content.

    Args:
        template: Its file, as `source` reads it.
        macro: The macro, whose parameters are content, ID and level of the heading, or only the content.
        variables: The variables of the template.
        content: What is shown.
        id: ID of the section; empty without a page.
        level: Level of its heading; 0 for a macro without it.
    """
    functions = _environment().get_template(template, globals=variables).module
    arguments = (content, id, level) if level else (content,)
    made: Markup = getattr(functions, macro)(*arguments)
    return made


def source(name: str) -> str:
    """Text of a file of this folder, or of a package as ``"package:file"``."""
    package, _, file = name.rpartition(":")
    return (files(package or __package__) / file).read_text("utf-8")


def capital(text: str) -> str:
    """A sentence with a capital letter, unless it begins with a name such as ``gpu1``."""
    return text[:1].upper() + text[1:] if text.partition(" ")[0].isalpha() else text


@lru_cache(maxsize=1)
def _environment() -> Environment:
    import jinja2
    from markupsafe import Markup, escape

    def harmless(value: Any) -> Any:
        return visible(value) if type(value) is str else value

    def broken(text: str) -> Markup:
        """Let a name break after its underscores."""
        return Markup(str(escape(visible(text))).replace("_", "_<wbr>"))

    def whole(text: str) -> Markup:
        """Keep names and options with hyphens on one line where they fit."""
        return Markup(
            re.sub(r"\S*\w-\S+|--\S+", r'<span class="whole">\g<0></span>', str(escape(visible(text))))
        )

    environment = jinja2.Environment(
        loader=jinja2.FunctionLoader(source), autoescape=True, finalize=harmless, trim_blocks=True,
        lstrip_blocks=True,
    )  # fmt: skip
    environment.globals |= {
        "many": many, "broken": broken, "whole": whole, "packed": lambda text: packed(str(text).encode()),
        "shown": shown, "VERDICTS": VERDICTS, "css_of": css_of, "marked": marked, "moved": moved,
        "difference": difference, "values_of": values_of, "number": number, "GB": GB,
        "applicable": applicable, "gate_text": gate_text, "capital": capital,
        "format_size": format_size, "one_line": one_line,
    }  # fmt: skip
    return environment


def _policy(style: str, script: str) -> str:
    """The Content-Security-Policy: only the page's own style and script, no other sources."""

    def digest(text: str) -> str:
        return "'sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode() + "'"

    return (
        f"default-src 'none'; script-src {digest(script)}; style-src {digest(style)}; "
        "base-uri 'none'; form-action 'none'"
    )


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


def _markup(macro: str, *arguments: Any) -> Markup:
    """What a macro of ``tables.html`` makes of its arguments."""
    made: Markup = getattr(_environment().get_template("tables.html").module, macro)(*arguments)
    return made


def matrix(part: Part) -> Markup:
    """A table as a heat map; a large one is packed in a page, and elsewhere only described.

    Args:
        part: The table.
    """
    table = part.table
    if len(table.cells) <= _LARGE:
        return _heat(part, part.colors)
    data = packed(_heat(part, part.colors).encode()) if part.at else ""
    return _markup("large", digest(table), len(table.rows.labels), len(table.columns.labels), data)


def curve(part: Part) -> Markup:
    """A chart with its values below, folded."""
    chart = curve_chart(part.table)
    assert chart is not None
    return _markup("curve", markup(chart), _heat(part, ColorScale(part.table.unit, colored=False)))


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
    return _markup("heat", part.at, caption, "", grid.unit, grid.scale, labels, lines)


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
        name, is_known = part.result.name, part.at or part.verdict is not Verdict.UNKNOWN
        lines.append(
            {"at": part.at, "fixed": "i" if across else "j", "index": 0, "case": one_line(name), "name": name,
             "sign": shown(part.verdict) if is_known else None, "cells": cells}
        )  # fmt: skip
    head = (unit, *labels, "expected") if any(ranges) else (unit, *labels)
    return _markup("heat", parts[0].at, "", one_line(f"{title}, {unit}"), unit, scale, head, lines)


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


def unique_names(files: Sequence[str]) -> list[str]:
    """The names of the files, with their folders if the names are not unique."""
    names = [Path(file).name for file in files]
    return names if len(set(names)) == len(names) else list(files)
