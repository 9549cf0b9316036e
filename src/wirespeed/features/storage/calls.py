"""The C functions that read and write blocks of a file (``native/storage.c``): each thread makes one call
at a time, or one thread keeps several in the queues of an io_uring. Addresses and sizes are checked here.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np

from ...native import I64, U64, function

Array = np.ndarray[Any, Any]
#: Columns of the result of a thread: start and end in ns, error number, offset at which it happened,
#: offset of the last block, number of blocks with wrong data, offset of the first of these.
START, END, ERROR, AT, LAST, WRONG, FIRST_WRONG = range(7)
COLUMNS = 7
#: Error number of a call that moved fewer bytes than it should.
SHORT = -1
#: Linux moves no larger block in one call.
_LARGEST_BLOCK = 2**31 - 4096


class Blocks(ctypes.Structure):
    """The blocks of a file that threads move together; ``struct ws_blocks`` of C.

    The first and the last word of every block depend on its place in the file: they are written into it, or
    compared after it was read.
    """

    _fields_ = (
        *((name, I64) for name in ("writes", "descriptor", "block", "origin", "order", "places", "first")),
        *((name, I64) for name in ("count", "drawn")),
        ("key", U64),
    )

    def __init__(
        self, *, writes: bool, descriptor: int, block: int, origin: int, order: Array, first: int, count: int,
        drawn: Array, key: int,
    ) -> None:  # fmt: skip
        """Check and keep the blocks.

        Args:
            writes: Whether they are written.
            descriptor: Descriptor of the file.
            block: Size of a block, in bytes.
            origin: Where the blocks begin in the file, in bytes.
            order: Order of the blocks.
            first: Position in the order with which the threads begin together.
            count: Number of blocks that the threads move together.
            drawn: The number of blocks that were drawn, which the threads increase.
            key: Key of the contents.
        """
        if block % 8 or not 8 <= block <= _LARGEST_BLOCK or min(origin, first, count) < 0:
            raise ValueError(f"{count} blocks of {block} bytes at {origin}, from the block {first} on")
        _check(order, np.int64, (len(order) or 1,))
        _check(drawn, np.int64, (1,))
        self._kept = order, drawn
        super().__init__(
            writes, descriptor, block, origin, order.ctypes.data, len(order), first, count, drawn.ctypes.data,
            key,
        )  # fmt: skip


class Queues(ctypes.Structure):
    """The queues of an io_uring; ``struct ws_ring`` of C."""

    _fields_ = tuple(
        (name, I64)
        for name in (
            "descriptor", "submitted", "submission_mask", "submissions", "taken", "completed",
            "completion_mask", "completions",
        )
    )  # fmt: skip


_BLOCKS = ctypes.POINTER(Blocks)
_move_next = function("ws_move_next", I64, _BLOCKS, I64, I64)
_move_all = function("ws_move_all", None, _BLOCKS, I64, I64)
_move_by_ring = function(
    "ws_move_by_ring", None, _BLOCKS, ctypes.POINTER(Queues), ctypes.POINTER(I64), ctypes.POINTER(I64), I64,
    I64,
)  # fmt: skip
#: Draw the next of ``Blocks``: where it is in the file; -1 if there is no more.
draw: Callable[[Blocks], int] = function("ws_draw", I64, _BLOCKS)


def _check(array: Array, kind: type, shape: tuple[int, ...]) -> None:
    if array.dtype != kind or array.shape != shape or not array.flags.c_contiguous:
        raise ValueError(f"an array of {array.dtype} {array.shape} instead of {np.dtype(kind)} {shape}")


def _rows(blocks: Blocks, buffers: Sequence[Array], results: Array) -> list[tuple[int, int]]:
    """The addresses of each buffer and of its row of results."""
    _check(results, np.int64, (len(buffers), COLUMNS))
    for buffer in buffers:
        _check(buffer, np.uint64, (max(buffer.size, blocks.block // 8),))
    return [(b.ctypes.data, results.ctypes.data + i * results.strides[0]) for i, b in enumerate(buffers)]


def next_movers(blocks: Blocks, buffers: Sequence[Array], results: Array) -> list[Callable[[], int]]:
    """For each buffer, what moves the next block; it returns whether there was one that could be moved.

    Args:
        blocks: The blocks.
        buffers: The buffers.
        results: A row of the columns above for each buffer, which receives them except start and end.
    """
    return [partial(_move_next, blocks, *row) for row in _rows(blocks, buffers, results)]


def movers(blocks: Blocks, buffers: Sequence[Array], results: Array) -> list[Callable[[], None]]:
    """For each buffer, what moves blocks until there are no more; arguments are those of `next_movers`."""
    return [partial(_move_all, blocks, *row) for row in _rows(blocks, buffers, results)]


def ring_mover(
    blocks: Blocks, queues: Queues, buffers: Sequence[Array], results: Array
) -> Callable[[], None]:
    """What moves blocks until there are no more, with a call at a time for each buffer.

    Args:
        blocks, buffers: As in `next_movers`.
        queues: The io_uring, with room for a call of each buffer.
        results: A row for each buffer; start and end are only in the first one.
    """
    rows, depth = _rows(blocks, buffers, results), len(buffers)
    if not 0 < depth <= queues.submission_mask + 1:
        raise ValueError(f"{depth} calls at a time in queues of {queues.submission_mask + 1}")
    addresses, slots = (I64 * depth)(*(address for address, _ in rows)), (I64 * depth)()
    return partial(_move_by_ring, blocks, queues, addresses, slots, depth, rows[0][1])
