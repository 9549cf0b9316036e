"""Text of ``wirespeed check``: the verdict, the likely causes, and the worst cells first."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby

from rich.console import RenderableType
from rich.text import Text

from ..document import Document
from ..judging.gate_verdicts import GateComparison
from ..judging.outcomes import INTERRUPTED, Outcomes, outcomes
from ..judging.overview import overview
from ..judging.verdicts import Check, Judgement, Verdict
from ..units import fitting, many
from . import SIMULATED, Judged, Style
from ._console import heading, printed, warnings
from ._gates import section
from ._grid import number
from ._overview import figures, headline

#: Maximum number of testcases shown, so that they fit on a screen; ``verbose`` shows all.
_SHOWN = 4
_COLORS = {
    Verdict.IMPLAUSIBLE: "bold red", Verdict.FAIL: "bold red", Verdict.WARN: "yellow",
    Verdict.BUSY: "yellow", Verdict.UNKNOWN: "cyan", Verdict.PASS: "green", Verdict.WAIVED: "dim",
    INTERRUPTED: "yellow",
}  # fmt: skip
_BAD = (Verdict.IMPLAUSIBLE, Verdict.FAIL, Verdict.WARN)


def render(document: Document, judged: Judged, style: Style) -> str:
    """Render what was found about a Document as text; ``verbose`` includes every bad testcase and cell."""
    check = judged.check
    found, first = outcomes(document, check), overview(document, check, judged.diagnosis)
    parts: list[RenderableType] = [heading(document), *warnings(document), "", *headline(document, first)]
    if INTERRUPTED in found.judgements:
        parts.append(Text(f"run interrupted: {document.interrupted}", style="yellow"))
    for culprit in check.culprits:
        if culprit.described in first.sentence:
            continue
        line = Text("slow: ", style="bold")
        line.append(culprit.described, style="bold red")
        line.append(f" at {culprit.ratio:.0%} of expected ({many(len(culprit.cells), 'cell')})")
        parts.append(line)
    more = [one for one in first.diagnosis.findings if one.cells and one is not first.finding]
    if more:
        parts.append(Text(f"{many(len(more), 'more possible cause')}: wirespeed doctor", style="dim"))
    if first.figures:
        parts += ["", figures(first)]
    for way, testcases in check.corrupted.items():
        line = Text("wrong data: ", style="bold")
        line.append(way, style="bold red").append(f" in {many(len(testcases), 'testcase')}")
        parts.append(line)
    for override, cells_accepted in check.accepted.items():
        what = f"accepted in {many(cells_accepted, 'cell')}" if cells_accepted else "override not needed"
        parts.append(Text(f"{what}: {override}: {override.reason}", style="magenta"))
    bad = [list(group) for _, group in groupby(_bad(check, found), key=lambda j: j.key.testcase)]
    for judgements in bad if style.verbose else bad[:_SHOWN]:
        parts += ["", *_testcase(judgements, check, style)]
    if len(bad) > _SHOWN and not style.verbose:
        parts += ["", Text(f"{many(len(bad) - _SHOWN, 'more testcase')}; -v shows all", style="dim")]
    parts += ["", *_unknown(check, style)]
    for compared in judged.gates:
        parts += [*([""] if parts[-1] else []), *section(compared, style), ""]
    parts += _closing(document, judged.gates)
    return printed(style, *parts)


def _bad(check: Check, found: Outcomes) -> list[Judgement]:
    """Return the bad cells grouped by testcase, the testcase with the worst cell first."""
    order: dict[str, int] = {}
    bad = [j for j, word in zip(check.judgements, found.judgements, strict=True) if word in _BAD]
    for judgement in bad:
        order.setdefault(judgement.key.testcase, len(order))
    return sorted(bad, key=lambda judgement: order[judgement.key.testcase])


def _testcase(judgements: list[Judgement], check: Check, style: Style) -> Iterator[Text]:
    """Yield a testcase with its worst cell, or with all bad cells, and possible causes."""
    worst = judgements[0]
    heading = Text(f"{worst.verdict:<12}", style=_COLORS[worst.verdict])
    heading.append(worst.key.testcase or "the run", style="bold")
    if len(judgements) > 1:
        heading.append(f"  {len(judgements)} cells, worst:" if not style.verbose else "", style="dim")
    yield heading
    for judgement in judgements if style.verbose else judgements[:1]:
        yield Text(f"  {_measured(judgement)}")
        yield Text(f"  {judgement.explanation}", style="dim")
    for cause in check.causes.get(worst.key.testcase, ()):
        yield Text(f"  {cause}", style="yellow")


def _measured(judgement: Judgement) -> str:
    """Return the location, the measured value, the limit and the expected range."""
    where = judgement.key.place or "whole testcase"
    if judgement.value is None:
        return where
    scale, unit = fitting(judgement.unit, [judgement.value])
    text = f"{where}: {number(judgement.value, scale)} {unit}"
    if judgement.limit:
        text += f", {judgement.value / judgement.limit:.0%} of limit {number(judgement.limit, scale)}"
    if judgement.least and judgement.normal:
        text += f"; expected {number(judgement.least, scale)} to {number(judgement.normal, scale)}"
    return text


def _unknown(check: Check, style: Style) -> Iterator[Text]:
    """Yield the values that were not judged, by reason, and other bases of judgement than link limits."""
    reasons: dict[tuple[Verdict, str], dict[str, None]] = {}
    for judgement in check.judgements:
        if judgement.verdict in (Verdict.BUSY, Verdict.UNKNOWN):
            reasons.setdefault((judgement.verdict, judgement.why), {})[judgement.key.testcase] = None
        elif judgement.basis:
            reasons.setdefault((judgement.verdict, judgement.basis), {})[judgement.key.testcase] = None
    for (verdict, reason), names in reasons.items():
        few = style.verbose or len(names) < 3
        shown = ", ".join(names) if few else f"{next(iter(names))} and {len(names) - 1} more"
        yield Text(f"{verdict}: {shown}: {reason}", style=_COLORS[verdict])


def _closing(document: Document, gates: Sequence[GateComparison]) -> Iterator[Text]:
    """Yield the number of failed gates, and that a machine is simulated, as the last lines."""
    if count := sum(compared.failed for compared in gates):
        yield Text(f"{many(count, 'gate')} failed", style="bold red")
    if document.simulated:
        yield Text(SIMULATED, style="bold magenta")
