"""Verdicts as the page shows them: a CSS class, a sign and a word, never colour only."""

from __future__ import annotations

from dataclasses import dataclass

from ...judging.outcomes import INTERRUPTED
from ...judging.verdicts import Verdict

#: Sign next to the colour of each verdict.
SIGNS = {
    Verdict.PASS: "✓", Verdict.WARN: "▲", Verdict.FAIL: "✖", Verdict.IMPLAUSIBLE: "‼", Verdict.UNKNOWN: "?",
    Verdict.BUSY: "◷", Verdict.WAIVED: "–",
}  # fmt: skip
BAD = (Verdict.IMPLAUSIBLE, Verdict.FAIL, Verdict.WARN)


@dataclass(frozen=True)
class Shown:
    """A verdict as the page shows it.

    Parameters
    ----------
    css : str
        CSS class.
    sign : str
        Sign next to the text.
    text : str
        The verdict.
    """

    css: str
    sign: str
    text: str


def shown(word: str, text: str = "") -> Shown:
    """Return how to show a verdict, or that a run was interrupted.

    Parameters
    ----------
    word : str
        A verdict, or ``interrupted``.
    text : str
        Text in place of the word; empty for the word.

    Returns
    -------
    Shown
        Class, sign and text.
    """
    if word == INTERRUPTED:
        return Shown(str(Verdict.WARN), "■", text or word)
    return Shown(word, SIGNS[Verdict(word)], text or word)
