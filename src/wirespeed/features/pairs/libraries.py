"""Messages between two ranks by a library: over NCCL between GPUs, or over MPI from host memory and, if MPI
is GPU-aware, from GPU memory.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from ...backends.call_tables import Call, Functions
from ...backends.mpi.provider import MpiFunctions
from ...collectives.data_types import BY_NAME
from ...worlds.mpi import libraries

if TYPE_CHECKING:
    from ...backends.gpu.sharing import GpuBuffers
    from ...backends.nccl.channel import NcclMessages

_UINT8 = BY_NAME["uint8"].code
#: Offset between the bytes that are sent and received to synchronise the ends.
_SCRATCH_BYTES = 64


class NcclWire:
    """Sends and receives with NCCL in one stream of each GPU.

    Attributes:
        messages: Communicator of the two ends.
        functions: Functions of NCCL and of the driver of the GPU.
        first: Whether this process is the end that begins.
        place: Memory of the GPU.
    """

    def __init__(self, messages: NcclMessages, functions: Functions, first: bool, place: GpuBuffers) -> None:
        self._messages, self._functions, self._place = messages, functions, place
        self._peer, self._first = int(first), first
        self._stream = int(place.stream)
        self._scratch = place.allocate(2 * _SCRATCH_BYTES)

    def libraries(self) -> dict[str, str]:
        return self._messages.libraries()

    def _send(self, address: int, size: int) -> Call:
        return "ncclSend", (address, size, _UINT8, self._peer, self._messages.handle, self._stream)

    def _receive(self, address: int, size: int) -> Call:
        return "ncclRecv", (address, size, _UINT8, self._peer, self._messages.handle, self._stream)

    def _wait(self) -> Call:
        return self._place.where.driver.native.synchronize(self._stream)

    def _meeting(self) -> list[Call]:
        both = [self._send(self._scratch, 1), self._receive(self._scratch + _SCRATCH_BYTES, 1)]
        return [*_grouped(both), self._wait()]

    def _timed(self, calls: list[Call]) -> float:
        self._place.where.use()
        return self._functions.timed(self._meeting(), calls, [self._wait()])[1]

    def one(self, address: int, size: int) -> float:
        """Time one message after synchronising the ends, in s."""
        return self._timed([self._send(address, size) if self._first else self._receive(address, size)])

    def rounds(self, send: int, receive: int, size: int, count: int) -> float:
        """Time round trips that are enqueued together, in s."""
        pair = [self._send(send, size), self._receive(receive, size)]
        return self._timed((pair if self._first else pair[::-1]) * count)

    def windows(self, send: int, receive: int, size: int, messages: int, both: bool, count: int) -> float:
        """Time windows, each a group from a common start, in s.

        No answer is needed, because the stream waits for the other end.
        """
        calls: list[Call] = []
        for _ in range(messages):
            if self._first or both:
                calls.append(self._send(send, size))
            if both or not self._first:
                calls.append(self._receive(receive, size))
        return math.fsum(self._timed(_grouped(calls)) for _ in range(count))

    def close(self) -> None:
        """Free the memory, and abort the communicator."""
        self._place.free(self._scratch)
        self._messages.close()


def _grouped(calls: list[Call]) -> list[Any]:
    return [("ncclGroupStart", ()), *calls, ("ncclGroupEnd", ())]


#: Tags of messages, and of the bytes that synchronise the ends.
_MESSAGE_TAG, _MEETING_TAG = 1, 2


class MpiWire:
    """Sends and receives with MPI, in loops that run without the interpreter.

    Attributes:
        mpi: The module ``mpi4py.MPI``, which has started the processes of this job.
        peer: Rank of the other end.
        first: Whether this process is the end that begins.
    """

    def __init__(self, mpi: Any, peer: int, first: bool) -> None:
        self._mpi, self._native = mpi, MpiFunctions(mpi)
        self._peer, self._first = peer, first
        self._byte = self._native.handle(mpi.BYTE)
        self._comm = self._native.handle(mpi.COMM_WORLD)
        self._words = np.zeros(2, np.uint8)
        self._out = int(self._words.ctypes.data)
        self._into = self._out + 1
        sends, receives = (self._out, 1, self._byte), (self._into, 1, self._byte)
        status = self._native.status
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

    def windows(self, send: int, receive: int, size: int, messages: int, both: bool, count: int) -> float:
        """Time windows, in s: one way with an answer of one byte to each, both ways with one at the end."""
        sends, receives = self._first or both, both or not self._first
        requests = messages * (sends + receives)
        room = np.zeros(requests * self._native.request_bytes, np.uint8)
        statuses = np.zeros(requests * self._native.status_bytes, np.uint8)
        first, stride = int(room.ctypes.data), self._native.request_bytes
        requested: list[Call] = []
        for name, address, wants in (("MPI_Irecv", receive, receives), ("MPI_Isend", send, sends)):
            for _ in range(messages if wants else 0):
                request = first + len(requested) * stride
                requested.append(
                    (name, (address, size, self._byte, self._peer, _MESSAGE_TAG, self._comm, request))
                )
        requested.append(("MPI_Waitall", (requests, first, int(statuses.ctypes.data))))
        if both:
            return self._native.timed(self._meet, requested, self._meet, count)[1]
        requested.append(self._receive(self._into, 1) if self._first else self._send(self._out, 1))
        return self._native.timed(self._meet, requested, [], count)[0]

    def close(self) -> None:
        """Do nothing: MPI is finalised when the process ends."""
