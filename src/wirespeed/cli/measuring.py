"""What commands that measure share: their options, ``--dry-run``, and the end of a run.

In a job of several processes, rank 0 prints, and all processes end together.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..errors import ExitCode, UsageError, WirespeedError
from ..judging.judged import Judged
from ..run_errors import RunInterrupted
from ..signals import Undisturbed
from ..terminal import error_line, visible
from ..units import format_time, many
from .common import run_options

if TYPE_CHECKING:
    from ..document import Document
    from ..driver.run_plan import PlannedTestcase
    from ..hardware.topology import Machine
    from ..language.toml_file import Program
    from ..options import RunOptions
    from ..testcases import Testcase
    from ..worlds.base import World


def measured_code(judged: Judged) -> ExitCode:
    """The exit code of a command that measures: whether anything failed, or nothing has a value."""
    if judged.check.verdict.is_failure:
        return ExitCode.FAIL
    values = any(table.values() for result in judged.document.testcases for table in result.tables)
    return ExitCode.PASS if values else ExitCode.NOT_JUDGED


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
    cases = as_changed(choose(arguments["testcases"], arguments["prefixes"], chosen), chosen)
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
    if refused := len(planned) - len(possible):
        lines.append(f"{many(refused, 'testcase')} not possible here; `wirespeed list` says why")
    return "\n".join(lines)


def measured(given: argparse.Namespace, testcases: Iterable[str | Testcase] = (), **more: Any) -> Document:
    """Measure with the output and the progress of a command.

    Args:
        given: Options of the command.
        testcases, more: Arguments of ``wirespeed.run``.
    """
    from ..api import run
    from ..progress import listener

    usual = {"output": given.output, "force": given.force, "listeners": listener(),
             "command": " ".join(["wirespeed", *sys.argv[1:]])}  # fmt: skip
    return run(testcases=testcases, **usual | more)


def lead(
    world: World | None,
    measure: Callable[[], Document],
    show: Callable[[Judged], None],
    code: Callable[[Judged], int] = measured_code,
    broken: int = ExitCode.RUN,
    broken_off: Callable[[Judged], int] | None = None,
    judging: Callable[[Document], Judged] | None = None,
    *,
    says: bool = False,
) -> int:
    """Measure, show the Document on rank 0, and return the exit code.

    Args:
        world: The processes of the job; None for a single process.
        measure: Runs the measurements; called on all ranks.
        show: Prints the run; called on rank 0.
        code: Returns the exit code of a run; called on rank 0.
        broken: The exit code if the job broke off, for a reason other than the user's.
        broken_off: Returns the exit code of a run of such a job; None for ``broken``.
        judging: Returns what judges a Document; None to judge it by its limits.
        says: Whether ``show`` tells a person that the run was interrupted.

    Raises:
        RunInterrupted: On Ctrl-C, after showing the Document.
        WirespeedError: If nothing could be measured; only on rank 0.
    """
    first = world is None or world.rank == 0
    interrupted = None
    try:
        document = measure()
    except RunInterrupted as error:
        document, interrupted = error.document, error
    except KeyboardInterrupt:  # before anything was measured
        if world is not None:
            world.fail(f"interrupted on {world.me}", interrupted=True)
        raise
    except WirespeedError as error:  # the same on all ranks
        if world is not None:
            if not first:
                speak_for_leader(world, str(error))
            world.close()
            if not first:
                return ExitCode.USAGE if isinstance(error, UsageError) else broken
        raise

    judged = judging(document) if judging else Judged(document)
    if first:
        with Undisturbed() as late:
            show(judged)
        if late.signals and interrupted is None:
            interrupted = RunInterrupted(document)
    if world is not None and document.interrupted:
        speak_for_leader(world, document.interrupted)
        world.fail(document.interrupted, interrupted=interrupted is not None)
        ended = broken_off(judged) if broken_off else broken
        world.leave(ExitCode.INTERRUPTED if interrupted else ended)
    if world is not None:
        world.close()
    if interrupted:
        interrupted.is_shown = says and first
        raise interrupted
    return code(judged) if first else ExitCode.PASS


def speak_for_leader(world: World, reason: str) -> None:
    """Print the reason on one rank of each host, and rank 1, if rank 0 has ended or does not answer."""
    if world.leaderless and (world.rank == 1 or world.local_rank == 0):
        print(error_line(f"wirespeed: error: {reason}"), file=sys.stderr, flush=True)


def measuring(options: argparse.Namespace) -> dict[str, Any]:
    """The arguments of ``wirespeed.run`` from the options of ``add_measuring``."""
    programs = []
    if options.file:
        from ..language.toml_file import load

        programs = [load(path) for path in options.file]
    return {
        "prefixes": options.prefix,
        "machine": options.machine,
        **with_programs(run_options(options), programs, options.testcase),
    }


def process_started() -> float:
    """When this process started, in s of the monotonic clock; now if the system does not say."""
    now = time.monotonic()
    try:
        # The fields after the name, which is in parentheses and may contain anything.
        ticks = int(Path("/proc/self/stat").read_text().rpartition(")")[2].split()[19])
    except (OSError, ValueError, IndexError):
        return now
    age = time.clock_gettime(time.CLOCK_BOOTTIME) - ticks / os.sysconf("SC_CLK_TCK")
    return now - max(0.0, age)


def with_programs(
    options: RunOptions, programs: Sequence[Program], testcases: Sequence[str] = ()
) -> dict[str, Any]:
    """The arguments of ``wirespeed.run`` for programs: their testcases, settings and text.

    Raises:
        UsageError: If a setting of a program differs from the options.
    """
    cases = [case for program in programs for case in program.testcases]
    arguments: dict[str, Any] = {"testcases": [*testcases, *cases]}
    for program in programs:
        options = replace(options, **program.settings(vars(options)))
    arguments["since"] = None if options.within is None else process_started()
    if programs:
        arguments["described"] = {"transfers": [program.text for program in programs]}
    return arguments | {"options": options}
