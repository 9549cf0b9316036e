"""A testcase while it is measured: the thread that measures its jobs, one round at a time, and its result,
with the warnings about a collective's stragglers and rates. The Session watches the thread.
"""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TypeVar

from msgspec import structs

from .. import errors
from ..backends.base import Backend, Prepared
from ..data import efficiencies
from ..document import UNFINISHED, Status, TestcaseResult
from ..hardware.limits import Allowance, allowances
from ..hardware.link_graph import Network
from ..measurement import Measurement, Sample
from ..options import RunOptions
from ..statistics import Rule
from ..tables import LATE, State, Table
from ..testcases.table import Plan, Testcase
from ..thresholds.values import STRAGGLER_FRACTION, STRAGGLER_S
from ..units import many
from .cells_of_samples import cell_of
from .concurrency import one_after_another
from .contention import blocking, slowed, suspects
from .listener import Filled
from .partial_result import PartialResult
from .sampling import Taken, take
from .slow_rows import slow_rows
from .smaller_buffers import shrunk, smaller_buffers
from .time_limit import NO_TIME, TimeLimit

#: How long a cancelled call may take to return before the run is given up, in s.
CANCEL_GRACE_S = 5.0
#: The same for a call that cannot be cancelled.
NO_CANCEL_GRACE_S = 0.1
#: How often a cancelled call is cancelled again, in s.
CANCEL_INTERVAL_S = 0.1
#: Maximum number of pairs of a testcase that are measured again separately because they look low.
MAX_REPEATED = 256

T = TypeVar("T")


@dataclass(eq=False)
class Worker:
    """Measures the jobs of a testcase one after the other, in rounds.

    Attributes:
        network: Links of the machine, for limits.
        options: How to run it.
        outcome: Where the results go.
        jobs: Each Measurement with the backend that runs it.
        case: The testcase.
        skip: Number of leading iterations of a sample that lateness does not count.
        can_shrink: Whether smaller buffers may be used where there is not enough memory for these.
        limit: The time that the run has left; None without a limit.
        backends: The backends of the jobs.
        finished: Set when the round is over.
    """

    network: Network
    options: RunOptions
    outcome: PartialResult
    jobs: Sequence[tuple[Backend, Measurement]]
    case: Testcase
    skip: int
    can_shrink: bool
    limit: TimeLimit | None
    finished: threading.Event = field(default_factory=threading.Event)
    _allowed: dict[Measurement, list[Allowance]] = field(default_factory=dict)
    _stopped: bool = False

    def __post_init__(self) -> None:
        self.backends = tuple(dict.fromkeys(backend for backend, _ in self.jobs))
        rule = self.options.rule
        self._rule = (self.limit.begin(self.case, rule) if self.limit else rule).share(len(self.jobs))

    @property
    def unfinished(self) -> list[tuple[Backend, Measurement]]:
        """The jobs that another round measures."""
        outcome = self.outcome
        is_over = self._stopped or outcome.crash or outcome.lost or outcome.cancelled
        if is_over or (self.limit and self.limit.left <= 0):
            return []
        return [job for job in self.jobs if outcome.of(job[1]).follows(self._rule)]

    def start(self, number: int) -> None:
        """Start the thread, for the round with a number from 0."""
        self.finished.clear()
        name = f"measure {self.case.name}"
        self._thread = threading.Thread(target=self._run, args=(number,), name=name, daemon=True)
        with errors.starting_threads():
            self._thread.start()

    def wait(self, seconds: float) -> bool:
        """Wait for the thread to end, for at most ``seconds``; return whether the round is over."""
        if self.finished.wait(seconds):
            self._thread.join()
        return self.finished.is_set()

    def _run(self, number: int) -> None:
        try:
            self._measure(number)
        except BaseException as error:  # handed to the watching thread, which raises it
            self.outcome.crash = error
        finally:
            self.finished.set()
            self.outcome.filled.put(tuple)

    def cancel(self, grace: float) -> bool:
        """Ask the thread to stop, for at most ``grace`` seconds; return whether it did."""
        self.outcome.cancelled = True
        if not all(backend.can_cancel for backend in self.backends):
            grace = min(grace, NO_CANCEL_GRACE_S)
        until = time.monotonic() + grace
        while True:  # repeatedly: what is being prepared at this moment has not heard it
            for backend in self.backends:
                backend.cancel()
            left = until - time.monotonic()
            if self.wait(min(CANCEL_INTERVAL_S, left)) or left <= 0:
                return self.finished.is_set()

    def interrupt(self) -> None:
        """Make the current call return soon, because the time of the run is over."""
        self.outcome.out_of_time = True
        for backend in self.backends:
            backend.cancel()

    def _measure(self, number: int) -> None:
        """Measure one after the other; after the last round, separately the pairs that look low."""
        outcome, limit, rule = self.outcome, self.limit, self._rule
        jobs = self.unfinished if number else list(self.jobs)
        if number and rule.interleaved:
            random.Random(f"{self.options.seed} {self.case.name} {number}").shuffle(jobs)
        for done, (backend, measurement) in enumerate(jobs):
            if outcome.cancelled:
                return
            rounds = outcome.of(measurement)
            if limit and not limit.allows(measurement):
                outcome.leaves_out(measurement, NO_TIME)
                rounds.ended = True
                continue
            before = len(rounds.taken)
            self._stopped = not self._measure_one(
                backend, measurement, limit.rule(rule, len(jobs) - done) if limit else rule
            )
            if self._stopped:
                return
            rounds.ended |= len(rounds.taken) == before
            outcome.done += 1
        if not self.unfinished:
            self._measure_separately()

    def _measure_separately(self) -> None:
        """Measure again the pairs that look low, each separately."""
        outcome, limit, rule = self.outcome, self.limit, self._rule
        outcome.settle()
        pairs = {
            part: backend
            for backend, m in self.jobs
            if outcome.repeats(m) and m not in outcome.left_out
            for part in m.separate()
        }
        low = suspects(self.network, list(pairs), outcome.cells)
        repeated = [pair for pair in low[:MAX_REPEATED] if limit is None or limit.allows(pair)]
        before = {place: outcome.cells[place.table][place.row, place.column]
                  for pair in repeated for place in pair.places}  # fmt: skip
        for number in range(rule.rounds if repeated else 0):
            if number:
                for backend in self.backends:
                    backend.renew()
            for pair in repeated:
                if outcome.cancelled or not self._measure_one(pairs[pair], pair, rule):
                    return
        outcome.settle()
        outcome.warnings += slowed(
            [(cell, outcome.cells[place.table][place.row, place.column]) for place, cell in before.items()],
            len(low) - len(repeated),
        )

    def _measure_one(self, backend: Backend, measurement: Measurement, rule: Rule) -> bool:
        """Measure, or record the failure; return whether the next one can be measured."""
        outcome, planned, short = self.outcome, measurement, None
        measured = outcome.of(planned).measurement
        first = not outcome.of(planned).taken
        try:
            while True:
                try:
                    taken = self._take(backend, planned, measured, rule)
                    break
                except errors.OutOfMemory as error:
                    short = short or error
                    can_shrink = self.can_shrink and first and not outcome.cancelled
                    smaller = shrunk(measured) if can_shrink else None
                    if smaller is None:
                        raise short from error
                    measured = smaller
        except errors.VerificationError as error:
            outcome.fails(Status.FAILED, str(error))
            outcome.wrong.put(error)
            outcome.leaves(measurement, str(error), error.way)
        except errors.MeasurementTimeout as error:
            if outcome.out_of_time:  # the call waited until it was cancelled
                outcome.leaves_out(measurement, NO_TIME)
                return True
            outcome.fails(Status.TIMED_OUT, str(error))
            outcome.leaves(measurement, str(error))
            return False
        except errors.BackendLost as error:
            late = isinstance(error.__cause__, errors.MeasurementTimeout)
            outcome.fails(Status.TIMED_OUT if late else Status.ERROR, str(error))
            if first:
                outcome.leaves(measurement, str(error))
            outcome.lost = str(error)
            return False
        except errors.Unreachable as error:
            outcome.unreachable = outcome.unreachable or str(error)
            outcome.leaves(measurement, str(error))
        except errors.OutOfMemory as error:
            if not outcome.keeps(measurement, str(error)):
                outcome.fails(Status.NO_MEMORY, str(error))
                outcome.leaves(measurement, str(error))
        except errors.WirespeedError as error:
            if outcome.out_of_time:
                outcome.leaves_out(measurement, NO_TIME)
                return True
            if not outcome.repeats(measurement):  # of several pairs, the one that fails will fail alone
                outcome.fails(Status.ERROR, str(error))
            outcome.leaves(measurement, str(error))
        else:
            if short is not None:
                outcome.warnings.append(smaller_buffers(planned, measured, str(short)))
                outcome.of(planned).measurement = measured
            self._fill(planned, measured, taken)
            if self.limit:
                self.limit.estimates.measured(measurement)
        return True

    def _take(self, backend: Backend, planned: Measurement, measurement: Measurement, rule: Rule) -> Taken:
        """Prepare and sample one Measurement, naming each stage for the time-out."""
        outcome, began, name = self.outcome, backend.now(), str(measurement)
        wrong: list[int] = []

        def staged(stage: str, call: Callable[[], T]) -> T:
            if outcome.out_of_time:  # nobody waits for it any more
                raise errors.BackendError(NO_TIME)
            outcome.stage, outcome.since = f"{stage} {name}", time.monotonic()
            return call()

        def running(stage: str, call: Callable[[], T]) -> T:
            outcome.running = measurement.transfers
            try:
                return staged(stage, call)
            finally:
                outcome.running = ()

        def sample(copies: int) -> Sample:
            return running("measuring", lambda: prepared.sample(copies))

        def verify() -> None:
            if self.options.verify and (elements := staged("verifying", prepared.verify)) is not None:
                wrong.append(elements)

        def warm_up() -> None:
            running("warming up", prepared.warm_up)

        prepared: Prepared = staged("preparing", lambda: backend.prepare(measurement, self.options))
        with prepared:
            taken = take(
                sample, measurement, rule, backend.now, backend.sample_seconds, verify, warm_up,
                outcome.of(planned).samples,
            )  # fmt: skip
        preparing = max(0.0, backend.now() - began - taken.seconds)
        elements = sum(wrong) if wrong else None
        return replace(taken, preparing=preparing, wrong=elements)

    def _fill(self, planned: Measurement, measurement: Measurement, taken: Taken) -> None:
        """Turn the samples of a Measurement, also of earlier rounds, into the cells that it fills."""
        outcome = self.outcome
        if measurement not in self._allowed:  # the same in all rounds
            self._allowed[measurement] = allowances(self.network, measurement, efficiencies())
        allowed = self._allowed[measurement]

        def cells(rounds: Sequence[Taken]) -> list[Filled]:
            return [
                (place.table, cell_of(
                    measurement, place, by, rounds, skip=self.skip, use_mean=self.options.use_mean,
                ))
                for place, by in zip(measurement.places, allowed, strict=True)
            ]  # fmt: skip

        if warning := one_after_another(self.network, measurement, taken.samples):
            outcome.warnings.append(warning)
        outcome.add(planned, taken, cells)
        if taken.wrong:
            outcome.fails(Status.FAILED, f"{many(taken.wrong, 'wrong element')} in {measurement}")
        outcome.filled.put(partial(cells, (taken,)))


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
        """The result so far."""
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
        return structs.replace(
            self.base, status=status, reason=reason, tables=outcome.tables(self.plan.tables),
            seconds=self.seconds + running, state_before=self.before,
        )  # fmt: skip

    def concluded(self, after: State) -> TestcaseResult:
        """Its result, when nothing more is measured.

        Args:
            after: State of the hardware.
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
        if self.worker.options.parallel_pairs and (blocks := blocking(tables)):
            warnings.append(blocks)
        for layout, table in zip(plan.tables, tables, strict=True):
            warnings += slow_rows(self.case.name, table) if layout.rows_alike else []
        return structs.replace(
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
