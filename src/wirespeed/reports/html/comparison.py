"""Pages of comparisons: several runs compared with the first, and the runs of two sides."""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

from ...document import Document
from ...errors import UsageError
from ...judging.localise import Observation, localise
from ...judging.path_kinds import path_kind
from ...measurement import Unit
from ...results.cells import Key, Placed, placed
from ...results.compare import Change, Comparison, Conclusion, Outcome, compare
from ...results.read_many import Unreadable
from ...statistics import grouped, median
from ...units import many
from ..comparisons import CHANGED, LISTED, counted, difference, notes, percent, remarks, remarks_on, side_of
from ..looks import SIGNS
from ..style import SIMULATED
from ..values import quantity
from .charts import step
from .templates import rendered, source

#: Place of changed cells, their outcome and number, the median change of their speed, and the most changed.
Moved = tuple[str, Outcome, int, str, Change]


@dataclass(frozen=True)
class ComparedRun:
    """A run, compared with the first.

    Attributes:
        index: Index of the run in the page.
        comparison: The comparison; None for the first run, and for one that cannot be compared.
        about: Why there is none.
    """

    index: int
    comparison: Comparison | None = None
    about: str = ""

    @property
    def is_comparable(self) -> bool:
        """Whether any value was compared with one of the first run."""
        return self.comparison is not None and self.comparison.compared > 0

    @cached_property
    def rows(self) -> list[Change]:
        """The changed cells, the worst first."""
        return self.comparison.those(*CHANGED) if self.comparison else []

    @property
    def css(self) -> str:
        """CSS class of the worst outcome."""
        if self.rows:
            return SIGNS[min((change.outcome for change in self.rows), key=CHANGED.index)].css
        return "unknown" if self.index else ""

    @property
    def summary(self) -> str:
        """Number of cells by outcome."""
        if self.comparison is None:
            return self.about
        counts = Counter(change.outcome for change in self.comparison.changes)
        summary = ", ".join(f"{counts[o]} {o}" for o in (*LISTED, Outcome.ADDED) if counts[o])
        if counts[Outcome.BUSY]:
            summary = ", ".join(filter(None, (summary, f"{counts[Outcome.BUSY]} not compared (busy)")))
        if same := counts[Outcome.SAME]:
            total = many(len(self.comparison.changes), "value")
            summary = f"{summary} of {total}" if summary else f"{same} same"
        return summary

    @cached_property
    def places(self) -> list[Moved]:
        """The changes by link, device and kind of path."""
        return list(_places(self.comparison)) if self.comparison else []


#: CSS class of the most changed cell of a table, relative difference of the medians, and that cell; texts are
#: empty without a significant change.
Against = tuple[str, str, str]


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
        runs: All runs, the first one included.
        changed, same: Tables with significant changes, the most changed first, and those without.
    """

    runs: tuple[ComparedRun, ...]
    changed: tuple[ComparedTable, ...]
    same: tuple[ComparedTable, ...]

    @property
    def differing(self) -> list[ComparedRun]:
        """The runs with changed cells."""
        return [run for run in self.runs if run.rows]


def letter(index: int) -> str:
    """Letter of a run or model in a page: A, B, ..., Z, A1, ..."""
    return "ABCDEFGHIJKLMNOPQRSTUVWXYZ"[index % 26] + (str(index // 26) if index >= 26 else "")


def compared(documents: Sequence[Document]) -> Compared:
    """The content of the comparison of all runs with the first."""
    first, *others = documents
    runs = [ComparedRun(0, about="reference")]
    for i, other in enumerate(others, 1):
        try:
            runs.append(ComparedRun(i, compare(first, other)))
        except UsageError as error:
            runs.append(ComparedRun(i, about=str(error)))
    rows = [*_rows(first, [run.comparison for run in runs[1:]])]
    changed = sorted((row for row in rows if row.extreme), key=lambda row: -row.extreme)
    return Compared(tuple(runs), tuple(changed), tuple(row for row in rows if not row.extreme))


def _places(comparison: Comparison) -> Iterator[Moved]:
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


def _kinds(outcome: Outcome, changes: Sequence[Change], cells: dict[Key, Placed]) -> Iterator[Moved]:
    """Yield the changes that no link explains by kind of path."""
    collectives = {key for key, place in cells.items() if place.result.collective is not None}
    kinds = (path_kind(change.key.testcase, collective=change.key in collectives) for change in changes)
    for kind, of_kind in grouped(zip(kinds, changes, strict=True)).items():
        yield _place(kind.title, outcome, of_kind)


def _place(name: str, outcome: Outcome, changes: Sequence[Change]) -> Moved:
    extreme = max(changes, key=lambda change: abs(change.change))
    ratios = [change.change for change in changes if change.before and change.after]
    return name, outcome, len(changes), percent(statistics.median(ratios)) if ratios else "", extreme


def _rows(first: Document, comparisons: Sequence[Comparison | None]) -> Iterator[ComparedTable]:
    """Yield each table of the first run, compared with all others."""
    changes = [
        grouped((change.key[:2], change) for change in (comparison.changes if comparison else ()))
        for comparison in comparisons
    ]
    for result in first.testcases:
        for table in result.tables:
            if not (values := sorted(table.values())):
                continue
            by_run = [by_table.get((result.name, table.key), []) for by_table in changes]
            against = tuple(map(_against, by_run))
            extremes = (abs(c.change) or 1.0 for of_run in by_run for c in of_run if c.outcome in CHANGED)
            text = quantity(median(values), table.unit)
            yield ComparedTable(result.key(table), text, against, max(extremes, default=0.0))


def _against(changes: Sequence[Change]) -> Against:
    """A table of another run as texts: its median, and its most changed cell."""
    pairs = [
        (change.before, change.after)
        for change in changes
        if change.before and change.after and change.outcome is not Outcome.BUSY
    ]
    significant = [change for change in changes if change.outcome in CHANGED]
    if not pairs:
        return "w4" if significant else "", "", "no value" if significant else ""
    before, after = (median(sorted(values)) for values in zip(*pairs, strict=True))
    typical = percent(after / before - 1)
    if not significant:
        return "", typical, ""
    extreme = max(significant, key=lambda change: (change.outcome is Outcome.LOST, abs(change.change)))
    text = difference(extreme) or "no value"
    where = ", ".join(filter(None, (extreme.key.row, extreme.key.column)))
    speed = 1 + extreme.change if difference(extreme) else 0.0
    return step(speed), typical, f"{SIGNS[extreme.outcome].mark} {text} {where}"


def sides_page(comparison: Comparison, unreadable: Sequence[Unreadable] = ()) -> str:
    """A page that works offline.

    Args:
        comparison: The comparison.
        unreadable: The files that cannot be read.
    """
    others = [change for change in comparison.changes if change.outcome not in LISTED]
    word, css = {
        Conclusion.WORSE: ("CHANGED", "fail"),
        Conclusion.UNKNOWN: ("CANNOT TELL", "unknown"),
        Conclusion.NOT_WORSE: ("CHANGED" if comparison.those(*CHANGED) else "SAME", "pass"),
        Conclusion.NOTHING: ("NOT COMPARED", "unknown"),
    }[comparison.conclusion]
    return rendered(
        "sides.html", source("style.css"), title=f"{word} · comparison",
        word=word,
        css=css,
        summary=counted(comparison, unreadable),
        simulated=SIMULATED if comparison.simulated else "",
        sides=[
            (name, side_of(side), list(remarks(side)))
            for name, side in (("A, before", comparison.before), ("B, after", comparison.after))
        ],
        remarks=[
            *(f"unreadable: {file}" for file in unreadable),
            *remarks_on(comparison),
        ],
        differences=list(map(str, comparison.differences)),
        tables=[("Changes, the worst first", comparison.those(*LISTED)), ("Values without a change", others)],
        notes=list(notes(comparison)),
    )  # fmt: skip
