"""What a backend offers besides, so that its hardware can take part in a job of several processes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

from ...model import Memory, Transfer
from ...worlds.base import World
from ...worlds.descriptors import Descriptors, SharedMemory
from ..base import BackendOptions
from ..shared_memory import Mechanism

#: Bytes between the words of the page of a host that different processes write; the first is the gate's.
LINE = 64


@dataclass(frozen=True)
class JobContext:
    """What the processes of a job share.

    Parameters
    ----------
    page
        Memory that all processes of this host have mapped: their gate is in it.
    place
        The number of this process among those of its host, and how many they are.
    device, cpus
        Of this process; CPUs where it works on host memory.
    """

    world: World
    descriptors: Descriptors
    page: SharedMemory
    place: tuple[int, int]
    device: str
    cpus: tuple[int, ...]
    options: BackendOptions


@dataclass(frozen=True)
class LocalTransfer:
    """A transfer of which this process executes, owns or sends something.

    Parameters
    ----------
    index
        Its place in the Measurement.
    source, destination
        Addresses of its buffers here; 0 where this process does not see them.
    owns_source, owns_destination
        Whether this process fills, or compares.
    moves
        Whether it executes; of a transfer by messages whether it is one of the two sides.
    peer
        Of a transfer by messages: the other rank.
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
        """Of a transfer by messages: where this process' buffer is."""
        return self.source if self.owns_source else self.destination


@dataclass(frozen=True)
class TransferTiming:
    """What a process measured of one transfer: seconds, bytes, and seconds from the release to its end."""

    index: int
    seconds: float
    amount: float
    wall: float


class LocalPrepared(Protocol):
    """What one process does of a Measurement."""

    def fill(self) -> None:
        """Fill the sources and poison the destinations that are this process'."""

    def arm(self, copies: int) -> None:
        """Make all ready behind the gate of this round."""

    def finish(self) -> list[TransferTiming]:
        """Wait until all that was armed is done.

        Raises
        ------
        MeasurementTimeout
            If it is not in time.
        """
        ...

    def verify(self) -> None:
        """Compare the destinations that are this process'; they are poisoned again.

        Raises
        ------
        VerificationError
            If a word differs.
        """

    def abandon(self) -> None:
        """Let what was armed run out, after something went wrong elsewhere."""

    def close(self) -> None:
        """Release everything except buffers."""


class Endpoint(Protocol):
    """The hardware of one process.

    Attributes
    ----------
    means
        By which it can share memory, the best first; not those by messages.
    plain
        The means whose allocations are ordinary ones.
    """

    means: tuple[str, ...]
    plain: str

    def sharing(self, means: str) -> Mechanism:
        """Return a means."""
        ...

    def place(self, memory: Memory) -> Any:
        """Return where ``Sharing`` is to allocate a Memory, or to open for an Executor there."""
        ...

    def can_send(self, means: str) -> tuple[str, bytes]:
        """Return why this process cannot send and receive by a means; empty if it can.

        Besides, what the other processes need to know to ``connect``.
        """
        ...

    def connect(self, means: str, told: Sequence[bytes]) -> None:
        """Make what sending and receiving needs; all processes do, with what all have told."""

    def part(self, pieces: Sequence[LocalTransfer]) -> LocalPrepared:
        """Bind the pieces of a Measurement."""
        ...

    def begin(self) -> None:
        """Begin a round: close the gate. Every process does, with or without a part."""

    def threads(self, transfers: Sequence[Transfer], messengers: int) -> int:
        """Return how many arrive at the gate of the host.

        Parameters
        ----------
        transfers
            Those that processes of this host execute by themselves.
        messengers
            How many processes of this host send or receive.
        """
        ...

    def release(self, arriving: int) -> None:
        """Open the gate of this round once all have arrived; one process of each host does it."""

    def arrive(self) -> None:
        """Let something empty wait at the gate of this round."""

    def arrived(self) -> int:
        """Return the time of the release, in ns of this host's monotonic clock."""
        ...

    def cancel(self) -> None:
        """Let all that waits go, from another thread."""

    def close(self) -> None:
        """Give everything back."""


@runtime_checkable
class SupportsDistributed(Protocol):
    """A backend whose hardware can take part."""

    sample_seconds: float

    def side(self, job: JobContext) -> Endpoint:
        """Return this process' hardware in a job."""
        ...

    def holds(self, device: str) -> bool:
        """Return whether the memory of a device is its own."""
        ...
