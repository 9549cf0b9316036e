"""Protocols of the memory and the connection that messages and shared buffers use."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Protocol

import numpy as np

from ...errors import VerificationError
from ...worlds.base import World
from ..shared_memory import Mechanism
from ..test_data import key_of, words

#: Seed of the data that the two ends send.
_PATTERN_SEED = 20


@dataclass(frozen=True)
class Ends:
    """The two ranks that measure: the first one, which begins, and the last one.

    Attributes:
        rank: Rank of this process.
        size: Number of ranks of the job.
    """

    rank: int
    size: int

    @staticmethod
    def of(world: World) -> Ends:
        """The ends of a World."""
        return Ends(world.rank, world.size)

    @property
    def peer(self) -> int:
        """Rank of the other end."""
        return self.size - 1 if self.first else 0

    @property
    def first(self) -> bool:
        """Whether this process is the end that begins."""
        return self.rank == 0

    @property
    def last(self) -> bool:
        """Whether this process is the other end."""
        return self.rank == self.size - 1


@dataclass(frozen=True)
class Window:
    """Messages that are in flight at the same time.

    Attributes:
        messages: Number of messages that the first end sends.
        both: Whether the last end sends as many.
    """

    messages: int
    both: bool


class PairMemory(Protocol):
    """Host or GPU memory of one process.

    Attributes:
        where: Argument ``place`` of a ``Mechanism``: the GPU, or None for host memory.
    """

    where: Any

    def allocate(self, size: int) -> int:
        """Allocate ``size`` bytes and return their address.

        Raises:
            BackendError: If the memory is not available.
        """

    def free(self, address: int) -> None:
        """Free memory."""

    def write(self, address: int, data: Any) -> None:
        """Copy an array of bytes to an address, and wait for the copy."""

    def read(self, address: int, size: int) -> Any:
        """An array of ``size`` bytes from an address."""

    def copy(self, destination: int, source: int, size: int) -> None:
        """Copy ``size`` bytes between addresses of this memory, and wait for the copy."""

    def sharing(self, mechanism: str) -> Mechanism:
        """The mechanism with this name.

        Raises:
            BackendError: If this memory does not support it.
        """

    def close(self) -> None:
        """Free all memory."""


class Wire(Protocol):
    """A connection of the two ends; only they use it."""

    def libraries(self) -> dict[str, str]:
        """The versions of the libraries that carry the messages."""

    def one(self, address: int, size: int) -> float:
        """Send one message from the first to the last end, from a common start; return the time here, in s.

        At the last end, the time ends when the data has arrived.
        """

    def rounds(self, send: int, receive: int, size: int, count: int) -> float:
        """Make ``count`` round trips of a message; return the total time, in s.

        Each end sends from one buffer and receives in another, so that no cache holds what arrives.
        """

    def windows(self, send: int, receive: int, size: int, window: Window, count: int) -> float:
        """Send windows of concurrent messages, each of which the last end answers unless it sends as well.

        Args:
            send, receive: Addresses of the buffers; all messages use the same ones.
            size: Size of a message, in bytes.
            window: The messages of a window.
            count: Number of windows.

        Returns:
            Total time, in s.
        """

    def close(self) -> None:
        """Close the connection."""


@lru_cache(maxsize=2)
def pattern(size: int, end: int) -> Any:
    """The array of bytes that an end sends; ``end`` is 0 for the first and 1 for the last."""
    data = words(key_of(_PATTERN_SEED, end), 0, -(-size // 8)).view(np.uint8)[:size]
    data.flags.writeable = False
    return data


def verify(place: PairMemory, address: int, size: int, end: int, work: str, way: str = "") -> None:
    """Compare received data with the data that an end sends.

    Args:
        place: Memory of the received data.
        address, size: Address and number of the received bytes.
        end: The end that sent: 0 for the first, 1 for the last.
        work, way: The work and its path, for the error.

    Raises:
        VerificationError: If a word differs.
    """
    wrong = np.unique(np.flatnonzero(place.read(address, size) != pattern(size, end)) // 8)
    if wrong.size:
        raise VerificationError(work, 8 * int(wrong[0]), int(wrong.size), -(-size // 8), way)
