"""From Testcases and backends to a Document: plan, waive, run, summarise. A worker thread measures while this
thread watches it, so that a call that never returns, or Ctrl-C, still leaves a Document of everything
measured before. Each round visits every testcase that needs it.
"""

from __future__ import annotations

import itertools
import queue
import random
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TypeVar

from msgspec.structs import replace

from ..backends.base import Backend
from ..document import REQUESTED, UNFINISHED, CollectiveInfo, Document, Status, TestcaseResult
from ..errors import MeasurementTimeout, UnknownTestcase, WirespeedError
from ..hardware.facts import Fact
from ..hardware.link_graph import Network
from ..measurement import Measurement
from ..model import Collective, Engine, Transfer
from ..options import RunOptions
from ..peer_access import Pair
from ..run_errors import SIGNALLED, RunInterrupted, Undisturbed
from ..tables import Cell, Reading, State
from ..testcases.selections import by_value
from ..testcases.table import Testcase
from .contention import scheduled
from .hardware_state import HardwareState, busy_of, state_of
from .jobs import Observed, timestamp
from .listener import Listener
from .partial_result import PartialResult
from .time_limit import NO_TIME, TimeLimit
from .worker import CANCEL_GRACE_S, NO_CANCEL_GRACE_S, Ended, TestcaseRun, Worker

#: How long a cancelled call that may hang can take to return after Ctrl-C, in s: neither the user nor the
#: launcher of a job waits long.
MAY_HANG_GRACE_S = 0.02
#: How often the worker is looked at, in s.
POLL_INTERVAL_S = 0.1
#: Interval between readings of the state during a long testcase, in s, and their maximum number.
READING_INTERVAL_S, MAX_READINGS = 1.0, 120
#: Why a run ended that the user interrupted.
BY_USER = "Ctrl-C"

T = TypeVar("T")


@dataclass(eq=False)
class Session:
    """One run.

    Attributes:
        begun: Its Document before anything is measured, with the machine to plan for.
        backends: The first backend that does not refuse a Measurement runs it.
        testcases: Testcases, in order.
        options: Options of the run.
        listeners: Called at every step: progress, printing, saving.
        grace: Time that the Session waits beyond the time-out of a stage, in s, because the errors of
            backends with time-outs of their own are more specific.
        skip: Number of leading iterations of a sample that lateness does not count.
        limit: The time that the run has; None without a limit.
        following: Returns the testcases to measure next, for the Document of all that were measured; the run
            ends when there are none. None: the run ends after ``testcases``.
        gather: Returns what the other hosts of a job observed, for what this one did; None in one process.
        hanging: Pairs of GPUs between which nothing is measured, because their peer access hangs.
    """

    begun: Document
    backends: Sequence[Backend]
    testcases: tuple[Testcase, ...]
    options: RunOptions
    listeners: Sequence[Listener] = ()
    grace: float = 0.0
    skip: int = 0
    limit: TimeLimit | None = None
    following: Callable[[Document], Iterable[Testcase]] | None = None
    gather: Callable[[Observed], Observed] | None = None
    hanging: frozenset[Pair] = frozenset()

    def __post_init__(self) -> None:
        self.machine, self._document = self.begun.machine, self.begun
        self._network = Network(self.machine)
        self._started = time.monotonic()
        #: Testcases that have begun and whose results are not in the Document yet, in order.
        self._running: list[TestcaseRun | Ended] = []
        self._hardware = HardwareState()
        #: Facts that other hosts of the job found while they measured.
        self._elsewhere: tuple[Fact, ...] = ()

    def run(self) -> Document:
        """Run every testcase and return the Document.

        Raises:
            RunInterrupted: On Ctrl-C; it carries the Document.
        """
        self._started = time.monotonic()
        self._document = replace(self.begun, libraries=self._libraries(), started=timestamp())
        cases = self._ordered(self.testcases)
        try:
            for listener in self.listeners:
                listener.run_started(self._document, cases)
            for group in self._groups(cases):
                if ending := self._in_rounds(group):
                    self._document = replace(self._document, interrupted=ending)
                    break
            else:
                self._count()
        except KeyboardInterrupt:
            SIGNALLED.heard()
            self._document = replace(self._document, interrupted=_why(self.backends))
        finally:
            with Undisturbed() as late:
                self._conclude()
        if late.signals or self._document.interrupted == BY_USER:
            raise RunInterrupted(self._document)
        return self._document

    def _conclude(self) -> None:
        """Add what testcases that were interrupted have measured, and end the run."""
        ended = set(map(id, self._document.testcases))
        so_far = [run.so_far for run in self._running]
        self._document = self._known(
            *(r for r in so_far if id(r) not in ended and any(table.values() for table in r.tables))
        )
        for listener in self.listeners:
            listener.run_ended(self._document)

    def _in_rounds(self, cases: Sequence[Testcase]) -> str:
        """Measure testcases in rounds; return why the run cannot continue (empty if it can).

        The order of further rounds is random, so that slow changes affect all values alike.
        """
        waiting: list[TestcaseRun] = []
        for case in cases:
            run = self._begin(case)
            self._running.append(run)
            waiting += [run] if isinstance(run, TestcaseRun) else []
            if ending := self._visited(run, 0):
                return ending
        for number in itertools.count(1):
            waiting = [run for run in waiting if run.result is None]
            if not waiting:
                return ""
            for backend in self.backends:
                backend.renew()
            random.Random(f"{self.options.seed} {number}").shuffle(waiting)
            for run in waiting:
                if ending := self._visited(run, number):
                    return ending
        return ""

    def _visited(self, run: TestcaseRun | Ended, number: int) -> str:
        """Measure a round of a testcase, and add the results that are complete to the Document, in order."""
        ending = self._round(run, number) if isinstance(run, TestcaseRun) else ""
        if ending:  # what the others have is their result
            for other in self._running:
                if isinstance(other, TestcaseRun) and other.result is None:
                    other.result = other.concluded(())
        while self._running and (result := self._running[0].result):
            document, interrupted = _completed(partial(self._known, result))
            ending = ending or (_why(self.backends) if interrupted else "")
            self._document = replace(document, interrupted=ending)
            del self._running[0]
            for listener in self.listeners:
                listener.testcase_ended(self._document, result)
        return ending

    def _ordered(self, cases: tuple[Testcase, ...]) -> tuple[Testcase, ...]:
        """Testcases in the order in which they are measured."""
        if self.limit is None:
            return cases
        self.limit.expect(cases, lambda case: case.plan(self.machine, self.options))
        return by_value(cases)

    def _groups(self, cases: tuple[Testcase, ...]) -> Iterator[tuple[Testcase, ...]]:
        """Yield the testcases whose rounds are interleaved, then those that follow from what was measured.

        Fixed counts measure one testcase after the other, as the tools do whose command lines have them.
        """
        following = self.following
        yield from ((cases,) if self.options.rule.interleaved else ((case,) for case in cases))
        while following and not (self.limit and self.limit.left <= 0):
            if not (more := self._ordered(tuple(following(self._document)))):
                break
            cases += more
            options = self._document.options | {"testcases": [case.name for case in cases]}
            self._document = replace(self._document, options=options)
            for listener in self.listeners:
                listener.run_extended(more)
            yield more

    def _libraries(self) -> dict[str, str]:
        return {k: v for backend in self.backends for k, v in backend.libraries().items()}

    def _known(self, *more: TestcaseResult) -> Document:
        """The Document of all results so far, with additional ones."""
        document = self._document
        details = [backend.describe() for backend in self.backends]
        observed = (fact for detail in details for fact in detail.facts)
        return replace(
            document,
            libraries=self._libraries(),
            ended=timestamp(),
            seconds=time.monotonic() - self._started,
            testcases=(*document.testcases, *more),
            options={**document.options, **{k: v for detail in details for k, v in detail.options.items()}},
            ranks=next((detail.ranks for detail in details if detail.ranks), ()),
            device_memory=next((dict(d.device_memory) for d in details if d.device_memory), {}),
            facts=(*self.begun.facts, *observed, *self._elsewhere),
        )

    def _begin(self, case: Testcase) -> TestcaseRun | Ended:
        """Plan a testcase and assign its Measurements; it has a result if nothing can be measured."""
        base = TestcaseResult(
            case.name, Status.WAIVED, case.description, "", case.index, str(case.engine), case.counts,
            started=timestamp(),
        )  # fmt: skip
        try:
            plan = case.plan(self.machine, self.options)
        except UnknownTestcase as error:
            return Ended(replace(base, status=Status.NOT_FOUND, reason=str(error)))
        except WirespeedError as error:
            return Ended(replace(base, status=Status.ERROR, reason=str(error)))
        if {t.engine for m in plan.measurements for t in m.transfers} == {Engine.CPU}:
            base = replace(base, engine=str(Engine.CPU))  # others depend on the devices of the processes
        if plan.measurements and (run := plan.measurements[0].collective):
            info = CollectiveInfo(run.operation, run.type, run.ranks, run.operator, run.root, run.traffic)
            base = replace(base, collective=info)
        jobs, refused = self._assign(
            plan.measurements if self.options.parallel_pairs else scheduled(self._network, plan.measurements)
        )
        outcome = PartialResult(cells={layout.key: {} for layout in plan.tables}, since=time.monotonic())
        for waived in plan.waived:
            outcome.put(waived.table, Cell(waived.row, waived.column, reason=waived.reason))
        for measurement, reason in refused:
            outcome.leaves(measurement, reason)
        if not jobs:
            reason = plan.reason or (refused[0][1] if refused else "nothing can be measured on this machine")
            return Ended(replace(base, reason=reason, tables=outcome.tables(plan.tables)))
        partly = REQUESTED in self.begun.options
        if self.limit and not self.limit.starts(case, [planned for _, planned in jobs], partly=partly):
            left_out = sum(len(measurement.places) for _, measurement in jobs)
            return Ended(replace(base, reason=NO_TIME, left_out=left_out))

        if base.collective:
            base = replace(base, engine=jobs[0][0].name)
        rule = self.options.rule
        for listener in self.listeners:
            listener.testcase_started(case, len(jobs) * max(1, rule.rounds))
        has_values = any(layout.columns.values for layout in plan.tables)
        can_shrink = not (self.options.size or case.fixed_size or case.written or has_values)
        worker = Worker(
            self._network, self.options, outcome, jobs, case,
            skip=self.skip, can_shrink=can_shrink, limit=self.limit,
        )  # fmt: skip
        # For a collective, the other backends report the state of the hardware.
        watched = self.backends if base.collective else worker.backends
        return TestcaseRun(case, base, plan, worker, watched, self._hardware.before(watched))

    def _round(self, run: TestcaseRun, number: int) -> str:
        """Measure a round of a testcase; return why the run cannot continue (empty if it can)."""
        used = run.worker.backends
        run.busy |= busy_of(self._watching(run))
        run.since = used[0].now()
        ending = self._watch(run, number)
        run.result, interrupted = _completed(partial(self._finished, run, ending))
        return ending or (_why(used) if interrupted else "")

    def _watching(self, run: TestcaseRun) -> Sequence[Backend]:
        """The backends that see other processes on the devices of a testcase.

        In a job, they would take the other ranks for such processes.
        """
        return run.worker.backends if self.machine.ranks else run.watched

    def _finished(self, run: TestcaseRun, ending: str) -> TestcaseResult | None:
        """End a round; return the result of the testcase if it is complete."""
        while self._tell(run):
            pass
        run.stop()
        if ending:
            return run.concluded(())
        if run.worker.unfinished:
            return None
        run.busy |= busy_of(self._watching(run))
        return run.concluded(self._hardware.after(run.watched))

    def _so_far(self) -> Document:
        return replace(self._known(*(run.so_far for run in self._running)), interrupted=UNFINISHED)

    def _count(self) -> None:
        """Add the slow counters to the states of the first and the last testcase, of all hosts."""
        counted = self._hardware.count()
        before: State = ()
        if self.gather:
            facts = self._known().facts[len(self.begun.facts) :]
            try:
                other = self.gather(Observed(self._hardware.counted, counted, facts))
            except WirespeedError as error:  # everything was measured
                text = f"the observations of the other hosts during the run are unknown: {error}"
                self._document = replace(self._document, warnings=(*self._document.warnings, text))
            else:
                before, counted, self._elsewhere = other.before, (*counted, *other.after), other.facts
        results = list(self._document.testcases)
        watched = [i for i, result in enumerate(results) if result.state_after]
        if watched:
            first, last = watched[0], watched[-1]
            results[first] = replace(results[first], state_before=(*results[first].state_before, *before))
            results[last] = replace(results[last], state_after=(*results[last].state_after, *counted))
            self._document = replace(self._document, testcases=tuple(results))

    def _read_state(self, outcome: PartialResult, watched: Sequence[Backend], seconds: float) -> None:
        """Read the state of the hardware under load, once a second, of testcases longer than that."""
        count = len(outcome.readings)
        if seconds < (count + 1) * READING_INTERVAL_S or count >= MAX_READINGS:
            return
        outcome.readings.append(Reading(round(seconds, 1), state_of(watched)))

    def _assign(
        self, measurements: Iterable[Measurement]
    ) -> tuple[list[tuple[Backend, Measurement]], list[tuple[Measurement, str]]]:
        """Assign each Measurement to the first backend that runs it; return the others with the reason."""
        jobs, refused = [], []
        for part in itertools.chain(*map(self._parts, measurements)):
            pair = next((pair for pair in sorted(self.hanging) if _joins(part, pair)), None)
            reasons = {backend: backend.refuses(part) for backend in self.backends}
            backend = next((backend for backend, reason in reasons.items() if reason is None), None)
            if backend and not pair:
                jobs.append((backend, part))
            else:
                reason = "; ".join(filter(None, reasons.values())) or "there is no backend for it"
                refused.append((part, f"peer access {' -> '.join(pair)} hangs" if pair else reason))
        return jobs, refused

    def _parts(self, measurement: Measurement) -> tuple[Measurement, ...]:
        """A Measurement, or what it consists of if only a part of it would hang."""
        hangs = measurement.independent and any(_joins(measurement, pair) for pair in self.hanging)
        return measurement.separate() if hangs else (measurement,)

    def _watch(self, run: TestcaseRun, number: int) -> str:
        """Run the worker for a round; return why the run cannot continue (empty if it can)."""
        case, outcome, worker, watched = run.case, run.outcome, run.worker, run.watched
        used = worker.backends
        ending = ""
        timeout = self.options.timeout + self.grace
        started = looked = time.monotonic()
        try:
            outcome.since = started
            worker.start(number)
            while not worker.wait(0.0):
                self._tell(run, POLL_INTERVAL_S)
                now = time.monotonic()
                if now - looked < POLL_INTERVAL_S:
                    continue
                looked = now
                SIGNALLED.look()
                if self.limit and self.limit.is_over:
                    worker.interrupt()
                    if self.limit.is_late:  # it imports or compiles, which cannot be cancelled
                        return outcome.lost
                for listener in self.listeners:
                    listener.measuring(case, outcome.done, outcome.stage)
                self._read_state(outcome, watched, run.seconds + now - started)
                for backend in watched if outcome.running else ():
                    backend.observe(outcome.running)
                ending = next(filter(None, (backend.gone() for backend in used)), "")
                # A call that waits for a lost process may never return.
                if ending and not worker.wait(NO_CANCEL_GRACE_S):
                    outcome.fails(Status.ERROR, ending)
                    worker.cancel(CANCEL_GRACE_S)
                    break
                limit = max(timeout, *(backend.setup_s for backend in used))
                since = max(outcome.since, *(backend.progressed for backend in used))
                if timeout and now - since > limit:
                    errors = (backend.late(outcome.stage, limit) for backend in used)
                    fatal = next(filter(None, errors), None)
                    late = fatal or MeasurementTimeout(outcome.stage, limit)
                    timed_out = isinstance(late, MeasurementTimeout)
                    outcome.fails(Status.TIMED_OUT if timed_out else Status.ERROR, str(late))
                    ending = str(fatal) if fatal else ""
                    if not worker.cancel(CANCEL_GRACE_S):
                        return ending or f"{outcome.stage} did not come back after a time-out; the run ends"
                    break
        except KeyboardInterrupt:
            SIGNALLED.heard()
            ending = _why(used)
            if ending == BY_USER:
                outcome.fails(Status.INTERRUPTED, f"{BY_USER} while {outcome.stage}")
            else:
                outcome.fails(Status.ERROR, ending)
            may_hang = any(backend.may_hang for backend in used)
            worker.cancel(MAY_HANG_GRACE_S if may_hang else CANCEL_GRACE_S)
        return ending or outcome.lost

    def _tell(self, run: TestcaseRun, wait: float = 0.0) -> bool:
        """Give the cells of a finished Measurement to the listeners; return whether there was one.

        Waits at most ``wait`` seconds for the worker to finish one.
        """
        try:
            made = run.outcome.filled.get(wait > 0, wait)
        except queue.Empty:
            return False
        while not run.outcome.wrong.empty():
            error = run.outcome.wrong.get()
            for listener in self.listeners:
                listener.data_wrong(run.case, error)
        if self.listeners and (cells := made()):
            for listener in self.listeners:
                listener.measured(run.case, cells, self._so_far)
        return True


def _joins(measurement: Measurement, pair: Pair) -> bool:
    """Whether a Measurement moves data between two GPUs: in either direction, or by a collective."""
    for work in measurement.works:
        if isinstance(work, Transfer):
            groups = [{end.device for end in work.ends}]
        else:
            groups = [{member.device for member in work.members}] if isinstance(work, Collective) else []
        if any(group.issuperset(pair) for group in groups):
            return True
    return False


def _completed(call: Callable[[], T]) -> tuple[T, bool]:
    """Call a function again if a signal interrupts it; return its value, and whether one did.

    When a rank ends, its launcher also ends this process, which must not lose what was measured. Further
    signals are ignored for a while.
    """
    try:
        return call(), False
    except KeyboardInterrupt:
        SIGNALLED.heard()
        return call(), True


def _why(backends: Sequence[Backend]) -> str:
    """Why a signal ends the run: launchers send one when they have lost a process."""
    return next(filter(None, (backend.interrupted() for backend in backends)), BY_USER)
