"""Text of ``wirespeed check``: the worst values, the key figures, and last the verdict with cause and remedy.
Other screens about a run share its parts; with ``--gates``, a section follows for each set of published
gates.
"""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby

from rich.cells import cell_len
from rich.console import RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from ..document import Document
from ..judging.check import Check
from ..judging.gates import GateComparison
from ..judging.inventory import Missing
from ..judging.judged import Judged
from ..judging.key_figures import KeyFigure
from ..judging.omissions import omitted
from ..judging.overview import Overview, remedy, unknown_memory, users
from ..judging.published import algorithms
from ..judging.unlike_rates import unlike
from ..judging.verdict import BELOW_RANGE, Judgement, Verdict, share
from ..reports import Style
from ..reports.additions import report_of
from ..reports.check_texts import applicable, culprit_text, gate_parts
from ..reports.console import further, hanging, heading, printed
from ..reports.explanations import explanations
from ..reports.figure_texts import extent, lead_share, leading, of_limit
from ..reports.looks import SIGNS
from ..reports.testcase_texts import verification
from ..reports.values import number
from ..statistics import grouped
from ..terminal import colored, columns, one_line
from ..units import fitting, format_time, many
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
    word = Text(summary.verdict.heading, style=SIGNS[summary.verdict].style)
    indent = len(word) + 2
    yield hanging(word, Text(summary.sentence, style="bold"))
    seconds = "" if document.simulated or document.imported else format_time(document.seconds)
    parts = filter(None, (summary.extent, verification(document), seconds))
    yield Padding(Text(" · ".join(parts), style="dim"), (0, 0, 0, indent))
    command = "confirm" if summary.verdict.is_bad else "run"
    advice = (("remedy", summary.advice.do), (command, summary.advice.command))
    steps = [] if summary.by_finding else [(name, text) for name, text in advice if text]
    if steps:
        yield Padding(rows(steps), (0, 0, 0, 2))
    if summary.also:
        yield from _causes(summary, file)
    elif summary.finding:
        yield from () if summary.by_finding else (named(summary.finding),)
        yield details(summary.finding, briefly=True)


def _causes(summary: Overview, file: str) -> Iterator[RenderableType]:
    """Several causes of slow values, each with its place and its remedy, and where their evidence is."""
    for finding in filter(None, (summary.finding, *summary.also[:ALSO])):
        yield named(finding)
        yield Padding(rows([("remedy", finding.cause.remedy)]), (0, 0, 0, 2))
    yield Text(f"evidence and how to confirm each cause: {doctor_of(file)}", style="dim")


def doctor_of(file: str) -> str:
    """The command that examines a run, which is measured again if it was not saved."""
    return f"wirespeed check --explain{'' if file in ('', '-') else f' {shlex.quote(one_line(file))}'}"


def notes(lines: Iterable[tuple[str, str]], style: str = "cyan") -> Iterator[RenderableType]:
    """A line for each text, after its kind; longer texts are indented."""
    for kind, text in lines:
        if text:
            yield hanging(Text(f"{kind}:", style=style), Text(text), 1)


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


def figures(summary: Overview, width: int) -> Iterator[RenderableType]:
    """A line with a bar for each key figure, and what the bars mean.

    The place has its own line if there is no room.
    """
    texts = [
        (one.title, leading(one), f"{lead_share(one)}:" if one.worst or one.failed else extent(one))
        for one in summary.figures
    ]
    taken = sum(max(map(cell_len, column)) for column in zip(*texts, strict=True)) + 9  # mark and gaps
    bar = max(_SHORTEST, min(_BAR, width - taken))
    table = Table.grid(padding=(0, 2, 0, 0))
    for i in range(5):
        table.add_column(justify="right" if i == 2 else "left", no_wrap=i < 4)
    for figure in summary.figures:
        sign = SIGNS[figure.verdict]
        table.add_row(
            Text(sign.mark, style=sign.style), Text(figure.title), Text(leading(figure), style="bold"),
            _bar(figure, bar), Text(extent(figure)),
        )  # fmt: skip
    yield table
    if any(figure.typical.limit for figure in summary.figures):
        worst = ", ✖ worst" if any(figure.worst for figure in summary.figures) else ""
        yield Text(f"bars end at the limit: ━ expected, ● typical{worst}", style="dim")


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


def section(compared: GateComparison, style: Style) -> Iterator[RenderableType]:
    """The applicable gates of a set, the worst first, and the number of the others by reason.

    ``verbose`` adds the source of each.
    """
    gates, results = compared.gates, compared.results
    yield Text(f"published thresholds of {gates.name} (read {gates.read})", style="bold")
    for result in applicable(compared):
        line = Text().append(f"{result.word:<12}", style=SIGNS[result.word].style)
        yield line.append(f"{result.gate.measures}: at least {result.gate.at_least}")
        texts = [*gate_parts(result), *([result.gate.source] if style.verbose else [])]
        yield from (_indented(text, style="dim") for text in texts)
    other = Counter(result.why for result in results if result.verdict is Verdict.WAIVED)
    if other:
        reasons = ", ".join(f"{count} for {why}" for why, count in other.items())
        yield Text(f"{many(other.total(), 'threshold')} not applicable: {reasons}", style="dim")
    if not compared.compared:
        yield Text(f"no threshold of {gates.name} was compared; this is not a pass", style="bold yellow")


#: Maximum number of testcases, warnings and other defects, so that they fit on a screen; ``verbose`` shows
#: all testcases and warnings.
_SHOWN, _WARNINGS, _FOUND = 1, 2, 2
#: Maximum number of reasons why values were not judged; ``verbose`` shows all.
_REASONS = 3
#: Names of the causes that are busy devices.
_BUSY = ("busy-gpu", "busy-cpus")


def text(judged: Judged) -> str:
    """The screen for this terminal."""
    return render(judged, Style(columns(), colored(), checked=True))


def render(judged: Judged, style: Style) -> str:
    """Render what was found about a Document as text; ``verbose`` includes every bad testcase and cell.

    The verdict, its cause and its remedy come last, where a terminal shows them: without ``verbose``, they
    fit on a screen of 24 lines together with the key figures.
    """
    return printed(style, heading(judged.document), "", *parts(judged, style))


def parts(judged: Judged, style: Style) -> list[RenderableType]:
    """What was found about a run, the verdict with its cause and remedy last."""
    document, check, summary = judged.document, judged.check, judged.overview
    of_testcases = grouped((one.key.testcase, one) for one in check.judgements if one.verdict.is_bad)
    bad = list(of_testcases.values())  # that with the worst value first
    parts: list[RenderableType] = []
    if own := report_of(document):
        parts += [*own.body(style), ""]
    for judgements in bad if style.verbose else bad[:_SHOWN]:
        parts += _testcase(judgements, check, style)
    parts += [] if style.verbose else further(len(bad) - _SHOWN, "more testcase")
    parts += notes([("settings", "; ".join(style.settings))])
    parts += _unjudged(document, check, style)
    parts += notes([("baseline", text) for text in (check.baseline.notes if check.baseline else ())])
    parts += notes([("note", text) for text in judged.by.lacking], "yellow")
    for override, cells_accepted in check.accepted.items():
        label = f"accepted in {many(cells_accepted, 'value')}" if cells_accepted else "override not needed"
        parts += notes([(label, f"{override}: {override.reason}")], "magenta")
    for compared in check.gates:
        parts += [*([""] if parts and parts[-1] else []), *section(compared, style), ""]
    parts += _warnings(document, summary, style)
    parts += [""] if parts and parts[-1] else []
    parts += figures(summary, style.width) if summary.figures else []
    parts += [hanging(Text(f"–  {kind} "), Text(f"not measured: {why}")) for kind, why in summary.skipped]
    parts += [""] if summary.figures or summary.skipped else []
    parts += headline(document, summary, judged.file)
    if document.interrupted and check.verdict is not Verdict.INTERRUPTED:
        parts += notes([("interrupted", document.interrupted)], "yellow")
    parts += notes(
        [("wrong data", str(fault)) for fault in check.wrong[1:]], "red"
    )  # the first is in the sentence
    parts += [*absent(check.missing, summary.sentence), *_places(check, summary)]
    parts += _findings(document, summary, judged.file)
    parts += _closing(check.gates)
    return parts


def part(judged: Judged, style: Style) -> str:
    """The screen of a run if ``verbose`` adds it to that of several."""
    return render(judged, style) if style.verbose else ""


def _places(check: Check, summary: Overview) -> Iterator[RenderableType]:
    """The slow devices and links that the first sentence does not name."""
    for culprit in check.culprits:
        if str(culprit) not in summary.sentence:
            yield from notes([("slow", culprit_text(culprit))], "red")


def _findings(document: Document, summary: Overview, file: str) -> Iterator[RenderableType]:
    """Defects that explain no value, and the number of causes that are not shown, with where they are.

    Notes, which are no defects and explain nothing, are on the screen of ``doctor``.
    """
    is_said = _BUSY if users(document) else ()
    seen = (summary.finding, *summary.also[:ALSO])
    others = [
        finding
        for finding in summary.diagnosis.findings
        if finding not in seen and finding.cause.name not in is_said and not finding.is_note
    ]
    defects = [finding for finding in others if not finding.cells]
    for finding in defects[:_FOUND]:
        yield from notes([("also found", f"{finding.title}. Remedy: {finding.cause.remedy}")], "yellow")
    if more := len(others) - len(defects[:_FOUND]):
        yield Text(f"{many(more, 'more possible cause')}: {doctor_of(file)}", style="dim")


def _warnings(document: Document, summary: Overview, style: Style) -> Iterator[RenderableType]:
    """Conditions that may explain low values; the first sentence names who uses busy devices."""
    is_said = all(f"{device} was {how}" in summary.sentence for device, (how, _) in users(document).items())
    texts = explanations(document, busy=not is_said and summary.verdict is not Verdict.BUSY, lacking=())
    texts = [text for text in texts if text not in summary.sentence]
    shown = texts if style.verbose else texts[:_WARNINGS]
    yield from notes((("warning", text) for text in shown), "bold yellow")
    yield from further(len(texts) - len(shown), "more warning")


def _testcase(judgements: list[Judgement], check: Check, style: Style) -> Iterator[RenderableType]:
    """A testcase with its worst cell, or with all bad cells, and possible causes."""
    worst = judgements[0]
    heading = Text().append(f"{worst.verdict:<12}", style=SIGNS[worst.verdict].style)
    heading.append(worst.key.testcase or "the run", style="bold")
    if len(judgements) > 1:
        heading.append(f"  {len(judgements)} values, worst:" if not style.verbose else "", style="dim")
    yield heading
    for judgement in judgements if style.verbose else judgements[:1]:
        if judgement.value is not None:
            yield _indented(_measured(judgement))
        is_said = judgement.why == BELOW_RANGE and judgement.culprit in check.culprits
        if judgement.value is None or not is_said or style.verbose:
            where = f"{judgement.key.place}: " if judgement.value is None and judgement.key.place else ""
            yield _indented(f"{where}{judgement.explanation}", style="dim")
    yield from (_indented(cause, style="yellow") for cause in check.causes.get(worst.key.testcase, ()))


def _indented(text: str, style: str = "") -> RenderableType:
    return Padding(Text(text, style=style), (0, 0, 0, 2))


def _measured(judgement: Judgement) -> str:
    """The location, the measured value, its share, and the bound that it has to reach."""
    value = judgement.value or 0.0
    scale, unit = fitting(judgement.unit, [value])
    text = f"{judgement.key.place}: {number(value, scale)} {unit}"
    if portion := share(judgement):
        text += f", {portion} {number(portion.whole, scale)}"
    if judgement.least and not judgement.is_above:
        bound = "minimum" if judgement.unit.more_is_better else "maximum"
        text += f"; {bound} {number(judgement.least, scale)}"
    return text


def _unjudged(document: Document, check: Check, style: Style) -> Iterator[RenderableType]:
    """The values that were not judged, by reason, and other bases of judgement than link limits."""
    reasons: dict[tuple[str, str], dict[str, None]] = {}
    for judgement in check.judgements:
        if judgement.verdict is Verdict.BUSY and style.verbose:
            key = "not judged", "another process used a device"
        elif judgement.verdict in (Verdict.BUSY, Verdict.INTERRUPTED):
            key = "", ""  # in the first sentence, a warning or a separate line
        elif judgement.verdict is Verdict.NOT_JUDGED:
            key = "not judged", judgement.why
        else:
            key = judgement.verdict, judgement.basis
        if key[1]:
            reasons.setdefault(key, {})[judgement.key.testcase] = None
    if style.verbose:
        yield from notes((kind, f"{reason}: {', '.join(names)}") for (kind, reason), names in reasons.items())
    elif unknown := [reason for kind, reason in reasons if kind == "not judged"]:
        if (more := len(unknown) - _REASONS) > 0:
            unknown = [*unknown[:_REASONS], f"{many(more, 'other reason')} (-v shows all)"]
        names = set().union(*(cases for (kind, _), cases in reasons.items() if kind == "not judged"))
        them = "it" if len(names) == 1 else "them"
        by = f". To judge {them}: {how}" if (how := remedy(document, check)) else ""
        text = f"values of {many(len(names), 'testcase')} ({'; '.join(unknown)}){by}"
        yield from notes([("not judged", text)])
    yield from notes([("left out", omitted(document)), ("note", unknown_memory(document, check))])
    yield from notes(("differs", text) for text in unlike(document))
    yield from notes(("collective", text) for text in algorithms(document))


def _closing(gates: Sequence[GateComparison]) -> Iterator[Text]:
    """The number of failed gates as the last line."""
    if count := sum(len(compared.failures) for compared in gates):
        yield Text(f"{many(count, 'threshold')} not met", style="bold red")
