"""Verdicts and outcomes as all views show them: a sign, a colour, a CSS class; never a colour only."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

from ..document import Document, Status, TestcaseResult
from ..judging.gate_verdicts import GateVerdict
from ..judging.omissions import is_verified
from ..judging.verdict import Verdict
from ..judging.verdicts import Check
from ..results.compare import Outcome
from ..units import format_time


@dataclass(frozen=True)
class Look:
    """How to show a verdict.

    Attributes:
        mark: One character.
        style: Style of rich.
        css: Class in pages.
    """

    mark: str
    style: str
    css: str


#: Each verdict on a value or a threshold, and each outcome of a comparison, by its text.
SIGNS: dict[str, Look] = {
    Verdict.IMPLAUSIBLE: Look("‼", "bold red", "implausible"),
    Verdict.FAIL: Look("✖", "bold red", "fail"),
    Verdict.WARN: Look("▲", "bold yellow", "warn"),
    Verdict.BUSY: Look("◷", "bold yellow", "busy"),
    Verdict.INTERRUPTED: Look("■", "bold yellow", "warn"),
    Verdict.UNKNOWN: Look("?", "bold cyan", "unknown"),
    Verdict.PASS: Look("✓", "bold green", "pass"),
    Verdict.WAIVED: Look("–", "dim", "waived"),
    GateVerdict.IMPOSSIBLE: Look("?", "magenta", "unknown"),
    GateVerdict.UNCLEAR: Look("?", "cyan", "unknown"),
    Outcome.LOST: Look("✖", "red", "fail"),
    Outcome.WORSE: Look("✖", "red", "fail"),
    Outcome.BETTER: Look("✓", "green", "pass"),
}
#: Verdicts by the word that stands for them in tables of runs.
VERDICTS = {verdict.word.upper(): verdict for verdict in Verdict}


@dataclass(frozen=True)
class Shown:
    """A verdict as the page shows it.

    Attributes:
        css: CSS class.
        sign: Sign next to the text.
        text: The verdict.
    """

    css: str
    sign: str
    text: str


def shown(verdict: Verdict | GateVerdict, text: str = "") -> Shown:
    """A verdict as pages show it; ``text`` replaces its word."""
    word = verdict.word if isinstance(verdict, Verdict) else verdict
    return Shown(SIGNS[verdict].css, SIGNS[verdict].mark, text or word)


def css_of(word: str) -> str:
    """The CSS class of a verdict or an outcome; empty for other texts."""
    return SIGNS[word].css if word in SIGNS else ""


def marked(word: str) -> str:
    """A verdict or an outcome with its sign; other texts without one."""
    return f"{SIGNS[word].mark} {word}" if word in SIGNS else word


#: What is known of data of which some is wrong.
WRONG_DATA = "wrong data"


def counted(verdicts: Iterable[Verdict]) -> str:
    """How often each verdict occurs, what was not judged last; empty for none."""
    counts = Counter(verdicts)
    ordered = sorted(Verdict, key=lambda verdict: not verdict.is_judged)
    return ", ".join(f"{counts[verdict]} {verdict.word}" for verdict in ordered if counts[verdict])


def data_word(document: Document, result: TestcaseResult) -> str:
    """What is known of the data of a testcase: verified, or why there is none."""
    if result.status is not Status.PASSED:
        return WRONG_DATA if result.status is Status.FAILED else str(result.status)
    return _verification(document, result)


def verification(document: Document) -> str:
    """Whether the data of a run is right; empty for a log of another tool that does not say."""
    wrong = any(result.status is Status.FAILED for result in document.testcases)
    return WRONG_DATA if wrong else _verification(document)


def _verification(document: Document, result: TestcaseResult | None = None) -> str:
    """Whether the data of a run or testcase was verified; empty if another tool does not say."""
    words = {True: "data verified", False: "data not verified", None: ""}
    return words[is_verified(document, result)]


def closing(document: Document, check: Check) -> str:
    """The verdict on a run, how many testcases have each, and whether the data was verified."""
    counts = counted(check.testcases[result.name] for result in document.testcases) or "nothing was run"
    data = verification(document)
    ending = document.origin or f"in {format_time(document.seconds)}"
    return f"{check.verdict.word.upper()}  {counts}" + (f" · {data}" if data else "") + f" · {ending}"
