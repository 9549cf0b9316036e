"""``wirespeed overalloc``: the over-allocation reproducer, and a sweep over mechanisms of sharing."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import replace

from ..errors import UsageError
from ..units import parse_size
from .common import typed
from .parser import Parser
from .two_ranks import Lines, add_running, among, between_two, countable

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
    if options.sweep:
        return _sweep(name, argv, options)
    return _reproduce(name, argv, options)


def parser(name: str) -> Parser:
    arguments = Parser(
        name,
        "Measure whether messages are slower if slightly more memory is allocated than needed.\n\n"
        f"  mpirun -np 2 wirespeed overalloc {' '.join(_GIVEN)}\n"
        "  wirespeed overalloc --sweep\n\n"
        "The first form sends P2P_SIZE bytes from the first rank to the last by MPI, NUM_SUB_ITERATIONS\n"
        "times from each of NUM_ITERATIONS new buffers of BUFFER_SIZE + OVERALLOC_SIZE bytes, then of\n"
        "BUFFER_SIZE. The second times every phase of sharing a buffer, for several over-allocations and\n"
        "mechanisms; without a launcher it starts two processes on this host.",
    )
    arguments.add_argument("given", nargs="*", metavar="N", help="the five numbers of the first form")
    arguments.add_argument(
        "--memory",
        choices=("gpu", "host"),
        default="gpu",
        help="memory of the buffers (default: %(default)s)",
    )
    sweep = arguments.add_argument_group("sweep")
    sweep.add_argument(
        "--sweep", action="store_true", help="time every phase for each over-allocation and mechanism"
    )
    sweep.add_argument(
        "--means", type=among(_MEANS), metavar="LIST",
        help="mechanisms: ipc, vmm-fd, fabric, mpi, nccl; for host memory shm, mpi (default: all but fabric)",
    )  # fmt: skip
    sweep.add_argument(
        "--buffer", type=typed(parse_size), default=2**30, metavar="SIZE", help="buffer size (default: 1GiB)"
    )
    sweep.add_argument(
        "--copy",
        type=typed(parse_size),
        default=2**20,
        metavar="SIZE",
        help="size of the copied part (default: 1MiB)",
    )
    sweep.add_argument(
        "--over",
        default=_OVER,
        metavar="LIST",
        help="over-allocations: sizes separated by commas (default: 0, 1 B, ... 2 MiB + 1 B)",
    )
    sweep.add_argument(
        "--repeats",
        type=int,
        default=5,
        metavar="N",
        help="number of allocations for each over-allocation (default: %(default)s)",
    )
    add_running(arguments)
    arguments.set_defaults(format="overalloc")
    return arguments


def _reproduce(name: str, argv: Sequence[str], options: argparse.Namespace) -> int:
    from ..testcases.sharing import reproducer

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
    from ..testcases.sharing import MECHANISMS, sharing
    from ..units import format_size

    over = tuple(_size(text) for text in options.over.split(","))
    means = options.means or _DEFAULT[options.memory]
    if options.copy > options.buffer:
        raise UsageError("--copy must not be larger than --buffer")
    if "mpi" in means:
        countable(options.copy)
    if options.repeats < 1:
        raise UsageError("--repeats must be 1 or more")
    described = {
        "means": list(means), "buffer_size": options.buffer, "p2p_size": options.copy,
        "over": [str(size) for size in over], "repeats": options.repeats, "memory": options.memory,
    }  # fmt: skip
    if unknown := [mechanism for mechanism in means if mechanism not in MECHANISMS[options.memory]]:
        known = ", ".join(MECHANISMS[options.memory])
        raise UsageError(f"{options.memory} memory is shared by {known}, not by {unknown[0]}")
    counts = f"{format_size(options.copy)} of a buffer of {format_size(options.buffer)}"
    cases = []
    for mechanism in means:
        case = sharing(mechanism, options.memory, options.buffer, options.copy, over, "overalloc")
        cases.append(replace(case, counts=counts))
    return between_two(name, argv, options, cases, described, samples=1, copies=1, rounds=options.repeats)


def _size(text: str) -> int:
    return 0 if text.strip() == "0" else parse_size(text)


def _count(text: str, name: str) -> int:
    if not text.isdecimal() or not int(text):
        raise UsageError(f"{name} must be a whole number of 1 or more, not {text!r}")
    return int(text)
