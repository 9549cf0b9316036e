"""A Transfer with its buffers: the bytes, kernels and patterns of each thread. The buffers are from the pool
of this process, or memory that processes share.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import islice, pairwise
from typing import Any

import numpy as np

from ...hardware.topology import Machine
from ...model import BUFFERS, Memory, Method, Operation, Role, Transfer
from ...options import RunOptions
from ...units import KIB, MIB
from ..distributed.job_process import TWO_SIDED, LocalTransfer
from ..test_data import WORD_MASK, key_of, keys_of, offsets
from . import kernels
from .kernels import CODES
from .memory import HostBuffer, HostBufferPool
from .threads import Task

#: Bytes of a cache line.
LINE = 64
#: Alignment of the threads' slices, if each thread gets enough bytes.
_PAGE_BYTES = 4096
#: Blocks of this size that may stay in the caches are copied by the C library: 4 to 10% faster than by the
#: loops here with 4 KiB to 1 MiB on a Xeon with two cores, 5% slower with 1 KiB.
_LIBRARY_FROM_BYTES = 4 * KIB
#: Accesses that count as one copy of a chase, up to a working set: 1 to 6 ms each.
_CHASE_UNIT_ACCESSES = ((256 * KIB, 2**20), (4 * MIB, 2**17))
_LARGE_CHASE_UNIT_ACCESSES = 2**15
#: Factors of scale, triad and saxpy are from 2 to 15: with integers below 2**48 (2**20 as floats), results
#: are exact.
_NUMBER_OF_FACTORS = 14


@dataclass(eq=False)
class BoundTransfer:
    """A Transfer with what it needs to run.

    Attributes:
        rows: Its threads' rows in the shared table; none if another process executes it.
        helpers: CPUs for work that is not timed: filling, comparing, building cycles.
        keys: Keys of the patterns in the two sources, and of the destination's previous content.
        streaming: Whether stores bypass the caches. A transfer larger than the last cache of its CPUs must
            not read its destination in order to write it; a smaller one must leave it in the cache.
        cached: Whether a buffer fits into the last cache, so that a cycle is followed once before the first
            sample.
        fills, verifies: Whether this process fills the sources; and poisons and verifies the destination.
        entries: Offsets of the blocks of a list in source and destination; None for one buffer.
    """

    transfer: Transfer
    rows: tuple[int, ...]
    helpers: tuple[int, ...]
    sources: tuple[HostBuffer, ...]
    destination: HostBuffer | None
    keys: tuple[int, int, int]
    streaming: bool
    cached: bool = False
    fills: bool = True
    verifies: bool = True
    scalar: int = 0
    step: int = 0  #: for a chase: step of the cycle at which the next sample starts
    entries: np.ndarray[Any, np.dtype[np.int64]] | None = None

    @property
    def code(self) -> int:
        """The kernels' number of its operation."""
        if self.entries is not None:
            return kernels.BLOCKS
        return CODES[self.transfer.operation]

    @property
    def bytes(self) -> int:
        """Bytes of a buffer, in whole lines."""
        return whole_lines(self.transfer)

    @property
    def lines(self) -> int:
        """Lines of a buffer."""
        return self.bytes // LINE

    @property
    def start(self) -> int:
        """Address of the line at which the next sample of a chase starts."""
        return self.sources[0].address + LINE * int(kernels.shuffled(self.step, self.lines, self.keys[0]))

    def shares(self) -> Iterator[tuple[int, int, int, int]]:
        """Yield for each thread its CPU, its row, and the begin and end of its bytes."""
        cpus = self.transfer.executor.cpus
        for cpu, row, (begin, end) in zip(cpus, self.rows, split(self.bytes, len(cpus)), strict=True):
            yield cpu, row, begin, end

    @property
    def stores(self) -> int:
        """How its stores use the caches, as the kernels number it."""
        scattered = self.transfer.scattered
        if scattered is not None and (
            scattered.method is Method.LOOP or (not self.streaming and scattered.block >= _LIBRARY_FROM_BYTES)
        ):
            return kernels.BY_LIBRARY
        return kernels.STREAMED if self.streaming else kernels.CACHED

    def lists(self, parts: int) -> list[tuple[int, int, int]]:
        """Nearly equal parts of the list: the address of the entries, and the first entry and the end."""
        assert self.entries is not None
        edges = [len(self.entries) * i // parts for i in range(parts + 1)]
        return [(int(self.entries.ctypes.data), *part) for part in pairwise(edges)]

    def helped(self) -> Iterator[tuple[int, int, int]]:
        """Yield the CPUs for work that is not timed, each with the begin and end of its bytes."""
        for cpu, (begin, end) in zip(self.helpers, split(self.bytes, len(self.helpers)), strict=True):
            yield cpu, begin, end

    def addresses(self, begin: int) -> tuple[int, int, int]:
        """The addresses of a byte offset in the destination and the two sources; 0 if absent."""
        buffers = (self.destination, *self.sources, None, None)[:3]
        return tuple(0 if b is None else b.address + begin for b in buffers)  # type: ignore[return-value]

    def chunk(self, size: int) -> int:
        """The chunk of ``kernels.work`` for a thread with a number of bytes."""
        transfer = self.transfer
        if transfer.role is not Role.LOAD and (transfer.pace == 1 or transfer.operation is Operation.CHASE):
            return size
        if transfer.operation is Operation.CHASE:
            return kernels.CHASE_CHUNK_ACCESSES
        blocks = transfer.scattered
        return max(1, kernels.CHUNK_BYTES // blocks.block) if blocks else kernels.CHUNK_BYTES

    def draw_scalar(self, sample: int) -> None:
        """Choose the factor or constant of a sample, so that a stale result is detected."""
        if self.transfer.scattered is not None:
            self.scalar = self.transfer.scattered.block
        elif self.transfer.operation is Operation.WRITE:
            self.scalar = signed(key_of(self.keys[0], sample))
        else:
            self.scalar = 2 + sample % _NUMBER_OF_FACTORS


def split(size: int, parts: int) -> list[tuple[int, int]]:
    """Begin and end of nearly equal parts of whole lines; of whole pages for large sizes."""
    step = _PAGE_BYTES if size >= 16 * _PAGE_BYTES * parts else LINE
    edges = [size * i // parts // step * step for i in range(parts)] + [size]
    return list(pairwise(edges))


def whole_lines(transfer: Transfer) -> int:
    """The bytes of a buffer, rounded up to whole lines; a chase has at least two lines."""
    least = 2 if transfer.operation is Operation.CHASE else 1
    return max(least, -(-transfer.bytes // LINE)) * LINE


def chase_unit(size: int) -> int:
    """The accesses that count as one copy of a chase through ``size`` bytes."""
    return next(
        (unit for largest, unit in _CHASE_UNIT_ACCESSES if size <= largest), _LARGE_CHASE_UNIT_ACCESSES
    )


def bypasses(transfer: Transfer, machine: Machine) -> bool:
    """Whether the buffers of a transfer exceed the last cache of its CPUs."""
    caches = [c for c in machine.caches if c.type != "instruction"]
    cpus = len(transfer.executor.cpus)
    reached = machine.last_cache_bytes()
    if caches:
        last = max(caches, key=lambda c: c.level)
        siblings = max((n.threads_per_core for n in machine.numa), default=1)
        reached = last.bytes * max(1, round(cpus * siblings / last.shared_by))
    return transfer.bytes * sum(BUFFERS[transfer.operation]) > reached


def signed(word: int) -> int:
    """The same 64 bits as a signed number."""
    return (word & WORD_MASK) - ((word & 2**63) << 1)


#: Tasks with the CPUs on which they run.
Tasks = list[tuple[int, Task[Any]]]
#: Run tasks at the same time and return their results; the text names the stage.
Run = Callable[[Tasks, str], list[Any]]


class PoolBuffers:
    """Buffers from the pool of this process.

    Attributes:
        taken: Buffers to give back.
    """

    def __init__(self, pool: HostBufferPool, machine: Machine, options: RunOptions) -> None:
        self.taken: list[HostBuffer] = []
        self._pool, self._machine, self._options = pool, machine, options

    def bind(self, index: int, transfer: Transfer, rows: Iterator[int], run: Run) -> BoundTransfer:
        """Take the buffers of a transfer, and touch the new ones from threads of their nodes."""
        chase, cpus = transfer.operation is Operation.CHASE, transfer.executor.cpus
        sources, destinations = BUFFERS[transfer.operation]
        # Cycles of equal size have the same key, so that the next Measurement can reuse them.
        keys = keys_of(self._options.seed, -1 if chase else index)
        holds = (whole_lines(transfer), keys[0]) if chase else None
        return BoundTransfer(
            transfer,
            tuple(islice(rows, len(cpus))),
            helpers=(self._cpus_of(transfer.source) or cpus) if chase else cpus,
            sources=tuple(self._take(transfer.source, transfer, run, holds) for _ in range(sources)),
            destination=self._take(transfer.destination, transfer, run) if destinations else None,
            keys=keys,
            streaming=bypasses(transfer, self._machine),
            cached=whole_lines(transfer) <= self._machine.last_cache_bytes(),
            entries=offsets(transfer.scattered, self._options.seed) if transfer.scattered else None,
        )

    def give_back(self) -> None:
        """Give all buffers back to the pool."""
        for buffer in self.taken:
            self._pool.give(buffer)
        self.taken.clear()

    def _take(
        self, memory: Memory, transfer: Transfer, run: Run, holds: tuple[int, ...] | None = None
    ) -> HostBuffer:
        node = next(n.index for n in self._machine.numa if n.name == memory.device)
        cpus = self._cpus_of(memory) or transfer.executor.cpus

        def touch(buffer: HostBuffer) -> None:
            parts = zip(cpus, split(buffer.bytes, len(cpus)), strict=True)
            tasks: Tasks = [(cpu, partial(kernels.touch, buffer.address, *part)) for cpu, part in parts]
            run(tasks, f"touching memory of {memory}")

        buffer = self._pool.take(node, whole_lines(transfer), touch, holds)
        self.taken.append(buffer)
        return buffer

    def _cpus_of(self, memory: Memory) -> tuple[int, ...]:
        return next(node.cores for node in self._machine.numa if node.name == memory.device)


class SharedBuffers:
    """Buffers that exist already, some of them in other processes.

    Attributes:
        pieces: The transfers of the Measurement, in its order, with the addresses of their buffers.
        cpus: CPUs of this process, which fill and compare the buffers that it owns.
        seed: Seed of the patterns, the same in all processes.
    """

    def __init__(self, pieces: Sequence[LocalTransfer], cpus: tuple[int, ...], seed: int) -> None:
        self._pieces, self._cpus, self._seed = pieces, cpus, seed

    def bind(self, index: int, transfer: Transfer, rows: Iterator[int], run: Run) -> BoundTransfer:
        """A transfer of which this process executes, fills or verifies something."""
        del run
        piece = self._pieces[index]
        executes = piece.moves and piece.means not in TWO_SIDED
        size = whole_lines(transfer)
        source, destination = (
            HostBuffer(at, size, 0, (at, size)) for at in (piece.source, piece.destination)
        )
        return BoundTransfer(
            transfer,
            tuple(islice(rows, len(transfer.executor.cpus) if executes else 0)),
            helpers=self._cpus,
            sources=(source,),
            destination=destination,
            keys=keys_of(self._seed, piece.index),
            streaming=True,
            fills=piece.owns_source,
            verifies=piece.owns_destination,
        )

    def give_back(self) -> None:
        """Do nothing: the buffers belong to the pool of the job."""


#: Binds the transfers of one Measurement: each of their threads takes a row of the shared table.
BufferSource = PoolBuffers | SharedBuffers
