"""cuBLAS, which computes ``y = s x + y`` on a GPU."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from functools import cache
from typing import Any

from ...errors import BackendError, OutOfMemory
from ...model import Operation
from .packages import INSTALL_BLAS

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
