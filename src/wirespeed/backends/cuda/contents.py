"""What buffers hold: patterns written and compared by kernels, on the GPU that is nearest."""

from __future__ import annotations

import ctypes
import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from enum import IntEnum
from typing import Any

from cuda.bindings import driver

from ...errors import BackendError
from ...model import MemoryKind, Operation
from ...units import KIB
from .arguments import Arguments, narrow, pointer, wide
from .device import Device, Lane
from .driver import check
from .memory import Buffer
from .shapes import ELEMENT, MOST_THREADS, WORD

#: The factor of scale, triad and saxpy: with whole numbers below 2**32 (2**16 as floats) results are exact.
SCALAR = 3.0
_SLOT = 2 * WORD
_SLOTS = 4 * KIB // _SLOT


class Pattern(IntEnum):
    """What a source holds; the numbers are those of ``kernels/contents.cu``."""

    BITS = 0
    NUMBERS = 1
    SMALL_NUMBERS = 2


#: The numbers of ``kernels/contents.cu``.
_CODES = {
    Operation.COPY: 0,
    Operation.SCALE: 1,
    Operation.ADD: 2,
    Operation.TRIAD: 3,
    Operation.SAXPY: 4,
    Operation.WRITE: 5,
}


def pattern_of(operation: Operation) -> Pattern:
    """Return what the sources of an operation hold, so that its results can be compared bit by bit."""
    if operation in (Operation.SCALE, Operation.ADD, Operation.TRIAD):
        return Pattern.NUMBERS
    return Pattern.SMALL_NUMBERS if operation is Operation.SAXPY else Pattern.BITS


def key(seed: int, transfer: int, part: int) -> int:
    """Return the 64-bit key of a pattern; no two parts of two transfers share one."""
    text = f"{seed}/{transfer}/{part}".encode()
    return int.from_bytes(hashlib.blake2b(text, digest_size=8).digest(), "little")


@dataclass(frozen=True)
class Region:
    """Bytes of a buffer that are filled or compared as one.

    Parameters
    ----------
    device
        The GPU that does it: the owner of device memory, else the one that executes the transfer.
    staging
        Device memory through which pageable memory is filled and compared, which no kernel sees.
    """

    device: Device
    buffer: Buffer
    bytes: int
    offset: int = 0
    staging: Buffer | None = None

    @property
    def address(self) -> int:
        """Where kernels work on it."""
        return (self.staging or self.buffer).address + self.offset


@dataclass(frozen=True)
class Expected:
    """A region and the operation whose result must be there."""

    region: Region
    operation: Operation
    keys: tuple[int, int]
    text: str

    @property
    def words(self) -> int:
        """Words that are compared; the last may be a part of one."""
        return -(-self.region.bytes // WORD)


class Contents:
    """Fills and compares with one GPU, in a stream of its own.

    Nothing waits here: ``lane.stop`` is recorded behind all that was asked for by ``flush``.
    """

    def __init__(self, device: Device) -> None:
        self.device = device
        self.lane = Lane(device)
        self._results = check(driver.cuMemAlloc, _SLOTS * _SLOT)
        self._read = (ctypes.c_uint64 * (2 * _SLOTS))()
        self._expected: list[Expected] = []

    def fill(self, region: Region, pattern: Pattern, seed: int) -> None:
        """Write a pattern."""
        arguments = (pointer(region.address), wide(region.bytes), narrow(pattern), wide(seed))
        self._launch("fill", region.bytes, *arguments)
        self._unstage(region)

    def poison(self, expected: Expected) -> None:
        """Write what the operation cannot leave: the complement of its result."""
        self._compare(expected, 0)

    def compare(self, expected: Expected) -> None:
        """Compare with the result of the operation, and poison again."""
        if len(self._expected) == _SLOTS:
            raise BackendError(f"{self.device.name} compares {_SLOTS} buffers at a time, not more")
        if not self._expected:
            self.zero(int(self._results), _SLOTS * _SLOT)
        if expected.region.staging:
            self._copy(expected.region.staging.address, expected.region.buffer.host, expected.region)
        self._compare(expected, int(self._results) + len(self._expected) * _SLOT)
        self._expected.append(expected)

    def zero(self, address: int, size: int) -> None:
        """Clear device memory of this GPU."""
        self.device.use()
        check(driver.cuMemsetD8Async, address, 0, size, self.lane.stream)

    def total(self, words: int, pattern: Pattern, seed: int, address: int) -> None:
        """Add all words of a pattern to the one at an address."""
        self._launch("total", words * WORD, wide(words), narrow(pattern), wide(seed), pointer(address))

    def flush(self) -> Any:
        """Return the event behind all that was asked for."""
        self.lane.record(self.lane.stop)
        return self.lane.stop

    def found(self) -> list[tuple[Expected, int, int]]:
        """Return what was compared with the number of wrong words and the first one's index."""
        self.device.use()
        size = len(self._expected) * _SLOT
        if size:
            check(driver.cuMemcpyDtoH, ctypes.addressof(self._read), self._results, size)
        pairs = zip(self._read[0::2], self._read[1::2], strict=True)
        last = 2**64 - 1
        found = [
            (expected, wrong, last - first)
            for expected, (wrong, first) in zip(self._expected, pairs, strict=False)
        ]
        self._expected.clear()
        return found

    def close(self) -> None:
        """Give everything back."""
        self.device.use()
        check(driver.cuMemFree, self._results)
        self.lane.destroy()

    def _compare(self, expected: Expected, slot: int) -> None:
        region = expected.region
        first, second = expected.keys
        self._launch(
            "compare", region.bytes, pointer(region.address), wide(region.bytes),
            narrow(_CODES[expected.operation]), wide(first), wide(second), ctypes.c_double(SCALAR),
            pointer(slot),
        )  # fmt: skip
        self._unstage(region)

    def _unstage(self, region: Region) -> None:
        if region.staging:
            self._copy(region.buffer.host, region.staging.address, region)

    def _copy(self, to: int, origin: int, region: Region) -> None:
        check(
            driver.cuMemcpyAsync, to + region.offset, origin + region.offset, region.bytes, self.lane.stream
        )

    def _launch(self, name: str, size: int, *values: Any) -> None:
        kernel = self.device.kernel("contents", name)
        self.device.use()
        most = 2 * self.device.multiprocessors
        blocks = max(1, min(most, -(-size // (ELEMENT * MOST_THREADS))))
        arguments = Arguments(*values)
        check(
            driver.cuLaunchKernel, kernel, blocks, 1, 1, MOST_THREADS, 1, 1, 0, self.lane.stream,
            arguments.address, 0,
        )  # fmt: skip


#: Returns the Contents of a GPU.
ContentsOf = Callable[[Device], Contents]


def near(buffer: Buffer, executor: Device, device: Callable[[str], Device]) -> Device:
    """Return the GPU that fills and compares a buffer."""
    return device(buffer.memory.device) if buffer.memory.kind is MemoryKind.DEVICE else executor
