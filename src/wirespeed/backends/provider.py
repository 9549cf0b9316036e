"""The class that libraries of collectives extend, and the records that it uses."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import NamedTuple

from ..collectives.operations import Counts, Setting
from ..collectives.options import CollectiveOptions
from ..errors import BackendError
from ..hardware.facts import Fact
from ..units import MIB
from .cpu_sharing import NO_CPU

#: Operations on arrays of at most this size, in bytes, run untimed before the first loop of a size.
REHEARSED_BYTES = 1 * MIB


class Refused(BackendError):
    """The requested operation is not possible here; the message has the reason."""


@dataclass(frozen=True)
class Case:
    """A loop of one collective at one size.

    Attributes:
        setting: The operation with its arguments.
        ranks: Number of ranks.
        counts: Counts of one call.
        in_place: Whether the operation runs in place.
        options: How the loop runs.
    """

    setting: Setting
    ranks: int
    counts: Counts
    in_place: bool
    options: CollectiveOptions

    @property
    def width(self) -> int:
        """Size of an element, in bytes."""
        return self.setting.type.bytes

    @property
    def bytes(self) -> int:
        """Size of the larger buffer, in bytes."""
        return max(self.counts.send, self.counts.receive) * self.width

    def shifts(self, room: int) -> list[int]:
        """The offset of the buffers of each operation of a loop, in bytes.

        Operations use different parts of the allocated ``room`` (in bytes), so that caches do not help.
        """
        parts = max(1, room // self.bytes) if self.bytes else 1
        return [self.bytes * (i % parts) for i in range(self.options.operations)]


class Elapsed(NamedTuple):
    """Times of a loop in one thread.

    Attributes:
        seconds: Time of one operation, in s.
        cpu: Time until all operations were enqueued, per operation, in s.
        iterations: Time of one operation in each iteration, in s; empty unless requested.
        core: Number of the CPU on which the loop ended; ``NO_CPU`` if the operations do not keep one busy.
    """

    seconds: float
    cpu: float
    iterations: tuple[float, ...] = ()
    core: int = NO_CPU


@dataclass(frozen=True)
class RankDevice:
    """Device of a rank.

    Attributes:
        index: CUDA's index of the GPU; the local rank on host memory.
        bus_id: PCI bus ID of the GPU; ``host`` for host memory.
        name: Name of the product.
        color: Number of its group; None for the group of its process.
    """

    index: int
    bus_id: str
    name: str
    color: int | None = None


@dataclass(frozen=True)
class Group:
    """The ranks that take part in a collective, as seen from one process.

    Attributes:
        color: Number of the group.
        processes: Ranks of its processes in the World.
        ranks_each: Number of ranks of the collective per process.
    """

    color: int
    processes: tuple[int, ...]
    ranks_each: int

    @property
    def ranks(self) -> int:
        """Number of ranks of the collective."""
        return len(self.processes) * self.ranks_each


class Provider:
    """Runs collectives with one library. All processes of a World make the same calls in the same order.

    Attributes:
        name: ``nccl``, ``mpi`` or ``simulated``.
        can_cancel: Whether ``cancel`` ends the current operation.
        group: The ranks that take part.
        devices: Devices of the ranks of this process, in their order.
        operations: Names of the operations that it implements.
    """

    name: str
    can_cancel: bool
    group: Group
    devices: tuple[RankDevice, ...]
    operations: Collection[str]

    def libraries(self) -> dict[str, str]:
        """The libraries that it measures with: name -> version."""
        return {}

    def connect(self) -> None:
        """Connect the ranks, whose devices are known; all processes together, before anything else."""

    def transport(self) -> str:
        """Describe the transport between the ranks; known after the first operation."""
        raise NotImplementedError

    def facts(self) -> tuple[Fact, ...]:
        """Facts about the transport; known after the first operation."""
        return ()

    def refuses(self, setting: Setting) -> str | None:
        """Why it cannot run a setting at any size; None if it can."""
        raise NotImplementedError

    def exceeds(self, case: Case) -> str | None:
        """Why the library cannot count the elements of a size; None if it can."""
        return None

    def allocate(self, size: int) -> None:
        """Allocate two buffers of ``size`` bytes for each rank, and free the previous ones.

        Raises:
            OutOfMemory: If the memory is not available.
        """
        raise NotImplementedError

    def register(self) -> None:
        """Register the buffers with the library, if requested."""

    def bind(self, case: Case) -> None:
        """Prepare a loop."""
        raise NotImplementedError

    def fill(self, seed: int) -> None:
        """Fill the send buffers with data, and the receive buffers with data that no result equals."""
        raise NotImplementedError

    def once(self) -> None:
        """Run the operation once, in the same way as the loop, and wait for it."""
        raise NotImplementedError

    def loop(self) -> list[Elapsed]:
        """Synchronise all ranks as closely as possible, run the loop, and return the times of each thread."""
        raise NotImplementedError

    def wrong(self, seed: int) -> int:
        """The number of wrong elements on the ranks of this process."""
        raise NotImplementedError

    def memory(self) -> dict[str, int]:
        """The use of device memory, in bytes, by purpose; empty if it is not known."""
        return {}

    def cancel(self) -> None:
        """End the current operation from another thread, if possible."""

    def close(self) -> None:
        """Release all resources."""
