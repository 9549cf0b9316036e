"""Host memory in a job of several processes: buffers and gate in shared memory, threads in each process."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from typing import Any

from ...errors import BackendError, MeasurementTimeout, OutOfMemory, starting_threads
from ...measurement import Measurement
from ...model import Memory, Transfer
from ...units import NANO, format_size
from ...worlds.descriptors import Descriptors, SharedMemory
from ...worlds.mpi import Messages, MessagesRefused, Move
from ..distributed.endpoint import JobContext, LocalTransfer, TransferTiming
from ..distributed.transports import MPI
from ..shared_memory import Allocation, Handle, Opened, fetched, offer
from . import kernels
from .bound_transfer import LINE, whole_lines
from .buffer_sources import SharedBuffers
from .gate import shared_gate
from .memory import RESERVE_BYTES
from .prepared import HostPrepared
from .procfs import available_bytes
from .threads import Workers

SHM = "shm"


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
        if free is not None and free - RESERVE_BYTES < size:
            raise OutOfMemory(
                f"not enough memory: requested a buffer of {format_size(size)}, "
                f"{format_size(max(0, free - RESERVE_BYTES))} is available; choose a smaller size"
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

    The shared page of the host contains two gates, used in turn: while a round runs, the first process of
    the host resets the gate of the next round.
    """

    means: tuple[str, ...] = (SHM,)
    plain = SHM

    def __init__(self, job: JobContext, workers: Workers) -> None:
        self.options = job.options
        self.cpus = job.cpus
        self.workers = workers
        self.messenger: Messages | None = None
        self.gate = shared_gate(job.page.address, job.options.timeout)
        self._page = job.page  # unmapped when it is no longer referenced
        self._leads = job.place[0] == 0
        self._sharing = ShmSharing(job.descriptors, job.options.timeout)
        self._world = job.world
        self._waiter = ThreadPoolExecutor(1, "arm")
        self._arrival: Future[int] | None = None

    def sharing(self, means: str) -> ShmSharing:
        """The only mechanism."""
        assert means == SHM
        return self._sharing

    def place(self, memory: Memory) -> Any:
        """None: pages are placed where threads first write them."""
        del memory

    def can_send(self, means: str) -> tuple[str, bytes]:
        """Why MPI cannot carry messages; empty if it can."""
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

    def begin(self) -> None:
        """Switch to the next gate; the first process resets the one after it."""
        self.gate.begin(resets=self._leads)

    def threads(self, transfers: Sequence[Transfer], messengers: int) -> int:
        """The number of arrivals: every CPU of an executor, and one thread for all messages."""
        return sum(len(t.executor.cpus) for t in transfers) + messengers

    def release(self, arriving: int) -> None:
        """Open the gate when all threads have arrived."""
        kernels.open_gate(self.gate.address, arriving)

    def arrive(self) -> None:
        """Make a thread wait at the gate."""

        def wait() -> int:
            kernels.arrive(self.gate.address)
            return int(kernels.clock())

        with starting_threads():
            self._arrival = self._waiter.submit(wait)

    def arrived(self) -> int:
        """When it was released, in ns."""
        assert self._arrival is not None
        return self._arrival.result(2 * self.options.timeout)

    def cancel(self) -> None:
        """Release all threads of the host, in this round and in the next one."""
        self.gate[kernels.CANCEL] = kernels.CANCELLED

    def close(self) -> None:
        """End the waiting thread."""
        self._waiter.shutdown(wait=False)


class HostPart:
    """Part of a Measurement that one process executes, fills or verifies."""

    def __init__(self, side: HostEndpoint, pieces: Sequence[LocalTransfer]) -> None:
        self._side = side
        self._pieces = pieces
        self._copied = [piece for piece in pieces if piece.moves and piece.means != MPI]
        self._sent = [piece for piece in pieces if piece.means == MPI]
        self._arrived: list[TransferTiming] = []
        measurement = Measurement(tuple(piece.transfer for piece in pieces), ())
        buffers = SharedBuffers(pieces, side.cpus, side.options.seed)
        self._prepared = HostPrepared(measurement, side.options, buffers, side.gate, side.workers)

    def fill(self) -> None:
        """Fill the sources and poison the destinations of this process."""
        self._prepared.bind()

    def repeat(self, times: Mapping[int, int]) -> None:
        """From now on, make the copies of some transfers several times."""
        self._prepared.repeats = [times.get(piece.index, 1) for piece in self._pieces]

    def arm(self, copies: int) -> None:
        """Start the threads of this process; they wait at the gate."""
        gate = self._side.gate.address
        self._prepared.arm(
            copies, [(self._side.cpus[0], partial(self._send, copies, gate))] * bool(self._sent)
        )

    def finish(self) -> list[TransferTiming]:
        """Wait for the threads and read their results."""
        sample = self._prepared.finish()
        times = zip(self._copied, sample.seconds, sample.amounts, strict=True)
        return [
            TransferTiming(p.index, seconds, amount, seconds) for p, seconds, amount in times
        ] + self._arrived

    def verify(self) -> None:
        """Verify the destinations of this process."""
        self._prepared.verify()

    def abandon(self) -> None:
        """Release the threads, and wait until they have ended."""
        self._prepared.abandon()

    def close(self) -> None:
        """End threads that still wait; the buffers belong to the job."""
        self._prepared.abandon()

    def _send(self, copies: int, gate: int) -> None:
        """Send and receive, starting at the release.

        Raises:
            MeasurementTimeout, BackendError: If the gate was not opened in time, or the copies were
                cancelled.
        """
        assert self._side.messenger is not None
        moves = [Move(p.address, whole_lines(p.transfer), p.peer, p.index, p.owns_source) for p in self._sent]
        status = kernels.arrive(gate)
        if status == kernels.TIMED_OUT:
            raise MeasurementTimeout("waiting at the start barrier of this host", self._side.options.timeout)
        if status == kernels.CANCELLED:
            raise BackendError("the messages were cancelled")
        start = kernels.clock()
        self._side.messenger.move(moves, copies)
        seconds = (kernels.clock() - start) * NANO
        self._arrived = [
            TransferTiming(p.index, seconds, float(move.bytes * copies), seconds)
            for p, move in zip(self._sent, moves, strict=True)
        ]
