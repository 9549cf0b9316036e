"""Work of a stream that is held to a rate."""

from __future__ import annotations

import math
from itertools import pairwise

from ...units import KIB
from .device import TimedStream
from .stream_ops import EngineCopy, Kernel
from .ticks import Ticks

#: Alignment of the parts of a copy.
ALIGNMENT_BYTES = 4 * KIB
#: Time that a piece of a copy takes at its rate, in s, and least bytes of a piece. The host enqueues several
#: thousand pieces in a second.
_PIECE_S, _LEAST_PIECE_BYTES = 100e-6, 64 * KIB
#: Least time between the waits of a stream, in s, and how far ahead its pieces are enqueued.
LEAST_WAIT_S, _AHEAD_S = 50e-6, 10e-3


def pieces_of(size: int, rate: float, paced: int) -> int:
    """The number of pieces of one copy.

    Args:
        size: Bytes of one copy.
        rate: Rate in B/s of the buffer.
        paced: Number of transfers of the Measurement that are held to a rate.
    """
    return max(1, min(int(size / (rate * _PIECE_S * paced)), size // _LEAST_PIECE_BYTES))


class Paced:
    """Work that is held to a rate: each piece of it ends no earlier than it is due.

    The times count from the start of the transfer, so that a late piece delays no other.

    Attributes:
        work: The work at full speed.
        size, pieces: Bytes of one copy, and the number of pieces in which it is made.
        rate: Rate in B/s of the buffer.
        start: Time from the common start until the transfer begins, in s.
    """

    loops = False

    def __init__(
        self,
        lane: TimedStream,
        work: EngineCopy | Kernel,
        ticks: Ticks,
        size: int,
        pieces: int,
        rate: float,
        start: float,
    ) -> None:
        self.work, self.pieces = work, pieces
        self._lane, self._ticks, self._rate, self._start = lane, ticks, rate, start
        edges = [size * i // pieces // ALIGNMENT_BYTES * ALIGNMENT_BYTES for i in range(pieces)] + [size]
        self._parts = [(begin, end - begin) for begin, end in pairwise(edges)]
        self._next, self._moved, self._held = 0, 0, 0.0

    def warm_up(self) -> None:
        """Copy a part at full speed."""
        self.work.warm_up()

    def begin(self) -> None:
        """Begin the schedule of a sample."""
        self._moved, self._held = 0, self._start

    def ready(self, pieces: int) -> int:
        """How many pieces begin soon: a queue that is full of waits would stop the other streams."""
        soon = (self._ticks.now + _AHEAD_S - self._start) * self._rate - self._moved
        return max(0, min(pieces, math.ceil(soon / self._parts[0][1])))

    def put(self, pieces: int) -> None:
        """Enqueue pieces, each with a wait behind it, unless the last wait was just before."""
        for _ in range(pieces):
            begin, size = self._parts[self._next]
            self.work.part(begin, size)
            self._moved += size
            self._next = (self._next + 1) % self.pieces
            if not self._next and isinstance(self.work, Kernel):
                self.work.done += 1
            if self._due - self._held >= LEAST_WAIT_S:
                self.wait()

    def wait(self) -> None:
        """Make the stream wait until everything that was enqueued is due."""
        if self._due > self._held:
            self._held = self._due
            self._ticks.hold(self._lane.device, self._lane.stream, self._held)

    @property
    def _due(self) -> float:
        return self._start + self._moved / self._rate
