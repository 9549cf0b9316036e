"""A command that may be one of several processes: who speaks, and how all come to an end."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import TYPE_CHECKING

from ..errors import RunInterrupted, UsageError, WirespeedError
from ..options import JOB
from .common import FAILED, INTERRUPTED, OK, WRONG_USE, TakesOptions, add_options

if TYPE_CHECKING:
    from ..document import Document
    from ..worlds.base import World


def add_job(to: TakesOptions) -> None:
    """Add what concerns several processes."""
    to.add_argument(
        "--processes", type=int, default=1, metavar="N",
        help="start N processes here, one for each GPU; not under a launcher (default: 1)",
    )  # fmt: skip
    add_options(to, JOB)


def good(document: Document) -> int:
    """Return the exit code of a run that may have nothing to do."""
    return OK if document.good else FAILED


def lead(
    world: World | None,
    measure: Callable[[], Document],
    show: Callable[[Document], None],
    code: Callable[[Document], int] = good,
) -> int:
    """Measure, show the Document in the process that speaks for all, and return the exit code of it.

    Raises
    ------
    RunInterrupted
        On Ctrl-C, after the Document was shown.
    WirespeedError
        If nothing could be measured; only in the process that speaks.
    """
    first = world is None or world.rank == 0
    interrupted = None
    try:
        document = measure()
    except RunInterrupted as error:
        document, interrupted = error.document, error
    except WirespeedError as error:  # all ranks find the same
        if world is not None:
            world.close()
            if not first:
                return WRONG_USE if isinstance(error, UsageError) else FAILED
        raise
    if first:
        show(document)
    if world is not None and document.interrupted:
        if world.rank == 1 and world.leaderless:
            print(f"wirespeed: error: {document.interrupted}", file=sys.stderr, flush=True)
        world.fail(document.interrupted)
        world.leave(INTERRUPTED if interrupted else FAILED)
    if world is not None:
        world.close()
    if interrupted:
        raise interrupted
    return code(document) if first else OK
