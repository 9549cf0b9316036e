"""The hardware of one process of a job, its part of a Measurement, and the mechanisms by which processes
share a buffer: allocate, export, open, close, free. These are separate calls, so that each phase can be
timed; every returned object can release itself.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple, Protocol

from ...measurement import Sample
from ...model import Transfer
from ...options import RunOptions
from ...units import NANO
from ...worlds.base import World
from ...worlds.descriptors import Descriptors, SharedMemory, fetch
from ...worlds.mpi import Messages, MessagesRefused, Move


class Handle(NamedTuple):
    """Plain values with which another process opens a buffer.

    Attributes:
        means: Name of the mechanism.
        data: The handle. For a file descriptor: its token and the address of the process that offers it, see
            ``worlds.descriptors``.
        offset: Offset of the buffer in the opened memory, in bytes.
        bytes: Size of the buffer.
    """

    means: str
    data: bytes
    offset: int
    bytes: int


@dataclass(eq=False)
class Allocation:
    """Memory that can be exported, or memory of another process in the address space of this one.

    Attributes:
        address: Address in this process.
        bytes: Size of the buffer.
        release: Frees the memory, after all other processes; or unmaps the memory of another process.
        place: GPU that holds it; None for host memory.
        inner: Data of the mechanism, such as a handle.
    """

    address: int
    bytes: int
    release: Callable[[], None]
    place: Any = None
    inner: Any = None


class Mechanism(Protocol):
    """A mechanism of sharing.

    Attributes:
        name: Its name, as in ``--transport``: ``ipc``, ``vmm-fd``, ``fabric``, ``shm``.
    """

    name: str

    def allocate(self, place: Any, size: int) -> Allocation:
        """Allocate ``size`` bytes of memory that can be exported.

        Raises:
            BackendError: If such memory is not available or not permitted; the message says what to do.
        """

    def export(self, allocation: Allocation) -> Handle:
        """A handle for other processes."""

    def open(self, place: Any, handle: Handle) -> Allocation:
        """Map a buffer of another process.

        Args:
            place: GPU of this process that will use it; None for host memory.
            handle: Handle from the owner.

        Raises:
            BackendError: If it cannot be opened.
        """


def offer(descriptors: Descriptors, descriptor: int, allocation: Allocation, means: str) -> Handle:
    """Offer the descriptor of an allocation to other processes of this host until the allocation is released.

    ``means`` is the name of the mechanism in the returned handle.
    """
    token = descriptors.offer(descriptor)
    free = allocation.release

    def release() -> None:
        descriptors.withdraw(token)
        free()

    allocation.release = release
    return Handle(means, f"{token}@{descriptors.address}".encode(), 0, allocation.bytes)


@contextmanager
def fetched(handle: Handle, timeout: float) -> Iterator[int]:
    """Provide a copy of a descriptor that another process offers, and close it at the end.

    Args:
        handle: Handle from ``offer``.
        timeout: Maximum time to wait for the other process, in s.

    Raises:
        WorldError: If the other process does not answer or refuses.
    """
    token, address = handle.data.decode().split("@")
    descriptor = fetch(address, int(token), timeout)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


#: Transports in which both sides of a transfer take part: one sends, the other receives.
NCCL, MPI = "nccl", "mpi"
TWO_SIDED = (NCCL, MPI)
#: Bytes between the words that different processes write in the page of a host; the first is the gate.
LINE = 64


@dataclass(frozen=True)
class JobContext:
    """What a process knows of its job.

    Attributes:
        world: The processes of the job.
        descriptors: Serves the descriptors that this process exports.
        page: Memory that all processes of this host have mapped, with their gate.
        place: Index of this process among the processes of its host, and their number.
        device: Device of this process.
        cpus: CPUs of this process, if it measures host memory.
        options: Options, the same in every process.
    """

    world: World
    descriptors: Descriptors
    page: SharedMemory
    place: tuple[int, int]
    device: str
    cpus: tuple[int, ...]
    options: RunOptions


@dataclass(frozen=True)
class LocalTransfer:
    """A transfer that this process executes, or of which it owns a buffer.

    Attributes:
        index: Position in the Measurement.
        transfer: The transfer.
        means: Its transport.
        source, destination: Addresses of its buffers in this process; 0 if they are not mapped here.
        owns_source, owns_destination: Whether this process fills the source, and verifies the destination.
        moves: Whether this process executes it; for messages, whether it is one of the two sides.
        peer: For messages: the other rank.
    """

    index: int
    transfer: Transfer
    means: str
    source: int
    destination: int
    owns_source: bool
    owns_destination: bool
    moves: bool
    peer: int = -1

    @property
    def address(self) -> int:
        """For messages: address of the buffer of this process."""
        return self.source if self.owns_source else self.destination


class TransferTiming(NamedTuple):
    """Times of one transfer in one process.

    Attributes:
        number: Position of the transfer in the Measurement.
        seconds: Duration of the copies, in s.
        amount: Bytes of the copies.
        wall: Time from the release to the end of the last copy, in s.
    """

    number: int
    seconds: float
    amount: float
    wall: float


class LocalPrepared(Protocol):
    """The pieces of a Measurement in one process, bound to its hardware."""

    def repeat(self, times: Sequence[int]) -> None:
        """From now on, make the copies of each piece several times."""

    def arm(self, copies: int, beside: Sequence[tuple[int, Callable[[], object]]] = ()) -> None:
        """Start ``copies`` copies of each piece; they wait at the gate of this round.

        Args:
            copies: Number of copies.
            beside: Functions to run in other threads, each with the number of its CPU.
        """

    def finish(self) -> Sample:
        """Wait until copies and functions have ended; return the times of what this process has moved.

        Raises:
            MeasurementTimeout: If they do not end in time.
        """

    def verify(self) -> object:
        """Verify the destinations of this process; they are poisoned before the next sample.

        Raises:
            VerificationError: If a word differs.
        """

    def abandon(self) -> None:
        """End started copies, after an error in another process."""

    def __exit__(self) -> None:
        """Release everything except the buffers."""


class Endpoint:
    """The hardware of one process; CPUs and GPUs extend it.

    Attributes:
        mechanisms: By transport, the best one first: the mechanism of sharing memory; without messages.
        where: Argument ``place`` of a ``Mechanism``: the GPU, or None for host memory.
        pinned: Of a GPU: allocates pinned memory of its host, for messages; None for CPUs.
        options: Options, the same in every process.
        messages: Messages by MPI; None until ``can_send`` has found that they work.
        cpu: CPU of the thread that sends and receives them.
        starts_together: Whether the copies of this process start at the same time: what delays a thread of a
            CPU at the gate is no part of a sample.
    """

    mechanisms: Mapping[str, Mechanism]
    where: Any = None
    pinned: Callable[[Any, int], Allocation] | None = None
    messages: Messages | None = None
    cpu = 0
    starts_together = True

    def __init__(self, job: JobContext) -> None:
        self.options, self._world = job.options, job.world

    @property
    def plain(self) -> str:
        """The transport with ordinary allocations."""
        return next(iter(self.mechanisms))

    def can_send(self, means: str) -> tuple[str, bytes]:
        """Why this process cannot send messages by a transport, and data for ``connect``.

        Returns:
            reason: Empty if it can.
            data: What the other processes need in order to connect.
        """
        if means != MPI:
            return f"{means} cannot move host memory", b""
        try:
            self.messages = Messages(self._world)
        except MessagesRefused as error:
            return str(error), b""
        return "", b""

    def connect(self, means: str, told: Sequence[bytes]) -> None:
        """Connect all processes by a transport for messages; MPI is connected when it starts.

        Args:
            means: The transport.
            told: By rank: the data from ``can_send``.
        """

    def part(self, pieces: Sequence[LocalTransfer]) -> LocalPart:
        """The part of this process in a Measurement."""
        return LocalPart(self, pieces)

    def bind(self, pieces: Sequence[LocalTransfer]) -> LocalPrepared:
        """Fill the sources and poison the destinations of this process, and bind what it moves."""
        raise NotImplementedError

    def size(self, transfer: Transfer) -> int:
        """Bytes of a message."""
        return transfer.bytes

    def begin(self) -> None:
        """Begin a round: close the gate. Every process does so, with or without a part."""

    def release(self, arriving: int) -> None:
        """Open the gate of this round after ``arriving`` arrivals; one process of each host does so."""

    def arrive(self) -> None:
        """Wait at the gate of this round without work, in the background."""

    def arrived(self) -> int:
        """When that wait ended, on this host's monotonic clock, in ns."""
        raise NotImplementedError

    def wait(self) -> None:
        """Wait at the gate of this round in the thread that calls.

        Raises:
            BackendError: If it was cancelled, or the gate was not opened in time.
        """

    def cancel(self) -> None:
        """Release everything that waits; called from another thread."""

    def close(self) -> None:
        """Release all resources."""


class LocalPart:
    """Part of a Measurement that one process executes, fills or verifies; it may have none."""

    def __init__(self, side: Endpoint, pieces: Sequence[LocalTransfer] = ()) -> None:
        self._side, self._pieces = side, pieces
        self._sent = [piece for piece in pieces if piece.means == MPI]
        self._by_nccl = [piece for piece in pieces if piece.means == NCCL]
        #: What the hardware times; all NCCL messages are behind the first.
        self._timed = [p for p in pieces if (p.moves and p.means not in TWO_SIDED) or p in self._by_nccl[:1]]
        self._arrived: list[TransferTiming] = []
        self._prepared: LocalPrepared | None = None

    def fill(self) -> None:
        """Fill the sources and poison the destinations of this process."""
        if self._pieces:
            self._prepared = self._side.bind(self._pieces)

    def repeat(self, times: Mapping[int, int]) -> None:
        """From now on, make the copies of some transfers (indices in the Measurement) several times."""
        if self._prepared is not None:
            self._prepared.repeat([times.get(piece.index, 1) for piece in self._pieces])

    def arm(self, copies: int) -> None:
        """Start ``copies`` copies of each transfer; they wait at the gate of this round."""
        self._arrived = []
        if self._prepared is not None:
            self._prepared.arm(copies, [(self._side.cpu, partial(self._send, copies))] * bool(self._sent))

    def finish(self) -> list[TransferTiming]:
        """Wait until the copies have ended, and return their times.

        Raises:
            MeasurementTimeout: If they do not end in time.
        """
        if self._prepared is None:
            return []
        sample = self._prepared.finish()
        return [
            TransferTiming(
                piece.index, seconds, amount, sample.wall if self._side.starts_together else seconds
            )
            for timed, seconds, amount in zip(self._timed, sample.seconds, sample.amounts, strict=True)
            for piece in (self._by_nccl if timed.means == NCCL else (timed,))
        ] + self._arrived

    def verify(self) -> None:
        """Verify the destinations of this process; they are poisoned before the next sample.

        Raises:
            VerificationError: If a word differs.
        """
        if self._prepared is not None:
            self._prepared.verify()

    def abandon(self) -> None:
        """End started copies, after an error in another process."""
        if self._prepared is not None:
            self._prepared.abandon()

    def close(self) -> None:
        """Release everything except the buffers."""
        if self._prepared is not None:
            self._prepared.__exit__()

    def _send(self, copies: int) -> None:
        """Send and receive by MPI, starting at the release."""
        side = self._side
        assert side.messages is not None
        moves = [Move(p.address, side.size(p.transfer), p.peer, p.owns_source, p.index) for p in self._sent]
        side.wait()
        start = time.monotonic_ns()
        side.messages.move(moves, copies)
        seconds = (time.monotonic_ns() - start) * NANO
        self._arrived = [
            TransferTiming(move.tag, seconds, float(move.bytes * copies), seconds) for move in moves
        ]
