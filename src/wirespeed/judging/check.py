"""What was judged of a run: verdicts on its values, testcases and devices, and what is missing or wrong."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field

from ..errors import ExitCode
from ..results.overrides import Override
from ..terminal import Tabular, brief
from .baseline_use import BaselineUse
from .dips import Dip
from .gates import GateComparison
from .inventory import Missing
from .localise import WrongData
from .path_kinds import Uncovered
from .suspects import Culprit
from .verdict import Judgement, Verdict, worst


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
    def exit_code(self) -> ExitCode:
        """The exit code that ``wirespeed check`` would end with: a pass of a simulated run proves nothing."""
        code = self.verdict.exit_code
        return ExitCode.NOT_JUDGED if self.simulated and code is ExitCode.PASS else code

    @property
    def ok(self) -> bool:
        """Whether the verdict on a machine is pass, without warnings; never of a simulated one."""
        return self.exit_code is ExitCode.PASS

    @property
    def verdict(self) -> Verdict:
        """Verdict on the run: fail, warn, busy, interrupted or pass; unknown if nothing was judged.

        A failed gate, or what is missing, fails the run; a defect that the facts show is at least a warning.
        If no value of a kind of path was judged, the run is not judged, and a log is a warning. With
        ``doubts``, values that are as expected are a warning; if none was compared with a set of gates,
        nothing is known.
        """
        if self.stale:
            return Verdict.NOT_JUDGED
        of_run = (judgement.verdict for judgement in self.judgements if not judgement.key.testcase)
        values = self.nodes or worst((*self.testcases.values(), *of_run))
        absent = {missing.verdict for missing in self.missing}
        if values.is_failure or Verdict.FAIL in absent or any(compared.failed for compared in self.gates):
            return Verdict.FAIL
        if values is Verdict.WARN or Verdict.WARN in absent or self.defects:
            return Verdict.WARN
        if values is not Verdict.PASS:
            return Verdict.NOT_JUDGED if values is Verdict.WAIVED else values
        if self.uncovered:
            return worst(lost.of_run for lost in self.uncovered)
        if self.doubts:
            return Verdict.WARN
        return Verdict.PASS if all(compared.compared for compared in self.gates) else Verdict.NOT_JUDGED
