"""Compare messages and collectives over MPI with a C program on the same MPI, alternately.

    python benchmarks/vs_mpi_in_c.py [--ranks 2 4] [--rounds 5] [--largest 1048576] [OPERATION ...]

OPERATION is message (osu_latency) or window (osu_bw: the time of 64 messages) between two ranks, or
all_reduce, all_gather, alltoall or broadcast, with a barrier after each operation as in OSU's programs
and with ``-z 3``; the default is all. The C program ``mpi_loops.c`` is compiled with mpicc into a
temporary folder. Prints the minima over the rounds, which other processes disturb least, and the ratio,
wirespeed over C.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from wirespeed.worlds.base import World

HERE = Path(__file__).parent
#: Number of timed loops, as in the C program; one more warms up.
LOOPS = 7
MESSAGES = ("message", "window")
OPERATIONS = (*MESSAGES, "all_reduce", "all_gather", "alltoall", "broadcast")
AS_ROOT = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}


def sizes(largest: int) -> list[int]:
    """Return the sizes that the C program measures."""
    found = [8]
    while found[-1] * 8 <= largest:
        found.append(found[-1] * 8)
    return found


def iterations(size: int) -> int:
    """Return the number of operations in a loop, as in the C program."""
    return 1000 if size < 65536 else 100 if size < 4 << 20 else 10


def ours(name: str, largest: int) -> None:
    """Run as a rank: print sizes in bytes and times in s, in the format of the C program."""
    from wirespeed.worlds.launchers import by_mpi
    from wirespeed.worlds.mpi import library

    world = by_mpi(60.0)
    comm = library().COMM_WORLD
    times = messages(name, world, largest) if name in MESSAGES else collectives(name, world, largest)
    for size, seconds in times:
        mean = seconds if name in MESSAGES else comm.allreduce(seconds) / comm.size
        if comm.rank == 0:
            print(size, mean, flush=True)
    world.close()


def messages(name: str, world: World, largest: int) -> Iterator[tuple[int, float]]:
    """Yield the seconds of one message, half of a round trip, or of a window."""
    import numpy as np

    from wirespeed.features.pairs.connection import Ends
    from wirespeed.features.pairs.libraries import MpiWire
    from wirespeed.features.pairs.messages import WINDOW
    from wirespeed.worlds.mpi import library

    ends = Ends.of(world)
    wire = MpiWire(library(), ends.peer, ends.first)
    buffers = [np.ones(largest + 8192, np.uint8) for _ in range(2)]
    send, receive = (-(-some.ctypes.data // 4096) * 4096 for some in buffers)  # on pages, as in C
    for size in sizes(largest):
        count = iterations(size)
        if name == "message":
            loops = [wire.rounds(send, receive, size, count) / 2 for _ in range(LOOPS + 1)]
        else:
            count //= 10
            loops = [wire.windows(send, receive, size, WINDOW, False, count) for _ in range(LOOPS + 1)]
        yield size, statistics.median(loops[1:]) / count


def collectives(name: str, world: World, largest: int) -> Iterator[tuple[int, float]]:
    """Yield sizes in bytes and times of one operation in s."""
    from wirespeed.backends.mpi.provider import MpiProvider
    from wirespeed.backends.provider import Case, Group
    from wirespeed.collectives.operations import OPERATIONS as TABLE
    from wirespeed.collectives.options import CollectiveOptions
    from wirespeed.testcases.collectives import usual

    provider = MpiProvider(world, Group(0, tuple(range(world.size)), 1))
    operation = TABLE[name]
    provider.allocate(largest)
    for size in sizes(largest):
        counts = operation.counts(size // 4, 4, world.size)
        timing = CollectiveOptions(iterations=iterations(size), blocking=3)
        provider.bind(Case(usual(operation), world.size, counts, name == "broadcast", timing))
        loops = [provider.loop()[0].seconds for _ in range(LOOPS + 1)]
        yield size, statistics.median(loops[1:])
    provider.close()


def measured(command: list[str], ranks: int) -> dict[int, float]:
    """Run a command with several ranks; return size in bytes -> time in s."""
    mpirun = str(Path(sys.executable).with_name("mpirun"))
    # Ranks that oversubscribe yield their CPU while they wait, and ranks that are not bound may share one.
    placed = ["--bind-to", "core"] if ranks <= (os.cpu_count() or 1) else ["--oversubscribe"]
    launcher = [mpirun if Path(mpirun).exists() else "mpirun", "-np", str(ranks), *placed]
    done = subprocess.run(
        [*launcher, *command], capture_output=True, text=True, timeout=600, env={**AS_ROOT, **os.environ}
    )
    if done.returncode:
        raise SystemExit(done.stdout + done.stderr)
    return {int(line.split()[0]): float(line.split()[1]) for line in done.stdout.splitlines()}


def parsed(arguments: list[str]) -> argparse.Namespace:
    """Parse the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("operations", nargs="*", metavar="OPERATION")
    parser.add_argument("--ranks", type=int, nargs="+", default=[2, 4])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--largest", type=int, default=64 << 20)
    parser.add_argument("--as-rank", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    # Not `choices`: before Python 3.12 they refuse an empty list.
    if unknown := [name for name in options.operations if name not in OPERATIONS]:
        parser.error(f"{unknown[0]!r} is not one of {', '.join(OPERATIONS)}")
    options.operations = options.operations or list(OPERATIONS)
    return options


def main() -> None:
    """Print a table per operation and number of ranks."""
    options = parsed(sys.argv[1:])
    if options.as_rank:
        ours(options.operations[0], options.largest)
        return
    with tempfile.TemporaryDirectory() as folder:
        program = str(Path(folder) / "mpi_loops")
        mpicc = Path(sys.executable).with_name("mpicc")
        compiler = str(mpicc) if mpicc.exists() else "mpicc"
        subprocess.run([compiler, "-O2", str(HERE / "mpi_loops.c"), "-o", program], check=True)
        for name in options.operations:
            for ranks in options.ranks:
                if name in MESSAGES and ranks != options.ranks[0]:
                    continue
                c: list[dict[int, float]] = []
                py: list[dict[int, float]] = []
                own = [sys.executable, __file__, name, "--as-rank", "--largest", str(options.largest)]
                for _ in range(options.rounds):
                    c.append(measured([program, name, str(options.largest)], ranks))
                    py.append(measured(own, ranks))
                print(f"{name}, {ranks} ranks\n{'bytes':>10} {'C us':>10} {'ours us':>10} {'ratio':>7}")
                for size in c[0]:
                    a, b = (min(run[size] for run in runs) * 1e6 for runs in (c, py))
                    print(f"{size:>10} {a:>10.3f} {b:>10.3f} {b / a:>7.3f}", flush=True)


if __name__ == "__main__":
    main()
