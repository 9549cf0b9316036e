"""Offsets between the clocks of hosts, so that all hosts can start something at the same time."""

from __future__ import annotations

import time
from dataclasses import dataclass

from ..errors import MeasurementTimeout
from .base import RankLost, World

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
