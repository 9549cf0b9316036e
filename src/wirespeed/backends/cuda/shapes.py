"""Which kernel copies a buffer, and with which grid: pure rules, each with its reason."""

from __future__ import annotations

from dataclasses import dataclass

from ...model import Access, Engine, MemoryKind, Operation, Transfer
from ...units import KIB, MIB

WARP = 32
MOST_THREADS = 1024
_MOST_BLOCKS = 2**31 - 1
#: Below this a grid of two blocks a multiprocessor leaves most threads without work.
_SMALL = 64 * MIB
ELEMENT = 16
WORD = 8
#: Distance of the nodes of a chase in bytes, as long as a line of the second-level cache.
NODE = 128

_LEAST_CHUNK = 128
_BARRIER = 8
#: So many rings with the smallest chunks fit into the least shared memory of a GPU that has bulk copies.
_MOST_BULK_THREADS = 64
#: Blocks from which, and up to which, finer rings push faster over NVLink: 362 GB/s in place of 350 with 16.
_FINE_FROM, _FINE_TO = 12, 24
_LOCAL_THREADS = 256
_SPLIT_PASSES, _DEEP_PASSES = 4, 16

#: File and name of the kernel of each operation; copies are chosen by size.
STREAM_KERNELS = {
    Operation.SCALE: "scale",
    Operation.ADD: "add",
    Operation.TRIAD: "triad",
    Operation.SAXPY: "saxpy",
    Operation.WRITE: "write",
    Operation.READ: "read",
}


@dataclass(frozen=True)
class Shape:
    """A kernel and its grid.

    Parameters
    ----------
    loops
        Whether one launch makes several passes over the buffer. Not where blocks that follow each
        other would find their part of the buffer in the cache.
    chunk
        Bytes of one bulk copy.
    passes
        Passes over the buffer that count as one copy.
    """

    file: str
    kernel: str
    blocks: int
    threads: int
    loops: bool
    shared: int = 0
    chunk: int = 0
    passes: int = 1


def shape(transfer: Transfer, multiprocessors: int, shared_memory: int, sharing: int = 1) -> Shape:
    """Return how a kernel runs a transfer.

    Parameters
    ----------
    multiprocessors
        Of the GPU that executes.
    shared_memory
        The most bytes of shared memory that one block may have there.
    sharing
        Transfers of the Measurement that share the source or the destination with this one, it included.
    """
    if transfer.engine is Engine.SM_BULK:
        return _bulk(transfer, multiprocessors, shared_memory)
    executor = transfer.executor
    chosen = bool(executor.blocks or executor.threads)
    strided = executor.blocks or 2 * multiprocessors, executor.threads or MOST_THREADS
    if transfer.engine is Engine.SM_SPLIT:
        # One element a thread, over both directions: a few percent above any smaller grid over PCIe.
        # Each block makes its passes before it ends, so that host memory sees a piece several times: it
        # is the link that is measured. (A single pass over all of it is a fifth slower when two GPUs
        # share a host's memory.)
        grid = strided if chosen else _covering(2 * transfer.bytes, MOST_THREADS)
        return Shape("copy", "copy_split", *grid, loops=True, passes=1 if chosen else _SPLIT_PASSES)
    covering = _covering(transfer.bytes, MOST_THREADS)
    if transfer.operation is Operation.READ:
        return Shape("stream", "read", *strided, loops=False)
    if transfer.operation is not Operation.COPY:
        grid = strided if chosen else covering
        return Shape("stream", STREAM_KERNELS[transfer.operation], *grid, loops=False)
    small = transfer.bytes < _SMALL
    if not chosen and transfer.source == transfer.destination:
        # Within a GPU small blocks that cover the buffer copy best, whatever the size.
        return Shape("copy", "copy_cover", *_covering(transfer.bytes, _LOCAL_THREADS), loops=small)
    if not chosen and small:
        return Shape("copy", "copy_cover", *covering, loops=True)
    if not chosen and transfer.access is Access.READ and transfer.source.kind is MemoryKind.DEVICE:
        # A read from a peer waits longest: it wants more loads in flight, and long launches. Those that
        # share a link are as long with fewer passes.
        grid = 2 * multiprocessors, MOST_THREADS // 2
        passes = max(1, _DEEP_PASSES // sharing)
        return Shape("copy", "copy_stride_deep", *grid, loops=True, passes=passes)
    return Shape("copy", "copy_stride", *strided, loops=True)


def _covering(size: int, threads: int) -> tuple[int, int]:
    """Blocks and threads with one element a thread."""
    return max(1, -(-size // (ELEMENT * threads))), threads


def _bulk(transfer: Transfer, multiprocessors: int, shared_memory: int) -> Shape:
    """One thread a block unless told: asynchronous copies need no more to fill a link."""
    threads, blocks = transfer.executor.threads or 1, transfer.executor.blocks or multiprocessors
    pushes = transfer.access is Access.WRITE and transfer.destination.kind is MemoryKind.DEVICE
    fine = pushes and threads == 1 and _FINE_FROM <= blocks <= _FINE_TO
    kernel, stages, largest = ("copy_bulk_fine", 16, 4 * KIB) if fine else ("copy_bulk", 8, 16 * KIB)
    each = shared_memory // (threads * stages) - _BARRIER
    chunk = min(largest, each // _LEAST_CHUNK * _LEAST_CHUNK)
    shared = threads * stages * (chunk + _BARRIER)
    return Shape("bulk", kernel, blocks, threads, True, shared, chunk)


def unfit(transfer: Transfer) -> str:
    """Return why the blocks and threads that were asked for cannot be; empty if they can."""
    blocks, threads = transfer.executor.blocks, transfer.executor.threads
    if not 0 <= blocks <= _MOST_BLOCKS:
        return f"a grid has 1 to {_MOST_BLOCKS} blocks, not {blocks}"
    if transfer.engine is Engine.SM_BULK:
        if not 0 <= threads <= _MOST_BULK_THREADS:
            return f"a bulk copy has 1 to {_MOST_BULK_THREADS} threads a block, not {threads}"
        return ""
    if threads % WARP or not 0 <= threads <= MOST_THREADS:
        return f"a block has whole warps of {WARP} threads, {MOST_THREADS} at most, not {threads} threads"
    if transfer.engine is Engine.SM_SPLIT and blocks == 1 and threads == WARP:
        return "copying both ways needs two warps or more"
    return ""
