"""What every provider of collectives offers, and what the runner tells it."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Any, Protocol

from ..errors import BackendError
from ..testcases.collective_ops import Counts, Setting


class Refused(BackendError):
    """Something that was asked for is not possible here, with the reason."""


@dataclass(frozen=True)
class Timing:
    """How a loop runs, in nccl-tests' terms.

    Parameters
    ----------
    aggregate
        Operations grouped in each iteration.
    blocking
        0: all are enqueued, then waited for; 1: each is waited for, then all ranks meet; 2: each is
        waited for; 3: all ranks meet after each iteration, which does not count.
    graphs
        Launches of a graph of all iterations; 0: no graph.
    per_iteration
        Whether each iteration is timed on its own.
    """

    iterations: int = 20
    aggregate: int = 1
    blocking: int = 0
    graphs: int = 0
    per_iteration: bool = False

    @property
    def operations(self) -> int:
        """How many operations the time of a loop is divided by."""
        return self.iterations * self.aggregate


@dataclass(frozen=True)
class Case:
    """One loop: a setting at a size, out of place or in place."""

    setting: Setting
    ranks: int
    counts: Counts
    in_place: bool
    timing: Timing

    @property
    def width(self) -> int:
        """Bytes of an element."""
        return self.setting.type.bytes

    @property
    def bytes(self) -> int:
        """Bytes of the larger buffer."""
        return max(self.counts.send, self.counts.receive) * self.width

    def shifts(self, room: int) -> list[int]:
        """Return by how many bytes the buffers of each operation of a loop are shifted.

        Each uses another part of the buffers, so that no cache helps.
        """
        parts = max(1, room // self.bytes) if self.bytes else 1
        return [self.bytes * (i % parts) for i in range(self.timing.operations)]


@dataclass(frozen=True)
class Elapsed:
    """What a thread measured of a loop: seconds of one operation.

    Parameters
    ----------
    cpu
        Until all were enqueued.
    iterations
        Of each iteration, where that was asked for.
    """

    seconds: float
    cpu: float
    iterations: tuple[float, ...] = ()


@dataclass(frozen=True)
class RankDevice:
    """What a rank of the collective runs on."""

    index: int
    bus_id: str
    name: str


@dataclass(frozen=True)
class Group:
    """Which ranks work together, seen from one process.

    Parameters
    ----------
    color
        The number of the group.
    processes
        Its processes, by their rank in the World.
    each
        Ranks of the collective in each process.
    """

    color: int
    processes: tuple[int, ...]
    each: int

    @property
    def ranks(self) -> int:
        """Ranks of the collective."""
        return len(self.processes) * self.each


class Provider(Protocol):
    """Runs collectives. All processes of a World make the same calls in the same order.

    Attributes
    ----------
    name
        ``nccl``, ``mpi``, ``simulated``.
    group
        The ranks that work together.
    devices
        Of this process's ranks, in their order.
    can_cancel
        Whether what is under way can be made to come back.
    operations
        Names of the operations that it implements; no other is asked of it.
    """

    name: str
    can_cancel: bool
    group: Group
    devices: tuple[RankDevice, ...]

    @property
    def operations(self) -> Collection[str]: ...

    def libraries(self) -> dict[str, str]:
        """Return name -> version of the libraries that it measures with."""
        ...

    def transport(self) -> str:
        """Return in words by which way the ranks reach each other; known after the first operation."""
        ...

    def refuses(self, setting: Setting) -> str | None:
        """Return why it cannot run a setting, None if it can."""
        ...

    def exceeds(self, case: Case) -> str:
        """Return why a size is too large for the library, whatever memory there is; empty if it is not."""
        ...

    def allocate(self, size: int) -> None:
        """Have both buffers of every rank, in place of the older ones.

        Raises
        ------
        OutOfMemory
            If they cannot be had.
        """
        ...

    def register(self) -> None:
        """Make the buffers known to the library, where that was asked for."""
        ...

    def bind(self, case: Case) -> None:
        """Prepare a loop."""
        ...

    def fill(self, seed: int) -> None:
        """Write what the ranks send, and what must not be taken for a result where they receive."""
        ...

    def once(self) -> None:
        """Run the operation once, with the same means as the loop, and wait for it."""
        ...

    def align(self) -> None:
        """Let all ranks meet, as closely as possible."""
        ...

    def loop(self) -> list[Elapsed]:
        """Run the loop; return what each thread of this process measured."""
        ...

    def wrong(self, seed: int) -> int:
        """Return how many elements of this process's ranks are not what they must be."""
        ...

    def memory(self) -> dict[str, int]:
        """Return what device memory was taken for what, in bytes."""
        ...

    def cancel(self) -> None:
        """From another thread: make what is under way come back, where that is possible."""
        ...

    def close(self) -> None:
        """Give back all that it holds."""
        ...


Plain = dict[str, Any]
