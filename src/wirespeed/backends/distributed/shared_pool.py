"""Buffers that processes share: own ones, and buffers of other processes that it has opened. They are kept
for later Measurements, because exporting and opening can take longer than a copy.
"""

from __future__ import annotations

from dataclasses import dataclass

from ...model import Memory, MemoryKind
from .job_process import Allocation, Endpoint, Handle


@dataclass(eq=False)
class Own:
    """A buffer of this process.

    Attributes:
        number: Number by which other processes refer to it.
        means: Transport that can export it.
        memory: Memory that it is in.
        allocation: Its address and size.
        handle: What other processes open; None until it is exported.
    """

    number: int
    means: str
    memory: Memory
    allocation: Allocation
    handle: Handle | None = None


class SharedBufferPool:
    """The buffers of one process.

    Attributes:
        side: Hardware of this process, which allocates, exports and opens.
    """

    def __init__(self, side: Endpoint) -> None:
        self._side = side
        self._free: list[Own] = []
        self._taken: list[Own] = []
        self._opened: dict[tuple[int, int], Allocation] = {}
        self._next = 0

    def take(self, memory: Memory, means: str, size: int) -> Own:
        """A buffer of at least ``size`` bytes that a transport can export, or for messages in pinned memory.

        Raises:
            BackendError: If it cannot be allocated.
        """
        fitting = [
            own for own in self._free
            if (own.means, own.memory) == (means, memory) and own.allocation.bytes >= size
        ]  # fmt: skip
        if fitting:
            own = min(fitting, key=lambda own: own.allocation.bytes)
            self._free.remove(own)
        else:
            of_host = self._side.pinned if memory.kind is MemoryKind.PINNED else None
            allocation = (of_host or self._side.mechanisms[means].allocate)(self._side.where, size)
            self._next += 1
            own = Own(self._next, means, memory, allocation)
        self._taken.append(own)
        return own

    def export(self, own: Own) -> Handle:
        """The handle of a buffer."""
        if own.handle is None:
            own.handle = self._side.mechanisms[own.means].export(own.allocation)
        return own.handle

    def open(self, rank: int, number: int, handle: Handle) -> int:
        """The address of another rank's buffer, opened in this process.

        Args:
            rank, number: The rank that owns the buffer, and its number there.
            handle: What the owner exported.
        """
        if (rank, number) not in self._opened:
            opened = self._side.mechanisms[handle.means].open(self._side.where, handle)
            self._opened[rank, number] = opened
        return self._opened[rank, number].address

    def give_back(self) -> None:
        """Give all taken buffers back to the pool."""
        self._free += self._taken
        self._taken.clear()

    def close_opened(self) -> None:
        """Unmap the buffers of other processes; they must still exist."""
        for opened in self._opened.values():
            opened.release()
        self._opened.clear()

    def free(self) -> None:
        """Free the buffers of this process; all others must have unmapped them."""
        for own in (*self._free, *self._taken):
            own.allocation.release()
        self._free.clear()
        self._taken.clear()
