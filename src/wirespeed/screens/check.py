"""Text of ``wirespeed check --gates``: a section for each set of published gates.

Text of ``wirespeed check``: what is worst, the key figures, and last the verdict with cause and remedy.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import groupby

from rich.console import RenderableType
from rich.padding import Padding
from rich.text import Text

from ..document import Document
from ..judging.judged import Judged
from ..judging.omissions import omitted
from ..judging.overview import Overview, judged_by_baseline, missing, share
from ..judging.verdict import BELOW_RANGE, GateComparison, GateResult, GateVerdict, Judgement, Verdict
from ..judging.verdicts import Check
from ..reports import SIMULATED, Style
from ..reports.console import heading, printed
from ..reports.findings import SIGNS, applicable, explanations, gate_parts, number, views
from ..reports.qualification import lines as qualified_lines
from ..reports.records import CheckedRun
from ..results.compare import Unreadable
from ..terminal import one_line
from ..units import fitting, many
from . import many_runs
from .overview import absent, figures, headline, notes


def section(compared: GateComparison, style: Style) -> Iterator[RenderableType]:
    """The applicable gates of a set, the worst first, and the number of the others by reason."""
    gates, results = compared.gates, compared.results
    yield Text(f"published thresholds of {gates.name} (read {gates.read})", style="bold")
    for result in applicable(compared):
        line = Text().append(f"{result.verdict:<12}", style=SIGNS[result.verdict].style)
        yield line.append(f"{result.gate.measures}: at least {result.gate.at_least}")
        yield from (Padding(Text(text, style="dim"), (0, 0, 0, 2)) for text in _details(result, style))
    other = Counter(result.why for result in results if result.verdict is GateVerdict.NOT_APPLICABLE)
    if other:
        reasons = ", ".join(f"{count} for {why}" for why, count in other.items())
        yield Text(f"{many(other.total(), 'threshold')} not applicable: {reasons}", style="dim")
    if not compared.compared:
        yield Text(f"no threshold of {gates.name} was compared; this is not a pass", style="bold yellow")


def _details(result: GateResult, style: Style) -> Iterator[str]:
    """What was measured and why, and for ``verbose`` the source."""
    yield from gate_parts(result)
    if style.verbose:
        yield result.gate.source


#: Maximum number of testcases, warnings and other defects, so that they fit on a screen; ``verbose`` shows
#: all testcases and warnings.
_SHOWN, _WARNINGS, _FOUND = 1, 2, 2
#: Maximum number of reasons why values were not judged; ``verbose`` shows all.
_REASONS = 3
#: Names of the causes that are busy devices.
_BUSY = ("busy-gpu", "busy-cpus")


def render(judged: Judged, style: Style) -> str:
    """Render what was found about a Document as text; ``verbose`` includes every bad testcase and cell.

    The verdict, its cause and its remedy come last, where a terminal shows them: without ``verbose``, they
    fit on a screen of 24 lines together with the key figures.
    """
    document, check, summary = judged.document, judged.check, judged.overview
    bad = [list(group) for _, group in groupby(_bad(check), key=lambda judgement: judgement.key.testcase)]
    parts: list[RenderableType] = [heading(document), ""]
    if document.qualification:
        parts += [Text(line) for line in qualified_lines(document, document.qualification)[:-1]] + [""]
    for judgements in bad if style.verbose else bad[:_SHOWN]:
        parts += _testcase(judgements, check, style)
    if len(bad) > _SHOWN and not style.verbose:
        parts.append(Text(f"{many(len(bad) - _SHOWN, 'more testcase')}; -v shows all", "dim"))
    parts += notes([("settings", "; ".join(style.settings))])
    parts += _unjudged(document, check, style)
    parts += notes([("baseline", text) for text in (check.baseline.notes if check.baseline else ())])
    for override, cells_accepted in check.accepted.items():
        label = f"accepted in {many(cells_accepted, 'value')}" if cells_accepted else "override not needed"
        parts += notes([(label, f"{override}: {override.reason}")], "magenta")
    for compared in check.gates:
        parts += [*([""] if parts[-1] else []), *section(compared, style), ""]
    parts += _warnings(document, summary, style)
    parts += [""] if parts[-1] else []
    if summary.figures:
        parts += [figures(summary, style.width), ""]
    parts += headline(document, check, summary)
    if document.interrupted and check.verdict is not Verdict.INTERRUPTED:
        parts += notes([("interrupted", document.interrupted)], "yellow")
    parts += notes(
        [("wrong data", str(fault)) for fault in check.wrong[1:]], "red"
    )  # the first is in the sentence
    parts += [*absent(check.missing, summary.sentence), *_places(check, summary), *_findings(summary)]
    parts += _closing(document, check.gates)
    return printed(style, *parts)


def part(judged: Judged, style: Style) -> str:
    """The screen of a run if ``verbose`` adds it to that of several."""
    return render(judged, style) if style.verbose else ""


def joined(runs: Sequence[CheckedRun], unreadable: Sequence[Unreadable], style: Style) -> str:
    """Render a table of several runs; ``verbose`` adds the screen of each."""
    screens = [f"\n{one_line(run.node.file)}:\n{run.part}" for run in runs if style.verbose]
    settings = [f"settings: {one_line('; '.join(style.settings))}\n"] if style.settings else []
    return "".join((*screens, *settings, many_runs.render(runs, style, unreadable)))


def _places(check: Check, summary: Overview) -> Iterator[RenderableType]:
    """The slow devices and links that the first sentence does not name."""
    for culprit in check.culprits:
        if str(culprit) not in summary.sentence:
            cells = many(len(culprit.cells), "value")
            yield from notes([("slow", f"{culprit} at {culprit.share} ({cells})")], "red")


def _findings(summary: Overview) -> Iterator[RenderableType]:
    """Defects that explain no value, and the number of causes that are not shown."""
    in_sentence = _BUSY if summary.verdict is Verdict.BUSY else ()
    others = [
        view
        for view in views(summary.diagnosis)
        if view.finding is not summary.finding and view.finding.cause.name not in in_sentence
    ]
    defects = [view for view in others if not view.finding.cells]
    for view in defects[:_FOUND]:
        yield from notes([("also found", f"{view.title}; remedy: {view.advice}")], "yellow")
    if more := len(others) - len(defects[:_FOUND]):
        yield Text(f"{many(more, 'more possible cause')}: wirespeed doctor", style="dim")


def _warnings(document: Document, summary: Overview, style: Style) -> Iterator[RenderableType]:
    """Conditions that may explain low values; the first sentence names who uses busy devices."""
    texts = explanations(document, busy=summary.verdict is not Verdict.BUSY, lacking=())
    texts = [text for text in texts if text not in summary.sentence]
    shown = texts if style.verbose else texts[:_WARNINGS]
    yield from notes((("warning", text) for text in shown), "bold yellow")
    if len(texts) > len(shown):
        yield Text(f"{many(len(texts) - len(shown), 'more warning')}; -v shows all", style="dim")


def _bad(check: Check) -> list[Judgement]:
    """The bad cells grouped by testcase, the testcase with the worst cell first."""
    order: dict[str, int] = {}
    bad = [judgement for judgement in check.judgements if judgement.verdict.is_bad]
    for judgement in bad:
        order.setdefault(judgement.key.testcase, len(order))
    return sorted(bad, key=lambda judgement: order[judgement.key.testcase])


def _testcase(judgements: list[Judgement], check: Check, style: Style) -> Iterator[RenderableType]:
    """A testcase with its worst cell, or with all bad cells, and possible causes."""
    worst = judgements[0]
    heading = Text().append(f"{worst.verdict:<12}", style=SIGNS[worst.verdict].style)
    heading.append(worst.key.testcase or "the run", style="bold")
    if len(judgements) > 1:
        heading.append(f"  {len(judgements)} values, worst:" if not style.verbose else "", style="dim")
    yield heading
    named = {culprit.suspects for culprit in check.culprits}
    for judgement in judgements if style.verbose else judgements[:1]:
        if judgement.value is not None:
            yield _indented(_measured(judgement))
        is_said = judgement.why == BELOW_RANGE and judgement.culprits in named
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
    if judgement.least and judgement.verdict is not Verdict.IMPLAUSIBLE:
        bound = "from" if judgement.unit.more_is_better else "up to"
        text += f"; passes {bound} {number(judgement.least, scale)}"
    return text


def _unjudged(document: Document, check: Check, style: Style) -> Iterator[RenderableType]:
    """The values that were not judged, by reason, and other bases of judgement than link limits."""
    reasons: dict[tuple[str, str], dict[str, None]] = {}
    for judgement in check.judgements:
        if judgement.verdict is Verdict.BUSY:
            key = "not judged", "another process used a device"
        elif judgement.verdict is Verdict.INTERRUPTED:
            key = "", ""  # in the first sentence, or a line of its own
        elif judgement.verdict is Verdict.UNKNOWN:
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
        known_by = "; to judge them: wirespeed baseline make" if judged_by_baseline(document, check) else ""
        text = f"{many(len(names), 'testcase')}: {'; '.join(unknown)}{known_by}"
        yield from notes([("not judged", text)])
    yield from notes([("left out", omitted(document)), ("note", missing(document, check))])


def _closing(document: Document, gates: Sequence[GateComparison]) -> Iterator[Text]:
    """The number of failed gates, and that a machine is simulated, as the last lines."""
    if count := sum(compared.failed for compared in gates):
        yield Text(f"{many(count, 'threshold')} not met", style="bold red")
    if document.simulated:
        yield Text(SIMULATED, style="bold magenta")
