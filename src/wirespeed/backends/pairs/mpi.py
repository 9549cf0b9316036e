"""Messages over MPI, from host memory, or from GPU memory if MPI is GPU-aware."""

from __future__ import annotations

from typing import Any

import numpy as np

from ...worlds.mpi import libraries
from ..mpi.functions import MpiFunctions
from ..native import Call
from .base import Ends, Window

#: Tags of messages, and of the bytes that synchronise the ends.
_MESSAGE_TAG, _MEETING_TAG = 1, 2


class MpiWire:
    """Sends and receives with MPI, in loops that run without the interpreter.

    Attributes:
        mpi: The module ``mpi4py.MPI``, which has started the processes of this job.
        ends: The two ranks that measure.
    """

    def __init__(self, mpi: Any, ends: Ends) -> None:
        self._mpi, self._native = mpi, MpiFunctions(mpi)
        self._peer, self._first = ends.peer, ends.first
        self._byte = self._native.handle(mpi.BYTE)
        self._comm = self._native.handle(mpi.COMM_WORLD)
        self._words = np.zeros(2, np.uint8)
        self._out = int(self._words.ctypes.data)
        self._into = self._out + 1
        sends, receives = (self._out, 1, self._byte), (self._into, 1, self._byte)
        peer, status = self._peer, self._native.status
        #: Synchronises the ends with one byte each way.
        self._meet: list[Call] = [
            ("MPI_Sendrecv", (*sends, peer, _MEETING_TAG, *receives, peer, _MEETING_TAG, self._comm, status))
        ]

    def libraries(self) -> dict[str, str]:
        return libraries(self._mpi)

    def _send(self, address: int, size: int) -> Call:
        return ("MPI_Send", (address, size, self._byte, self._peer, _MESSAGE_TAG, self._comm))

    def _receive(self, address: int, size: int) -> Call:
        return (
            "MPI_Recv",
            (address, size, self._byte, self._peer, _MESSAGE_TAG, self._comm, self._native.status),
        )

    def one(self, address: int, size: int) -> float:
        """Time one message after synchronising the ends, in s."""
        call = self._send(address, size) if self._first else self._receive(address, size)
        return self._native.timed(self._meet, [call], [])[0]

    def rounds(self, send: int, receive: int, size: int, count: int) -> float:
        """Time round trips, in s."""
        out, back = self._send(send, size), self._receive(receive, size)
        return self._native.timed(self._meet, [out, back] if self._first else [back, out], [], count)[0]

    def windows(self, send: int, receive: int, size: int, window: Window, count: int) -> float:
        """Time windows, in s: one way with an answer of one byte to each, both ways with one at the end."""
        sends, receives = self._first or window.both, window.both or not self._first
        requests = window.messages * (sends + receives)
        room = np.zeros(requests * self._native.request_bytes, np.uint8)
        statuses = np.zeros(requests * self._native.status_bytes, np.uint8)
        first, stride = int(room.ctypes.data), self._native.request_bytes
        requested: list[Call] = []
        for name, address, wants in (("MPI_Irecv", receive, receives), ("MPI_Isend", send, sends)):
            for _ in range(window.messages if wants else 0):
                request = first + len(requested) * stride
                requested.append(
                    (name, (address, size, self._byte, self._peer, _MESSAGE_TAG, self._comm, request))
                )
        requested.append(("MPI_Waitall", (requests, first, int(statuses.ctypes.data))))
        if window.both:
            return self._native.timed(self._meet, requested, self._meet, count)[1]
        requested.append(self._receive(self._into, 1) if self._first else self._send(self._out, 1))
        return self._native.timed(self._meet, requested, [], count)[0]

    def close(self) -> None:
        """Do nothing: MPI is finalised when the process ends."""
