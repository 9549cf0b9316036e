"""All verdicts on a run.

Runs that are too old to say anything about a machine: the timer that should have repeated them is dead.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime

from ..document import Document
from ..results.cells import Override
from ..terminal import Tabular, brief
from ..units import format_age
from .coverage import Uncovered
from .culprits import Culprit
from .inventory import Missing
from .localise import WrongData
from .omissions import BaselineUse
from .other_ways import Dip
from .verdict import GateComparison, Judgement, Verdict, worst

#: A value fails if it is below its baseline by more than this fraction, or by more than ``DEVIATIONS`` of the
#: baseline's deviations, whichever is larger.
TOLERANCE = 0.05


@dataclass(frozen=True)
class Check(Tabular):
    """All verdicts on a Document.

    Attributes:
        judgements: One per cell, the worst first.
        testcases: Testcase name -> the worst verdict of its cells.
        culprits: Devices and links that explain low cells.
        accepted: Override -> number of cells that it accepts.
        causes: Testcase name -> states of the hardware that may explain low values.
        wrong: Devices and paths that delivered wrong data.
        doubts: Why values that are as expected are no pass: what was not verified, or requested and not
            measured.
        baseline: What the baseline was compared with; None without one.
        simulated: Whether no hardware was measured.
        defects: What the facts show to be wrong, and where.
        gates: Comparisons with published gates.
        missing: What should be there and is not, the worst first.
        nodes: Verdict on the nodes of a qualification; None for other runs.
        dips: Sizes of curves that are far slower than a neighbouring one.
        stale: Why the run is not judged at all: its age; empty if it is.
        uncovered: Kinds of paths that were measured, and of which no value was judged.
    """

    judgements: tuple[Judgement, ...]
    testcases: Mapping[str, Verdict]
    culprits: tuple[Culprit, ...] = ()
    accepted: Mapping[Override, int] = field(default_factory=dict)
    causes: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    wrong: tuple[WrongData, ...] = ()
    doubts: tuple[str, ...] = ()
    baseline: BaselineUse | None = None
    simulated: bool = False
    defects: tuple[str, ...] = ()
    gates: tuple[GateComparison, ...] = ()
    missing: tuple[Missing, ...] = ()
    nodes: Verdict | None = None
    dips: tuple[Dip, ...] = ()
    stale: str = ""
    uncovered: tuple[Uncovered, ...] = ()

    def __repr__(self) -> str:
        counts = Counter(judgement.verdict for judgement in self.judgements)
        cells = ", ".join(f"{counts[verdict]} {verdict.word}" for verdict in Verdict if counts[verdict])
        causes = "".join(f"; likely cause: {culprit}" for culprit in self.culprits)
        kind = " (simulated)" if self.simulated else ""
        return brief(f"Check{kind}: {self.verdict.word}; values: {cells or 'none'}{causes}")

    @property
    def verdict(self) -> Verdict:
        """Verdict on the run: fail, warn, busy, interrupted or pass; unknown if nothing was judged.

        A failed gate, or what is missing, fails the run; a defect that the facts show is at least a warning.
        If no value of a kind of path was judged, the run is not judged. With ``doubts``, values that are as
        expected are a warning; if none was compared with a set of gates, nothing is known.
        """
        if self.stale:
            return Verdict.UNKNOWN
        of_run = (judgement.verdict for judgement in self.judgements if not judgement.key.testcase)
        values = self.nodes or worst((*self.testcases.values(), *of_run))
        absent = {missing.verdict for missing in self.missing}
        if values.is_failure or Verdict.FAIL in absent or any(compared.failed for compared in self.gates):
            return Verdict.FAIL
        if values is Verdict.WARN or Verdict.WARN in absent or self.defects:
            return Verdict.WARN
        if values is not Verdict.PASS:
            return Verdict.UNKNOWN if values is Verdict.WAIVED else values
        if self.uncovered:
            return worst(lost.verdict for lost in self.uncovered)
        if self.doubts:
            return Verdict.WARN
        return Verdict.PASS if all(compared.compared for compared in self.gates) else Verdict.UNKNOWN


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
