"""The overview of a run for terminals: verdict, sentence, and a bar for each key figure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import groupby

from rich.cells import cell_len
from rich.console import RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from ..document import Document
from ..judging.inventory import Missing
from ..judging.judgement import Judgement
from ..judging.omissions import omitted
from ..judging.overview import KeyFigure, Overview, missing, overview, share
from ..judging.verdicts import Check, Verdict
from ..units import fitting, format_time
from . import Style
from ._console import printed
from ._doctor import details, named, rows
from ._signs import SIGNS, verification

#: Smallest and usual number of characters of a bar, which is as long as the limit.
_SHORTEST, _BAR = 8, 24


def render(document: Document, check: Check, style: Style) -> str:
    """Render verdict, cause and key figures, as at the end of a run of everything."""
    found = overview(document, check)
    ending = [("left out", omitted(document)), ("note", missing(document, check))]
    parts = [figures(found, style.width), *notes(ending)] if found.figures else []
    return printed(style, "", *headline(document, check, found), "", *parts)


def headline(document: Document, check: Check, found: Overview) -> Iterator[RenderableType]:
    """Yield the verdict with a sentence, how much it concerns, and evidence and remedy, or what to do."""
    indent = len(found.word) + 2
    line = Table.grid(padding=(0, 2, 0, 0))
    line.add_row(Text(found.word, style=SIGNS[found.verdict].style), Text(found.sentence, style="bold"))
    yield line
    seconds = "" if document.simulated or document.imported else format_time(document.seconds)
    parts = filter(None, (found.extent, verification(document), seconds))
    yield Padding(Text(" · ".join(parts), style="dim"), (0, 0, 0, indent))
    if found.finding is not None and found.by_finding:
        yield details(found.finding, briefly=True)
        return
    if steps := [
        (name, text)
        for name, text in (("what to do", found.advice.do), ("run", found.advice.command))
        if text
    ]:
        yield Padding(rows(steps), (0, 0, 0, 2))
    if found.finding is not None:
        yield named(found.finding, found.diagnosis.slow)
        yield details(found.finding, briefly=True)


def notes(lines: Iterable[tuple[str, str]], style: str = "cyan") -> Iterator[RenderableType]:
    """Yield a line for each text, after its kind; longer texts are indented."""
    for kind, text in lines:
        if text:
            line = Table.grid(padding=(0, 1, 0, 0))
            line.add_row(Text(f"{kind}:", style=style), Text(text))
            yield line


#: Verdict on what is missing -> kind and style of its line.
_ABSENT = {
    Verdict.FAIL: ("missing", "red"), Verdict.WARN: ("warning", "bold yellow"),
    Verdict.WAIVED: ("note", "cyan"),
}  # fmt: skip


def absent(lacking: Iterable[Missing], said: str = "") -> Iterator[RenderableType]:
    """Yield a line for everything that is missing, or left out on purpose, but for what was said."""
    for one in lacking:
        if str(one) not in said:
            kind, style = _ABSENT[one.verdict]
            yield from notes([(kind, str(one))], style)


def figures(found: Overview, width: int) -> RenderableType:
    """Return a line with a bar for each key figure; the lowest share has its own line if there is no room."""
    texts = [(one.title, rate(one.typical), f"{typical_share(one)}," if one.worst else typical_share(one))
             for one in found.figures]  # fmt: skip
    taken = sum(max(map(cell_len, column)) for column in zip(*texts, strict=True)) + 9  # mark and gaps
    bar = max(_SHORTEST, min(_BAR, width - taken))
    table = Table.grid(padding=(0, 2, 0, 0))
    for i in range(5):
        table.add_column(justify="right" if i == 2 else "left", no_wrap=i < 4)
    for figure in found.figures:
        sign = SIGNS[figure.verdict]
        table.add_row(
            Text(sign.mark, style=sign.style), Text(figure.title), Text(rate(figure.typical), style="bold"),
            _bar(figure, bar), Text(extent(figure)),
        )  # fmt: skip
    return table


def rate(judgement: Judgement) -> str:
    """Return the value with its unit."""
    scale, unit = fitting(judgement.unit, [judgement.value or 0.0])
    return f"{short(judgement.value or 0.0, scale)} {unit}"


def short(value: float, scale: float) -> str:
    """Format a rate with two to four digits."""
    found = value / scale
    return f"{found:.0f}" if found >= 100 else f"{found:.1f}" if found >= 1 else f"{found:.2g}"


def extent(figure: KeyFigure) -> str:
    """Return the share of what is expected, and that of the worst value if it is bad."""
    return ", ".join(filter(None, (typical_share(figure), worst_share(figure))))


def typical_share(figure: KeyFigure) -> str:
    """Return the share of the typical value, with what it is a share of."""
    one, found = figure.typical, share(figure.typical)
    scale, unit = fitting(one.unit, [one.value or 0.0])
    if found is None:
        return f"expected ≥ {short(one.least, scale)} {unit}" if one.least else "no limit known"
    return f"{found} {short(found.whole, scale)} {unit}"


def worst_share(figure: KeyFigure) -> str:
    """Return the share of the worst value; empty without one, and if it says what the typical one does."""
    found = share(figure.worst) if figure.worst else None
    return f"{worst_word(figure)} {found}" if found and str(found) != str(share(figure.typical)) else ""


def worst_word(figure: KeyFigure) -> str:
    """Return whether the worst value is the lowest or, above a limit, the highest."""
    return "highest" if figure.worst and figure.worst.verdict is Verdict.IMPLAUSIBLE else "lowest"


def of_limit(figure: KeyFigure, one: Judgement) -> float:
    """Return a value of a figure as a fraction of its limit, which is the end of a bar."""
    return (one.value or 0.0) / (one.limit or figure.typical.limit or 1.0)


def _bar(figure: KeyFigure, length: int) -> Text:
    """Return a bar from nothing to the limit: the expected range, the value, and the worst value."""
    one, worst = figure.typical, figure.worst
    bar = [("─", "dim")] * length
    if not one.limit:
        return Text()

    def at(fraction: float) -> int:
        return min(length - 1, max(0, round(fraction * (length - 1))))

    if one.least and one.normal:
        for i in range(at(one.least / one.limit), at(one.normal / one.limit) + 1):
            bar[i] = ("━", "green")
    bar[at(of_limit(figure, one))] = ("●", "bold")
    if worst:
        bar[at(of_limit(figure, worst))] = ("✖", "bold red")
    text = Text()
    for color, run in groupby(bar, key=lambda one: one[1]):
        text.append("".join(character for character, _ in run), style=color)
    return text
