"""Verdicts and outcomes as all views show them: a sign, a colour, a CSS class; never a colour only."""

from __future__ import annotations

from dataclasses import dataclass, replace

from ..judging.verdict import Verdict
from ..results.compare import Outcome


@dataclass(frozen=True)
class Look:
    """How to show a verdict.

    Attributes:
        mark: One character.
        style: Style of rich.
        css: Class in pages.
        text: What pages show next to the mark.
    """

    mark: str
    style: str
    css: str
    text: str = ""


#: Each verdict on a value or a threshold, and each outcome of a comparison, by its text.
SIGNS: dict[str, Look] = {
    Verdict.IMPLAUSIBLE: Look("‼", "bold red", "implausible"),
    Verdict.FAIL: Look("✖", "bold red", "fail"),
    Verdict.WARN: Look("▲", "bold yellow", "warn"),
    Verdict.BUSY: Look("◷", "bold yellow", "busy"),
    Verdict.INTERRUPTED: Look("■", "bold yellow", "warn"),
    Verdict.NOT_JUDGED: Look("?", "bold cyan", "unknown"),
    Verdict.PASS: Look("✓", "bold green", "pass"),
    Verdict.WAIVED: Look("–", "dim", "waived"),
    "impossible": Look("?", "magenta", "unknown"),
    "unclear": Look("?", "cyan", "unknown"),
    Outcome.LOST: Look("✖", "red", "fail"),
    Outcome.WORSE: Look("✖", "red", "fail"),
    Outcome.BETTER: Look("✓", "green", "pass"),
    Outcome.UNKNOWN: Look("?", "bold yellow", "unknown"),
}
#: Verdicts by the word that stands for them in tables of runs.
VERDICTS = {verdict.word.upper(): verdict for verdict in Verdict}


def shown(verdict: str, text: str = "") -> Look:
    """A verdict, or the word of one on a threshold, as pages show it; ``text`` replaces its word."""
    word = verdict.word if isinstance(verdict, Verdict) else verdict
    return replace(SIGNS[verdict], text=text or word)


def css_of(word: str) -> str:
    """The CSS class of a verdict or an outcome; empty for other texts."""
    return SIGNS[word].css if word in SIGNS else ""


def marked(word: str) -> str:
    """A verdict or an outcome with its sign; other texts without one."""
    return f"{SIGNS[word].mark} {word}" if word in SIGNS else word
