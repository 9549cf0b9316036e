"""Contents of host buffers: patterns before a sample, their verification after it, and what is wrong in a
destination once a word is known to be wrong.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterable, Sequence
from functools import partial
from typing import Any

import numpy as np

from ...errors import MOST_LISTED, VerificationError, WrongWord, WrongWords
from ...model import Operation
from ..test_data import STEP, WORD_MASK
from . import kernels
from .bound_transfer import LINE, BoundTransfer, Run, Tasks, signed
from .kernels import WORD, WRITE

Words = np.ndarray[Any, np.dtype[np.uint64]]
Table = np.ndarray[Any, np.dtype[np.int64]]
#: Words that are compared at a time.
_CHUNK = 2**20


def examined(
    destination: int, source: int, ranges: Iterable[tuple[int, int]], key: int, before: int
) -> WrongWords:
    """What is wrong in the copy of a pattern.

    Args:
        destination, source: Addresses of the buffers.
        ranges: First byte and end of the parts to compare.
        key: Key of the pattern.
        before: What every word of the destination was before the copy.
    """
    listed: list[WrongWord] = []
    ever, always, source_wrong, unwritten, copied = 0, WORD_MASK, 0, 0, 0
    for first, end in ranges:
        for begin in range(first // WORD, end // WORD, _CHUNK):
            indices = np.arange(begin, min(begin + _CHUNK, end // WORD), dtype=np.uint64)
            expected = indices * np.uint64(STEP) + np.uint64(key & WORD_MASK)
            actual, held = (_words(base, begin, indices.size) for base in (destination, source))
            (wrong,) = np.nonzero(actual != expected)
            if not wrong.size:
                continue
            due, got, had = expected[wrong], actual[wrong], held[wrong]
            ever |= int(np.bitwise_or.reduce(due ^ got))
            always &= int(np.bitwise_and.reduce(due ^ got))
            left = got == np.uint64(before & WORD_MASK)
            source_wrong += int(np.count_nonzero(had != due))
            unwritten += int(np.count_nonzero(left))
            copied += int(np.count_nonzero(~left & (got == had)))
            most = MOST_LISTED - len(listed)
            columns = (array[:most].tolist() for array in (indices[wrong], due, got, had))
            listed += [
                WrongWord(index, right, now, of_source, before & WORD_MASK)
                for index, right, now, of_source in zip(*columns, strict=True)
            ]
    return WrongWords(tuple(listed), ever, always, source_wrong, unwritten, copied)


def _words(base: int, begin: int, count: int) -> Words:
    """Words of a buffer, without a copy."""
    memory = (ctypes.c_char * (WORD * count)).from_address(base + WORD * begin)
    return np.frombuffer(memoryview(memory), np.uint64)


#: Values in the sources of arithmetic, with exact results. Other operations use the words.
_KINDS = {
    **dict.fromkeys((Operation.SCALE, Operation.ADD, Operation.TRIAD), kernels.DOUBLES),
    Operation.SAXPY: kernels.FLOATS,
}


def fill(bounds: Sequence[BoundTransfer], run: Run) -> None:
    """Write the patterns of all sources and destinations, and build missing cycles."""
    tasks: Tasks = []
    for bound in bounds:
        if bound.transfer.operation is Operation.CHASE:
            _provide_cycle(bound, run)
            continue
        if bound.entries is not None:
            tasks += _filling_blocks(bound)
            continue
        kind = _kind(bound)
        for source, key in zip(bound.sources if bound.fills else (), bound.keys, strict=False):
            source.holds = None
            tasks += [
                (cpu, partial(kernels.fill, source.address, begin // WORD, end // WORD, kind, key))
                for cpu, begin, end in bound.helped()
            ]
    run(tasks, "filling the sources")
    poison(bounds, run)


def _filling_blocks(bound: BoundTransfer) -> Tasks:
    """Tasks that fill the source of a list, so that its blocks make one pattern in the destination."""
    scattered, source = bound.transfer.scattered, bound.sources[0]
    assert scattered is not None
    source.holds = None
    parts = bound.lists(len(bound.helpers))
    return [
        (cpu, partial(kernels.fill_blocks, source.address, *part, scattered.block, bound.keys[0]))
        for cpu, part in zip(bound.helpers, parts, strict=True)
    ]


def poison(bounds: Sequence[BoundTransfer], run: Run) -> None:
    """Write a pattern that no operation produces to all destinations, with the stores of the operation.

    So the caches are in the same state as after a sample: buffers that exceed them leave nothing to be
    written back during the next sample.
    """
    tasks: Tasks = []
    for bound in bounds:
        if bound.destination is not None and bound.verifies:
            bound.destination.holds = None
            tasks += [
                (cpu, partial(kernels.once, WRITE, bound.streaming, *bound.addresses(begin),
                              signed(bound.keys[2]), end - begin, 0))
                for cpu, begin, end in bound.helped()
            ]  # fmt: skip
    run(tasks, "filling the destinations")


def verify(bound: BoundTransfer, table: Table, run: Run) -> None:
    """Compare a transfer's result with the expected content after the last sample.

    Args:
        bound: The transfer.
        table: Rows written by its threads.
        run: Runs tasks.

    Raises:
        VerificationError: If a word differs. If the sum of a read or the final position of a chase is wrong,
            its source is compared; if no word of the source is wrong, all words count as wrong.
    """
    if not bound.verifies:
        return
    check = {Operation.CHASE: _check_chase, Operation.READ: _check_sums}.get(
        bound.transfer.operation, _check_words
    )
    check(bound, table, run)


def _check_words(bound: BoundTransfer, table: Table, run: Run) -> None:
    assert bound.destination is not None
    ranges = [
        (cpu, begin, begin + min(_amount(table, row), end - begin)) for cpu, row, begin, end in bound.shares()
    ] if bound.rows and bound.entries is None else list(bound.helped())  # fmt: skip
    _compare(bound, bound.destination.address, ranges, _expected(bound), run)


def _check_sums(bound: BoundTransfer, table: Table, run: Run) -> None:
    key = bound.keys[0]

    def due(begin: int, end: int, amount: int) -> int:
        passes, further = divmod(amount, max(end - begin, 1))
        whole, part = (int(kernels.total(begin // WORD, to // WORD, key)) for to in (end, begin + further))
        return signed(passes * whole + part)

    shares = list(bound.shares())
    sums = run([(cpu, partial(due, begin, end, _amount(table, row))) for cpu, row, begin, end in shares],
               "summing the data to be read")  # fmt: skip
    if sums != [_carry(table, row) for _, row, _, _ in shares]:
        ranges = [(cpu, begin, end) for cpu, _, begin, end in shares]
        _compare(bound, bound.sources[0].address, ranges, (kernels.WORDS, STEP, key, 0, 1, 0), run)
        raise _all_wrong(bound)


def _check_chase(bound: BoundTransfer, table: Table, run: Run) -> None:
    if _carry(table, bound.rows[0]) != bound.start:
        bound.sources[0].holds = None
        differences = _walk(bound, run, build=False)
        wrong, first = sum(n for n, _ in differences), min(lowest for _, lowest in differences)
        if wrong:
            raise VerificationError(str(bound.transfer), first * WORD, wrong, bound.lines, bound.transfer.way)
        raise _all_wrong(bound)


def _provide_cycle(bound: BoundTransfer, run: Run) -> None:
    source, holds = bound.sources[0], (bound.bytes, bound.keys[0])
    if source.holds != holds:
        source.holds = None
        _walk(bound, run, build=True)
        source.holds = holds


def _walk(bound: BoundTransfer, run: Run, *, build: bool) -> list[tuple[int, int]]:
    """Build or check a cycle; return for each part the number of wrong words and the first one's index."""
    address, key = bound.sources[0].address, bound.keys[0]
    tasks: Tasks = [
        (cpu, partial(kernels.cycle, address, bound.lines, begin // LINE, end // LINE, key, build))
        for cpu, begin, end in bound.helped()
    ]
    return run(tasks, "building a cycle" if build else "checking a cycle")


def _kind(bound: BoundTransfer) -> int:
    return _KINDS.get(bound.transfer.operation, kernels.WORDS)


def _expected(bound: BoundTransfer) -> tuple[int, ...]:
    """The arguments of ``kernels.count_wrong`` that describe the content of a destination."""
    operation, scalar, (first, second, _) = bound.transfer.operation, bound.scalar, bound.keys
    if operation is Operation.WRITE:
        return kernels.WORDS, 0, scalar & WORD_MASK, 0, 1, 0
    a = scalar if operation in (Operation.SCALE, Operation.SAXPY) else 1
    b = {Operation.ADD: 1, Operation.TRIAD: scalar, Operation.SAXPY: 1}.get(operation, 0)
    return _kind(bound), STEP, first, second, a, b


def _compare(
    bound: BoundTransfer,
    address: int,
    ranges: list[tuple[int, int, int]],
    expected: tuple[int, ...],
    run: Run,
) -> None:
    """Raise VerificationError if a word in the byte ranges is wrong; each range has its CPU."""

    def count(begin: int, end: int) -> int:
        return int(kernels.count_wrong(address, begin // WORD, end // WORD, *expected))

    counts = run([(cpu, partial(count, begin, end)) for cpu, begin, end in ranges], "comparing")
    for (_, begin, end), wrong in zip(ranges, counts, strict=True):
        if wrong:
            while end - begin > WORD:
                middle = (begin + end) // 2 // WORD * WORD
                begin, end = (begin, middle) if count(begin, middle) else (middle, end)
            words = sum(end - begin for _, begin, end in ranges) // WORD
            found = None
            if bound.transfer.operation is Operation.COPY and bound.fills and bound.entries is None:
                parts = [(start, stop) for _, start, stop in ranges]
                key, _, before = bound.keys
                found = examined(address, bound.sources[0].address, parts, key, signed(before))
            raise VerificationError(str(bound.transfer), begin, sum(counts), words, bound.transfer.way, found)


def _all_wrong(bound: BoundTransfer) -> VerificationError:
    words = bound.bytes // WORD
    return VerificationError(str(bound.transfer), 0, words, words, bound.transfer.way)


def _amount(table: Table, row: int) -> int:
    return int(table[row, kernels.AMOUNT // WORD])


def _carry(table: Table, row: int) -> int:
    return int(table[row, kernels.CARRY // WORD])
