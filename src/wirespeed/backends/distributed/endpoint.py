"""Protocols of the hardware of a process in a job of several."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from ...model import Memory, Transfer
from ...options import RunOptions
from ...worlds.admission import Descriptors, SharedMemory
from ...worlds.base import World
from ..shared_memory import Mechanism

#: Bytes between the words that different processes write in the page of a host; the first is the gate.
LINE = 64


@dataclass(frozen=True)
class JobContext:
    """What a process knows of its job.

    Attributes:
        world: The processes of the job.
        descriptors: Serves the descriptors that this process exports.
        page: Memory that all processes of this host have mapped, with their gate.
        place: Index of this process among those of its host, and their number.
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


@dataclass(frozen=True)
class TransferTiming:
    """Times of one transfer in one process.

    Attributes:
        index: Position of the transfer in the Measurement.
        seconds: Duration of the copies, in s.
        amount: Bytes of the copies.
        wall: Time from the release to the end of the last copy, in s.
    """

    index: int
    seconds: float
    amount: float
    wall: float


class LocalPrepared(Protocol):
    """Part of a Measurement in one process."""

    def fill(self) -> None:
        """Fill the sources and poison the destinations of this process."""

    def repeat(self, times: Mapping[int, int]) -> None:
        """From now on, make the copies of some transfers (indices in the Measurement) several times."""

    def arm(self, copies: int) -> None:
        """Start ``copies`` copies of each transfer; they wait at the gate of this round."""

    def finish(self) -> list[TransferTiming]:
        """Wait until the copies have ended, and return their times.

        Raises:
            MeasurementTimeout: If they do not end in time.
        """
        ...

    def verify(self) -> None:
        """Verify the destinations of this process; they are poisoned before the next sample.

        Raises:
            VerificationError: If a word differs.
        """

    def abandon(self) -> None:
        """End started copies, after an error in another process."""

    def close(self) -> None:
        """Release everything except the buffers."""


class Endpoint(Protocol):
    """The hardware of one process.

    Attributes:
        means: Transports by which it can share memory, the best one first; without messages.
        plain: The transport with ordinary allocations.
    """

    means: tuple[str, ...]
    plain: str

    def sharing(self, means: str) -> Mechanism:
        """The mechanism of a transport."""
        ...

    def place(self, memory: Memory) -> Any:
        """The place of a Memory for ``Mechanism.allocate`` and ``Mechanism.open``."""
        ...

    def can_send(self, means: str) -> tuple[str, bytes]:
        """Why this process cannot send messages by a transport, and data for ``connect``.

        Returns:
            reason: Empty if it can.
            data: What the other processes need in order to connect.
        """
        ...

    def connect(self, means: str, told: Sequence[bytes]) -> None:
        """Connect all processes by a transport for messages.

        Args:
            means: The transport.
            told: By rank: the data from ``can_send``.
        """

    def part(self, pieces: Sequence[LocalTransfer]) -> LocalPrepared:
        """Bind the pieces of a Measurement."""
        ...

    def begin(self) -> None:
        """Begin a round: close the gate. Every process does so, with or without a part."""

    def threads(self, transfers: Sequence[Transfer], messengers: int) -> int:
        """The number of arrivals at the gate of the host.

        Args:
            transfers: Transfers that processes of this host execute, without messages.
            messengers: Number of processes of this host that send or receive messages.
        """
        ...

    def release(self, arriving: int) -> None:
        """Open the gate of this round after ``arriving`` arrivals; one process of each host does so."""

    def arrive(self) -> None:
        """Wait at the gate of this round without work, in the background."""

    def arrived(self) -> int:
        """When that wait ended, on this host's monotonic clock, in ns."""
        ...

    def cancel(self) -> None:
        """Release everything that waits; called from another thread."""

    def close(self) -> None:
        """Release all resources."""
