"""Options that Open MPI's mpirun requires on this machine."""

from __future__ import annotations

import os


def mpirun(command: str, ranks: int = 0) -> str:
    """How to start a command with mpirun, with the options that Open MPI requires here.

    Args:
        ranks: Number of ranks; 0 for any.
    """
    cores = len(os.sched_getaffinity(0))
    needed = []
    if os.geteuid() == 0:
        needed.append("--allow-run-as-root for root")
    if not ranks or ranks > cores:
        needed.append(f"--oversubscribe for more ranks than cores ({cores})")
    hint = f" (Open MPI needs {' and '.join(needed)})" if needed else ""
    return f"`mpirun -np {ranks or 'N'} {command}`{hint}"
