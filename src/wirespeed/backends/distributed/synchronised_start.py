"""The common start of the processes of a job: the gates of their hosts, the offsets between the clocks of
these hosts, and the start skew.
"""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from dataclasses import dataclass

from ...errors import MeasurementTimeout, WirespeedError
from ...statistics import summarise
from ...tables import SKEW, Quantity, State
from ...units import NANO
from ...worlds.base import RankLost, World
from ...worlds.descriptors import Descriptors, SharedMemory, fetch
from .exchange import Exchange
from .job_process import LINE, Endpoint

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


#: Number of round trips, of which the shortest counts.
_ROUND_TRIPS = 40


@dataclass(frozen=True)
class Clocks:
    """The monotonic clocks of all ranks, compared with rank 0's.

    Attributes:
        offsets: By rank: its clock minus rank 0's, in ns.
        errors: By rank: half of the shortest round trip, in ns; bounds the error of the offset.
    """

    offsets: tuple[int, ...]
    errors: tuple[int, ...]

    @property
    def error(self) -> float:
        """Maximum start skew between two hosts, in s."""
        known = sorted(self.errors)
        return (known[-1] + known[-2]) * 1e-9 if len(known) > 1 else 0.0

    @property
    def lead(self) -> int:
        """Time between agreeing on a start and the start, in ns."""
        return 8 * max(self.errors)


def _measure_clock(world: World, rank: int) -> tuple[int, int]:
    """Compare a rank's clock with rank 0's. All ranks must call it; only these two take part.

    Returns:
        On rank 0: that clock minus this one, and half of the shortest round trip, in ns.

    Raises:
        RankLost: If that rank or rank 0 has ended.
    """
    if world.rank not in (0, rank):
        return 0, 0
    other = 0 if world.rank else rank
    link = world.links[other]
    deadline = time.monotonic() + world.timeout
    best = (0, 2**62)
    try:
        for _ in range(_ROUND_TRIPS):
            if world.rank:
                link.receive(deadline, int)
                link.send(time.monotonic_ns(), deadline)
                continue
            start = time.monotonic_ns()
            link.send(start, deadline)
            there, end = link.receive(deadline, int), time.monotonic_ns()
            best = min(best, (there - (start + end) // 2, (end - start) // 2 + 1), key=lambda b: b[1])
    except TimeoutError:
        stage = f"waiting for {world.members[other]} while comparing clocks"
        raise MeasurementTimeout(stage, world.timeout) from None
    except (EOFError, OSError) as error:
        raise RankLost(world.reason_for(other, "comparing clocks", error)) from None
    return best


def compare(world: World) -> Clocks:
    """Compare the clocks of all hosts; processes of one host share a clock. All must call it.

    Source: the method of the Network Time Protocol, RFC 5905: half of the shortest of several round trips
    bounds the error.
    """
    leaders = [next(m.rank for m in world.members if m.host == host) for host in world.hosts]
    measured = {leaders[0]: (0, 0)}
    for rank in leaders[1:]:
        measured[rank] = _measure_clock(world, rank)
    everyone = world.broadcast([[k, *v] for k, v in measured.items()], "comparing clocks")
    known = {rank: (offset, error) for rank, offset, error in everyone}
    by_host = {world.members[rank].host: known[rank] for rank in leaders}
    pairs = [by_host[member.host] for member in world.members]
    return Clocks(tuple(p[0] for p in pairs), tuple(p[1] for p in pairs))
