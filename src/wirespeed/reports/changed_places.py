"""Where values changed between runs: the links and devices that explain the changes."""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from ..judging.cells_seen import Observation
from ..judging.localise import localise
from ..judging.path_kinds import path_kind
from ..measurement import Unit
from ..results.cells import Key, Placed, placed
from ..results.compare import Change, Comparison, Outcome
from ..statistics import grouped


class ChangedPlace(NamedTuple):
    """A link or device, or a kind of path, whose values changed.

    Attributes:
        name: Its name.
        outcome: How they changed.
        values: Number of changed values.
        median: Median change of their speed; empty without values on both sides.
        extreme: The most changed one.
    """

    name: str
    outcome: Outcome
    values: int
    median: str
    extreme: Change


def percent(change: float) -> str:
    """A relative difference; without a sign if it rounds to nothing."""
    text = f"{change:+.1%}"
    return "0.0%" if text in ("-0.0%", "+0.0%") else text


def changed_places(comparison: Comparison) -> Iterator[ChangedPlace]:
    """Yield the links and devices that explain the changed cells, then the kinds of paths of the others."""
    cells = {place.key: place for place in placed(comparison.after[0])}
    for outcome in (Outcome.WORSE, Outcome.BETTER):
        known = [
            change
            for change in comparison.changes
            if change.before and change.after and change.key in cells and change.outcome is not Outcome.BUSY
        ]
        observations = [_observation(i, change, cells[change.key], outcome) for i, change in enumerate(known)]
        unexplained = {i for i, change in enumerate(known) if change.outcome is outcome}
        for culprit in localise(comparison.after[0].machine, observations):
            yield _place(str(culprit), outcome, [known[i] for i in culprit.cells])
            unexplained -= set(culprit.cells)
        yield from _kinds(outcome, [known[i] for i in sorted(unexplained)], cells)
    yield from _kinds(Outcome.LOST, comparison.those(Outcome.LOST), cells)


def _observation(index: int, change: Change, place: Placed, outcome: Outcome) -> Observation:
    """A change as a slow cell to explain; an improvement is a slow cell of the run before."""
    speed = change.speed if outcome is Outcome.WORSE else 1 / change.speed
    value = (change.after if outcome is Outcome.WORSE else change.before) or 0.0
    value, limit = (value, place.cell.limit or 0.0) if change.unit is Unit.RATE else (0.0, 0.0)
    return Observation(index, min(speed, 1.0), 1.0, place.cell.links, change.outcome is outcome, value, limit)


def _kinds(outcome: Outcome, changes: Sequence[Change], cells: dict[Key, Placed]) -> Iterator[ChangedPlace]:
    """Yield the changes that no link explains by kind of path."""
    collectives = {key for key, place in cells.items() if place.result.collective is not None}
    kinds = (path_kind(change.key.testcase, collective=change.key in collectives) for change in changes)
    for kind, of_kind in grouped(zip(kinds, changes, strict=True)).items():
        yield _place(kind.title, outcome, of_kind)


def _place(name: str, outcome: Outcome, changes: Sequence[Change]) -> ChangedPlace:
    extreme = max(changes, key=lambda change: abs(change.change))
    ratios = [change.change for change in changes if change.before and change.after]
    return ChangedPlace(
        name, outcome, len(changes), percent(statistics.median(ratios)) if ratios else "", extreme
    )
