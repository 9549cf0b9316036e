"""Findings and gates of a checked run as all reports and screens show them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from ..judging.diagnosis import Diagnosis, Finding
from ..judging.gate_verdicts import GateComparison, GateResult, GateVerdict
from ..units import displayed, many
from .numbers import number


@dataclass(frozen=True)
class Detail:
    """A line of what is known of a cause.

    Attributes:
        name: What it says; empty if it continues the line above.
        text: The text.
        is_command: Whether the text is a command.
    """

    name: str
    text: str
    is_command: bool = False


@dataclass(frozen=True)
class FindingView:
    """A finding as text; reports and screens only lay it out.

    Attributes:
        finding: The finding.
        slow: Number of slow values of the run.
    """

    finding: Finding
    slow: int

    @property
    def certainty(self) -> str:
        """How sure it is."""
        if self.finding.likely:
            return "likely cause"
        return "possible cause" if self.is_explaining else "also found"

    @property
    def is_explaining(self) -> bool:
        """Whether it explains any value."""
        return bool(self.finding.cells or self.finding.lower)

    @property
    def title(self) -> str:
        """The cause and its place."""
        place = f" ({self.finding.where})" if self.finding.where else ""
        return f"{self.finding.cause.title}{place}"

    @property
    def share(self) -> str:
        """How many of the slow values it explains; empty if it explains nothing."""
        finding = self.finding
        if finding.cells:
            verb = "may explain" if finding.factor is None else "explains"
            return f"{verb} {finding.cells} of {many(self.slow, 'slow value')}"
        return f"explains {many(finding.lower, 'value')} below the typical ones" if finding.lower else ""

    @property
    def advice(self) -> str:
        """What to do about it."""
        return self.finding.cause.remedy

    @property
    def details(self) -> list[Detail]:
        """Evidence, prediction, alternatives, confirmation and remedy."""
        finding = self.finding
        first, *more = [*finding.commands] or [""]
        details = (
            Detail("evidence", finding.evidence),
            Detail("predicted", self._predicted),
            *(Detail("or", other.title) for other in finding.others),
            Detail("to tell apart", self._telling),
            Detail("to confirm", first, is_command=True),
            *(Detail("", command, is_command=True) for command in more),
            Detail("remedy", self.advice),
        )
        return [detail for detail in details if detail.text]

    @property
    def line(self) -> str:
        """Everything in one line."""
        finding = self.finding
        others = "".join(f" or {other.title}" for other in finding.others)
        cells = f", {many(finding.cells, 'slow value')}" if finding.cells else ""
        evidence = f"; evidence: {finding.evidence}" if finding.evidence else ""
        return f"{self.certainty}: {self.title}{others}{cells}{evidence}; remedy: {self.advice}"

    @property
    def data(self) -> dict[str, Any]:
        """Everything as data, for JSON, data frames and labels."""
        finding = self.finding
        return {
            "cause": finding.cause.name, "title": finding.cause.title, "host": finding.host,
            "place": finding.place, "where": finding.where, "certainty": self.certainty,
            "likely": finding.likely, "cells": finding.cells, "lower": finding.lower,
            "factor": finding.factor, "evidence": finding.evidence, "weight": finding.weight,
            "others": [other.name for other in finding.others],
            "next": finding.next.name if finding.next else None,
            "confirm": finding.commands[0] if finding.commands else "", "remedy": self.advice,
        }  # fmt: skip

    @property
    def _telling(self) -> str:
        """How to tell the cause from the others; empty if there are no others."""
        if not self.finding.others:
            return ""
        if self.finding.next is None:
            return "no testcase would: their values are the same; use the commands below"
        return f"wirespeed run -t {self.finding.next.name}"

    @property
    def _predicted(self) -> str:
        """What predicts the slow values; empty if only facts speak for the cause."""
        factor = self.finding.factor
        if factor is None:
            return ""
        how = f"links at {factor:.0%} of their rate" if factor < 1 else "another route of the data"
        return f"{how} would give the measured values"


def views(diagnosis: Diagnosis) -> list[FindingView]:
    """The findings of a run, the one that explains most first."""
    return [FindingView(finding, diagnosis.slow) for finding in diagnosis.findings]


def applicable(compared: GateComparison) -> list[GateResult]:
    """The gates that apply to the machine, the worst first."""
    order = list(GateVerdict)
    results = [result for result in compared.results if result.verdict is not GateVerdict.NOT_APPLICABLE]
    return sorted(results, key=lambda result: order.index(result.verdict))


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
