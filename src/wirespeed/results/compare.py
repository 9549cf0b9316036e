"""Comparison of two Documents: changes beyond the noise of both."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from ..document import Document, Statistics
from ..errors import UsageError
from ..model import Unit
from ..tabular import Tabular
from ..terminal import brief
from .cells import Key, Placed, placed

#: Changes below this fraction are ignored, however significant.
LEAST = 0.02


class Outcome(StrEnum):
    """Outcome for a cell."""

    WORSE = "worse"
    BETTER = "better"
    SAME = "same"
    LOST = "lost"  #: value in the first Document only
    ADDED = "added"  #: value in the second Document only


@dataclass(frozen=True)
class Change:
    """Change of one cell.

    Parameters
    ----------
    key : Key
        Location of the cell.
    unit : Unit
        Unit of the values.
    outcome : Outcome
        Better, worse, lost, ...
    before, after : float or None
        Values in base units; None if there is none.
    change : float
        Relative change; positive if the cell got better: a higher rate or a shorter time.
    reason : str
        Why a value was lost.
    """

    key: Key
    unit: Unit
    outcome: Outcome
    before: float | None
    after: float | None
    change: float = 0.0
    reason: str = ""

    def __repr__(self) -> str:
        """Return one line."""
        how = f" by {self.change:+.1%}" if self.before and self.after else ""
        return brief(f"Change {self.outcome}{how}: {self.key.testcase} {self.key.place}")


@dataclass(frozen=True)
class Comparison(Tabular):
    """Comparison of two Documents.

    Parameters
    ----------
    first, second : Document
        The compared runs.
    changes : tuple[Change, ...]
        All cells, the worst first.
    least : float
        Minimum relative change.
    """

    first: Document
    second: Document
    changes: tuple[Change, ...]
    least: float

    def __repr__(self) -> str:
        """Return one line; ``wirespeed compare`` shows everything."""
        counts = Counter(change.outcome for change in self.changes)
        cells = ", ".join(f"{counts[outcome]} {outcome}" for outcome in Outcome if counts[outcome])
        kind = " (simulated)" if self.simulated else ""
        return brief(f"Comparison{kind}: {cells}; {self.first.started} → {self.second.started}")

    def those(self, *outcomes: Outcome) -> list[Change]:
        """Return the changes with one of these outcomes."""
        return [change for change in self.changes if change.outcome in outcomes]

    @property
    def simulated(self) -> bool:
        """Whether one of the runs measured no hardware."""
        return self.first.simulated or self.second.simulated

    @property
    def regressed(self) -> bool:
        """Whether a cell got worse or was lost."""
        return bool(self.those(Outcome.WORSE, Outcome.LOST))


def compare(first: Document, second: Document, least: float = LEAST) -> Comparison:
    """Compare two Documents.

    A cell has changed if the 95 % confidence intervals of both medians do not overlap and the medians differ
    by at least ``least``; imported values have no intervals, and only the second condition. Cells
    match if testcase, table, row, column and bytes are equal.

    Parameters
    ----------
    first, second : Document
        The runs to compare.
    least : float
        Minimum relative change.

    Returns
    -------
    Comparison
        All cells, the worst first.

    Raises
    ------
    UsageError
        If no cell has a value in both.
    """
    before, after = (_values(document) for document in (first, second))
    if not before.keys() & after.keys():
        raise UsageError("no cell has a value in both Documents; compare runs of equal testcases and sizes")
    reasons = {result.name: result.reason for result in second.testcases}
    changes = [_changed(before[key], after[key], least) for key in before if key in after]
    for key, one in before.items():
        if key not in after:
            reason = reasons.get(key.testcase, "")
            changes.append(Change(key, one.unit, Outcome.LOST, one.cell.value, None, reason=reason))
    changes += [
        Change(key, one.unit, Outcome.ADDED, None, one.cell.value)
        for key, one in after.items()
        if key not in before
    ]
    return Comparison(first, second, tuple(sorted(changes, key=_badness)), least)


def _values(document: Document) -> dict[Key, Placed]:
    cells = (one for one in placed(document) if not one.cell.is_wrong)
    return {one.key: one for one in cells if one.cell.value}


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
