"""Calls to the CUDA driver and to NVRTC; the only module that checks the driver's status codes.

NVRTC compiles CUDA C++ to machine code, with a cache on disk. cuBLAS computes ``y = s x + y``. Virtual memory
management creates or imports memory, and maps it for the GPUs that use it.
"""

from __future__ import annotations

import ctypes
import hashlib
import os
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from cuda.bindings import driver

from ...errors import BackendError, BackendLost, OutOfMemory
from ...files import cache_folder, new_file, private_folder
from ...model import Operation
from ...version import __version__
from ..gpu.gpu_driver import FABRIC, VMM_FD, Headers, TooManyPeers
from .nvml import BINDINGS, INSTALL, INSTALL_BLAS, WHEELS, extra

_SUCCESS = driver.CUresult.CUDA_SUCCESS
_NOT_READY = driver.CUresult.CUDA_ERROR_NOT_READY
_ALREADY_ENABLED = driver.CUresult.CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED

#: After one of these errors every further call of the process fails. Names, as older bindings lack some.
_LASTING = {
    f"CUDA_ERROR_{name}"
    for name in (
        "ASSERT", "CONTAINED", "CONTEXT_IS_DESTROYED", "DEINITIALIZED", "DEVICE_UNAVAILABLE",
        "ECC_UNCORRECTABLE", "EXTERNAL_DEVICE", "HARDWARE_STACK_ERROR", "ILLEGAL_ADDRESS",
        "ILLEGAL_INSTRUCTION", "INVALID_ADDRESS_SPACE", "INVALID_PC", "LAUNCH_FAILED", "LAUNCH_TIMEOUT",
        "MISALIGNED_ADDRESS", "MPS_CLIENT_TERMINATED", "NVLINK_UNCORRECTABLE", "TENSOR_MEMORY_LEAK",
        "UNKNOWN",
    )
}  # fmt: skip


def check(function: Callable[..., tuple[Any, ...]], *arguments: Any) -> Any:
    """Call a driver function and return its results without the status.

    Raises:
        OutOfMemory: If there is not enough memory.
        BackendLost: If the error is permanent: this process cannot measure any more.
        BackendError: If the call failed for another reason, or the driver cannot be loaded.
    """
    try:
        status, *values = function(*arguments)
    except RuntimeError as error:  # from the bindings: no driver, or a driver without this function
        raise BackendError(f"{function.__name__} cannot be called: {error}") from error
    if status != _SUCCESS:
        raise explained(function.__name__, status)
    if len(values) == 1:
        return values[0]
    return tuple(values) or None


def ending(function: Callable[..., tuple[Any]], last: Any) -> Callable[..., None]:
    """A driver function without results whose last argument is always the same.

    It checks the status itself: ``check`` would be a second Python frame in loops that are timed.
    """

    def call(*arguments: Any) -> None:
        (status,) = function(*arguments, last)
        if status != _SUCCESS:
            raise explained(function.__name__, status)

    return call


def ready(function: Callable[..., tuple[Any]], subject: Any) -> bool:
    """Whether all work before an event, or of a stream, is done."""
    (status,) = function(subject)
    if status not in (_SUCCESS, _NOT_READY):
        raise explained(function.__name__, status)
    return bool(status == _SUCCESS)


def enable_peer_access(context: Any) -> None:
    """Allow the current context to access the memory of another."""
    (status,) = driver.cuCtxEnablePeerAccess(context, 0)
    if status not in (_SUCCESS, _ALREADY_ENABLED):
        raise explained("cuCtxEnablePeerAccess", status)


def explained(call: str, status: Any) -> BackendError:
    """The error of a call that returned a status."""
    text = driver.cuGetErrorString(status)[1]
    words = text.decode() if isinstance(text, bytes) else "no text"
    message = f"{call} failed: {status.name} ({words})"
    if status == driver.CUresult.CUDA_ERROR_OUT_OF_MEMORY:
        return OutOfMemory(message)
    if status == driver.CUresult.CUDA_ERROR_TOO_MANY_PEERS:
        return TooManyPeers(message)
    return BackendLost(message) if status.name in _LASTING else BackendError(message)


KERNELS = Path(__file__).parent / "kernels"
#: First bytes of machine code files; PTX is text.
ELF = b"\x7fELF"


@cache
def nvrtc_version() -> str:
    """The version of the NVRTC wheel that the installed bindings use; empty if there is none."""
    with suppress(PackageNotFoundError):
        major = int(version(BINDINGS).partition(".")[0])
        return version(WHEELS.get(major, WHEELS[max(WHEELS)]))
    return ""


def cuda_source(name: str, kernels: Path = KERNELS) -> str:
    """The source of the kernels in a file, after the common source of all files."""
    return (kernels / "common.cuh").read_text() + (kernels / f"{name}.cu").read_text()


def compiled(
    text: str, architecture: str, folder: Path | None = None, headers: Headers | None = None
) -> bytes:
    """Code that the driver loads for an architecture such as ``sm_90``.

    A cubin, or PTX for the newest earlier architecture if NVRTC does not know this one.

    Args:
        folder: Folder of cached machine code; not used if it cannot be written.
        headers: Headers that the source includes.

    Raises:
        BackendError: If NVRTC cannot be loaded, rejects the source, or does not support the architecture.
    """
    included = headers.version if headers else ""
    key = "\0".join((text, architecture, nvrtc_version(), __version__, included))
    name = f"{hashlib.sha256(key.encode()).hexdigest()}.code"
    with suppress(OSError):
        return (_cached(folder) / name).read_bytes()
    code = _compile(text, architecture, headers)
    with suppress(OSError), new_file(code, _cached(folder)) as new:  # another process may write the same
        new.replace(new.with_name(name))
    return code


def _cached(folder: Path | None) -> Path:
    """The folder of cached code, which only this user can write; an OSError if there is none."""
    return private_folder(folder) if folder else cache_folder()


def _compile(text: str, architecture: str, headers: Headers | None) -> bytes:
    empty = [name.encode() for name in headers.empty] if headers else []
    try:
        from cuda.bindings import nvrtc

        _, *known = nvrtc.nvrtcGetSupportedArchs()
        _, program = nvrtc.nvrtcCreateProgram(text.encode(), b"", len(empty), [b""] * len(empty), empty)
    except (ImportError, RuntimeError) as error:  # a package is missing or cannot be loaded
        raise BackendError(f"NVRTC cannot be used: {error}; {INSTALL}") from error
    target = _target(architecture, known[0])
    try:
        options = [f"--gpu-architecture={target}".encode(), b"--std=c++17"]
        if headers:
            options += [b"--device-as-default-execution-space", f"--include-path={headers.folder}".encode()]
        (status,) = nvrtc.nvrtcCompileProgram(program, len(options), options)
        if status != nvrtc.nvrtcResult.NVRTC_SUCCESS:
            log = _fetched(program, nvrtc.nvrtcGetProgramLogSize, nvrtc.nvrtcGetProgramLog)
            raise BackendError(
                f"NVRTC {nvrtc_version()} rejected a kernel for {target}: {status.name}\n"
                + log.rstrip(b"\0").decode(errors="replace")
            )
        if target == architecture:
            return _fetched(program, nvrtc.nvrtcGetCUBINSize, nvrtc.nvrtcGetCUBIN)
        return _fetched(program, nvrtc.nvrtcGetPTXSize, nvrtc.nvrtcGetPTX)
    finally:
        nvrtc.nvrtcDestroyProgram(program)


def _target(architecture: str, known: Sequence[int]) -> str:
    """The compilation target: the architecture, or the newest earlier one as PTX.

    Raises:
        BackendError: If NVRTC supports only newer ones.
    """
    number = int(architecture.removeprefix("sm_"))
    if number in known:
        return architecture
    older = [earlier for earlier in known if earlier < number]
    if not older:
        raise BackendError(
            f"NVRTC {nvrtc_version()} does not support {architecture}; use CUDA 12: "
            f"pip install 'wirespeed[{extra(12)}]'"
        )
    return f"compute_{max(older)}"


def _fetched(program: Any, size_of: Callable[..., Any], fetch: Callable[..., Any]) -> bytes:
    """Bytes that NVRTC has generated."""
    data = bytes(size_of(program)[1])
    fetch(program, data)
    return data


_BLAS_LIBRARY = "cublas"
_BLAS_OUT_OF_MEMORY = 3  # CUBLAS_STATUS_ALLOC_FAILED
#: cudaDataType: CUDA_R_32F, CUDA_R_64F, CUDA_R_16F.
_FLOAT, _DOUBLE, _HALF = 0, 1, 2
#: For each operation: type of the vectors, bytes of a number, type of the scalar and of the arithmetic.
_AXPY_TYPES: dict[Operation, tuple[int, int, int, Callable[[], Any]]] = {
    Operation.HAXPY: (_HALF, 2, _FLOAT, ctypes.c_float),
    Operation.SAXPY: (_FLOAT, 4, _FLOAT, ctypes.c_float),
    Operation.TRIAD: (_DOUBLE, 8, _DOUBLE, ctypes.c_double),
}


@cache
def load_blas() -> tuple[Any, str]:
    """cuBLAS, or why it cannot be loaded and what to do."""
    try:
        from cuda.pathfinder import DynamicLibNotFoundError, load_nvidia_dynamic_lib
    except ImportError as error:
        return None, f"cuBLAS cannot be found without cuda-pathfinder ({error}): {INSTALL_BLAS}"
    try:
        path = load_nvidia_dynamic_lib(_BLAS_LIBRARY).abs_path
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


class CuBlas:
    """cuBLAS on the GPU of the current context; ``Blas`` describes its methods."""

    def __init__(self) -> None:
        library, reason = load_blas()
        if reason:
            raise BackendError(reason)
        self._library: Any = library
        self._handle = ctypes.c_void_p()
        self._check("cublasCreate", library.cublasCreate_v2(ctypes.byref(self._handle)))

    def bind_axpy(
        self, operation: Operation, size: int, x: int, y: int, stream: Any
    ) -> Callable[[float], object]:
        vectors, number_bytes, arithmetic, number = _AXPY_TYPES[operation]
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
            raise (OutOfMemory if status == _BLAS_OUT_OF_MEMORY else BackendError)(f"{call} failed: {text}")


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
