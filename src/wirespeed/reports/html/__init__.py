"""An HTML file that works offline: topology, verdicts, heat maps, curves, samples, state, environment."""

from __future__ import annotations

from collections.abc import Sequence

from ...judging.judged import Judged
from ...results.read_many import Unreadable
from ..records import CheckedRun
from ..style import Style


def render(judged: Judged, style: Style) -> str:
    """The page of one run."""
    from .page import page

    return page([judged])


def part(judged: Judged, style: Style) -> None:
    """Return nothing: a page of many runs shows only their summaries."""


def joined(runs: Sequence[CheckedRun], unreadable: Sequence[Unreadable], style: Style) -> str:
    """The page of many runs, which contains no Documents."""
    from ...features.fleet.page import fleet_page

    return fleet_page([run.node for run in runs], list(map(str, unreadable)))
