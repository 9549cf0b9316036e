"""Why a comparison of runs cannot tell whether a cell got worse: noise, failures on both sides."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ..document import Document
from ..measurement import Unit
from ..tables import SMALLEST
from ..thresholds.changes import NOISY, STRAY
from .cells import Key, placed
from .comparison_evidence import CellValues

#: How a cell failed whose data were wrong, and one that has no value because of an error or a time-out.
_WRONG, _NO_VALUE = "wrong data", "no value"


def _failures(documents: Sequence[Document]) -> dict[Key, tuple[Unit, str]]:
    """The cells that failed in one of the Documents, with their unit: wrong data, or no value."""
    failed: dict[Key, tuple[Unit, str]] = {}
    for key, cell, unit, result in (measured for document in documents for measured in placed(document)):
        if cell.is_wrong:
            failed[key] = unit, _WRONG
        elif cell.value is None and result.status.is_failure:
            failed.setdefault(key, (unit, _NO_VALUE))
    return failed


def lost_testcases(
    first: Mapping[Key, CellValues], second: Mapping[Key, CellValues], after: Sequence[Document]
) -> set[str]:
    """The testcases that have values on one side, and were started on the other but have no values there."""
    names = {key.testcase for key in first}
    if not any(document.interrupted or not document.testcases for document in after):
        names &= {result.name for document in after for result in document.testcases}
    return names - {key.testcase for key in second}


def failed_twice(before: Sequence[Document], after: Sequence[Document]) -> dict[Key, tuple[Unit, str]]:
    """The cells that failed on both sides or have wrong data after: their unit, and how they failed."""
    first, second = _failures(before), _failures(after)
    return {
        key: (unit, f"{first[key][1]} before, {how} after" if key in first else f"{how} after")
        for key, (unit, how) in second.items() if key in first or how == _WRONG
    }  # fmt: skip


def too_noisy(loss: float, half_width: float, least: float) -> str:
    """Why it is undecided whether a value got worse; empty if it is decided.

    A slower value of equal variation never gets a milder answer: a narrow interval counts only if it has a
    loss.

    Args:
        loss: Largest loss in its interval, as a fraction.
        half_width: Half of the interval, as a fraction.
        least: Minimum relative change.
    """
    most = max(least, NOISY)
    is_noisy = max(loss, half_width) > most
    return f"too noisy to rule out a {100 * most:.3g}% change; compare more runs" if is_noisy else ""


def strays(first: CellValues, second: CellValues, least: float, *, paired: bool) -> str:
    """That a run after is much slower than all before (of its host, if hosts are paired); else empty."""
    most = max(least, STRAY)
    speeds = [
        [(host if paired else "", _speed(cell.value or SMALLEST, side.unit)) for host, cell in side.cells]
        for side in (first, second)
    ]
    slowest: dict[str, float] = {}
    for host, speed in speeds[0]:
        slowest[host] = min(speed, slowest.get(host, speed))
    if not any(speed < (1 - most) * slowest.get(host, 0.0) for host, speed in speeds[1]):
        return ""
    return f"a run after is over {100 * most:.3g}% slower than every run before; compare more runs"


def _speed(value: float, unit: Unit) -> float:
    return value if unit.more_is_better else 1 / value
