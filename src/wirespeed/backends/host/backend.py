"""Host memory in a job of several processes: buffers and gate in shared memory, threads in each process.

The backend that measures CPU memory.

Buffers in host memory.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from importlib.metadata import version
from typing import Any

import numpy as np

from ...errors import BackendError, MeasurementTimeout, OutOfMemory, starting_threads
from ...hardware.topology import Machine
from ...measurement import Measurement
from ...model import Engine, MemoryKind, Operation, Transfer
from ...options import RunOptions
from ...tables import Quantity, State
from ...units import format_size
from ...worlds.admission import Descriptors, SharedMemory
from ..base import Backend
from ..distributed.endpoint import (
    Allocation,
    Endpoint,
    Handle,
    JobContext,
    LocalTransfer,
    Mechanism,
    fetched,
    offer,
)
from ..tree import HERE, TreePath
from . import kernels, nic_facts
from .bound_transfer import LINE, PoolBuffers, SharedBuffers, whole_lines
from .host_discovery import huge_page_mode
from .load import CpuLoad, available_bytes, number, read
from .memory import RESERVE_BYTES, HostBufferPool
from .prepared import HostPrepared
from .threads import Workers, private_gate, shared_gate

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


_HZ_PER_KHZ = 1e3


class HostBackend(Backend):
    """Backend for transfers of the engine ``cpu`` on pinned threads, in memory bound to NUMA nodes.

    The first ``prepare`` compiles the kernels, or loads them from numba's cache.

    Attributes:
        machine: Machine that this process runs on, as ``topology.discover`` describes it.
    """

    name = "host"
    #: Long compared with the clock (25 ns) and the start skew (1 µs), short enough for many samples.
    sample_seconds = 2e-3

    def __init__(self, machine: Machine) -> None:
        super().__init__()
        self._machine = machine
        self._workers = Workers()
        self._pool = HostBufferPool(several=len(machine.numa) > 1)
        self._last: HostPrepared | None = None
        self._load: CpuLoad | None = None

    def refuses_transfer(self, transfer: Transfer) -> str:
        nodes = {node.name for node in self._machine.numa}
        ends = (transfer.source, transfer.destination)
        if transfer.engine is not Engine.CPU:
            return f"the host backend has no engine {transfer.engine}"
        if transfer.executor.rank is not None or any(end.rank is not None for end in ends):
            return "the host backend cannot measure between processes"
        for end in ends:
            if end.device not in nodes or end.kind is not MemoryKind.PAGEABLE:
                return f"{end.kind} memory of {end.device} does not belong to this host"
        if transfer.operation is Operation.HAXPY:
            return "CPUs do not compute in half precision; use saxpy"
        if transfer.operation is Operation.SIGNAL:
            return "a signal is between two GPUs"
        if transfer.also:
            return "CPUs write to one memory"
        if not transfer.executor.cpus:
            return f"{transfer.executor} has no CPUs"
        if transfer.operation is Operation.CHASE and len(transfer.executor.cpus) > 1:
            return "a chase uses exactly one CPU"
        if transfer.scattered is not None and (transfer.is_paced or transfer.pace != 1):
            return "a block list runs at full speed"
        if not 0 < transfer.pace <= 1:
            return f"pace must be above 0 and at most 1, not {transfer.pace}"
        return ""

    def prepare(self, measurement: Measurement, options: RunOptions) -> HostPrepared:
        gate = private_gate(sum(len(t.executor.cpus) for t in measurement.transfers), options.timeout)
        buffers = PoolBuffers(self._pool, self._machine, options)
        prepared = HostPrepared(measurement, options, buffers, gate, self._workers)
        self._last = prepared
        prepared.bind()
        cpus = {cpu for t in measurement.transfers for cpu in t.executor.cpus}
        if options.affinity:
            for cpu in sorted(cpus & self._workers.unpinned.keys()):
                why = self._workers.unpinned[cpu]
                self.warn(f"could not pin a thread to CPU {cpu} ({why}); it may migrate")
        for node in sorted({buffer.node for buffer in buffers.taken if not buffer.checked}):
            self.warn(f"cannot verify that memory is on numa{node}: /proc/self/numa_maps has no information")
        return prepared

    def holds(self, device: str) -> bool:
        return any(node.name == device for node in self._machine.numa)

    def side(self, job: JobContext) -> HostEndpoint:
        return HostEndpoint(job, self._workers)

    def renew(self) -> None:
        self._pool.renew()

    def state(self, root: TreePath = HERE) -> State:
        """The readings that affect memory speed, as far as the kernel reports them."""
        state: list[Quantity] = []
        for node in self._machine.numa:
            for cpu in node.cpus[:1]:  # reading a frequency can interrupt the CPU
                folder = root / f"sys/devices/system/cpu/cpu{cpu}/cpufreq"
                if (kilohertz := number(folder / "scaling_cur_freq")) is not None:
                    state.append(Quantity(f"cpu{cpu}", "frequency", kilohertz * _HZ_PER_KHZ, "Hz"))
                if (governor := read(folder / "scaling_governor")) is not None:
                    state.append(Quantity(f"cpu{cpu}", "governor", governor))
        if (load := read(root / "proc/loadavg")) is not None:
            state.append(Quantity("", "load average of 1 minute", float(load.split()[0])))
        if (balancing := read(root / "proc/sys/kernel/numa_balancing")) is not None:
            state.append(Quantity("", "NUMA balancing", balancing))
        if huge := huge_page_mode(root):
            state.append(Quantity("", "transparent huge pages", huge))
        if (available := available_bytes(root)) is not None:
            state.append(Quantity("", "available memory", float(available), "B"))
        return tuple(state)

    def counters(self) -> State:
        """The errors that the ports of the NICs have counted."""
        return tuple(nic_facts.counters())

    def busy(self) -> dict[str, str]:
        """The CPU use of other processes since the last call, the same for every NUMA node."""
        if self._load is None:
            cpus = [cpu for node in self._machine.numa for cpu in node.cpus]
            self._load = CpuLoad(cpus, threads=self._workers.threads)
        use = self._load.busy()
        return {node.name: use for node in self._machine.numa if node.cpus} if use else {}

    def libraries(self) -> dict[str, str]:
        return {name: version(name) for name in ("numba", "llvmlite", "numpy")}

    def cancel(self) -> None:
        if self._last is not None:
            self._last.cancel()

    def close(self) -> None:
        """End the threads and unmap all memory, unless a stuck thread may still write to it."""
        if self._workers.close():
            self._pool.close()


class HostBuffers:
    """Memory of the process from ``malloc``, whose pages exist when they are first written.

    Attributes:
        timeout: Maximum time to open another process' memory, in s.
    """

    where: Any = None

    def __init__(self, timeout: float) -> None:
        self._timeout = timeout
        self._held: dict[int, Any] = {}
        self._descriptors: Descriptors | None = None

    def allocate(self, size: int) -> int:
        """Allocate memory and return its address."""
        try:
            array = np.empty(size, np.uint8)
        except MemoryError as error:
            raise OutOfMemory(
                f"a buffer of {format_size(size)} in host memory: {error}; give a smaller size"
            ) from error
        self._held[array.ctypes.data] = array
        return int(array.ctypes.data)

    def free(self, address: int) -> None:
        """Free memory."""
        del self._held[address]

    def write(self, address: int, data: Any) -> None:
        """Copy an array to an address."""
        ctypes.memmove(address, data.ctypes.data, data.nbytes)

    def read(self, address: int, size: int) -> Any:
        """A copy of ``size`` bytes at an address."""
        content = np.empty(size, np.uint8)
        ctypes.memmove(content.ctypes.data, address, size)
        return content

    def copy(self, destination: int, source: int, size: int) -> None:
        """Copy with this thread."""
        ctypes.memmove(destination, source, size)

    def sharing(self, mechanism: str) -> Mechanism:
        """A mechanism that shares host memory."""
        if mechanism != SHM:
            raise BackendError(f"host memory is shared by {SHM}, not by {mechanism}")
        if self._descriptors is None:
            self._descriptors = Descriptors()
        return ShmSharing(self._descriptors, self._timeout)

    def close(self) -> None:
        """Free all memory."""
        self._held.clear()
        if self._descriptors is not None:
            self._descriptors.close()
