"""Texts of the key figures of a run."""

from __future__ import annotations

from ..judging.judgement import Judgement
from ..judging.overview import KeyFigure, share
from ..judging.verdict import Verdict
from ..units import fitting
from .numbers import GLANCE, number


def rate(judgement: Judgement) -> str:
    """The value with its unit."""
    scale, unit = fitting(judgement.unit, [judgement.value or 0.0])
    return f"{number(judgement.value or 0.0, scale, GLANCE)} {unit}"


def extent(figure: KeyFigure) -> str:
    """The share of what is expected, and that of the worst value if it is bad."""
    return ", ".join(filter(None, (typical_share(figure), worst_share(figure))))


def typical_share(figure: KeyFigure) -> str:
    """The share of the typical value, with what it is a share of."""
    typical, portion = figure.typical, share(figure.typical)
    scale, unit = fitting(typical.unit, [typical.value or 0.0])
    if portion is None:
        least = typical.least
        return f"expected ≥ {number(least, scale, GLANCE)} {unit}" if least else "no limit known"
    return f"{portion} {number(portion.whole, scale, GLANCE)} {unit}"


def worst_share(figure: KeyFigure) -> str:
    """The share of the worst value; empty without one, and if it says what the typical one does."""
    portion = share(figure.worst) if figure.worst else None
    return f"{worst_word(figure)} {portion}" if portion and str(portion) != str(share(figure.typical)) else ""


def worst_word(figure: KeyFigure) -> str:
    """Whether the worst value is the lowest or, above a limit, the highest."""
    return "highest" if figure.worst and figure.worst.verdict is Verdict.IMPLAUSIBLE else "lowest"


def of_limit(figure: KeyFigure, judgement: Judgement) -> float:
    """A value of a figure as a fraction of its limit, which is the end of a bar."""
    return (judgement.value or 0.0) / (judgement.limit or figure.typical.limit or 1.0)
