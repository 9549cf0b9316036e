"""Prepared messages of one size: the buffers of both ends, and the timing of each pattern.

Prepared phases of sharing a buffer, which the first rank owns and the last rank uses a part of.

The backend of messages and shared buffers between the first and the last rank of a job.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import replace
from typing import TypeVar, cast

from ...errors import BackendError, BackendLost, OutOfMemory, Unreachable, WirespeedError
from ...hardware.topology import Machine
from ...measurement import Measurement, Sample
from ...model import (
    ALLOCATE,
    CLOSE,
    EXPORT,
    FIRST_COPY,
    FREE,
    NEXT_COPIES,
    OPEN,
    Engine,
    Message,
    MessagePattern,
    Sharing,
)
from ...options import RunOptions
from ..base import Prepared
from ..distributed.endpoint import Allocation, Handle
from ..distributed.exchange import Exchange, JobBackend
from .connection import Connection, PairMemory, Wire, pattern, verify

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


#: Number of copies or messages after the first one, whose mean time is reported.
_NEXT_COPY_COUNT = 10

T = TypeVar("T")


class _Clock:
    """Times the phases of this process; ``seconds`` has them."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}

    def of(self, phase: str, call: Callable[[], T]) -> T:
        """Call a function, record its time as that of a phase, and return its result."""
        start = time.perf_counter()
        result = call()
        self.seconds[phase] = time.perf_counter() - start
        return result

    def copies(self, call: Callable[[], object]) -> None:
        """Time the first call and the next calls of a copy."""
        self.of(FIRST_COPY, call)
        start = time.perf_counter()
        for _ in range(_NEXT_COPY_COUNT):
            call()
        self.seconds[NEXT_COPIES] = (time.perf_counter() - start) / _NEXT_COPY_COUNT


class PreparedSharing(Prepared):
    """Prepared sharing of new buffers in one process. All processes call each method at the same time."""

    def __init__(self, connection: Connection, measurement: Measurement, works: tuple[Sharing, ...]) -> None:
        self._connection, self._measurement, self._works = connection, measurement, works
        self._together, self._ends = connection.exchange.together, connection.ends
        sent, kind = works[0].sent, works[0].memory.kind
        self._wire: Wire | None = connection.wire(sent, kind) if sent else None
        self._place: PairMemory | None = connection.place(kind) if connection.measures else None
        if (works[0].mechanism, kind) not in connection.tried:
            self._try()

    def sample(self, copies: int) -> Sample:
        """Share a new buffer for each over-allocation in turn, and return the times of all phases.

        Raises:
            VerificationError: If wrong data arrived.
        """
        del copies  # always one, because a buffer is new only once
        phases = [(work, self._phases(work)) for work in self._works]
        seconds = tuple(times[phase] for work, times in phases for phase in work.phases)
        return Sample(seconds, (1.0,) * len(seconds), math.fsum(seconds))

    def _try(self) -> None:
        """Share a small buffer, so that set-up is not timed, and to find out whether the mechanism works.

        Raises:
            Unreachable: If it does not work.
        """
        work = self._works[0]
        try:
            self._phases(replace(work, bytes=work.copied, over=0))
        except (BackendLost, OutOfMemory):
            raise
        except BackendError as error:
            raise Unreachable(str(error)) from error
        self._connection.tried.add((work.mechanism, work.memory.kind))

    def _phases(self, work: Sharing) -> dict[str, float]:
        """The time of each phase, in s; copies are timed at the last end."""
        mine = self._sent(work) if work.sent else self._opened(work)
        everyone = self._connection.exchange.gather(mine, f"timing {work}")
        first, last = everyone[0], everyone[-1]
        return {**last, **first, **{phase: last[phase] for phase in (FIRST_COPY, NEXT_COPIES)}}

    def _opened(self, work: Sharing) -> dict[str, float]:
        """Let the last rank open the buffer and copy from it; return the times of this process, in s."""
        clock, size = _Clock(), work.bytes + work.over
        owned: list[Allocation] = []

        def export(place: PairMemory) -> Handle:
            sharing = place.sharing(work.mechanism)
            owned.append(clock.of(ALLOCATE, lambda: sharing.allocate(place.where, size)))
            place.write(owned[0].address, pattern(work.copied, 0))
            return clock.of(EXPORT, lambda: sharing.export(owned[0]))

        def use(place: PairMemory, handle: Handle) -> None:
            sharing, local = place.sharing(work.mechanism), place.allocate(work.copied)
            try:
                opened = clock.of(OPEN, lambda: sharing.open(place.where, handle))
                clock.copies(lambda: place.copy(local, opened.address, work.copied))
                clock.of(CLOSE, opened.release)
                verify(place, local, work.copied, 0, str(work), work.way)
            finally:
                place.free(local)

        owner = self._place if self._ends.first else None
        user = self._place if self._ends.last else None
        try:
            plain = self._together(lambda: export(owner) if owner else None, f"exporting {work}")[0]
            self._together(lambda: use(user, Handle(*plain)) if user else None, f"opening {work}")
        finally:
            for allocation in owned:
                clock.of(FREE, allocation.release)
        return clock.seconds

    def _sent(self, work: Sharing) -> dict[str, float]:
        """Let the first rank send a part of its buffer; return the times of this process, in s."""
        clock, place, wire = _Clock(), self._place, self._wire
        size = work.bytes + work.over if self._ends.first else work.copied
        held: list[int] = []

        def allocate() -> None:
            if place is not None:
                held.append(clock.of(ALLOCATE, lambda: place.allocate(size)))
                place.write(held[0], pattern(work.copied, 0 if self._ends.first else 1))

        def send() -> None:
            if wire is not None:
                clock.seconds[FIRST_COPY] = wire.one(held[0], work.copied)
                next_copies = (wire.one(held[0], work.copied) for _ in range(_NEXT_COPY_COUNT))
                clock.seconds[NEXT_COPIES] = math.fsum(next_copies) / _NEXT_COPY_COUNT

        def compare() -> None:
            if place is not None and self._ends.last:
                verify(place, held[0], work.copied, 0, str(work), work.way)

        try:
            self._together(allocate, f"allocating {work}")
            self._connection.moving(send, f"sending {work}", Engine(work.mechanism))
            self._together(compare, f"verifying {work}")
        finally:
            if place is not None and held:
                clock.of(FREE, lambda: place.free(held[0]))
        return clock.seconds


class PairsBackend(JobBackend):
    """Runs messages and the phases of sharing a buffer between two ranks of a job.

    Attributes:
        exchange: The exchange of the job.
        machine: The machine of all ranks.
        local: The host of this process, as this process discovered it.
        options: Options of the run.
        grace: Additional time that another process may take at an exchange, in s.
    """

    name = "pairs"
    sample_seconds = 5e-3
    can_cancel = False  # a message that was sent cannot be cancelled

    def __init__(
        self, exchange: Exchange, machine: Machine, local: Machine, options: RunOptions, grace: float = 0.0
    ) -> None:
        super().__init__()
        self.exchange, self.processes = exchange, exchange.world.size
        self._connection = Connection(exchange, machine, local, options, grace, self.warn)

    def refuses(self, measurement: Measurement) -> str | None:
        """None for messages and shared buffers, and an empty reason for all other works."""
        return None if all(isinstance(work, Message | Sharing) for work in measurement.works) else ""

    def prepare(self, measurement: Measurement, options: RunOptions) -> Prepared:
        """Connect the two ends, and allocate the buffers that all samples use."""
        del options  # the backend has the options of the job
        self.exchange.check()
        work = measurement.works[0]
        kind = work.source.kind if isinstance(work, Message) else cast(Sharing, work).memory.kind
        self._connection.open(kind)
        if isinstance(work, Message):
            return PreparedMessages(self._connection, measurement, work)
        return PreparedSharing(self._connection, measurement, cast(tuple[Sharing, ...], measurement.works))

    def libraries(self) -> dict[str, str]:
        return self._connection.libraries()

    def late(self, stage: str, seconds: float) -> WirespeedError:
        error = self.exchange.world.late(stage, seconds)
        self.exchange.lose(error)
        return error

    def close(self) -> None:
        """Release all resources, unless a message may still be on its way."""
        self.exchange.close()
        if not self.exchange.lost:
            self._connection.close()
