"""The table of the numbers that decide verdicts, causes and changes, each with its meaning, its reason and
its source: a ``row`` in the file of its subject.
"""

from __future__ import annotations

from typing import NamedTuple, TypeVar

#: Source of a threshold that no publication gives.
CHOSEN = "chosen"
Number = TypeVar("Number", int, float)


class Threshold(NamedTuple):
    """A number that decides something.

    Attributes:
        value: The number.
        subject: What it is about; a heading of the documentation.
        meaning: What it separates.
        reason: Why it is this number.
        source: Where it is from, ``chosen`` if no publication gives one.
        unit: Its unit: ``B``, ``B/s``, ``s``, ``%``; empty for a fraction or a number.
    """

    value: float
    subject: str
    meaning: str
    reason: str
    source: str
    unit: str


#: The rows of the files of this folder that were imported, in their order.
ROWS: list[Threshold] = []


def row(
    value: Number, subject: str, meaning: str, reason: str, source: str = CHOSEN, *, unit: str = ""
) -> Number:
    """The number of a new row of the table."""
    ROWS.append(Threshold(value, subject, meaning, reason, source, unit))
    return value
