"""``wirespeed pt2pt`` and what it shares with ``overalloc``: runs between two ranks."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, NoReturn

from ..errors import UsageError, WirespeedError
from ..terminal import columns
from .common import (
    FAILED,
    INTERRUPTED,
    OK,
    WRONG_USE,
    add_output,
    add_report,
    check_format,
    parser,
    print_report,
    texts_aside,
    typed,
)

if TYPE_CHECKING:
    from ..pt2pt.job import Run, Settings
    from ..worlds.base import World

_MEMORIES, _OVER = ("gpu", "host"), ("mpi", "nccl")
_SIZES = "1:64MiB:x4"
#: Bytes of one message: MPI has them in an int.
_MOST = 2**31 - 1


def main(name: str, argv: Sequence[str]) -> int:
    """Run the command and return its exit code."""
    from ..units import parse_sizes

    arguments = parser(
        name,
        "Latency, bandwidth, bidirectional bandwidth and rate of messages between the first and the last\n"
        "rank, over MPI and NCCL, from host and GPU memory; first messages and new buffers apart.\n"
        "mpirun -np 2 wirespeed pt2pt; without a launcher, two processes are started here (NCCL only).",
    )
    arguments.add_argument(
        "--over", type=among(_OVER), default=_OVER, metavar="LIST", help="mpi, nccl (default: both)"
    )
    arguments.add_argument(
        "--memory", type=among(_MEMORIES), default=_MEMORIES, metavar="LIST", help="gpu, host (default: both)"
    )
    arguments.add_argument(
        "--sizes", type=typed(parse_sizes), default=parse_sizes(_SIZES), metavar="SIZES",
        help=f"of messages, such as 8:1MiB:x8 or 1KiB,1MiB (default: {_SIZES})",
    )  # fmt: skip
    add_running(arguments)
    options = arguments.parse_args(argv)
    if "mpi" in options.over:
        countable(*options.sizes)
    settings: Settings = {
        "over": list(options.over),
        "memory": list(options.memory),
        "sizes": [str(size) for size in options.sizes],
    }

    def measure(run: Run) -> None:
        from ..pt2pt.job import combinations
        from ..pt2pt.testcases import pt2pt

        pairs = combinations(options.over, options.memory)
        if not pairs:
            raise UsageError("NCCL sends memory of GPUs alone: give --memory gpu, or --over mpi")
        for over, memory in pairs:
            pt2pt(run, over, memory, options.sizes)

    return between_two(name, argv, options, settings, measure)


def countable(*sizes: int) -> None:
    """Refuse messages that MPI cannot count.

    Raises
    ------
    UsageError
        If one is too large.
    """
    if max(sizes) > _MOST:
        raise UsageError(f"a message of {max(sizes)} bytes is more than MPI counts; {_MOST} are the most")


def among(allowed: Sequence[str]) -> Callable[[str], tuple[str, ...]]:
    """Return the parser of a list of these words."""

    def parse(text: str) -> tuple[str, ...]:
        parts = tuple(dict.fromkeys(part.strip() for part in text.split(",")))
        if unknown := [part for part in parts if part not in allowed]:
            raise argparse.ArgumentTypeError(f"{unknown[0]!r} is none of {', '.join(allowed)}")
        return parts

    return parse


def add_running(to: argparse.ArgumentParser) -> None:
    """Add how to run and what to do with the Document."""
    from ..units import parse_duration

    group = to.add_argument_group("running")
    group.add_argument(
        "-T", "--timeout", type=typed(parse_duration), default=60.0, metavar="TIME",
        help="give up when one stage takes longer (default: 60s)",
    )  # fmt: skip
    add_output(group)
    add_report(group)


def between_two(
    name: str, argv: Sequence[str], options: argparse.Namespace, settings: Settings,
    measure: Callable[[Run], None],
) -> int:  # fmt: skip
    """Join the ranks, measure, print and save; return the exit code.

    Raises
    ------
    WirespeedError
        If nothing can be measured; only in the process that speaks.
    """
    from ..jobs import join
    from ..results.store import check_writable
    from ..worlds import launched
    from ..worlds.mpirun import mpirun

    check_format(options.format)
    if options.output:
        check_writable(options.output)
    world = join(1 if launched() else 2, [name, *argv], options.timeout)
    if world is None:
        raise UsageError(f"{name} needs two ranks: start it with {mpirun(f'wirespeed {name} ...', 2)}")
    with texts_aside(options.output):
        return _measured(world, [name, *argv], options, settings, measure)


def _measured(
    world: World, arguments: Sequence[str], options: argparse.Namespace, settings: Settings,
    measure: Callable[[Run], None],
) -> int:  # fmt: skip
    """Measure, print and save; return the exit code."""
    run = None
    try:
        run = _set_up(world, arguments, options, settings)
        measure(run)
    except (WirespeedError, KeyboardInterrupt) as error:
        _end(world, options, error, run)
    run.shown("")
    run.site.close()
    done = any(result.status.value == "passed" for result in run.results)
    if world.rank == 0:
        print_report(run.document(), options)
    world.barrier("ending")
    world.close()
    if not done:
        reason = "; ".join(dict.fromkeys(result.reason for result in run.results))
        if world.rank == 0:
            print(f"wirespeed: error: nothing could be measured: {reason}", file=sys.stderr)
        return WRONG_USE
    return OK


def _set_up(world: World, arguments: Sequence[str], options: argparse.Namespace, settings: Settings) -> Run:
    from ..backends import discover
    from ..jobs import gather_machine
    from ..pt2pt.job import Run, Site, check

    check(world, settings)
    here = discover()
    site = Site(world, gather_machine(world, here), here, options.timeout)
    command = " ".join(["wirespeed", *arguments])
    return Run(world, site, settings, command, options.output, _progress(world))


def _end(world: World, options: argparse.Namespace, error: BaseException, run: Run | None) -> NoReturn:
    """Show what is known, say what went wrong, and leave without waiting for anybody."""
    first = world.rank == 0
    if run is not None:
        run.shown("")
    if first and run is not None and run.results:
        print_report(run.document(), options)
    if first or (world.rank == 1 and world.leaderless):
        print(f"wirespeed: error: {str(error) or 'interrupted'}", file=sys.stderr, flush=True)
    world.fail(str(error) or "interrupted by the user")
    if isinstance(error, KeyboardInterrupt):
        world.leave(INTERRUPTED)
    world.leave(WRONG_USE if isinstance(error, UsageError) else FAILED)


def _progress(world: World) -> Callable[[str], None]:
    """Return what shows the stage; on rank 0 of a terminal."""
    if world.rank != 0 or not sys.stderr.isatty():
        return lambda stage: None

    def show(stage: str) -> None:
        print(f"\r{stage[: columns() - 1]}\033[K\r", end="", file=sys.stderr, flush=True)

    return show
