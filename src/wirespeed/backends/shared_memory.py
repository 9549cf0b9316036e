"""Protocol of the mechanisms by which processes share a buffer: allocate, export, open, close, free.

The calls are separate so that each phase can be timed. Every returned object can release itself.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Protocol

from ..worlds.admission import Descriptors, fetch


@dataclass(frozen=True)
class Handle:
    """Plain values with which another process opens a buffer.

    Attributes:
        means: Name of the mechanism.
        data: The handle. For a file descriptor: its token and the address of the process that offers it, see
            ``worlds.descriptors``.
        offset: Offset of the buffer in the opened memory, in bytes.
        bytes: Size of the buffer.
    """

    means: str
    data: bytes
    offset: int
    bytes: int


@dataclass(eq=False)
class Allocation:
    """Memory that can be exported.

    Attributes:
        place: GPU that holds it; None for host memory.
        address: Address in this process.
        bytes: Size of the buffer.
        inner: Data of the mechanism, such as a handle.
        release: Frees the memory; other processes must have closed it before.
    """

    place: Any
    address: int
    bytes: int
    inner: Any
    release: Callable[[], None]


@dataclass(eq=False)
class Opened:
    """A buffer of another process in the address space of this one.

    Attributes:
        address: Address in this process.
        bytes: Size of the buffer.
        close: Unmaps it.
    """

    address: int
    bytes: int
    close: Callable[[], None]


class Mechanism(Protocol):
    """A mechanism of sharing.

    Attributes:
        name: Its name, as in ``--share``: ``ipc``, ``vmm-fd``, ``fabric``, ``shm``.
    """

    name: str

    def allocate(self, place: Any, size: int) -> Allocation:
        """Allocate ``size`` bytes of memory that can be exported.

        Raises:
            BackendError: If such memory is not available or not permitted; the message says what to do.
        """

    def export(self, allocation: Allocation) -> Handle:
        """A handle for other processes."""

    def open(self, place: Any, handle: Handle) -> Opened:
        """Map a buffer of another process.

        Args:
            place: GPU of this process that will use it; None for host memory.
            handle: Handle from the owner.

        Raises:
            BackendError: If it cannot be opened.
        """


def offer(descriptors: Descriptors, descriptor: int, allocation: Allocation, means: str) -> Handle:
    """Offer the descriptor of an allocation to other processes of this host until the allocation is released.

    ``means`` is the name of the mechanism in the returned handle.
    """
    token = descriptors.offer(descriptor)
    free = allocation.release

    def release() -> None:
        descriptors.withdraw(token)
        free()

    allocation.release = release
    return Handle(means, f"{token}@{descriptors.address}".encode(), 0, allocation.bytes)


@contextmanager
def fetched(handle: Handle, timeout: float) -> Iterator[int]:
    """Provide a copy of a descriptor that another process offers, and close it at the end.

    Args:
        handle: Handle from ``offer``.
        timeout: Maximum time to wait for the other process, in s.

    Raises:
        WorldError: If the other process does not answer or refuses.
    """
    token, address = handle.data.decode().split("@")
    descriptor = fetch(address, int(token), timeout)
    try:
        yield descriptor
    finally:
        os.close(descriptor)
