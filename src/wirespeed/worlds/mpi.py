"""Processes launched by MPI: mpirun, srun. MPI provides the ranks and the address of rank 0."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from ..errors import WirespeedError
from .base import World, WorldError

INSTALL = "install it with `pip install 'wirespeed[mpi]'`, or mpi4py for the MPI of this cluster"


def library() -> Any:
    """Return the module ``mpi4py.MPI``.

    Raises
    ------
    WorldError
        If mpi4py or the MPI library is missing.
    """
    try:
        import mpi4py

        # Only one thread at a time calls MPI. Support for threads adds up to half of the time of a small
        # operation, and the benchmarks that users compare with do without it.
        mpi4py.rc.thread_level = os.environ.get("MPI4PY_RC_THREAD_LEVEL", "single")
        from mpi4py import MPI
    except (ImportError, RuntimeError) as error:
        raise WorldError(f"MPI cannot be used: {error}; {INSTALL}") from error
    return MPI


def version(mpi: Any) -> str:
    """Return name and version of the MPI library: ``Open MPI v5.0.11``, ``MPICH 5.0.2``."""
    text: str = mpi.Get_library_version()  # MPICH prints several aligned lines
    return " ".join(text.split(",")[0].split("\n")[0].replace("Version:", "").split())


def libraries(mpi: Any) -> dict[str, str]:
    """Return the versions of MPI and mpi4py."""
    import mpi4py

    return {"mpi": version(mpi), "mpi4py": mpi4py.__version__}


class MessagesRefused(WirespeedError):
    """MPI cannot carry messages between the processes of this World."""


@dataclass(frozen=True)
class Move:
    """A message to or from a peer. ``tag`` distinguishes it from others between the two."""

    address: int
    bytes: int
    peer: int
    tag: int
    sends: bool


class Messages:
    """Messages from and to buffers, given by their addresses, between the ranks of a World.

    Raises
    ------
    MessagesRefused
        If mpi4py is missing, or MPI did not start the processes.
    """

    #: Maximum number of concurrent messages.
    _WINDOW = 16
    #: Maximum bytes of a message, which every MPI can count in an int.
    _MOST = 2**30

    def __init__(self, world: World) -> None:
        try:
            self._mpi = library()
        except WorldError as error:
            raise MessagesRefused(str(error)) from error
        everyone = self._mpi.COMM_WORLD
        if (everyone.Get_rank(), everyone.Get_size()) != (world.rank, world.size):
            raise MessagesRefused(
                f"MPI has {everyone.Get_size()} ranks, this job {world.size}: start all with mpirun or srun"
            )
        self._comm = everyone

    def move(self, moves: Sequence[Move], copies: int) -> None:
        """Send and receive all buffers ``copies`` times, concurrently, and wait for the last."""
        calls = [
            (self._comm.Isend if move.sends else self._comm.Irecv, self._part(move, begin), move)
            for move in moves
            for begin in range(0, move.bytes, self._MOST)
        ]
        for first in range(0, copies, self._WINDOW):
            window = range(min(self._WINDOW, copies - first))
            self._mpi.Request.Waitall(
                [start(part, move.peer, move.tag) for _ in window for start, part, move in calls]
            )

    def _part(self, move: Move, begin: int) -> list[Any]:
        size = min(self._MOST, move.bytes - begin)
        return [self._mpi.memory.fromaddress(move.address + begin, size), self._mpi.BYTE]
