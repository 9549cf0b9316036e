"""What backends that measure GPUs have in common; each has its driver and its monitor."""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any

from ...errors import BackendError, BackendLost, OutOfMemory
from ...hardware.devices import Gpu
from ...hardware.topology import Machine
from ...measurement import Measurement
from ...model import Access, Engine, Memory, MemoryKind, Method, Operation, Role, Transfer
from ...options import RunOptions
from ...tables import Quantity, State
from ...units import MIB, format_size
from .. import pci
from ..base import Backend, BackendDetails
from ..distributed.job_process import JobContext
from .bound_copy import Binder
from .contents import Contents
from .device import Device, Peers, process_name
from .gate import Gate
from .gpu_driver import GpuDriver, Monitor, driver_of
from .job_process import GpuEndpoint
from .launch_config import LIST_GRANULE, NODE, WORD, unfit
from .loaded_links import LoadedLinks
from .memory import GpuBufferPool
from .prepared import GpuPrepared, HostTimed, Signals
from .prepared_blocks import GpuBlocks

_CONFIDENTIAL = "the GPUs are in confidential computing mode"
#: Operations of an engine; the engine sm supports all, and others only copies.
_OPERATIONS = {
    Engine.SM_BULK: (Operation.COPY, Operation.CHASE),
    Engine.CUBLAS: (Operation.SAXPY, Operation.HAXPY, Operation.TRIAD),
}
#: cp.async.bulk.
_BULK_CAPABILITY = (9, 0)
#: Minimum duration of a sample for which several engines are tried: joining streams takes time.
_SPREAD_FROM_BYTES = 16 * MIB
_SPREAD_TRIALS = 3


def _refused_list(transfer: Transfer) -> str:
    """Why a block list cannot be moved; empty if it can."""
    scattered, kinds = transfer.scattered, {end.kind for end in transfer.ends}
    assert scattered is not None
    if MemoryKind.PAGEABLE in kinds:
        return "the blocks of a list are in pinned memory: the driver copies pageable memory through a buffer"
    if scattered.method is Method.STAGED and len(kinds) == 1:
        return "blocks are staged between host memory and a GPU"
    if transfer.operation is not Operation.COPY:
        return "a block list is copied"
    if scattered.block % LIST_GRANULE:
        return f"the size of a block must be a multiple of {LIST_GRANULE} B, not {scattered.block} B"
    return ""


class GpuBackend(Backend, ABC):
    """Backend for transfers of GPUs: copy engines, kernels, chases.

    Args:
        machine: Machine that this process runs on, with the GPUs of this backend.

    Attributes:
        title: Its name in messages.
    """

    name: str
    title: str
    #: Events have a resolution of 0.5 µs and a copy takes about 2 µs to start: 0.1% of this.
    sample_seconds = 4e-3

    def __init__(self, machine: Machine) -> None:
        super().__init__()
        self._machine = machine
        self._gpus = {gpu.name: gpu for gpu in machine.gpus}
        self._nodes = {node.name for node in machine.numa}
        self._unusable = self.unusable()
        self._devices: dict[str, Device] = {}
        self._contents: dict[str, Contents] = {}
        self._handles: Mapping[str, Any] = {}
        self._own: dict[str, set[int]] = {}
        self._engines: dict[Transfer, int] = {}
        self._signals = Signals()
        self._driver: GpuDriver | None = None
        self._open_monitor: Monitor | None = None
        self._loaded = LoadedLinks(machine, self._monitor)
        self._pool: GpuBufferPool | None = None
        self._peers = Peers()
        self._gate: Gate | None = None

    @abstractmethod
    def unusable(self) -> str:
        """Why the installed packages cannot measure GPUs, and what to do; empty if they can."""

    def without_blas(self) -> str:
        """Why there is no library of linear algebra, and what to do; empty if there is one."""
        return f"the {self.title} backend has no library of linear algebra"

    @abstractmethod
    def open_monitor(self) -> Monitor | None:
        """The library that reports the state of the GPUs; None if it cannot be used."""

    @abstractmethod
    def libraries(self) -> dict[str, str]:
        """The versions of the driver and of the libraries in use."""

    def refuses(self, measurement: Measurement) -> str | None:
        if (reason := super().refuses(measurement)) is not None:
            return reason
        if reason := _refused_together(measurement):
            return reason
        kinds = {end.kind for t in measurement.transfers for end in t.ends}
        if MemoryKind.PAGEABLE in kinds and len(measurement.transfers) > 1:
            return "copies of pageable memory run in the calling thread, so only one can run at a time"
        if any(map(self._is_encrypted, measurement.transfers)) and len(measurement.transfers) > 1:
            return f"{_CONFIDENTIAL}: the calling thread encrypts, so only one copy can run at a time"
        return self._unusable or None

    def refuses_transfer(self, transfer: Transfer) -> str:
        gpu = self._gpus.get(transfer.executor.device)
        for applies, reason in _REASONS:
            if found := applies(self, transfer, gpu):
                return reason.format(self=self, t=transfer, gpu=gpu, found=found)
        return ""

    def is_foreign(self, memory: Memory) -> bool:
        """Whether a memory does not belong to this machine."""
        return memory.device not in (self._gpus if memory.kind is MemoryKind.DEVICE else self._nodes)

    def no_peer(self, gpu: Gpu, memory: Memory) -> bool:
        """Whether a memory belongs to a GPU that another GPU cannot access."""
        return memory.device in self._gpus and memory.device not in (gpu.name, *gpu.peers)

    def answers(self, gpu: Gpu, transfer: Transfer) -> bool:
        """Whether the destination is memory of a GPU that can set a flag in memory of this one."""
        other = self._gpus.get(transfer.destination.device)
        both = transfer.source.kind is transfer.destination.kind is MemoryKind.DEVICE
        return both and transfer.source.device == gpu.name and other is not None and gpu.name in other.peers

    @property
    def confidential(self) -> bool:
        """Whether the GPUs are in confidential computing mode."""
        return self._machine.confidential

    def _is_encrypted(self, transfer: Transfer) -> bool:
        """Whether the driver encrypts a transfer, so that the host's clock times it."""
        return self.confidential and {end.kind for end in transfer.ends} != {MemoryKind.DEVICE}

    def prepare(self, measurement: Measurement, options: RunOptions) -> GpuPrepared:
        if reason := self.refuses(measurement):
            raise BackendError(reason)
        self._signals.cancelled.clear()
        engines = [self._spread(t, options) if options.all_engines else 1 for t in measurement.transfers]
        return self._prepare(measurement, engines, options)

    def _prepare(self, measurement: Measurement, engines: list[int], options: RunOptions) -> GpuPrepared:
        pool = self._buffers()
        if self._gate is None:
            first = self._device(measurement.transfers[0].executor.device)
            self._gate = Gate(first, options.timeout)

        def attempt(gate: Gate) -> GpuPrepared:
            binder = Binder(pool, self._device, self._contents_of, options, self._peers)
            kind = GpuBlocks if any(t.scattered for t in measurement.transfers) else GpuPrepared
            kind = HostTimed if any(map(self._is_encrypted, measurement.transfers)) else kind
            return kind(measurement, engines, binder, gate, self._signals, options)

        try:
            return attempt(self._gate)
        except OutOfMemory:
            if not pool.give_way():
                raise
            return attempt(self._gate)

    def _spread(self, transfer: Transfer, options: RunOptions) -> int:
        """Over how many copy engines a transfer is fastest: both ways are tried, once each."""
        if transfer.engine is not Engine.CE or transfer.bytes < _SPREAD_FROM_BYTES or transfer.scattered:
            return 1
        if self._is_encrypted(transfer):  # in one thread
            return 1
        if transfer not in self._engines:
            alone = Measurement((replace(transfer, role=Role.MEASURED),), ())
            times = {}
            for engines in (1, 2):
                with self._prepare(alone, [engines], options) as prepared:
                    times[engines] = min(prepared.sample(2).wall for _ in range(_SPREAD_TRIALS))
            self._engines[transfer] = min(times, key=lambda engines: times[engines])
        return self._engines[transfer]

    def holds(self, device: str) -> bool:
        return device in self._gpus

    def side(self, job: JobContext) -> GpuEndpoint:
        if self._unusable:
            raise BackendError(self._unusable)
        device = self._device(job.device)
        if users := self._users(device.gpu):
            self.warn(f"{job.device} is in use by {users}; values may be lower than its maximum")
        return GpuEndpoint(job, device, self._contents_of(device), self._buffers())

    def renew(self) -> None:
        if self._pool is not None:
            self._pool.renew()

    def state(self) -> State:
        """Clocks, temperatures, links and error counters of all GPUs from their monitor."""
        monitor = self._monitor()
        return tuple(quantity for gpu in self._machine.gpus for quantity in monitor.state(gpu))

    def counters(self) -> State:
        """Error counters that take several ms per GPU."""
        monitor = self._monitor()
        counted = [quantity for gpu in self._machine.gpus for quantity in monitor.counters(gpu)]
        for gpu in self._machine.gpus:
            for severity, count in zip(
                ("uncorrected", "corrected"), pci.errors(pci.entry(gpu.bus_id)), strict=True
            ):
                if count is not None:
                    counted.append(
                        Quantity(gpu.name, f"{severity} PCIe errors of all ports", count, counter=True)
                    )
        return tuple(counted)

    def observe(self, transfers: Sequence[Transfer]) -> None:
        """Look at the PCIe links of GPUs that copy from or to the host now."""
        self._loaded.observe(transfers)

    def describe(self) -> BackendDetails:
        """The facts of the links that were seen while they were in use."""
        return BackendDetails(facts=tuple(self._loaded.facts()))

    def busy(self) -> dict[str, str]:
        used = {gpu.name: self._users(gpu) for gpu in self._machine.gpus}
        return {name: f"in use by {users}" for name, users in used.items() if users}

    def cancel(self) -> None:
        self._signals.cancelled.set()
        if self._gate is not None:
            self._gate.release()

    def close(self) -> None:
        """Release memory, streams and contexts; unfinished GPU work ends with the process."""
        if self._signals.stuck.is_set():
            return
        with suppress(BackendLost):  # a lost device cannot release anything
            if self._pool is not None:
                self._pool.close()
            if self._gate is not None:
                self._gate.free()
            for contents in self._contents.values():
                contents.close()
            for device in self._devices.values():
                device.close()
        self._pool = self._gate = None
        self._peers = Peers()
        self._contents.clear()
        self._devices.clear()
        if self._open_monitor is not None:
            self._open_monitor.close()
            self._open_monitor = None

    def _device(self, name: str) -> Device:
        """A GPU with its context, which is created on first use."""
        if name not in self._devices:
            if self._driver is None:
                self._driver = driver_of(self.name)
            if not self._handles:
                self._handles = self._driver.devices()
            gpu = self._gpus[name]
            if gpu.bus_id not in self._handles:
                raise BackendError(
                    f"{self.title} does not let this process use {name} at {gpu.bus_id}; "
                    f"{self._driver.hidden_remedy}"
                )
            monitor = self._monitor()
            before = set(monitor.processes(gpu))
            try:
                self._devices[name] = Device(gpu, self._driver, self._handles[gpu.bus_id])
            except OutOfMemory as error:
                raise self._without_room(gpu, error) from error
            # In a container it may know this process by another PID: the one that came with the context.
            came = set(monitor.processes(gpu)) - before
            self._own[name] = {os.getpid()} if os.getpid() in came else {os.getpid(), *came}
        return self._devices[name]

    def _users(self, gpu: Gpu) -> str:
        own = self._own.get(gpu.name, {os.getpid()})
        used = self._monitor().processes(gpu)
        return ", ".join(process_name(pid, used[pid]) for pid in sorted(set(used) - own))

    def _without_room(self, gpu: Gpu, error: OutOfMemory) -> OutOfMemory:
        """Why a GPU has no memory for a context: who uses it."""
        memory = self._monitor().free_memory(gpu)
        free = f": {format_size(memory[0])} of {format_size(memory[1])} is free" if memory else ""
        users = self._users(gpu)
        remedy = f"in use by {users}; wait for it, or end it" if users else f"end what uses it ({error})"
        return OutOfMemory(f"not enough memory on {gpu.name} to begin{free}; {remedy}")

    def _buffers(self) -> GpuBufferPool:
        if self._pool is None:
            self._pool = GpuBufferPool(self._machine, self._device, self.warn)
        return self._pool

    def _contents_of(self, device: Device) -> Contents:
        if device.name not in self._contents:
            self._contents[device.name] = Contents(device)
        return self._contents[device.name]

    def _monitor(self) -> Monitor:
        if self._open_monitor is None:
            self._open_monitor = (None if self._unusable else self.open_monitor()) or Monitor()
        return self._open_monitor


def _refused_together(measurement: Measurement) -> str:
    """Why block lists cannot run with what runs at the same time; empty if they can."""
    transfers = measurement.transfers
    lists = [t for t in transfers if t.scattered is not None and t.role is Role.MEASURED]
    loads = [t for t in transfers if t.role is Role.LOAD]
    if len(transfers) == 1 or not any(t.scattered for t in transfers):
        return ""
    if len(lists) + len(loads) < len(transfers) or any(t.scattered for t in loads):
        return "a block list is measured with its submission, so only other lists can run with it"
    if len({t.scattered and t.scattered.method for t in lists}) > 1:
        return "block lists that are measured together have the same method"
    needed = {(Access.LOCAL, t.executor.device, Engine.SM) for t in lists}
    found = {(t.access, t.executor.device, t.engine) for t in loads}
    if loads and (len(loads) > 1 or found != needed):
        return "the load of a block list is one kernel in the memory of the GPU that moves it"
    return ""


def _lacks_bulk(_: GpuBackend, t: Transfer, gpu: Gpu) -> bool:
    capability = tuple(int(part) for part in gpu.compute_capability.split(".") if part)
    return t.engine is Engine.SM_BULK and capability < _BULK_CAPABILITY


def _not_supported(_: GpuBackend, t: Transfer, gpu: Gpu) -> str:
    does = _OPERATIONS.get(t.engine, (Operation.COPY,))
    return "" if t.engine is Engine.SM or t.operation in does else ", ".join(does)


#: In this order: when a GPU does not run a transfer, and why; ``found`` is what the condition returns.
_REASONS: tuple[tuple[Callable[[GpuBackend, Transfer, Any], Any], str], ...] = (
    (lambda b, t, gpu: t.engine is Engine.CPU, "the {self.title} backend has no engine cpu"),
    (lambda b, t, gpu: {t.executor.rank, *(end.rank for end in t.ends)} != {None},
     "the {self.title} backend cannot measure between processes"),
    (lambda b, t, gpu: gpu is None, "{t.executor} is not a GPU of this machine"),
    (lambda b, t, gpu: next(filter(b.is_foreign, t.ends), None),
     "{found.kind} memory of {found.device} does not belong to this machine"),
    (lambda b, t, gpu: next((end for end in t.ends if b.no_peer(gpu, end)), None),
     "{gpu.name} has no peer access to {found.device}"),
    (lambda b, t, gpu: t.scattered and _refused_list(t), "{found}"),
    (_not_supported, "the engine {t.engine} does not support {t.operation}, only {found}"),
    (lambda b, t, gpu: t.engine is not Engine.CE and MemoryKind.PAGEABLE in {end.kind for end in t.ends},
     "kernels cannot access pageable memory"),
    (_lacks_bulk, "bulk copies require compute capability 9.0 or later; {gpu.name} has "
     "{gpu.compute_capability}; use the engine sm"),
    (lambda b, t, gpu: b.confidential and t.operation.is_latency,
     f"{_CONFIDENTIAL}: events do not time a latency reliably"),
    (lambda b, t, gpu: b._is_encrypted(t) and (t.engine is not Engine.CE or t.scattered),
     f"{_CONFIDENTIAL}: kernels cannot access host memory; only copies of the engine ce are encrypted"),
    (lambda b, t, gpu: t.operation.is_latency and t.bytes < 2 * NODE,
     f"a {{t.operation}} requires at least {2 * NODE} bytes"),
    (lambda b, t, gpu: t.operation is Operation.SIGNAL and not b.answers(gpu, t),
     "only another GPU with peer access in both directions answers a flag"),
    (lambda b, t, gpu: t.operation not in (Operation.CHASE, Operation.COPY) and t.bytes % WORD,
     f"{{t.operation}} requires a multiple of {WORD} bytes"),
    (lambda b, t, gpu: t.bytes < 1, "the transfer has no bytes"),
    (lambda b, t, gpu: t.engine is Engine.CUBLAS and t.access is not Access.LOCAL,
     "cuBLAS works in the GPU's own memory"),
    (lambda b, t, gpu: t.engine is Engine.CUBLAS and b.without_blas(), "{found}"),
    (lambda b, t, gpu: t.engine is not Engine.CUBLAS and t.pace != 1,
     "a load on a GPU always runs at full speed: omit pace"),
    (lambda b, t, gpu: t.engine not in (Engine.CUBLAS, Engine.CE) and unfit(t), "{found}"),
)  # fmt: skip
