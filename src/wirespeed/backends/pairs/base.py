"""What messages and shared buffers are made of: places for buffers, and wires between two processes."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Protocol

import numpy as np

from ...errors import VerificationError
from ...worlds.base import World
from ..patterns import key_of
from ..shared_memory import Mechanism
from ..test_data import words

_PATTERN_SEED = 20


@dataclass(frozen=True)
class Ends:
    """The two ranks that measure: the first, which begins, and the last.

    Parameters
    ----------
    rank, size
        Of this process, and of the job.
    """

    rank: int
    size: int

    @staticmethod
    def of(world: World) -> Ends:
        """Return those of a World."""
        return Ends(world.rank, world.size)

    @property
    def peer(self) -> int:
        """The rank at the other end."""
        return self.size - 1 if self.first else 0

    @property
    def first(self) -> bool:
        """Whether this is the end that begins."""
        return self.rank == 0

    @property
    def last(self) -> bool:
        """Whether this is the other end."""
        return self.rank == self.size - 1


class PairMemory(Protocol):
    """Memory of one process: of its host, or of its GPU.

    Attributes
    ----------
    where
        What ``Sharing`` takes for it.
    """

    where: Any

    def allocate(self, size: int) -> int:
        """Return the address of new memory.

        Raises
        ------
        BackendError
            If there is not enough.
        """
        ...

    def free(self, address: int) -> None:
        """Give it back."""

    def write(self, address: int, data: Any) -> None:
        """Copy an array of bytes there, and wait for it."""

    def read(self, address: int, size: int) -> Any:
        """Return an array of the bytes that are there."""
        ...

    def copy(self, destination: int, source: int, size: int) -> None:
        """Copy within reach of this place, and wait for it."""

    def sharing(self, mechanism: str) -> Mechanism:
        """Return a mechanism that shares its memory.

        Raises
        ------
        BackendError
            If it has no such mechanism.
        """
        ...

    def close(self) -> None:
        """Give everything back."""


class Wire(Protocol):
    """Messages between the two ends; only they call it."""

    def libraries(self) -> dict[str, str]:
        """Return the versions of what carries the messages."""
        ...

    def one(self, address: int, size: int) -> float:
        """Send one message from the first to the last end; return the seconds it took here.

        Both start together; at the last end it has taken as long as until the data was there.
        """
        ...

    def rounds(self, address: int, size: int, count: int) -> float:
        """Send a message there and back ``count`` times; return the seconds of all of it."""
        ...

    def window(self, send: int, receive: int, size: int, count: int, both: bool) -> float:
        """Send messages that are under way together, and wait for an answer at their end.

        Parameters
        ----------
        send, receive
            Addresses of the buffers; each is used for all messages.
        count
            Number of messages.
        both
            Whether the last end sends as many at the same time.

        Returns
        -------
        float
            Seconds of all of it.
        """
        ...

    def close(self) -> None:
        """Leave."""


@lru_cache(maxsize=2)
def pattern(size: int, end: int) -> Any:
    """Return the bytes that an end sends: 0 for the first, 1 for the last."""
    found = words(key_of(_PATTERN_SEED, end), 0, -(-size // 8)).view(np.uint8)[:size]
    found.flags.writeable = False
    return found


def verify(place: PairMemory, address: int, size: int, end: int, what: str, way: str = "") -> None:
    """Compare what has come with what an end sent.

    Raises
    ------
    VerificationError
        If a word differs.
    """
    wrong = np.unique(np.flatnonzero(place.read(address, size) != pattern(size, end)) // 8)
    if wrong.size:
        raise VerificationError(what, 8 * int(wrong[0]), int(wrong.size), -(-size // 8), way)
