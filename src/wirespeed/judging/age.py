"""Runs that are too old to say anything about a machine: the timer that should have repeated them is dead."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import UTC, datetime

from ..document import Document
from ..units import format_age
from .verdict import Verdict
from .verdicts import Check


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
        """Return why a run is not judged: too old, of unknown age, or dated in the future; else nothing."""
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
    """Return the end of a run, or its start if it never ended, in s since 1970; None if unknown."""
    for text in (document.ended, document.started):
        try:
            time = datetime.fromisoformat(text)
            return (time if time.tzinfo else time.replace(tzinfo=UTC)).timestamp()
        except (ValueError, OverflowError):
            continue
    return None


def dated(time: float) -> str:
    """Return a time in s since 1970 as a date and time of UTC."""
    return datetime.fromtimestamp(time, UTC).strftime("%Y-%m-%d %H:%M UTC")


def unjudged(check: Check, why: str) -> Check:
    """Return a Check that judges nothing, for one reason."""
    judgements = tuple(
        judgement if judgement.verdict is Verdict.WAIVED
        else replace(
            judgement, verdict=Verdict.UNKNOWN, why=why, least=None, normal=None, culprits=(), basis=""
        )
        for judgement in check.judgements
    )  # fmt: skip
    testcases = {
        name: verdict if verdict is Verdict.WAIVED else Verdict.UNKNOWN
        for name, verdict in check.testcases.items()
    }
    return replace(
        check, judgements=judgements, testcases=testcases, culprits=(), accepted={}, causes={}, wrong=(),
        doubts=(), stale=why,
    )  # fmt: skip
