"""What test buffers contain before and after a Measurement: the definition that C
(``native/contents.c``), CUDA (``kernels/contents.cu``) and numpy implement. Everything follows from a key, or
(seed, rank), and the index, so every rank can compute the expected data itself.
"""

from __future__ import annotations

from hashlib import blake2b
from typing import TYPE_CHECKING

import numpy as np

from ..collectives.data_types import DataType
from ..collectives.operations import Piece
from ..model import BlockList, PoolLayout

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Array = NDArray[np.generic]
    Words = NDArray[np.uint64]

# Word ``index`` of a pattern is ``key + index * STEP`` modulo 2**64: words differ for every key and index.
# Smaller values are parts of a word, and arithmetic with them is exact: a double is the integer
# ``word >> 16``, below 2**48; two floats are the lower 20 bits of ``word >> 16`` and of ``word >> 40``; four
# halves are 9 bits each, from bits 16, 28, 40 and 52; an element of n bits is the upper n bits.

#: Difference between successive words: 2**64 divided by the golden ratio, so that all bits change.
STEP = 0x9E3779B97F4A7C15
WORD_MASK = 2**64 - 1


def key_of(*numbers: int) -> int:
    """A key of 64 bits that depends on every bit of every number."""
    text = "/".join(map(str, numbers)).encode()
    return int.from_bytes(blake2b(text, digest_size=8).digest(), "little")


def keys_of(seed: int, transfer: int) -> tuple[int, int, int]:
    """The keys of a transfer: of its two sources, and of the destination before a sample."""
    return key_of(seed, transfer, 0), key_of(seed, transfer, 1), key_of(seed, transfer, 2)


#: Blocks of a page in a strided list, the first number that makes at least as many whole pages: K and V of
#: 32 layers or fewer.
_PARTS_OF_PAGE = (64, 32, 16, 8, 4, 2, 1)


def offsets(scattered: BlockList, seed: int) -> NDArray[np.int64]:
    """For each block of a list in the order in which they are given: its offset in either pool, in bytes.

    Random: blocks are drawn from the source and placed in the destination in two independent random orders.
    Strided: the source has the order layer, K or V, page, the destination page, layer, K or V, with up to
    32 layers. Blocks are given in the order of the source.
    """
    if scattered.layout is PoolLayout.STRIDED:
        index = np.arange(scattered.blocks, dtype=np.int64)
        parts = next(n for n in _PARTS_OF_PAGE if scattered.blocks % n == 0 and n * n <= scattered.blocks)
        pages = scattered.blocks // parts
        there = index % pages * parts + index // pages
        return np.ascontiguousarray(np.stack([index, there], axis=1) * np.int64(scattered.block))
    random = np.random.default_rng(key_of(seed, scattered.block, scattered.blocks))
    places = [random.permutation(scattered.blocks) for _ in range(2)]
    return np.ascontiguousarray(np.stack(places, axis=1) * np.int64(scattered.block))


_LARGEST_NUMBER = 127  # the largest number in a buffer
#: Ranks whose factors are not 1: a product of any of them is between 2**-6 and 2**6.
FACTORS = 12
BEFORE = 8191  # the seed of what a receive buffer holds before


def highest(type: DataType, operator: str, ranks: int) -> int:
    """The largest number in the buffers that are reduced.

    It is chosen so that every partial sum is an integer that the type holds, if the type permits that: then
    the result is exact in any order, and so is the comparison. Otherwise see ``tolerance``. Factors of
    products are powers of two, so products are exact.
    """
    return max(1, min(_LARGEST_NUMBER, type.largest // (ranks * _scale(operator))))


def scalar(rank: int) -> int:
    """What ``mulsum`` multiplies a rank's array with."""
    return 1 + rank % 2


def _scale(operator: str) -> int:
    return 2 if operator == "mulsum" else 1


def tolerance(type: DataType, operator: str, ranks: int) -> float:
    """The maximum error of a result, as a fraction of the sum of the magnitudes; 0: exact.

    Where the type is too narrow (fp8 over many ranks; averages over a number of ranks that is not a power of
    two), k roundings put at most k u / (1 - k u) times the sum of the magnitudes on a sum, with the unit
    roundoff u (N. J. Higham, *Accuracy and Stability of Numerical Algorithms*, section 4.2).
    """
    if not type.is_float or operator in ("prod", "min", "max"):
        return 0.0
    fits = highest(type, operator, ranks) * ranks * _scale(operator) <= type.largest
    if fits and (operator != "avg" or ranks & (ranks - 1) == 0):
        return 0.0
    error = (ranks + 1) * type.roundoff
    return min(1.0, error / (1 - error)) if error < 1 else 1.0


def words(key: int, start: int, count: int) -> Words:
    """``count`` words of a pattern from index ``start``."""
    index = np.arange(start, start + count, dtype=np.uint64)
    return np.uint64(key & WORD_MASK) + index * np.uint64(STEP)


def key(seed: int, rank: int) -> int:
    """The key of a rank's pattern, which a GPU computes for all ranks."""
    return seed * 0xBF58476D1CE4E5B9 + rank * 0x94D049BB133111EB


def numbers(
    type: DataType, operator: str, ranks: int, seed: int, rank: int, start: int, count: int
) -> NDArray[np.float64]:
    """The numbers in a rank's array that is reduced."""
    halves = words(key(seed, rank), start, count) >> np.uint64(32)
    if operator == "prod":
        powers = (halves & np.uint64(1)).astype(np.float64) if rank < FACTORS else np.zeros(count)
        if rank % 2 and type.is_float:
            return np.asarray(2.0**-powers)
        return np.asarray(2.0**powers) if rank % 2 == 0 else np.ones(count)
    return np.asarray((halves % np.uint64(highest(type, operator, ranks) + 1)).astype(np.float64))


def raw(type: DataType, seed: int, rank: int, start: int, count: int) -> Array:
    """A rank's array that is moved as it is: bits, in elements as wide as the type's."""
    bits = words(key(seed, rank), start, count)
    return np.asarray((bits >> np.uint64(64 - 8 * type.bytes)).astype(f"uint{8 * type.bytes}"))


def before(type: DataType, rank: int, start: int, count: int) -> Array:
    """Elements of what a receive buffer holds before: nothing that could pass for a result."""
    return raw(type, BEFORE, rank, start, count)


def given(
    type: DataType, operator: str | None, ranks: int, seed: int, rank: int, start: int, count: int
) -> Array:
    """Elements of what a rank sends, for types that numpy has; no operator: bits."""
    if operator is None:
        return raw(type, seed, rank, start, count)
    return numbers(type, operator, ranks, seed, rank, start, count).astype(type.numpy)


def reduced(
    type: DataType, operator: str, ranks: int, seed: int, start: int, count: int
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """The exact result of a reduction, and the sum of the magnitudes that go into it."""
    arrays = [numbers(type, operator, ranks, seed, rank, start, count) for rank in range(ranks)]
    if operator in ("prod", "min", "max"):
        result = np.asarray(getattr(np, operator)(arrays, axis=0))
        return result, result
    if operator == "mulsum":
        arrays = [array * scalar(rank) for rank, array in enumerate(arrays)]
    total = np.asarray(np.sum(arrays, axis=0))
    if operator == "avg":
        total = total / ranks if type.is_float else np.floor(total / ranks)
    return total, total


def wrong(received: Array, piece: Piece, type: DataType, operator: str | None, ranks: int, seed: int) -> int:
    """How many elements of a piece are not what they must be.

    Args:
        received: The elements of the piece: of numpy's type for reductions, as bits otherwise.
    """
    if piece.source is not None:
        want = raw(type, seed, piece.source, piece.start, piece.count)
        return int(np.count_nonzero(received != want))
    assert operator is not None
    exact, magnitude = reduced(type, operator, ranks, seed, piece.start, piece.count)
    allowed = tolerance(type, operator, ranks)
    if not type.is_float and not allowed:  # integers wrap around
        return int(np.count_nonzero(received != exact.astype(np.int64).astype(type.numpy)))
    values = received.astype(np.float64)
    off = ~(np.abs(values - exact) <= allowed * magnitude)  # so that a NaN is wrong too
    return int(np.count_nonzero(off))
