"""Buffers on GPUs and NUMA nodes, kept for later Measurements until memory is needed."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from ...errors import BackendError, OutOfMemory
from ...hardware.topology import Machine
from ...model import Memory, MemoryKind
from ...units import MIB, format_size
from ..host.memory import HUGE_REMEDY, RETIRED_SHARE, HostBuffer, HostBufferPool, huge_bytes
from .device import Device, map_for

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
