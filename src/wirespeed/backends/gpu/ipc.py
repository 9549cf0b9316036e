"""Mechanisms for sharing GPU memory between processes: export in one, open in another.

Each has three calls, so that their costs can be measured separately: ``allocate``, ``export``, ``open``.
Each result releases itself (see ``backends.shared_memory``). Multicast objects are never used.
"""

from __future__ import annotations

from ...errors import BackendError
from ...worlds.descriptors import Descriptors
from ..shared_memory import Allocation, Handle, Opened, fetched, offer
from .device import Device, map_for
from .gpu_driver import FABRIC, IPC, VMM_FD


class IpcSharing:
    """Handles of plain memory, between processes of one host."""

    name = IPC

    def allocate(self, device: Device, size: int) -> Allocation:
        """Allocate memory with the plain allocator."""
        device.use()
        address = device.driver.allocate(size)
        return Allocation(device, address, size, None, device.later(device.driver.free, address))

    def export(self, allocation: Allocation) -> Handle:
        """The handle of the allocation, and the offset of the buffer in it."""
        device: Device = allocation.place
        device.use()
        data, offset = device.driver.export_allocation(allocation.address)
        return Handle(self.name, data, offset, allocation.bytes)

    def open(self, device: Device, handle: Handle) -> Opened:
        """Map the memory; the driver enables peer access."""
        device.use()
        base = device.driver.open_allocation(handle.data)
        close = device.later(device.driver.close_allocation, base)
        return Opened(base + handle.offset, handle.bytes, close)


class _Mapped:
    """Virtual-memory allocations of one mechanism."""

    name = ""

    def allocate(self, device: Device, size: int) -> Allocation:
        """Create exportable memory, and map it for its own GPU."""
        device.use()
        memory, size = device.driver.create_memory(device.handle, size, self.name)
        address, release = map_for([device], memory, size)
        return Allocation(device, address, size, memory, release)

    def _export(self, allocation: Allocation) -> int | bytes:
        device: Device = allocation.place
        device.use()
        return device.driver.export_memory(allocation.inner, self.name)

    def _open(self, device: Device, exported: int | bytes, size: int) -> Opened:
        device.use()
        address, unmap = map_for([device], device.driver.import_memory(exported, self.name), size)
        return Opened(address, size, unmap)


class DescriptorSharing(_Mapped):
    """POSIX descriptors of virtual-memory allocations, passed over a Unix socket of the host.

    Attributes:
        descriptors: Serves the descriptors that this process exports.
        timeout: Maximum time to fetch a descriptor, in s.
    """

    name = VMM_FD

    def __init__(self, descriptors: Descriptors, timeout: float) -> None:
        self._descriptors, self._timeout = descriptors, timeout

    def export(self, allocation: Allocation) -> Handle:
        """Serve a descriptor until the allocation is released."""
        descriptor = self._export(allocation)
        assert isinstance(descriptor, int)
        return offer(self._descriptors, descriptor, allocation, self.name)

    def open(self, device: Device, handle: Handle) -> Opened:
        """Fetch the descriptor and map its memory."""
        with fetched(handle, self._timeout) as descriptor:
            return self._open(device, descriptor, handle.bytes)


class FabricSharing(_Mapped):
    """Fabric handles: within an NVLink domain, on one or several hosts."""

    name = FABRIC

    def allocate(self, device: Device, size: int) -> Allocation:
        """Create memory; the driver may permit this only for some processes."""
        try:
            return super().allocate(device, size)
        except BackendError as error:
            raise type(error)(f"{error}; {device.driver.fabric_remedy()}") from error

    def export(self, allocation: Allocation) -> Handle:
        """The fabric handle."""
        data = self._export(allocation)
        assert isinstance(data, bytes)
        return Handle(self.name, data, 0, allocation.bytes)

    def open(self, device: Device, handle: Handle) -> Opened:
        """Map the memory."""
        try:
            return self._open(device, handle.data, handle.bytes)
        except BackendError as error:
            raise type(error)(f"{error}; {device.driver.fabric_remedy()}") from error
