"""The backend that measures the CPUs' memory."""

from __future__ import annotations

import time
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING

from ...model import Engine, Measurement, MemoryKind, Operation, Role, Transfer
from ...topology import Machine
from ..base import BackendOptions
from .load import CpuLoad
from .memory import BufferPool
from .procfs import available_bytes, number, read
from .threads import Workers

if TYPE_CHECKING:
    from ..ranks.base import Job
    from .prepared import HostPrepared
    from .side import HostSide

_KILO = 1e3


class HostBackend:
    """Runs transfers of the engine ``cpu`` on pinned threads, in memory bound to NUMA nodes.

    The first ``prepare`` compiles the kernels, or loads them from numba's cache.

    Parameters
    ----------
    machine
        The machine that this process runs on, as ``topology.discover`` describes it.
    """

    name = "host"
    #: Long against the clock (25 ns) and the skew of the start (1 µs), short enough for many samples.
    sample_seconds = 2e-3

    def __init__(self, machine: Machine) -> None:
        self.warnings: list[str] = []
        self._machine = machine
        self._workers = Workers()
        self._pool = BufferPool(several=len(machine.numa) > 1)
        self._last: HostPrepared | None = None
        self._load: CpuLoad | None = None

    def refuses(self, measurement: Measurement) -> str | None:
        """Return why the Measurement cannot run here, None if it can."""
        if not measurement.transfers:
            return ""  # other backends run what is no transfer
        for transfer in measurement.transfers:
            if reason := self._refuses(transfer):
                return f"{transfer}: {reason}"
        if all(t.role is Role.LOAD for t in measurement.transfers):
            return "nothing in it is measured"
        return None

    def _refuses(self, transfer: Transfer) -> str | None:
        nodes = {node.name for node in self._machine.numa}
        ends = (transfer.source, transfer.destination)
        if transfer.engine is not Engine.CPU:
            return f"the host backend has no engine {transfer.engine}"
        if transfer.executor.rank is not None or any(end.rank is not None for end in ends):
            return "the host backend knows no other processes"
        for end in ends:
            if end.device not in nodes or end.kind is not MemoryKind.PAGEABLE:
                return f"{end.kind} memory of {end.device} is not this host's"
        if not transfer.executor.cpus:
            return f"{transfer.executor} has no CPUs"
        if transfer.operation is Operation.CHASE and len(transfer.executor.cpus) > 1:
            return "a chase runs on one CPU"
        if not 0 < transfer.pace <= 1:
            return f"a pace must be more than 0 and at most 1, not {transfer.pace}"
        return None

    def prepare(self, measurement: Measurement, options: BackendOptions) -> HostPrepared:
        """Take and fill the buffers of a Measurement and start its threads.

        Raises
        ------
        BackendError
            If there is not enough memory, if it does not lie on its node, or if it was cancelled.
        """
        from .prepared import HostPrepared  # compiles the kernels

        prepared = HostPrepared(self._machine, measurement, options, self._pool, self._workers)
        self._last = prepared
        prepared.bind()
        cpus = {cpu for t in measurement.transfers for cpu in t.executor.cpus}
        if options.affinity:
            for cpu in sorted(cpus & self._workers.unpinned.keys()):
                why = self._workers.unpinned[cpu]
                self._warn(f"a thread could not be pinned to CPU {cpu} ({why}); it may wander")
        for node in prepared.unchecked:
            self._warn(f"whether memory lies on numa{node} is not known: /proc/self/numa_maps is silent")
        return prepared

    def holds(self, device: str) -> bool:
        """Return whether a device is a NUMA node of this host."""
        return any(node.name == device for node in self._machine.numa)

    def side(self, job: Job) -> HostSide:
        """Return this process' part of the hardware in a job of several."""
        from .side import HostSide

        return HostSide(job, self._workers)

    def now(self) -> float:
        """Seconds of the monotonic clock."""
        return time.monotonic()

    def state(self, root: Path = Path("/")) -> dict[str, float | str]:
        """Return what influences memory speed now; what the kernel does not say is left out."""
        state: dict[str, float | str] = {}
        for node in self._machine.numa:
            for cpu in node.cpus[:1]:  # asking for a frequency can interrupt the CPU
                folder = root / f"sys/devices/system/cpu/cpu{cpu}/cpufreq"
                if (kilohertz := number(folder / "scaling_cur_freq")) is not None:
                    state[f"frequency of CPU {cpu} [Hz]"] = kilohertz * _KILO
                if (governor := read(folder / "scaling_governor")) is not None:
                    state[f"governor of CPU {cpu}"] = governor
        if (load := read(root / "proc/loadavg")) is not None:
            state["load average of 1 minute"] = float(load.split()[0])
        if (balancing := read(root / "proc/sys/kernel/numa_balancing")) is not None:
            state["NUMA balancing"] = balancing
        if (huge := read(root / "sys/kernel/mm/transparent_hugepage/enabled")) is not None:
            state["transparent huge pages"] = huge.partition("[")[2].partition("]")[0]
        if (available := available_bytes(root)) is not None:
            state["available memory [B]"] = float(available)
        return state

    def busy(self) -> dict[str, str]:
        """Return what other processes took of the CPUs since the last call, the same for every NUMA node."""
        if self._load is None:
            self._load = CpuLoad([cpu for node in self._machine.numa for cpu in node.cpus])
        found = self._load.busy()
        return {node.name: found for node in self._machine.numa if node.cpus} if found else {}

    def libraries(self) -> dict[str, str]:
        """Return the versions of the libraries that it measures with."""
        return {name: version(name) for name in ("numba", "llvmlite", "numpy")}

    def cancel(self) -> None:
        """Make what another thread prepares or samples end soon, with BackendError."""
        if self._last is not None:
            self._last.cancel()

    def close(self) -> None:
        """End the threads and unmap all memory; not where a thread hangs that may still write to it."""
        if self._workers.close():
            self._pool.close()

    def _warn(self, message: str) -> None:
        if message not in self.warnings:
            self.warnings.append(message)
