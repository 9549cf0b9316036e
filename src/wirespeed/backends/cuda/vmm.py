"""Virtual memory management: create memory, then map it for the GPUs that use it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from cuda.bindings import driver

from ...errors import BackendError
from ...units import format_size
from .device import Device
from .driver import check

_NOT_SHARED = driver.CUmemAllocationHandleType.CU_MEM_HANDLE_TYPE_NONE


def create(device: Device, size: int, handle_type: Any = _NOT_SHARED) -> tuple[Any, int]:
    """Create memory of a GPU; return it with its size, the next multiple of the granularity.

    Parameters
    ----------
    device : Device
        Owner of the memory.
    size : int
        Minimum size, in bytes.
    handle_type : CUmemAllocationHandleType
        Type of handle for export to other processes.
    """
    device.use()
    prop = driver.CUmemAllocationProp()
    prop.type = driver.CUmemAllocationType.CU_MEM_ALLOCATION_TYPE_PINNED
    prop.requestedHandleTypes = handle_type
    prop.location.type = driver.CUmemLocationType.CU_MEM_LOCATION_TYPE_DEVICE
    prop.location.id = device.ordinal
    minimum = driver.CUmemAllocationGranularity_flags.CU_MEM_ALLOC_GRANULARITY_MINIMUM
    granule = int(check(driver.cuMemGetAllocationGranularity, prop, minimum))
    size = -(-size // granule) * granule
    return check(driver.cuMemCreate, size, prop, 0), size


def map_for(users: Sequence[Device], memory: Any, size: int) -> tuple[int, Callable[[], None]]:
    """Map memory for some GPUs of this process; the mapping takes over the memory.

    Returns
    -------
    tuple
        Its address, and a function that unmaps and frees it.

    Raises
    ------
    BackendError
        If it cannot be mapped; then the memory is freed.
    """
    undo: list[tuple[Any, ...]] = [(driver.cuMemRelease, memory)]

    def release() -> None:
        users[0].use()
        while undo:
            check(*undo.pop())

    try:
        address = check(driver.cuMemAddressReserve, size, 0, 0, 0)
        undo.append((driver.cuMemAddressFree, address, size))
        check(driver.cuMemMap, address, size, 0, memory, 0)
        undo.append((driver.cuMemUnmap, address, size))
        check(driver.cuMemSetAccess, address, size, [_access(user) for user in users], len(users))
    except BackendError as error:
        release()
        raise type(error)(f"{format_size(size)} could not be mapped for {users[0].name}: {error}") from error
    return int(address), release


def _access(device: Device) -> Any:
    access = driver.CUmemAccessDesc()
    access.location.type = driver.CUmemLocationType.CU_MEM_LOCATION_TYPE_DEVICE
    access.location.id = device.ordinal
    access.flags = driver.CUmemAccess_flags.CU_MEM_ACCESS_FLAGS_PROT_READWRITE
    return access
