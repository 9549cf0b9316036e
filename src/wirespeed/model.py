"""The words of a measurement: Memory, Executor, Work (Transfer, Collective, ...), Measurement, Place.

Plain frozen data in base units (bytes, seconds). Nothing here imports another module of ours.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import StrEnum


class MemoryKind(StrEnum):
    """How the bytes of a Memory were allocated."""

    DEVICE = "device"
    PINNED = "pinned"
    PAGEABLE = "pageable"


class Engine(StrEnum):
    """With what an Executor moves bytes."""

    CE = "ce"  #: a GPU copy engine
    SM = "sm"  #: a GPU kernel of ordinary loads and stores
    SM_BULK = "sm_bulk"  #: a GPU kernel of bulk asynchronous copies
    SM_SPLIT = "sm_split"  #: one GPU kernel whose warps copy in alternating directions
    CPU = "cpu"  #: host threads, one pinned to each core
    NCCL = "nccl"  #: a send and a receive by NCCL, where no memory is shared
    MPI = "mpi"  #: a send and a receive by MPI


class Role(StrEnum):
    """Whether a Transfer is measured, or runs to disturb the measured ones."""

    MEASURED = "measured"
    LOAD = "load"


class Operation(StrEnum):
    """What an Executor does with the buffers of a Transfer."""

    COPY = "copy"
    SCALE = "scale"  #: b[i] = s * a[i]
    ADD = "add"  #: c[i] = a[i] + b[i]
    TRIAD = "triad"  #: c[i] = a[i] + s * b[i]
    SAXPY = "saxpy"  #: z[i] = s * x[i] + y[i], in single precision
    READ = "read"  #: every byte is loaded, none is stored
    WRITE = "write"  #: every byte is stored, none is loaded
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


class Access(StrEnum):
    """Which side of a Transfer its Executor is on."""

    READ = "read"  #: at the destination: it pulls
    WRITE = "write"  #: at the source: it pushes
    LOCAL = "local"  #: both are its own memory


class Reduce(StrEnum):
    """How the times of a Measurement become the value of one Place."""

    FIRST = "first"  #: rate of the first transfer, while the others run
    SUM = "sum"  #: sum of the rates
    WALL = "wall"  #: all bytes over the time until the last transfer ends
    LATENCY = "latency"  #: seconds per access, operation or message of the first work
    BUS = "bus"  #: what passes each link of a collective: its rate times the bus factor
    LATENESS = "lateness"  #: seconds that a process comes later to a collective than the first one


class Unit(StrEnum):
    """Base unit of a value; reports convert."""

    RATE = "B/s"
    TIME = "s"
    FREQUENCY = "1/s"

    @property
    def more_is_better(self) -> bool:
        """Whether the larger of two values is the better one."""
        return self is not Unit.TIME


@dataclass(frozen=True, slots=True)
class Axis:
    """What the rows or the columns of a table stand for.

    ``values`` are numbers in ``unit`` where the axis is a quantity (a curve), else empty.
    """

    name: str
    labels: tuple[str, ...]
    values: tuple[float, ...] = ()
    unit: str = ""


@dataclass(frozen=True, slots=True)
class Memory:
    """Where bytes live.

    Parameters
    ----------
    device
        ``gpu0``, ``numa0``.
    kind
        How they are allocated.
    rank
        The process that owns them, in a job of several processes.
    """

    device: str
    kind: MemoryKind
    rank: int | None = None

    def __str__(self) -> str:
        return self.device if self.rank is None else f"{self.rank}/{self.device}"


@dataclass(frozen=True, slots=True)
class Executor:
    """Who moves the bytes: a GPU, or CPU cores of a NUMA node.

    Parameters
    ----------
    cpus
        The logical CPUs to use, one thread each; empty for a GPU.
    blocks, threads
        Blocks of a GPU kernel, and threads of each; 0: chosen by the backend.
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
    bytes
        Size of one buffer. For ``sm_split``: bytes moved in each of the two directions.
        For a chase: the working set.
    counted
        How often each byte of the buffer counts in the rate: 1 for a copy between
        memories, the number of arrays for the STREAM operations.
    pace
        Fraction of its full speed at which a load runs.
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

    @property
    def access(self) -> Access:
        """Read where the executor is at the destination, write where it is at the source."""
        at_source = str(self.executor) == str(self.source)
        at_destination = str(self.executor) == str(self.destination)
        if at_source and at_destination:
            return Access.LOCAL
        return Access.WRITE if at_source else Access.READ

    @property
    def way(self) -> str:
        """Where the bytes come from and go to: ``gpu0->gpu1``."""
        return f"{self.source}->{self.destination}"

    def __str__(self) -> str:
        return f"{self.way} by {self.executor} ({self.engine})"


@dataclass(frozen=True, slots=True)
class Collective:
    """One call of a collective by a group of ranks. A Sample of it has two times: elapsed, and of the CPU.

    Parameters
    ----------
    operation, type, operator
        Names: ``all_reduce``, ``float``, ``sum``; the operator is empty where there is none.
    root
        Rank of the root; -1 where there is none.
    bytes
        Size of the whole array.
    counted
        Bytes that the algorithm bandwidth counts.
    ranks
        Number of ranks.
    members
        Memory of each rank, where the machine's description has them.
    in_place
        Whether each rank sends from the buffer that it receives into.
    room
        Size of the largest array of a sweep: what is allocated, in bytes.
    verified
        Whether the result is defined, and so can be verified.
    judged
        Whether every link is busy all the time, so that the links say what the bus bandwidth should be.
    effective
        Maximum of the bus bandwidth over what a link carries, where the switch reduces.
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

    @property
    def setting(self) -> str:
        """What is run, whatever the size: ``all_reduce float sum``."""
        root = "" if self.root < 0 else f"root {self.root}"
        return " ".join(part for part in (self.operation, self.type, self.operator, root) if part)

    def __str__(self) -> str:
        return f"{self.setting} at {self.bytes} B {'in place' if self.in_place else 'out of place'}"


class MessagePattern(StrEnum):
    """What the two ends of a Message do; a Sample has one time, of ``EACH`` one for every message."""

    ROUND_TRIP = "round trip"  #: there and back, one after the other
    WINDOW = "window"  #: several under way together, then an answer
    WINDOW_BOTH = "window both ways"  #: the same in both directions at once
    EACH = "each"  #: one after the other, each timed at the end that receives


class BufferAge(StrEnum):
    """What the buffers of a Message were used for before it."""

    REUSED = "reused"  #: for the same
    FIRST = "first"  #: new buffers, and the first message of its size: there is one sample
    FRESH = "fresh"  #: new buffers in each sample


@dataclass(frozen=True, slots=True)
class Message:
    """Messages between two ranks.

    Parameters
    ----------
    source, destination
        Memory of the end that begins, and of the other one.
    engine
        MPI or NCCL.
    bytes
        Size of one message.
    count
        Number of messages of a window, or of those that are timed one by one.
    room
        Size of the buffer that the source sends from, where it is larger than a message, in bytes.
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
        """Whether messages are under way together."""
        return self.pattern in (MessagePattern.WINDOW, MessagePattern.WINDOW_BOTH)

    @property
    def counted(self) -> int:
        """How often each byte of a message counts in the rate: of both directions, both count."""
        return 2 if self.pattern is MessagePattern.WINDOW_BOTH else 1

    @property
    def way(self) -> str:
        """Where the bytes come from and go to: ``0/gpu0->1/gpu0``."""
        return f"{self.source}->{self.destination}"

    def __str__(self) -> str:
        return f"{self.way} by {self.engine} ({self.pattern} of {self.bytes} B, {self.age})"


@dataclass(frozen=True, slots=True)
class Sharing:
    """A new buffer of one rank that another one copies a part of. A Sample has a time for each phase.

    Parameters
    ----------
    memory, user
        Memory of the owner, and of the rank that copies or receives.
    mechanism
        Transport, as ``--share`` takes it: ``ipc``, ``vmm-fd``, ``shm``, ``mpi``, ...
    bytes, over
        Size of the buffer, and what is allocated beyond it.
    copied
        Size of the part that is copied, in bytes.
    """

    memory: Memory
    user: Memory
    mechanism: str
    bytes: int
    over: int
    copied: int

    @property
    def sent(self) -> Engine | None:
        """What sends the part; None where the other rank opens the buffer and copies."""
        return Engine(self.mechanism) if self.mechanism in (Engine.MPI, Engine.NCCL) else None

    @property
    def phases(self) -> tuple[str, ...]:
        """What is timed, in its order."""
        return SENT_PHASES if self.sent else OPENED_PHASES

    @property
    def counted(self) -> int:
        """Phases have times and no rates."""
        return 0

    @property
    def way(self) -> str:
        """Where the bytes come from and go to."""
        return f"{self.memory}->{self.user}"

    def __str__(self) -> str:
        return f"{self.way} by {self.mechanism} ({self.bytes} + {self.over} B, {self.copied} B of it)"


#: Phases of sharing a buffer: the owner's, then those of the rank that uses it, then the owner's.
ALLOCATE, EXPORT, OPEN, FIRST_COPY, NEXT_COPIES, CLOSE, FREE = OPENED_PHASES = (
    "allocate", "export", "open", "first copy", "next copies", "close", "free",
)  # fmt: skip
SENT_PHASES = (ALLOCATE, FIRST_COPY, NEXT_COPIES, FREE)

#: What a Measurement runs.
Work = Transfer | Collective | Message | Sharing


@dataclass(frozen=True, slots=True)
class Place:
    """A cell that a Measurement fills: which one, and from which times of its Sample.

    Parameters
    ----------
    transfers
        Indices into the times of a Sample: those of the Measurement's works, or of their phases. For
        ``LATENESS``: a process.
    factor
        What the value is multiplied by: the bus factor of a collective, 0.5 for half of a round trip.
    """

    table: str
    row: int
    column: int
    reduce: Reduce = Reduce.FIRST
    transfers: tuple[int, ...] = (0,)
    factor: float = 1.0


@dataclass(frozen=True, slots=True)
class Measurement:
    """Works that start together, and the cells that their times become.

    Parameters
    ----------
    independent
        Whether its cells are meant to be the same as if each was measured alone: pairs that share
        nothing, measured concurrently to save time. ``separate`` takes it apart.
    """

    works: tuple[Work, ...]
    places: tuple[Place, ...]
    independent: bool = False

    @property
    def transfers(self) -> tuple[Transfer, ...]:
        """Those of its works that are Transfers: all of them, or none."""
        return tuple(work for work in self.works if isinstance(work, Transfer))

    @property
    def collective(self) -> Collective | None:
        """The collective that it runs, None where it runs something else."""
        work = self.works[0]
        return work if isinstance(work, Collective) else None

    @property
    def uses_new_buffers(self) -> bool:
        """Whether each sample is of new buffers: then it is one copy, and nothing is warmed up."""
        return any(
            isinstance(work, Sharing) or (isinstance(work, Message) and work.age is not BufferAge.REUSED)
            for work in self.works
        )

    @property
    def happens_once(self) -> bool:
        """Whether there is only one sample, since the next one would be of something else."""
        return any(isinstance(work, Message) and work.age is BufferAge.FIRST for work in self.works)

    def separate(self) -> tuple[Measurement, ...]:
        """Return a Measurement for each group of cells that need the same transfers."""
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
    """What one run of a Measurement yields, per work in its order (per phase, or per message of each).

    Parameters
    ----------
    seconds
        From a work's start to its end.
    amounts
        What it did in that time: bytes of one buffer, accesses of a chase, operations of a collective.
    wall
        Seconds from the common release until the last measured work ended.
    means
        Between processes: how each transfer reached the memory of the other (``vmm-fd``, ``mpi``).
    iterations
        The run taken apart, where each iteration was timed.
    by_process
        Of an iteration: its time in each process.
    """

    seconds: tuple[float, ...]
    amounts: tuple[float, ...]
    wall: float
    means: tuple[str, ...] = ()
    iterations: tuple[Sample, ...] = ()
    by_process: tuple[float, ...] = ()


def value_of(place: Place, measurement: Measurement, sample: Sample) -> float:
    """Return the value of a Place from one Sample, in B/s (in s for a latency)."""
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
