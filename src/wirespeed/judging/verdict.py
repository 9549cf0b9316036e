"""Verdicts in one order, which all views and exit codes share, and the judgement on one value."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum

from ..errors import ExitCode
from ..hardware.topology import LinkKind
from ..measurement import Unit
from ..results.cells import Key
from ..terminal import brief
from .suspects import Culprit


class Verdict(StrEnum):
    """Whether a value is as expected; the worst first."""

    IMPLAUSIBLE = "implausible"  #: above the limit of the links
    FAIL = "fail"
    WARN = "warn"
    BUSY = "busy"  #: not judged: another process used the device
    INTERRUPTED = "interrupted"  #: not judged: the run ended before its value was measured
    NOT_JUDGED = "unknown"  #: no range is known
    UNKNOWN = "unknown"  #: the same, by its word in files and JSON
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
    def exit_code(self) -> ExitCode:
        """The exit code of a command that judges."""
        if self.is_failure:
            return ExitCode.FAIL
        if not self.is_judged:
            return ExitCode.NOT_JUDGED
        return ExitCode.WARN if self.is_bad else ExitCode.PASS

    @property
    def word(self) -> str:
        """Its word on screens."""
        return _WORDS.get(self, self.value)


_WORDS = {Verdict.NOT_JUDGED: "not judged", Verdict.WAIVED: "skipped"}
_RANKS = {verdict: rank for rank, verdict in enumerate(Verdict)}
#: Verdicts that count only if there are no others.
_SILENT = (Verdict.BUSY, Verdict.NOT_JUDGED, Verdict.WAIVED)


def worst(verdicts: Iterable[Verdict]) -> Verdict:
    """The verdict on several values together: the worst.

    Values without a known range, of devices in use, and those that are waived, count only if there are no
    others; of no values nothing is known.
    """
    distinct = set(verdicts) or {Verdict.NOT_JUDGED}
    return min(distinct - set(_SILENT) or distinct, key=lambda verdict: verdict.rank)


#: Why values below the expected range fail, and why values that would pass get a warning.
BELOW_RANGE, BELOW_PEERS = "below the expected range", "below its peers"


@dataclass(frozen=True)
class Judgement:
    """The verdict on one cell; without row and column, on a testcase or run that failed as a whole.

    Attributes:
        key: Location of the cell.
        unit: Unit of the value.
        verdict: The verdict.
        value: Measured median in base units; None if there is none.
        limit: What the links allow, in the unit of the value.
        least: The lowest value that passes; for a latency, the highest.
        normal: The typical value.
        why: Reason if the verdict is not a pass.
        culprit: What explains a low value; None if nothing does.
        basis: Measurement of the same run that the range was derived from; empty if it is derived from the
            links.
        faster_than: Kind of the links whose assumed capacity the value exceeds; None if it exceeds none.
        reference: Whose published rates it was compared with, in words; empty if with none.
        most: The highest usual rate of its model; None if it is not known.
    """

    key: Key
    unit: Unit
    verdict: Verdict
    value: float | None = None
    limit: float | None = None
    least: float | None = None
    normal: float | None = None
    why: str = ""
    culprit: Culprit | None = None
    basis: str = ""
    faster_than: LinkKind | None = None
    reference: str = ""
    most: float | None = None

    def __repr__(self) -> str:
        value = "" if self.value is None else f", {self.value:.4g} {self.unit}"
        why = f": {self.explanation}" if self.explanation else ""
        return brief(f"Judgement {self.verdict}: {self.key.testcase} {self.key.place}{value}{why}")

    @property
    def explanation(self) -> str:
        """Why the verdict is not a pass, and the culprit, in words."""
        return self.why + (f": {self.culprit}" if self.culprit else "")

    @property
    def is_above(self) -> bool:
        """Whether the value is above what its links allow, known or assumed, so that it is not slow."""
        return self.verdict is Verdict.IMPLAUSIBLE or self.faster_than is not None

    @property
    def is_faster(self) -> bool:
        """Whether the value is higher than is usual for its model, which is never slow."""
        return self.most is not None and (self.value or 0.0) > self.most

    @property
    def margin(self) -> float:
        """Value over the lowest value that passes, inverted for a latency; 0 if no range is known."""
        if not self.value or not self.least:
            return 0.0
        return self.value / self.least if self.unit.more_is_better else self.least / self.value

    @property
    def severity(self) -> float:
        """By what values of one verdict are ordered: the share that all reports give, else the margin."""
        portion = share(self)
        is_share = portion is not None and self.unit.more_is_better and not self.is_above
        return portion.fraction if portion and is_share else self.margin


@dataclass(frozen=True)
class Share:
    """A value as a fraction of another one: all reports give shares in these words.

    Attributes:
        fraction: The value over ``whole``.
        of: What ``whole`` is: ``expected`` or ``limit``.
        whole: The typical value, or the limit, in the unit of the value.
    """

    fraction: float
    of: str
    whole: float

    def __str__(self) -> str:
        """The text: ``92% of expected``."""
        return f"{self.fraction:.0%} of {self.of}"


def share(judgement: Judgement) -> Share | None:
    """The share of what is expected; of the limit, if a value is above it or no range is known.

    None if neither is known, if only what is usual is known of the CPU, or there is no value.
    """
    if judgement.limit is None and judgement.basis:
        return None
    of, whole = "expected", judgement.normal
    if not whole or judgement.is_above:
        of, whole = "limit", judgement.limit
    return Share(judgement.value / whole, of, whole) if judgement.value is not None and whole else None
