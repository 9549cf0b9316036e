"""Comparison of runs before and after: the changes that chance does not explain."""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum

from ..document import Document
from ..errors import UsageError
from ..measurement import Unit
from ..terminal import Tabular, brief
from ..thresholds.changes import LEAST_CHANGE
from ..units import many
from .cells import Key
from .comparison_doubts import failed_twice, lost_testcases, strays, too_noisy
from .comparison_evidence import CellValues, Evidence, Tested, tested, values
from .settings import Difference, differences
from .significance import assessed, ratio_of

#: Maximum number of reasons why values were lost that are named.
_REASONS = 3


class Outcome(StrEnum):
    """Outcome for a cell."""

    WORSE = "worse"
    BETTER = "better"
    SAME = "same"
    LOST = "lost"  #: fewer of the runs after have a value
    ADDED = "added"  #: value only in the runs after
    BUSY = "busy"  #: not compared: another process used a device
    UNKNOWN = "cannot tell"  #: too little is known: values vary too much, or testcases failed on both sides


@dataclass(frozen=True)
class HostChange:
    """Change of a cell on one of several hosts that are compared with themselves.

    Attributes:
        host: Name of the host.
        ratio: Ratio of the geometric means of what was compared, after over before.
        is_better: Whether it got better.
    """

    host: str
    ratio: float
    is_better: bool


@dataclass(frozen=True)
class Change:
    """Change of one cell.

    Attributes:
        key: Location of the cell.
        unit: Unit of the values.
        outcome: Better, worse, lost, ...
        before, after: Medians of the runs in base units; None if there is none.
        ratio: Ratio of the geometric means of what was compared, after over before; 1 if a value is missing.
        interval: 95% confidence interval of the ratio; None if the cell was not compared.
        p: p-value, adjusted for the number of cells; None if the cell was not compared.
        evidence: What shows how much the value varies; None if the cell was not compared.
        runs: Number of values before and after.
        hosts: Of several hosts those on which the cell changed, if it did not on all: the most changed first.
        reason: Why a value was lost or not compared, or why it is undecided.
    """

    key: Key
    unit: Unit
    outcome: Outcome
    before: float | None
    after: float | None
    ratio: float = 1.0
    interval: tuple[float, float] | None = None
    p: float | None = None
    evidence: Evidence | None = None
    runs: tuple[int, int] = (0, 0)
    hosts: tuple[HostChange, ...] = ()
    reason: str = ""

    def __repr__(self) -> str:
        extent = f" by {self.change:+.1%}" if self.before and self.after else ""
        return brief(f"Change {self.outcome}{extent}: {self.key.testcase} {self.key.place}")

    @property
    def speed(self) -> float:
        """Speed after over that before; 1 if a value is missing."""
        return self.ratio if self.unit.more_is_better else 1 / self.ratio

    @property
    def change(self) -> float:
        """Relative change; positive if the cell got better: a higher rate or a shorter time."""
        return self.speed - 1

    @property
    def bounds(self) -> tuple[float, float] | None:
        """95% confidence interval of ``change``."""
        if self.interval is None:
            return None
        low, high = self.interval
        return (low - 1, high - 1) if self.unit.more_is_better else (1 / high - 1, 1 / low - 1)

    @property
    def half_width(self) -> float:
        """Half the interval of the ratio, as a fraction of the ratio; 0 if the cell was not compared."""
        return (self.interval[1] - self.interval[0]) / 2 / self.ratio if self.interval else 0.0


@dataclass(frozen=True)
class Comparison(Tabular):
    """Comparison of runs.

    Attributes:
        before, after: The compared runs.
        changes: All cells, the worst first.
        least: Minimum relative change.
        differences: What differs between the runs.
        hosts: Hosts that were compared with themselves; empty if all runs of a side were taken together.
        unmatched: Hosts that were not compared, because they have runs on one side only.
    """

    before: tuple[Document, ...]
    after: tuple[Document, ...]
    changes: tuple[Change, ...]
    least: float
    differences: tuple[Difference, ...] = ()
    hosts: tuple[str, ...] = ()
    unmatched: tuple[str, ...] = ()

    def __repr__(self) -> str:
        counts = Counter(change.outcome for change in self.changes)
        cells = ", ".join(f"{counts[outcome]} {outcome}" for outcome in Outcome if counts[outcome])
        kind = " (simulated)" if self.simulated else ""
        both = (self.before, self.after)
        sides = " → ".join(side[0].started if len(side) == 1 else many(len(side), "run") for side in both)
        return brief(f"Comparison{kind}: {cells}; {sides}")

    def those(self, *outcomes: Outcome) -> list[Change]:
        """The changes with one of these outcomes."""
        return [change for change in self.changes if change.outcome in outcomes]

    @property
    def simulated(self) -> bool:
        """Whether one of the runs measured no hardware."""
        return any(document.simulated for document in (*self.before, *self.after))

    @property
    def regressed(self) -> bool:
        """Whether a cell got worse or was lost."""
        return bool(self.those(Outcome.WORSE, Outcome.LOST))

    @property
    def compared(self) -> int:
        """Number of cells that were compared."""
        compared = self.those(Outcome.WORSE, Outcome.BETTER, Outcome.SAME, Outcome.UNKNOWN)
        return sum(change.interval is not None for change in compared)

    @property
    def weak(self) -> int:
        """Number of compared cells whose variation is mostly assumed: a run shows little of it."""
        return sum(change.evidence in (Evidence.SAMPLES, Evidence.VALUES) for change in self.changes)


def compare(
    before: Document | Sequence[Document],
    after: Document | Sequence[Document],
    least: float = LEAST_CHANGE,
    *,
    ignore_busy: bool = False,
) -> Comparison:
    """Compare one run or several before with one or several after.

    A cell has changed if the mean difference of logarithms is significant by a t-test, at a rate of false
    changes of 2% over all cells, and is at least ``least``. If one side has several runs, the test takes the
    values of the runs; if most hosts occur on both sides, each is compared with itself, and a change on only
    some hosts is found by a test of each. Of two runs the test takes the rounds, and adds the variation
    between runs that rounds do not show (``evidence.UNSEEN``); of runs without rounds the samples or only the
    values, and adds more. Cells match if testcase, table, row, column and bytes are equal. Cells of devices
    that another process used are not compared. A cell whose variation may hide a loss of 5%, or that
    failed on both sides, is undecided, not the same.

    Args:
        before, after: The runs to compare.
        least: Minimum relative change.
        ignore_busy: Whether to compare cells of devices that another process used, too.

    Returns:
        All cells, the worst first.

    Raises:
        UsageError: If a side has no run, or no cell of the one is a cell of the other.
    """
    before, after = ((side,) if isinstance(side, Document) else tuple(side) for side in (before, after))
    if not before or not after:
        raise UsageError("a comparison requires at least one run on each side")
    hosts, unmatched = _pairs(before, after)
    kept = [[run for run in side if not hosts or run.hostname in hosts] for side in (before, after)]
    first, second = (values(side, ignore_busy=ignore_busy) for side in kept)
    failed = failed_twice(*kept)
    shared = lost_testcases(first, second, kept[1]) | lost_testcases(second, first, kept[0])
    shared |= {key.testcase for key in failed}
    shared &= {result.name for document in kept[0] for result in document.testcases}
    if not (first.keys() & second.keys() or shared):
        raise UsageError("no cell has a value on both sides; compare runs of equal testcases and sizes")
    changes = _tested(first, second, least, paired=bool(hosts))
    _add_hosts(changes, first, second, hosts, least)
    for key, cell in first.items():
        other = second.get(key)
        present = len(other.values) if other else 0
        if len(cell.values) * len(kept[1]) > present * len(kept[0]):
            lost = changes.get(key) or _untested(key, cell, other, Outcome.LOST)
            changes[key] = replace(lost, outcome=Outcome.LOST, reason=_why_lost(key, present, kept[1]))
    for key, cell in second.items():
        if key not in first:
            changes[key] = _untested(key, None, cell, Outcome.ADDED)
    _add_doubts(changes, first, second, failed, least, paired=bool(hosts))
    ordered = tuple(sorted(changes.values(), key=_badness))
    return Comparison(before, after, ordered, least, differences(before, after), hosts, unmatched)


def _pairs(before: Sequence[Document], after: Sequence[Document]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The hosts to compare with themselves, if these are several and most, and the others."""
    first, second = ({document.hostname for document in side} for side in (before, after))
    common = first & second
    if len(common) < 2 or 2 * len(common) < max(len(first), len(second)):
        return (), ()
    return tuple(sorted(common)), tuple(sorted(first ^ second))


def _tested(
    first: Mapping[Key, CellValues], second: Mapping[Key, CellValues], least: float, *, paired: bool
) -> dict[Key, Change]:
    """Changes of the cells with values on both sides; outcomes by all of them together."""
    changes: dict[Key, Change] = {}
    tests: dict[Key, Tested] = {}
    for key, before in first.items():
        if not (after := second.get(key)):
            continue
        if test := tested(before, after, paired=paired):
            tests[key] = test
        else:
            why = "; ".join(f"{device} was {use}" for device, use in (before.busy | after.busy).items())
            changes[key] = _untested(key, before, after, Outcome.BUSY, why)
    results = assessed([test.contrast for test in tests.values()], [test.kind for test in tests.values()])
    for (key, test), significance in zip(tests.items(), results, strict=True):
        sides = [[cell.value or 0.0 for _, cell in side[key].cells] for side in (first, second)]
        ratio, interval = ratio_of(test.contrast.difference), (significance.low, significance.high)
        unit, runs = first[key].unit, (len(sides[0]), len(sides[1]))
        change = Change(
            key, unit, Outcome.SAME, *_medians(*sides), ratio, interval, significance.p, test.evidence, runs
        )
        if significance.is_change and abs(change.change) >= least:
            change = replace(change, outcome=Outcome.BETTER if change.change > 0 else Outcome.WORSE)
        changes[key] = change
    return changes


def _add_hosts(
    changes: dict[Key, Change],
    first: Mapping[Key, CellValues],
    second: Mapping[Key, CellValues],
    hosts: Sequence[str],
    least: float,
) -> None:
    """Add the hosts on which cells changed that did not change on all: one slow node hides among many."""
    tests = [
        (key, host, test)
        for key, change in changes.items() if change.outcome is Outcome.SAME
        for host in hosts
        if (test := tested(first[key].of(host), second[key].of(host), paired=False))
    ]  # fmt: skip
    results = assessed([test.contrast for *_, test in tests], [test.kind for *_, test in tests])
    host_changes: dict[Key, list[HostChange]] = {}
    for (key, host, test), significance in zip(tests, results, strict=True):
        ratio = ratio_of(test.contrast.difference)
        speed = ratio if changes[key].unit.more_is_better else 1 / ratio
        if significance.is_change and abs(speed - 1) >= least:
            host_changes.setdefault(key, []).append(HostChange(host, ratio, speed > 1))
    for key, of_cell in host_changes.items():
        of_cell.sort(key=lambda change: (change.is_better, -abs(change.ratio - 1)))
        outcome = Outcome.BETTER if of_cell[0].is_better else Outcome.WORSE
        changes[key] = replace(changes[key], outcome=outcome, hosts=tuple(of_cell))


def _add_doubts(
    changes: dict[Key, Change],
    first: Mapping[Key, CellValues],
    second: Mapping[Key, CellValues],
    failed: Mapping[Key, tuple[Unit, str]],
    least: float,
    *,
    paired: bool,
) -> None:
    """Mark the cells without a change for the worse, if they are undecided."""
    for key, change in changes.items():
        why = ""
        if change.outcome in (Outcome.SAME, Outcome.BETTER):
            why = strays(first[key], second[key], least, paired=paired)
        if change.outcome is Outcome.SAME and change.bounds:
            why = why or too_noisy(-change.bounds[0], change.half_width, least)
        if why:
            changes[key] = replace(change, outcome=Outcome.UNKNOWN, reason=why)
    for key, (unit, why) in failed.items():
        change = changes.get(key) or _untested(key, CellValues(unit), None, Outcome.UNKNOWN)
        if change.outcome not in (Outcome.LOST, Outcome.WORSE):
            changes[key] = replace(change, outcome=Outcome.UNKNOWN, reason=why)


def _untested(
    key: Key, first: CellValues | None, second: CellValues | None, outcome: Outcome, reason: str = ""
) -> Change:
    """The change of a cell whose values were not compared."""
    sides = [side.values if side else [] for side in (first, second)]
    before, after = _medians(*sides)
    ratio = after / before if before and after else 1.0
    unit = (first or second or CellValues()).unit
    runs = (len(sides[0]), len(sides[1]))
    return Change(key, unit, outcome, before, after, ratio, runs=runs, reason=reason)


def _medians(before: Sequence[float], after: Sequence[float]) -> tuple[float | None, float | None]:
    return statistics.median(before) if before else None, statistics.median(after) if after else None


def _why_lost(key: Key, present: int, after: Sequence[Document]) -> str:
    """Why runs lack a value, and how many of several."""
    reasons = dict.fromkeys(
        result.reason
        for document in after for result in document.testcases
        if result.name == key.testcase and result.reason
    )  # fmt: skip
    why = "; ".join(list(reasons)[:_REASONS])
    if len(after) == 1:
        return why
    extent = f"no value in {len(after) - present} of {many(len(after), 'run')} after"
    return f"{extent}: {why}" if why else extent


def _badness(change: Change) -> tuple[int, float, Key]:
    """What changes are ordered by: the outcome, and how large they are."""
    order: Sequence[Outcome] = (
        Outcome.LOST, Outcome.WORSE, Outcome.BETTER, Outcome.UNKNOWN, Outcome.BUSY, Outcome.SAME,
        Outcome.ADDED,
    )  # fmt: skip
    is_better = change.outcome is Outcome.BETTER  # of these, the largest change is first
    return order.index(change.outcome), -change.change if is_better else change.change, change.key
