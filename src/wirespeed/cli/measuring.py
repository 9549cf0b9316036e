"""Measuring by a command, its exit code, and its end. In a job of several processes, rank 0 prints, and all
processes end together.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

from ..errors import ExitCode, UsageError, WirespeedError
from ..run_errors import SIGNALLED, RunInterrupted, Undisturbed
from ..terminal import error_line, visible

if TYPE_CHECKING:
    from ..document import Document
    from ..judging.judged import Judged
    from ..testcases.table import Testcase
    from ..worlds.base import World


def measured(given: argparse.Namespace, testcases: Iterable[str | Testcase] = (), **more: Any) -> Document:
    """Measure with the output and the progress of a command.

    Args:
        given: Options of the command.
        testcases, more: Arguments of ``wirespeed.run``.
    """
    from ..api import run
    from ..progress import Announcement, listener

    usual = {"output": given.output, "force": given.force, "listeners": listener(),
             "command": " ".join(["wirespeed", *sys.argv[1:]])}  # fmt: skip
    arguments = usual | more
    if "options" in arguments:
        arguments["listeners"] = [Announcement(arguments["options"]), *arguments["listeners"]]
    return run(testcases=testcases, **arguments)


def measured_code(judged: Judged) -> ExitCode:
    """The exit code of a command that measures: whether anything failed, or nothing has a value."""
    if judged.check.verdict.is_failure:
        return ExitCode.FAIL
    values = any(table.values() for result in judged.document.testcases for table in result.tables)
    return ExitCode.PASS if values else ExitCode.NOT_JUDGED


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
    ending: str = "",
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
        ending: Line that a process prints on standard output if it reports in place of rank 0.

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
        SIGNALLED.heard()
        if world is not None:
            world.fail(f"interrupted on {world.me}", interrupted=True)
        raise
    except WirespeedError as error:  # the same on all ranks
        if world is not None:
            if not first:
                speak_for_leader(world, str(error), ending)
            world.close()
            if not first:
                return ExitCode.USAGE if isinstance(error, UsageError) else broken
        raise

    from ..judging.judged import Judged

    judged = judging(document) if judging else Judged(document)
    if first:
        with Undisturbed() as late:
            show(judged)
        if late.signals and interrupted is None:
            interrupted = RunInterrupted(document)
    if world is not None and document.interrupted:
        speak_for_leader(world, document.interrupted, ending)
        world.fail(document.interrupted, interrupted=interrupted is not None)
        ended = broken_off(judged) if broken_off else broken
        world.leave(ExitCode.INTERRUPTED if interrupted else ended)
    if world is not None:
        world.close()
    if interrupted:
        interrupted.is_shown = says and first
        raise interrupted
    return code(judged) if first else ExitCode.PASS


def speak_for_leader(world: World, reason: str, ending: str = "") -> None:
    """Print the reason on one rank of each host, and rank 1, if rank 0 has ended or does not answer.

    ``ending`` is a further line, for standard output.
    """
    if world.leaderless and (world.rank == 1 or world.local_rank == 0):
        if ending:
            print(visible(ending), flush=True)
        print(error_line(f"wirespeed: error: {reason}"), file=sys.stderr, flush=True)
