"""Messages over NCCL, between GPUs."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from ...collectives.data_types import BY_NAME
from ...errors import BackendError
from ..native import Call, Functions
from .base import Window

if TYPE_CHECKING:
    from ..gpu.gpu_buffers import GpuBuffers
    from ..nccl.channel import NcclMessages

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
        failed, _, seconds = self._functions.timed(self._meeting(), calls, [self._wait()])
        if failed:
            words = self._messages.words(failed)
            raise BackendError(f"NCCL failed: {words}; set NCCL_DEBUG=WARN to see the reason")
        return seconds

    def one(self, address: int, size: int) -> float:
        """Time one message after synchronising the ends, in s."""
        return self._timed([self._send(address, size) if self._first else self._receive(address, size)])

    def rounds(self, send: int, receive: int, size: int, count: int) -> float:
        """Time round trips that are enqueued together, in s."""
        pair = [self._send(send, size), self._receive(receive, size)]
        return self._timed((pair if self._first else pair[::-1]) * count)

    def windows(self, send: int, receive: int, size: int, window: Window, count: int) -> float:
        """Time windows, each a group from a common start, in s.

        No answer is needed, because the stream waits for the other end.
        """
        calls: list[Call] = []
        for _ in range(window.messages):
            if self._first or window.both:
                calls.append(self._send(send, size))
            if window.both or not self._first:
                calls.append(self._receive(receive, size))
        return math.fsum(self._timed(_grouped(calls)) for _ in range(count))

    def close(self) -> None:
        """Free the memory, and abort the communicator."""
        self._place.free(self._scratch)
        self._messages.close()


def _grouped(calls: list[Call]) -> list[Any]:
    return [("ncclGroupStart", ()), *calls, ("ncclGroupEnd", ())]
