"""Mechanisms for sharing GPU memory between processes: export in one, open in another.

Each has three calls, so that their costs can be measured separately: ``allocate``, ``export``, ``open``.
Each result releases itself (see ``backends.sharing``). Multicast objects are never used.
"""

from __future__ import annotations

import ctypes
import os
from pathlib import Path
from typing import Any

from cuda.bindings import driver

from ...errors import BackendError
from ...worlds.descriptors import Descriptors
from ..shared_memory import Allocation, Handle, Opened, fetched, offer
from . import vmm
from .device import Device
from .driver import check

FABRIC, VMM_FD, IPC = "fabric", "vmm-fd", "ipc"
#: Device nodes of IMEX channels; without a channel, fabric handles are denied.
IMEX_CHANNELS = Path("/dev/nvidia-caps-imex-channels")

_HANDLE_BYTES = 64  # bytes of a CUipcMemHandle and of a CUmemFabricHandle
_HANDLE_TYPE = driver.CUmemAllocationHandleType
_LAZY_PEER_ACCESS = driver.CUipcMem_flags.CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS.value


class IpcSharing:
    """CUDA IPC of plain memory, between processes of one host."""

    name = IPC

    def allocate(self, device: Device, size: int) -> Allocation:
        """Allocate memory with cuMemAlloc."""
        device.use()
        address = int(check(driver.cuMemAlloc, size))

        def release() -> None:
            device.use()
            check(driver.cuMemFree, address)

        return Allocation(device, address, size, None, release)

    def export(self, allocation: Allocation) -> Handle:
        """Return the handle of the allocation, and the offset of the buffer in it."""
        allocation.place.use()
        base, _ = check(driver.cuMemGetAddressRange, allocation.address)
        handle = check(driver.cuIpcGetMemHandle, base)
        data = ctypes.string_at(int(handle.getPtr()), _HANDLE_BYTES)
        return Handle(self.name, data, allocation.address - int(base), allocation.bytes)

    def open(self, device: Device, handle: Handle) -> Opened:
        """Map the memory; the driver enables peer access."""
        device.use()
        raw = driver.CUipcMemHandle()
        ctypes.memmove(int(raw.getPtr()), handle.data, _HANDLE_BYTES)
        base = int(check(driver.cuIpcOpenMemHandle, raw, _LAZY_PEER_ACCESS))

        def close() -> None:
            device.use()
            check(driver.cuIpcCloseMemHandle, base)

        return Opened(base + handle.offset, handle.bytes, close)


class _Mapped:
    """Virtual-memory allocations of one handle type."""

    name = ""
    _type: Any = None

    def allocate(self, device: Device, size: int) -> Allocation:
        """Create exportable memory, and map it for its own GPU."""
        generic, size = vmm.create(device, size, self._type)
        address, release = vmm.map_for([device], generic, size)
        return Allocation(device, address, size, generic, release)

    def _open(self, device: Device, shareable: Any, size: int) -> Opened:
        device.use()
        generic = check(driver.cuMemImportFromShareableHandle, shareable, self._type)
        address, unmap = vmm.map_for([device], generic, size)
        return Opened(address, size, unmap)


class DescriptorSharing(_Mapped):
    """POSIX descriptors of virtual-memory allocations, passed over a Unix socket of the host.

    Parameters
    ----------
    descriptors : Descriptors
        Serves the descriptors that this process exports.
    timeout : float
        Maximum time to fetch a descriptor, in s.
    """

    name = VMM_FD
    _type = _HANDLE_TYPE.CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR

    def __init__(self, descriptors: Descriptors, timeout: float) -> None:
        self._descriptors, self._timeout = descriptors, timeout

    def export(self, allocation: Allocation) -> Handle:
        """Serve a descriptor until the allocation is released."""
        allocation.place.use()
        descriptor = check(driver.cuMemExportToShareableHandle, allocation.inner, self._type, 0)
        return offer(self._descriptors, int(descriptor), allocation, self.name)

    def open(self, device: Device, handle: Handle) -> Opened:
        """Fetch the descriptor and map its memory."""
        with fetched(handle, self._timeout) as descriptor:
            return self._open(device, descriptor, handle.bytes)


class FabricSharing(_Mapped):
    """Fabric handles: within an NVLink domain, on one or several hosts."""

    name = FABRIC
    _type = _HANDLE_TYPE.CU_MEM_HANDLE_TYPE_FABRIC

    def allocate(self, device: Device, size: int) -> Allocation:
        """Create memory; the driver permits this only for processes with an IMEX channel."""
        try:
            return super().allocate(device, size)
        except BackendError as error:
            raise type(error)(f"{error}; {imex()}") from error

    def export(self, allocation: Allocation) -> Handle:
        """Return the fabric handle."""
        allocation.place.use()
        handle = check(driver.cuMemExportToShareableHandle, allocation.inner, self._type, 0)
        data = handle if isinstance(handle, bytes) else ctypes.string_at(int(handle.getPtr()), _HANDLE_BYTES)
        return Handle(self.name, data, 0, allocation.bytes)

    def open(self, device: Device, handle: Handle) -> Opened:
        """Map the memory."""
        raw = driver.CUmemFabricHandle()
        ctypes.memmove(int(raw.getPtr()), handle.data, _HANDLE_BYTES)
        try:
            return self._open(device, int(raw.getPtr()), handle.bytes)
        except BackendError as error:
            raise type(error)(f"{error}; {imex()}") from error


def imex() -> str:
    """Describe the IMEX channels of this process."""
    found = sorted(path.name for path in IMEX_CHANNELS.glob("channel*")) if IMEX_CHANNELS.is_dir() else []
    if not found:
        return (
            f"no IMEX channel in {IMEX_CHANNELS}: load the driver with "
            "NVreg_CreateImexChannel0=1 or create one with nvidia-modprobe, and run nvidia-imex"
        )
    readable = [name for name in found if os.access(IMEX_CHANNELS / name, os.R_OK)]
    if not readable:
        return f"this user has no access to {', '.join(found)} in {IMEX_CHANNELS}"
    return f"IMEX {', '.join(readable)} is available: see `nvidia-imex-ctl -N` for its domain"
