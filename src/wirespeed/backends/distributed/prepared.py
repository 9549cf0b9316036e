"""The common start of the processes of a job: the gates of their hosts, and the start skew.

A Measurement that several processes have prepared together.
"""

from __future__ import annotations

import math
import os
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

from ...errors import BackendLost, OutOfMemory, WirespeedError
from ...measurement import Measurement, Sample
from ...model import Engine, Role
from ...statistics import summarise
from ...tables import SKEW, Quantity, State
from ...units import NANO
from ...worlds.admission import Descriptors, SharedMemory, fetch
from ...worlds.crew import Clocks, compare
from ..base import Prepared
from .endpoint import LINE, TWO_SIDED, Endpoint, Handle, LocalPart, LocalTransfer
from .exchange import Exchange, Own, SharedBufferPool, TransportSelector

_PAGE_BYTES = 4096
#: Rounds in which the skew of the gate is measured.
_SKEW_ROUNDS = 9
#: Minimum ratio of the duration of a sample to the skew.
_SAMPLE_TO_SKEW = 100
#: Minimum skew that is reported, as a fraction of a sample.
_SKEW_LIMIT = 0.05


def share_page(exchange: Exchange, descriptors: Descriptors, timeout: float) -> SharedMemory:
    """Memory that all processes of this host have mapped, for their gate.

    The first process of the host creates it: one page, or more if a page has too few lines for all processes.

    Args:
        exchange: Exchanges with the other processes.
        descriptors: Serves the descriptor of the memory.
        timeout: Maximum time to fetch the descriptor, in s.
    """
    world = exchange.world
    here = [member.rank for member in world.members if member.host == world.me.host]
    first, size = here[0], -(-LINE * (1 + len(here)) // _PAGE_BYTES) * _PAGE_BYTES
    page = SharedMemory.create(size) if world.rank == first else None
    offer = [descriptors.address, descriptors.offer(os.dup(page.descriptor))] if page else None
    offers = exchange.gather(offer, "sharing the page of the start barrier")
    mapped: list[SharedMemory] = []

    def map_page() -> None:
        address, token = offers[first]
        descriptor = page.descriptor if page else fetch(address, token, timeout)
        try:
            mapped.append(page or SharedMemory(descriptor, size))
        finally:
            os.close(descriptor)  # the mapping remains

    exchange.together(map_page, "mapping the page of the start barrier")
    return mapped[0]


class SynchronisedStart:
    """Opens the gate of this host when all processes of all hosts are ready.

    Args:
        exchange: Exchanges with the other processes.
        side: Hardware of this process, with the gate.

    Attributes:
        clocks: Clocks of all ranks, compared with rank 0's.
        skews: Start skews of all processes so far, in s.
    """

    def __init__(self, exchange: Exchange, side: Endpoint) -> None:
        world = exchange.world
        self._exchange, self._side, self._world = exchange, side, world
        self._here = [member.rank for member in world.members if member.host == world.me.host]
        self._opens = world.rank == self._here[0]
        self._worst = 0.0
        self._warning = ""
        try:
            self.clocks: Clocks = compare(world)
        except WirespeedError as error:
            raise exchange.lose(error) from error
        self.skews: list[float] = []
        for _ in range(_SKEW_ROUNDS + 1):
            self._measure()
        del self.skews[:1]  # the first round loads what is needed for it

    @property
    def sample_seconds(self) -> float:
        """Minimum duration of a sample for which the skew is negligible, in s."""
        return _SAMPLE_TO_SKEW * summarise(self.skews).median

    def state(self) -> State:
        """The median and the largest start skew."""
        skew = summarise(self.skews)
        return Quantity("", SKEW, skew.median, "s"), Quantity("", "start skew, largest", skew.max, "s")

    def ready(self) -> int:
        """Rank 0's clock, derived from this process' clock, in ns."""
        return time.monotonic_ns() - self.clocks.offsets[self._world.rank]

    def open(self, ready: Sequence[int], arriving: int) -> int:
        """Open this host's gate; return the delay after the agreed time, in ns.

        Args:
            ready: By rank: when the process was ready, on rank 0's clock, in ns.
            arriving: Number of arrivals at the gate of this host.
        """
        if not self._opens:
            return 0
        if len(self._world.hosts) == 1:
            self._side.release(arriving)
            return 0
        moment = max(ready) + self.clocks.lead + self.clocks.offsets[self._world.rank]
        while (left := moment - time.monotonic_ns()) > 0:
            if left > 2_000_000:
                time.sleep(left / 2 * NANO)
        self._side.release(arriving)
        return time.monotonic_ns() - moment

    def late(self, lateness: Sequence[float]) -> float:
        """The start skew between hosts, in s; 0 for one host.

        Args:
            lateness: By rank: result of ``open``, in ns.
        """
        if len(self._world.hosts) == 1:
            return 0.0
        hosts = [member.host for member in self._world.members]
        lateness = [lateness[hosts.index(host)] for host in self._world.hosts]  # of those that open a gate
        self.skews.append((max(lateness) - min(lateness)) * NANO + self.clocks.error)
        return self.skews[-1]

    def judge(self, skew: float, wall: float) -> None:
        """Note the start skew between hosts in a Measurement, and the duration of a sample, in s."""
        if skew > max(_SKEW_LIMIT, self._worst) * wall:
            self._worst = skew / wall
            self._warning = (
                f"hosts started {skew * 1e6:.0f} µs apart in samples of {wall * 1e3:.2g} ms: transfers that "
                "should overlap did not overlap completely"
            )

    def drain_warnings(self) -> tuple[str, ...]:
        """A warning about the worst start skew since the last call, if it is too large."""
        warning, self._warning, self._worst = self._warning, "", 0.0
        return (warning,) if warning else ()

    def _measure(self) -> None:
        """Release all processes without work, and record the skew of their start."""

        def arm() -> int:
            self._side.begin()
            self._side.arrive()
            return self.ready()

        ready = self._exchange.together(arm, "measuring the start skew")

        def arrive() -> int:
            self.open(ready, len(self._here))
            return self._side.arrived() - self.clocks.offsets[self._world.rank]

        moments = self._exchange.together(arrive, "gathering the start skew")
        self.skews.append((max(moments) - min(moments)) * NANO + self.clocks.error)


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
        pool: Its buffers, and those of others that it has opened.
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
        if self._loads or any(transfer.start for transfer in self._transfers):
            wall = self._adapted(seconds)
        self._skews.append((self._running.start.late([late for late, _ in everyone]), wall))
        return Sample(tuple(seconds), tuple(amounts), wall, self._means)

    def _adapted(self, seconds: Sequence[float]) -> float:
        """The time from the first start to the last end of a measured transfer.

        Loads that ended earlier are repeated more often in the next samples, in all processes.
        """
        starts = [transfer.start for transfer in self._transfers]
        measured = [i for i in range(len(starts)) if i not in self._loads]
        end = max(starts[i] + seconds[i] for i in measured)
        for i, times in self._loads.items():
            needed = end - starts[i]
            if 0 < seconds[i] < needed:
                wanted = math.ceil(times * _LOAD_LASTS * needed / seconds[i])
                self._loads[i] = min(wanted, _MOST_REPEATS)
        if self._loads:
            self._part.repeat(self._loads)
        return end - min(starts[i] for i in measured)

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
