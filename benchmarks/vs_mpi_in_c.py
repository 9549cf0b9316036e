"""Compare messages and collectives over MPI with a C program on the same MPI, alternately.

    python benchmarks/vs_mpi_in_c.py [--ranks 2 4] [--rounds 5] [--largest 1048576] [OPERATION ...]

OPERATION is message (between two ranks), all_reduce, all_gather, alltoall or broadcast; the default is all.
The C program ``mpi_loops.c`` is compiled with mpicc into a temporary folder. Prints the medians over the
rounds and the ratio, wirespeed over C.
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
OPERATIONS = ("message", "all_reduce", "all_gather", "alltoall", "broadcast")
AS_ROOT = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}


def sizes(largest: int) -> list[int]:
    """Return the sizes that the C program measures."""
    found = [8]
    while found[-1] * 8 <= largest:
        found.append(found[-1] * 8)
    return found


def iterations(size: int) -> int:
    """Return the number of operations in a loop, as in the C program."""
    return 2000 if size < 65536 else 100 if size < 4 << 20 else 10


def ours(name: str, largest: int) -> None:
    """Run as a rank: print sizes in bytes and times in s, in the format of the C program."""
    from wirespeed.worlds.launchers import by_mpi
    from wirespeed.worlds.mpi import library

    world = by_mpi(60.0)
    comm = library().COMM_WORLD
    times = messages(world, largest) if name == "message" else collectives(name, world, largest)
    for size, seconds in times:
        mean = seconds if name == "message" else comm.allreduce(seconds) / comm.size
        if comm.rank == 0:
            print(size, mean, flush=True)
    world.close()


def messages(world: World, largest: int) -> Iterator[tuple[int, float]]:
    """Yield the seconds of one message, half of a round trip."""
    import numpy as np

    from wirespeed.backends.pairs.base import Ends
    from wirespeed.backends.pairs.mpi import MpiWire
    from wirespeed.worlds.mpi import library

    wire = MpiWire(library(), Ends.of(world))
    buffer = np.ones(largest + 8192, np.uint8)
    address = -(-buffer.ctypes.data // 4096) * 4096  # on a page, as in the C program
    for size in sizes(largest):
        loops = [wire.rounds(address, size, iterations(size)) for _ in range(LOOPS + 1)]
        yield size, statistics.median(loops[1:]) / iterations(size) / 2


def collectives(name: str, world: World, largest: int) -> Iterator[tuple[int, float]]:
    """Yield sizes in bytes and times of one operation in s."""
    from wirespeed.backends.mpi.provider import MpiProvider
    from wirespeed.backends.provider import Case, Group, Timing
    from wirespeed.testcases.collective_ops import OPERATIONS as TABLE
    from wirespeed.testcases.collective_ops import Setting
    from wirespeed.testcases.data_types import BY_NAME

    provider = MpiProvider(world, Group(0, tuple(range(world.size)), 1))
    operation, kind = TABLE[name], BY_NAME["float"]
    setting = Setting(
        operation, kind, "sum" if operation.operator is None else "", 0 if operation.rooted else -1
    )
    provider.allocate(largest)
    for size in sizes(largest):
        counts = operation.counts(size // 4, 4, world.size)
        timing = Timing(iterations=iterations(size))
        provider.bind(Case(setting, world.size, counts, name == "broadcast", timing))
        loops = []
        for _ in range(LOOPS + 1):
            provider.align()
            loops.append(provider.loop()[0].seconds)
        yield size, statistics.median(loops[1:])
    provider.close()


def measured(command: list[str], ranks: int) -> dict[int, float]:
    """Run a command with several ranks; return size in bytes -> time in s."""
    mpirun = str(Path(sys.executable).with_name("mpirun"))
    launcher = [mpirun if Path(mpirun).exists() else "mpirun", "-np", str(ranks), "--oversubscribe"]
    done = subprocess.run(
        [*launcher, *command], capture_output=True, text=True, timeout=600, env={**AS_ROOT, **os.environ}
    )
    if done.returncode:
        raise SystemExit(done.stdout + done.stderr)
    return {int(line.split()[0]): float(line.split()[1]) for line in done.stdout.splitlines()}


def main() -> None:
    """Print a table per operation and number of ranks."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "operations", nargs="*", default=OPERATIONS, choices=[*OPERATIONS, []], metavar="OPERATION"
    )
    parser.add_argument("--ranks", type=int, nargs="+", default=[2, 4])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--largest", type=int, default=64 << 20)
    parser.add_argument("--as-rank", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
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
                if name == "message" and ranks != options.ranks[0]:
                    continue
                c: list[dict[int, float]] = []
                py: list[dict[int, float]] = []
                own = [sys.executable, __file__, name, "--as-rank", "--largest", str(options.largest)]
                for _ in range(options.rounds):
                    c.append(measured([program, name, str(options.largest)], ranks))
                    py.append(measured(own, ranks))
                print(f"{name}, {ranks} ranks\n{'bytes':>10} {'C us':>10} {'ours us':>10} {'ratio':>7}")
                for size in c[0]:
                    a, b = (statistics.median(run[size] for run in runs) * 1e6 for runs in (c, py))
                    print(f"{size:>10} {a:>10.3f} {b:>10.3f} {b / a:>7.3f}", flush=True)


if __name__ == "__main__":
    main()
