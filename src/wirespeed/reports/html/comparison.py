"""The comparison of a page: several runs with the first one, or the runs of two sides."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from ...document import Document
from ...errors import UsageError
from ...results.compare import Change, Comparison, Outcome, compare
from ...units import many
from ..changed_places import ChangedPlace, changed_places
from ..comparisons import CHANGED, LISTED, notes, remarks_on
from ..looks import SIGNS


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
    def places(self) -> list[ChangedPlace]:
        """The changes by link, device and kind of path."""
        return list(changed_places(self.comparison)) if self.comparison else []

    @property
    def remarks(self) -> list[str]:
        """What else differs, what was not compared, and what is undecided."""
        return (
            [*map(str, self.comparison.differences), *remarks_on(self.comparison)] if self.comparison else []
        )


@dataclass(frozen=True)
class Compared:
    """Content of the comparison.

    Attributes:
        first: Name of the runs before.
        columns: Index of each run that has a comparison -> its name.
        runs: All runs, the first one included.
        notes: What a change is.
    """

    first: str
    columns: dict[int, str]
    runs: tuple[ComparedRun, ...]
    notes: tuple[str, ...]

    @property
    def differing(self) -> list[ComparedRun]:
        """The runs with changed cells."""
        return [run for run in self.runs if run.rows]


def letter(index: int) -> str:
    """Letter of a run or model in a page: A, B, ..., Z, A1, ..."""
    return "ABCDEFGHIJKLMNOPQRSTUVWXYZ"[index % 26] + (str(index // 26) if index >= 26 else "")


def compared(documents: Sequence[Document], labels: Sequence[str]) -> Compared:
    """The content of the comparison of all runs with the first, which have these names."""
    first, *others = documents
    runs = [ComparedRun(0, about="reference")]
    for i, other in enumerate(others, 1):
        try:
            runs.append(ComparedRun(i, compare(first, other)))
        except UsageError as error:
            runs.append(ComparedRun(i, about=str(error)))
    return _compared(runs, labels[0], dict(enumerate(labels[1:], 1)))


def compared_sides(comparison: Comparison, shown: int) -> Compared:
    """The content of the comparison of two sides; the page shows ``shown`` runs of the first side."""
    runs = [ComparedRun(i, about="before") for i in range(shown)]
    runs.append(ComparedRun(shown, comparison))
    return _compared(runs, "before", {shown: "after"})


def _compared(runs: Sequence[ComparedRun], first: str, columns: dict[int, str]) -> Compared:
    texts = next((tuple(notes(run.comparison)) for run in runs if run.comparison), ())
    return Compared(first, columns, tuple(runs), texts)
