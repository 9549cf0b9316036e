"""Host memory in a job of several processes: buffers and gate in shared memory, threads in each process."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from typing import Any

import numpy as np

from ...errors import BackendError, MeasurementTimeout, OutOfMemory, VerificationError
from ...model import Memory, Transfer
from ...units import NANO, format_size
from ...worlds.descriptors import Descriptors, SharedMemory
from ...worlds.mpi import Messages, MessagesRefused, Move
from ..distributed.endpoint import JobContext, LocalTransfer, TransferTiming
from ..distributed.transports import MPI
from ..shared_memory import Allocation, Handle, Opened, fetched, offer
from . import kernels
from .bound_transfer import LINE, WORD, mixed, signed, split
from .kernel_codes import COPY, WRITE
from .procfs import available_bytes
from .threads import Workers

SHM = "shm"
#: Memory that is left to other processes.
_RESERVE = 128 * 2**20
_GATE = kernels.ROWS
_NEVER = -1
#: Rows that belong to a task.
_ROW_WORDS = kernels.ROW // WORD


class ShmSharing:
    """Anonymous shared memory; its descriptor is passed over a Unix socket of the host."""

    name = SHM

    def __init__(self, descriptors: Descriptors, timeout: float) -> None:
        self._descriptors, self._timeout = descriptors, timeout

    def allocate(self, place: Any, size: int) -> Allocation:
        """Allocate memory; its pages are placed where they are first written."""
        del place
        size = -(-size // LINE) * LINE
        free = available_bytes()
        if free is not None and free - _RESERVE < size:
            raise OutOfMemory(
                f"not enough memory: requested a buffer of {format_size(size)}, "
                f"{format_size(max(0, free - _RESERVE))} is available; choose a smaller size"
            )
        try:
            memory = SharedMemory.create(size)
        except OSError as error:
            raise OutOfMemory(f"{format_size(size)} of shared memory: {error.strerror}") from error

        def release() -> None:
            memory.unmap()
            os.close(memory.descriptor)

        return Allocation(None, memory.address, size, memory, release)

    def export(self, allocation: Allocation) -> Handle:
        """Serve its descriptor."""
        return offer(self._descriptors, os.dup(allocation.inner.descriptor), allocation, self.name)

    def open(self, place: Any, handle: Handle) -> Opened:
        """Fetch the descriptor and map the memory."""
        del place
        with fetched(handle, self._timeout) as descriptor:
            memory = SharedMemory(descriptor, handle.bytes)
        return Opened(memory.address, handle.bytes, memory.unmap)


class HostEndpoint:
    """CPUs and memory of one process.

    The gate is that of ``kernels``, in the shared page of the host, twice: while a round runs, the first
    process of the host prepares the other one for the next round.
    """

    means = (SHM,)
    plain = SHM

    def __init__(self, job: JobContext, workers: Workers) -> None:
        self.options = job.options
        self.cpus = job.cpus
        self.workers = workers
        self._sharing = ShmSharing(job.descriptors, job.options.timeout)
        self._page = np.ctypeslib.as_array(
            (ctypes.c_int64 * (job.page.bytes // WORD)).from_address(job.page.address)
        )
        self._mapping = job.page  # unmapped when it is no longer referenced
        self._address = job.page.address
        self._leads = job.place[0] == 0
        self._round = 0
        self._world = job.world
        self.messenger: Messages | None = None
        self._waiter = ThreadPoolExecutor(1, "arm")
        self._arrival: Future[int] | None = None
        if self._leads:
            self._reset(0)
            self._reset(1)

    def sharing(self, means: str) -> ShmSharing:
        """Return the only mechanism."""
        assert means == SHM
        return self._sharing

    def place(self, memory: Memory) -> Any:
        """Return None: pages are placed where threads first write them."""
        del memory

    def can_send(self, means: str) -> tuple[str, bytes]:
        """Return why MPI cannot carry messages; empty if it can."""
        if means != MPI:
            return f"{means} cannot move host memory", b""
        try:
            self.messenger = Messages(self._world)
        except MessagesRefused as error:
            return str(error), b""
        return "", b""

    def connect(self, means: str, told: Sequence[bytes]) -> None:
        """Do nothing: MPI is connected when it starts."""

    def part(self, pieces: Sequence[LocalTransfer]) -> HostPart:
        """Bind the pieces of a Measurement."""
        return HostPart(self, pieces)

    @property
    def table(self) -> int:
        """Address of the gate of this round."""
        return self._address + self._round % 2 * _GATE

    def begin(self) -> None:
        """Switch to the next gate, and let the first process prepare the one after it."""
        self._round += 1
        if self._leads:
            self._reset((self._round + 1) % 2)

    def threads(self, transfers: Sequence[Transfer], messengers: int) -> int:
        """Return the number of arrivals: every CPU of an executor, and one thread for all messages."""
        return sum(len(t.executor.cpus) for t in transfers) + messengers

    def release(self, arriving: int) -> None:
        """Open the gate when all threads have arrived."""
        kernels.open_gate(self.table, arriving)

    def arrive(self) -> None:
        """Make a thread wait at the gate."""

        def wait() -> int:
            kernels.arrive(self.table)
            return int(kernels.clock())

        self._arrival = self._waiter.submit(wait)

    def arrived(self) -> int:
        """Return when it was released, in ns."""
        assert self._arrival is not None
        return self._arrival.result(2 * self.options.timeout)

    def cancel(self) -> None:
        """Release all threads of the host."""
        for i in (0, 1):
            self._set(i, kernels.CANCEL, kernels.CANCELLED)

    def close(self) -> None:
        """End the waiting thread."""
        self._waiter.shutdown(wait=False)

    def _reset(self, which: int) -> None:
        self._set(which, kernels.ARRIVED, 0)
        self._set(which, kernels.EXPECTED, _NEVER)
        self._set(which, kernels.RELEASED, 0)
        self._set(which, kernels.CANCEL, 0)
        self._set(which, kernels.RUNNING, 0)
        self._set(which, kernels.TIMEOUT_NS, round(self.options.timeout / NANO))

    def _set(self, which: int, row: int, value: int) -> None:
        self._page[(which * _GATE + row) // WORD] = value


class HostPart:
    """Part of a Measurement that one process copies, fills and compares."""

    def __init__(self, side: HostEndpoint, pieces: Sequence[LocalTransfer]) -> None:
        self._side = side
        self._pieces = list(pieces)
        self._copied = [piece for piece in pieces if piece.moves and piece.means != MPI]
        self._sent = [piece for piece in pieces if piece.means == MPI]
        #: A row for each thread: those of each copy, then the one that sends and receives.
        threads = len(side.cpus) * len(self._copied)
        self._rows = np.zeros((threads + bool(self._sent), _ROW_WORDS), np.int64)
        self._runner = ThreadPoolExecutor(1, "measure")
        self._running: Future[list[Any]] | None = None
        self._stale = False

    def fill(self) -> None:
        """Write the pattern of each source, and poison each destination."""
        tasks = []
        for piece in self._pieces:
            if piece.owns_source:
                tasks += [
                    (
                        cpu,
                        partial(
                            kernels.fill_words, piece.source, begin // WORD, end // WORD, self._key(piece)
                        ),
                    )
                    for cpu, begin, end in self._shares(piece)
                ]
        self._run(tasks, "filling the sources")
        self._poison()

    def arm(self, copies: int) -> None:
        """Start the tasks of this process; they wait at the gate."""
        if self._stale:
            self._poison()
            self._stale = False
        rows = iter(range(len(self._rows)))
        tasks = [task for piece in self._copied for task in self._timed(piece, copies, rows)]
        if self._sent:
            tasks.append((self._side.cpus[0], partial(self._send, copies, self._side.table)))
        timeout = 2 * self._side.options.timeout
        self._running = self._runner.submit(self._run, tasks, "running copies between processes", timeout)

    def finish(self) -> list[TransferTiming]:
        """Wait for the tasks and read their results."""
        assert self._running is not None
        self._running.result()
        statuses = self._rows[:, kernels.STATUS // WORD]
        if kernels.TIMED_OUT in statuses:
            raise MeasurementTimeout("waiting at the gate of this host", self._side.options.timeout)
        if kernels.CANCELLED in statuses:
            raise BackendError("the copies were cancelled")
        timings = []
        threads = len(self._side.cpus)
        for i, piece in enumerate((*self._copied, *self._sent)):
            first = min(i, len(self._copied)) * threads
            rows = self._rows[first : first + threads] if i < len(self._copied) else self._rows[first:]
            start, end = rows[:, kernels.START // WORD].min(), rows[:, kernels.END // WORD].max()
            seconds = max(1, int(end - start)) * NANO
            amount = float(rows[:, kernels.AMOUNT // WORD].sum())
            if piece.means == MPI:
                amount *= self._size(piece)  # the row counts copies
            timings.append(TransferTiming(piece.index, seconds, amount, seconds))
        return timings

    def verify(self) -> None:
        """Verify the destinations of this process word by word."""
        self._stale = True
        for piece in self._pieces:
            if not piece.owns_destination:
                continue
            shares = list(self._shares(piece))

            def count(begin: int, end: int, piece: LocalTransfer = piece) -> int:
                address, key = piece.destination, self._key(piece)
                return int(kernels.count_words(address, begin // WORD, end // WORD, key, kernels.STEP))

            counts = self._run([(cpu, partial(count, begin, end)) for cpu, begin, end in shares], "comparing")
            for (_, begin, end), wrong in zip(shares, counts, strict=True):
                if wrong:
                    raise VerificationError(
                        str(piece.transfer), _first(count, begin, end), sum(counts), self._size(piece) // WORD
                    )

    def abandon(self) -> None:
        """Release the threads, and wait until they have ended."""
        self._side.cancel()
        if self._running is not None:
            self._running.exception()

    def close(self) -> None:
        """End the thread that waits for the others."""
        self._runner.shutdown(wait=False)

    def _poison(self) -> None:
        tasks = [
            (cpu, partial(kernels.once, WRITE, 1, piece.destination + begin, 0, 0,
                          signed(mixed(self._side.options.seed, piece.index + 1, 2)), end - begin, 0))
            for piece in self._pieces if piece.owns_destination
            for cpu, begin, end in self._shares(piece)
        ]  # fmt: skip
        self._run(tasks, "filling the destinations")

    def _timed(self, piece: LocalTransfer, copies: int, rows: Any) -> list[tuple[int, Callable[[], Any]]]:
        table, base = self._side.table, int(self._rows.ctypes.data)
        return [
            (cpu, partial(kernels.measure, table, base + next(rows) * kernels.ROW, COPY, 1,
                          piece.destination + begin, piece.source + begin, 0, 0, end - begin, 0, copies))
            for cpu, begin, end in self._shares(piece)
        ]  # fmt: skip

    def _send(self, copies: int, table: int) -> None:
        """Send and receive, starting at the release."""
        assert self._side.messenger is not None
        moves = [Move(p.address, self._size(p), p.peer, p.index, p.owns_source) for p in self._sent]
        status = kernels.arrive(table)
        start = kernels.clock()
        if status == kernels.DONE:
            self._side.messenger.move(moves, copies)
        row = self._rows[-1]
        row[kernels.START // WORD], row[kernels.END // WORD] = start, kernels.clock()
        row[kernels.AMOUNT // WORD], row[kernels.STATUS // WORD] = copies, status

    def _shares(self, piece: LocalTransfer) -> list[tuple[int, int, int]]:
        cpus = self._side.cpus
        parts = split(self._size(piece), len(cpus))
        return [(cpu, begin, end) for cpu, (begin, end) in zip(cpus, parts, strict=True)]

    def _size(self, piece: LocalTransfer) -> int:
        return -(-piece.transfer.bytes // LINE) * LINE

    def _key(self, piece: LocalTransfer) -> int:
        return mixed(self._side.options.seed, piece.index + 1, 0)

    def _run(
        self, tasks: Sequence[tuple[int, Callable[[], Any]]], stage: str, timeout: float | None = None
    ) -> list[Any]:
        options = self._side.options
        return self._side.workers.run(
            tasks, pin=options.affinity, timeout=timeout or options.timeout, stage=stage,
            stop=self._side.cancel,
        )  # fmt: skip


def _first(count: Callable[[int, int], int], begin: int, end: int) -> int:
    """Return the offset of the first wrong word in a range that contains one."""
    while end - begin > WORD:
        middle = (begin + end) // 2 // WORD * WORD
        begin, end = (begin, middle) if count(begin, middle) else (middle, end)
    return begin
