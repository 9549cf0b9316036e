"""Host memory in a job of several processes: buffers and gate in shared memory, threads in each process."""

from __future__ import annotations

import os
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

from ...errors import BackendError, MeasurementTimeout, OutOfMemory, starting_threads
from ...measurement import Measurement
from ...model import Transfer
from ...units import format_size
from ...worlds.descriptors import Descriptors, SharedMemory
from ..distributed.job_process import Allocation, Endpoint, Handle, JobContext, LocalTransfer, fetched, offer
from . import kernels
from .bound_transfer import LINE, SharedBuffers, whole_lines
from .memory import RESERVE_BYTES
from .prepared import HostPrepared
from .procfs import available_bytes
from .threads import Workers, shared_gate

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

        return Allocation(memory.address, size, release, inner=memory)

    def export(self, allocation: Allocation) -> Handle:
        """Serve its descriptor."""
        return offer(self._descriptors, os.dup(allocation.inner.descriptor), allocation, self.name)

    def open(self, place: Any, handle: Handle) -> Allocation:
        """Fetch the descriptor and map the memory."""
        del place
        with fetched(handle, self._timeout) as descriptor:
            memory = SharedMemory(descriptor, handle.bytes)
        return Allocation(memory.address, handle.bytes, memory.unmap)


class HostEndpoint(Endpoint):
    """CPUs and memory of one process.

    The shared page of the host contains two gates, used in turn: while a round runs, the first process of
    the host resets the gate of the next round.
    """

    starts_together = False

    def __init__(self, job: JobContext, workers: Workers) -> None:
        super().__init__(job)
        self.mechanisms = {SHM: ShmSharing(job.descriptors, job.options.timeout)}
        self.cpus = job.cpus
        self.cpu = job.cpus[0]
        self.workers = workers
        self.gate = shared_gate(job.page.address, job.options.timeout)
        self._page = job.page  # unmapped when it is no longer referenced
        self._leads = job.place[0] == 0
        self._waiter = ThreadPoolExecutor(1, "arm")
        self._arrival: Future[int] | None = None

    def bind(self, pieces: Sequence[LocalTransfer]) -> HostPrepared:
        measurement = Measurement(tuple(piece.transfer for piece in pieces), ())
        buffers = SharedBuffers(pieces, self.cpus, self.options.seed)
        prepared = HostPrepared(measurement, self.options, buffers, self.gate, self.workers)
        prepared.bind()
        return prepared

    def size(self, transfer: Transfer) -> int:
        return whole_lines(transfer)

    def begin(self) -> None:
        """Switch to the next gate; the first process resets the one after it."""
        self.gate.begin(resets=self._leads)

    def release(self, arriving: int) -> None:
        kernels.open_gate(self.gate.address, arriving)

    def arrive(self) -> None:
        """Make a thread wait at the gate."""

        def wait() -> int:
            kernels.arrive(self.gate.address)
            return int(kernels.clock())

        with starting_threads():
            self._arrival = self._waiter.submit(wait)

    def arrived(self) -> int:
        assert self._arrival is not None
        return self._arrival.result(2 * self.options.timeout)

    def wait(self) -> None:
        status = kernels.arrive(self.gate.address)
        if status == kernels.TIMED_OUT:
            raise MeasurementTimeout("waiting at the start barrier of this host", self.options.timeout)
        if status == kernels.CANCELLED:
            raise BackendError("the messages were cancelled")

    def cancel(self) -> None:
        """Release all threads of the host, in this round and in the next one."""
        self.gate[kernels.CANCEL] = kernels.CANCELLED

    def close(self) -> None:
        """End the waiting thread."""
        self._waiter.shutdown(wait=False)
