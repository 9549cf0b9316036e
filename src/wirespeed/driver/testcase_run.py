"""What backends report of the hardware: its state around each testcase, and slow counters around the run.

Warnings from the tables of a collective: stragglers, and switches that reduce.

A testcase while it is measured: what becomes its result.
"""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from dataclasses import dataclass, field

from msgspec.structs import replace

from ..backends.base import Backend
from ..document import UNFINISHED, Status, TestcaseResult
from ..tables import LATE, State, Table
from ..testcases import Plan, Testcase
from . import partial_result as phases
from .partial_result import PartialResult
from .run_plan import NO_TIME
from .sampling import blocking
from .worker import Worker

#: Reading the state takes 10 ms per GPU: the state after a testcase is also the state before the next one if
#: no more time than this has passed, in s.
STATE_MAX_AGE_S = 0.05


class HardwareState:
    """Readings of the backends of a run.

    Attributes:
        counted: Slow counters before the first testcase of each backend.
    """

    def __init__(self) -> None:
        self.counted: State = ()
        #: Last reading: time, backends, quantities.
        self._last: tuple[float, tuple[Backend, ...], State] = (-math.inf, (), ())
        self._counting: list[Backend] = []

    def before(self, watched: Sequence[Backend]) -> State:
        """The state before a testcase, perhaps a recent one, with counters not read before."""
        taken, backends, state = self._last
        if backends != tuple(watched) or time.monotonic() - taken > STATE_MAX_AGE_S:
            state = self.after(watched)
        new = [backend for backend in watched if backend not in self._counting]
        self._counting += new
        counted = tuple(quantity for backend in new for quantity in backend.counters())
        self.counted += counted
        return *state, *counted

    def after(self, watched: Sequence[Backend]) -> State:
        """The state after a testcase."""
        state = state_of(watched)
        self._last = (time.monotonic(), tuple(watched), state)
        return state

    def count(self) -> State:
        """The slow counters after the last testcase."""
        return tuple(quantity for backend in self._counting for quantity in backend.counters())


def state_of(watched: Sequence[Backend]) -> State:
    """The state that some backends report, each quantity once."""
    return tuple({quantity.key: quantity for backend in watched for quantity in backend.state()}.values())


def busy_of(watched: Sequence[Backend]) -> dict[str, str]:
    """The devices that other processes use, as some backends report it: device -> how."""
    return {device: how for backend in watched for device, how in backend.busy().items()}


#: Thresholds for reporting a straggler: delay as a fraction of the operation's time, and in s.
STRAGGLER_FRACTION, STRAGGLER_S = 0.1, 5e-6


def observations(tables: Sequence[Table]) -> list[str]:
    """Warnings: bus bandwidth above the rate of the slowest link, and the slowest process to enter."""
    by_key = {table.key: table for table in tables}
    if "busbw" not in by_key:
        return []
    warnings = []
    for cell in by_key["busbw"].cells:
        if cell.limit and cell.value and cell.value > cell.limit:
            size = by_key["busbw"].columns.labels[cell.column]
            warnings.append(
                f"the bus bandwidth at {size} exceeds the "
                f"{cell.limit / 1e9:.0f} GB/s of the slowest link: the switch reduces, so it is effective"
            )
            break
    late = [
        (cell.value or 0.0, cell.row, cell.column, place)
        for place, key in enumerate(LATE) if key in by_key for cell in by_key[key].cells
    ]  # fmt: skip
    if late:
        seconds, process, column, place = max(late, key=lambda entry: entry[:3])
        times = {(c.row, c.column): c.value or 0.0 for c in by_key["time"].cells}
        if seconds > max(STRAGGLER_FRACTION * times[place, column], STRAGGLER_S):
            size = by_key["time"].columns.labels[column]
            warnings.append(
                f"straggler: process {process} starts {seconds * 1e6:.1f} µs late on average at {size}"
            )
    return warnings


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


@dataclass(eq=False)
class TestcaseRun:
    """A testcase that is measured in one or more rounds.

    Attributes:
        case: The testcase.
        base: Its result without measurements.
        plan: What it measures.
        worker: What measures it.
        watched: The backends that report the state of the hardware.
        before: State of the hardware before it.
        result: Its result; None until it is complete.
        since: When the current round began, on the clock of the first backend in s; None between rounds.
        seconds: Time of the rounds that are over, in s.
        busy: Devices that other processes used meanwhile: device -> how.
        warnings: Warnings of the backends.
    """

    case: Testcase
    base: TestcaseResult
    plan: Plan
    worker: Worker
    watched: Sequence[Backend]
    before: State
    result: TestcaseResult | None = None
    since: float | None = None
    seconds: float = 0.0
    busy: dict[str, str] = field(default_factory=dict)
    warnings: list[str] = field(default_factory=list)

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
            seconds=self.seconds + running, state_before=self.before,
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
            state_before=self.before,
            state_after=after,
            readings=tuple(outcome.readings),
            busy=self.busy,
            left_out=sum(len(measurement.places) for measurement in outcome.left_out),
        )
