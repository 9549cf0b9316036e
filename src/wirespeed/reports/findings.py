"""Texts of causes and gates that several reports of a checked run share."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain, repeat

from ..judging.diagnosis import Finding
from ..judging.gate_verdicts import GateComparison, GateResult, GateVerdict
from ..units import displayed, many
from .numbers import number


def certainty(finding: Finding) -> str:
    """Return how sure a finding is."""
    if finding.likely:
        return "likely cause"
    return "possible cause" if finding.cells or finding.lower else "also found"


def cause_text(finding: Finding) -> str:
    """Return a finding as one line: cause, place, values, evidence and remedy."""
    place = f" ({finding.where})" if finding.where else ""
    others = "".join(f" or {other.title}" for other in finding.others)
    cells = f", {many(finding.cells, 'slow value')}" if finding.cells else ""
    evidence = f"; evidence: {finding.evidence}" if finding.evidence else ""
    found = f"{certainty(finding)}: {finding.cause.title}{place}{others}"
    return f"{found}{cells}{evidence}; remedy: {finding.cause.remedy}"


def applicable(compared: GateComparison) -> list[GateResult]:
    """Return the gates that apply to the machine, the worst first."""
    order = list(GateVerdict)
    found = [one for one in compared.results if one.verdict is not GateVerdict.NOT_APPLICABLE]
    return sorted(found, key=lambda one: order.index(one.verdict))


def gate_text(result: GateResult) -> str:
    """Return what was measured for a gate, and why it has its verdict."""
    return "; ".join(gate_parts(result))


def gate_parts(result: GateResult) -> Iterator[str]:
    """Yield the lowest value and its cell, and the reason of the verdict."""
    if lowest := result.lowest:
        scale, unit = displayed(lowest.unit)
        value = "no value" if lowest.value is None else f"lowest {number(lowest.value, scale)} {unit}"
        range_ = ""
        if result.expected:
            least, normal = result.expected
            range_ = f"; expected {number(least, scale)} to {number(normal, scale)}"
        yield f"{lowest.key.testcase} {lowest.key.place}: {value}{range_}"
    yield from filter(None, (result.why, result.remark))


def described(finding: Finding) -> list[tuple[str, str]]:
    """Return evidence, prediction, alternatives, confirmation and remedy of a cause, each with its name."""
    cause = finding.cause
    rows = (
        ("evidence", finding.evidence),
        ("predicted", _predicted(finding)),
        *(("or", other.title) for other in finding.others),
        ("to tell apart", _telling(finding)),
        *zip(chain(("to confirm",), repeat("")), finding.commands, strict=False),
        ("remedy", cause.remedy),
    )
    return [(name, text) for name, text in rows if text]


def explained(finding: Finding, slow: int) -> str:
    """Return how many of the slow cells a finding explains; empty if it explains nothing."""
    if finding.cells:
        verb = "may explain" if finding.factor is None else "explains"
        return f"{verb} {finding.cells} of {many(slow, 'slow value')}"
    return f"explains {many(finding.lower, 'value')} below the typical ones" if finding.lower else ""


def _telling(finding: Finding) -> str:
    """Return how to tell a cause from the others; empty if there are no others."""
    if not finding.others:
        return ""
    if finding.next is None:
        return "no testcase would: their values are the same; use the commands below"
    return f"wirespeed run -t {finding.next.name}"


def _predicted(finding: Finding) -> str:
    """Return what predicts the slow cells; empty if only facts speak for a cause."""
    if finding.factor is None:
        return ""
    how = (
        f"links at {finding.factor:.0%} of their rate" if finding.factor < 1 else "another route of the data"
    )
    return f"{how} would give the measured values"
