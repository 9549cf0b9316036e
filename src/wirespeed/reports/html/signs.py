"""Verdicts as the page shows them: a CSS class, a sign and a word, never colour only."""

from __future__ import annotations

from dataclasses import dataclass

from ...judging.verdict import Verdict
from ..signs import SIGNS


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


def shown(verdict: Verdict, text: str = "") -> Shown:
    """Return how to show a verdict.

    Parameters
    ----------
    verdict : Verdict
        The verdict.
    text : str
        Text in place of its word; empty for the word.

    Returns
    -------
    Shown
        Class, sign and text.
    """
    return Shown(SIGNS[verdict].css, SIGNS[verdict].mark, text or verdict.word)
