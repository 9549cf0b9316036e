"""A Measurement of CPUs bound to buffers and threads: run, time and verify it."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from functools import partial
from itertools import count
from typing import Any

import numpy as np

from ...errors import BackendError, BackendLost, MeasurementTimeout, WirespeedError
from ...measurement import Measurement, Sample
from ...model import Operation, Role
from ...options import RunOptions
from ...units import NANO
from ..base import Prepared
from . import kernels
from .bound_transfer import BoundTransfer, BufferSource, Tasks, chase_unit
from .contents import fill, poison, verify
from .kernels import CHASE, WORD
from .threads import HostGate, RunningTasks, Task, Workers


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
                bound.scalar, size, carry, amount, bound.chunk(size), bound.transfer.pace,
            )))  # fmt: skip
        return tasks

    def _read_table(self) -> Sample:
        starts, ends = self._column(kernels.START), self._column(kernels.END)
        amounts = self._column(kernels.AMOUNT)
        last = begin = self.gate[kernels.RELEASED]
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
