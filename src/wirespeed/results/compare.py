"""Comparison of two Documents: changes beyond the noise of both."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from ..document import Document
from ..errors import UsageError
from ..model import Unit
from ..tabular import Tabular
from ..terminal import brief
from ..topology import Machine
from .attributes import Difference, differences
from .cells import Key, Placed, busy_devices, placed

#: Changes below this fraction are ignored, however significant.
LEAST = 0.02


class Outcome(StrEnum):
    """Outcome for a cell."""

    WORSE = "worse"
    BETTER = "better"
    SAME = "same"
    LOST = "lost"  #: value in the first Document only
    ADDED = "added"  #: value in the second Document only
    BUSY = "busy"  #: not compared: another process used a device in one of the runs


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
        Why a value was lost, or was not compared.
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

    @property
    def speed(self) -> float:
        """Speed in the second run over that in the first; 1 if a value is missing."""
        if not self.before or not self.after:
            return 1.0
        return self.after / self.before if self.unit.more_is_better else self.before / self.after


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
    differences : tuple[Difference, ...]
        What differs between the runs.
    """

    first: Document
    second: Document
    changes: tuple[Change, ...]
    least: float
    differences: tuple[Difference, ...] = ()

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

    @property
    def compared(self) -> int:
        """Number of cells that were compared."""
        return len(self.those(Outcome.WORSE, Outcome.BETTER, Outcome.SAME))


def compare(
    first: Document, second: Document, least: float = LEAST, *, ignore_busy: bool = False
) -> Comparison:
    """Compare two Documents.

    A cell has changed if the 95 % confidence intervals of both medians do not overlap and the medians differ
    by at least ``least``; imported values have no intervals, and only the second condition. Cells
    match if testcase, table, row, column and bytes are equal. Cells of devices that another process used in
    one of the runs are not compared.

    Parameters
    ----------
    first, second : Document
        The runs to compare.
    least : float
        Minimum relative change.
    ignore_busy : bool
        Whether to compare cells of devices that another process used, too.

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
    machines = None if ignore_busy else (first.machine, second.machine)
    changes = [_changed(before[key], after[key], least, machines) for key in before if key in after]
    for key, one in before.items():
        if key not in after:
            reason = reasons.get(key.testcase, "")
            changes.append(Change(key, one.unit, Outcome.LOST, one.cell.value, None, reason=reason))
    changes += [
        Change(key, one.unit, Outcome.ADDED, None, one.cell.value)
        for key, one in after.items()
        if key not in before
    ]
    return Comparison(first, second, tuple(sorted(changes, key=_badness)), least, differences(first, second))


def _values(document: Document) -> dict[Key, Placed]:
    cells = (one for one in placed(document) if not one.cell.is_wrong)
    return {one.key: one for one in cells if one.cell.value}


def _changed(first: Placed, second: Placed, least: float, machines: tuple[Machine, Machine] | None) -> Change:
    before, after = first.cell.value or 0.0, second.cell.value or 0.0
    change = after / before - 1 if first.unit.more_is_better else before / after - 1
    busy = [busy_devices(*pair) for pair in zip((first, second), machines or (), strict=False)]
    if any(busy):
        why = "; ".join(f"{device} was {how}" for device, how in (busy[0] | busy[1]).items())
        return Change(first.key, first.unit, Outcome.BUSY, before, after, change, why)
    outcome = Outcome.SAME
    if abs(change) >= least and _apart(first.cell.interval, second.cell.interval):
        outcome = Outcome.BETTER if change > 0 else Outcome.WORSE
    return Change(first.key, first.unit, outcome, before, after, change)


def _apart(first: tuple[float, float] | None, second: tuple[float, float] | None) -> bool:
    return first is None or second is None or first[1] < second[0] or second[1] < first[0]


def _badness(change: Change) -> tuple[int, float, Key]:
    order: Sequence[Outcome] = (
        Outcome.LOST, Outcome.WORSE, Outcome.BETTER, Outcome.BUSY, Outcome.SAME, Outcome.ADDED,
    )  # fmt: skip
    return order.index(change.outcome), change.change, change.key
