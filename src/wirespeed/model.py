"""The vocabulary of a measurement: Memory, Executor, Work (Transfer, Collective, ...), Measurement, Place.

Plain frozen data in base units (bytes, seconds). This module imports no other module of the package.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import cached_property


class MemoryKind(StrEnum):
    """How a Memory was allocated."""

    DEVICE = "device"
    PINNED = "pinned"
    PAGEABLE = "pageable"


class Engine(StrEnum):
    """The hardware or library with which an Executor moves bytes."""

    CE = "ce"  #: a GPU copy engine
    SM = "sm"  #: a GPU kernel of ordinary loads and stores
    SM_BULK = "sm_bulk"  #: a GPU kernel of bulk asynchronous copies
    SM_SPLIT = "sm_split"  #: one GPU kernel whose warps copy in alternating directions
    CPU = "cpu"  #: host threads, one pinned to each core
    NCCL = "nccl"  #: NCCL send and receive, where the processes share no memory
    MPI = "mpi"  #: MPI send and receive


class Role(StrEnum):
    """Whether a Transfer is measured, or is background load for the measured ones."""

    MEASURED = "measured"
    LOAD = "load"


class Operation(StrEnum):
    """What an Executor does with the buffers of a Transfer."""

    COPY = "copy"
    SCALE = "scale"  #: b[i] = s * a[i]
    ADD = "add"  #: c[i] = a[i] + b[i]
    TRIAD = "triad"  #: c[i] = a[i] + s * b[i]
    SAXPY = "saxpy"  #: z[i] = s * x[i] + y[i], in single precision
    READ = "read"  #: loads every byte, stores none
    WRITE = "write"  #: stores every byte, loads none
    CHASE = "chase"  #: dependent loads over a random cycle


#: Buffers that an operation reads and writes: (sources, destinations).
BUFFERS: dict[Operation, tuple[int, int]] = {
    Operation.COPY: (1, 1),
    Operation.SCALE: (1, 1),
    Operation.ADD: (2, 1),
    Operation.TRIAD: (2, 1),
    Operation.SAXPY: (2, 1),
    Operation.READ: (1, 0),
    Operation.WRITE: (0, 1),
    Operation.CHASE: (1, 0),
}


#: Largest number of memories to which one transfer writes.
MOST_DESTINATIONS = 8


class Access(StrEnum):
    """The side of a Transfer on which its Executor is."""

    READ = "read"  #: at the destination, which pulls
    WRITE = "write"  #: at the source, which pushes
    LOCAL = "local"  #: source and destination are the executor's own memory


class Reduce(StrEnum):
    """How the times of a Measurement become the value of one Place."""

    FIRST = "first"  #: rate of the first transfer while the others run
    SUM = "sum"  #: sum of the rates
    WALL = "wall"  #: all bytes over the time until the last transfer ends
    LATENCY = "latency"  #: seconds per access, operation or message of the first work
    BUS = "bus"  #: bus bandwidth of a collective: its algorithm bandwidth times the bus factor
    LATENESS = "lateness"  #: seconds by which a process enters a collective after the first one


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

    Parameters
    ----------
    name : str
        Name of the axis.
    labels : tuple[str, ...]
        Label of each row or column.
    values : tuple[float, ...]
        Value of each row or column if the axis is a quantity (a curve); empty otherwise.
    unit : str
        Unit of the values.
    """

    name: str
    labels: tuple[str, ...]
    values: tuple[float, ...] = ()
    unit: str = ""


@dataclass(frozen=True, slots=True)
class Memory:
    """Memory of a device.

    Parameters
    ----------
    device : str
        Name of the device: ``gpu0``, ``numa0``.
    kind : MemoryKind
        How it is allocated.
    rank : int or None
        Process that owns it; None outside a job of several processes.
    """

    device: str
    kind: MemoryKind
    rank: int | None = None

    def __str__(self) -> str:
        return self.device if self.rank is None else f"{self.rank}/{self.device}"


@dataclass(frozen=True, slots=True)
class Executor:
    """What moves the bytes: a GPU, or CPU cores of a NUMA node.

    Parameters
    ----------
    device : str
        Name of the device: ``gpu0``, ``numa0``.
    rank : int or None
        Process that executes the transfer; None outside a job of several processes.
    cpus : tuple[int, ...]
        Logical CPUs to use, one thread each; empty for a GPU.
    blocks, threads : int
        Number of blocks of a GPU kernel, and of threads per block; 0: the backend chooses.
    """

    device: str
    rank: int | None = None
    cpus: tuple[int, ...] = ()
    blocks: int = 0
    threads: int = 0

    def __str__(self) -> str:
        return self.device if self.rank is None else f"{self.rank}/{self.device}"


@dataclass(frozen=True, slots=True)
class Transfer:
    """One copy, or another operation on buffers.

    Parameters
    ----------
    source, destination : Memory
        Where the bytes are read from and written to.
    executor : Executor
        What moves them.
    engine : Engine
        How the executor moves them.
    bytes : int
        Size of one buffer. For ``sm_split``: bytes moved in each of the two directions. For a chase: the
        working set.
    role : Role
        Whether it is measured, or load.
    operation : Operation
        What the executor does with the buffers.
    counted : int
        How often each byte of the buffer counts in the rate: 1 for a copy between memories, the number of
        arrays for the STREAM operations.
    pace : float
        Fraction of its full speed at which a load by CPUs runs.
    rate : float
        Rate that it does not exceed, in B/s as ``counted``; infinite if it is not held to one.
    start : float
        Time from the common release until it begins, in s. It is not part of its own time.
    also : tuple[Memory, ...]
        More destinations: a kernel reads once and writes to all. Its rate counts each byte that is read.
    """

    source: Memory
    destination: Memory
    executor: Executor
    engine: Engine
    bytes: int
    role: Role = Role.MEASURED
    operation: Operation = Operation.COPY
    counted: int = 1
    pace: float = 1.0
    rate: float = math.inf
    start: float = 0.0
    also: tuple[Memory, ...] = ()

    @property
    def ends(self) -> tuple[Memory, ...]:
        """Its source and its destinations."""
        return self.source, self.destination, *self.also

    @property
    def is_paced(self) -> bool:
        """Whether it is held to a rate in B/s."""
        return self.rate < math.inf

    @property
    def access(self) -> Access:
        """Read if the executor is at the destination, write if it is at the source."""
        at_source = str(self.executor) == str(self.source)
        at_destination = str(self.executor) == str(self.destination)
        if at_source and at_destination:
            return Access.LOCAL
        return Access.WRITE if at_source else Access.READ

    @property
    def way(self) -> str:
        """Source and destinations: ``gpu0->gpu1``, ``gpu0->gpu1+gpu2``."""
        return f"{self.source}->{'+'.join(map(str, self.ends[1:]))}"

    def __str__(self) -> str:
        return f"{self.way} by {self.executor} ({self.engine})"


@dataclass(frozen=True, slots=True)
class Collective:
    """One call of a collective by a group of ranks. A Sample has two times: elapsed time and CPU time.

    Parameters
    ----------
    operation, type, operator : str
        Names: ``all_reduce``, ``float``, ``sum``; the operator is empty if the operation has none.
    root : int
        Root rank; -1 if the operation has none.
    bytes : int
        Size of the whole array.
    counted : int
        Bytes that the algorithm bandwidth counts.
    ranks : int
        Number of ranks.
    members : tuple[Memory, ...]
        Memory of each rank; empty if the machine's description does not contain them.
    in_place : bool
        Whether each rank sends from its receive buffer.
    room : int
        Bytes to allocate: the size of the largest array of a sweep.
    verified : bool
        Whether the result is defined, so that it can be verified.
    judged : bool
        Whether every link is always busy, so that the links determine the expected bus bandwidth.
    effective : float
        Maximum ratio of the bus bandwidth to the rate of a link if the switch reduces.
    traffic : str
        How unequal parts are divided (``alltoallv``); empty for the default.
    role : Role
        Whether it is measured, or load for the transfers next to it.
    """

    operation: str
    type: str
    operator: str
    root: int
    bytes: int
    counted: int
    ranks: int
    members: tuple[Memory, ...] = ()
    in_place: bool = False
    room: int = 0
    verified: bool = True
    judged: bool = True
    effective: float = 1.0
    traffic: str = ""
    role: Role = Role.MEASURED

    @property
    def setting(self) -> str:
        """Everything except the size: ``all_reduce float sum``."""
        root = "" if self.root < 0 else f"root {self.root}"
        return " ".join(part for part in (self.operation, self.type, self.operator, root) if part)

    def __str__(self) -> str:
        return f"{self.setting} at {self.bytes} B {'in place' if self.in_place else 'out of place'}"


class MessagePattern(StrEnum):
    """Order of the messages between two ranks. A Sample has one time; with ``EACH``, one per message."""

    ROUND_TRIP = "round trip"  #: back and forth, one message at a time
    WINDOW = "window"  #: several messages in flight, then one reply
    WINDOW_BOTH = "window both ways"  #: the same in both directions concurrently
    EACH = "each"  #: one message at a time, each timed by the receiver


class BufferAge(StrEnum):
    """Previous use of the buffers of a Message."""

    REUSED = "reused"  #: used by the same messages before
    FIRST = "first"  #: new buffers, and the first message of its size; there is only one sample
    FRESH = "fresh"  #: new buffers for every sample


@dataclass(frozen=True, slots=True)
class Message:
    """Messages between two ranks.

    Parameters
    ----------
    source, destination : Memory
        Memory of the rank that sends first, and of the other rank.
    engine : Engine
        MPI or NCCL.
    bytes : int
        Size of one message.
    pattern : MessagePattern
        Order of the messages.
    count : int
        Number of messages of a window, or of those that are timed individually.
    age : BufferAge
        Previous use of the buffers.
    room : int
        Size of the send buffer if it is larger than a message, in bytes.
    """

    source: Memory
    destination: Memory
    engine: Engine
    bytes: int
    pattern: MessagePattern = MessagePattern.ROUND_TRIP
    count: int = 1
    age: BufferAge = BufferAge.REUSED
    room: int = 0

    @property
    def is_window(self) -> bool:
        """Whether several messages are in flight."""
        return self.pattern in (MessagePattern.WINDOW, MessagePattern.WINDOW_BOTH)

    @property
    def counted(self) -> int:
        """How often each byte of a message counts in the rate: twice if both directions are active."""
        return 2 if self.pattern is MessagePattern.WINDOW_BOTH else 1

    @property
    def way(self) -> str:
        """Source and destination: ``0/gpu0->1/gpu0``."""
        return f"{self.source}->{self.destination}"

    def __str__(self) -> str:
        return f"{self.way} by {self.engine} ({self.pattern} of {self.bytes} B, {self.age})"


@dataclass(frozen=True, slots=True)
class Sharing:
    """A new buffer of one rank, of which another rank copies a part. A Sample has one time per phase.

    Parameters
    ----------
    memory, user : Memory
        Memory of the owner, and of the rank that copies or receives.
    mechanism : str
        Transport, one of those that ``--share`` accepts: ``ipc``, ``vmm-fd``, ``shm``, ``mpi``, ...
    bytes, over : int
        Size of the buffer, and bytes allocated in addition.
    copied : int
        Size of the copied part, in bytes.
    """

    memory: Memory
    user: Memory
    mechanism: str
    bytes: int
    over: int
    copied: int

    @property
    def sent(self) -> Engine | None:
        """The library that sends the part; None if the other rank opens the buffer and copies."""
        return Engine(self.mechanism) if self.mechanism in (Engine.MPI, Engine.NCCL) else None

    @property
    def phases(self) -> tuple[str, ...]:
        """The timed phases, in order."""
        return SENT_PHASES if self.sent else OPENED_PHASES

    @property
    def counted(self) -> int:
        """Phases have times and no rates."""
        return 0

    @property
    def way(self) -> str:
        """Source and destination."""
        return f"{self.memory}->{self.user}"

    def __str__(self) -> str:
        return f"{self.way} by {self.mechanism} ({self.bytes} + {self.over} B, {self.copied} B of it)"


#: Phases of sharing a buffer. The owner executes the first two and the last, the other rank those between.
ALLOCATE, EXPORT, OPEN, FIRST_COPY, NEXT_COPIES, CLOSE, FREE = OPENED_PHASES = (
    "allocate", "export", "open", "first copy", "next copies", "close", "free",
)  # fmt: skip
SENT_PHASES = (ALLOCATE, FIRST_COPY, NEXT_COPIES, FREE)

#: One of the activities of a Measurement.
Work = Transfer | Collective | Message | Sharing


@dataclass(frozen=True, slots=True)
class Expectation:
    """What the user expects of a value; None where nothing is expected.

    Parameters
    ----------
    of_limit : float or None
        Lowest fraction of the limit of the links.
    least : float or None
        Lowest value that passes, in base units.
    most : float or None
        Highest value that passes, in base units.
    origin : str
        Where ``least`` or ``most`` comes from, such as the name of a file; empty if it was given.
    """

    of_limit: float | None = None
    least: float | None = None
    most: float | None = None
    origin: str = ""


@dataclass(frozen=True, slots=True)
class Place:
    """A cell that a Measurement fills, and how its value follows from the times of a Sample.

    Parameters
    ----------
    table : str
        Key of the table.
    row, column : int
        Position in the table.
    reduce : Reduce
        How the times become a value.
    transfers : tuple[int, ...]
        Indices into the times of a Sample: works of the Measurement, or their phases. For ``LATENESS``: a
        process.
    factor : float
        Multiplier of the value: the bus factor of a collective, 0.5 for half the round-trip time.
    expect : Expectation or None
        What the user expects of the value.
    """

    table: str
    row: int
    column: int
    reduce: Reduce = Reduce.FIRST
    transfers: tuple[int, ...] = (0,)
    factor: float = 1.0
    expect: Expectation | None = None


@dataclass(frozen=True)
class Measurement:
    """Works that start together, and the cells that they fill.

    Parameters
    ----------
    works : tuple[Work, ...]
        What runs concurrently.
    places : tuple[Place, ...]
        The cells.
    independent : bool
        Whether its works share nothing and only run concurrently to save time, so that each cell should have
        the same value as if it was measured separately. ``separate`` splits it.
    """

    works: tuple[Work, ...]
    places: tuple[Place, ...]
    independent: bool = False

    @cached_property
    def transfers(self) -> tuple[Transfer, ...]:
        """Its works that are Transfers: all or none of them, except next to a collective."""
        return tuple(work for work in self.works if isinstance(work, Transfer))

    @property
    def collective(self) -> Collective | None:
        """The collective that it runs; None if it runs something else, or transfers next to it."""
        work = self.works[0]
        return work if isinstance(work, Collective) and len(self.works) == 1 else None

    @property
    def is_mixed(self) -> bool:
        """Whether it runs a collective next to transfers; all works of one kind are load."""
        return len({type(work) for work in self.works}) > 1

    @cached_property
    def is_staggered(self) -> bool:
        """Whether its transfers begin at different times; a load that begins earlier counts as together."""
        starts = {t.start for t in self.transfers if t.role is Role.MEASURED}
        return len(starts) > 1 or any(t.start > min(starts, default=0.0) for t in self.transfers)

    @property
    def uses_new_buffers(self) -> bool:
        """Whether each sample has new buffers, and therefore one copy and no warm-up."""
        return any(
            isinstance(work, Sharing) or (isinstance(work, Message) and work.age is not BufferAge.REUSED)
            for work in self.works
        )

    @property
    def happens_once(self) -> bool:
        """Whether there is only one sample because a second one would measure something else."""
        return any(isinstance(work, Message) and work.age is BufferAge.FIRST for work in self.works)

    def counted(self, place: Place) -> int:
        """Return the counted bytes of one copy of a Place; 0 for a latency and background load."""
        transfers = [self.transfers[i] for i in place.transfers if i < len(self.transfers)]
        if place.reduce is Reduce.LATENCY or any(t.role is Role.LOAD for t in transfers):
            return 0
        return sum(t.bytes * t.counted for t in transfers)

    def separate(self) -> tuple[Measurement, ...]:
        """Return one Measurement for each group of cells that need the same transfers."""
        groups: list[tuple[set[int], list[Place]]] = []
        for place in self.places:
            transfers, places = set(place.transfers), [place]
            for group in [group for group in groups if group[0] & transfers]:
                groups.remove(group)
                transfers, places = group[0] | transfers, group[1] + places
            groups.append((transfers, places))
        found = []
        for transfers, places in groups:
            order = {index: i for i, index in enumerate(sorted(transfers))}
            own = tuple(replace(p, transfers=tuple(order[i] for i in p.transfers)) for p in places)
            found.append(Measurement(tuple(self.works[i] for i in order), own))
        return tuple(found)

    def __str__(self) -> str:
        measured = [w for w in self.works if not isinstance(w, Transfer) or w.role is Role.MEASURED]
        more = f" and {len(self.works) - 1} more" if len(self.works) > 1 else ""
        return f"{(measured or self.works)[0]}{more}"


@dataclass(frozen=True, slots=True)
class Sample:
    """Result of running a Measurement once: one entry per work (or phase, or individually timed message).

    Parameters
    ----------
    seconds : tuple[float, ...]
        Duration of each work, in s.
    amounts : tuple[float, ...]
        Amount of each work: bytes of one buffer, accesses of a chase, operations of a collective.
    wall : float
        Time from the start of the first measured work until the last one ended, in s.
    means : tuple[str, ...]
        Between processes: transport of each transfer (``vmm-fd``, ``mpi``).
    iterations : tuple[Sample, ...]
        The individual iterations, if each was timed.
    by_process : tuple[float, ...]
        Time of an iteration in each process, in s.
    """

    seconds: tuple[float, ...]
    amounts: tuple[float, ...]
    wall: float
    means: tuple[str, ...] = ()
    iterations: tuple[Sample, ...] = ()
    by_process: tuple[float, ...] = ()


def value_of(place: Place, measurement: Measurement, sample: Sample) -> float:
    """Return the value of a Place from one Sample: a rate in B/s, a latency or lateness in s."""
    chosen = place.transfers
    if place.reduce is Reduce.LATENESS:
        late = [max(it.by_process) - it.by_process[chosen[0]] for it in sample.iterations]
        return sum(late) / len(late)
    if place.reduce is Reduce.LATENCY:
        return place.factor * sample.seconds[chosen[0]] / sample.amounts[chosen[0]]
    counted = [sample.amounts[i] * measurement.works[i].counted for i in chosen]
    if place.reduce is Reduce.WALL:
        return sum(counted) / sample.wall
    rates = [n / sample.seconds[i] for n, i in zip(counted, chosen, strict=True)]
    return place.factor * (sum(rates) if place.reduce is Reduce.SUM else rates[0])
