"""Collectives between processes on host memory, by MPI."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ...collectives.base import Group, Provider
    from ...worlds.base import World
    from ..base import Backend
    from ..ranks.exchange import Exchange


def join(world: World, exchange: Exchange) -> Backend:
    """Return the backend for collectives of all ranks of a job."""
    from ...collectives.base import Group
    from ...worlds import by_mpi
    from ...worlds.mpirun import mpirun
    from ..collectives import CollectiveBackend

    def why_not() -> str:
        if by_mpi():
            return ""
        start = mpirun("wirespeed ...", world.size)
        return f"collectives on host memory run over MPI, which did not start this job: start it with {start}"

    def make(world: World, group: Group) -> Provider:
        from ...collectives.mpi import MpiProvider

        return MpiProvider(world, group)

    group = Group(0, tuple(range(world.size)), 1)
    return CollectiveBackend("mpi", world, group, make, why_not, exchange)
