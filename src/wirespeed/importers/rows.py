"""Rows of numbers, as most tools print them, and the curves over the size of a message that they make."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence

from ..measurement import Unit
from ..units import format_size
from .log import INCOMPLETE, FoundLog, FoundTable, number, scaled, text


def numbers(line: str) -> list[float | None] | None:
    """The numbers with which a line begins; None if there are none. A remark may follow; stars are bold."""
    found: list[float | None] = []
    for word in line.split():
        try:
            found.append(number(word.strip("*")))
        except ValueError:
            break
    return found or None


def size_of(value: float | None) -> int | None:
    """A number as a size in bytes; None if it is none."""
    return int(value) if value is not None and value == int(value) and 0 <= value < 2**60 else None


def in_units(values: Mapping[int, float | None], scale: float) -> dict[int, float | None]:
    """The values of each size in base units."""
    return dict(zip(values, scaled(values.values(), scale), strict=True))


def doubt(log: FoundLog, what: str) -> None:
    """Note that a log may lack something, which is no failure."""
    log.warnings.append(f"{INCOMPLETE}: {text(what)}")


def parts(lines: Sequence[str], begin: re.Pattern[str], row: re.Pattern[str]) -> Iterator[Sequence[str]]:
    """Split lines at those that begin a new table: the first one after a row.

    Titles and headings of one table follow each other; an excerpt may have only some of them.
    """
    start, filled = 0, False
    for i, line in enumerate(lines):
        if filled and begin.match(line):
            yield lines[start:i]
            start, filled = i, False
        filled = filled or bool(row.match(line))
    yield lines[start:]


def curve(
    testcase: str,
    key: str,
    title: str,
    rows: Mapping[str, Mapping[int, float | None]],
    unit: Unit,
    axis: str,
    why_not: str = "",
) -> FoundTable:
    """A table over the size of a message, one row for each quantity.

    Args:
        testcase, key, title, unit, why_not: As in ``FoundTable``.
        rows: Label -> size in bytes -> value in base units.
        axis: Name of the axis of the rows.
    """
    sizes = sorted({size for values in rows.values() for size in values})
    return FoundTable(
        testcase, tuple(tuple(values.get(size) for size in sizes) for values in rows.values()),
        tuple(rows), tuple(map(format_size, sizes)), (axis, "message"), unit, key, text(title),
        why_not=why_not, positions=tuple(map(float, sizes)),
    )  # fmt: skip
