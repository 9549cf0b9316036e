"""How to show a run: width and detail, what values are judged by, and what a check found."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from ..document import Document
    from ..judging.age import MaxAge
    from ..judging.diagnosis import Diagnosis
    from ..judging.verdicts import Check
    from ..results.baseline import Baseline
    from ..results.inventory import Inventory
    from ..results.overrides import Override
    from ..results.published_gates import GateSet

#: Versions of nvbandwidth, and of its relative sailbandwidth.
DialectName = Literal[
    "0.4", "0.5", "0.6", "0.7", "0.8", "0.9", "0.10", "0.11", "sailbandwidth-2.1", "sailbandwidth-2.2.1"
]
SIMULATED = "SIMULATED: no hardware was measured"


@dataclass(frozen=True)
class Criteria:
    """What values are judged by, in addition to the limits of the links.

    Attributes:
        overrides: Accepted deviations.
        baseline: Values that good machines of the same model reach.
        tolerance: A value fails if it is below its baseline by more than this fraction
            (``verdicts.TOLERANCE``).
        ignore_busy: Whether to judge devices that another process used, too.
        expected: What each host should have; None: nothing is expected.
        max_age: Older runs are not judged.
    """

    overrides: tuple[Override, ...] = ()
    baseline: Baseline | None = None
    tolerance: float = 0.05
    ignore_busy: bool = False
    expected: Inventory | None = None
    max_age: MaxAge | None = None

    def judge(self, document: Document) -> Check:
        """Give a verdict for each cell, each testcase and the machine.

        Raises:
            UsageError: If an override matches no cell, or the baseline is for a different kind of machine.
        """
        from ..judging.age import unjudged
        from ..judging.judge import judge

        check = judge(
            document, self.overrides, self.baseline, self.tolerance, self.ignore_busy, self.expected
        )
        stale = self.max_age.stale(document) if self.max_age else ""
        return unjudged(check, stale) if stale else check


#: Judge by the limits of the links and their expected ranges only.
BY_LIMITS = Criteria()


@dataclass(frozen=True)
class Judged:
    """What ``wirespeed check`` found about a run.

    Attributes:
        check: The verdicts.
        diagnosis: What explains the slow cells.
        file: The file of the run; empty if it was not saved.
    """

    check: Check
    diagnosis: Diagnosis
    file: str = ""

    @classmethod
    def of(
        cls, document: Document, by: Criteria = BY_LIMITS, gates: Iterable[GateSet] = (), file: str = ""
    ) -> Judged:
        """Judge a run, diagnose it, and compare it with sets of gates.

        Raises:
            UsageError: If an override matches no cell, or the baseline is for a different kind of machine.
        """
        from ..judging.diagnosis import Diagnosis, diagnose
        from ..judging.gate_verdicts import compare_gates

        check = by.judge(document)
        if check.stale:
            return cls(check, Diagnosis((), 0, 0, (), bool(document.facts), document.simulated), file)
        compared = tuple(compare_gates(gate_set, document, check.judgements) for gate_set in gates)
        return cls(replace(check, gates=compared), diagnose(document, check), file)


@dataclass(frozen=True)
class Style:
    """How to show a report.

    Attributes:
        width: Columns of the terminal.
        color: Whether to add colour escape sequences.
        verbose: Whether to show every sample and every cell.
        utilization: Whether to add tables of measured value over limit, if the format has them.
        criteria: What values are judged by, if the format has verdicts.
        judged: What ``wirespeed check`` found, for the formats that it offers; None for a run that was not
            checked.
        dialect: Version of nvbandwidth or sailbandwidth whose output nvbandwidth's formats have.
        perf: Whether nvbandwidth's text has lines ``&&&& PERF`` in place of sums.
        notes: Notes before the versions in nvbandwidth's text; in its JSON, ``warning``.
        ignored: Notes behind the devices in nvbandwidth's text; in its JSON, ``warning``.
        empty_tables: Whether nvbandwidth's text has tables of testcases between processes none of whose
            values was wanted.
        all_cells: Whether Prometheus gets every value, in addition to those of each device and kind of path.
        settings: Settings of the environment and of files that changed what was measured or judged.
    """

    width: int = 80
    color: bool = False
    verbose: bool = False
    utilization: bool = False
    criteria: Criteria = BY_LIMITS
    judged: Judged | None = None
    dialect: DialectName = "0.10"
    perf: bool = False
    notes: tuple[str, ...] = ()
    ignored: tuple[str, ...] = ()
    empty_tables: bool = False
    all_cells: bool = False
    settings: tuple[str, ...] = ()

    def check(self, document: Document) -> Check:
        """The verdicts on a Document: those that ``wirespeed check`` found, or by the criteria."""
        return self.judged.check if self.judged else self.criteria.judge(document)
