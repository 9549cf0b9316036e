"""Buffers on GPUs and NUMA nodes, kept for later Measurements until memory is needed.

Mechanisms for sharing GPU memory between processes: export in one, open in another.

Each has three calls, so that their costs can be measured separately: ``allocate``, ``export``, ``open``.
Each result releases itself (see ``distributed.endpoint``). Multicast objects are never used.

Buffers in the memory of a GPU, for messages and for sharing between two processes.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...errors import BackendError, OutOfMemory
from ...hardware.devices import Gpu
from ...hardware.topology import Machine
from ...model import Memory, MemoryKind
from ...units import MIB, format_size
from ...worlds.admission import Descriptors
from ..distributed.endpoint import Allocation, Handle, Mechanism, fetched, offer
from ..host.memory import HUGE_REMEDY, RETIRED_SHARE, HostBuffer, HostBufferPool, huge_bytes
from .device import Device, map_for
from .gpu_driver import FABRIC, IPC, VMM_FD, driver_of

GRANULE = 2 * MIB
#: Prefaults pages for writing (Linux 5.14). Source: include/uapi/asm-generic/mman-common.h.
_MADV_POPULATE_WRITE = 23
#: More threads do not touch memory faster.
_TOUCHERS = 16

_libc = ctypes.CDLL(None, use_errno=True)
_libc.madvise.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]


@dataclass(eq=False)
class GpuBuffer:
    """Memory of one kind in one place.

    Attributes:
        address, host: Address for GPUs and address for the host; 0 if not accessible there.
    """

    memory: Memory
    virtual: bool
    address: int
    host: int
    bytes: int
    release: Callable[[], None]


class GpuBufferPool:
    """Buffers by place and kind; the smallest sufficient buffer is reused.

    Attributes:
        machine: Its NUMA nodes define the CPUs that touch host memory.
        device: Returns the open GPU with a name.
        warn: Receives warnings about affinity that could not be set.
    """

    def __init__(
        self, machine: Machine, device: Callable[[str], Device], warn: Callable[[str], None]
    ) -> None:
        self._machine = machine
        self._device = device
        self._warn = warn
        self._host = HostBufferPool(several=len(machine.numa) > 1)
        self._free: list[GpuBuffer] = []
        self._retired: list[GpuBuffer] = []
        self._all: list[GpuBuffer] = []

    def take(
        self, memory: Memory, size: int, owner: Device, virtual: bool, affinity: bool, huge: bool = False
    ) -> GpuBuffer:
        """A buffer of at least ``size`` bytes.

        Args:
            owner: GPU whose context pins host memory.
            virtual: Whether to map device memory by virtual memory management.
            affinity: Whether to touch host memory from the CPUs of its node.
            huge: Whether new host memory must be in huge pages.

        Raises:
            BackendError: If host memory must be in huge pages, and the kernel does not provide them.
            OutOfMemory: If there is not enough memory, including freed buffers; ``give_way`` may help.
        """
        virtual = virtual and memory.kind is MemoryKind.DEVICE
        fitting = [b for b in self._free if (b.memory, b.virtual) == (memory, virtual) and b.bytes >= size]
        if fitting:
            buffer = min(reversed(fitting), key=lambda b: b.bytes)
            self._free.remove(buffer)
            return buffer
        size = -(-max(size, 1) // GRANULE) * GRANULE
        try:
            if memory.kind is MemoryKind.DEVICE:
                buffer = self._on_device(memory, size, virtual)
            else:
                buffer = self._on_host(memory, size, owner, affinity, huge)
        except OutOfMemory as error:
            raise self._explained(memory, size, error) from error
        self._all.append(buffer)
        return buffer

    def give(self, buffer: GpuBuffer) -> None:
        """Take back a buffer."""
        self._free.append(buffer)

    def give_way(self) -> bool:
        """Free all unused buffers; return whether there were any."""
        unused = [*self._retired, *self._free]
        self._retired, self._free = [], []
        for buffer in unused:
            self._release(buffer)
        return bool(unused)

    def renew(self) -> None:
        """Use other memory from now on.

        The driver would give the pages of a freed buffer to the next one. Therefore unused buffers of GPUs
        are kept while they need little of the free memory; unused buffers of the host go back to its pool,
        which does the same.
        """
        for buffer in self._free:
            if buffer.memory.kind is MemoryKind.DEVICE:
                self._retired.append(buffer)
            else:
                self._release(buffer)
        self._free.clear()
        self._host.renew()
        for name in {buffer.memory.device for buffer in self._retired}:
            here = [buffer for buffer in self._retired if buffer.memory.device == name]
            while here and sum(b.bytes for b in here) > RETIRED_SHARE * self._device(name).memory()[0]:
                self._retired.remove(here[0])
                self._release(here.pop(0))

    def _release(self, buffer: GpuBuffer) -> None:
        self._all.remove(buffer)
        buffer.release()

    def close(self) -> None:
        """Free all buffers, used or not."""
        for buffer in self._all:
            buffer.release()
        self._all.clear()
        self._free.clear()
        self._retired.clear()
        self._host.close()

    def _explained(self, memory: Memory, size: int, error: OutOfMemory) -> OutOfMemory:
        if memory.kind is not MemoryKind.DEVICE:
            return error
        free, total = self._device(memory.device).memory()
        return OutOfMemory(
            f"not enough memory on {memory}: requested a buffer of {format_size(size)}, {format_size(free)} "
            f"of {format_size(total)} is free ({error}); choose a smaller size, or end other processes on it"
        )

    def _on_device(self, memory: Memory, size: int, virtual: bool) -> GpuBuffer:
        device = self._device(memory.device)
        device.use()
        if virtual:
            users = [device, *(self._device(peer) for peer in device.gpu.peers)]
            created, size = device.driver.create_memory(device.handle, size)
            address, release = map_for(users, created, size)
        else:
            address = device.driver.allocate(size)
            release = device.later(device.driver.free, address)
        return GpuBuffer(memory, virtual, address, 0, size, release)

    def _on_host(self, memory: Memory, size: int, owner: Device, affinity: bool, huge: bool) -> GpuBuffer:
        """Memory of a NUMA node, in huge pages if possible, pinned for all GPUs if requested.

        Pinning existing memory is faster than allocating it pinned: the driver clears that in one thread.
        """
        node = next(n for n in self._machine.numa if n.name == memory.device)
        cpus = node.cpus if affinity else ()
        if self._machine.confidential and memory.kind is MemoryKind.PINNED:
            if huge:
                raise BackendError(
                    "in confidential computing mode, the driver chooses pages: omit --huge-pages"
                )
            return self._allocated(memory, size, owner, cpus)
        host = self._host.take(node.index, size, lambda b: self._touch(b, cpus))
        in_huge_pages = huge_bytes(host.address) if huge else host.bytes
        if in_huge_pages is None or in_huge_pages < host.bytes:
            self._host.give(host)
            part = "an unknown part" if in_huge_pages is None else f"only {format_size(in_huge_pages)}"
            raise BackendError(
                f"{part} of a buffer of {format_size(host.bytes)} on {memory} is in huge pages; {HUGE_REMEDY}"
            )
        if memory.kind is MemoryKind.PAGEABLE:
            return GpuBuffer(memory, False, 0, host.address, host.bytes, lambda: self._host.give(host))
        owner.use()
        try:
            owner.driver.pin(host.address, host.bytes)
        except BackendError:
            self._host.give(host)
            raise

        def release() -> None:
            owner.use()
            owner.driver.unpin(host.address)
            self._host.give(host)

        address = owner.driver.address_of(host.address)
        return GpuBuffer(memory, False, address, host.address, host.bytes, release)

    def _allocated(self, memory: Memory, size: int, owner: Device, cpus: Sequence[int]) -> GpuBuffer:
        """Pinned memory from the driver, which in confidential computing mode registers no other memory.

        It moves the pages between host and GPU, so that no kernel may access them: as pageable memory, they
        are filled and verified by copies.
        """

        def allocate() -> int:
            self.bind(cpus)
            owner.use()
            host = owner.driver.allocate_host(size)
            ctypes.memset(host, 0, size)
            return host

        with ThreadPoolExecutor(1) as pool:
            host = pool.submit(allocate).result()

        def release() -> None:
            owner.use()
            owner.driver.free_host(host)

        return GpuBuffer(memory, False, 0, host, size, release)

    def _touch(self, buffer: HostBuffer, cpus: Sequence[int]) -> None:
        """Place the pages with threads on the CPUs of its node."""
        threads = min(_TOUCHERS, max(1, len(cpus)), buffer.bytes // GRANULE)
        part_bytes = -(-buffer.bytes // GRANULE // threads) * GRANULE
        ends = range(0, buffer.bytes, part_bytes)

        def touch(begin: int) -> None:
            self.bind(cpus)
            size = min(part_bytes, buffer.bytes - begin)
            if _libc.madvise(buffer.address + begin, size, _MADV_POPULATE_WRITE):
                ctypes.memset(buffer.address + begin, 0, size)  # for older kernels

        with ThreadPoolExecutor(threads) as pool:
            list(pool.map(touch, ends))

    def bind(self, cpus: Sequence[int]) -> None:
        """Restrict the calling thread to some CPUs; unchanged if there are none."""
        if not cpus:
            return
        try:
            os.sched_setaffinity(0, cpus)
        except OSError as error:
            self._warn(f"a thread could not be bound to CPUs {cpus[0]}...{cpus[-1]} ({error.strerror}); "
                       "host memory may be on another NUMA node")  # fmt: skip


class IpcSharing:
    """Handles of plain memory, between processes of one host."""

    name = IPC

    def allocate(self, device: Device, size: int) -> Allocation:
        """Allocate memory with the plain allocator."""
        device.use()
        address = device.driver.allocate(size)
        return Allocation(address, size, device.later(device.driver.free, address), device)

    def export(self, allocation: Allocation) -> Handle:
        """The handle of the allocation, and the offset of the buffer in it."""
        device: Device = allocation.place
        device.use()
        data, offset = device.driver.export_allocation(allocation.address)
        return Handle(self.name, data, offset, allocation.bytes)

    def open(self, device: Device, handle: Handle) -> Allocation:
        """Map the memory; the driver enables peer access."""
        device.use()
        base = device.driver.open_allocation(handle.data)
        close = device.later(device.driver.close_allocation, base)
        return Allocation(base + handle.offset, handle.bytes, close)


def pinned(device: Device, size: int) -> Allocation:
    """Pinned memory of the host at its address for a GPU, for messages: it is not exported."""
    device.use()
    host = device.driver.allocate_host(size)
    release = device.later(device.driver.free_host, host)
    return Allocation(device.driver.address_of(host), size, release, device)


class MappedSharing:
    """Virtual-memory allocations of one mechanism, ``VMM_FD`` or ``FABRIC``."""

    def __init__(self, name: str) -> None:
        self.name = name

    def allocate(self, device: Device, size: int) -> Allocation:
        """Create exportable memory, and map it for its own GPU."""
        device.use()
        memory, size = device.driver.create_memory(device.handle, size, self.name)
        address, release = map_for([device], memory, size)
        return Allocation(address, size, release, device, memory)

    def exported(self, allocation: Allocation) -> int | bytes:
        """A descriptor, or a handle for other hosts."""
        device: Device = allocation.place
        device.use()
        return device.driver.export_memory(allocation.inner, self.name)

    def opened(self, device: Device, exported: int | bytes, size: int) -> Allocation:
        """Map the memory that another process exported."""
        device.use()
        address, unmap = map_for([device], device.driver.import_memory(exported, self.name), size)
        return Allocation(address, size, unmap)


class DescriptorSharing(MappedSharing):
    """POSIX descriptors of virtual-memory allocations, passed over a Unix socket of the host.

    Attributes:
        descriptors: Serves the descriptors that this process exports.
        timeout: Maximum time to fetch a descriptor, in s.
    """

    def __init__(self, descriptors: Descriptors, timeout: float) -> None:
        super().__init__(VMM_FD)
        self._descriptors, self._timeout = descriptors, timeout

    def export(self, allocation: Allocation) -> Handle:
        """Serve a descriptor until the allocation is released."""
        descriptor = self.exported(allocation)
        assert isinstance(descriptor, int)
        return offer(self._descriptors, descriptor, allocation, self.name)

    def open(self, device: Device, handle: Handle) -> Allocation:
        """Fetch the descriptor and map its memory."""
        with fetched(handle, self._timeout) as descriptor:
            return self.opened(device, descriptor, handle.bytes)


class FabricSharing(MappedSharing):
    """Fabric handles: within an NVLink domain, on one or several hosts."""

    def __init__(self) -> None:
        super().__init__(FABRIC)

    def allocate(self, device: Device, size: int) -> Allocation:
        """Create memory; the driver may permit this only for some processes."""
        try:
            return super().allocate(device, size)
        except BackendError as error:
            raise type(error)(f"{error}; {device.driver.fabric_remedy()}") from error

    def export(self, allocation: Allocation) -> Handle:
        """The fabric handle."""
        data = self.exported(allocation)
        assert isinstance(data, bytes)
        return Handle(self.name, data, 0, allocation.bytes)

    def open(self, device: Device, handle: Handle) -> Allocation:
        """Map the memory."""
        try:
            return self.opened(device, handle.data, handle.bytes)
        except BackendError as error:
            raise type(error)(f"{error}; {device.driver.fabric_remedy()}") from error


class GpuBuffers:
    """Memory of one GPU, from the plain allocator.

    Attributes:
        gpu: A GPU of this process.
        timeout: Maximum time to open another process' memory, in s.
    """

    def __init__(self, gpu: Gpu, timeout: float) -> None:
        self._driver = driver_of(gpu.backend)
        self.where = Device(gpu, self._driver, self._driver.devices()[gpu.bus_id])
        self.where.use()
        self._timeout = timeout
        self._descriptors: Descriptors | None = None
        self.stream = self._driver.stream()

    def allocate(self, size: int) -> int:
        """Allocate memory and return its address."""
        self.where.use()
        try:
            return self._driver.allocate(size)
        except OutOfMemory as error:
            raise OutOfMemory(
                f"a buffer of {format_size(size)} on {self.where.name}: {error}; give a smaller size"
            ) from error

    def free(self, address: int) -> None:
        """Free memory."""
        self.where.use()
        self._driver.free(address)

    def write(self, address: int, data: Any) -> None:
        """Copy an array to the GPU."""
        self.where.use()
        self._driver.write(address, data.ctypes.data, data.nbytes)
        self._driver.synchronize_context()  # the copy can return early; other streams do not wait for it

    def read(self, address: int, size: int) -> Any:
        """A copy of GPU memory."""
        self.where.use()
        data = np.empty(size, np.uint8)
        self._driver.read(data.ctypes.data, address, size)
        return data

    def copy(self, destination: int, source: int, size: int) -> None:
        """Copy with a copy engine."""
        self.where.use()
        self._driver.enqueue_copy(destination, source, size, self.stream)
        self._driver.synchronize(self.stream)

    def sharing(self, mechanism: str) -> Mechanism:
        """A mechanism that shares memory of a GPU."""
        known = (IPC, VMM_FD, FABRIC)
        if mechanism not in known:
            raise BackendError(f"memory of a GPU is shared by {', '.join(known)}, not by {mechanism}")
        if mechanism == VMM_FD:
            if self._descriptors is None:
                self._descriptors = Descriptors()
            return DescriptorSharing(self._descriptors, self._timeout)
        return IpcSharing() if mechanism == IPC else FabricSharing()

    def close(self) -> None:
        """Destroy the stream; the context ends with the process."""
        self.where.use()
        self._driver.destroy_stream(self.stream)
        if self._descriptors is not None:
            self._descriptors.close()
