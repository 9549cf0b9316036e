"""The time that a run with a limit has left, and which testcases it still measures in that time."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field

from ..backends.base import Backend
from ..errors import WirespeedError
from ..hardware.durations import connect_seconds, end_seconds, least_seconds, start_seconds, usual_seconds
from ..hardware.link_graph import Network
from ..hardware.topology import Machine
from ..measurement import Measurement
from ..options import RunOptions
from ..statistics import Rule
from ..testcases.selections import COVERING
from ..testcases.table import Plan, Testcase

#: Why a value was not measured.
NO_TIME = "no time was left (--within)"
#: Time that a cancelled call has to return at the end of the run, in s.
_CANCEL_S = 0.5
#: The end of a run may take longer than usual by the factor by which its start did, on a busy machine. Its
#: maximum.
_MOST_SLOWNESS = 4.0


@dataclass(eq=False)
class Estimates:
    """The times of testcases on a machine, from their plans.

    Attributes:
        network: Links of the machine.
        rule: When sampling stops.
        verify: Whether every sample is verified.
        sample_s: Minimum duration of a sample, in s.
    """

    network: Network
    rule: Rule
    verify: bool
    sample_s: float
    _connected: bool = False

    def of(self, plan: Plan) -> float:
        """The usual time of a plan, in s."""
        rule = self.rule.share(len(plan.measurements))
        seconds = math.fsum(
            usual_seconds(self.network, measurement, rule, verify=self.verify, sample_s=self.sample_s)
            for measurement in plan.measurements
        )
        return seconds + (0.0 if self._connected else math.fsum(map(connect_seconds, plan.measurements[:1])))

    def least(self, measurement: Measurement) -> float:
        """The time of a Measurement with the fewest samples, in s."""
        seconds = least_seconds(
            self.network, measurement, self.rule, verify=self.verify, sample_s=self.sample_s
        )
        connecting = 0.0 if self._connected else connect_seconds(measurement)
        return seconds + connecting

    def measured(self, measurement: Measurement) -> None:
        """Know that a Measurement was made: what it connected stays connected."""
        self._connected = self._connected or connect_seconds(measurement) > 0


@dataclass(eq=False)
class TimeLimit:
    """The limit of a run.

    Attributes:
        end: When measuring ends, in s on the clock.
        now: The clock: of this host, or virtual time.
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
                self._covering[case.name] = self.estimates.of(plan) if plan.measurements else 0.0

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
        return sum(map(self.estimates.least, measurements)) <= self.left

    def allows(self, measurement: Measurement) -> bool:
        """Whether there is time for a Measurement."""
        return self.left > 0 and self.estimates.least(measurement) <= self.left


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
    estimates = Estimates(Network(machine), options.rule, options.verify, sample_s)
    starting, ending = start_seconds(machine), end_seconds(machine)
    for backend in backends:
        if backend.virtual:
            end = backend.elapsed() + within - starting - ending
            return TimeLimit(end, backend.elapsed, estimates, virtual=True)
    slowness = min(_MOST_SLOWNESS, max(1.0, (time.monotonic() - since) / starting))
    return TimeLimit(since + within - slowness * ending, time.monotonic, estimates, virtual=False)
