"""How measured values are written: rounded in one place, marked if something is special, and aligned."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from ..measurement import Unit
from ..tables import Cell
from ..units import fitting

#: Significant digits of values in tables, and where values are seen at a glance: overviews, plots, pages.
EXACT, GLANCE = 6, 3
#: Values from this on have no decimals, others at most ``_DECIMALS``.
_NO_DECIMALS, _DECIMALS = 10_000, 2


def number(value: float, scale: float = 1.0, digits: int = EXACT) -> str:
    """Format a value: ``12346``, ``396.18``, ``1.74``, ``0.396``; with ``GLANCE`` digits ``396``.

    Args:
        value: The value, in base units.
        scale: Base units per display unit.
        digits: Significant digits; at most two of them are decimals, and of values below 1 there are three.
            Digits before the point are never dropped.

    Returns:
        The number without its unit.
    """
    shown = value / scale
    size = abs(shown)
    if size < 1:
        return f"{shown:.{GLANCE}g}"
    decimals = 0 if size >= _NO_DECIMALS else min(_DECIMALS, max(0, digits - len(str(int(size)))))
    return f"{shown:.{decimals}f}"


def quantity(value: float, unit: Unit) -> str:
    """A value with a fitting unit, to be seen at a glance: ``396 GB/s``."""
    scale, name = fitting(unit, [value])
    return f"{number(value, scale, GLANCE)} {name}"


#: Mark of a slow cell (`driver.slow_rows.SLOW`), and of one with wrong elements -> its footnote.
FOOTNOTES = {
    "*": "* at least 1.5 times the fastest time of the phase, in every sample",
    "!": "! wrong elements in the result",
}


def mark(cell: Cell) -> str:
    """A key of ``FOOTNOTES``; empty for most cells."""
    return "*" if cell.is_slow else "!" if cell.value is not None and cell.wrong else ""


def footnotes(cells: Iterable[Cell]) -> list[str]:
    """The explanations of the marks of some cells, each with its mark."""
    marks = set(map(mark, cells))
    return [note for sign, note in FOOTNOTES.items() if sign in marks]


def aligned(rows: Sequence[Sequence[str]]) -> list[str]:
    """Rows of texts as lines: the first column flush left, the others flush right, 2 blanks apart."""
    first, *others = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return [
        label.ljust(first) + "".join(f"  {text:>{width}}" for text, width in zip(texts, others, strict=True))
        for label, *texts in rows
    ]
