"""Contents of GPU buffers: kernels write and compare patterns, on the nearest GPU."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from dataclasses import dataclass
from enum import IntEnum
from typing import Any

from ...errors import BackendError
from ...model import BlockList, MemoryKind, Operation
from ...units import KIB
from .device import Device, TimedStream
from .gpu_driver import Arguments, narrow, pointer, wide
from .launch_config import ELEMENT, MOST_THREADS, WORD
from .memory import GpuBuffer

#: Factor of scale, triad and saxpy: with the integers of ``patterns``, results are exact.
SCALAR = 3.0
_SLOT_BYTES = 2 * WORD
_SLOTS = 4 * KIB // _SLOT_BYTES


class Pattern(IntEnum):
    """Contents of a source; the numbers are those in ``kernels/contents.cu``."""

    BITS = 0
    NUMBERS = 1
    SMALL_NUMBERS = 2
    HALF_NUMBERS = 3


#: Operation numbers in ``kernels/contents.cu``.
_CODES = {
    Operation.COPY: 0,
    Operation.SCALE: 1,
    Operation.ADD: 2,
    Operation.TRIAD: 3,
    Operation.SAXPY: 4,
    Operation.WRITE: 5,
    Operation.HAXPY: 6,
}
#: Contents of the sources of operations that compute.
_PATTERNS = {
    **dict.fromkeys((Operation.SCALE, Operation.ADD, Operation.TRIAD), Pattern.NUMBERS),
    Operation.SAXPY: Pattern.SMALL_NUMBERS,
    Operation.HAXPY: Pattern.HALF_NUMBERS,
}


def pattern_of(operation: Operation) -> Pattern:
    """The contents of an operation's sources, chosen so that results can be compared bit by bit."""
    return _PATTERNS.get(operation, Pattern.BITS)


@dataclass(frozen=True)
class Region:
    """Bytes of a buffer that are filled or compared together.

    Attributes:
        device: GPU that does it: the owner of device memory, else the executor of the transfer.
        staging: Device memory for filling and comparing pageable memory, which kernels cannot access.
    """

    device: Device
    buffer: GpuBuffer
    bytes: int
    offset: int = 0
    staging: GpuBuffer | None = None

    @property
    def address(self) -> int:
        """Address on which kernels work."""
        return (self.staging or self.buffer).address + self.offset


@dataclass(frozen=True)
class Expected:
    """A region, and the operation with the scalar whose result it must contain."""

    region: Region
    operation: Operation
    keys: tuple[int, int]
    text: str
    scalar: float = SCALAR

    @property
    def words(self) -> int:
        """Number of words to compare; the last one may be partial."""
        return -(-self.region.bytes // WORD)


class Contents:
    """Fill and compare buffers with one GPU, in its own stream.

    Nothing waits here: ``flush`` records ``lane.stop`` behind all requested work.
    """

    def __init__(self, device: Device) -> None:
        self.device = device
        self.lane = TimedStream(device)
        self._results = device.driver.allocate(_SLOTS * _SLOT_BYTES)
        self._expected: list[Expected] = []

    def fill(self, region: Region, pattern: Pattern, seed: int) -> None:
        """Write a pattern."""
        arguments = (pointer(region.address), wide(region.bytes), narrow(pattern), wide(seed))
        self._launch("fill", region.bytes, *arguments)
        self._unstage(region)

    def fill_blocks(self, to: int, origin: int, base: int, scattered: BlockList, seed: int) -> None:
        """Write to the source of a block list what makes one pattern in its destination.

        Args:
            to, origin: Addresses of the lists of destinations and sources, in memory of this GPU.
            base: Address of the destination.
            scattered: The list.
            seed: Key of the pattern.
        """
        block, blocks = scattered.block, scattered.blocks
        arguments = (pointer(to), pointer(origin), wide(base), wide(block), narrow(blocks), wide(seed))
        self._launch("fill_blocks", block * blocks, *arguments, file="blocks")

    def poison(self, expected: Expected) -> None:
        """Write the complement of the operation's result, which the operation cannot produce."""
        self._compare(expected, 0)

    def compare(self, expected: Expected) -> None:
        """Compare with the result of the operation, and poison again."""
        if len(self._expected) == _SLOTS:
            raise BackendError(f"{self.device.name} can compare at most {_SLOTS} buffers at a time")
        if not self._expected:
            self.zero(self._results, _SLOTS * _SLOT_BYTES)
        if expected.region.staging:
            self._copy(expected.region.staging.address, expected.region.buffer.host, expected.region)
        self._compare(expected, self._results + len(self._expected) * _SLOT_BYTES)
        self._expected.append(expected)

    def zero(self, address: int, size: int) -> None:
        """Clear device memory of this GPU."""
        self.device.use()
        self.device.driver.enqueue_zeros(address, size, self.lane.stream)

    def total(self, words: int, pattern: Pattern, seed: int, address: int) -> None:
        """Add all words of a pattern to the one at an address."""
        self._launch("total", words * WORD, wide(words), narrow(pattern), wide(seed), pointer(address))

    def flush(self) -> Any:
        """The event behind all requested work."""
        self.lane.record(self.lane.stop)
        return self.lane.stop

    def compared(self) -> list[tuple[Expected, int, int]]:
        """Each compared region with the number of wrong words and the index of the first."""
        self.device.use()
        if not self._expected:
            return []
        read = self.device.words(self._results, 2 * len(self._expected))
        last = 2**64 - 1
        compared = [
            (expected, wrong, last - first)
            for expected, wrong, first in zip(self._expected, read[0::2], read[1::2], strict=True)
        ]
        self._expected.clear()
        return compared

    def close(self) -> None:
        """Release all resources."""
        self.device.use()
        self.device.driver.free(self._results)
        self.lane.destroy()

    def _compare(self, expected: Expected, slot: int) -> None:
        region = expected.region
        first, second = expected.keys
        self._launch(
            "compare", region.bytes, pointer(region.address), wide(region.bytes),
            narrow(_CODES[expected.operation]), wide(first), wide(second), ctypes.c_double(expected.scalar),
            pointer(slot),
        )  # fmt: skip
        self._unstage(region)

    def _unstage(self, region: Region) -> None:
        if region.staging:
            self._copy(region.buffer.host, region.staging.address, region)

    def _copy(self, to: int, origin: int, region: Region) -> None:
        ends = to + region.offset, origin + region.offset
        self.device.driver.enqueue_copy(*ends, region.bytes, self.lane.stream)

    def _launch(self, name: str, size: int, *values: Any, file: str = "contents") -> None:
        kernel = self.device.kernel(file, name)
        self.device.use()
        most = 2 * self.device.multiprocessors
        blocks = max(1, min(most, -(-size // (ELEMENT * MOST_THREADS))))
        arguments = Arguments(*values)
        self.device.driver.bind_launch(kernel, blocks, MOST_THREADS, 0, self.lane.stream, arguments)()


def near(buffer: GpuBuffer, executor: Device, device: Callable[[str], Device]) -> Device:
    """The GPU that fills and compares a buffer."""
    return device(buffer.memory.device) if buffer.memory.kind is MemoryKind.DEVICE else executor
