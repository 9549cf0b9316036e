"""Commands in a job of several processes: rank 0 prints, and all processes end together."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import TYPE_CHECKING

from ..errors import UsageError, WirespeedError
from ..exit_codes import ExitCode
from ..options import JOB
from ..run_errors import RunInterrupted
from ..signals import Undisturbed
from ..terminal import error_line
from .common import TakesOptions, add_options, measured_code

if TYPE_CHECKING:
    from ..document import Document
    from ..worlds.base import World


def add_job(to: TakesOptions) -> None:
    """Add the options of jobs of several processes."""
    to.add_argument(
        "--processes", type=int, default=1, metavar="N",
        help="start N processes on this host, one per GPU; only without a launcher (default: 1)",
    )  # fmt: skip
    add_options(to, JOB)


def lead(
    world: World | None,
    measure: Callable[[], Document],
    show: Callable[[Document], None],
    code: Callable[[Document], int] = measured_code,
    broken: int = ExitCode.RUN,
    broken_off: Callable[[Document], int] | None = None,
) -> int:
    """Measure, show the Document on rank 0, and return the exit code.

    Args:
        world: The processes of the job; None for a single process.
        measure: Runs the measurements; called on all ranks.
        show: Prints the Document; called on rank 0.
        code: Returns the exit code of a Document; called on rank 0.
        broken: The exit code if the job broke off, for a reason other than the user's.
        broken_off: Returns the exit code of a Document of such a job; None for ``broken``.

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
                _speak_for_leader(world, str(error))
            world.close()
            if not first:
                return ExitCode.USAGE if isinstance(error, UsageError) else broken
        raise
    if first:
        with Undisturbed() as late:
            show(document)
        if late.signals and interrupted is None:
            interrupted = RunInterrupted(document)
    if world is not None and document.interrupted:
        _speak_for_leader(world, document.interrupted)
        world.fail(document.interrupted, interrupted=interrupted is not None)
        ended = broken_off(document) if broken_off else broken
        world.leave(ExitCode.INTERRUPTED if interrupted else ended)
    if world is not None:
        world.close()
    if interrupted:
        raise interrupted
    return code(document) if first else ExitCode.PASS


def _speak_for_leader(world: World, reason: str) -> None:
    """Print the reason on one rank of each host, and rank 1, if rank 0 has ended or does not answer."""
    if world.leaderless and (world.rank == 1 or world.local_rank == 0):
        print(error_line(f"wirespeed: error: {reason}"), file=sys.stderr, flush=True)
