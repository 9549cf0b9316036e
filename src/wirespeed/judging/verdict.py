"""The verdict on a value, a testcase or a run: one order, which all views and exit codes share."""

from __future__ import annotations

from collections.abc import Iterable
from enum import StrEnum


class Verdict(StrEnum):
    """Whether a value is as expected; the worst first."""

    IMPLAUSIBLE = "implausible"  #: above the limit of the links
    FAIL = "fail"
    WARN = "warn"
    BUSY = "busy"  #: not judged: another process used the device
    INTERRUPTED = "interrupted"  #: not judged: the run ended before its value was measured
    UNKNOWN = "unknown"  #: not judged: no range is known
    PASS = "pass"
    WAIVED = "waived"  #: not possible on this machine, or accepted by an override

    @property
    def rank(self) -> int:
        """Position in the order; 0 is the worst."""
        return _RANKS[self]

    @property
    def is_bad(self) -> bool:
        """Whether it is a warning or worse."""
        return self.rank <= Verdict.WARN.rank

    @property
    def is_failure(self) -> bool:
        """Whether the value, the testcase or the run failed."""
        return self.rank <= Verdict.FAIL.rank

    @property
    def is_worse(self) -> bool:
        """Whether the value is worse than expected, not better than possible."""
        return self in (Verdict.FAIL, Verdict.WARN)

    @property
    def is_judged(self) -> bool:
        """Whether the value was compared with anything."""
        return self.is_bad or self is Verdict.PASS

    @property
    def is_unjudged(self) -> bool:
        """Whether nothing is known of what was measured, or would have been."""
        return not self.is_judged and self is not Verdict.WAIVED

    @property
    def word(self) -> str:
        """What people read."""
        return _WORDS.get(self, self.value)


_WORDS = {Verdict.UNKNOWN: "not judged", Verdict.WAIVED: "skipped"}
_RANKS = {verdict: rank for rank, verdict in enumerate(Verdict)}
#: Verdicts that count only if there are no others.
_SILENT = (Verdict.BUSY, Verdict.UNKNOWN, Verdict.WAIVED)


def worst(verdicts: Iterable[Verdict]) -> Verdict:
    """Return the verdict on several values together: the worst.

    Values without a known range, of devices in use, and those that are waived, count only if there are no
    others; of no values nothing is known.
    """
    distinct = set(verdicts)
    return min(distinct - set(_SILENT) or distinct, key=lambda verdict: verdict.rank, default=Verdict.UNKNOWN)
