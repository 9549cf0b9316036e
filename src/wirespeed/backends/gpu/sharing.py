"""Memory of a GPU that processes share or send: the mechanisms by which one process exports it and another
opens it, each with three calls whose costs are measured separately (see ``distributed.job_process``), and the
buffers of messages. Multicast objects are never used.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ...errors import BackendError, OutOfMemory
from ...hardware.devices import Gpu
from ...units import format_size
from ...worlds.descriptors import Descriptors
from ..distributed.job_process import Allocation, Handle, Mechanism, fetched, offer
from .device import Device, map_for
from .gpu_driver import FABRIC, IPC, VMM_FD, driver_of


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
