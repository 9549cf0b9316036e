"""Collectives between processes on host memory, over MPI."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ...worlds.base import World
    from ..base import Backend
    from ..distributed.exchange import Exchange
    from ..provider import Group, Provider


def join(world: World, exchange: Exchange) -> Backend:
    """The backend for the collectives of all ranks of a job."""
    from ...worlds.launchers import mpirun, started_by_mpi
    from ..collective_backend import CollectiveBackend
    from ..provider import Group

    def why_not() -> str | None:
        if started_by_mpi():
            return None
        start = mpirun("wirespeed ...", world.size)
        return f"collectives on host memory require MPI, which did not start this job: start it with {start}"

    def make(world: World, group: Group) -> Provider:
        from .provider import MpiProvider

        return MpiProvider(world, group)

    group = Group(0, tuple(range(world.size)), 1)
    return CollectiveBackend("mpi", world, group, make, why_not, exchange)
