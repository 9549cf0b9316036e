"""Virtual memory management: memory of a GPU that is created or imported, and mapped for the GPUs that use
it.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from cuda.bindings import driver

from ...errors import BackendError
from ..gpu.gpu_driver import FABRIC, VMM_FD
from .driver import check

#: Mechanism -> type of the handles by which memory is exported.
_HANDLE_TYPES = {
    "": driver.CUmemAllocationHandleType.CU_MEM_HANDLE_TYPE_NONE,
    VMM_FD: driver.CUmemAllocationHandleType.CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
    FABRIC: driver.CUmemAllocationHandleType.CU_MEM_HANDLE_TYPE_FABRIC,
}
_FABRIC_HANDLE_BYTES = 64
_CHANNELS = Path("/dev/nvidia-caps-imex-channels")


def create(device: Any, size: int, mechanism: str = "") -> tuple[Any, int]:
    """Create memory of a GPU; return it with its size, the next multiple of the granularity."""
    prop = driver.CUmemAllocationProp()
    prop.type = driver.CUmemAllocationType.CU_MEM_ALLOCATION_TYPE_PINNED
    prop.requestedHandleTypes = _HANDLE_TYPES[mechanism]
    prop.location.type = driver.CUmemLocationType.CU_MEM_LOCATION_TYPE_DEVICE
    prop.location.id = int(device)
    minimum = driver.CUmemAllocationGranularity_flags.CU_MEM_ALLOC_GRANULARITY_MINIMUM
    granule = int(check(driver.cuMemGetAllocationGranularity, prop, minimum))
    size = -(-size // granule) * granule
    return check(driver.cuMemCreate, size, prop, 0), size


def map_for(memory: Any, size: int, devices: Sequence[Any]) -> tuple[int, Callable[[], None]]:
    """Map memory for some GPUs of this process; the mapping takes over the memory.

    Returns:
        Its address, and a function that unmaps and frees it.

    Raises:
        BackendError: If it cannot be mapped; then the memory is freed.
    """
    undo: list[tuple[Any, ...]] = [(driver.cuMemRelease, memory)]

    def release() -> None:
        while undo:
            check(*undo.pop())

    try:
        address = check(driver.cuMemAddressReserve, size, 0, 0, 0)
        undo.append((driver.cuMemAddressFree, address, size))
        check(driver.cuMemMap, address, size, 0, memory, 0)
        undo.append((driver.cuMemUnmap, address, size))
        check(driver.cuMemSetAccess, address, size, [_access(device) for device in devices], len(devices))
    except BackendError:
        release()
        raise
    return int(address), release


def exported(memory: Any, mechanism: str) -> int | bytes:
    """A descriptor of memory, or its fabric handle."""
    handle = check(driver.cuMemExportToShareableHandle, memory, _HANDLE_TYPES[mechanism], 0)
    if mechanism == VMM_FD:
        return int(handle)
    if isinstance(handle, bytes):  # depends on the version of the bindings
        return handle
    return ctypes.string_at(int(handle.getPtr()), _FABRIC_HANDLE_BYTES)


def imported(shareable: int | bytes, mechanism: str) -> Any:
    """The memory behind a descriptor or a fabric handle."""
    if isinstance(shareable, bytes):
        raw = driver.CUmemFabricHandle()
        ctypes.memmove(int(raw.getPtr()), shareable, _FABRIC_HANDLE_BYTES)
        shareable = int(raw.getPtr())
    return check(driver.cuMemImportFromShareableHandle, shareable, _HANDLE_TYPES[mechanism])


def _access(device: Any) -> Any:
    access = driver.CUmemAccessDesc()
    access.location.type = driver.CUmemLocationType.CU_MEM_LOCATION_TYPE_DEVICE
    access.location.id = int(device)
    access.flags = driver.CUmemAccess_flags.CU_MEM_ACCESS_FLAGS_PROT_READWRITE
    return access


def imex_channels() -> str:
    """Describe the IMEX channels of this process, without which the driver denies fabric handles."""
    names = sorted(path.name for path in _CHANNELS.glob("channel*")) if _CHANNELS.is_dir() else []
    if not names:
        return (
            f"no IMEX channel in {_CHANNELS}: load the driver with "
            "NVreg_CreateImexChannel0=1 or create one with nvidia-modprobe, and run nvidia-imex"
        )
    readable = [name for name in names if os.access(_CHANNELS / name, os.R_OK)]
    if not readable:
        return f"this user has no access to {', '.join(names)} in {_CHANNELS}"
    return f"IMEX {', '.join(readable)} is available: see `nvidia-imex-ctl -N` for its domain"
