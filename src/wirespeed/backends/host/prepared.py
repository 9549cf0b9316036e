"""Compare a destination with its source, once a word is known to be wrong.

Contents of buffers: patterns before a sample, and verification after it.

A Measurement bound to buffers and threads: run, time and verify it.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterable, Sequence
from contextlib import suppress
from functools import partial
from itertools import count
from typing import Any

import numpy as np

from ...errors import (
    MOST_LISTED,
    BackendError,
    BackendLost,
    MeasurementTimeout,
    VerificationError,
    WirespeedError,
    WrongWord,
    WrongWords,
)
from ...measurement import Measurement, Sample
from ...model import Operation, Role
from ...options import RunOptions
from ...units import NANO
from ..base import Prepared
from ..test_data import STEP, WORD_MASK
from . import kernels
from .bound_transfer import LINE, BoundTransfer, BufferSource, Run, Tasks, chase_unit, signed
from .kernels import CHASE, WORD, WRITE
from .threads import HostGate, RunningTasks, Task, Workers

#: Words that are compared at a time.
_CHUNK = 2**20
Words = np.ndarray[Any, np.dtype[np.uint64]]


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


Table = np.ndarray[Any, np.dtype[np.int64]]

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


class HostPrepared(Prepared):
    """A Measurement with its buffers and threads; ``bind`` makes it ready.

    Buffers consist of whole lines of 64 bytes: other sizes are rounded up, and the amounts of a Sample count
    the moved bytes.

    ``prepare`` poisons the destinations, and so does the first sample after a ``verify``; therefore the next
    sample is verified word by word. Of several samples without a ``verify`` in between, the last one is still
    verified completely for scale, triad, write, read and chase, because their factor, constant, sum or
    position changes with each sample. For copy and add, it is only known that one of the samples wrote each
    word, and that none left it wrong. A load may end in the middle of a pass; the range of its first pass is
    verified.

    Attributes:
        bound: Transfers with their buffers, in the order of the Measurement.
        table: Results of the threads.
        buffers: Where the buffers come from.
        gate: Where the threads wait for each other.
    """

    def __init__(
        self,
        measurement: Measurement,
        options: RunOptions,
        buffers: BufferSource,
        gate: HostGate,
        workers: Workers,
    ) -> None:
        self.gate = gate
        self.bound: tuple[BoundTransfer, ...] = ()
        self.table = np.zeros((0, kernels.ROW // WORD), np.int64)
        self._repeats: Sequence[int] = (1,) * len(measurement.transfers)
        self._measurement, self._options = measurement, options
        self._buffers, self._workers = buffers, workers
        self._running: RunningTasks[Any] | None = None
        self._samples = 0
        self._stale = False  # whether the destinations contain verified data
        self._cancelled = False

    def bind(self) -> None:
        """Allocate and fill the buffers.

        Raises:
            BackendError: If there is not enough memory, it is on a wrong node, or the preparation was
                cancelled.
        """
        rows = count()
        try:
            self.bound = tuple(
                self._buffers.bind(i, transfer, rows, self._run)
                for i, transfer in enumerate(self._measurement.transfers)
            )
            self.table = np.zeros((next(rows), kernels.ROW // WORD), np.int64)
            fill(self.bound, self._run)
            for bound in self.bound:
                self._warm_up(bound)
        except BackendLost:  # threads still use the buffers
            raise
        except BaseException:
            self._buffers.give_back()
            raise

    def __exit__(self, *_: object) -> None:
        self.abandon()
        self._buffers.give_back()

    def cancel(self) -> None:
        """Make a running sample return soon, and reject all further work."""
        self._cancelled = True
        self.gate.cancel()

    def abandon(self) -> None:
        """End a sample that was started but not finished."""
        if self._running is not None:
            self.gate.cancel()
            with suppress(WirespeedError):
                self._running.results()
            self._running = None

    def sample(self, copies: int) -> Sample:
        """Run every measured transfer ``copies`` times from a common start, with the loads running.

        A copy of a chase is 2**20 accesses up to 256 KiB, 2**17 up to 4 MiB, 2**15 above; each sample
        continues where the previous one stopped.
        """
        self.gate.begin(running=sum(len(b.rows) for b in self.bound if b.transfer.role is Role.MEASURED))
        self.arm(copies)
        return self.finish()

    def repeat(self, times: Sequence[int]) -> None:
        """From now on, make the copies of each transfer several times."""
        self._repeats = times

    def arm(self, copies: int, beside: Sequence[tuple[int, Task[Any]]] = ()) -> None:
        """Start the threads; they wait at the gate, and so do tasks beside them."""
        if self._stale:
            poison(self.bound, self._run)
            self._stale = False
        self._samples += 1
        counts = zip(self.bound, (copies * times for times in self._repeats), strict=True)
        tasks = [task for bound, count in counts if bound.rows for task in self._timed(bound, count)]
        # The gate has its own time-out; the work after it has the same time again.
        self._running = self._start(
            [*tasks, *beside], f"running {self._measurement}", 2 * self._options.timeout
        )

    def finish(self) -> Sample:
        """Wait for the threads, and return the times of the transfers that they executed."""
        assert self._running is not None
        running, self._running = self._running, None
        running.results()
        statuses = self._column(kernels.STATUS)
        if kernels.TIMED_OUT in statuses:
            arrived = self.gate[kernels.ARRIVED]
            stage = f"waiting at the start barrier of {self._measurement} ({arrived} threads arrived)"
            raise MeasurementTimeout(stage, self._options.timeout)
        if self._cancelled or kernels.CANCELLED in statuses:
            raise self._was_cancelled()
        return self._read_table()

    def verify(self) -> None:
        """Compare the result of the last sample with the expected content; see the class for the details."""
        for bound in self.bound:
            verify(bound, self.table, self._run)
        self._stale = True

    def _warm_up(self, bound: BoundTransfer) -> None:
        """Follow a cycle that fits into a cache once, so that it is cached when the first sample starts."""
        if bound.transfer.operation is Operation.CHASE and bound.cached:
            steps = bound.lines // kernels.CHASE_STEP_ACCESSES * kernels.CHASE_STEP_ACCESSES
            task = partial(kernels.once, CHASE, 0, 0, 0, 0, 0, steps, bound.start)
            self._run([(bound.transfer.executor.cpus[0], task)], "warming up the caches")
            bound.step = steps % bound.lines

    def _timed(self, bound: BoundTransfer, copies: int) -> Tasks:
        """The tasks of one transfer's threads in a sample."""
        tasks: Tasks = []
        bound.draw_scalar(self._samples)
        chase = bound.transfer.operation is Operation.CHASE
        measured = bound.transfer.role is Role.MEASURED
        amount = copies if measured else kernels.ENDLESS
        parts = bound.lists(len(bound.rows)) if bound.entries is not None else ()
        for i, (cpu, row, begin, end) in enumerate(bound.shares()):
            size, carry = (chase_unit(bound.bytes), bound.start) if chase else (end - begin, 0)
            addresses = bound.addresses(begin)
            if parts:
                entries, first, last = parts[i]
                size, addresses = last - first, (*bound.addresses(0)[:2], entries + kernels.ENTRY * first)
            tasks.append((cpu, partial(
                kernels.work, self.gate.address, self._address(row), bound.code, bound.stores, *addresses,
                bound.scalar, size, carry, amount, *bound.schedule(size),
            )))  # fmt: skip
        return tasks

    def _read_table(self) -> Sample:
        starts, ends = self._column(kernels.START), self._column(kernels.END)
        amounts = self._column(kernels.AMOUNT)
        starts_s = [b.transfer.start for b in self.bound if b.transfer.role is Role.MEASURED]
        last = begin = self.gate[kernels.RELEASED] + round(min(starts_s, default=0.0) / NANO)
        seconds, moved = [], []
        for bound in self.bound:
            if not bound.rows:
                continue
            end = max(ends[row] for row in bound.rows)
            seconds.append(max(1, end - min(starts[row] for row in bound.rows)) * NANO)
            unit = bound.transfer.scattered.block if bound.transfer.scattered else 1
            moved.append(float(unit * sum(amounts[row] for row in bound.rows)))
            if bound.transfer.operation is Operation.CHASE:
                bound.step = (bound.step + amounts[bound.rows[0]]) % bound.lines
            if bound.transfer.role is Role.MEASURED:
                last = max(last, end)
        return Sample(tuple(seconds), tuple(moved), max(1, last - begin) * NANO)

    def _start(self, tasks: Sequence[tuple[int, Task[Any]]], stage: str, timeout: float) -> RunningTasks[Any]:
        if self._cancelled:
            raise self._was_cancelled()
        return self._workers.start(
            tasks, pin=self._options.affinity, timeout=timeout, stage=stage, stop=self.gate.cancel
        )

    def _run(self, tasks: Tasks, stage: str) -> list[Any]:
        return self._start(tasks, stage, self._options.timeout).results()

    def _was_cancelled(self) -> BackendError:
        return BackendError(f"{self._measurement} was cancelled")

    def _address(self, row: int) -> int:
        return int(self.table.ctypes.data) + row * kernels.ROW

    def _column(self, field: int) -> list[int]:
        return [int(value) for value in self.table[:, field // WORD]]
