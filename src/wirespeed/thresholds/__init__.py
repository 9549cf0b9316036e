"""The table of the numbers that decide verdicts, causes and changes, each with its meaning, its reason and
its source: a row is a ``Threshold`` in the file of its subject.
"""

from __future__ import annotations

#: Source of a threshold that no publication gives.
CHOSEN = "chosen"


class Threshold(float):
    """A number that decides a verdict.

    Attributes:
        subject: What it is about; a heading of the documentation.
        meaning: What it separates.
        reason: Why it is this number.
        source: Where it is from, ``chosen`` if no publication gives one.
        unit: Its unit: ``B``, ``B/s``, ``s``, ``%``; empty for a fraction or a number.
    """

    def __new__(
        cls, value: float, subject: str, meaning: str, reason: str, source: str = CHOSEN, *, unit: str = ""
    ) -> Threshold:
        """A threshold with this value."""
        self = super().__new__(cls, value)
        self.subject, self.meaning, self.reason = subject, meaning, reason
        self.source, self.unit = source, unit
        return self

    subject: str
    meaning: str
    reason: str
    source: str
    unit: str
