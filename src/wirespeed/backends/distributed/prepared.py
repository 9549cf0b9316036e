"""A Measurement that several processes have prepared together: each runs its own part, and all take every
step together.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

from ...errors import BackendLost, OutOfMemory, WirespeedError
from ...measurement import Measurement, Sample
from ...model import Engine, Role
from ...statistics import summarise
from ...worlds.descriptors import Descriptors
from ..base import Prepared
from .exchange import Exchange
from .job_process import TWO_SIDED, Endpoint, Handle, LocalPart, LocalTransfer
from .shared_pool import Own, SharedBufferPool
from .synchronised_start import SynchronisedStart
from .transport_selection import TransportSelector

#: Samples at the beginning that only determine the number of copies of a sample.
_WARM_UP_SAMPLES = 2
#: A load that ended before the measured transfers is repeated until it lasts this multiple of their time,
#: at most this many times.
_LOAD_LASTS, _MOST_REPEATS = 1.5, 10_000
#: Index of a transfer, and why its transport does not work.
Failures = list[tuple[int, str]]


@dataclass(frozen=True)
class Running:
    """Resources of a process once all processes have connected.

    Attributes:
        side: Hardware of this process.
        pool: Its buffers, and the buffers of others that it has opened.
        start: The common start.
        choice: Selects the transport of each transfer.
        descriptors: Serves the descriptors that this process exports.
    """

    side: Endpoint
    pool: SharedBufferPool
    start: SynchronisedStart
    choice: TransportSelector
    descriptors: Descriptors


class DistributedPrepared(Prepared):
    """This process' part of a common Measurement; all processes call every method together.

    Attributes:
        exchange: The exchange of the job.
        running: Resources of this process.
        measurement: Measurement, the same in all processes.
        means: Transport of each transfer.
    """

    def __init__(
        self, exchange: Exchange, running: Running, measurement: Measurement, means: tuple[str, ...]
    ) -> None:
        self._exchange, self._running = exchange, running
        self._rank = exchange.world.rank
        self._hosts = [member.host for member in exchange.world.members]
        self._measurement = measurement
        self._means = means
        # For the processes, load is measured too: it starts with the others and makes more copies.
        self._transfers = tuple(
            replace(transfer, engine=Engine(by) if by in TWO_SIDED else transfer.engine, role=Role.MEASURED)
            for transfer, by in zip(measurement.transfers, means, strict=True)
        )
        self._loads = {i: 1 for i, t in enumerate(measurement.transfers) if t.role is Role.LOAD}
        self._skews: list[tuple[float, float]] = []
        self._own: dict[tuple[int, bool], Own] = {}
        self._part = LocalPart(running.side)
        self._arriving = self._arrivals()

    def set_up(self) -> Failures:
        """Share the buffers, bind the part of this process, and fill; return the transports that do not work.

        Raises:
            WirespeedError: If something else fails, in any process.
        """
        text = str(self._measurement)
        offers = self._exchange.together(self._offer, f"sharing the buffers of {text}")
        if failures := _failures(offers):
            return failures
        handles = {index: handle for shared, _ in offers for index, handle in shared}
        opened = self._exchange.together(lambda: self._open(handles), f"opening the buffers of {text}")
        if failures := _failures(opened):
            return failures
        self._exchange.together(self._part.fill, f"filling the buffers of {text}")
        return []

    def __exit__(self, *_: object) -> None:
        """Give the buffers of this process back to the pool."""
        self._part.close()
        movers = {self._hosts[t.executor.rank] for t in self._transfers if t.executor.rank is not None}
        if len(self._skews) > _WARM_UP_SAMPLES and len(movers) > 1:
            skews, walls = zip(*self._skews[_WARM_UP_SAMPLES:], strict=True)
            skew, wall = summarise(skews).median, summarise(walls).median
            self._running.start.judge(skew, wall)
        self._skews.clear()
        self._own.clear()
        self._running.pool.give_back()

    def sample(self, copies: int) -> Sample:
        part, start = self._part, self._running.start

        def arm() -> int:
            self._running.side.begin()
            part.arm(copies)
            return start.ready()

        try:
            ready = self._exchange.together(arm, f"starting {self._measurement}")
        except WirespeedError:
            part.abandon()
            raise

        def finish() -> list[object]:
            return [start.open(ready, self._arriving), part.finish()]

        everyone = self._exchange.together(finish, f"running {self._measurement}")
        return self._sample(everyone)

    def _sample(self, everyone: list[Any]) -> Sample:
        """Combine the times of all processes; the slower side of a message counts."""
        seconds, amounts, wall = [0.0] * len(self._transfers), [0.0] * len(self._transfers), 0.0
        for _, timings in everyone:
            for i, taken, amount, last in timings:
                seconds[i], amounts[i] = max(seconds[i], taken), amount
                wall = max(wall, last)
        if self._loads:
            wall = self._adapted(seconds)
        self._skews.append((self._running.start.late([late for late, _ in everyone]), wall))
        return Sample(tuple(seconds), tuple(amounts), wall, self._means)

    def _adapted(self, seconds: Sequence[float]) -> float:
        """The time until the last measured transfer ends.

        Loads that ended earlier are repeated more often in the next samples, in all processes.
        """
        end = max(taken for i, taken in enumerate(seconds) if i not in self._loads)
        for i, times in self._loads.items():
            if 0 < seconds[i] < end:
                wanted = math.ceil(times * _LOAD_LASTS * end / seconds[i])
                self._loads[i] = min(wanted, _MOST_REPEATS)
        self._part.repeat(self._loads)
        return end

    def verify(self) -> None:
        """Verify all destinations, each in the process that owns it."""
        self._exchange.together(self._part.verify, f"verifying {self._measurement}")

    # Setting up.

    def _arrivals(self) -> int:
        """The number of arrivals at this host's gate: every CPU of an executor, and a thread for messages."""
        here = {rank for rank, host in enumerate(self._hosts) if host == self._hosts[self._rank]}
        by_messages = [t for t in self._transfers if t.engine in TWO_SIDED]
        messengers = here & {rank for t in by_messages for rank in (t.source.rank, t.destination.rank)}
        executed = [t for t in self._transfers if t not in by_messages and t.executor.rank in here]
        return sum(len(t.executor.cpus) for t in executed) + len(messengers)

    def _offer(self) -> tuple[list[tuple[int, list[object]]], Failures]:
        """Take the buffers that this process owns; return handles for other processes, and failures."""
        handles: list[tuple[int, list[object]]] = []
        failures: Failures = []
        for index, transfer in enumerate(self._transfers):
            by_messages = self._means[index] in TWO_SIDED
            by = self._running.side.plain if by_messages else self._means[index]
            for of_source, memory in ((True, transfer.source), (False, transfer.destination)):
                if memory.rank != self._rank:
                    continue
                with _attempting(index, failures):
                    own = self._own[index, of_source] = self._running.pool.take(memory, by, transfer.bytes)
                    if not by_messages and transfer.executor.rank != self._rank:
                        handles.append((index, [own.number, self._running.pool.export(own)]))
        return handles, failures

    def _open(self, handles: dict[int, list[Any]]) -> tuple[None, Failures]:
        """Open the buffers of other processes, and bind the part of this process; return failures."""
        pieces: list[LocalTransfer] = []
        failures: Failures = []
        for index, (transfer, means) in enumerate(zip(self._transfers, self._means, strict=True)):
            ends = (transfer.source.rank, transfer.destination.rank)
            if self._rank not in (*ends, transfer.executor.rank):
                continue
            addresses = [
                self._own[index, of_source].allocation.address if (index, of_source) in self._own else 0
                for of_source in (True, False)
            ]
            executes = transfer.executor.rank == self._rank
            if executes and means not in TWO_SIDED and ends[0] != ends[1]:
                with _attempting(index, failures):
                    far = 0 if ends[0] != self._rank else 1
                    rank, (number, handle) = ends[far], handles[index]
                    assert rank is not None
                    addresses[far] = self._running.pool.open(rank, number, Handle(*handle))
            peer = next((rank for rank in ends if rank != self._rank), self._rank)
            pieces.append(LocalTransfer(
                index, transfer, means, addresses[0], addresses[1], ends[0] == self._rank,
                ends[1] == self._rank, means in TWO_SIDED or executes, -1 if peer is None else peer,
            ))  # fmt: skip
        if not failures and pieces:
            self._part = self._running.side.part(pieces)
        return None, failures


@contextmanager
def _attempting(index: int, failures: Failures) -> Iterator[None]:
    """Record a failure for this transfer. Out of memory propagates."""
    try:
        yield
    except WirespeedError as error:
        if isinstance(error, (BackendLost, OutOfMemory)):
            raise
        failures.append((index, str(error)))


def _failures(everyone: list[tuple[object, Failures]]) -> Failures:
    return [(index, reason) for _, failures in everyone for index, reason in failures]
