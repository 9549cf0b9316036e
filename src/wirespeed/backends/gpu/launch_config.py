"""Choice of kernel and grid for a transfer: pure rules, each with its reason."""

from __future__ import annotations

from dataclasses import dataclass, replace

from ...model import Access, Engine, MemoryKind, Operation, Transfer
from ...units import KIB, MIB

WARP = 32
MOST_THREADS = 1024
_MOST_BLOCKS = 2**31 - 1
#: Below this size, a grid of two blocks per multiprocessor leaves most threads without work.
_SMALL = 64 * MIB
ELEMENT = 16
WORD = 8
#: Distance between the nodes of a chase, in bytes: a line of the second-level cache.
NODE = 128
#: Block sizes of lists are multiples of this, in bytes.
LIST_GRANULE = 64

_LEAST_CHUNK = 128
_BARRIER = 8
#: Rings with the smallest chunks that fit into the least shared memory of a GPU with bulk copies.
_MOST_BULK_THREADS = 64
#: Range of blocks in which finer rings push faster over NVLink: 362 instead of 350 GB/s with 16 blocks.
_FINE_FROM, _FINE_TO = 12, 24
_LOCAL_THREADS = 256
_SPLIT_PASSES, _DEEP_PASSES = 4, 16

#: Bytes of a list that a warp copies at a time, as in ``kernels/blocks.cu``; threads of a thread block, and
#: of a multiprocessor.
_PIECE, _LIST_THREADS, _RESIDENT_THREADS = 2 * KIB, 256, 2048


@dataclass(frozen=True)
class LaunchConfig:
    """A kernel and its grid.

    Attributes:
        loops: Whether one launch makes several passes over the buffer. Not used where successive blocks would
            find their part of the buffer in the cache.
        chunk: Size of one bulk copy in bytes.
        passes: Passes over the buffer that count as one copy.
    """

    file: str
    kernel: str
    blocks: int
    threads: int
    loops: bool
    shared: int = 0
    chunk: int = 0
    passes: int = 1


def shape(transfer: Transfer, multiprocessors: int, shared_memory: int, sharing: int = 1) -> LaunchConfig:
    """The kernel and grid that run a transfer.

    Args:
        multiprocessors: Multiprocessors of the executing GPU.
        shared_memory: Maximum shared memory of a block on that GPU, in bytes.
        sharing: Number of transfers of the Measurement that share its source or destination, including
            itself.
    """
    if transfer.engine is Engine.SM_BULK:
        return _bulk(transfer, multiprocessors, shared_memory)
    executor = transfer.executor
    chosen = bool(executor.blocks or executor.threads)
    strided = executor.blocks or 2 * multiprocessors, executor.threads or MOST_THREADS
    if transfer.engine is Engine.SM_SPLIT:
        # One element per thread over both directions is a few percent faster over PCIe than any smaller grid.
        # Each block makes all its passes before it ends, so host memory sees a piece several times: the link
        # is measured. (A single pass over the buffer is a fifth slower if two GPUs share a host's memory.)
        grid = strided if chosen else _covering(2 * transfer.bytes, MOST_THREADS)
        return LaunchConfig("copy", "copy_split", *grid, loops=True, passes=1 if chosen else _SPLIT_PASSES)
    covering = _covering(transfer.bytes, MOST_THREADS)
    if transfer.operation is Operation.READ:
        return LaunchConfig("stream", "read", *strided, loops=False)
    if transfer.operation is not Operation.COPY:
        grid = strided if chosen else covering
        return LaunchConfig("stream", str(transfer.operation), *grid, loops=False)
    small = transfer.bytes < _SMALL
    if not chosen and transfer.source == transfer.destination:
        # Within a GPU, small blocks that cover the buffer are fastest for every size.
        return LaunchConfig("copy", "copy_cover", *_covering(transfer.bytes, _LOCAL_THREADS), loops=small)
    if not chosen and small:
        return LaunchConfig("copy", "copy_cover", *covering, loops=True)
    if not chosen and transfer.access is Access.READ and transfer.source.kind is MemoryKind.DEVICE:
        # A read from a peer has the longest latency: it needs more loads in flight, and long launches. Reads
        # that share a link take as long with fewer passes.
        grid = 2 * multiprocessors, MOST_THREADS // 2
        passes = max(1, _DEEP_PASSES // sharing)
        return LaunchConfig("copy", "copy_stride_deep", *grid, loops=True, passes=passes)
    return LaunchConfig("copy", "copy_stride", *strided, loops=True)


def _covering(size: int, threads: int) -> tuple[int, int]:
    """Blocks and threads for one element per thread."""
    return max(1, -(-size // (ELEMENT * threads))), threads


def _bulk(transfer: Transfer, multiprocessors: int, shared_memory: int) -> LaunchConfig:
    """One thread per block by default: asynchronous copies need no more to fill a link."""
    threads, blocks = transfer.executor.threads or 1, transfer.executor.blocks or multiprocessors
    pushes = transfer.access is Access.WRITE and transfer.destination.kind is MemoryKind.DEVICE
    fine = pushes and threads == 1 and _FINE_FROM <= blocks <= _FINE_TO
    kernel, stages, largest = ("copy_bulk_fine", 16, 4 * KIB) if fine else ("copy_bulk", 8, 16 * KIB)
    stage_bytes = shared_memory // (threads * stages) - _BARRIER
    chunk = min(largest, stage_bytes // _LEAST_CHUNK * _LEAST_CHUNK)
    shared = threads * stages * (chunk + _BARRIER)
    return LaunchConfig("bulk", kernel, blocks, threads, True, shared, chunk)


def list_shape(transfer: Transfer, multiprocessors: int, shared_memory: int) -> LaunchConfig:
    """The kernel and grid that move a block list; parameters as in ``shape``.

    Few pieces get a multiprocessor each; many get warps that fill the GPU.
    """
    assert transfer.scattered is not None
    executor, scattered = transfer.executor, transfer.scattered
    if transfer.engine is Engine.SM_BULK:
        form = _bulk(transfer, multiprocessors, shared_memory)
        pieces = scattered.blocks * -(-scattered.block // form.chunk)
        blocks = form.blocks if executor.blocks else min(form.blocks, pieces)
        return replace(form, file="blocks", kernel="copy_blocks_bulk", blocks=blocks)
    pieces = scattered.blocks * -(-scattered.block // _PIECE)
    warps = max(1, min(_LIST_THREADS // WARP, -(-pieces // multiprocessors)))
    threads = executor.threads or WARP * warps
    most = multiprocessors * (_RESIDENT_THREADS // _LIST_THREADS)
    blocks = executor.blocks or max(1, min(most, -(-pieces * WARP // threads)))
    return LaunchConfig("blocks", "copy_blocks", blocks, threads, loops=False)


def unfit(transfer: Transfer) -> str:
    """Why the requested blocks and threads are invalid; empty if they are valid."""
    blocks, threads = transfer.executor.blocks, transfer.executor.threads
    if not 0 <= blocks <= _MOST_BLOCKS:
        return f"a grid has 1 to {_MOST_BLOCKS} blocks, not {blocks}"
    if transfer.engine is Engine.SM_BULK:
        if not 0 <= threads <= _MOST_BULK_THREADS:
            return f"a bulk copy has 1 to {_MOST_BULK_THREADS} threads per block, not {threads}"
        return ""
    if threads % WARP or not 0 <= threads <= MOST_THREADS:
        return f"threads per block must be a multiple of {WARP} up to {MOST_THREADS}, not {threads}"
    if transfer.engine is Engine.SM_SPLIT and blocks == 1 and threads == WARP:
        return "copying both ways requires at least two warps"
    return ""
