"""What `pt2pt` and `overalloc` share: options, and a run between the first and the last rank."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from ..driver.jobs import Filled, Listener
from ..errors import ExitCode, UsageError
from ..hardware.devices import is_host
from ..terminal import error_line, visible
from .common import (
    add_output,
    add_report,
    check_format,
    measured_code,
    print_report,
    style,
    texts_aside,
    typed,
)
from .dry_run import lead

if TYPE_CHECKING:
    from ..document import Document
    from ..judging.judged import Judged
    from ..testcases import Testcase


class Lines(Listener):
    """Listener that prints the lines of the reproducer during the run."""

    def __init__(self) -> None:
        self._printed = 0

    def measured(self, case: Testcase, cells: Sequence[Filled], known: Callable[[], Document]) -> None:
        """Print the lines that this measurement adds."""
        from ..reports.overalloc import reproduced

        document = known()
        self.print(reproduced(document, document.testcases[-1]))

    def print(self, lines: Sequence[str]) -> None:
        """Print the lines that were not printed yet."""
        for line in lines[self._printed :]:
            print(visible(line), flush=True)
        self._printed = max(self._printed, len(lines))


def countable(*sizes: int) -> None:
    """Refuse messages with more bytes than MPI can count.

    Raises:
        UsageError: If a message is too large.
    """
    from ..testcases.base import MAX_MPI_BYTES

    if max(sizes) > MAX_MPI_BYTES:
        raise UsageError(
            f"a message of {max(sizes)} bytes is too large for MPI; the maximum is {MAX_MPI_BYTES}"
        )


def among(allowed: Sequence[str]) -> Callable[[str], tuple[str, ...]]:
    """The parser of a comma-separated list of these words."""

    def parse(text: str) -> tuple[str, ...]:
        parts = tuple(dict.fromkeys(part.strip() for part in text.split(",")))
        if unknown := [part for part in parts if part not in allowed]:
            raise argparse.ArgumentTypeError(f"{unknown[0]!r} is not one of {', '.join(allowed)}")
        return parts

    return parse


def add_running(to: argparse.ArgumentParser) -> None:
    """Add the time-out and the options of output."""
    from ..units import parse_duration

    group = to.add_argument_group("running")
    group.add_argument(
        "-T", "--timeout", type=typed(parse_duration), default=60.0, metavar="TIME",
        help="maximum time of one stage (default: 60s)",
    )  # fmt: skip
    add_output(group)
    add_report(group)


def between_two(
    name: str, argv: Sequence[str], options: argparse.Namespace, cases: Sequence[Testcase],
    described: dict[str, Any], printing: Lines | None = None, **settings: Any,
) -> int:  # fmt: skip
    """Join the ranks, measure, print and save; return the exit code.

    Args:
        name: Name of the command.
        argv: Its arguments.
        options: Its parsed options.
        cases: The testcases to measure.
        described: Options of the command, for the Document.
        printing: Prints results during the run, instead of progress.
        settings: Options of ``wirespeed.run``: when to stop.

    Raises:
        WirespeedError: If nothing can be measured; only on rank 0.
    """
    from ..api import run
    from ..driver.jobs import join
    from ..progress import listener
    from ..reports import render
    from ..worlds import launched
    from ..worlds.launchers import mpirun

    check_format(options.format)
    if options.output:
        options.output.check(options.force)
    world = join(1 if launched() else 2, [name, *argv], options.timeout)
    if world is None:
        raise UsageError(f"{name} requires two ranks: start it with {mpirun(f'wirespeed {name} ...', 2)}")

    def measure() -> Document:
        return run(
            cases, world=world, timeout=options.timeout, output=options.output, force=options.force,
            listeners=[printing] if printing else listener(), command=" ".join(["wirespeed", name, *argv]),
            described={"ranks": world.size, **described}, **settings,
        )  # fmt: skip

    def show(judged: Judged) -> None:
        if printing:
            printing.print(render(judged, options.format, style(options)).splitlines())
        else:
            print_report(judged, options)
        if interrupted := judged.document.interrupted:
            print(error_line(f"wirespeed: error: {interrupted}"), file=sys.stderr, flush=True)

    with texts_aside(options.output):
        return lead(world, measure, show, _exit_code)


def _exit_code(judged: Judged) -> int:
    """The exit code; prints the reason if nothing could be measured."""
    code, document = measured_code(judged), judged.document
    if code is ExitCode.NOT_JUDGED:
        reason = "; ".join(dict.fromkeys(result.reason for result in document.testcases))
        without = any(is_host(rank.device) for rank in document.machine.ranks)
        hint = "; pass --memory host to measure host memory" if without else ""
        print(error_line(f"wirespeed: error: nothing could be measured: {reason}{hint}"), file=sys.stderr)
    return code
