"""Worlds: the processes that take part in a run, determined from how this process was launched."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .base import World


def launched(environment: Mapping[str, str] = os.environ) -> bool:
    """Whether a launcher started this process."""
    from .base import has_mpi
    from .launchers import present, promised

    return present(environment) or has_mpi(environment) or promised(environment)[1] > 1


def by_mpi(environment: Mapping[str, str] = os.environ) -> bool:
    """Whether an MPI launcher started this process, and no variable sets its rank."""
    from .base import has_mpi
    from .launchers import present

    return not present(environment) and has_mpi(environment)


def join(
    timeout: float,
    *,
    mpi: bool = False,
    spawn: int = 1,
    arguments: Sequence[str] = (),
    environment: Mapping[str, str] = os.environ,
    partial: bool = False,
) -> World:
    """Join the job and return the World of this process.

    Args:
        timeout: Maximum time for all processes to join, and for an exchange, in s.
        mpi: Whether MPI is needed even for one process.
        spawn: Number of processes if no launcher started this one; the others are started with ``arguments``.
        partial: Whether ranks in the environment go on without others that do not join in time. MPI cannot.

    Raises:
        WorldError: If the others do not join, or a launcher promises more ranks than the job has.
    """
    from . import launchers
    from .base import WorldError

    world: World
    if launchers.present(environment):
        world = launchers.by_environment(environment, timeout, partial=partial)
    elif mpi or by_mpi(environment):
        world = launchers.by_mpi(timeout, launched=by_mpi(environment))
    else:
        world = launchers.spawn(spawn, arguments, timeout) if spawn > 1 else launchers.alone()
    name, size = launchers.promised(environment)
    if size > world.size:
        world.close()
        raise WorldError(
            f"{name} promises {size} ranks, but this job has {world.size}: the launcher did not connect its "
            "processes; install mpi4py for this launcher's MPI, use `srun --mpi=pmix`, or set RANK, "
            "WORLD_SIZE, MASTER_ADDR and MASTER_PORT"
        )
    return world
