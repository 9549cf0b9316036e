"""cuBLAS: ``y = s x + y`` on the GPU of the current context.

Virtual memory management: create or import memory, then map it for the GPUs that use it.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from typing import Any

from cuda.bindings import driver

from ...errors import BackendError, OutOfMemory
from ...model import Operation
from ..gpu.gpu_driver import FABRIC, VMM_FD
from .driver import check
from .packages import INSTALL_BLAS

_LIBRARY = "cublas"
_OUT_OF_MEMORY = 3  # CUBLAS_STATUS_ALLOC_FAILED
#: cudaDataType: CUDA_R_32F, CUDA_R_64F, CUDA_R_16F.
_FLOAT, _DOUBLE, _HALF = 0, 1, 2
#: For each operation: type of the vectors, bytes of a number, type of the scalar and of the arithmetic.
_TYPES: dict[Operation, tuple[int, int, int, Callable[[], Any]]] = {
    Operation.HAXPY: (_HALF, 2, _FLOAT, ctypes.c_float),
    Operation.SAXPY: (_FLOAT, 4, _FLOAT, ctypes.c_float),
    Operation.TRIAD: (_DOUBLE, 8, _DOUBLE, ctypes.c_double),
}


@cache
def _load() -> tuple[Any, str]:
    """The library, or why it cannot be loaded."""
    try:
        from cuda.pathfinder import DynamicLibNotFoundError, load_nvidia_dynamic_lib
    except ImportError as error:
        return None, f"cuBLAS cannot be found without cuda-pathfinder ({error}): {INSTALL_BLAS}"
    try:
        path = load_nvidia_dynamic_lib(_LIBRARY).abs_path
        library: Any = ctypes.CDLL(path)
        call = library.cublasAxpyEx_64
    except DynamicLibNotFoundError:
        return None, f"cuBLAS is missing: {INSTALL_BLAS}"
    except (AttributeError, OSError, RuntimeError) as error:
        return None, f"cuBLAS cannot be used ({error}): {INSTALL_BLAS}"
    library.cublasGetStatusString.restype = ctypes.c_char_p
    pointer, integer, enum = ctypes.c_void_p, ctypes.c_int64, ctypes.c_int
    library.cublasSetStream_v2.argtypes = pointer, pointer
    library.cublasDestroy_v2.argtypes = (pointer,)
    vector = pointer, enum, integer
    call.argtypes = pointer, integer, pointer, enum, *vector, *vector, enum
    return library, ""


def missing() -> str:
    """Why cuBLAS cannot be loaded, and what to do; empty if it is loaded."""
    return _load()[1]


class CuBlas:
    """cuBLAS on the GPU of the current context; ``Blas`` describes its methods."""

    def __init__(self) -> None:
        library, reason = _load()
        if reason:
            raise BackendError(reason)
        self._library: Any = library
        self._handle = ctypes.c_void_p()
        self._check("cublasCreate", library.cublasCreate_v2(ctypes.byref(self._handle)))

    def bind_axpy(
        self, operation: Operation, size: int, x: int, y: int, stream: Any
    ) -> Callable[[float], object]:
        vectors, number_bytes, arithmetic, number = _TYPES[operation]
        scalar, queue = number(), int(stream)
        set_stream, axpy, handle = (
            self._library.cublasSetStream_v2, self._library.cublasAxpyEx_64, self._handle,
        )  # fmt: skip
        arguments = (
            handle, size // number_bytes, ctypes.addressof(scalar), arithmetic, x, vectors, 1, y, vectors, 1,
            arithmetic,
        )  # fmt: skip

        def add(factor: float) -> None:
            scalar.value = factor  # cuBLAS reads it before it returns
            status = set_stream(handle, queue) or axpy(*arguments)
            if status:
                self._check("cublasAxpyEx", status)

        return add

    def close(self) -> None:
        self._check("cublasDestroy", self._library.cublasDestroy_v2(self._handle))

    def _check(self, call: str, status: int) -> None:
        if status:
            text = self._library.cublasGetStatusString(status).decode()
            raise (OutOfMemory if status == _OUT_OF_MEMORY else BackendError)(f"{call} failed: {text}")


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
