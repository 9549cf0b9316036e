"""What ``wirespeed check`` prints: the verdict, who is slow, and the worst first."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import groupby

from rich.console import RenderableType
from rich.text import Text

from ..results.document import Document
from ..units import fitting, many
from ..verdicts import Check, Judgement, Verdict
from . import Style
from ._console import SIMULATED, heading, number, printed, warnings
from ._outcomes import INTERRUPTED, Outcomes, counted, outcomes

#: So many testcases are shown, and all of them with ``verbose``: the rest of a screen is theirs.
_SHOWN = 6
_COLORS = {
    Verdict.IMPLAUSIBLE: "bold red", Verdict.FAIL: "bold red", Verdict.WARN: "yellow",
    Verdict.BUSY: "yellow", Verdict.UNKNOWN: "cyan", Verdict.PASS: "green", Verdict.WAIVED: "dim",
    INTERRUPTED: "yellow",
}  # fmt: skip
_BAD = (Verdict.IMPLAUSIBLE, Verdict.FAIL, Verdict.WARN)


def render(document: Document, check: Check, style: Style) -> str:
    """Return a Check of a Document as text; with ``verbose`` every testcase and cell that is bad."""
    found = outcomes(document, check)
    summary = Text(found.run.upper(), style=_COLORS[found.run])
    summary.append("  testcases: " + (counted(found.testcases.values()) or "none"), style="default")
    parts: list[RenderableType] = [heading(document), *warnings(document), summary]
    parts.append(Text(f"cells: {counted(found.cells) or 'none'}", style="dim"))
    if INTERRUPTED in found.judgements:
        parts.append(Text(f"the run ended early: {document.interrupted}", style="yellow"))
    for culprit in check.culprits:
        line = Text("slow: ", style="bold")
        line.append(str(culprit), style="bold red")
        line.append(f", {culprit.ratio:.0%} of normal in {many(len(culprit.cells), 'cell')}")
        parts.append(line)
    for way, testcases in check.corrupted.items():
        line = Text("wrong data: ", style="bold")
        line.append(way, style="bold red").append(f", in {many(len(testcases), 'testcase')}")
        parts.append(line)
    for override, cells_accepted in check.accepted.items():
        what = f"accepted, {many(cells_accepted, 'cell')}" if cells_accepted else "accepted, but not needed"
        parts.append(Text(f"{what} of {override}: {override.reason}", style="magenta"))
    bad = [list(group) for _, group in groupby(_bad(check, found), key=lambda j: j.key.testcase)]
    for judgements in bad if style.verbose else bad[:_SHOWN]:
        parts += ["", *_testcase(judgements, check, style)]
    if len(bad) > _SHOWN and not style.verbose:
        parts += ["", Text(f"and {many(len(bad) - _SHOWN, 'testcase')} more: -v shows all", style="dim")]
    parts += ["", *_unknown(check, style)]
    if check.verdict is Verdict.UNKNOWN:
        parts.append(Text("nothing could be judged: this is not a pass", style="yellow"))
    parts.append(_closing(document, found))
    return printed(style, *parts)


def _bad(check: Check, found: Outcomes) -> list[Judgement]:
    """Return what is bad, by testcase, the testcase with the worst cell first."""
    order: dict[str, int] = {}
    bad = [j for j, word in zip(check.judgements, found.judgements, strict=True) if word in _BAD]
    for judgement in bad:
        order.setdefault(judgement.key.testcase, len(order))
    return sorted(bad, key=lambda judgement: order[judgement.key.testcase])


def _testcase(judgements: list[Judgement], check: Check, style: Style) -> Iterator[Text]:
    """Yield a testcase with its worst cell, or all bad ones, and what may explain them."""
    worst = judgements[0]
    heading = Text(f"{worst.verdict:<12}", style=_COLORS[worst.verdict])
    heading.append(worst.key.testcase or "the run", style="bold")
    if len(judgements) > 1:
        heading.append(f"  {len(judgements)} cells, the worst:" if not style.verbose else "", style="dim")
    yield heading
    for judgement in judgements if style.verbose else judgements[:1]:
        yield Text(f"  {_measured(judgement)}")
        yield Text(
            f"  {judgement.why}" + (f": {judgement.culprit}" if judgement.culprit else ""), style="dim"
        )
    for cause in check.causes.get(worst.key.testcase, ()):
        yield Text(f"  {cause}", style="yellow")


def _measured(judgement: Judgement) -> str:
    """Return where, what was measured, what the links allow and what was expected."""
    key = judgement.key
    where = " ".join(part for part in (key.table, key.row, key.column) if part) or "as a whole"
    if judgement.value is None:
        return where
    scale, unit = fitting(judgement.unit, [judgement.value])
    text = f"{where}: {number(judgement.value, scale)} {unit}"
    if judgement.limit:
        text += f", {judgement.value / judgement.limit:.0%} of {number(judgement.limit, scale)}"
    if judgement.least and judgement.normal:
        text += f"; expected {number(judgement.least, scale)} to {number(judgement.normal, scale)}"
    return text


def _unknown(check: Check, style: Style) -> Iterator[Text]:
    """Yield what could not be judged, by reason, and what else than the links judged the rest."""
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


def _closing(document: Document, found: Outcomes) -> Text:
    line = Text(found.run.upper(), style=_COLORS[found.run])
    if document.simulated:
        line.append(f" · {SIMULATED}", style="bold magenta")
    return line
