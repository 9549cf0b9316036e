"""Texts of what a check found: slow devices and links, and published thresholds."""

from __future__ import annotations

from collections.abc import Iterator

from ..judging.gates import GateComparison, GateResult
from ..judging.suspects import Culprit
from ..judging.verdict import Verdict
from ..units import displayed, many
from .values import number


def culprit_text(culprit: Culprit) -> str:
    """A slow device, link or path, how slow it is, and how many values show it."""
    return f"{culprit} at {culprit.share} ({many(len(culprit.cells), 'value')})"


def applicable(compared: GateComparison) -> list[GateResult]:
    """The gates that apply to the machine, the worst first."""
    results = [result for result in compared.results if result.verdict is not Verdict.WAIVED]
    return sorted(results, key=lambda result: result.rank)


def gate_text(result: GateResult) -> str:
    """What was measured for a gate, and why it has its verdict."""
    return "; ".join(gate_parts(result))


def gate_parts(result: GateResult) -> Iterator[str]:
    """The lowest value and its cell, and the reason of the verdict."""
    if lowest := result.lowest:
        scale, unit = displayed(lowest.unit)
        value = "no value" if lowest.value is None else f"lowest {number(lowest.value, scale)} {unit}"
        range_ = ""
        if result.expected:
            least, normal = result.expected
            range_ = f"; expected {number(least, scale)} to {number(normal, scale)}"
        yield f"{lowest.key.testcase} {lowest.key.place}: {value}{range_}"
    yield from filter(None, (result.why, result.remark))
