"""What a message or a shared buffer is made of: places for buffers, and wires between two processes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from ..backends.sharing import Sharing
from ..errors import VerificationError
from ..worlds.base import World

_SEED = 20
#: Keys of the tables of the over-allocation reproducer.
WITH, WITHOUT = "with", "without"


@dataclass(frozen=True)
class Ends:
    """The two ranks that measure; all others look on.

    Parameters
    ----------
    world
        Of at least two processes: the first sends, the last receives.
    """

    world: World

    @property
    def peer(self) -> int:
        """The rank at the other end."""
        return self.world.size - 1 if self.world.rank == 0 else 0

    @property
    def first(self) -> bool:
        """Whether this is the end that sends."""
        return self.world.rank == 0

    @property
    def last(self) -> bool:
        """Whether this is the end that receives."""
        return self.world.rank == self.world.size - 1

    def report(self, times: Sequence[float], doing: str) -> list[list[float]]:
        """Return the times of both ends; every rank calls it."""
        everyone = self.world.allgather([float(t) for t in times], doing)
        return [everyone[0], everyone[-1]]


class Place(Protocol):
    """Memory of one process: of its host, or of its GPU.

    Attributes
    ----------
    name
        ``host`` or ``gpu``.
    where
        What ``Sharing`` takes for it.
    """

    name: str
    where: Any

    def allocate(self, size: int) -> int:
        """Return the address of new memory.

        Raises
        ------
        BackendError
            If there is not so much.
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

    def sharing(self, means: str) -> Sharing:
        """Return a means of sharing its memory."""
        ...

    def close(self) -> None:
        """Give everything back."""


class Wire(Protocol):
    """Messages between the two ends; only they call it.

    Attributes
    ----------
    name
        ``mpi`` or ``nccl``.
    """

    name: str

    def libraries(self) -> dict[str, str]:
        """Return the versions of what carries the messages."""
        ...

    def one(self, address: int, size: int) -> float:
        """Send one message from the first to the last end; return the seconds it took here.

        Both start together; at the last end it has taken as long as until the data was there.
        """
        ...

    def rounds(self, address: int, size: int, count: int) -> float:
        """Send a message there and back so many times; return the seconds of all of it."""
        ...

    def window(self, send: int, receive: int, size: int, count: int, both: bool) -> float:
        """Send so many messages that are under way together, and wait for an answer at their end.

        Parameters
        ----------
        send, receive
            Addresses of the buffers; each is used for all messages.
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


def pattern(size: int, end: int) -> Any:
    """Return the bytes that an end sends."""
    return np.random.default_rng(_SEED + end).integers(0, 256, size, np.uint8)


def verify(place: Place, address: int, size: int, end: int, what: str) -> None:
    """Compare what has come with what the other end sent.

    Raises
    ------
    VerificationError
        If a word differs.
    """
    words = -(-size // 8)
    padded = np.zeros((2, 8 * words), np.uint8)
    padded[0, :size], padded[1, :size] = place.read(address, size), pattern(size, end)
    found, expected = padded.view(np.uint64)
    wrong = np.flatnonzero(found != expected)
    if wrong.size:
        raise VerificationError(what, 8 * int(wrong[0]), int(wrong.size), words)
