"""Plan, waive, run, summarise: from Testcases and backends to a Document.

The measuring is done in a worker thread; this one watches it, so that a call that never comes
back, or Ctrl-C, still leaves a Document of what was measured.
"""

from __future__ import annotations

import math
import platform
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Protocol, TypeVar

from msgspec.structs import replace

from .backends.base import Backend, OneOfMany, Prepared, RunOptions, Watching
from .contention import blocking, scheduled, slowed, suspects
from .data import efficiencies
from .errors import (
    BackendLost,
    MeasurementTimeout,
    RunInterrupted,
    UnknownTestcase,
    Unreachable,
    VerificationError,
    WirespeedError,
)
from .limits import Network, allowances
from .model import Engine, Measurement, Reduce, Role, Sample, value_of
from .partial_result import PartialResult
from .results.document import SCHEMA, Cell, Document, Reading, Status, TestcaseResult
from .sampling import Fixed, Precise, Rule, Taken, take
from .statistics import summarise
from .testcases import PlanOptions, Testcase
from .topology import Machine
from .version import __version__

#: How long a cancelled call may take to come back before the run is given up, in s.
_GRACE = 5.0
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
class Options:
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
    """

    testcases: tuple[Testcase, ...]
    plan: PlanOptions = field(default_factory=PlanOptions)
    rule: Rule = field(default_factory=Precise)
    run: RunOptions = field(default_factory=RunOptions)
    verify: bool = True
    use_mean: bool = False
    command: str = ""
    warnings: tuple[str, ...] = ()
    launcher: str = ""
    share: str | None = None


class Listener(Protocol):
    """What is told of the course of a run. All calls come from the thread that runs the Session."""

    def run_started(self, document: Document, testcases: Sequence[Testcase]) -> None: ...

    def testcase_started(self, case: Testcase, measurements: int) -> None: ...

    def measuring(self, case: Testcase, done: int, stage: str) -> None:
        """Several times a second, while the testcase runs."""

    def testcase_ended(self, document: Document, result: TestcaseResult) -> None: ...

    def run_ended(self, document: Document) -> None: ...


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
        options: Options,
        listeners: Iterable[Listener] = (),
    ) -> None:
        self.machine = machine
        self.backends = tuple(backends)
        self.options = options
        self.listeners = tuple(listeners)
        self._network = Network(machine)
        self._started = time.monotonic()
        #: When, of which backends, and what was read of the state last.
        self._read: tuple[float, tuple[Backend, ...], dict[str, float | str]] = (-math.inf, (), {})

    def run(self) -> Document:
        """Run every testcase and return the Document.

        Raises
        ------
        RunInterrupted
            On Ctrl-C; it carries the Document.
        """
        self._started = time.monotonic()
        document = Document(
            schema=SCHEMA,
            version=__version__,
            command=self.options.command,
            host=platform.node(),
            python=platform.python_version(),
            libraries={k: v for backend in self.backends for k, v in backend.libraries().items()},
            simulated=self.machine.simulated,
            machine=self.machine,
            options=_described(self.options),
            started=_timestamp(),
            warnings=self.options.warnings,
        )
        for listener in self.listeners:
            listener.run_started(document, self.options.testcases)
        try:
            for case in self.options.testcases:
                result, ending = self._testcase(case)
                document = replace(
                    self._timed(document), testcases=(*document.testcases, result), interrupted=ending
                )
                for listener in self.listeners:
                    listener.testcase_ended(document, result)
                if ending:
                    break
        except KeyboardInterrupt:
            document = replace(document, interrupted=_BY_USER)
        finally:
            document = self._timed(document)
            for listener in self.listeners:
                listener.run_ended(document)
        if document.interrupted == _BY_USER:
            raise RunInterrupted(document)
        return document

    def _timed(self, document: Document) -> Document:
        return replace(document, ended=_timestamp(), seconds=time.monotonic() - self._started)

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

        for listener in self.listeners:
            listener.testcase_started(case, len(jobs))
        used = tuple(dict.fromkeys(backend for backend, _ in jobs))
        before = self._state_before(used)
        busy = _busy(used)
        clock = used[0].now()
        ending = self._watch(case, outcome, jobs)
        seconds = used[0].now() - clock
        outcome.complete(measurement for _, measurement in jobs)
        if outcome.unreachable and all(c.reason for cells in outcome.cells.values() for c in cells.values()):
            outcome.fails(Status.WAIVED, outcome.unreachable)
        tables = outcome.tables(plan.tables)
        warnings = [*outcome.warnings, *(w for backend in used for w in backend.warnings)]
        if self.options.plan.parallel_pairs and (blocks := blocking(tables)):
            warnings.append(blocks)
        result = replace(
            base,
            status=outcome.status,
            reason=outcome.reason,
            tables=tables,
            seconds=seconds,
            warnings=tuple(dict.fromkeys(warnings)),
            state_before=before,
            state_after={} if ending else self._state(used),
            readings=tuple(outcome.readings),
            busy=busy | ({} if ending else _busy(used)),
        )
        for backend in used:
            backend.warnings.clear()
        return result, ending

    def _state(self, used: tuple[Backend, ...]) -> dict[str, float | str]:
        """Read the state of the hardware."""
        state = {name: value for backend in used for name, value in backend.state().items()}
        self._read = (time.monotonic(), used, state)
        return state

    def _state_before(self, used: tuple[Backend, ...]) -> dict[str, float | str]:
        """Return the state of the hardware; what was read a moment ago, after another testcase, will do."""
        read, backends, state = self._read
        fresh = backends == used and time.monotonic() - read <= _FRESH
        return state if fresh else self._state(used)

    def _read_state(
        self, outcome: PartialResult, jobs: list[tuple[Backend, Measurement]], seconds: float
    ) -> None:
        """Read the state of the hardware under load, once a second, of testcases that last so long."""
        if seconds < (len(outcome.readings) + 1) * _EVERY or len(outcome.readings) >= _MOST_READINGS:
            return
        state: dict[str, float | str] = {}
        for backend in dict.fromkeys(backend for backend, _ in jobs):
            state |= backend.state()
        outcome.readings.append(Reading(round(seconds, 1), state))

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
                refused.append((measurement, "; ".join(reasons) or "there is no backend for it"))
        return jobs, refused

    def _watch(self, case: Testcase, outcome: PartialResult, jobs: list[tuple[Backend, Measurement]]) -> str:
        """Let the worker measure; return why the run cannot go on (empty if it can)."""
        finished = threading.Event()

        def work() -> None:
            try:
                self._measure(outcome, jobs)
            except BaseException as error:  # handed to the watching thread, which raises it
                outcome.crash = error
            finally:
                finished.set()

        ending = ""
        timeout = self.options.run.timeout + self.options.run.grace
        started = time.monotonic()
        try:
            threading.Thread(target=work, name=f"measure {case.name}", daemon=True).start()
            while not finished.wait(_LOOK):
                for listener in self.listeners:
                    listener.measuring(case, outcome.done, outcome.stage)
                self._read_state(outcome, jobs, time.monotonic() - started)
                if time.monotonic() - outcome.since > timeout:
                    outcome.fails(Status.TIMED_OUT, str(MeasurementTimeout(outcome.stage, timeout)))
                    if not self._cancel(outcome, jobs, finished):
                        return f"{outcome.stage} did not come back after a time-out; the run ends"
                    break
        except KeyboardInterrupt:
            several = [b for b in dict.fromkeys(b for b, _ in jobs) if isinstance(b, OneOfMany)]
            ending = next((why for b in several if (why := b.interrupted())), _BY_USER)
            if ending == _BY_USER:
                outcome.fails(Status.INTERRUPTED, f"by the user while {outcome.stage}")
            else:
                outcome.fails(Status.ERROR, ending)
            self._cancel(outcome, jobs, finished, _HASTE if several else _GRACE)
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
            taken = self._take(outcome, backend, measurement, rule)
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
            self._fill(outcome, measurement, taken)
        return True

    def _take(self, outcome: PartialResult, backend: Backend, measurement: Measurement, rule: Rule) -> Taken:
        """Prepare and sample one Measurement, naming each stage for the time-out."""

        def staged(what: str, call: Callable[[], T]) -> T:
            outcome.stage, outcome.since = f"{what} {measurement}", time.monotonic()
            return call()

        def sample(copies: int) -> Sample:
            return staged("measuring", lambda: prepared.sample(copies))

        def verify() -> None:
            if self.options.verify:
                staged("verifying", prepared.verify)

        prepared: Prepared = staged("preparing", lambda: backend.prepare(measurement, self.options.run))
        with prepared:
            return take(sample, measurement, rule, backend.now, backend.sample_seconds, verify)

    def _fill(self, outcome: PartialResult, measurement: Measurement, taken: Taken) -> None:
        """Turn the samples of a Measurement into the cells that it fills."""
        allowed = allowances(self._network, measurement, efficiencies())
        for place, by_links in zip(measurement.places, allowed, strict=True):
            values = tuple(value_of(place, measurement, sample) for sample in taken.samples)
            summary = summarise(values)
            moved = taken.samples[0].amounts
            counted = sum(moved[i] * measurement.transfers[i].counted for i in place.transfers)
            paced = any(measurement.transfers[i].role is Role.LOAD for i in place.transfers)  # no fixed size
            cell = Cell(
                place.row,
                place.column,
                summary.mean if self.options.use_mean else summary.median,
                **vars(by_links),
                bytes=0 if paced or place.reduce is Reduce.LATENCY else round(counted / taken.copies),
                copies=taken.copies,
                means=_means(place.transfers, taken.samples[0].means),
                statistics=summary,
                samples=values,
            )
            outcome.put(place.table, cell)


_BY_USER = "by the user"


def _means(transfers: Sequence[int], means: Sequence[str]) -> str:
    return ", ".join(dict.fromkeys(means[i] for i in transfers)) if means else ""


def _busy(used: Sequence[Backend]) -> dict[str, str]:
    """Return what else uses the hardware of some backends: device -> how it is used."""
    return {k: v for backend in used if isinstance(backend, Watching) for k, v in backend.busy().items()}


def _timestamp() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds").replace("+00:00", "Z")


def _described(options: Options) -> dict[str, str | int | float | bool | list[str] | None]:
    """The options as they go into the Document."""
    rule = options.rule
    counts: dict[str, str | int | float | bool | list[str] | None] = (
        {"rule": "fixed", "samples": rule.samples, "copies": rule.copies}
        if isinstance(rule, Fixed)
        else {
            "rule": "precise",
            "precision": rule.precision,
            "time_budget": rule.time_budget,
            "testcase_budget": rule.testcase_budget if math.isfinite(rule.testcase_budget) else None,
            "fewest_samples": rule.fewest_samples,
        }
    )
    return {
        "testcases": [case.name for case in options.testcases],
        "tier": str(options.plan.tier),
        "size": options.plan.size,
        **counts,
        "verify": options.verify,
        "use_mean": options.use_mean,
        "affinity": options.run.affinity,
        "blocks": options.plan.blocks,
        "threads": options.plan.threads,
        "local_copy": options.plan.local_copy,
        "pageable": options.plan.pageable,
        "parallel_pairs": options.plan.parallel_pairs,
        "sample_peers": options.plan.sample_peers,
        "virtual_memory": options.run.virtual_memory,
        "all_engines": options.run.all_engines,
        "timeout": options.run.timeout,
        "seed": options.run.seed,
        **({"launcher": options.launcher, "share": options.share} if options.launcher else {}),
    }
