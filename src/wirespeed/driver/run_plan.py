"""Measurements with smaller buffers, for devices with little free memory.

The time that a run with a limit has left, and what it measures in it.

What testcases took in earlier runs of this machine: a small file in the user's cache folder.

What a run would measure, in which order, and how long it would take: nothing is measured.
"""

from __future__ import annotations

import hashlib
import json
import math
import platform
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any

from ..backends.base import Backend
from ..document import Document, Status, TestcaseResult
from ..errors import WirespeedError
from ..files import cache_folder, new_file, read_own
from ..hardware.durations import connect_seconds, end_seconds, least_seconds, start_seconds, usual_seconds
from ..hardware.network import Network
from ..hardware.topology import Machine
from ..measurement import Measurement
from ..model import Access, Engine, Transfer
from ..options import RunOptions, documented
from ..statistics import Rule
from ..testcases import TABLE, Plan, Testcase
from ..testcases.selections import COVERING, by_value
from ..units import MIB, format_size
from .jobs import Listener

#: The smallest buffer whose copies are still long compared with their start, in bytes.
LEAST_BYTES = 16 * MIB
#: The smallest buffer that no cache of a GPU holds, for what reads and writes one memory, in bytes. The
#: largest is that of a B200, 126 MB.
LEAST_LOCAL_BYTES = 256 * MIB


def shrunk(measurement: Measurement) -> Measurement | None:
    """A Measurement with buffers of half the size; None if it would measure something else."""
    transfers = measurement.transfers
    if len(transfers) < len(measurement.works) or not all(map(_can_shrink, transfers)):
        return None
    return replace(measurement, works=tuple(replace(t, bytes=t.bytes // 2) for t in transfers))


def _can_shrink(transfer: Transfer) -> bool:
    """Whether half of a buffer is still large; caches of CPUs are too different for that."""
    local = transfer.access is Access.LOCAL
    half = transfer.bytes / 2
    return (
        not transfer.operation.is_latency
        and transfer.scattered is None
        and transfer.calls is None
        and transfer.engine is not Engine.CPU
        and half >= (LEAST_LOCAL_BYTES if local else LEAST_BYTES)
        and half % MIB == 0
    )


def smaller_buffers(planned: Measurement, measured: Measurement, reason: str) -> str:
    """The warning that smaller buffers were used, and why."""
    used, wanted = (format_size(m.transfers[0].bytes) for m in (measured, planned))
    return f"buffers of {used} in place of {wanted}: {reason}"


#: Why a value was not measured.
NO_TIME = "no time was left (--within)"
#: Time that a cancelled call has to return at the end of the run, in s.
_CANCEL_S = 0.5
#: The end of a run may take longer than usual by the factor by which its start did, on a busy machine. Its
#: maximum.
_MOST_SLOWNESS = 4.0
#: Range of the factor by which estimates are multiplied to agree with earlier runs.
_FACTORS = 0.2, 5.0


@dataclass(eq=False)
class Estimates:
    """The times of testcases on a machine, from their plans and from earlier runs.

    Attributes:
        network: Links of the machine.
        rule: When sampling stops.
        verify: Whether every sample is verified.
        sample_s: Minimum duration of a sample, in s.
        earlier: Testcase -> its time in an earlier run, in s.
    """

    network: Network
    rule: Rule
    verify: bool
    sample_s: float
    earlier: Mapping[str, float]
    _connected: bool = False
    #: Testcase -> time in an earlier run over its estimate.
    _factors: dict[str, float] = field(default_factory=dict)

    def of(self, case: Testcase, plan: Plan) -> float:
        """The usual time of a testcase, in s."""
        rule = self.rule.share(len(plan.measurements))
        seconds = math.fsum(
            usual_seconds(self.network, measurement, rule, verify=self.verify, sample_s=self.sample_s)
            for measurement in plan.measurements
        )
        if plan.measurements and case.name in self.earlier:
            low, high = _FACTORS
            self._factors[case.name] = min(high, max(low, self.earlier[case.name] / seconds))
            return self.earlier[case.name]
        return seconds + (0.0 if self._connected else math.fsum(map(connect_seconds, plan.measurements[:1])))

    def least(self, case: Testcase, measurement: Measurement) -> float:
        """The time of a Measurement with the fewest samples, in s."""
        seconds = least_seconds(
            self.network, measurement, self.rule, verify=self.verify, sample_s=self.sample_s
        )
        connecting = 0.0 if self._connected else connect_seconds(measurement)
        return seconds * self._factors.get(case.name, 1.0) + connecting

    def measured(self, measurement: Measurement) -> None:
        """Know that a Measurement was made: what it connected stays connected."""
        self._connected = self._connected or connect_seconds(measurement) > 0


@dataclass(eq=False)
class TimeLimit:
    """The limit of a run.

    Attributes:
        end: When measuring ends, in s on the clock.
        now: The clock: that of this host, or virtual time.
        estimates: What testcases take.
        virtual: Whether the clock is virtual: nothing is late there.
    """

    end: float
    now: Callable[[], float]
    estimates: Estimates
    virtual: bool
    _covering: dict[str, float] = field(default_factory=dict)

    def expect(self, cases: Iterable[Testcase], plan_of: Callable[[Testcase], Plan]) -> None:
        """Estimate the testcases that cover the machine."""
        for case in (case for case in cases if case.name in COVERING):
            with suppress(WirespeedError):  # it cannot be planned, which its result will say
                plan = plan_of(case)
                self._covering[case.name] = self.estimates.of(case, plan) if plan.measurements else 0.0

    @property
    def left(self) -> float:
        """Time left for measurements, in s."""
        return self.end - self.now()

    @property
    def is_over(self) -> bool:
        """Whether measurements that run must end, because real time is over."""
        return not self.virtual and self.left < 0

    @property
    def is_late(self) -> bool:
        """Whether a cancelled call has had its time to return."""
        return not self.virtual and self.left < -_CANCEL_S

    def begin(self, case: Testcase, rule: Rule) -> Rule:
        """The rule for a testcase: smaller budgets if those that cover the machine lack time."""
        needed = math.fsum(self._covering.values())
        self._covering.pop(case.name, None)
        return rule if needed <= 0 else rule.shrunk(max(self.left, 0.0) / needed)

    def rule(self, rule: Rule, measurements: int) -> Rule:
        """The rule for the next of several Measurements."""
        budget = rule.time_budget
        return rule.shrunk(max(self.left, 0.0) / max(1, measurements) / budget) if budget else rule

    def starts(self, case: Testcase, measurements: Sequence[Measurement], *, partly: bool) -> bool:
        """Whether a testcase begins.

        A part of a table has too few peers to be compared with, so that it can hide what is slow. Testcases
        that cover the machine begin in any case, and so do all with ``partly``.
        """
        if partly or case.name in COVERING:
            return self.left > 0
        return sum(self.estimates.least(case, measurement) for measurement in measurements) <= self.left

    def allows(self, case: Testcase, measurement: Measurement) -> bool:
        """Whether there is time for a Measurement."""
        return self.left > 0 and self.estimates.least(case, measurement) <= self.left


def limit_of(
    options: RunOptions, machine: Machine, backends: Sequence[Backend], since: float
) -> TimeLimit | None:
    """The time limit of a run that starts now; in virtual time if nothing is measured in real time.

    Args:
        options: Options of the run.
        machine: Its machine.
        backends: What measures it.
        since: When its time began, in s of the monotonic clock.

    Returns:
        None without a limit.
    """
    within = options.within
    if within is None:
        return None
    sample_s = max((backend.sample_seconds for backend in backends), default=0.0)
    estimates = Estimates(
        Network(machine), options.rule, verify=options.verify, sample_s=sample_s,
        earlier=earlier_times(kind_of_run(machine, options)),
    )  # fmt: skip
    starting, ending = start_seconds(machine), end_seconds(machine)
    for backend in backends:
        if backend.virtual:
            end = backend.elapsed() + within - starting - ending
            return TimeLimit(end, backend.elapsed, estimates, virtual=True)
    slowness = min(_MOST_SLOWNESS, max(1.0, (time.monotonic() - since) / starting))
    return TimeLimit(since + within - slowness * ending, time.monotonic, estimates, virtual=False)


#: Name of the file, its maximum size in bytes, and the maximum number of kinds of runs in it.
_FILE, _MOST_BYTES, _MOST_KINDS = "times.json", 2**20, 16
#: Options that hardly change how long a testcase takes.
_IRRELEVANT = ("within", "seed", "tier")

#: Testcases whose names mean the same in every run.
_NAMES = frozenset(case.name for case in TABLE)


def kind_of_run(machine: Machine, options: RunOptions) -> str:
    """A name for runs that take about the same time: of this machine, with these options."""
    relevant = {name: value for name, value in documented(options).items() if name not in _IRRELEVANT}
    devices = [gpu.name for gpu in machine.gpus], [(node.name, len(node.cpus)) for node in machine.numa]
    text = repr((machine.host, devices, options.rule, options.concurrent, options.sizes, relevant))
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def earlier_times(of_kind: str) -> Mapping[str, float]:
    """Testcase -> its time in the last run of a kind, in s; empty without one."""
    of_cases = _load().get(of_kind, {})
    times = of_cases.items() if isinstance(of_cases, dict) else ()
    return {name: float(s) for name, s in times if isinstance(s, int | float) and 0 < s < float("inf")}


def _load() -> dict[str, Any]:
    """The whole file; empty if there is none, or if it is not ours to read."""
    try:
        times = json.loads(read_own(cache_folder() / _FILE, _MOST_BYTES))
    except (OSError, ValueError):
        return {}
    return times if isinstance(times, dict) else {}


class RunTimes(Listener):
    """Keeps the times of the complete testcases of a run.

    Attributes:
        of_kind: The kind of the run.
    """

    def __init__(self, of_kind: str) -> None:
        self._kind = of_kind

    def run_ended(self, document: Document) -> None:
        """Keep the times; a run with a time limit, which may have shortened them, adds only new ones."""
        measured = [result for result in document.testcases if result.seconds]
        first = {result.engine: result.name for result in reversed(measured)}  # they load libraries
        times = {
            result.name: round(result.seconds, 3)
            for result in measured
            if _complete(result) and result.name in _NAMES and result.name not in first.values()
        }
        if not times:
            return
        before = dict(earlier_times(self._kind))
        merged = times | before if document.options.get("within") is not None else before | times
        others = [(name, old) for name, old in _load().items() if name != self._kind]
        kept = dict([*others[-(_MOST_KINDS - 1) :], (self._kind, merged)])
        with suppress(OSError):  # without a folder, times are estimated
            folder = cache_folder()
            with new_file(json.dumps(kept).encode(), folder, _FILE) as written:
                written.replace(folder / _FILE)


def _complete(result: TestcaseResult) -> bool:
    """Whether a testcase measured all of its values."""
    cells = [cell for table in result.tables for cell in table.cells]
    return result.status is Status.PASSED and bool(cells) and all(cell.value is not None for cell in cells)


#: Minimum duration of a sample that is assumed, in s.
_SAMPLE_S = 1e-3


@dataclass(frozen=True)
class PlannedTestcase:
    """A testcase of a run.

    Attributes:
        case: The testcase.
        values: Number of values.
        seconds: How long it takes, in s.
        begins: When it begins, in s from the start of the process.
        in_time: Whether it ends within the time limit of the run.
        reason: Why it cannot be measured on this machine; empty if it can.
    """

    case: Testcase
    values: int
    seconds: float
    begins: float
    in_time: bool
    reason: str


def run_plan(cases: Sequence[Testcase], machine: Machine, options: RunOptions) -> tuple[PlannedTestcase, ...]:
    """The testcases of a run in the order in which they are measured.

    Times are those of earlier runs of this machine with the same options, else estimated from the plan.

    Args:
        cases: The testcases.
        machine: The machine.
        options: Options of the run.
    """
    is_here = not machine.simulated and machine.host == platform.node()
    earlier = earlier_times(kind_of_run(machine, options)) if is_here else {}
    estimates = Estimates(
        Network(machine), options.rule, verify=options.verify, sample_s=_SAMPLE_S, earlier=earlier
    )
    clock, planned = start_seconds(machine), []
    end = float("inf") if options.within is None else options.within - end_seconds(machine)
    for case in cases if options.within is None else by_value(cases):
        try:
            plan = case.plan(machine, options)
        except WirespeedError as error:
            plan = Plan.waive(str(error))
        seconds = estimates.of(case, plan) if plan.measurements else 0.0
        for measurement in plan.measurements[:1]:
            estimates.measured(measurement)
        values = sum(len(measurement.places) for measurement in plan.measurements)
        in_time = clock + seconds <= end
        planned.append(PlannedTestcase(case, values, seconds, clock, in_time, plan.reason))
        clock += seconds if in_time else 0.0
    return tuple(planned)
