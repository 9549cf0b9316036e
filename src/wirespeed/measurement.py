"""Measurement: works that run together, the cells that they fill, how their times become values, and which
kinds of values vary alike between runs. Plain frozen data in base units (bytes, seconds).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import cached_property
from typing import Any

from .model import BufferAge, Collective, Engine, MemoryKind, Message, Role, Sharing, Transfer, Work


class Reduce(StrEnum):
    """How the times of a Measurement become the value of one Place."""

    FIRST = "first"  #: rate of the first transfer while the others run
    SUM = "sum"  #: sum of the rates
    WALL = "wall"  #: all bytes over the time until the last transfer ends
    LATENCY = "latency"  #: seconds per access, operation or message of the first work
    BUS = "bus"  #: bus bandwidth of a collective: its algorithm bandwidth times the bus factor
    SUBMISSION = "submission"  #: seconds until the last call of one copy of a block list has returned
    LATENESS = "lateness"  #: seconds by which a process enters a collective after the first one

    @property
    def is_time(self) -> bool:
        """Whether the value is the time of one operation, which moves no counted bytes."""
        return self in (Reduce.LATENCY, Reduce.SUBMISSION)


class Unit(StrEnum):
    """Base unit of a value; reports convert it."""

    RATE = "B/s"
    TIME = "s"
    FREQUENCY = "1/s"

    @property
    def more_is_better(self) -> bool:
        """Whether larger values are better."""
        return self is not Unit.TIME


@dataclass(frozen=True, slots=True)
class Axis:
    """The rows or the columns of a table.

    Attributes:
        name: Name of the axis.
        labels: Label of each row or column.
        values: Value of each row or column if the axis is a quantity (a curve); empty otherwise.
        unit: Unit of the values.
    """

    name: str
    labels: tuple[str, ...]
    values: tuple[float, ...] = ()
    unit: str = ""


@dataclass(frozen=True, slots=True)
class Place:
    """A cell that a Measurement fills, and how its value follows from the times of a Sample.

    Attributes:
        table: Key of the table.
        row, column: Position in the table.
        reduce: How the times become a value.
        transfers: Indices into the times of a Sample: works of the Measurement, or their phases. For
            ``LATENESS``: a process.
        factor: Multiplier of the value: the bus factor of a collective, 0.5 for half the round-trip time.
    """

    table: str
    row: int
    column: int
    reduce: Reduce = Reduce.FIRST
    transfers: tuple[int, ...] = (0,)
    factor: float = 1.0


@dataclass(frozen=True)
class Measurement:
    """Works that start together, and the cells that they fill.

    Attributes:
        works: What runs concurrently.
        places: The cells.
        independent: Whether its works share nothing and only run concurrently to save time, so that each cell
            should have the same value as if it was measured separately. ``separate`` splits it.
    """

    works: tuple[Work, ...]
    places: tuple[Place, ...]
    independent: bool = False

    def __hash__(self) -> int:
        return self._hash

    @cached_property
    def _hash(self) -> int:
        """Its hash, which a run of many rounds needs often: it depends on all works and places."""
        return hash((self.works, self.places, self.independent))

    def __getstate__(self) -> dict[str, Any]:
        """What another process gets: there, texts have other hashes."""
        return {name: value for name, value in vars(self).items() if name != "_hash"}

    @cached_property
    def transfers(self) -> tuple[Transfer, ...]:
        """Its works that are Transfers: all or none of them."""
        return tuple(work for work in self.works if isinstance(work, Transfer))

    @property
    def collective(self) -> Collective | None:
        """The collective that it runs; None if it runs something else."""
        work = self.works[0]
        return work if isinstance(work, Collective) else None

    @property
    def uses_new_buffers(self) -> bool:
        """Whether each sample has new buffers, and therefore one copy and no warm-up."""
        return any(
            isinstance(work, Sharing) or (isinstance(work, Message) and work.age is not BufferAge.REUSED)
            for work in self.works
        )

    @property
    def moves_lists(self) -> bool:
        """Whether it measures block lists, of which the time of every call matters."""
        return any(t.scattered is not None and t.role is Role.MEASURED for t in self.transfers)

    @property
    def happens_once(self) -> bool:
        """Whether there is only one sample because a second one would measure something else."""
        return any(isinstance(work, Message) and work.age is BufferAge.FIRST for work in self.works)

    def counted(self, place: Place) -> int:
        """The counted bytes of one copy of a Place; 0 for a latency and background load."""
        transfers = [self.transfers[i] for i in place.transfers if i < len(self.transfers)]
        if place.reduce.is_time or any(t.role is Role.LOAD for t in transfers):
            return 0
        return sum(t.bytes * t.counted for t in transfers)

    def separate(self) -> tuple[Measurement, ...]:
        """One Measurement for each group of cells that need the same transfers."""
        groups: list[tuple[set[int], list[Place]]] = []
        for place in self.places:
            transfers, places = set(place.transfers), [place]
            for group in [group for group in groups if group[0] & transfers]:
                groups.remove(group)
                transfers, places = group[0] | transfers, group[1] + places
            groups.append((transfers, places))
        measurements = []
        for transfers, places in groups:
            order = {index: i for i, index in enumerate(sorted(transfers))}
            own = tuple(replace(p, transfers=tuple(order[i] for i in p.transfers)) for p in places)
            measurements.append(Measurement(tuple(self.works[i] for i in order), own))
        return tuple(measurements)

    def __str__(self) -> str:
        measured = [w for w in self.works if not isinstance(w, Transfer) or w.role is Role.MEASURED]
        more = f" and {len(self.works) - 1} more" if len(self.works) > 1 else ""
        return f"{(measured or self.works)[0]}{more}"


@dataclass(frozen=True, slots=True)
class Sample:
    """Result of running a Measurement once: one entry per work (or phase, or individually timed message).

    Attributes:
        seconds: Duration of each work, in s.
        amounts: Amount of each work: bytes of one buffer, accesses of a chase, operations of a collective.
        wall: Time from the start of the first measured work until the last one ended, in s.
        means: Between processes: transport of each transfer (``vmm-fd``, ``mpi``).
        iterations: The individual iterations, if each was timed.
        by_process: Time of an iteration in each process, in s.
        submitted: Time of all calls of a block list until they returned, in s.
        calls: Time of each of the copies of a block list, in s, if each was timed.
    """

    seconds: tuple[float, ...]
    amounts: tuple[float, ...]
    wall: float
    means: tuple[str, ...] = ()
    iterations: tuple[Sample, ...] = ()
    by_process: tuple[float, ...] = ()
    submitted: float = 0.0
    calls: tuple[float, ...] = ()


def value_of(place: Place, measurement: Measurement, sample: Sample) -> float:
    """The value of a Place from one Sample: a rate in B/s, a latency or lateness in s."""
    chosen = place.transfers
    if place.reduce is Reduce.LATENESS:
        seconds = [iteration.by_process for iteration in sample.iterations]
        late = [max(by_process) - by_process[chosen[0]] for by_process in seconds]
        return math.fsum(late) / len(late)
    if place.reduce is Reduce.LATENCY:
        return place.factor * sample.seconds[chosen[0]] / sample.amounts[chosen[0]]
    if place.reduce is Reduce.SUBMISSION:
        copies = sample.amounts[chosen[0]] / measurement.transfers[chosen[0]].bytes
        return sample.submitted / copies
    counted = [sample.amounts[i] * measurement.works[i].counted for i in chosen]
    if place.reduce is Reduce.WALL:
        return math.fsum(counted) / sample.wall
    rates = [n / sample.seconds[i] for n, i in zip(counted, chosen, strict=True)]
    return place.factor * (math.fsum(rates) if place.reduce is Reduce.SUM else rates[0])


class NoiseKind(StrEnum):
    """Kinds of values that vary alike."""

    LATENCY = "latency of host memory"
    HOST = "host memory"
    LINK = "host ↔ GPU"
    GPU = "GPU"


#: Standard deviation between runs that no round of a run shows, as a fraction of the value: states that last
#: longer than a run, such as the two rates, 2% apart, of copies from an H100 to a virtual machine. From 20
#: and more fresh processes on two virtual machines (`docs/results`).
UNSEEN: Mapping[NoiseKind, float] = {
    NoiseKind.LATENCY: 0.03,
    NoiseKind.HOST: 0.02,
    NoiseKind.LINK: 0.008,
    NoiseKind.GPU: 0.002,
}


def kind_of(measurement: Measurement, place: Place) -> NoiseKind:
    """What the value of a Place varies with from run to run."""
    kinds = {end.kind for transfer in measurement.transfers for end in transfer.ends}
    if measurement.collective:
        kinds |= {end.kind for end in measurement.collective.members}
    by_cpus = bool(measurement.transfers) and all(t.engine is Engine.CPU for t in measurement.transfers)
    if by_cpus or MemoryKind.DEVICE not in kinds:
        return NoiseKind.LATENCY if place.reduce is Reduce.LATENCY else NoiseKind.HOST
    return NoiseKind.GPU if kinds == {MemoryKind.DEVICE} else NoiseKind.LINK
