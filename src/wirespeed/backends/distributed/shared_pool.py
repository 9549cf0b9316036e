"""Buffers that are shared: this process' own, and those of others that it has opened.

They are kept from one Measurement to the next: exporting and opening cost more than many a copy.
"""

from __future__ import annotations

from dataclasses import dataclass

from ...model import Memory
from ..shared_memory import Allocation, Handle, Opened
from .endpoint import Endpoint


@dataclass(eq=False)
class Own:
    """A buffer of this process. ``number`` is how others know it."""

    number: int
    means: str
    memory: Memory
    allocation: Allocation
    handle: Handle | None = None


class SharedBufferPool:
    """The buffers of one process."""

    def __init__(self, side: Endpoint) -> None:
        self._side = side
        self._free: list[Own] = []
        self._taken: list[Own] = []
        self._opened: dict[tuple[int, int], Opened] = {}
        self._next = 0

    def take(self, memory: Memory, means: str, size: int) -> Own:
        """Return a buffer of at least ``size`` bytes that a means can export.

        Raises
        ------
        BackendError
            If it cannot be had.
        """
        fitting = [
            own for own in self._free
            if (own.means, own.memory) == (means, memory) and own.allocation.bytes >= size
        ]  # fmt: skip
        if fitting:
            own = min(fitting, key=lambda own: own.allocation.bytes)
            self._free.remove(own)
        else:
            allocation = self._side.sharing(means).allocate(self._side.place(memory), size)
            self._next += 1
            own = Own(self._next, means, memory, allocation)
        self._taken.append(own)
        return own

    def export(self, own: Own) -> Handle:
        """Return the handle of a buffer."""
        if own.handle is None:
            own.handle = self._side.sharing(own.means).export(own.allocation)
        return own.handle

    def open(self, rank: int, number: int, handle: Handle, memory: Memory) -> int:
        """Return the address of another rank's buffer; ``memory`` is that of who uses it."""
        if (rank, number) not in self._opened:
            opened = self._side.sharing(handle.means).open(self._side.place(memory), handle)
            self._opened[rank, number] = opened
        return self._opened[rank, number].address

    def give_back(self) -> None:
        """Take back all that was taken."""
        self._free += self._taken
        self._taken.clear()

    def close_opened(self) -> None:
        """Unmap what belongs to others; before they free it."""
        for opened in self._opened.values():
            opened.close()
        self._opened.clear()

    def free(self) -> None:
        """Free this process' buffers; after all others have unmapped them."""
        for own in (*self._free, *self._taken):
            own.allocation.release()
        self._free.clear()
        self._taken.clear()
