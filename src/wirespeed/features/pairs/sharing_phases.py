"""Prepared phases of sharing a buffer, which the first rank owns and the last rank uses a part of."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import replace
from typing import TypeVar

from ...backends.base import Prepared
from ...backends.distributed.job_process import Allocation, Handle
from ...errors import BackendError, BackendLost, OutOfMemory, Unreachable
from ...measurement import Measurement, Sample
from ...model import ALLOCATE, CLOSE, EXPORT, FIRST_COPY, FREE, NEXT_COPIES, OPEN, Engine, Sharing
from .connection import Connection, PairMemory, Wire, pattern, verify

#: Number of copies or messages after the first one, whose mean time is reported.
_NEXT_COPY_COUNT = 10

T = TypeVar("T")


class _Clock:
    """Times the phases of this process; ``seconds`` has them."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}

    def of(self, phase: str, call: Callable[[], T]) -> T:
        """Call a function, record its time as the time of a phase, and return its result."""
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
