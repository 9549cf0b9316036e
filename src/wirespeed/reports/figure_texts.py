"""Texts of the key figures of a run: the value that stands for a kind of path, its share and its place."""

from __future__ import annotations

from ..judging.key_figures import KeyFigure
from ..judging.verdict import Judgement, share
from ..units import fitting, some
from .values import GLANCE, number, quantity

#: A slowest value that is as usual, and below the typical one by no more than this fraction, is alike.
_ALIKE = 0.02


def rate(judgement: Judgement) -> str:
    """The value with its unit."""
    return quantity(judgement.value or 0.0, judgement.unit)


def leading(figure: KeyFigure) -> str:
    """The value that stands for a kind of path, with its unit; that there is none if a path failed."""
    return "failed" if figure.failed else rate(figure.lead)


def extent(figure: KeyFigure) -> str:
    """The share of the leading value, and of several values its place and the typical one."""
    if figure.failed:
        return f"{lead_share(figure)}; others {share(figure.lead) or 'not judged'}"
    faster = "; faster than usual" if figure.lead.is_faster else ""
    if figure.lead is figure.typical:
        return f"{lead_share(figure)}{faster}"
    scale, _ = fitting(figure.lead.unit, [figure.lead.value or 0.0])
    place = f": {figure.place}" if figure.place else ""
    alike = (figure.lead.value or 0.0) >= (1 - _ALIKE) * (figure.typical.value or 0.0)
    if figure.worst is None and alike:
        return f"{lead_share(figure)}{place}{faster}"
    slow, typical = (number(one.value or 0.0, scale, GLANCE) for one in (figure.lead, figure.typical))
    return f"{lead_share(figure)}{place}" + (f"; typical {typical}" if typical != slow else "") + faster


def lead_share(figure: KeyFigure) -> str:
    """The share of the leading value, with what it is a share of; of a kind that failed, where."""
    if figure.failed:
        return some(figure.failed, 1)
    lead, portion = figure.lead, share(figure.lead)
    scale, unit = fitting(lead.unit, [lead.value or 0.0])
    if portion is None:
        return f"expected ≥ {number(lead.least, scale, GLANCE)} {unit}" if lead.least else "no limit known"
    return f"{portion} {number(portion.whole, scale, GLANCE)} {unit}"


def of_limit(figure: KeyFigure, judgement: Judgement) -> float:
    """A value of a figure as a fraction of its limit, which is the end of a bar."""
    return (judgement.value or 0.0) / (judgement.limit or figure.typical.limit or 1.0)
