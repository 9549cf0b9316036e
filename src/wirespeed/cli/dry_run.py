"""``--dry-run``: what a run would measure, in which order and how long it takes."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from ..errors import ExitCode
from ..terminal import visible
from ..units import format_time, many

if TYPE_CHECKING:
    from ..driver.run_plan import PlannedTestcase
    from ..hardware.topology import Machine


def dry_run(arguments: dict[str, Any], options: argparse.Namespace) -> int:
    """Print the plan of a run; return the exit code.

    Args:
        arguments: Those of ``wirespeed.run``, as ``measuring`` returns them.
        options: Options of the command.
    """
    from ..api import as_changed, choose, part_of
    from ..backends import describe
    from ..driver.run_plan import run_plan

    chosen = arguments["options"]
    machine = part_of(describe(options.machine), chosen)
    cases = as_changed(choose(arguments["testcases"], arguments.get("prefixes", ()), chosen), chosen)
    print(visible(_text(run_plan(cases, machine, chosen), machine, chosen.within)))
    return ExitCode.PASS


def _text(planned: Sequence[PlannedTestcase], machine: Machine, within: float | None) -> str:
    """The plan as a table."""
    from ..hardware.durations import end_seconds

    where = f"{machine.name or machine.host}{' (SIMULATED)' if machine.simulated else ''}"
    lines = [f"dry run on {where}; nothing is measured", "", "  begins    takes  values  testcase"]
    possible = [entry for entry in planned if not entry.reason]
    for entry in possible:
        begins = format_time(entry.begins) if entry.in_time else "left out"
        lines.append(f"{begins:>8} {format_time(entry.seconds):>8} {entry.values:>7}  {entry.case.name}")
    measured = [entry for entry in possible if entry.in_time]
    ends = max((entry.begins + entry.seconds for entry in measured), default=0.0) + end_seconds(machine)
    values = many(sum(entry.values for entry in measured), "value")
    lines += ["", f"about {format_time(ends)} for {values} of {many(len(measured), 'testcase')}"]
    if within is not None and len(measured) < len(possible):
        left = many(len(possible) - len(measured), "testcase")
        lines.append(f"within {format_time(within)}, there may be no time for {left}")
    refused = [entry for entry in planned if entry.reason]
    if len(planned) == 1:
        lines += [f"not possible here: {entry.reason}" for entry in refused]
    elif refused:
        lines.append(f"{many(len(refused), 'testcase')} not possible here; `wirespeed list` says why")
    return "\n".join(lines)
