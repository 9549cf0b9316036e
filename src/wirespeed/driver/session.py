"""Plan, waive, run, summarise: from Testcases and backends to a Document.

The measuring is done in a worker thread; this one watches it, so that a call that never comes
back, or Ctrl-C, still leaves a Document of what was measured.
"""

from __future__ import annotations

import itertools
import math
import platform
import queue
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, TypeVar

from msgspec.structs import replace

from ..backends.base import (
    Backend,
    BackendOptions,
    Describing,
    Exchanging,
    Prepared,
    ReportsBusy,
    SpansProcesses,
    WarmsUp,
)
from ..data import efficiencies
from ..document import (
    SCHEMA,
    UNFINISHED,
    Cell,
    CollectiveInfo,
    Document,
    Reading,
    State,
    Status,
    TestcaseResult,
)
from ..errors import (
    BackendLost,
    MeasurementTimeout,
    RunInterrupted,
    UnknownTestcase,
    Unreachable,
    VerificationError,
    WirespeedError,
)
from ..limits import Network, allowances
from ..model import Engine, Measurement, Sample
from ..options import described
from ..stopping import Precise, Rule
from ..testcases import PlanOptions, Testcase
from ..topology import Machine
from ..units import many
from ..version import __version__
from . import phases
from .cells_of_samples import cell_of
from .contention import blocking, scheduled, slowed, suspects
from .listener import Filled, Listener
from .observations import observations
from .partial_result import PartialResult
from .sampling import Taken, take

#: How long a cancelled call may take to come back before the run is given up, in s.
_GRACE = 5.0
#: The same where the call cannot be cancelled.
_HOPELESS = 0.1
#: The same after Ctrl-C in a job of several processes, whose launcher does not wait long.
_HASTE = 0.02
_LOOK = 0.1
#: How often the state is read in a long testcase, in s, and how often at most.
_EVERY, _MOST_READINGS = 1.0, 120
#: Reading the state of a GPU takes 10 ms, of eight of them ten times as long: what was read at the end of a
#: testcase is the state before the next one if no more than this has passed, in s.
_FRESH = 0.05
#: Pairs that look low are measured again alone, at most this many of a testcase.
_MOST_REPEATED = 256

T = TypeVar("T")


@dataclass(frozen=True)
class SessionOptions:
    """What to run and how.

    Parameters
    ----------
    rule
        When to stop sampling.
    verify
        Whether the data is checked after every sample.
    use_mean
        Whether a cell's value is the mean of its samples; the median otherwise.
    launcher, share
        Of a job of several processes: who started them, and by what means alone they share memory.
    cycles
        How often all Measurements of a testcase are repeated and their samples put together; 0: until
        interrupted.
    described
        More options for the Document: those of a command line that this program is compatible with.
    """

    testcases: tuple[Testcase, ...]
    plan: PlanOptions = field(default_factory=PlanOptions)
    rule: Rule = field(default_factory=Precise)
    run: BackendOptions = field(default_factory=BackendOptions)
    verify: bool = True
    use_mean: bool = False
    command: str = ""
    warnings: tuple[str, ...] = ()
    launcher: str = ""
    share: str | None = None
    cycles: int = 1
    described: Mapping[str, Any] = field(default_factory=dict)


class Session:
    """One run.

    Parameters
    ----------
    machine
        What to plan for.
    backends
        Each Measurement is run by the first that does not refuse it.
    listeners
        Told of every step: progress, printing, saving.
    """

    def __init__(
        self,
        machine: Machine,
        backends: Sequence[Backend],
        options: SessionOptions,
        listeners: Iterable[Listener] = (),
    ) -> None:
        self.machine = machine
        self.backends = tuple(backends)
        self.options = options
        self.listeners = tuple(listeners)
        self._network = Network(machine)
        self._started = time.monotonic()
        self._document = self._begun()
        #: When, of which backends, and what was read of the state last.
        self._read: tuple[float, tuple[Backend, ...], State] = (-math.inf, (), ())

    def run(self) -> Document:
        """Run every testcase and return the Document.

        Raises
        ------
        RunInterrupted
            On Ctrl-C; it carries the Document.
        """
        self._started = time.monotonic()
        self._document = self._begun()
        for listener in self.listeners:
            listener.run_started(self._document, self.options.testcases)
        try:
            for case in self.options.testcases:
                result, ending = self._testcase(case)
                self._document = replace(self._known(result), interrupted=ending)
                for listener in self.listeners:
                    listener.testcase_ended(self._document, result)
                if ending:
                    break
        except KeyboardInterrupt:
            self._document = replace(self._document, interrupted=BY_USER)
        finally:
            self._document = self._known()
            for listener in self.listeners:
                listener.run_ended(self._document)
        if self._document.interrupted == BY_USER:
            raise RunInterrupted(self._document)
        return self._document

    def _begun(self) -> Document:
        """Return a Document without testcases."""
        return Document(
            schema=SCHEMA,
            version=__version__,
            command=self.options.command,
            host=platform.node(),
            python=platform.python_version(),
            simulated=self.machine.simulated,
            machine=self.machine,
            options=_described(self.options),
            started=_timestamp(),
            warnings=self.options.warnings,
        )

    def _known(self, *more: TestcaseResult) -> Document:
        """Return the Document as of now, with more results."""
        document = self._document
        found: dict[str, Any] = {
            "libraries": {k: v for backend in self.backends for k, v in backend.libraries().items()},
            "ended": _timestamp(),
            "seconds": time.monotonic() - self._started,
            "testcases": (*document.testcases, *more),
            "options": document.options,
        }
        for backend in self.backends:
            if isinstance(backend, Describing):
                described = backend.describe()
                options = found["options"] | described.pop("options", {})
                found |= described | {"options": options}
        return replace(document, **found)

    def _testcase(self, case: Testcase) -> tuple[TestcaseResult, str]:
        """Run one testcase; return its result, and why the run cannot go on (empty if it can)."""
        base = TestcaseResult(
            case.name, Status.WAIVED, case.description, "", case.index, str(case.engine), case.counts,
            started=_timestamp(),
        )  # fmt: skip
        try:
            plan = case.plan(self.machine, self.options.plan)
        except UnknownTestcase as error:
            return replace(base, status=Status.NOT_FOUND, reason=str(error)), ""
        except WirespeedError as error:
            return replace(base, status=Status.ERROR, reason=str(error)), ""
        if {t.engine for m in plan.measurements for t in m.transfers} == {Engine.CPU}:
            base = replace(base, engine=str(Engine.CPU))  # between processes it depends on what they own
        if plan.measurements and (run := plan.measurements[0].collective):
            info = CollectiveInfo(run.operation, run.type, run.ranks, run.operator, run.root)
            base = replace(base, collective=info)
        together = self.options.plan.parallel_pairs
        jobs, refused = self._assign(
            plan.measurements if together else scheduled(self._network, plan.measurements)
        )
        outcome = PartialResult(cells={layout.key: {} for layout in plan.tables}, since=time.monotonic())
        for waived in plan.waived:
            outcome.put(waived.table, Cell(waived.row, waived.column, reason=waived.reason))
        for measurement, reason in refused:
            outcome.leaves(measurement, reason)
        if not jobs:
            reason = plan.reason or (refused[0][1] if refused else "nothing can be measured on this machine")
            tables = outcome.tables(plan.tables)
            return replace(base, reason=reason, tables=tables), ""

        if base.collective:
            base = replace(base, engine=jobs[0][0].name)
        for listener in self.listeners:
            listener.testcase_started(case, len(jobs) * max(1, self.options.cycles))
        used = tuple(dict.fromkeys(backend for backend, _ in jobs))
        watched = self.backends if base.collective else used  # the others read the state of its hardware
        before = self._state_before(watched)
        busy = _busy(watched)
        clock = used[0].now()

        def so_far() -> Document:
            result = replace(
                base, status=Status.INTERRUPTED, reason=UNFINISHED, tables=outcome.tables(plan.tables),
                seconds=used[0].now() - clock, state_before=before,
            )  # fmt: skip
            return replace(self._known(result), interrupted=UNFINISHED)

        ending = self._watch(case, outcome, jobs, watched, so_far)
        seconds = used[0].now() - clock
        outcome.complete(measurement for _, measurement in jobs)
        if outcome.unreachable and all(c.reason for cells in outcome.cells.values() for c in cells.values()):
            outcome.fails(Status.WAIVED, outcome.unreachable)
        tables = outcome.tables(plan.tables)
        warnings = [*outcome.warnings, *(w for backend in used for w in backend.warnings)]
        if base.collective:
            warnings += observations(tables)
        if self.options.plan.parallel_pairs and (blocks := blocking(tables)):
            warnings.append(blocks)
        for layout, table in zip(plan.tables, tables, strict=True):
            warnings += phases.warnings(case.name, table) if layout.rows_alike else []
        result = replace(
            base,
            status=outcome.status,
            reason=outcome.reason,
            tables=tables,
            seconds=seconds,
            warnings=tuple(dict.fromkeys(warnings)),
            state_before=before,
            state_after=() if ending else self._state(watched),
            readings=tuple(outcome.readings),
            busy=busy | ({} if ending else _busy(watched)),
        )
        for backend in used:
            backend.warnings.clear()
        return result, ending

    def _state(self, used: tuple[Backend, ...]) -> State:
        """Read the state of the hardware."""
        state = _state(used)
        self._read = (time.monotonic(), used, state)
        return state

    def _state_before(self, used: tuple[Backend, ...]) -> State:
        """Return the state of the hardware; what was read a moment ago, after another testcase, will do."""
        read, backends, state = self._read
        fresh = backends == used and time.monotonic() - read <= _FRESH
        return state if fresh else self._state(used)

    def _read_state(self, outcome: PartialResult, watched: Sequence[Backend], seconds: float) -> None:
        """Read the state of the hardware under load, once a second, of testcases that last so long."""
        if seconds < (len(outcome.readings) + 1) * _EVERY or len(outcome.readings) >= _MOST_READINGS:
            return
        outcome.readings.append(Reading(round(seconds, 1), _state(watched)))

    def _assign(
        self, measurements: Iterable[Measurement]
    ) -> tuple[list[tuple[Backend, Measurement]], list[tuple[Measurement, str]]]:
        """Give each Measurement to the first backend that runs it; the others with the reason."""
        jobs, refused = [], []
        for measurement in measurements:
            reasons = []
            for backend in self.backends:
                reason = backend.refuses(measurement)
                if reason is None:
                    jobs.append((backend, measurement))
                    break
                reasons.append(reason)
            else:
                why = "; ".join(filter(None, reasons))
                refused.append((measurement, why or "there is no backend for it"))
        return jobs, refused

    def _watch(
        self,
        case: Testcase,
        outcome: PartialResult,
        jobs: list[tuple[Backend, Measurement]],
        watched: Sequence[Backend],
        known: Callable[[], Document],
    ) -> str:
        """Let the worker measure; return why the run cannot go on (empty if it can)."""
        finished = threading.Event()
        several = [b for b in dict.fromkeys(b for b, _ in jobs) if isinstance(b, SpansProcesses)]

        def work() -> None:
            try:
                self._measure(outcome, jobs)
            except BaseException as error:  # handed to the watching thread, which raises it
                outcome.crash = error
            finally:
                finished.set()
                outcome.filled.put(())

        def tell(cells: Sequence[Filled]) -> None:
            for listener in self.listeners if cells else ():
                listener.measured(case, cells, known)

        ending = ""
        timeout = self.options.run.timeout + self.options.run.grace
        started = time.monotonic()
        try:
            threading.Thread(target=work, name=f"measure {case.name}", daemon=True).start()
            looked = started
            while not finished.is_set():
                with suppress(queue.Empty):
                    tell(outcome.filled.get(timeout=_LOOK))
                now = time.monotonic()
                if now - looked < _LOOK:
                    continue
                looked = now
                for listener in self.listeners:
                    listener.measuring(case, outcome.done, outcome.stage)
                self._read_state(outcome, watched, now - started)
                ending = next((b.exchange.gone for b in several if isinstance(b, Exchanging)), "")
                # What waits for a process that is gone may wait for ever.
                if ending and not finished.wait(_HOPELESS):
                    outcome.fails(Status.ERROR, ending)
                    self._cancel(outcome, jobs, finished)
                    break
                limit = max(timeout, *(b.setup_s for b in several)) if several else timeout
                if timeout and now - outcome.since > limit:
                    found = (backend.late(outcome.stage, limit) for backend in several)
                    fatal = next((error for error in found if error is not None), None)
                    late = fatal or MeasurementTimeout(outcome.stage, limit)
                    timed_out = isinstance(late, MeasurementTimeout)
                    outcome.fails(Status.TIMED_OUT if timed_out else Status.ERROR, str(late))
                    ending = str(fatal) if fatal else ""
                    if not self._cancel(outcome, jobs, finished):
                        return ending or f"{outcome.stage} did not come back after a time-out; the run ends"
                    break
        except KeyboardInterrupt:
            ending = next((why for b in several if (why := b.interrupted())), BY_USER)
            if ending == BY_USER:
                outcome.fails(Status.INTERRUPTED, f"{BY_USER} while {outcome.stage}")
            else:
                outcome.fails(Status.ERROR, ending)
            self._cancel(outcome, jobs, finished, _HASTE if several else _GRACE)
        while not outcome.filled.empty():
            tell(outcome.filled.get())
        if outcome.crash is not None:
            raise outcome.crash
        return ending or outcome.lost

    def _cancel(
        self,
        outcome: PartialResult,
        jobs: list[tuple[Backend, Measurement]],
        finished: threading.Event,
        grace: float = _GRACE,
    ) -> bool:
        """Ask the worker to stop; return whether it did."""
        outcome.cancelled = True
        if any(isinstance(backend, SpansProcesses) and not backend.can_cancel for backend, _ in jobs):
            grace = min(grace, _HOPELESS)
        until = time.monotonic() + grace
        while True:  # again and again: what is being prepared at this moment has not heard it
            for backend in dict.fromkeys(backend for backend, _ in jobs):
                backend.cancel()
            left = until - time.monotonic()
            if finished.wait(min(_LOOK, left)) or left <= 0:
                return finished.is_set()

    def _measure(self, outcome: PartialResult, jobs: list[tuple[Backend, Measurement]]) -> None:
        """The worker: measure one after the other, then again alone what looks low."""
        rule = self.options.rule.share(len(jobs))
        for _ in range(self.options.cycles) if self.options.cycles else itertools.count():
            for backend, measurement in jobs:
                if outcome.cancelled or not self._one(outcome, backend, measurement, rule):
                    return
                outcome.done += 1
        pairs = {part: backend for backend, m in jobs if outcome.repeats(m) for part in m.separate()}
        low = suspects(self._network, list(pairs), outcome.cells)
        repeated = low[:_MOST_REPEATED]
        before = {place: outcome.cells[place.table][place.row, place.column]
                  for pair in repeated for place in pair.places}  # fmt: skip
        for pair in repeated:
            if outcome.cancelled or not self._one(outcome, pairs[pair], pair, rule):
                return
        outcome.warnings += slowed(
            [(cell, outcome.cells[place.table][place.row, place.column]) for place, cell in before.items()],
            len(low) - len(repeated),
        )

    def _one(self, outcome: PartialResult, backend: Backend, measurement: Measurement, rule: Rule) -> bool:
        """Measure, or note what failed; return whether it makes sense to go on."""
        try:
            found = self._take(outcome, backend, measurement, rule)
        except VerificationError as error:
            outcome.fails(Status.FAILED, str(error))
            outcome.leaves(measurement, str(error), error.way)
        except MeasurementTimeout as error:
            outcome.fails(Status.TIMED_OUT, str(error))
            outcome.leaves(measurement, str(error))
            return False
        except BackendLost as error:
            late = isinstance(error.__cause__, MeasurementTimeout)
            outcome.fails(Status.TIMED_OUT if late else Status.ERROR, str(error))
            if not outcome.taken.get(measurement):
                outcome.leaves(measurement, str(error))
            outcome.lost = str(error)
            return False
        except Unreachable as error:
            outcome.unreachable = outcome.unreachable or str(error)
            outcome.leaves(measurement, str(error))
        except WirespeedError as error:
            if not outcome.repeats(measurement):  # of several pairs, the one that fails will fail alone
                outcome.fails(Status.ERROR, str(error))
            outcome.leaves(measurement, str(error))
        else:
            self._fill(outcome, measurement, *found)
        return True

    def _take(
        self, outcome: PartialResult, backend: Backend, measurement: Measurement, rule: Rule
    ) -> tuple[Taken, int | None]:
        """Prepare and sample one Measurement, naming each stage for the time-out; count wrong elements."""
        wrong: list[int] = []

        def staged(what: str, call: Callable[[], T]) -> T:
            outcome.stage, outcome.since = f"{what} {measurement}", time.monotonic()
            return call()

        def sample(copies: int) -> Sample:
            return staged("measuring", lambda: prepared.sample(copies))

        def verify() -> None:
            if self.options.verify and (found := staged("verifying", prepared.verify)) is not None:
                wrong.append(found)

        def warm_up() -> None:
            staged("warming up", prepared.warm_up if isinstance(prepared, WarmsUp) else lambda: sample(1))

        prepared: Prepared = staged("preparing", lambda: backend.prepare(measurement, self.options.run))
        with prepared:
            taken = take(sample, measurement, rule, backend.now, backend.sample_seconds, verify, warm_up)
        return taken, sum(wrong) if wrong else None

    def _fill(
        self, outcome: PartialResult, measurement: Measurement, taken: Taken, wrong: int | None
    ) -> None:
        """Turn the samples of a Measurement, and those of earlier cycles, into the cells that it fills."""
        allowed = allowances(self._network, measurement, efficiencies())

        def cells(taken: Taken, wrong: int | None) -> list[Filled]:
            skip, use_mean = self.options.run.collectives.skip, self.options.use_mean
            return [
                (place.table, cell_of(measurement, place, by, taken, wrong, skip=skip, use_mean=use_mean))
                for place, by in zip(measurement.places, allowed, strict=True)
            ]

        latest = cells(taken, wrong)
        before, wrong_before = outcome.taken.get(measurement, (None, None))
        if before:
            taken = Taken((*before.samples, *taken.samples), taken.copies)
            wrong = wrong if wrong_before is None else wrong_before + (wrong or 0)
        if self.options.cycles != 1:
            outcome.taken[measurement] = taken, wrong
        for table, cell in cells(taken, wrong) if before else latest:
            outcome.put(table, cell)
        if wrong:
            outcome.fails(Status.FAILED, f"{many(wrong, 'wrong element')} in {measurement}")
        outcome.filled.put(latest)


#: Why a run ended that the user interrupted.
BY_USER = "Ctrl-C"


def _state(used: Sequence[Backend]) -> State:
    """Read the state of the hardware of some backends, each quantity once."""
    return tuple({quantity.key: quantity for backend in used for quantity in backend.state()}.values())


def _busy(used: Sequence[Backend]) -> dict[str, str]:
    """Return what else uses the hardware of some backends: device -> how it is used."""
    return {k: v for backend in used if isinstance(backend, ReportsBusy) for k, v in backend.busy().items()}


def _timestamp() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds").replace("+00:00", "Z")


def _described(options: SessionOptions) -> dict[str, Any]:
    """The options as they go into the Document."""
    rule = {name: value if math.isfinite(value) else None for name, value in vars(options.rule).items()}
    return {
        "testcases": [case.name for case in options.testcases],
        "rule": type(options.rule).__name__.lower(),
        **rule,
        **described(vars(options.run) | vars(options.plan) | vars(options)),
        **({"launcher": options.launcher, "share": options.share} if options.launcher else {}),
        **options.described,
    }
