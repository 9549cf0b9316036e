"""Host memory in a job of several processes: buffers and gate in shared memory, threads in each process.

The backend that measures CPU memory.

Buffers in host memory.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

import numpy as np

from ...errors import BackendError, MeasurementTimeout, OutOfMemory, starting_threads
from ...hardware.topology import Machine
from ...measurement import Measurement
from ...model import Engine, Memory, MemoryKind, Operation, Role, Transfer
from ...options import RunOptions
from ...tables import Quantity, State
from ...units import NANO, format_size
from ...worlds.admission import Descriptors, SharedMemory
from ...worlds.mpi import Messages, MessagesRefused, Move
from ..base import Backend
from ..distributed.endpoint import JobContext, LocalTransfer, TransferTiming
from ..distributed.exchange import MPI
from ..shared_memory import Allocation, Handle, Mechanism, Opened, fetched, offer
from ..tree import HERE, TreePath
from . import kernels, nic_facts
from .bound_transfer import LINE, SharedBuffers, whole_lines
from .gate import shared_gate
from .load import CpuLoad, available_bytes, number, read
from .memory import RESERVE_BYTES, HostBufferPool
from .prepared import HostPrepared
from .threads import Workers

if TYPE_CHECKING:
    from ..distributed.endpoint import JobContext
    from .prepared import HostPrepared

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

    def refuses(self, measurement: Measurement) -> str | None:
        if not measurement.transfers or measurement.is_mixed:
            return ""  # other backends run what is no transfer
        for transfer in measurement.transfers:
            if reason := self._refuses(transfer):
                return f"{transfer}: {reason}"
        if all(t.role is Role.LOAD for t in measurement.transfers):
            return "no transfer is measured"
        return None

    def _refuses(self, transfer: Transfer) -> str:
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
        from .bound_transfer import PoolBuffers
        from .gate import private_gate
        from .prepared import HostPrepared

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
        if (huge := read(root / "sys/kernel/mm/transparent_hugepage/enabled")) is not None:
            chosen = huge.partition("[")[2].partition("]")[0]
            state.append(Quantity("", "transparent huge pages", chosen))
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
