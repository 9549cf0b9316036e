"""Messages by NCCL, between GPUs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ...errors import BackendError
from ..native import Call, Functions

if TYPE_CHECKING:
    from ..cuda.gpu_buffers import GpuBuffers
    from ..nccl.channel import NcclMessages

#: ncclUint8 in nccl.h.
_BYTES = 1
_WORDS = 64


class NcclWire:
    """Sends and receives in one stream of each GPU.

    Parameters
    ----------
    messages
        A communicator of the two ends.
    functions
        Those of NCCL and the driver.
    first
        Whether this is the end that begins.
    """

    def __init__(self, messages: NcclMessages, functions: Functions, first: bool, place: GpuBuffers) -> None:
        self._messages, self._functions, self._place = messages, functions, place
        self._peer, self._first = int(first), first
        self._stream = int(place.stream)
        self._scratch = place.allocate(2 * _WORDS)

    def libraries(self) -> dict[str, str]:
        """Return NCCL and its bindings."""
        return self._messages.libraries()

    def _send(self, address: int, size: int) -> Call:
        return "ncclSend", (address, size, _BYTES, self._peer, self._messages.handle, self._stream)

    def _receive(self, address: int, size: int) -> Call:
        return "ncclRecv", (address, size, _BYTES, self._peer, self._messages.handle, self._stream)

    def _wait(self) -> Call:
        return "cuStreamSynchronize", (self._stream,)

    def _meeting(self) -> list[Call]:
        both = [self._send(self._scratch, 1), self._receive(self._scratch + _WORDS, 1)]
        return [*_grouped(both), self._wait()]

    def _timed(self, calls: list[Call]) -> float:
        self._place.where.use()
        failed, _, seconds = self._functions.timed(self._meeting(), calls, [self._wait()])
        if failed:
            raise BackendError(f"NCCL failed in {failed}: set NCCL_DEBUG=WARN to see why")
        return seconds

    def one(self, address: int, size: int) -> float:
        """One message, after both ends have met."""
        return self._timed([self._send(address, size) if self._first else self._receive(address, size)])

    def rounds(self, address: int, size: int, count: int) -> float:
        """There and back, all enqueued at once."""
        pair = [self._send(address, size), self._receive(address, size)]
        return self._timed((pair if self._first else pair[::-1]) * count)

    def window(self, send: int, receive: int, size: int, count: int, both: bool) -> float:
        """Messages of one group; nothing needs an answer, since the stream waits for the other end."""
        calls: list[Call] = []
        for _ in range(count):
            if self._first or both:
                calls.append(self._send(send, size))
            if both or not self._first:
                calls.append(self._receive(receive, size))
        return self._timed(_grouped(calls))

    def close(self) -> None:
        """Leave the communicator."""
        self._place.free(self._scratch)
        self._messages.close()


def _grouped(calls: list[Call]) -> list[Any]:
    return [("ncclGroupStart", ()), *calls, ("ncclGroupEnd", ())]
