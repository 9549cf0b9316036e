"""``wirespeed pt2pt``: messages between two ranks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from ..errors import UsageError
from .common import typed
from .parser import Parser
from .two_ranks import add_running, among, between_two, countable

_MEMORIES, _OVER = ("gpu", "host"), ("mpi", "nccl")
_SIZES = "1:64MiB:x4"


def main(name: str, argv: Sequence[str]) -> int:
    from ..model import Engine
    from ..testcases.base import message
    from ..testcases.subset import sweep

    options = parser(name).parse_args(argv)
    if "mpi" in options.over:
        countable(*options.sizes)
    pairs = [(o, m) for o in options.over for m in options.memory if (o, m) != ("nccl", "host")]
    if not pairs:
        raise UsageError("NCCL sends only GPU memory: pass --memory gpu or --over mpi")
    cases = [
        sweep(replace(message(Engine(over), memory), name=f"pt2pt_{over}_{memory}"), options.sizes)
        for over, memory in pairs
    ]
    described = {
        "over": list(options.over),
        "memory": list(options.memory),
        "sizes": [str(size) for size in options.sizes],
    }
    # Exactly six samples: the interval of six is always this precise.
    return between_two(name, argv, options, cases, described, precision=0.99, rounds=1)


def parser(name: str) -> Parser:
    from ..units import parse_sizes

    arguments = Parser(
        name,
        "Measure latency, bandwidth, bidirectional bandwidth and rate of messages between the first and\n"
        "the last rank, over MPI and NCCL, from host and GPU memory; also first messages and new buffers.\n"
        "Start it with mpirun -np 2 wirespeed pt2pt. Without a launcher it starts two processes on this\n"
        "host (NCCL only).",
    )
    arguments.add_argument(
        "--over",
        type=among(_OVER),
        default=_OVER,
        metavar="LIST",
        help="libraries: mpi, nccl (default: both)",
    )
    arguments.add_argument(
        "--memory",
        type=among(_MEMORIES),
        default=_MEMORIES,
        metavar="LIST",
        help="memory of the messages: gpu, host (default: both)",
    )
    arguments.add_argument(
        "--sizes", type=typed(parse_sizes), default=parse_sizes(_SIZES), metavar="SIZES",
        help=f"message sizes, such as 8:1MiB:x8 or 1KiB,1MiB (default: {_SIZES})",
    )  # fmt: skip
    add_running(arguments)
    return arguments
