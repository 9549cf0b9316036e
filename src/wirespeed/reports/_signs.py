"""Verdicts as all views show them: a sign, a colour in terminals, a class in pages; never a colour only."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

from ..document import Document, Status, TestcaseResult
from ..judging.omissions import is_unverified
from ..judging.verdicts import Check, Verdict
from ..units import format_time


@dataclass(frozen=True)
class Sign:
    """How to show a verdict.

    Parameters
    ----------
    mark : str
        One character.
    style : str
        Style of rich.
    css : str
        Class in pages.
    """

    mark: str
    style: str
    css: str


SIGNS = {
    Verdict.IMPLAUSIBLE: Sign("‼", "bold red", "implausible"),
    Verdict.FAIL: Sign("✖", "bold red", "fail"),
    Verdict.WARN: Sign("▲", "bold yellow", "warn"),
    Verdict.BUSY: Sign("◷", "bold yellow", "busy"),
    Verdict.INTERRUPTED: Sign("■", "bold yellow", "warn"),
    Verdict.UNKNOWN: Sign("?", "bold cyan", "unknown"),
    Verdict.PASS: Sign("✓", "bold green", "pass"),
    Verdict.WAIVED: Sign("–", "dim", "waived"),
}


def counted(verdicts: Iterable[Verdict]) -> str:
    """Return how often each verdict occurs, the worst first; empty for none."""
    counts = Counter(verdicts)
    return ", ".join(f"{counts[one]} {one.word}" for one in Verdict if counts[one])


def data_word(document: Document, result: TestcaseResult) -> str:
    """Return what is known of the data of a testcase: verified, or why there is none."""
    if result.status is not Status.PASSED:
        return "wrong data" if result.status is Status.FAILED else str(result.status)
    return verification(document)


def verification(document: Document) -> str:
    """Return whether the data of a run was verified; empty for a log of another tool that does not say."""
    if is_unverified(document):
        return "data not verified"
    return "data verified" if document.options.get("verify") else ""


def closing(document: Document, check: Check) -> str:
    """Return the verdict on a run, how many testcases have each, and whether the data was verified."""
    counts = counted(check.testcases[one.name] for one in document.testcases) or "nothing was run"
    data = verification(document)
    took = document.origin or f"in {format_time(document.seconds)}"
    return f"{check.verdict.word.upper()}  {counts}" + (f" · {data}" if data else "") + f" · {took}"
