"""What ``check --explain`` measures next, from what it has found so far."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from ..statistics import grouped
from .criteria import BY_LIMITS, Criteria

if TYPE_CHECKING:
    from ..document import Document
    from ..testcases.table import Testcase

from .judged import Judged

#: Maximum number of times that testcases are measured to distinguish causes.
_MOST_ROUNDS = 2


@dataclass(frozen=True)
class Step:
    """Testcases that were measured together.

    Attributes:
        testcases: The testcases.
        why: Why they were measured, as a phrase.
    """

    testcases: tuple[Testcase, ...]
    why: str


class Adaptive:
    """The testcases that a diagnosis requires, for ``following`` of ``wirespeed.run``.

    If the facts show a defect, these are first the testcases whose values it would change, then those that
    distinguish causes. The rest of the quick tier follows if the facts show none, or if these values show
    none, or do not explain what is slow.

    Args:
        by: The criteria of judgement.

    Attributes:
        steps: What was measured, in order.
        concluded: The whole run, judged; None before its end.
    """

    def __init__(self, by: Criteria = BY_LIMITS) -> None:
        self._by = by
        self.steps: list[Step] = []
        self.concluded: Judged | None = None
        self._rounds = 0

    def __call__(self, document: Document) -> tuple[Testcase, ...]:
        """The testcases to measure next; none at the end."""
        if not self.steps:
            return self._first(document)
        judged = Judged(document, self._by)
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
        """The testcases that would show a defect; without one, the quick tier."""
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
    """The testcases of the quick tier that a run lacks."""
    from .omissions import not_run

    return tuple(not_run(document))
