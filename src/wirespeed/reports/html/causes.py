"""What explains the run: causes with evidence and remedy, culprits, wrong data, conditions."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ...document import Document
from ...judging.diagnosis import Finding
from ...judging.overview import Overview
from ...judging.verdict import GateComparison, GateResult, Verdict
from ...judging.verdicts import Check
from ...units import many
from ..findings import FindingView, Shown, applicable, explanations, gate_text, shown, views
from ..style import markup, topic

if TYPE_CHECKING:
    from markupsafe import Markup

#: Maximum number of testcases that a note names.
_NAMED = 4


@dataclass(frozen=True)
class GatesView:
    """A set of published gates as the page shows it.

    Attributes:
        title: Name of the set, and when it was read.
        rows: Each gate that applies: what it measures, its threshold, the verdict, and what was measured.
    """

    title: str
    rows: tuple[tuple[str, str, Shown, str], ...]


def gates(comparisons: Iterable[GateComparison]) -> tuple[GatesView, ...]:
    """The comparisons with gates of which some apply."""
    return tuple(
        GatesView(
            f"Published thresholds of {comparison.gates.name} (read {comparison.gates.read})",
            tuple(map(_gate, results)),
        )
        for comparison in comparisons
        if (results := applicable(comparison))
    )


def _gate(result: GateResult) -> tuple[str, str, Shown, str]:
    verdict = shown(result.verdict)
    return result.gate.measures, str(result.gate.at_least), verdict, gate_text(result)


def causes(overview: Overview) -> tuple[tuple[FindingView, str], ...]:
    """All causes of a run, the one that explains most first, each with its CSS class."""
    return tuple(
        (view, _css(view.finding, explains=view.is_explaining)) for view in views(overview.diagnosis)
    )


def _css(finding: Finding, *, explains: bool) -> str:
    """The CSS class of a cause: whether it explains slow values."""
    return "fail" if finding.cells and finding.likely else "warn" if explains else "unknown"


def explained_causes(overview: Overview) -> tuple[tuple[str, Markup], ...]:
    """Name and explanation of each cause of a run, from the documentation."""
    names = dict.fromkeys(finding.cause.name for finding in overview.diagnosis.findings)
    return tuple((name, markup(about)) for name in names if (about := topic(name)))


def notes(document: Document, check: Check, overview: Overview) -> list[tuple[Shown, str]]:
    """What else matters to the verdict: wrong data, slow links, what is unexplained or accepted.

    Args:
        document: The run.
        check: Its verdicts.
        found: Its overview.

    Returns:
        Each with its sign, the worst first.
    """
    fail, warn, passed = (shown(verdict) for verdict in (Verdict.FAIL, Verdict.WARN, Verdict.WAIVED))
    lines = []
    if document.interrupted:
        lines.append((shown(Verdict.INTERRUPTED), f"Run interrupted: {document.interrupted}"))
    for wrong in check.wrong:
        more = f" and {len(wrong.testcases) - _NAMED} more" if len(wrong.testcases) > _NAMED else ""
        lines.append((fail, f"Wrong data: {wrong}: {', '.join(wrong.testcases[:_NAMED])}{more}"))
    lines += [(warn, f"Baseline: {text}") for text in (check.baseline.notes if check.baseline else ())]
    for culprit in check.culprits:
        cells = many(len(culprit.cells), "value")
        lines.append((fail, f"Slow: {culprit} at {culprit.share} ({cells})"))
    if overview.diagnosis.unexplained and overview.diagnosis.slow:
        slow = many(overview.diagnosis.slow, "slow value")
        lines.append((warn, f"No cause is known for {overview.diagnosis.unexplained} of {slow}"))
    lines += [(warn, text) for text in explanations(document, lacking=check.missing)]
    for override, accepted in check.accepted.items():
        effect = f"accepted in {many(accepted, 'value')}" if accepted else "override not needed"
        lines.append((passed, f"{effect}: {override}: {override.reason}"))
    return lines
