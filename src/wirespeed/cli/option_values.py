"""What parsed options stand for: the options of a run, the criteria of judgement, the style of a report."""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..errors import UsageError
from ..terminal import colored, columns

if TYPE_CHECKING:
    from ..judging.criteria import Criteria
    from ..judging.judged import Judged
    from ..options import RunOptions
    from ..reports import Style
    from ..results.inventory import Inventory


#: How the names of testcases of lists of blocks begin.
_BLOCKS = "blocks_"
#: What the help of commands that measure says of the options that the help of `run` describes.
OF_RUN = "also all options of `wirespeed run`, such as -t, --machine, --devices, --tier and --within"


def run_options(options: argparse.Namespace, **changes: Any) -> RunOptions:
    """The parsed options of a run, with changes."""
    from ..options import RunOptions, declared

    names = [field.name for field, _ in declared(RunOptions) if hasattr(options, field.name)]
    return RunOptions(**{name: getattr(options, name) for name in names} | changes)


def criteria(options: argparse.Namespace) -> Criteria:
    """The criteria of judgement; reads the files."""
    from ..judging.criteria import Criteria, MaxAge
    from ..results import baseline, overrides

    oldest = getattr(options, "max_age", None)
    if "tolerance" in options.given and not options.baseline:
        raise UsageError("--tolerance has no effect without --baseline")
    accepted = overrides.load(options.overrides) if options.overrides else ()
    good = baseline.load(options.baseline) if options.baseline else None
    age = MaxAge(oldest, time.time()) if oldest else None
    return Criteria(
        accepted, good, options.tolerance, options.ignore_busy, expected(options), age,
        allow_simulated=getattr(options, "allow_simulated", False),
    )  # fmt: skip


def expected(options: argparse.Namespace) -> Inventory | None:
    """What each host should have; None if nothing is expected."""
    from ..results.inventory import strictest

    return strictest(options.expect) if options.expect else None


def refuse_blocks(options: argparse.Namespace, testcases: Sequence[str]) -> None:
    """Refuse ``--blocks`` if all testcases are given and none moves lists of blocks.

    Raises:
        UsageError: If it would do nothing; the former ``--blocks`` of `run` was that of kernels.
    """
    lists = [name for name in testcases if name.startswith(_BLOCKS) or _BLOCKS.startswith(name)]
    if "block_counts" in options.given and testcases and not lists:
        raise UsageError(
            "--blocks has no effect without testcases blocks_*; --kernel-blocks is for copy kernels"
        )


def measuring(options: argparse.Namespace) -> dict[str, Any]:
    """The arguments of ``wirespeed.run`` from the options of ``add_measuring``."""
    refuse_blocks(options, [*options.testcase, *options.prefix])
    about = {"prefixes": options.prefix, "machine": options.machine, "testcases": [*options.testcase]}
    return about | timed(run_options(options))


def timed(options: RunOptions) -> dict[str, Any]:
    """The options of a run and the start of its time limit, as arguments of ``wirespeed.run``."""
    return {"options": options, "since": None if options.within is None else process_started()}


def process_started() -> float:
    """When this process started, in s of the monotonic clock; now if the system does not say."""
    try:
        # The fields after the name, which is in parentheses and may contain anything.
        ticks = int(Path("/proc/self/stat").read_text().rpartition(")")[2].split()[19])
    except (OSError, ValueError, IndexError):
        return time.monotonic()
    # Both clocks at the same moment: a busy machine may let a process wait between any two lines.
    now, up = time.monotonic(), time.clock_gettime(time.CLOCK_BOOTTIME)
    return now - max(0.0, up - ticks / os.sysconf("SC_CLK_TCK"))


def style(options: argparse.Namespace) -> Style:
    """The style for this terminal, with the requested detail."""
    from ..reports import Style

    given = vars(options)
    all_cells, settings = given.get("all_cells", False), given.get("in_force", ())
    return Style(columns(), colored(), given.get("verbose", False), all_cells=all_cells, settings=settings)


def check_format(name: str) -> None:
    """Refuse an unknown format before anything is measured.

    Raises:
        UsageError: If there is no such format; the message lists all.
    """
    from ..reports import find

    find(name)


def print_report(judged: Judged, options: argparse.Namespace) -> None:
    """Print a run in the requested format and detail."""
    from ..reports import render

    if not getattr(options, "quiet", False):
        print(render(judged, options.format, style(options)), end="", flush=True)
