"""Buffers on GPUs and on NUMA nodes, kept for the next Measurement until memory is short."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

from cuda.bindings import driver

from ...errors import BackendError, OutOfMemory
from ...model import Memory, MemoryKind
from ...topology import Machine
from ...units import MIB, format_size
from ..host.memory import Buffer as HostBuffer
from ..host.memory import BufferPool
from . import vmm
from .device import Device
from .driver import check

GRANULE = 2 * MIB
#: Prefaults pages for writing (Linux 5.14). Source: include/uapi/asm-generic/mman-common.h.
_MADV_POPULATE_WRITE = 23
#: More threads than this do not touch memory faster.
_TOUCHERS = 16

_libc = ctypes.CDLL(None, use_errno=True)
_libc.madvise.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]


@dataclass(eq=False)
class Buffer:
    """Memory of one kind in one place.

    Parameters
    ----------
    address, host
        Where GPUs see it, and where the host does; 0 where they do not.
    """

    memory: Memory
    virtual: bool
    address: int
    host: int
    bytes: int
    release: Callable[[], None]


class Pool:
    """Buffers by place and kind; the smallest that fits is used again.

    Parameters
    ----------
    machine
        Its NUMA nodes say where host memory is touched from.
    device
        Returns the open GPU of a name.
    warn
        Told of affinity that could not be set.
    """

    def __init__(
        self, machine: Machine, device: Callable[[str], Device], warn: Callable[[str], None]
    ) -> None:
        self._machine = machine
        self._device = device
        self._warn = warn
        self._host = BufferPool(several=len(machine.numa) > 1)
        self._free: list[Buffer] = []
        self._all: list[Buffer] = []

    def take(self, memory: Memory, size: int, owner: Device, virtual: bool, affinity: bool) -> Buffer:
        """Return a buffer of at least ``size`` bytes.

        Parameters
        ----------
        owner
            The GPU whose context pins host memory.
        virtual
            Whether device memory is mapped by virtual-memory management.
        affinity
            Whether host memory is touched from the CPUs of its node.

        Raises
        ------
        OutOfMemory
            If there is not so much memory, with what there is; ``give_way`` may help.
        """
        virtual = virtual and memory.kind is MemoryKind.DEVICE
        fitting = [b for b in self._free if (b.memory, b.virtual) == (memory, virtual) and b.bytes >= size]
        if fitting:
            buffer = min(reversed(fitting), key=lambda b: b.bytes)
            self._free.remove(buffer)
            return buffer
        size = -(-max(size, 1) // GRANULE) * GRANULE
        try:
            buffer = self._allocate(memory, size, owner, virtual, affinity)
        except OutOfMemory as error:
            raise self._explained(memory, size, error) from error
        self._all.append(buffer)
        return buffer

    def give(self, buffer: Buffer) -> None:
        """Take a buffer back."""
        self._free.append(buffer)

    def give_way(self) -> bool:
        """Free all buffers that are not in use; return whether there were any."""
        found, self._free = self._free, []
        for buffer in found:
            self._all.remove(buffer)
            buffer.release()
        return bool(found)

    def close(self) -> None:
        """Free everything, given back or not."""
        for buffer in self._all:
            buffer.release()
        self._all.clear()
        self._free.clear()
        self._host.close()

    def _explained(self, memory: Memory, size: int, error: OutOfMemory) -> OutOfMemory:
        if memory.kind is not MemoryKind.DEVICE:
            return error
        free, total = self._device(memory.device).memory()
        return OutOfMemory(
            f"not enough memory on {memory}: a buffer of {format_size(size)} was wanted, {format_size(free)} "
            f"of {format_size(total)} is free ({error}); choose a smaller size, or end what else uses it"
        )

    def _allocate(self, memory: Memory, size: int, owner: Device, virtual: bool, affinity: bool) -> Buffer:
        if memory.kind is not MemoryKind.DEVICE:
            return self._on_host(memory, size, owner, affinity)
        device = self._device(memory.device)
        device.use()
        if virtual:
            users = [device, *(self._device(peer) for peer in device.gpu.peers)]
            generic, size = vmm.create(device, size)
            address, release = vmm.map_for(users, generic, size)
        else:
            address = int(check(driver.cuMemAlloc, size))
            release = _with(device, driver.cuMemFree, address)
        return Buffer(memory, virtual, address, 0, size, release)

    def _on_host(self, memory: Memory, size: int, owner: Device, affinity: bool) -> Buffer:
        """Memory of a NUMA node in huge pages where there are any, pinned for all GPUs if so wanted.

        Registering memory that is there costs less than cuMemHostAlloc, which clears it in one thread.
        """
        node = next(n for n in self._machine.numa if n.name == memory.device)
        cpus = node.cpus if affinity else ()
        try:
            host = self._host.take(node.index, size, lambda b: self._touch(b, cpus))
        except BackendError as error:  # it says how much there was
            raise OutOfMemory(str(error)) from error
        if memory.kind is MemoryKind.PAGEABLE:
            return Buffer(memory, False, 0, host.address, host.bytes, lambda: self._host.give(host))
        owner.use()
        flags = driver.CU_MEMHOSTREGISTER_PORTABLE | driver.CU_MEMHOSTREGISTER_DEVICEMAP
        try:
            check(driver.cuMemHostRegister, host.address, host.bytes, flags)
        except BackendError:
            self._host.give(host)
            raise

        def release() -> None:
            owner.use()
            check(driver.cuMemHostUnregister, host.address)
            self._host.give(host)

        address = int(check(driver.cuMemHostGetDevicePointer, host.address, 0))
        return Buffer(memory, False, address, host.address, host.bytes, release)

    def _touch(self, buffer: HostBuffer, cpus: Sequence[int]) -> None:
        """Let threads on the CPUs of its node place the pages."""
        threads = min(_TOUCHERS, max(1, len(cpus)), buffer.bytes // GRANULE)
        each = -(-buffer.bytes // GRANULE // threads) * GRANULE
        ends = range(0, buffer.bytes, each)

        def touch(begin: int) -> None:
            self.bind(cpus)
            size = min(each, buffer.bytes - begin)
            if _libc.madvise(buffer.address + begin, size, _MADV_POPULATE_WRITE):
                ctypes.memset(buffer.address + begin, 0, size)  # an older kernel

        with ThreadPoolExecutor(threads) as pool:
            list(pool.map(touch, ends))

    def bind(self, cpus: Sequence[int]) -> None:
        """Let the calling thread run on some CPUs only; none: leave it as it is."""
        if not cpus:
            return
        try:
            os.sched_setaffinity(0, cpus)
        except OSError as error:
            self._warn(f"a thread could not be bound to CPUs {cpus[0]}...{cpus[-1]} ({error.strerror}); "
                       "host memory may lie on another NUMA node")  # fmt: skip


def _with(device: Device, function: Any, *arguments: Any) -> Callable[[], None]:
    """A call that is made later, in the context of a GPU."""

    def call() -> None:
        device.use()
        check(function, *arguments)

    return call
