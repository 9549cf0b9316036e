"""Whether ranks shared a CPU while they measured.

A rank that waits for a message does not give its CPU away, so one that shares it waits for a time slice: 4 ms
in place of 0.2 us. Ranks that are not bound share a CPU where other processes occupy the rest.

The class that libraries of collectives extend, and the records that it uses.

Groups of ranks and lists of settings, from the environment variables and options of nccl-tests.
"""

from __future__ import annotations

import ctypes
import os
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from ..collectives.operations import CollectiveOp, Counts, DataType, Setting
from ..collectives.options import CollectiveOptions
from ..errors import BackendError, UsageError
from ..hardware.devices import Gpu
from ..hardware.facts import Fact
from ..units import GIB, MIB
from ..worlds.base import Member, World

#: Memory of a GPU, in bytes, of which nccl-tests reserves 1 GiB, and the most that it reserves.
_RESERVING, _MOST_RESERVED = 16 * GIB, 4 * GIB
#: Number that stands for a CPU that does not matter.
NO_CPU = -1


def current_cpu() -> int:
    """The number of the CPU that this thread runs on."""
    return int(ctypes.CDLL(None).sched_getcpu())


def sharing(members: Sequence[Member], cpus: Sequence[Iterable[int]]) -> list[str]:
    """A warning for each host on which ranks shared a CPU.

    Args:
        members: The processes of the job.
        cpus: For each process, the CPUs on which its measuring threads ended a sample.
    """
    used = Counter(
        (member.host, cpu)
        for member, numbers in zip(members, cpus, strict=True)
        for cpu in set(numbers) - {NO_CPU}
    )
    return [
        f"ranks on {host} shared a CPU while they measured, so that times include waiting for it: bind "
        "each to its own (mpirun --bind-to core), start at most one per CPU, or end what occupies the others"
        for host in dict.fromkeys(host for (host, _), ranks in used.items() if ranks > 1)
    ]


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
        color: Number of its group; None for that of its process.
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


#: Environment variables that divide the ranks into groups.
SPLIT, MASK = "NCCL_TESTS_SPLIT", "NCCL_TESTS_SPLIT_MASK"


def settings(
    operation: CollectiveOp, types: Sequence[DataType], operators: Sequence[str], root: int | None, ranks: int
) -> tuple[Setting, ...]:
    """The settings in the order of nccl-tests: by type, then operator, then root.

    Args:
        operation: The collective.
        types: Element types.
        operators: Reduction operators; ignored if the operation has none and names none.
        root: Root; None for all ranks in turn. Ignored if the operation has none.
        ranks: Number of ranks.

    Raises:
        UsageError: If the root is not a rank.
    """
    if operation.names_operators:
        operators = ["" if name == operation.operator else name for name in operators]
    elif operation.operator is not None:
        operators = ("",)
    roots: Sequence[int] = (-1,)
    if operation.rooted:
        roots = range(ranks) if root is None else (root,)
        if roots[-1] >= ranks:
            raise UsageError(f"root {roots[-1]} does not exist; the ranks are 0 to {ranks - 1}")
    return tuple(Setting(operation, t, o, r) for t in types for o in operators for r in roots)


def group_of(world: World, ranks_each: int, environment: Mapping[str, str] = os.environ) -> Group:
    """The group of this process: all processes, unless ``NCCL_TESTS_SPLIT`` divides them.

    Args:
        world: The processes of the job.
        ranks_each: Number of ranks of the collective per process.
        environment: Environment variables.

    Raises:
        UsageError: If a variable is invalid.
    """
    colors = colors_of(world.size, environment)
    mine = colors[world.rank]
    return Group(mine, tuple(rank for rank, color in enumerate(colors) if color == mine), ranks_each)


def colors_of(size: int, environment: Mapping[str, str] = os.environ) -> list[int]:
    """The number of the group of each process.

    Raises:
        UsageError: If a variable is invalid.
    """
    text = environment.get(SPLIT, "")
    if MASK in environment:
        try:
            text = f"&{int(environment[MASK].strip() or '0', 16)}"
        except ValueError as error:
            raise UsageError(f"{MASK}={environment[MASK]!r} is not a hexadecimal number") from error
    return [_color(text, rank) for rank in range(size)]


def _color(text: str, rank: int) -> int:
    if not text.strip():
        return 0
    calculations: dict[str, Callable[[int, int], int]] = {
        "AND": lambda a, b: a & b, "&": lambda a, b: a & b, "OR": lambda a, b: a | b, "|": lambda a, b: a | b,
        "MOD": lambda a, b: a % b, "%": lambda a, b: a % b,
        "DIV": lambda a, b: a // b, "/": lambda a, b: a // b,
    }  # fmt: skip
    for word, calculate in calculations.items():
        if text.strip().upper().startswith(word):
            try:
                return calculate(rank, int(text.strip()[len(word) :].strip(), 0))
            except (ValueError, ZeroDivisionError):
                break
    raise UsageError(f"{SPLIT}={text!r} is invalid; use the form 'MOD 8', 'DIV 8', 'AND 0x7' or 'OR 0x7'")


def smallest(world: World) -> int:
    """The number of processes of the smallest group."""
    return min(Counter(colors_of(world.size)).values())


def largest_of_gpus(gpus: Sequence[Gpu], buffers: int) -> int:
    """The largest size of which a number of buffers fits into every GPU, in bytes; 0 if it is not known.

    It is a rule of nccl-tests, which keeps a part of the memory.
    """
    memory = min((gpu.memory_bytes for gpu in gpus), default=0)
    reserved = min(-(-memory // _RESERVING) * GIB, _MOST_RESERVED)
    return max(0, (memory - reserved - GIB) // buffers)


def minimum() -> float | None:
    """The minimum mean bus bandwidth from ``NCCL_TESTS_MIN_BW`` (in GB/s), in B/s; None if not set.

    Raises:
        UsageError: If the variable is not a number.
    """
    text = os.environ.get("NCCL_TESTS_MIN_BW")
    try:
        return float(text) * 1e9 if text else None
    except ValueError as error:
        raise UsageError(f"NCCL_TESTS_MIN_BW={text!r} is not a number of GB/s") from error
