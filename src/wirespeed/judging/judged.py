"""A run with what it is judged by. Commands, formats and screens ask it, so that a run is judged once.

The modules that judge are imported when the first verdict is asked for: many formats need none.

What ``wirespeed doctor`` measures next, from what it has found so far.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING

from ..statistics import grouped
from ..terminal import Tabular, brief
from .criteria import BY_LIMITS, Criteria

if TYPE_CHECKING:
    from ..document import Document
    from ..results.cells import Key, Placed
    from ..results.inventory import Inventory
    from ..testcases.table import Testcase
    from .diagnosis import Diagnosis
    from .judge import Check
    from .overview import Overview
    from .verdict import Judgement, Verdict


def unjudged(check: Check, why: str) -> Check:
    """Return a Check that judges nothing, for one reason."""
    from .verdict import Verdict

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
        """Return a run that is judged; a Document by the limits of its links."""
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
        """Return the same verdicts for a Document that has the same values, such as that of the ended run."""
        later = replace(self, document=document)
        found = {name: value for name, value in vars(self).items() if name in ("check", "diagnosis")}
        vars(later).update(found)
        return later


#: Maximum number of times that testcases are measured to distinguish causes.
_MOST_ROUNDS = 2


@dataclass(frozen=True)
class Step:
    """Testcases that were measured together.

    Attributes:
        testcases: The testcases.
        why: Why they were measured, as a phrase for people.
    """

    testcases: tuple[Testcase, ...]
    why: str


class Adaptive:
    """The testcases that a diagnosis requires, for ``following`` of ``wirespeed.run``.

    If the facts show a defect, these are first the testcases whose values it would change, then those that
    distinguish causes. The rest of the quick tier follows if the facts show none, or if these values show
    none, or do not explain what is slow.

    Args:
        expected: What each host of the machine should have.

    Attributes:
        steps: What was measured, in order.
        concluded: The whole run, judged; None before its end.
    """

    def __init__(self, expected: Inventory | None = None) -> None:
        self._expected = expected
        self.steps: list[Step] = []
        self.concluded: Judged | None = None
        self._rounds = 0

    def __call__(self, document: Document) -> tuple[Testcase, ...]:
        """Return the testcases to measure next; none at the end."""
        if not self.steps:
            return self._first(document)
        judged = Judged(document, Criteria(expected=self._expected))
        diagnosis = judged.diagnosis
        if self._rounds < _MOST_ROUNDS:
            for finding in diagnosis.findings:
                if finding.next:
                    self._rounds += 1
                    others = ", ".join(other.name for other in finding.others)
                    return self._step((finding.next,), f"to distinguish {finding.cause.name} from {others}")
        if diagnosis.unexplained or not any(finding.factor is not None for finding in diagnosis.findings):
            why = "to explain what is slow" if diagnosis.slow else "to find what is slow"
            if lacking := _quick(document):
                return self._step(lacking, f"the quick preset, {why}")
        self.concluded = judged
        return ()

    def _first(self, document: Document) -> tuple[Testcase, ...]:
        """Return the testcases that would show a defect; without one, the quick tier."""
        from .next_testcases import suspected

        suspicions = suspected(document)
        cases = dict.fromkeys(case for required in suspicions.values() for case in required)
        if not cases:
            return self._step(_quick(document), "the quick preset: the readings show no defect")
        places = grouped((cause.name, place) for cause, place in suspicions)
        names = (f"{name} ({', '.join(at)})" if all(at) else name for name, at in places.items())
        return self._step(tuple(cases), f"to confirm {', '.join(names)}")

    def _step(self, testcases: tuple[Testcase, ...], why: str) -> tuple[Testcase, ...]:
        self.steps.append(Step(testcases, why))
        return testcases


def _quick(document: Document) -> tuple[Testcase, ...]:
    """Return the testcases of the quick tier that a run lacks."""
    from .omissions import not_run

    return tuple(not_run(document))
