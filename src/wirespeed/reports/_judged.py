"""Texts of causes and gates that several reports of a checked run share."""

from __future__ import annotations

from collections.abc import Iterator

from ..judging.diagnosis import Finding
from ..judging.gate_verdicts import GateComparison, GateResult, GateVerdict
from ..units import displayed, many
from ._grid import number


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
