"""Colours of values: neutral where they are as expected, warm and dark below, cool above."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ...judging.verdict import Judgement, Verdict
from ...measurement import Unit
from ...results.cells import Key
from ...statistics.summary import median
from ...tables import Cell

#: Verdicts by the location of their cell.
Judgements = Mapping[Key, Judgement]
#: CSS class of each step, and its lowest speed relative to what is expected.
STEPS = (("w4", 0.0), ("w3", 0.55), ("w2", 0.75), ("w1", 0.9), ("n", 0.95), ("c1", 1.05), ("c2", 1.15))
_CLASSES = [css for css, _ in STEPS]
#: The slowest and the fastest step that a verdict allows.
_AT_MOST = {Verdict.FAIL: "w2", Verdict.WARN: "w1"}
#: Minimum number of values that are not judged from which one may stand out.
_MANY = 12
#: With fewer values, colours would compare a value with itself.
_FEW = 2


def step(speed: float, verdict: Verdict = Verdict.PASS) -> str:
    """The CSS class of a speed relative to what is expected, and of a verdict on it.

    Args:
        speed: 1.0 is what is expected; 0.5 is half the rate, or twice the time.
        verdict: The verdict; a bad value is never neutral.

    Returns:
        A class of ``STEPS``.
    """
    index = max(i for i, (_, least) in enumerate(STEPS) if speed >= least)
    if verdict is Verdict.IMPLAUSIBLE:
        return _CLASSES[-1]
    if verdict in _AT_MOST:
        index = min(index, _CLASSES.index(_AT_MOST[verdict]))
    return _CLASSES[index]


@dataclass(frozen=True)
class ColorScale:
    """What the colours of comparable values are relative to.

    Attributes:
        unit: Unit of the values.
        center: Typical speed of the values that pass, relative to the typical value of their expected ranges.
        middle: Median of the values that are not judged; None if they are too few to compare.
        colored: Whether there are enough values for colours at all.
    """

    unit: Unit
    center: float = 1.0
    middle: float | None = None
    colored: bool = True

    @classmethod
    def of(cls, unit: Unit, values: Sequence[tuple[Cell, Judgement | None]]) -> ColorScale:
        """Find what is expected of some comparable cells.

        Args:
            unit: Unit of the values.
            values: The cells with their verdicts.
        """
        passed, others = [], []
        known = [(cell.value, judgement) for cell, judgement in values if cell.value]
        for value, judgement in known:
            if judgement and judgement.normal and judgement.verdict is Verdict.PASS:
                passed.append(_speed(unit, value, judgement.normal))
            elif judgement is None or judgement.verdict is Verdict.UNKNOWN:
                others.append(value)
        return cls(
            unit,
            median(sorted(passed)) if passed else 1.0,
            median(sorted(others)) if len(others) >= _MANY else None,
            len(known) > _FEW,
        )

    def css(self, value: float, judgement: Judgement | None) -> str:
        """The CSS class of a value; empty without colour.

        Args:
            value: A value in base units.
            judgement: The verdict on it.
        """
        if not self.colored or not value:
            return ""
        verdict = judgement.verdict if judgement else Verdict.UNKNOWN
        if judgement and judgement.normal:
            return step(_speed(self.unit, value, judgement.normal) / self.center, verdict)
        if verdict is Verdict.UNKNOWN and self.middle:
            return step(_speed(self.unit, value, self.middle))
        return ""


def _speed(unit: Unit, value: float, expected: float) -> float:
    """A value relative to an expected one, as a speed."""
    return value / expected if unit.more_is_better else expected / value
