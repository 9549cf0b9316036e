"""What a command of Open MPI's mpirun needs on this machine to start at all."""

from __future__ import annotations

import os


def mpirun(command: str, ranks: int = 0) -> str:
    """Return how to start a command with mpirun, and the options that Open MPI asks for here.

    Parameters
    ----------
    ranks
        How many; 0: as many as the user likes.
    """
    cores = len(os.sched_getaffinity(0))
    needed = []
    if os.geteuid() == 0:
        needed.append("--allow-run-as-root for root")
    if not ranks or ranks > cores:
        needed.append(f"--oversubscribe for more ranks than cores ({cores})")
    hint = f" (Open MPI needs {' and '.join(needed)})" if needed else ""
    return f"`mpirun -np {ranks or 'N'} {command}`{hint}"
