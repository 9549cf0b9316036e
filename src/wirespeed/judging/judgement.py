"""The verdict on one cell."""

from __future__ import annotations

from dataclasses import dataclass

from ..measurement import Unit
from ..results.cells import Key
from ..terminal import brief
from .culprits import Suspect, any_of
from .verdict import Verdict

#: Why values below the expected range fail, and why values that would pass get a warning.
BELOW_RANGE, BELOW_PEERS = "below the expected range", "below its peers"
#: Why the value of a size gets a warning, whatever its limit is.
BELOW_NEIGHBOUR = "far slower than a neighbouring size"


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
        culprits: The devices or links of which one explains a low value; empty if none does.
        basis: Measurement of the same run that the range was derived from; empty if it is derived from the
            links.
    """

    key: Key
    unit: Unit
    verdict: Verdict
    value: float | None = None
    limit: float | None = None
    least: float | None = None
    normal: float | None = None
    why: str = ""
    culprits: tuple[Suspect, ...] = ()
    basis: str = ""

    def __repr__(self) -> str:
        value = "" if self.value is None else f", {self.value:.4g} {self.unit}"
        why = f": {self.explanation}" if self.explanation else ""
        return brief(f"Judgement {self.verdict}: {self.key.testcase} {self.key.place}{value}{why}")

    @property
    def explanation(self) -> str:
        """Why the verdict is not a pass, and the culprits, for people."""
        return self.why + (f": {any_of(self.culprits)}" if self.culprits else "")

    @property
    def margin(self) -> float:
        """Value over the lowest value that passes, inverted for a latency; 0 if no range is known."""
        if not self.value or not self.least:
            return 0.0
        return self.value / self.least if self.unit.more_is_better else self.least / self.value
