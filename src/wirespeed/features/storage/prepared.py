"""A measured transfer between a file and host memory: the file with its contents, and the threads or the
io_uring that read its first half or write its second half. The queues are made by system calls, because the C
library has none (``include/uapi/linux/io_uring.h`` of Linux); flags and fallbacks are those of
``engines/io_uring.c`` of fio.
"""

from __future__ import annotations

import ctypes
import errno
import mmap
import os
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from typing import Any, TypeVar

import numpy as np

from ...backends.base import Prepared
from ...backends.host.memory import RESERVE_BYTES
from ...backends.host.procfs import available_bytes
from ...backends.test_data import key_of, words
from ...errors import BackendError, OutOfMemory, Unreachable, VerificationError, starting_threads
from ...hardware.devices import Storage
from ...measurement import Sample
from ...model import Engine, MemoryKind, Transfer
from ...options import RunOptions
from ...units import GIB, MIB, NANO, format_size
from . import calls
from .scratch_file import ScratchFile

#: Numbers of the system calls ``io_uring_setup`` and ``io_uring_enter``, the same on all architectures.
_SETUP, _ENTER = 425, 426
#: Flags, the most efficient ones first: COOP_TASKRUN with SINGLE_ISSUER and DEFER_TASKRUN (Linux 6.1),
#: without them (5.19), and none.
_FLAGS = (1 << 8 | 1 << 12 | 1 << 13, 1 << 8, 0)
#: A feature as old as the operations that are used (RW_CUR_POS, Linux 5.6).
_FEATURE = 1 << 3
#: Where the queues are mapped.
_SUBMISSION_QUEUE, _COMPLETION_QUEUE, _ENTRIES = 0, 0x8000000, 0x10000000
_SUBMISSION_BYTES, _COMPLETION_BYTES = 64, 16
#: Words of the parameters: number of submissions and of completions, flags, features; begin of the offsets of
#: each queue, and in them: begin, end, mask, and the array of submissions or the completions.
_WORDS, _SUBMITS, _COMPLETES, _SETTING, _FEATURES, _OF_SUBMISSIONS, _OF_COMPLETIONS = 30, 0, 1, 2, 5, 10, 20
_BEGIN, _END, _MASK, _COMPLETION_ENTRIES, _ARRAY = 0, 1, 2, 5, 6

_library = ctypes.CDLL(None, use_errno=True)


def call(number: int, *arguments: Any) -> int:
    """Make a system call.

    Raises:
        OSError: If it fails.
    """
    result = int(_library.syscall(ctypes.c_long(number), *arguments))
    if result < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return result


class Ring:
    """An io_uring. Only the thread that made it may use it.

    Attributes:
        queues: Where they are.
    """

    def __init__(self, depth: int) -> None:
        """Make the queues for a number of calls at a time.

        Raises:
            BackendError: If the system refuses.
        """
        self._descriptor, self._maps = -1, list[mmap.mmap]()
        try:
            self._make(depth)
        except OSError as error:
            self.close()
            if error.errno == errno.ENOMEM:
                hint = "raise the limit of locked memory (`ulimit -l`)"
                raise OutOfMemory(f"not enough memory for the queues of io_uring; {hint}") from error
            raise BackendError(_why(error.errno or 0)) from error
        except BaseException:
            self.close()
            raise

    def _make(self, depth: int) -> None:
        for flags in _FLAGS:
            words = (ctypes.c_uint32 * _WORDS)()
            words[_SETTING] = flags
            try:
                self._descriptor = call(_SETUP, depth, words)
                break
            except OSError as error:
                if error.errno != errno.EINVAL or flags == _FLAGS[-1]:  # else it does not know the flags
                    raise
        if not words[_FEATURES] & _FEATURE:
            raise BackendError("io_uring of this kernel is too old; it requires Linux 5.6 or later")
        submissions, completions = words[_OF_SUBMISSIONS:_OF_COMPLETIONS], words[_OF_COMPLETIONS:_WORDS]
        sizes = (
            (_SUBMISSION_QUEUE, submissions[_ARRAY] + 4 * words[_SUBMITS]),
            (_COMPLETION_QUEUE, completions[_COMPLETION_ENTRIES] + _COMPLETION_BYTES * words[_COMPLETES]),
            (_ENTRIES, _SUBMISSION_BYTES * words[_SUBMITS]),
        )
        for offset, size in sizes:
            flags = mmap.MAP_SHARED | mmap.MAP_POPULATE
            self._maps.append(mmap.mmap(self._descriptor, size, flags=flags, offset=offset))
        queue, done, entries = (ctypes.addressof(ctypes.c_char.from_buffer(area)) for area in self._maps)
        call(_ENTER, self._descriptor, 0, 0, 0, None, 0)
        order = np.frombuffer(self._maps[0], np.uint32, words[_SUBMITS], submissions[_ARRAY])
        order[:] = np.arange(len(order))
        self.queues = calls.Queues(
            self._descriptor,
            submitted=queue + submissions[_END],
            submission_mask=words[_SUBMITS] - 1,
            submissions=entries,
            taken=done + completions[_BEGIN],
            completed=done + completions[_END],
            completion_mask=words[_COMPLETES] - 1,
            completions=done + completions[_COMPLETION_ENTRIES],
        )

    def close(self) -> None:
        """Release the queues; it may be called twice."""
        descriptor, self._descriptor = self._descriptor, -1
        self._maps.clear()  # unmapped when no address of them is used any more
        if descriptor >= 0:
            os.close(descriptor)


def _why(number: int) -> str:
    """Why there is no io_uring."""
    if number in (errno.EPERM, errno.EACCES, errno.ENOSYS):
        return "io_uring is not permitted here (by the kernel, a container or kernel.io_uring_disabled)"
    return f"io_uring cannot be used here: {os.strerror(number)}"


def refused() -> str:
    """Why this process has no io_uring; empty if it has."""
    try:
        Ring(1).close()
    except BackendError as error:
        return str(error)
    return ""


#: Size of a piece in which the file is filled, and of the part of it that one Measurement uses at most.
_PIECE_BYTES, _REGION_BYTES = 8 * MIB, GIB
#: Size of a huge page; another one only costs rate.
_HUGE_BYTES = 2 * MIB
#: A number of drawn blocks that ends all threads.
_ENDS = 2**62
#: Errors without room, and what to do.
_NO_ROOM = {
    errno.ENOSPC: "free some space, or give a smaller --storage-size",
    errno.EDQUOT: "give a smaller --storage-size",
    errno.EFBIG: "`ulimit -f` limits the size of files: give a smaller --storage-size",
}
Result = TypeVar("Result")


def memory(count: int, size: int) -> calls.Array:
    """Buffers of a size in bytes, next to each other in huge pages: the kernel has fewer pages to pin."""
    size_of_all = -(-count * size // _HUGE_BYTES) * _HUGE_BYTES
    area = mmap.mmap(-1, size_of_all + _HUGE_BYTES, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    if hasattr(mmap, "MADV_HUGEPAGE"):
        with suppress(OSError):  # a kernel without them
            area.madvise(mmap.MADV_HUGEPAGE)
    every = np.frombuffer(area, np.uint8)
    start = -every.ctypes.data % _HUGE_BYTES
    return every[start : start + count * size].view(np.uint64).reshape(count, -1)


class FilledFile:
    """The file of one storage device, and how far it is filled.

    Attributes:
        file: The file.
        half: Size of each half, in bytes.
    """

    def __init__(self, device: Storage) -> None:
        self.file = ScratchFile(device.folder)
        self.half = device.memory_bytes // 2
        self._filled = [0, 0]

    def fill(self, half: int, size: int, key: int, goes_on: Callable[[], bool]) -> None:
        """Write the contents of the first ``size`` bytes of a half, unless they are there."""
        piece = mmap.mmap(-1, _PIECE_BYTES)
        array: calls.Array = np.frombuffer(piece, np.uint64)
        while self._filled[half] < size and goes_on():
            offset = half * self.half + self._filled[half]
            count = min(_PIECE_BYTES, size - self._filled[half])
            array[: count // 8] = words(key, offset // 8, count // 8)
            self._write(memoryview(piece)[:count], offset)
            self._filled[half] += count

    def _write(self, data: memoryview, offset: int) -> None:
        """Write all of the data; after a part of it, only the next call says why it was not more."""
        while data:
            try:
                done = os.pwrite(self.file.descriptor, data, offset)
            except OSError as error:
                raise self.failure("writing", error.errno or 0, offset) from error
            if not done:
                raise self.failure("writing", calls.SHORT, offset)
            data, offset = data[done:], offset + done

    def failure(self, doing: str, number: int, offset: int) -> BackendError | Unreachable:
        """The error of a call; without room on the disk, it is not possible here."""
        at = f"{doing} at {format_size(offset)} of a file in {self.file.folder}"
        if number == calls.SHORT:
            return BackendError(f"{at}: fewer bytes than requested; it is full, or the file was changed")
        if number in _NO_ROOM:
            return Unreachable(f"{at}: {os.strerror(number)}; {_NO_ROOM[number]}")
        hint = "; the size of a call must be a multiple of the block size of the device"
        return BackendError(f"{at}: {os.strerror(number)}{hint if number == errno.EINVAL else ''}")


class StoragePrepared(Prepared):
    """Calls of one transfer between a file and host memory, bound to their buffers and threads.

    Attributes:
        cancelled: Whether its calls end.
    """

    #: Buffers of each call at a time.
    turns = 1

    def __init__(self, contents: FilledFile, transfer: Transfer, options: RunOptions, laps: int) -> None:
        assert transfer.calls is not None
        self._contents, self._transfer, self._calls = contents, transfer, transfer.calls
        self._writes = transfer.destination.kind is MemoryKind.FILE
        block, depth = self._calls.block, self._calls.depth
        buffers = depth * self.turns
        needed, free = block * buffers, available_bytes()
        if free is not None and free - RESERVE_BYTES < needed:
            raise OutOfMemory(
                f"not enough memory: requested buffers of {format_size(needed)}, "
                f"{format_size(max(0, free - RESERVE_BYTES))} is available"
            )
        self._key = key_of(options.seed, laps) if self._writes else key_of(options.seed)
        self._origin = contents.half if self._writes else 0
        self._buffers: list[calls.Array] = list(memory(buffers, -(-block // mmap.PAGESIZE) * mmap.PAGESIZE))
        self._addresses = np.array([buffer.ctypes.data for buffer in self._buffers], np.int64)
        for buffer in self._buffers:
            buffer[:] = words(self._key, 0, len(buffer)) if self._writes else 0
        self._results = np.zeros((buffers, calls.COLUMNS), np.int64)
        self._drawn = np.zeros(1, np.int64)
        self.cancelled = False
        self._ring: Ring | None = None
        self._threads = ThreadPoolExecutor(1 if transfer.engine is Engine.IO_URING else depth, "storage")
        region = min(contents.half, max(_REGION_BYTES, 2 * transfer.bytes))
        blocks = region // block
        order = (
            np.random.default_rng(options.seed).permutation(blocks)
            if self._calls.random
            else np.arange(blocks)
        )
        self._order = np.ascontiguousarray(order, np.int64)
        self._next = 0
        try:
            self._open()
        except BaseException:
            self.__exit__()
            raise

    def _open(self) -> None:
        """Bind what else the calls need."""
        if self._transfer.engine is Engine.IO_URING:
            self._ring = self._in_thread(Ring, self._calls.depth).result()

    @property
    def region(self) -> int:
        """Size of the part of its half that it uses, in bytes."""
        return len(self._order) * self._calls.block

    @property
    def way(self) -> str:
        """Which way a library takes of several; else empty."""
        return ""

    def _in_thread(self, does: Callable[..., Result], *arguments: object) -> Future[Result]:
        with starting_threads():
            return self._threads.submit(does, *arguments)

    def __exit__(self, *_: object) -> None:
        self._threads.shutdown()
        if self._ring:
            self._ring.close()

    def cancel(self) -> None:
        """End all threads after the calls that they make."""
        self.cancelled = True
        self._drawn[0] = _ENDS

    def sample(self, copies: int) -> Sample:
        count = copies * self._transfer.bytes // self._calls.block
        self._results[:] = 0
        self._results[:, calls.LAST] = -1
        self._drawn[0] = _ENDS if self.cancelled else 0
        blocks = calls.Blocks(
            writes=self._writes, descriptor=self._contents.file.descriptor, block=self._calls.block,
            origin=self._origin, order=self._order, first=self._next, count=count, drawn=self._drawn,
            key=self._key,
        )  # fmt: skip
        for thread in self._start(blocks):
            thread.result()
        if self.cancelled:
            raise BackendError("the calls were cancelled")
        for result in self._results:
            if result[calls.ERROR]:
                doing = "writing" if self._writes else "reading"
                raise self._contents.failure(doing, int(result[calls.ERROR]), int(result[calls.AT]))
        self._next = (self._next + count) % len(self._order)
        timed = self._results[self._results[:, calls.END] > 0]
        wall = float(timed[:, calls.END].max() - timed[:, calls.START].min()) * NANO
        return Sample((wall,), (float(count * self._calls.block),), wall)

    def _start(self, blocks: calls.Blocks) -> list[Future[None]]:
        """Start the calls that move blocks."""
        if self._ring:
            does = [calls.ring_mover(blocks, self._ring.queues, self._buffers, self._results)]
        else:
            does = calls.movers(blocks, self._buffers, self._results)
        return [self._in_thread(moves) for moves in does]

    def _found(self, index: int) -> calls.Array:
        """The words that the last call with a buffer has read."""
        return self._buffers[index]

    def _written(self, offset: int) -> calls.Array:
        """The words that a call has written to the buffers, between the ends of its place."""
        block = self._calls.block
        expected = words(self._key, 0, block // 8)
        ends = words(self._key, offset // 8, block // 8)
        expected[0], expected[-1] = ends[0], ends[-1]
        return expected

    def verify(self) -> None:
        """Compare the ends of every block, and all of the last block of each thread."""
        block = self._calls.block
        wrong = int(self._results[:, calls.WRONG].sum())
        if wrong:
            first = int(self._results[self._results[:, calls.WRONG] > 0, calls.FIRST_WRONG].min())
            raise self._wrong(first, wrong, int(self._drawn[0]) * 2)
        (back,) = memory(1, self._buffers[0].nbytes)
        for index, offset in enumerate(map(int, self._results[:, calls.LAST])):
            if offset < 0:  # the others were faster
                continue
            if self._writes:
                written = os.preadv(
                    self._contents.file.descriptor, [memoryview(back).cast("B")[:block]], offset
                )
                if written != block:
                    raise self._contents.failure("reading", calls.SHORT, offset)
                found, expected = back[: block // 8], self._written(offset)
            else:
                found, expected = self._found(index)[: block // 8], words(self._key, offset // 8, block // 8)
            differing = np.flatnonzero(found != expected)
            if len(differing):
                raise self._wrong(offset + 8 * int(differing[0]), len(differing), block // 8)

    def _wrong(self, offset: int, wrong: int, compared: int) -> VerificationError:
        return VerificationError(str(self._transfer), offset, wrong, compared, self._transfer.way)
