"""A testcase while it is measured: what becomes its result."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from msgspec.structs import replace

from ..backends.base import Backend
from ..document import UNFINISHED, Status, TestcaseResult
from ..quantities import State
from ..testcases import Plan, Testcase
from . import phases
from .contention import blocking
from .observations import observations
from .partial_result import PartialResult
from .time_limit import NO_TIME
from .worker import Worker


@dataclass
class Ended:
    """A testcase of which nothing can be measured.

    Attributes:
        result: Its result.
    """

    result: TestcaseResult

    @property
    def so_far(self) -> TestcaseResult:
        """Its result."""
        return self.result


class TestcaseRun:
    """A testcase that is measured in one or more rounds.

    Attributes:
        case: The testcase.
        base: Its result without measurements.
        plan: What it measures.
        worker: What measures it.
        watched: The backends that report the state of the hardware.
        before: State of the hardware before it.

    Attributes:
        result: Its result; None until it is complete.
        since: When the current round began, on the clock of the first backend in s; None between rounds.
        seconds: Time of the rounds that are over, in s.
        busy: Devices that other processes used meanwhile: device -> how.
        warnings: Warnings of the backends.
    """

    def __init__(
        self,
        case: Testcase,
        base: TestcaseResult,
        plan: Plan,
        worker: Worker,
        watched: Sequence[Backend],
        before: State,
    ) -> None:
        self.case, self.base, self.plan, self.worker, self.watched = case, base, plan, worker, watched
        self.result: TestcaseResult | None = None
        self.since: float | None = None
        self.seconds = 0.0
        self.busy: dict[str, str] = {}
        self.warnings: list[str] = []
        self._before = before

    @property
    def outcome(self) -> PartialResult:
        """What was measured so far."""
        return self.worker.outcome

    def stop(self) -> None:
        """End the round."""
        self.warnings += [text for backend in self.worker.backends for text in backend.drain_warnings()]
        now = self.worker.backends[0].now()
        self.seconds += 0.0 if self.since is None else now - self.since
        self.since = None

    @property
    def so_far(self) -> TestcaseResult:
        """Its result if it ended now."""
        if self.result is not None:
            return self.result
        running = 0.0 if self.since is None else self.worker.backends[0].now() - self.since
        outcome = self.outcome
        complete = all(outcome.of(m).taken or outcome.of(m).ended for _, m in self.worker.jobs)
        status, reason = (outcome.status, outcome.reason) if complete else (Status.INTERRUPTED, UNFINISHED)
        return replace(
            self.base, status=status, reason=reason, tables=outcome.tables(self.plan.tables),
            seconds=self.seconds + running, state_before=self._before,
        )  # fmt: skip

    def concluded(self, after: State, *, together: bool) -> TestcaseResult:
        """Its result, when nothing more is measured.

        Args:
            after: State of the hardware.
            together: Whether pairs were measured in parallel on purpose.
        """
        outcome, plan = self.outcome, self.plan
        if outcome.crash is not None:
            raise outcome.crash
        outcome.settle()
        for _, measurement in self.worker.jobs if outcome.out_of_time else ():
            outcome.leaves_out(measurement, NO_TIME)
        outcome.complete(measurement for _, measurement in self.worker.jobs)
        why = outcome.unreachable or (NO_TIME if outcome.left_out else "")
        if why and all(c.reason for cs in outcome.cells.values() for c in cs.values()):
            outcome.fails(Status.WAIVED, why)
        tables = outcome.tables(plan.tables)
        warnings = [*outcome.warnings, *self.warnings]
        if self.base.collective:
            warnings += observations(tables)
        if together and (blocks := blocking(tables)):
            warnings.append(blocks)
        for layout, table in zip(plan.tables, tables, strict=True):
            warnings += phases.warnings(self.case.name, table) if layout.rows_alike else []
        return replace(
            self.base,
            status=outcome.status,
            reason=outcome.reason,
            tables=tables,
            seconds=self.seconds,
            warnings=tuple(dict.fromkeys(warnings)),
            state_before=self._before,
            state_after=after,
            readings=tuple(outcome.readings),
            busy=self.busy,
            left_out=sum(len(measurement.places) for measurement in outcome.left_out),
        )
