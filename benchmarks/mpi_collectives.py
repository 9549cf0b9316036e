"""Collectives over MPI against a plain loop, as the OSU micro-benchmarks time them.

    mpirun -np 4 --oversubscribe python benchmarks/mpi_collectives.py [OPERATION]

OPERATION: all_reduce (if none is given), all_gather, alltoall, broadcast.

Barrier, then the time of a loop over its length, averaged over the ranks: the method of
``osu_allreduce`` and of mpi4py's bench. Ours runs in the same processes, alternating with it; printed
are medians and ours / theirs.
"""

from __future__ import annotations

import statistics
import sys
import time
from collections.abc import Callable

import numpy as np
from mpi4py import MPI

from wirespeed.collectives.base import Case, Group, Setting, Timing
from wirespeed.collectives.mpi import MpiProvider
from wirespeed.collectives.operations import OPERATIONS
from wirespeed.collectives.types import BY_NAME
from wirespeed.worlds.mpi import join

ROUNDS = 31
SIZES = (8, 512, 32 * 2**10, 2**20)


def plain(name: str, case: Case, comm: MPI.Comm) -> Callable[[], object]:
    """Return the operation as a user of mpi4py writes it."""
    send = np.ones(case.counts.send, np.float32)  # zeros would all be one page
    receive = np.ones(case.counts.receive, np.float32)
    return {
        "all_reduce": lambda: comm.Allreduce(send, receive, MPI.SUM),
        "all_gather": lambda: comm.Allgather(send, receive),
        "alltoall": lambda: comm.Alltoall(send, receive),
        "broadcast": lambda: comm.Bcast(receive, 0),
    }[name]


def main(name: str) -> None:
    """Print a line for each size."""
    comm = MPI.COMM_WORLD
    world = join(60.0)
    provider = MpiProvider(world, Group(0, tuple(range(world.size)), 1))
    operation, kind = OPERATIONS[name], BY_NAME["float"]
    if comm.rank == 0:
        print(f"{name}, {comm.size} ranks\n{'bytes':>10} {'plain us':>10} {'ours us':>10} {'ratio':>7}")
    for size in SIZES:
        timing = Timing(iterations=1000 if size < 2**16 else 50)
        operator = "sum" if operation.operator is None else ""
        setting = Setting(operation, kind, operator, 0 if operation.rooted else -1)
        counts = operation.counts(size // 4, 4, comm.size)
        case = Case(setting, comm.size, counts, name == "broadcast", timing)
        provider.allocate(case.bytes)
        provider.bind(case)
        call = plain(name, case, comm)
        theirs, ours = [], []
        for _ in range(ROUNDS):
            comm.Barrier()
            start = time.perf_counter()
            for _ in range(timing.iterations):
                call()
            theirs.append(comm.allreduce(time.perf_counter() - start) / comm.size / timing.iterations)
            comm.Barrier()
            ours.append(comm.allreduce(provider.loop()[0].seconds) / comm.size)
        a, b = statistics.median(theirs), statistics.median(ours)
        if comm.rank == 0:
            print(f"{case.bytes:>10} {a * 1e6:>10.2f} {b * 1e6:>10.2f} {b / a:>7.3f}", flush=True)
    provider.close()
    world.close()


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else "all_reduce")
