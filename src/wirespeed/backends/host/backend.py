"""The backend that measures CPU memory."""

from __future__ import annotations

from importlib.metadata import version

from ...hardware.topology import Machine
from ...measurement import Measurement
from ...model import Engine, MemoryKind, Operation, Transfer
from ...options import RunOptions
from ...tables import Quantity, State
from ..base import Backend
from ..distributed.job_process import JobContext
from ..system_files import HERE, TreePath
from . import kernels, nic_facts
from .bound_transfer import PoolBuffers
from .host_discovery import huge_page_mode
from .job_process import HostEndpoint
from .load import CpuLoad
from .memory import HostBufferPool
from .prepared import HostPrepared
from .procfs import available_bytes, number, read
from .threads import Workers, private_gate

_HZ_PER_KHZ = 1e3


class HostBackend(Backend):
    """Backend for transfers of the engine ``cpu`` on pinned threads, in memory bound to NUMA nodes.

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
        if not transfer.executor.cpus:
            return f"{transfer.executor} has no CPUs"
        if transfer.operation is Operation.CHASE and len(transfer.executor.cpus) > 1:
            return "a chase uses exactly one CPU"
        if transfer.scattered is not None and transfer.pace != 1:
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
        return {"numpy": version("numpy"), "host kernels": kernels.build()}

    def cancel(self) -> None:
        if self._last is not None:
            self._last.cancel()

    def close(self) -> None:
        """End the threads and unmap all memory, unless a stuck thread may still write to it."""
        if self._workers.close():
            self._pool.close()
