"""Prepared messages of one size: the buffers of both ends, and the timing of each pattern."""

from __future__ import annotations

import math
from dataclasses import replace

from ...backends.base import Prepared
from ...errors import WirespeedError
from ...measurement import Measurement, Sample
from ...model import Message, MessagePattern
from .connection import Connection, pattern, verify

#: Patterns in which the last end sends messages of the same size.
_RETURNING = (MessagePattern.ROUND_TRIP, MessagePattern.WINDOW_BOTH)


class PreparedMessages(Prepared):
    """Prepared messages in one process. All processes call each method at the same time."""

    def __init__(self, connection: Connection, measurement: Measurement, message: Message) -> None:
        self._connection, self._measurement, self._message = connection, measurement, message
        self._end = 0 if connection.ends.first else 1
        self._wire = connection.wire(message.engine, message.source.kind)
        self._place = connection.place(message.source.kind) if self._wire else None
        self._held: list[int] = []
        if not measurement.uses_new_buffers:
            self._renew()

    def __exit__(self, *_: object) -> None:
        self._free(self._held)

    def sample(self, copies: int) -> Sample:
        """Send messages; ``copies`` is the number of round trips or windows."""
        message = self._message
        if self._measurement.uses_new_buffers:
            self._renew()
        everyone = self._connection.moving(
            lambda: self._send(copies), f"measuring {self._measurement}", message.engine
        )
        if message.pattern is MessagePattern.EACH:  # the receiver times the arrival
            seconds = tuple(everyone[-1])
            return Sample(seconds, (1.0,) * len(seconds), math.fsum(seconds))
        (seconds_of_all,) = everyone[0]
        amount = copies * message.count * message.bytes if message.is_window else copies
        return Sample((seconds_of_all,), (float(amount),), seconds_of_all)

    def _send(self, copies: int) -> list[float]:
        """The times at this end, in s; empty on ranks between the ends."""
        wire, message, size = self._wire, self._message, self._message.bytes
        if wire is None:
            return []
        if message.pattern is MessagePattern.EACH:
            return [wire.one(self._held[0], size) for _ in range(message.count)]
        send, receive = self._held
        if message.pattern is MessagePattern.ROUND_TRIP:
            return [wire.rounds(send, receive, size, copies)]
        both = message.pattern is MessagePattern.WINDOW_BOTH
        return [wire.windows(send, receive, size, message.count, both, copies)]

    def verify(self) -> None:
        """Compare the data that each end received, and overwrite it, so that the next sample is verified."""
        self._connection.exchange.together(self._compare, f"verifying {self._measurement}")

    def _compare(self) -> None:
        message, place = self._message, self._place
        if place is None or (self._end == 0 and message.pattern not in _RETURNING):
            return
        back = replace(message, source=message.destination, destination=message.source)
        received = message if self._end else back
        verify(place, self._held[-1], message.bytes, 1 - self._end, str(received), received.way)
        place.write(self._held[-1], pattern(message.bytes, self._end))

    def _renew(self) -> None:
        """Allocate new buffers, fill them with the data that this end sends, and free the old ones.

        The old ones are freed last, so that the new ones are at other addresses.
        """
        try:
            self._connection.exchange.together(self._allocate, f"allocating for {self._measurement}")
        except WirespeedError:
            self._free(self._held)
            raise

    def _allocate(self) -> None:
        if self._place is None:
            return
        old, self._held = self._held, []
        size = self._message.bytes
        sent = size if self._end else max(size, self._message.room)
        try:
            # The buffer that is sent, then the one that receives; a message that is not answered needs one.
            for room in (sent,) if self._message.pattern is MessagePattern.EACH else (sent, size):
                self._held.append(self._place.allocate(room))
                self._place.write(self._held[-1], pattern(size, self._end))
        finally:
            self._free(old)

    def _free(self, held: list[int]) -> None:
        while held and self._place is not None:
            self._place.free(held.pop())
