"""Two Documents side by side: what changed beyond the noise of both."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from ..errors import UsageError
from ..model import Unit
from .cells import Key, Placed, placed
from .document import Document, Statistics

#: A smaller change is not told, however sure.
LEAST = 0.02


class Outcome(StrEnum):
    """What became of a cell."""

    WORSE = "worse"
    BETTER = "better"
    SAME = "same"
    LOST = "lost"  #: it had a value in the first Document and has none in the second
    ADDED = "added"  #: the other way round


@dataclass(frozen=True)
class Change:
    """One cell. ``change`` is relative, and positive where it got better: faster, or a shorter time."""

    key: Key
    unit: Unit
    outcome: Outcome
    before: float | None
    after: float | None
    change: float = 0.0
    reason: str = ""


@dataclass(frozen=True)
class Comparison:
    """All cells, the worst first."""

    first: Document
    second: Document
    changes: tuple[Change, ...]
    least: float

    def __repr__(self) -> str:
        """One line; ``wirespeed compare`` shows the whole."""
        counts = Counter(change.outcome for change in self.changes)
        cells = ", ".join(f"{counts[outcome]} {outcome}" for outcome in Outcome if counts[outcome])
        return f"<Comparison of {self.first.started} with {self.second.started}: {cells}>"

    def those(self, *outcomes: Outcome) -> list[Change]:
        """Return the changes with one of these outcomes."""
        return [change for change in self.changes if change.outcome in outcomes]

    @property
    def regressed(self) -> bool:
        """Whether a cell got worse, or was lost because its testcase failed."""
        return bool(self.those(Outcome.WORSE)) or any(change.reason for change in self.those(Outcome.LOST))


def compare(first: Document, second: Document, least: float = LEAST) -> Comparison:
    """Return what changed from the first Document to the second.

    A cell has changed where the 95 % intervals of both medians do not meet and the medians differ
    by ``least`` or more. Cells are the same where testcase, table, row, column and bytes are.

    Raises
    ------
    UsageError
        If no cell has a value in both.
    """
    before, after = (_values(document) for document in (first, second))
    if not before.keys() & after.keys():
        raise UsageError("no cell has a value in both Documents: nothing can be compared")
    failed = {result.name: result.reason for result in second.testcases if not result.status.good}
    changes = [_changed(before[key], after[key], least) for key in before if key in after]
    for key, one in before.items():
        if key not in after:
            reason = failed.get(key.testcase, "")
            changes.append(Change(key, one.unit, Outcome.LOST, one.cell.value, None, reason=reason))
    changes += [
        Change(key, one.unit, Outcome.ADDED, None, one.cell.value)
        for key, one in after.items()
        if key not in before
    ]
    return Comparison(first, second, tuple(sorted(changes, key=_badness)), least)


def _values(document: Document) -> dict[Key, Placed]:
    return {one.key: one for one in placed(document) if one.cell.value and one.cell.statistics}


def _changed(first: Placed, second: Placed, least: float) -> Change:
    before, after = first.cell.value or 0.0, second.cell.value or 0.0
    change = after / before - 1 if first.unit.more_is_better else before / after - 1
    outcome = Outcome.SAME
    if abs(change) >= least and _apart(first.cell.statistics, second.cell.statistics):
        outcome = Outcome.BETTER if change > 0 else Outcome.WORSE
    return Change(first.key, first.unit, outcome, before, after, change)


def _apart(first: Statistics | None, second: Statistics | None) -> bool:
    return first is None or second is None or first.high < second.low or second.high < first.low


def _badness(change: Change) -> tuple[int, float, Key]:
    order: Sequence[Outcome] = (
        Outcome.LOST, Outcome.WORSE, Outcome.BETTER, Outcome.SAME, Outcome.ADDED,
    )  # fmt: skip
    return order.index(change.outcome), change.change, change.key
