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
from ..judging.judged import Judged
from ..judging.omissions import omitted
from ..judging.overview import KeyFigure, Overview, missing
from ..judging.verdict import Verdict
from ..judging.verdicts import Check
from ..reports import Style
from ..reports.console import printed
from ..reports.findings import SIGNS, FindingView, extent, of_limit, rate, typical_share, verification
from ..units import format_time
from .doctor import details, named, rows

#: Smallest and usual number of characters of a bar, which is as long as the limit.
_SHORTEST, _BAR = 8, 24


def render(judged: Judged, style: Style) -> str:
    """Render verdict, cause and key figures, as at the end of a run of everything."""
    document, check, summary = judged.document, judged.check, judged.overview
    ending = [("settings", "; ".join(style.settings))]
    ending += [("left out", omitted(document)), ("note", missing(document, check))]
    parts = [figures(summary, style.width), *notes(ending)] if summary.figures else []
    return printed(style, "", *headline(document, check, summary), "", *parts)


def headline(document: Document, check: Check, summary: Overview) -> Iterator[RenderableType]:
    """The verdict with a sentence, how much it concerns, and evidence and remedy, or what to do."""
    indent = len(summary.word) + 2
    line = Table.grid(padding=(0, 2, 0, 0))
    line.add_row(Text(summary.word, style=SIGNS[summary.verdict].style), Text(summary.sentence, style="bold"))
    yield line
    seconds = "" if document.simulated or document.imported else format_time(document.seconds)
    parts = filter(None, (summary.extent, verification(document), seconds))
    yield Padding(Text(" · ".join(parts), style="dim"), (0, 0, 0, indent))
    view = FindingView(summary.finding, summary.diagnosis.slow) if summary.finding else None
    if view and summary.by_finding:
        yield details(view, briefly=True)
        return
    if steps := [
        (name, text)
        for name, text in (("what to do", summary.advice.do), ("run", summary.advice.command))
        if text
    ]:
        yield Padding(rows(steps), (0, 0, 0, 2))
    if view:
        yield named(view)
        yield details(view, briefly=True)


def notes(lines: Iterable[tuple[str, str]], style: str = "cyan") -> Iterator[RenderableType]:
    """A line for each text, after its kind; longer texts are indented."""
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


def absent(lacking: Iterable[Missing], sentence: str = "") -> Iterator[RenderableType]:
    """A line for everything that is missing, or left out on purpose, but for what ``sentence`` says."""
    for absence in lacking:
        if str(absence) not in sentence:
            kind, style = _ABSENT[absence.verdict]
            yield from notes([(kind, str(absence))], style)


def figures(summary: Overview, width: int) -> RenderableType:
    """A line with a bar for each key figure; the lowest share has its own line if there is no room."""
    texts = [(figure.title, rate(figure.typical), typical_share(figure) + "," * bool(figure.worst))
             for figure in summary.figures]  # fmt: skip
    taken = sum(max(map(cell_len, column)) for column in zip(*texts, strict=True)) + 9  # mark and gaps
    bar = max(_SHORTEST, min(_BAR, width - taken))
    table = Table.grid(padding=(0, 2, 0, 0))
    for i in range(5):
        table.add_column(justify="right" if i == 2 else "left", no_wrap=i < 4)
    for figure in summary.figures:
        sign = SIGNS[figure.verdict]
        table.add_row(
            Text(sign.mark, style=sign.style), Text(figure.title), Text(rate(figure.typical), style="bold"),
            _bar(figure, bar), Text(extent(figure)),
        )  # fmt: skip
    return table


def _bar(figure: KeyFigure, length: int) -> Text:
    """A bar from nothing to the limit: the expected range, the value, and the worst value."""
    typical, worst = figure.typical, figure.worst
    bar = [("─", "dim")] * length
    if not typical.limit:
        return Text()

    def at(fraction: float) -> int:
        return min(length - 1, max(0, round(fraction * (length - 1))))

    if typical.least and typical.normal:
        for i in range(at(typical.least / typical.limit), at(typical.normal / typical.limit) + 1):
            bar[i] = ("━", "green")
    bar[at(of_limit(figure, typical))] = ("●", "bold")
    if worst:
        bar[at(of_limit(figure, worst))] = ("✖", "bold red")
    text = Text()
    for color, run in groupby(bar, key=lambda pair: pair[1]):
        text.append("".join(character for character, _ in run), style=color)
    return text
