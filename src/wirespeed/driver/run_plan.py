"""The plan of a run: what it would measure, in which order, and how long that would take. Nothing is
measured.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ..errors import WirespeedError
from ..hardware.durations import end_seconds, start_seconds
from ..hardware.link_graph import Network
from ..hardware.topology import Machine
from ..options import RunOptions
from ..testcases.selections import by_value
from ..testcases.table import Plan, Testcase
from .time_limit import Estimates

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

    Times are estimated from the plans.

    Args:
        cases: The testcases.
        machine: The machine.
        options: Options of the run.
    """
    estimates = Estimates(Network(machine), options.rule, options.verify, _SAMPLE_S)
    clock, planned = start_seconds(machine), []
    end = float("inf") if options.within is None else options.within - end_seconds(machine)
    for case in cases if options.within is None else by_value(cases):
        try:
            plan = case.plan(machine, options)
        except WirespeedError as error:
            if case.written:
                raise
            plan = Plan.waive(str(error))
        seconds = estimates.of(plan) if plan.measurements else 0.0
        for measurement in plan.measurements[:1]:
            estimates.measured(measurement)
        values = sum(len(measurement.places) for measurement in plan.measurements)
        in_time = clock + seconds <= end
        reason = plan.reason or ("" if values else next((cell.reason for cell in plan.waived), ""))
        planned.append(PlannedTestcase(case, values, seconds, clock, in_time, reason))
        clock += seconds if in_time else 0.0
    return tuple(planned)
