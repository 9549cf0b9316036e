"""A run with what it is judged by. Commands, formats and screens ask it, so that a run is judged once. The
modules that judge are imported when the first verdict is asked for: many formats need none.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING

from ..terminal import Tabular, brief
from .criteria import BY_LIMITS, Criteria

if TYPE_CHECKING:
    from ..document import Document
    from ..results.cells import Key, Placed
    from .check import Check
    from .diagnosis import Diagnosis
    from .overview import Overview
    from .verdict import Judgement, Verdict


def unjudged(check: Check, why: str) -> Check:
    """A Check that judges nothing, for one reason."""
    from .verdict import Verdict

    judgements = tuple(
        judgement if judgement.verdict is Verdict.WAIVED
        else replace(
            judgement, verdict=Verdict.NOT_JUDGED, why=why, least=None, normal=None, culprit=None, basis=""
        )
        for judgement in check.judgements
    )  # fmt: skip
    testcases = {
        name: verdict if verdict is Verdict.WAIVED else Verdict.NOT_JUDGED
        for name, verdict in check.testcases.items()
    }
    return replace(
        check, judgements=judgements, testcases=testcases, culprits=(), accepted={}, causes={}, wrong=(),
        doubts=(), stale=why,
    )  # fmt: skip


@dataclass(frozen=True, eq=False, repr=False)
class Judged(Tabular):
    """A run, and what is found of it when it is asked for the first time.

    Attributes:
        document: The run.
        by: What its values are judged by.
        file: The file of the run; empty if it was not saved.
    """

    document: Document
    by: Criteria = BY_LIMITS
    file: str = ""

    @classmethod
    def of(cls, run: Document | Judged) -> Judged:
        """A run that is judged; a Document by the limits of its links."""
        return run if isinstance(run, Judged) else cls(run)

    def __repr__(self) -> str:
        kind = " (simulated)" if self.simulated else ""
        return brief(f"Judged {self.document.hostname}{kind}: {self.overview.word}: {self.overview.sentence}")

    def __str__(self) -> str:
        """The screen of ``wirespeed check``."""
        from ..terminal import screen

        return str(screen("check").text(self))

    @property
    def simulated(self) -> bool:
        """Whether no hardware was measured."""
        return self.document.simulated

    @property
    def proves_nothing(self) -> bool:
        """Whether a pass says nothing about hardware: of a simulated run, unless that is allowed."""
        return self.simulated and not self.by.allow_simulated

    @property
    def verdict(self) -> Verdict:
        """The verdict on the run."""
        return self.check.verdict

    @property
    def ok(self) -> bool:
        """Whether the verdict on a machine is pass, without warnings; never of a simulated one."""
        return self.check.ok

    @property
    def exit_code(self) -> int:
        """The exit code that ``wirespeed check`` would end with."""
        return self.check.exit_code

    @cached_property
    def check(self) -> Check:
        """The verdicts on each cell, each testcase and the run.

        Raises:
            UsageError: If an override matches no cell, or the baseline is for a different kind of machine.
        """
        from .gates import compare_gates
        from .judge import judge

        document, by = self.document, self.by
        check = judge(document, by)
        if by.max_age and (stale := by.max_age.stale(document)):
            return unjudged(check, stale)
        compared = (compare_gates(gate_set, document, check.judgements) for gate_set in by.gates)
        check = replace(check, gates=tuple(compared))
        if not check.verdict.is_failure:
            return check
        from .diagnosis import excused

        return excused(document, check, ignore_busy=by.ignore_busy)

    @cached_property
    def diagnosis(self) -> Diagnosis:
        """What explains the slow cells; nothing of a run that is too old to be judged."""
        from .diagnosis import Diagnosis, diagnose

        document = self.document
        if self.check.stale:
            return Diagnosis((), 0, 0, (), bool(document.facts), document.simulated)
        return diagnose(document, self.check)

    @cached_property
    def overview(self) -> Overview:
        """Verdict, sentence and key figures."""
        from .overview import overview

        return overview(self.document, self.check, self.diagnosis)

    @cached_property
    def judgements(self) -> Mapping[Key, Judgement]:
        """The verdict on each cell that is judged."""
        return {judgement.key: judgement for judgement in self.check.judgements}

    @cached_property
    def cells(self) -> tuple[Placed, ...]:
        """All cells, each with its place in the run."""
        from ..results.cells import placed

        return tuple(placed(self.document))

    def renewed(self, document: Document) -> Judged:
        """The same verdicts for a Document that has the same values, such as the run when it has ended."""
        later = replace(self, document=document)
        found = {name: value for name, value in vars(self).items() if name in ("check", "diagnosis")}
        vars(later).update(found)
        return later
