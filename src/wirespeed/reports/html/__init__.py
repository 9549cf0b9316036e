"""An HTML file that works offline: topology, verdicts, heat maps, curves, samples, state, environment."""

from __future__ import annotations

from ...judging.judged import Judged
from ..style import Style


def render(judged: Judged, style: Style) -> str:
    """The page of one run."""
    from .page import page

    return page([judged])


def part(judged: Judged, style: Style) -> None:
    """Nothing: a page of many runs shows only their summaries."""
