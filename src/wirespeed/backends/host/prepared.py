"""A Measurement bound to buffers and threads: it runs, times and verifies."""

from __future__ import annotations

from functools import partial
from typing import Any, Self

import numpy as np

from ...errors import BackendError, MeasurementTimeout
from ...model import BUFFERS, Measurement, Memory, Operation, Role, Sample, Transfer
from ...topology import Machine
from ...units import NANO
from ..base import BackendOptions
from . import contents, kernels
from .bound import WORD, Bound, bypasses, chase_unit, mixed, split, whole_lines
from .memory import Buffer, BufferPool
from .operations import CHASE
from .threads import Workers

_GATE_ROWS = kernels.ROWS // kernels.ROW


class HostPrepared:
    """A Measurement with its buffers and threads; ``bind`` makes it ready.

    Buffers are worked on in whole lines of 64 bytes: a size that is not a multiple is rounded up, and
    the amounts of a Sample count what was moved.

    What ``verify`` catches: destinations are poisoned by ``prepare``, and again before the first
    sample after a ``verify``, so the sample that follows either is checked word by word. Of several
    samples without a ``verify`` between them, the last one is still checked in full if it is a scale,
    a triad, a write, a read or a chase (its factor, constant, sum or place is another each time); of a
    copy or an add it is then only known that one of them wrote each word, and none left it wrong. Of a
    load, which ends in the middle of a pass, what its first pass reached is checked.

    Attributes
    ----------
    bound
        The transfers with their buffers, in the order of the Measurement.
    table
        What the threads share: rows of words, first those of the gate, then one for each thread.
    """

    def __init__(
        self,
        machine: Machine,
        measurement: Measurement,
        options: BackendOptions,
        pool: BufferPool,
        workers: Workers,
    ) -> None:
        self._machine = machine
        self._measurement = measurement
        self._options = options
        self._pool = pool
        self._workers = workers
        self._samples = 0
        self._stale = False  # whether the destinations hold what was verified
        self._cancelled = False
        self.bound: tuple[Bound, ...] = ()
        self._taken: list[Buffer] = []
        threads = sum(len(t.executor.cpus) for t in measurement.transfers)
        self.table = np.zeros((_GATE_ROWS + threads, kernels.ROW // WORD), np.int64)
        self._set(kernels.EXPECTED, threads)
        self._set(kernels.TIMEOUT_NS, round(options.timeout / NANO))

    def bind(self) -> None:
        """Take and fill the buffers.

        Raises
        ------
        BackendError
            If there is not enough memory, if it does not lie on its node, or if it was cancelled.
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
        """Nodes of which the kernel did not say whether the memory is there."""
        return sorted({buffer.node for buffer in self._taken if not buffer.checked})

    def cancel(self) -> None:
        """Make a sample under way return soon, and refuse to do anything from now on."""
        self._cancelled = True
        self._stop()

    def sample(self, copies: int) -> Sample:
        """Run every measured transfer ``copies`` times from a common start, the loads meanwhile.

        A copy of a chase is 2**20 accesses up to 256 KiB, 2**17 up to 4 MiB, 2**15 above; each sample
        goes on where the one before it stopped.

        Raises
        ------
        MeasurementTimeout
            If not all threads came to the gate, or did not end, in time.
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
        # The gate has the time-out to itself; what runs after it has as much again.
        self._run(tasks, f"running {self._measurement}", 2 * self._options.timeout)
        statuses = self._column(kernels.STATUS)[_GATE_ROWS:]
        if kernels.TIMED_OUT in statuses:
            arrived = self._column(kernels.START)[kernels.ARRIVED // kernels.ROW]
            stage = f"waiting at the gate of {self._measurement} ({arrived} threads came)"
            raise MeasurementTimeout(stage, self._options.timeout)
        self._refuse_if_cancelled()
        return self._read_table()

    def verify(self) -> None:
        """Compare what the last sample left with what must be there; the class says what that catches.

        Raises
        ------
        VerificationError
            For the first transfer of which a word differs.
        """
        for bound in self.bound:
            contents.verify(bound, self.table, self._run)
        self._stale = True

    def _bound(self, index: int, transfer: Transfer, rows: tuple[int, ...]) -> Bound:
        chase, cpus = transfer.operation is Operation.CHASE, transfer.executor.cpus
        sources, destinations = BUFFERS[transfer.operation]
        # Cycles of one size have one key, so that the next Measurement finds them built.
        keys = [mixed(self._options.seed, 0 if chase else index + 1, i) for i in range(3)]
        holds = (whole_lines(transfer), keys[0]) if chase else None
        return Bound(
            index,
            transfer,
            rows,
            helpers=(self._cpus_of(transfer.source) or cpus) if chase else cpus,
            sources=tuple(self._take(transfer.source, transfer, holds) for _ in range(sources)),
            destination=self._take(transfer.destination, transfer) if destinations else None,
            keys=(keys[0], keys[1], keys[2]),
            streaming=bypasses(transfer, self._machine),
        )

    def _take(self, memory: Memory, transfer: Transfer, holds: tuple[int, ...] | None = None) -> Buffer:
        node = next(n.index for n in self._machine.numa if n.name == memory.device)
        cpus = self._cpus_of(memory) or transfer.executor.cpus

        def touch(buffer: Buffer) -> None:
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

    def _warm_up(self, bound: Bound) -> None:
        """Follow a cycle that fits into a cache once, so that it is there when the first sample begins."""
        if bound.transfer.operation is Operation.CHASE and bound.bytes <= self._machine.last_cache_bytes():
            steps = bound.lines // kernels.CHASE_STEP * kernels.CHASE_STEP
            task = partial(kernels.once, CHASE, 0, 0, 0, 0, 0, steps, bound.start)
            self._run([(bound.transfer.executor.cpus[0], task)], "warming up the caches")
            bound.step = steps % bound.lines

    def _timed(self, bound: Bound, copies: int) -> contents.Tasks:
        """The tasks of one transfer's threads in a sample."""
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
