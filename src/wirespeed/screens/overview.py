"""Parts of screens about a run: verdict, sentence, causes, and a bar for each key figure."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Iterator
from itertools import groupby

from rich.cells import cell_len
from rich.console import RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from ..document import Document
from ..judging.inventory import Missing
from ..judging.overview import KeyFigure, Overview
from ..judging.verdict import Verdict
from ..reports.findings import SIGNS, FindingView, extent, of_limit, rate, typical_share, verification
from ..terminal import one_line
from ..units import format_time
from .doctor import details, named, rows

#: Smallest and usual number of characters of a bar, which is as long as the limit.
_SHORTEST, _BAR = 8, 24
#: Maximum number of further causes that are shown with their remedies.
ALSO = 3


def headline(document: Document, summary: Overview, file: str = "") -> Iterator[RenderableType]:
    """The verdict with a sentence, how much it concerns, and evidence and remedy, or what to do.

    Args:
        document: The run.
        summary: Its overview.
        file: Its file; empty if it was not saved.
    """
    indent = len(summary.word) + 2
    line = Table.grid(padding=(0, 2, 0, 0))
    line.add_row(Text(summary.word, style=SIGNS[summary.verdict].style), Text(summary.sentence, style="bold"))
    yield line
    seconds = "" if document.simulated or document.imported else format_time(document.seconds)
    parts = filter(None, (summary.extent, verification(document), seconds))
    yield Padding(Text(" · ".join(parts), style="dim"), (0, 0, 0, indent))
    view = FindingView(summary.finding, summary.diagnosis.slow) if summary.finding else None
    advice = (("what to do", summary.advice.do), ("run", summary.advice.command))
    steps = [] if summary.by_finding else [(name, text) for name, text in advice if text]
    if steps:
        yield Padding(rows(steps), (0, 0, 0, 2))
    if summary.also:
        yield from _causes(summary, file)
    elif view:
        yield from () if summary.by_finding else (named(view),)
        yield details(view, briefly=True)


def _causes(summary: Overview, file: str) -> Iterator[RenderableType]:
    """Several causes of slow values, each with its place and its remedy, and where their evidence is."""
    for finding in filter(None, (summary.finding, *summary.also[:ALSO])):
        view = FindingView(finding, summary.diagnosis.slow)
        yield named(view)
        yield Padding(rows([("remedy", view.advice)]), (0, 0, 0, 2))
    yield Text(f"evidence and how to confirm each cause: {doctor_of(file)}", style="dim")


def doctor_of(file: str) -> str:
    """The command that examines a run, which is measured again if it was not saved."""
    return f"wirespeed doctor {shlex.quote(one_line(file))}" if file not in ("", "-") else "wirespeed doctor"


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
