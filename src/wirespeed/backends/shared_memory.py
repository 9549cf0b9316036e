"""How processes share a buffer, whatever it is made of: allocate, export, open, and the way back.

The three calls are apart so that what each costs can be told; what they return is released by itself.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Protocol

from ..worlds.descriptors import Descriptors, fetch


@dataclass(frozen=True)
class Handle:
    """What another process needs to open a buffer: plain values that any World carries.

    Parameters
    ----------
    data
        The handle itself; for a descriptor its number and the address to ask, see
        ``worlds.descriptors``.
    offset, bytes
        Where in what is opened the buffer begins, and how large it is.
    """

    means: str
    data: bytes
    offset: int
    bytes: int


@dataclass(eq=False)
class Allocation:
    """Memory that can be exported.

    Parameters
    ----------
    place
        Where it is: a GPU, or nothing for host memory.
    inner
        What the means needs of it besides its address.
    release
        Frees it; all that was opened of it must be closed before.
    """

    place: Any
    address: int
    bytes: int
    inner: Any
    release: Callable[[], None]


@dataclass(eq=False)
class Opened:
    """Another process' buffer in this one's address space. ``close`` unmaps it."""

    address: int
    bytes: int
    close: Callable[[], None]


class Mechanism(Protocol):
    """One means."""

    name: str

    def allocate(self, place: Any, size: int) -> Allocation:
        """Return memory that this means can export.

        Raises
        ------
        BackendError
            If there is no such memory, or it is not permitted; it says what to do.
        """
        ...

    def export(self, allocation: Allocation) -> Handle:
        """Return a handle for other processes."""
        ...

    def open(self, place: Any, handle: Handle) -> Opened:
        """Map another process' buffer.

        Parameters
        ----------
        place
            The GPU of this process that will use it.

        Raises
        ------
        BackendError
            If it cannot be opened.
        """
        ...


def offer(descriptors: Descriptors, descriptor: int, allocation: Allocation, means: str) -> Handle:
    """Let other processes of this host have the descriptor of an allocation, until that is released."""
    token = descriptors.offer(descriptor)
    free = allocation.release

    def release() -> None:
        descriptors.withdraw(token)
        free()

    allocation.release = release
    return Handle(means, f"{token}@{descriptors.address}".encode(), 0, allocation.bytes)


@contextmanager
def fetched(handle: Handle, timeout: float) -> Iterator[int]:
    """Have a copy of the descriptor that another process offers, for as long as it is being opened.

    Raises
    ------
    WorldError
        If that process cannot be reached, or does not give it.
    """
    token, address = handle.data.decode().split("@")
    descriptor = fetch(address, int(token), timeout)
    try:
        yield descriptor
    finally:
        os.close(descriptor)
