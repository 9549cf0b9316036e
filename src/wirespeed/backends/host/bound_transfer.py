"""A Transfer with its buffers: the bytes, kernels and patterns of each thread."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise

from ...model import BUFFERS, Operation, Role, Transfer
from ...topology import Machine
from ...units import KIB, MIB, NANO
from ..word_pattern import WORD_MASK, key_of
from . import kernels
from .kernel_codes import CODES
from .memory import HostBuffer

#: Bytes of a cache line.
LINE = 64
#: Alignment of the threads' slices, if each thread gets enough bytes.
_PAGE_BYTES = 4096
#: Accesses that count as one copy of a chase, up to a working set: 1 to 6 ms each.
_CHASE_UNIT_ACCESSES = ((256 * KIB, 2**20), (4 * MIB, 2**17))
_LARGE_CHASE_UNIT_ACCESSES = 2**15
#: Time between the waits of a thread that is held to a rate, in s.
_BETWEEN_WAITS_S = 100e-6
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

    @property
    def code(self) -> int:
        """The kernels' number of its operation."""
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

    def helped(self) -> Iterator[tuple[int, int, int]]:
        """Yield the CPUs for work that is not timed, each with the begin and end of its bytes."""
        for cpu, (begin, end) in zip(self.helpers, split(self.bytes, len(self.helpers)), strict=True):
            yield cpu, begin, end

    def addresses(self, begin: int) -> tuple[int, int, int]:
        """The addresses of a byte offset in the destination and the two sources; 0 if absent."""
        buffers = (self.destination, *self.sources, None, None)[:3]
        return tuple(0 if b is None else b.address + begin for b in buffers)  # type: ignore[return-value]

    def schedule(self, size: int) -> tuple[int, float, float, float]:
        """Chunk, delay, pace and pause of ``kernels.work`` for a thread with a number of bytes."""
        transfer = self.transfer
        load = transfer.role is Role.LOAD
        delay = transfer.start / NANO
        if transfer.operation is Operation.CHASE:
            return kernels.CHASE_CHUNK_ACCESSES if load else size, delay, transfer.pace, 0.0
        if transfer.is_paced and size:
            rate = transfer.rate / transfer.counted * size / self.bytes
            chunk = round(rate * _BETWEEN_WAITS_S) // LINE * LINE
            chunk = min(max(chunk, kernels.LEAST_CHUNK_BYTES), kernels.CHUNK_BYTES)
            return chunk, delay, transfer.pace, 1 / (rate * NANO)
        return kernels.CHUNK_BYTES if load or transfer.pace < 1 else size, delay, transfer.pace, 0.0

    def draw_scalar(self, sample: int) -> None:
        """Choose the factor or constant of a sample, so that a stale result is detected."""
        if self.transfer.operation is Operation.WRITE:
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
