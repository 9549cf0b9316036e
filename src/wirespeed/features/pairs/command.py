"""``wirespeed overalloc``: the over-allocation reproducer, and a sweep over mechanisms of sharing a buffer
between the first and the last rank of a job.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from ...cli.measuring import lead, measured, measured_code
from ...cli.option_groups import among
from ...cli.option_values import check_format, print_report, style
from ...cli.parser import Parser
from ...cli.run_files import texts_aside
from ...driver.jobs import join
from ...driver.listener import Filled, Listener
from ...errors import ExitCode, UsageError
from ...hardware.devices import is_host
from ...judging.judged import Judged
from ...terminal import error_line, visible
from ...units import format_size, parse_duration, parse_size
from .messages import MAX_MPI_BYTES
from .sharing import MECHANISMS, reproducer, sharing

if TYPE_CHECKING:
    from ...document import Document
    from ...testcases.table import Testcase


class Lines(Listener):
    """Listener that prints the lines of the reproducer during the run."""

    def __init__(self) -> None:
        self._printed = 0

    def measured(self, case: Testcase, cells: Sequence[Filled], known: Callable[[], Document]) -> None:
        """Print the lines that this measurement adds."""
        from .overalloc_text import reproduced

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
    if max(sizes) > MAX_MPI_BYTES:
        raise UsageError(
            f"a message of {max(sizes)} bytes is too large for MPI; the maximum is {MAX_MPI_BYTES}"
        )


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
    from ...reports import render
    from ...worlds.launchers import launched, mpirun

    check_format(options.format)
    if options.output:
        options.output.check(options.force)
    world = join(1 if launched() else 2, [name, *argv], options.timeout)
    if world is None:
        raise UsageError(f"{name} requires two ranks: start it with {mpirun(f'wirespeed {name} ...', 2)}")

    def measure() -> Document:
        more = settings | ({"listeners": [printing]} if printing else {})
        return measured(
            options, cases, world=world, command=" ".join(["wirespeed", name, *argv]),
            timeout=options.timeout, described={"ranks": world.size, **described}, **more,
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


#: Mechanisms, and the default ones by memory.
_MEANS = ("ipc", "vmm-fd", "fabric", "shm", "mpi", "nccl")
_DEFAULT = {"gpu": ("ipc", "vmm-fd", "mpi", "nccl"), "host": ("shm", "mpi")}
#: Default over-allocations.
_OVER = "0,1,4KiB,64KiB,1MiB,2MiB,2097153"
#: Arguments of the reproducer.
_GIVEN = ("NUM_ITERATIONS", "NUM_SUB_ITERATIONS", "P2P_SIZE", "BUFFER_SIZE", "OVERALLOC_SIZE")


def main(name: str, argv: Sequence[str]) -> int:
    options = parser(name).parse_args(argv)
    if options.sweep == bool(options.given) or len(options.given) not in (0, len(_GIVEN)):
        raise UsageError(f"pass either --sweep or the five numbers {' '.join(_GIVEN)}")
    options.format = options.format or ("table" if options.sweep else "overalloc")
    if options.sweep:
        return _sweep(name, argv, options)
    return _reproduce(name, argv, options)


def parser(name: str) -> Parser:
    arguments = Parser(
        name,
        "Measure whether messages are slower if slightly more memory is allocated than needed.\n\n"
        "  mpirun -np 2 wirespeed overalloc N ...\n"
        "  wirespeed overalloc --sweep\n\n"
        f"N ... are {', '.join(_GIVEN)}.\n"
        "The first form sends P2P_SIZE bytes from the first rank to the last by MPI, NUM_SUB_ITERATIONS\n"
        "times from each of NUM_ITERATIONS new buffers of BUFFER_SIZE + OVERALLOC_SIZE bytes, then of\n"
        "BUFFER_SIZE. The second times every phase of sharing a buffer, for several over-allocations and\n"
        "mechanisms; without a launcher it starts two processes on this host.",
        examples={
            "overalloc --sweep": "all mechanisms",
            "overalloc --sweep --means ipc --extra 0,1": "one of them",
            "overalloc --sweep --memory host": "host memory",
        },
        often="--memory --sweep --means --extra -o --format",
    )
    arguments.add("given N*", "the five numbers of the first form")
    arguments.add(
        "--memory",
        "memory of the buffers (default: %(default)s)",
        choices=("gpu", "host"),
        default="gpu",
        by_project=True,
    )
    sweep = arguments.add_argument_group("sweep")
    sweep.add("--sweep", "time every phase for each over-allocation and mechanism", by_project=True)
    sweep.add(
        "--means LIST",
        "mechanisms: ipc, vmm-fd, fabric, mpi, nccl; for host memory shm, mpi (default: all but fabric)",
        among(_MEANS), by_project=True,
    )  # fmt: skip
    sweep.add(
        "--size SIZE", "buffer size (default: 1GiB)", parse_size, default=2**30, by_project=True,
        former="--buffer",
    )  # fmt: skip
    sweep.add(
        "--copy SIZE", "size of the copied part (default: 1MiB)", parse_size, default=2**20, by_project=True
    )
    sweep.add(
        "--extra SIZES", "over-allocations, separated by commas (default: 0, 1 B, ... 2 MiB + 1 B)",
        default=_OVER, by_project=True, former="--over",
    )  # fmt: skip
    sweep.add(
        "--rounds N",
        "number of allocations for each over-allocation (default: %(default)s)",
        int,
        default=5,
        by_project=True,
        former="--repeats",
    )
    running = arguments.add_argument_group("running")
    running.add(
        "--timeout TIME", "maximum time of one stage (default: 60s)", parse_duration, default=60.0,
        by_project=True, former="-T",
    )  # fmt: skip
    running.add_output()
    running.add_quiet()
    running.add_report()
    arguments.set_defaults(format=None)
    return arguments


def _reproduce(name: str, argv: Sequence[str], options: argparse.Namespace) -> int:
    iterations, repeats = (_count(text, of) for text, of in zip(options.given[:2], _GIVEN, strict=False))
    copied, buffer, more = (_size(text) for text in options.given[2:])
    if not 0 < copied <= buffer + more:
        raise UsageError(f"P2P_SIZE must be from 1 to BUFFER_SIZE + OVERALLOC_SIZE, not {copied}")
    countable(copied)
    described = {
        "p2p_size": copied, "buffer_size": buffer, "overalloc_size": more, "num_iterations": iterations,
        "num_sub_iterations": repeats, "memory": options.memory,
    }  # fmt: skip
    case = reproducer(options.memory, iterations, repeats, copied, buffer, more)
    printing = Lines() if options.format == "overalloc" else None
    return between_two(name, argv, options, [case], described, printing, samples=1, copies=1)


def _sweep(name: str, argv: Sequence[str], options: argparse.Namespace) -> int:
    over = tuple(_size(text) for text in options.extra.split(","))
    means = options.means or _DEFAULT[options.memory]
    if options.copy > options.size:
        raise UsageError("--copy must not be larger than --size")
    if "mpi" in means:
        countable(options.copy)
    if options.rounds < 1:
        raise UsageError("--rounds must be 1 or more")
    described = {
        "means": list(means), "buffer_size": options.size, "p2p_size": options.copy,
        "over": [str(size) for size in over], "repeats": options.rounds, "memory": options.memory,
    }  # fmt: skip
    if unknown := [mechanism for mechanism in means if mechanism not in MECHANISMS[options.memory]]:
        known = ", ".join(MECHANISMS[options.memory])
        raise UsageError(f"{options.memory} memory is shared by {known}, not by {unknown[0]}")
    counts = f"{format_size(options.copy)} of a buffer of {format_size(options.size)}"
    cases = []
    for mechanism in means:
        case = sharing(mechanism, options.memory, options.size, options.copy, over, "overalloc")
        cases.append(replace(case, counts=counts))
    return between_two(name, argv, options, cases, described, samples=1, copies=1, rounds=options.rounds)


def _size(text: str) -> int:
    return 0 if text.strip() == "0" else parse_size(text)


def _count(text: str, name: str) -> int:
    if not text.isdecimal() or not int(text):
        raise UsageError(f"{name} must be a whole number of 1 or more, not {text!r}")
    return int(text)
