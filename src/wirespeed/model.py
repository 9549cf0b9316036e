"""The kinds of Work (Transfer, Collective, Message, Sharing) with their Memory and Executor, as plain frozen
data in base units (bytes, seconds). This module imports no other module of the package.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class MemoryKind(StrEnum):
    """How a Memory was allocated."""

    DEVICE = "device"
    PINNED = "pinned"
    PAGEABLE = "pageable"
    FILE = "file"  #: a file in a folder of a storage device


class Engine(StrEnum):
    """The hardware or library with which an Executor moves bytes."""

    CE = "ce"  #: a GPU copy engine
    SM = "sm"  #: a GPU kernel of ordinary loads and stores
    SM_BULK = "sm_bulk"  #: a GPU kernel of bulk asynchronous copies
    SM_SPLIT = "sm_split"  #: one GPU kernel whose warps copy in alternating directions
    CUBLAS = "cublas"  #: a GPU kernel of cuBLAS
    CPU = "cpu"  #: host threads, one pinned to each core
    IO = "io"  #: host threads that read and write a file, past the page cache where that is possible
    IO_URING = "io_uring"  #: one host thread that reads and writes a file by the queues of an io_uring
    CUFILE = "cufile"  #: host threads that call cuFile to move a file to or from the memory of a GPU
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
    HAXPY = "haxpy"  #: the same, in half precision
    READ = "read"  #: loads every byte, stores none
    WRITE = "write"  #: stores every byte, loads none
    CHASE = "chase"  #: dependent loads over a random cycle
    SIGNAL = "signal"  #: sets a flag in the memory of another GPU, which answers

    @property
    def is_latency(self) -> bool:
        """Whether it takes one step after the other, and uses no relevant part of a link."""
        return self in (Operation.CHASE, Operation.SIGNAL)


#: Engines that read and write files.
FILE_ENGINES = (Engine.IO, Engine.IO_URING, Engine.CUFILE)
#: Those of them between storage and the memory of the host, and of GPUs.
HOST_FILE_ENGINES, GPU_FILE_ENGINES = (Engine.IO, Engine.IO_URING), (Engine.IO, Engine.CUFILE)
#: Buffers that an operation reads and writes: (sources, destinations).
BUFFERS: dict[Operation, tuple[int, int]] = {
    Operation.COPY: (1, 1),
    Operation.SCALE: (1, 1),
    Operation.ADD: (2, 1),
    Operation.TRIAD: (2, 1),
    Operation.SAXPY: (2, 1),
    Operation.HAXPY: (2, 1),
    Operation.READ: (1, 0),
    Operation.WRITE: (0, 1),
    Operation.CHASE: (1, 0),
    Operation.SIGNAL: (1, 1),
}


class Access(StrEnum):
    """The side of a Transfer on which its Executor is."""

    READ = "read"  #: at the destination, which pulls
    WRITE = "write"  #: at the source, which pushes
    LOCAL = "local"  #: source and destination are the executor's own memory


@dataclass(frozen=True, slots=True)
class Memory:
    """Memory of a device.

    Attributes:
        device: Name of the device: ``gpu0``, ``numa0``.
        kind: How it is allocated.
        rank: Process that owns it; None outside a job of several processes.
    """

    device: str
    kind: MemoryKind
    rank: int | None = None

    def __str__(self) -> str:
        return self.device if self.rank is None else f"{self.rank}/{self.device}"


@dataclass(frozen=True, slots=True)
class Executor:
    """What moves the bytes: a GPU, or CPU cores of a NUMA node.

    Attributes:
        device: Name of the device: ``gpu0``, ``numa0``.
        rank: Process that executes the transfer; None outside a job of several processes.
        cpus: Logical CPUs to use, one thread each; empty for a GPU.
        blocks, threads: Number of blocks of a GPU kernel, and of threads per block; 0: the backend chooses.
    """

    device: str
    rank: int | None = None
    cpus: tuple[int, ...] = ()
    blocks: int = 0
    threads: int = 0

    def __str__(self) -> str:
        return self.device if self.rank is None else f"{self.rank}/{self.device}"


class Method(StrEnum):
    """How the blocks of a BlockList are moved."""

    LOOP = "loop"  #: one copy for each block, called in compiled code
    BATCH = "batch"  #: one call of the driver with the whole list
    KERNEL = "kernel"  #: a kernel that reads the list; on CPUs, all cores with a part of it each
    KERNEL_BULK = "kernel_bulk"  #: a kernel that reads the list and makes bulk asynchronous copies
    STAGED = "staged"  #: gather into one buffer, one copy, scatter


class PoolLayout(StrEnum):
    """Which block of one pool goes to which place of the other."""

    RANDOM = "random"  #: a random permutation
    STRIDED = "strided"  #: from the order layer, K or V, page to the order page, layer, K or V


@dataclass(frozen=True, slots=True)
class BlockList:
    """Scattered blocks that move together, such as the pages of a KV cache.

    Source and destination are pools of these blocks.

    Attributes:
        method: How they are moved.
        block: Size of one block, in bytes.
        blocks: Number of blocks.
        layout: Which block goes where.
    """

    method: Method
    block: int
    blocks: int
    layout: PoolLayout = PoolLayout.RANDOM

    def __str__(self) -> str:
        strided = f", {self.layout}" if self.layout is not PoolLayout.RANDOM else ""
        return f"{self.method} of {self.blocks} blocks of {self.block} B{strided}"


@dataclass(frozen=True, slots=True)
class FileCalls:
    """How a file is read or written.

    Attributes:
        block: Size of one call, in bytes.
        depth: Number of calls at a time.
        random: Whether the blocks are in random order instead of one after the other.
    """

    block: int
    depth: int
    random: bool = False

    def __str__(self) -> str:
        order = "random" if self.random else "sequential"
        return f"{order} calls of {self.block} B, {self.depth} at a time"


@dataclass(frozen=True, slots=True)
class Transfer:
    """One copy, or another operation on buffers.

    Attributes:
        source, destination: Where the bytes are read from and written to.
        executor: What moves them.
        engine: How the executor moves them.
        bytes: Size of one buffer. For ``sm_split``: bytes moved in each of the two directions. For a chase:
            the working set.
        role: Whether it is measured, or load.
        operation: What the executor does with the buffers.
        counted: How often each byte of the buffer counts in the rate: 1 for a copy between memories, the
            number of arrays for the STREAM operations.
        pace: Fraction of its full speed at which a load by CPUs runs.
        scattered: The blocks that it moves; ``bytes`` is the size of all. None for one contiguous buffer.
        calls: How it reads or writes a file; None without a file.
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
    scattered: BlockList | None = None
    calls: FileCalls | None = None

    @property
    def ends(self) -> tuple[Memory, ...]:
        """Its source and its destination."""
        return self.source, self.destination

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
        """Source and destination: ``gpu0->gpu1``."""
        return f"{self.source}->{self.destination}"

    def __str__(self) -> str:
        does = f"{self.engine}: {self.calls}" if self.calls else self.scattered or self.engine
        return f"{self.way} by {self.executor} ({does})"


@dataclass(frozen=True, slots=True)
class Collective:
    """One call of a collective by a group of ranks. A Sample has two times: elapsed time and CPU time.

    Attributes:
        operation, type, operator: Names: ``all_reduce``, ``float``, ``sum``; the operator is empty if the
            operation has none.
        root: Root rank; -1 if the operation has none.
        bytes: Size of the whole array.
        counted: Bytes that the algorithm bandwidth counts.
        ranks: Number of ranks.
        members: Memory of each rank; empty if the machine's description does not contain them.
        in_place: Whether each rank sends from its receive buffer.
        room: Bytes to allocate: the size of the largest array of a sweep.
        traffic: How unequal parts are divided (``alltoallv``); empty for the default.
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
    traffic: str = ""

    @property
    def setting(self) -> str:
        """Everything except the size: ``all_reduce float sum``."""
        root = "" if self.root < 0 else f"root {self.root}"
        return " ".join(part for part in (self.operation, self.type, self.operator, root) if part)

    def __str__(self) -> str:
        return f"{self.setting} at {self.bytes} B {'in place' if self.in_place else 'out of place'}"


#: Keys of the tables of messages: times, bytes and messages per second.
MESSAGE_LATENCY, MESSAGE_BANDWIDTH, MESSAGE_RATE = "latency", "bandwidth", "rate"


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

    Attributes:
        source, destination: Memory of the rank that sends first, and of the other rank.
        engine: MPI or NCCL.
        bytes: Size of one message.
        pattern: Order of the messages.
        count: Number of messages of a window, or of those that are timed individually.
        age: Previous use of the buffers.
        room: Size of the buffer that the first rank sends from if it is larger than a message, in bytes.
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

    Attributes:
        memory, user: Memory of the owner, and of the rank that copies or receives.
        mechanism: Transport, as ``--transport``: ``ipc``, ``vmm-fd``, ``shm``, ``mpi``,
            ...
        bytes, over: Size of the buffer, and bytes allocated in addition.
        copied: Size of the copied part, in bytes.
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
