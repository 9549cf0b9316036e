"""A Measurement bound to buffers and threads: run, time and verify it."""

from __future__ import annotations

from functools import partial
from typing import Any, Self

import numpy as np

from ...errors import BackendError, MeasurementTimeout
from ...model import BUFFERS, Measurement, Memory, Operation, Role, Sample, Transfer
from ...topology import Machine
from ...units import NANO
from ..base import BackendOptions
from . import fill_verify as contents
from . import kernels
from .bound_transfer import WORD, BoundTransfer, bypasses, chase_unit, mixed, split, whole_lines
from .kernel_codes import CHASE
from .memory import HostBuffer, HostBufferPool
from .threads import Workers

_GATE_ROWS = kernels.ROWS // kernels.ROW


class HostPrepared:
    """A Measurement with its buffers and threads; ``bind`` makes it ready.

    Buffers consist of whole lines of 64 bytes: other sizes are rounded up, and the amounts of a Sample count
    the moved bytes.

    ``prepare`` poisons the destinations, and so does the first sample after a ``verify``; therefore the next
    sample is verified word by word. Of several samples without a ``verify`` in between, the last one is still
    verified completely for scale, triad, write, read and chase, because their factor, constant, sum or
    position changes with each sample. For copy and add, it is only known that one of the samples wrote each
    word, and that none left it wrong. A load may end in the middle of a pass; the range of its first pass is
    verified.

    Attributes
    ----------
    bound : list[BoundTransfer]
        Transfers with their buffers, in the order of the Measurement.
    table
        Words shared by the threads: first the rows of the gate, then one row per thread.
    """

    def __init__(
        self,
        machine: Machine,
        measurement: Measurement,
        options: BackendOptions,
        pool: HostBufferPool,
        workers: Workers,
    ) -> None:
        self._machine = machine
        self._measurement = measurement
        self._options = options
        self._pool = pool
        self._workers = workers
        self._samples = 0
        self._stale = False  # whether the destinations contain verified data
        self._cancelled = False
        self.bound: tuple[BoundTransfer, ...] = ()
        self._taken: list[HostBuffer] = []
        threads = sum(len(t.executor.cpus) for t in measurement.transfers)
        self.table = np.zeros((_GATE_ROWS + threads, kernels.ROW // WORD), np.int64)
        self._set(kernels.EXPECTED, threads)
        self._set(kernels.TIMEOUT_NS, round(options.timeout / NANO))

    def bind(self) -> None:
        """Allocate and fill the buffers.

        Raises
        ------
        BackendError
            If there is not enough memory, it is on a wrong node, or the preparation was cancelled.
        """
        rows = iter(range(_GATE_ROWS, len(self.table)))
        try:
            self.bound = tuple(
                self._bound(i, transfer, tuple(next(rows) for _ in transfer.executor.cpus))
                for i, transfer in enumerate(self._measurement.transfers)
            )
            contents.fill(self.bound, self._run)
            for bound in self.bound:
                self._warm_up(bound)
        except BaseException:
            self._give_back()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._give_back()

    @property
    def unchecked(self) -> list[int]:
        """Nodes for which the kernel did not report where the memory is."""
        return sorted({buffer.node for buffer in self._taken if not buffer.checked})

    def cancel(self) -> None:
        """Make a running sample return soon, and reject all further work."""
        self._cancelled = True
        self._stop()

    def sample(self, copies: int) -> Sample:
        """Run every measured transfer ``copies`` times from a common start, with the loads running.

        A copy of a chase is 2**20 accesses up to 256 KiB, 2**17 up to 4 MiB, 2**15 above; each sample
        continues where the previous one stopped.

        Raises
        ------
        MeasurementTimeout
            If not all threads arrived at the gate, or ended, in time.
        BackendError
            If it was cancelled.
        """
        if self._stale:
            contents.poison(self.bound, self._run)
            self._stale = False
        self._samples += 1
        for row in (kernels.ARRIVED, kernels.RELEASED, kernels.CANCEL):
            self._set(row, 0)
        measured = [b for b in self.bound if b.transfer.role is Role.MEASURED]
        self._set(kernels.RUNNING, sum(len(b.rows) for b in measured))
        tasks = [task for bound in self.bound for task in self._timed(bound, copies)]
        # The gate has its own time-out; the work after it has the same time again.
        self._run(tasks, f"running {self._measurement}", 2 * self._options.timeout)
        statuses = self._column(kernels.STATUS)[_GATE_ROWS:]
        if kernels.TIMED_OUT in statuses:
            arrived = self._column(kernels.START)[kernels.ARRIVED // kernels.ROW]
            stage = f"waiting at the gate of {self._measurement} ({arrived} threads arrived)"
            raise MeasurementTimeout(stage, self._options.timeout)
        self._refuse_if_cancelled()
        return self._read_table()

    def verify(self) -> None:
        """Compare the result of the last sample with the expected content; see the class for the details.

        Raises
        ------
        VerificationError
            For the first transfer with a wrong word.
        """
        for bound in self.bound:
            contents.verify(bound, self.table, self._run)
        self._stale = True

    def _bound(self, index: int, transfer: Transfer, rows: tuple[int, ...]) -> BoundTransfer:
        chase, cpus = transfer.operation is Operation.CHASE, transfer.executor.cpus
        sources, destinations = BUFFERS[transfer.operation]
        # Cycles of equal size have the same key, so that the next Measurement can reuse them.
        keys = [mixed(self._options.seed, 0 if chase else index + 1, i) for i in range(3)]
        holds = (whole_lines(transfer), keys[0]) if chase else None
        return BoundTransfer(
            index,
            transfer,
            rows,
            helpers=(self._cpus_of(transfer.source) or cpus) if chase else cpus,
            sources=tuple(self._take(transfer.source, transfer, holds) for _ in range(sources)),
            destination=self._take(transfer.destination, transfer) if destinations else None,
            keys=(keys[0], keys[1], keys[2]),
            streaming=bypasses(transfer, self._machine),
        )

    def _take(self, memory: Memory, transfer: Transfer, holds: tuple[int, ...] | None = None) -> HostBuffer:
        node = next(n.index for n in self._machine.numa if n.name == memory.device)
        cpus = self._cpus_of(memory) or transfer.executor.cpus

        def touch(buffer: HostBuffer) -> None:
            parts = zip(cpus, split(buffer.bytes, len(cpus)), strict=True)
            tasks: contents.Tasks = [
                (cpu, partial(kernels.touch, buffer.address, *part)) for cpu, part in parts
            ]
            self._run(tasks, f"touching memory of {memory}")

        buffer = self._pool.take(node, whole_lines(transfer), touch, holds)
        self._taken.append(buffer)
        return buffer

    def _cpus_of(self, memory: Memory) -> tuple[int, ...]:
        return next(node.cores for node in self._machine.numa if node.name == memory.device)

    def _warm_up(self, bound: BoundTransfer) -> None:
        """Follow a cycle that fits into a cache once, so that it is cached when the first sample starts."""
        if bound.transfer.operation is Operation.CHASE and bound.bytes <= self._machine.last_cache_bytes():
            steps = bound.lines // kernels.CHASE_STEP * kernels.CHASE_STEP
            task = partial(kernels.once, CHASE, 0, 0, 0, 0, 0, steps, bound.start)
            self._run([(bound.transfer.executor.cpus[0], task)], "warming up the caches")
            bound.step = steps % bound.lines

    def _timed(self, bound: BoundTransfer, copies: int) -> contents.Tasks:
        """Return the tasks of one transfer's threads in a sample."""
        tasks: contents.Tasks = []
        bound.draw_scalar(self._samples)
        chase = bound.transfer.operation is Operation.CHASE
        measured = bound.transfer.role is Role.MEASURED
        kernel, last = (kernels.measure, copies) if measured else (kernels.disturb, bound.transfer.pace)
        for cpu, row, begin, end in bound.shares():
            size, carry = (chase_unit(bound.bytes), bound.start) if chase else (end - begin, 0)
            tasks.append((cpu, partial(
                kernel, self._address(0), self._address(row), bound.code, bound.streaming,
                *bound.addresses(begin), bound.scalar, size, carry, last,
            )))  # fmt: skip
        return tasks

    def _read_table(self) -> Sample:
        starts, ends = self._column(kernels.START), self._column(kernels.END)
        amounts = self._column(kernels.AMOUNT)
        released = starts[kernels.RELEASED // kernels.ROW]
        seconds, moved, last = [], [], released
        for bound in self.bound:
            end = max(ends[row] for row in bound.rows)
            seconds.append(max(1, end - min(starts[row] for row in bound.rows)) * NANO)
            moved.append(float(sum(amounts[row] for row in bound.rows)))
            if bound.transfer.operation is Operation.CHASE:
                bound.step = (bound.step + amounts[bound.rows[0]]) % bound.lines
            if bound.transfer.role is Role.MEASURED:
                last = max(last, end)
        return Sample(tuple(seconds), tuple(moved), max(1, last - released) * NANO)

    def _run(self, tasks: contents.Tasks, stage: str, timeout: float | None = None) -> list[Any]:
        self._refuse_if_cancelled()
        return self._workers.run(
            tasks, pin=self._options.affinity, timeout=timeout or self._options.timeout, stage=stage,
            stop=self._stop,
        )  # fmt: skip

    def _stop(self) -> None:
        self._set(kernels.CANCEL, kernels.CANCELLED)

    def _refuse_if_cancelled(self) -> None:
        if self._cancelled:
            raise BackendError(f"{self._measurement} was cancelled")

    def _give_back(self) -> None:
        for buffer in self._taken:
            self._pool.give(buffer)
        self._taken.clear()

    def _address(self, row: int) -> int:
        return int(self.table.ctypes.data) + row * kernels.ROW

    def _set(self, row: int, value: int) -> None:
        self.table[row // kernels.ROW, 0] = value

    def _column(self, field: int) -> list[int]:
        return [int(value) for value in self.table[:, field // WORD]]
