"""Messages by MPI, from host memory, and from a GPU's where MPI can."""

from __future__ import annotations

import time
from typing import Any

import numpy as np

from ..worlds.base import World
from ..worlds.mpi import libraries
from .base import Ends

_TAG, _ANSWER = 1, 2


class MpiWire:
    """Sends and receives by mpi4py.

    Parameters
    ----------
    mpi
        The module ``mpi4py.MPI``, which runs the processes of this World.
    """

    name = "mpi"

    def __init__(self, mpi: Any, world: World) -> None:
        self._mpi, self._comm = mpi, mpi.COMM_WORLD
        ends = Ends(world)
        self._peer, self._first = ends.peer, ends.first
        self._word = np.zeros(1, np.uint8)

    def libraries(self) -> dict[str, str]:
        """Return the MPI and mpi4py."""
        return libraries(self._mpi)

    def _at(self, address: int, size: int) -> Any:
        return [self._mpi.memory.fromaddress(address, size), self._mpi.BYTE]

    def _meet(self) -> None:
        other = np.zeros(1, np.uint8)
        self._comm.Sendrecv(self._word, self._peer, _ANSWER, other, self._peer, _ANSWER)

    def one(self, address: int, size: int) -> float:
        """One message, after both ends have met."""
        buffer = self._at(address, size)
        self._meet()
        start = time.perf_counter()
        if self._first:
            self._comm.Send(buffer, self._peer, _TAG)
        else:
            self._comm.Recv(buffer, self._peer, _TAG)
        return time.perf_counter() - start

    def rounds(self, address: int, size: int, count: int) -> float:
        """There and back."""
        buffer, comm, peer = self._at(address, size), self._comm, self._peer
        self._meet()
        start = time.perf_counter()
        for _ in range(count):
            if self._first:
                comm.Send(buffer, peer, _TAG)
                comm.Recv(buffer, peer, _TAG)
            else:
                comm.Recv(buffer, peer, _TAG)
                comm.Send(buffer, peer, _TAG)
        return time.perf_counter() - start

    def window(self, send: int, receive: int, size: int, count: int, both: bool) -> float:
        """Messages that are posted together; the answer is one byte."""
        out, into, comm, peer = self._at(send, size), self._at(receive, size), self._comm, self._peer
        sends, receives = self._first or both, both or not self._first
        self._meet()
        start = time.perf_counter()
        requests = [comm.Irecv(into, peer, _TAG) for _ in range(count if receives else 0)]
        requests += [comm.Isend(out, peer, _TAG) for _ in range(count if sends else 0)]
        self._mpi.Request.Waitall(requests)
        self._meet()
        return time.perf_counter() - start

    def close(self) -> None:
        """MPI ends with the process."""
