"""Comparison of several runs with the first: what changed by link and device, then by testcase."""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from ...document import Document
from ...errors import UsageError
from ...judging.localise import Observation, localise
from ...judging.path_kinds import path_kind
from ...measurement import Unit
from ...results.cells import Key, Placed, placed
from ...results.compare import Change, Comparison, Outcome, compare
from ...statistics.summary import median
from ...units import fitting, many
from ..comparisons import CHANGED
from ..findings import GLANCE, SIGNS, css_of, marked, number
from .deviation import step

#: Maximum number of changed cells shown for each run.
_MOST_CELLS = 40


@dataclass(frozen=True)
class Moved:
    """Changed cells, as texts: one cell, or all of a link, device or kind of path.

    Attributes:
        where: Location of the cell, or name of the place.
        css: CSS class of the outcome.
        outcome: The outcome, with its sign.
        change: Relative difference; of several cells the median change of speed; empty if a value is missing.
        worst: Location of the most changed of several cells.
        values: Both values of the cell, or of the most changed one.
        cells: Number of cells.
    """

    where: str
    css: str
    outcome: str
    change: str
    worst: str
    values: str
    cells: str


@dataclass(frozen=True)
class Changes:
    """Changes from the first run to another.

    Attributes:
        index: Index of the other run in the page.
        summary: Number of cells by outcome.
        css: CSS class of the worst outcome.
        places: Changes by link, device and kind of path.
        rows: The changed cells, the worst first.
        more: Number of omitted rows; empty if none are.
        is_comparable: Whether the run can be compared with the first; if not, the summary says why.
        differences: What differs between this run and the first.
    """

    index: int
    summary: str
    css: str
    places: tuple[Moved, ...] = ()
    rows: tuple[Moved, ...] = ()
    more: str = ""
    is_comparable: bool = True
    differences: tuple[str, ...] = ()


@dataclass(frozen=True)
class Against:
    """A table of another run, compared with that of the first.

    Attributes:
        css: CSS class of the colour of its most changed cell.
        change: Relative difference of the medians.
        worst: The most changed cell; empty without a significant change.
    """

    css: str = ""
    change: str = ""
    worst: str = ""


@dataclass(frozen=True)
class ComparedTable:
    """A table in all runs.

    Attributes:
        name: Name of the table.
        first: Its median in the first run.
        others: The other runs.
        extreme: The largest relative change of a cell; 0 without a significant one.
    """

    name: str
    first: str
    others: tuple[Against, ...]
    extreme: float


@dataclass(frozen=True)
class Compared:
    """Content of the comparison.

    Attributes:
        runs: The changes of each run, the first one included.
        changed, same: Tables with significant changes, the most changed first, and those without.
    """

    runs: tuple[Changes, ...]
    changed: tuple[ComparedTable, ...]
    same: tuple[ComparedTable, ...]

    @property
    def differing(self) -> list[Changes]:
        """The runs with changed cells."""
        return [run for run in self.runs if run.rows]


def letter(index: int) -> str:
    """Letter of a run or model in a page: A, B, ..., Z, A1, ..."""
    return "ABCDEFGHIJKLMNOPQRSTUVWXYZ"[index % 26] + (str(index // 26) if index >= 26 else "")


def compared(documents: Sequence[Document]) -> Compared:
    """The content of the comparison of all runs with the first."""
    first, *others = documents
    runs = [Changes(0, "reference", "")]
    comparisons: list[Comparison | None] = []
    for i, other in enumerate(others, 1):
        try:
            comparison = compare(first, other)
        except UsageError as error:
            runs.append(Changes(i, str(error), "unknown", is_comparable=False))
            comparisons.append(None)
            continue
        comparisons.append(comparison)
        runs.append(_changes(i, comparison))
    rows = _rows(first, comparisons)
    changed = sorted((row for row in rows if row.extreme), key=lambda row: -row.extreme)
    return Compared(tuple(runs), tuple(changed), tuple(row for row in rows if not row.extreme))


def _changes(index: int, comparison: Comparison) -> Changes:
    counts = Counter(change.outcome for change in comparison.changes)
    moved = comparison.those(*CHANGED)
    summary = ", ".join(f"{counts[o]} {o}" for o in (*CHANGED, Outcome.ADDED) if counts[o])
    if counts[Outcome.BUSY]:
        summary = ", ".join(filter(None, (summary, f"{counts[Outcome.BUSY]} not compared (busy)")))
    if same := counts[Outcome.SAME]:
        summary = f"{summary} of {many(len(comparison.changes), 'value')}" if summary else f"{same} same"
    return Changes(
        index,
        summary,
        next((SIGNS[outcome].css for outcome in CHANGED if counts[outcome]), "pass" if moved else "unknown"),
        tuple(_places(comparison)),
        tuple(map(_moved, moved[:_MOST_CELLS])),
        f"the worst {_MOST_CELLS} of {len(moved)}" if len(moved) > _MOST_CELLS else "",
        comparison.compared > 0,
        tuple(map(str, comparison.differences)),
    )


def _places(comparison: Comparison) -> Iterable[Moved]:
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


def _kinds(outcome: Outcome, changes: Sequence[Change], cells: dict[Key, Placed]) -> Iterable[Moved]:
    """Yield the changes that no link explains by kind of path."""
    kinds: dict[str, list[Change]] = {}
    for change in changes:
        place = cells.get(change.key)
        collective = place is not None and place.result.collective is not None
        kinds.setdefault(path_kind(change.key.testcase, collective=collective).title, []).append(change)
    for kind, of_kind in kinds.items():
        yield _place(kind, outcome, of_kind)


def _place(name: str, outcome: Outcome, changes: Sequence[Change]) -> Moved:
    extreme = max(changes, key=lambda change: abs(change.change))
    ratios = [change.change for change in changes if change.before and change.after]
    return Moved(
        name,
        SIGNS[outcome].css,
        marked(outcome),
        _percent(statistics.median(ratios)) if ratios else "",
        f"{extreme.key.testcase} {extreme.key.place}".strip(),
        _values(extreme),
        many(len(changes), "value"),
    )


def _moved(change: Change) -> Moved:
    return Moved(
        f"{change.key.testcase} {change.key.place}".strip(),
        css_of(change.outcome),
        marked(change.outcome),
        _difference(change),
        "",
        _values(change) + (f" ({change.reason})" if change.reason else ""),
        "",
    )


def _difference(change: Change) -> str:
    """The relative difference of both values; empty if one is missing."""
    return _percent(change.ratio - 1) if change.before and change.after else ""


def _percent(change: float) -> str:
    """A relative difference; without a sign if it rounds to nothing."""
    text = f"{change:+.1%}"
    return "0.0%" if text in ("-0.0%", "+0.0%") else text


def _values(change: Change) -> str:
    scale, unit = fitting(change.unit, [v for v in (change.before, change.after) if v])
    before, after = (number(v, scale, GLANCE) if v else "n/a" for v in (change.before, change.after))
    return f"{before} → {after} {unit}"


def _rows(first: Document, comparisons: Sequence[Comparison | None]) -> list[ComparedTable]:
    """Each table of the first run, compared with all others."""
    changes = [_by_table(comparison.changes if comparison else ()) for comparison in comparisons]
    tables = []
    for result in first.testcases:
        for table in result.tables:
            if not (values := sorted(table.values())):
                continue
            scale, unit = fitting(table.unit, [median(values)])
            by_run = [by_table.get((result.name, table.key), []) for by_table in changes]
            against = tuple(map(_against, by_run))
            extremes = (abs(c.change) or 1.0 for of_run in by_run for c in of_run if c.outcome in CHANGED)
            text = f"{number(median(values), scale, GLANCE)} {unit}"
            tables.append(ComparedTable(result.key(table), text, against, max(extremes, default=0.0)))
    return tables


def _by_table(changes: Iterable[Change]) -> dict[tuple[str, str], list[Change]]:
    by_table: dict[tuple[str, str], list[Change]] = {}
    for change in changes:
        by_table.setdefault((change.key.testcase, change.key.table), []).append(change)
    return by_table


def _against(changes: Sequence[Change]) -> Against:
    """A table of another run as texts: its median, and its most changed cell."""
    pairs = [
        (change.before, change.after)
        for change in changes
        if change.before and change.after and change.outcome is not Outcome.BUSY
    ]
    significant = [change for change in changes if change.outcome in CHANGED]
    if not pairs:
        return Against("w4" if significant else "", "", "no value" if significant else "")
    before, after = (median(sorted(values)) for values in zip(*pairs, strict=True))
    difference = _percent(after / before - 1)
    if not significant:
        return Against("", difference)
    extreme = max(significant, key=lambda change: (change.outcome is Outcome.LOST, abs(change.change)))
    text = _difference(extreme) or "no value"
    where = ", ".join(filter(None, (extreme.key.row, extreme.key.column)))
    speed = 1 + extreme.change if _difference(extreme) else 0.0
    return Against(step(speed), difference, f"{SIGNS[extreme.outcome].mark} {text} {where}")
