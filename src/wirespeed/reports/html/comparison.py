"""Comparison of several runs in one page: medians side by side, and significant changes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from ...document import Document
from ...errors import UsageError
from ...model import Unit
from ...results.compare import Change, Outcome, compare
from ...summary import median
from ...units import fitting
from .._grid import number

_TOLD = 40
_SIGNS = {Outcome.WORSE: "✖", Outcome.LOST: "✖", Outcome.BETTER: "✓"}
_CSS = {Outcome.WORSE: "fail", Outcome.LOST: "fail", Outcome.BETTER: "pass"}


@dataclass(frozen=True)
class Moved:
    """One changed cell, as texts.

    Parameters
    ----------
    where : str
        Testcase, table, row and column.
    css : str
        CSS class of the outcome.
    outcome : str
        The outcome, with its sign.
    before, after : str
        Both values with their unit.
    change : str
        Relative difference; empty if a value is missing.
    """

    where: str
    css: str
    outcome: str
    before: str
    after: str
    change: str


@dataclass(frozen=True)
class Changes:
    """Changes from the first run to another.

    Parameters
    ----------
    letter : str
        Letter of the other run.
    rows : tuple[Moved, ...]
        The changed cells, the worst first.
    more : str
        Number of omitted rows; empty if none are.
    """

    letter: str
    rows: tuple[Moved, ...]
    more: str


@dataclass(frozen=True)
class Compared:
    """Content of the comparison.

    Parameters
    ----------
    letters, summaries : tuple[str, ...]
        Letter and number of changes of each run.
    medians : tuple[tuple[str, tuple[str, ...]], ...]
        Name of each table, and one median per run.
    changes : tuple[Changes, ...]
        Changes from the first run to each other one.
    """

    letters: tuple[str, ...]
    summaries: tuple[str, ...]
    medians: tuple[tuple[str, tuple[str, ...]], ...]
    changes: tuple[Changes, ...]


def letter(index: int) -> str:
    """Return the letter of a run in a page: A, B, ..., Z, A1, ..."""
    return "ABCDEFGHIJKLMNOPQRSTUVWXYZ"[index % 26] + (str(index // 26) if index >= 26 else "")


def compared(documents: Sequence[Document]) -> Compared:
    """Compare all runs with the first."""
    first, *others = documents
    summaries, changes = ["reference"], []
    for i, other in enumerate(others, 1):
        try:
            comparison = compare(first, other)
        except UsageError as error:
            summaries.append(str(error))
            continue
        counts = Counter(change.outcome for change in comparison.changes)
        summaries.append(", ".join(f"{counts[o]} {o}" for o in Outcome if counts[o]))
        moved = comparison.those(Outcome.LOST, Outcome.WORSE, Outcome.BETTER)
        more = f"; the worst {_TOLD} of {len(moved)}" if len(moved) > _TOLD else ""
        changes.append(Changes(letter(i), tuple(map(_moved, moved[:_TOLD])), more))
    letters = tuple(map(letter, range(len(documents))))
    return Compared(letters, tuple(summaries), _medians(documents), tuple(changes))


def _medians(documents: Sequence[Document]) -> tuple[tuple[str, tuple[str, ...]], ...]:
    """Return the median over the cells of each table, one text per run."""
    found: dict[str, list[tuple[float, Unit] | None]] = {}
    for i, document in enumerate(documents):
        for result in document.testcases:
            for table in result.tables:
                if values := sorted(table.values()):
                    row = found.setdefault(result.key(table), [None] * len(documents))
                    row[i] = median(values), table.unit
    return tuple(
        (name, tuple(_against(values[0], value) for value in values)) for name, values in found.items()
    )


def _against(first: tuple[float, Unit] | None, value: tuple[float, Unit] | None) -> str:
    """Return a value and its relative difference from the first run."""
    if value is None:
        return ""
    scale, unit = fitting(value[1], [value[0]])
    text = f"{number(value[0], scale)} {unit}"
    return f"{text} ({value[0] / first[0] - 1:+.1%})" if first and first is not value and first[0] else text


def _moved(change: Change) -> Moved:
    """Return a changed cell as texts."""
    outcome = change.outcome
    scale, unit = fitting(change.unit, [v for v in (change.before, change.after) if v])
    before, after = (
        f"{number(value, scale)} {unit}" if value else "n/a" for value in (change.before, change.after)
    )
    return Moved(
        f"{change.key.testcase} {change.key.place}".strip(),
        _CSS.get(outcome, ""),
        f"{_SIGNS.get(outcome, '')} {outcome}",
        before,
        after,
        f"{change.after / change.before - 1:+.1%}" if change.before and change.after else "",
    )
