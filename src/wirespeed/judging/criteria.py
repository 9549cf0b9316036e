"""What a run is judged by: overrides, a baseline, its tolerance, gates, what a machine should have."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from ..thresholds.changes import TOLERANCE
from ..units import format_age

if TYPE_CHECKING:
    from ..document import Document
    from ..results.baseline import Baseline
    from ..results.inventory import Inventory
    from ..results.overrides import Override
    from .gates import GateSet


@dataclass(frozen=True)
class Criteria:
    """What values are judged by, in addition to the limits of the links.

    Attributes:
        overrides: Accepted deviations.
        baseline: Values that good machines of the same model reach.
        tolerance: A value fails if it is below its baseline by more than this fraction
            (``TOLERANCE``).
        ignore_busy: Whether to judge devices that another process used, too.
        expected: What each host should have; None: nothing is expected.
        max_age: Older runs are not judged.
        gates: Sets of published gates to compare with.
        allow_simulated: Whether a simulated run may pass in formats that programs read.
        lacking: Criteria that were asked for and cannot be used, each with the reason.
    """

    overrides: tuple[Override, ...] = ()
    baseline: Baseline | None = None
    tolerance: float = TOLERANCE
    ignore_busy: bool = False
    expected: Inventory | None = None
    max_age: MaxAge | None = None
    gates: tuple[GateSet, ...] = ()
    allow_simulated: bool = False
    lacking: tuple[str, ...] = ()


#: Judge by the limits of the links and their expected ranges only.
BY_LIMITS = Criteria()


@dataclass(frozen=True)
class MaxAge:
    """The age from which on a run is not judged.

    Attributes:
        seconds: Maximum age, in s.
        now: Time of the judgement, in s since 1970.
    """

    seconds: float
    now: float

    def stale(self, document: Document) -> str:
        """Why a run is not judged: too old, of unknown age, or dated in the future; else nothing."""
        ended = end_of(document)
        if ended is None:
            return "the time of the run is unknown, so it may be older than " + format_age(self.seconds)
        age = self.now - ended
        if age > self.seconds:
            return f"the run is older than {format_age(self.seconds)} ({dated(ended)})"
        if age < -self.seconds:
            return f"the run is dated in the future ({dated(ended)}): check the clocks"
        return ""


def end_of(document: Document) -> float | None:
    """The end of a run, or its start if it never ended, in s since 1970; None if unknown."""
    for text in (document.ended, document.started):
        try:
            time = datetime.fromisoformat(text)
            return (time if time.tzinfo else time.replace(tzinfo=UTC)).timestamp()
        except (ValueError, OverflowError):
            continue
    return None


def dated(time: float) -> str:
    """A time in s since 1970 as a date and time of UTC."""
    return datetime.fromtimestamp(time, UTC).strftime("%Y-%m-%d %H:%M UTC")
