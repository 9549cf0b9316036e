"""Plan, waive, run, summarise: from Testcases and backends to a Document.

The measuring is done in a worker thread; this one watches it, so that a call that never comes
back, or Ctrl-C, still leaves a Document of what was measured.
"""

from __future__ import annotations

import math
import platform
import statistics
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Protocol, TypeVar

from msgspec.structs import replace

from .backends.base import Backend, OneOfMany, Prepared, RunOptions, Watching
from .blocking import blocking, slowed
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
from .limits import Network, allowances, undisturbed
from .model import Engine, Measurement, Reduce, Role, Sample, value_of
from .results.document import SCHEMA, Cell, Document, Reading, Status, Table, TestcaseResult
from .sampling import Fixed, Precise, Rule, Taken, take
from .statistics import summarise
from .testcases import Layout, Plan, PlanOptions, Testcase
from .testcases.rounds import ALONE
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
#: A pair that was measured at the same time as others looks low this far under what it should be, and is
#: measured again alone; at most this many of a testcase.
_LOOKS_LOW, _MOST_REPEATED = 0.05, 256

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


@dataclass
class _Outcome:
    """What the worker has found of one testcase so far; the watching thread reads along.

    ``cells`` are by table, row and column; ``warnings`` are what it found itself, besides the backends.
    """

    cells: dict[str, dict[tuple[int, int], Cell]]
    status: Status = Status.PASSED
    reason: str = ""
    done: int = 0
    stage: str = "starting"
    since: float = 0.0
    lost: str = ""
    unreachable: str = ""
    crash: BaseException | None = None
    cancelled: bool = False
    readings: list[Reading] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)

    def put(self, table: str, cell: Cell) -> None:
        """Fill a cell, in place of what was there."""
        self.cells[table][cell.row, cell.column] = cell

    def fails(self, status: Status, reason: str) -> None:
        """Note a failure; the first one gives the reason."""
        if self.status is Status.PASSED:
            self.status, self.reason = status, reason


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
        jobs, refused = self._assign(self._scheduled(plan))
        outcome = _Outcome(cells={layout.key: {} for layout in plan.tables}, since=time.monotonic())
        for waived in plan.waived:
            outcome.put(waived.table, Cell(waived.row, waived.column, reason=waived.reason))
        for measurement, reason in refused:
            _without_value(outcome, measurement, reason)
        if not jobs:
            reason = plan.reason or (refused[0][1] if refused else "nothing can be measured on this machine")
            tables = tuple(_table(layout, outcome.cells[layout.key]) for layout in plan.tables)
            return replace(base, reason=reason, tables=tables), ""

        for listener in self.listeners:
            listener.testcase_started(case, len(jobs))
        used = tuple(dict.fromkeys(backend for backend, _ in jobs))
        before = self._state_before(used)
        busy = _busy(used)
        clock = used[0].now()
        ending = self._watch(case, outcome, jobs)
        seconds = used[0].now() - clock
        _complete(outcome, [measurement for _, measurement in jobs])
        if outcome.unreachable and all(c.reason for cells in outcome.cells.values() for c in cells.values()):
            outcome.fails(Status.WAIVED, outcome.unreachable)
        tables = tuple(_table(layout, outcome.cells[layout.key]) for layout in plan.tables)
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

    def _read_state(self, outcome: _Outcome, jobs: list[tuple[Backend, Measurement]], seconds: float) -> None:
        """Read the state of the hardware under load, once a second, of testcases that last so long."""
        if seconds < (len(outcome.readings) + 1) * _EVERY or len(outcome.readings) >= _MOST_READINGS:
            return
        state: dict[str, float | str] = {}
        for backend in dict.fromkeys(backend for backend, _ in jobs):
            state |= backend.state()
        outcome.readings.append(Reading(round(seconds, 1), state))

    def _scheduled(self, plan: Plan) -> list[Measurement]:
        """Take rounds of pairs apart where the links are not known to give each pair what it gets alone."""
        found: list[Measurement] = []
        for measurement in plan.measurements:
            apart = measurement.independent and not (
                self.options.plan.parallel_pairs or undisturbed(self._network, measurement)
            )
            found += measurement.separate() if apart else [measurement]
        return found

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

    def _watch(self, case: Testcase, outcome: _Outcome, jobs: list[tuple[Backend, Measurement]]) -> str:
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
        outcome: _Outcome,
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

    def _measure(self, outcome: _Outcome, jobs: list[tuple[Backend, Measurement]]) -> None:
        """The worker: measure one after the other, then again alone what looks low."""
        rule = self.options.rule.share(len(jobs))
        for backend, measurement in jobs:
            if outcome.cancelled or not self._one(outcome, backend, measurement, rule):
                return
            outcome.done += 1
        suspects = self._suspects(outcome, jobs)
        repeated = suspects[:_MOST_REPEATED]
        before = {place: outcome.cells[place.table][place.row, place.column]
                  for _, m in repeated for place in m.places}  # fmt: skip
        for backend, measurement in repeated:
            if outcome.cancelled or not self._one(outcome, backend, measurement, rule):
                return
        outcome.warnings += slowed(
            [(cell, outcome.cells[place.table][place.row, place.column]) for place, cell in before.items()],
            len(suspects) - len(repeated),
        )

    def _one(self, outcome: _Outcome, backend: Backend, measurement: Measurement, rule: Rule) -> bool:
        """Measure, or note what failed; return whether it makes sense to go on."""
        try:
            taken = self._take(outcome, backend, measurement, rule)
        except VerificationError as error:
            outcome.fails(Status.FAILED, str(error))
            _without_value(outcome, measurement, str(error), error.way)
        except MeasurementTimeout as error:
            outcome.fails(Status.TIMED_OUT, str(error))
            _without_value(outcome, measurement, str(error))
            return False
        except BackendLost as error:
            late = isinstance(error.__cause__, MeasurementTimeout)
            outcome.fails(Status.TIMED_OUT if late else Status.ERROR, str(error))
            _without_value(outcome, measurement, str(error))
            outcome.lost = str(error)
            return False
        except Unreachable as error:
            outcome.unreachable = outcome.unreachable or str(error)
            _without_value(outcome, measurement, str(error))
        except WirespeedError as error:
            if not _is_repeated(outcome, measurement):  # of several pairs, the one that fails will fail alone
                outcome.fails(Status.ERROR, str(error))
            _without_value(outcome, measurement, str(error))
        else:
            self._fill(outcome, measurement, taken)
        return True

    def _suspects(
        self, outcome: _Outcome, jobs: Sequence[tuple[Backend, Measurement]]
    ) -> list[tuple[Backend, Measurement]]:
        """Return the pairs that look low of those measured at the same time as others.

        Low: under the typical value of a pair alone, or under the median of the pairs that are alike, by
        more than ``_LOOKS_LOW``; or without a value, since one of the others may have failed.
        """
        parts = [(b, part) for b, m in jobs if _is_repeated(outcome, m) for part in m.separate()]
        alike: dict[tuple[str, str], list[float]] = {}
        looked = []
        for backend, part in parts:
            for place, alone in zip(
                part.places, allowances(self._network, part, efficiencies()), strict=True
            ):
                value = outcome.cells[place.table][place.row, place.column].value
                key = (place.table, f"{alone.limit or 0:.3g}")
                typical = alone.expected[1] if alone.expected else None
                looked.append((backend, part, place, value, typical, key))
                if value is not None:
                    alike.setdefault(key, []).append(value)
        found: dict[Measurement, Backend] = {}
        for backend, part, place, value, typical, key in looked:
            median = statistics.median(alike[key]) if key in alike else 0.0
            if value is None:
                low = True
            elif place.reduce is Reduce.LATENCY:
                low = value > median * (1 + _LOOKS_LOW)
            else:
                low = value < max(median, typical or 0.0) * (1 - _LOOKS_LOW)
            if low:
                found[part] = backend
        return [(backend, part) for part, backend in found.items()]

    def _take(self, outcome: _Outcome, backend: Backend, measurement: Measurement, rule: Rule) -> Taken:
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

    def _fill(self, outcome: _Outcome, measurement: Measurement, taken: Taken) -> None:
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


def _without_value(outcome: _Outcome, measurement: Measurement, reason: str, corrupted: str = "") -> None:
    for place in measurement.places:
        outcome.put(place.table, Cell(place.row, place.column, reason=reason, corrupted=corrupted))


def _is_repeated(outcome: _Outcome, measurement: Measurement) -> bool:
    """Whether pairs that look low are measured again alone.

    Not where some are measured alone anyway, which shows whether pairs disturb each other.
    """
    return measurement.independent and ALONE not in outcome.cells


def _busy(used: Sequence[Backend]) -> dict[str, str]:
    """Return what else uses the hardware of some backends: device -> how it is used."""
    return {k: v for backend in used if isinstance(backend, Watching) for k, v in backend.busy().items()}


def _means(transfers: Sequence[int], means: Sequence[str]) -> str:
    return ", ".join(dict.fromkeys(means[i] for i in transfers)) if means else ""


def _complete(outcome: _Outcome, measurements: Sequence[Measurement]) -> None:
    """Say of every cell that was not reached why not."""
    for measurement in measurements:
        for place in measurement.places:
            if (place.row, place.column) not in outcome.cells[place.table]:
                reason = f"not measured: {outcome.reason}"
                outcome.put(place.table, Cell(place.row, place.column, reason=reason))


def _table(layout: Layout, cells: Mapping[tuple[int, int], Cell]) -> Table:
    ordered = tuple(cell for _, cell in sorted(cells.items()))
    return Table(layout.key, _title(layout, ordered), layout.unit, layout.rows, layout.columns, ordered)


def _title(layout: Layout, cells: Sequence[Cell]) -> str:
    """Return the title of a table; where messages moved the bytes it names their engine."""
    measured = {cell.means for cell in cells if cell.value is not None}
    messages = [engine for engine in (Engine.NCCL, Engine.MPI) if any(engine in m for m in measured)]
    title = layout.title
    for engine in (Engine.CE, Engine.SM, Engine.CPU) if messages else ():
        others = any(not m or m not in (Engine.NCCL, Engine.MPI) for m in measured)
        names = "+".join([*([engine.upper()] if others else []), *(m.upper() for m in messages)])
        title = title.replace(f" {engine.upper()} ", f" {names} ")
    return title


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
