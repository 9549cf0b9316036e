"""cuBLAS by a library that stands in for it: what it is given, and what is said if it cannot be used."""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("cuda.pathfinder")

from cuda import pathfinder

from wirespeed.backends.cuda import cublas
from wirespeed.errors import BackendError, OutOfMemory
from wirespeed.model import Operation


class Function:
    """A function of a library, which returns a status."""

    def __init__(self, status: Any = 0) -> None:
        self.status, self.calls = status, list[tuple[Any, ...]]()

    def __call__(self, *arguments: Any) -> Any:
        self.calls.append(arguments)
        return self.status


@pytest.fixture(autouse=True)
def fresh() -> Iterator[None]:
    cublas.load_blas.cache_clear()
    yield
    cublas.load_blas.cache_clear()


@pytest.fixture
def library(monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    names = ("cublasCreate_v2", "cublasSetStream_v2", "cublasAxpyEx_64", "cublasDestroy_v2")
    library = SimpleNamespace(**{name: Function() for name in names})
    library.cublasGetStatusString = Function(b"the library was not initialized")
    monkeypatch.setattr(
        pathfinder, "load_nvidia_dynamic_lib", lambda name: SimpleNamespace(abs_path=f"lib{name}.so")
    )
    monkeypatch.setattr(ctypes, "CDLL", lambda path: library)
    return library


@pytest.mark.parametrize(
    ("operation", "count", "types"),
    [
        (Operation.HAXPY, 12, (0, 2, 2, 0)),
        (Operation.SAXPY, 6, (0, 0, 0, 0)),
        (Operation.TRIAD, 3, (1, 1, 1, 1)),
    ],
)
def test_a_vector_is_added_in_its_stream(library, operation, count, types) -> None:
    blas = cublas.CuBlas()
    add = blas.bind_axpy(operation, 24, 1000, 2000, 7)
    add(-6.0)
    (_, stream), *_ = library.cublasSetStream_v2.calls
    _, n, scalar, scalar_type, x, x_type, x_step, y, y_type, y_step, arithmetic = (
        library.cublasAxpyEx_64.calls[0]
    )
    assert (stream, n, x, x_step, y, y_step) == (7, count, 1000, 1, 2000, 1)
    assert (scalar_type, x_type, y_type, arithmetic) == types
    number = ctypes.c_double if operation is Operation.TRIAD else ctypes.c_float
    assert number.from_address(scalar).value == -6
    blas.close()
    assert len(library.cublasDestroy_v2.calls) == 1


@pytest.mark.parametrize(("status", "error"), [(1, BackendError), (3, OutOfMemory)])
def test_a_status_is_an_error(library, status, error) -> None:
    library.cublasCreate_v2.status = status
    with pytest.raises(error, match="cublasCreate failed: the library was not initialized"):
        cublas.CuBlas()
    library.cublasCreate_v2.status = 0
    add = cublas.CuBlas().bind_axpy(Operation.SAXPY, 8, 0, 0, 0)
    library.cublasAxpyEx_64.status = status
    with pytest.raises(error, match="cublasAxpyEx failed"):
        add(1.0)


def test_a_library_that_is_missing_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str) -> None:
        raise pathfinder.DynamicLibNotFoundError(f"Failure finding lib{name}.so")

    monkeypatch.setattr(pathfinder, "load_nvidia_dynamic_lib", missing)
    assert cublas.load_blas()[1] == f"cuBLAS is missing: {cublas.INSTALL_BLAS}"
    assert "wirespeed[cublas]" in cublas.load_blas()[1]
    with pytest.raises(BackendError, match="cuBLAS is missing"):
        cublas.CuBlas()


def test_a_library_that_is_too_old_or_broken_is_said(library, monkeypatch: pytest.MonkeyPatch) -> None:
    del library.cublasAxpyEx_64
    assert (
        cublas.load_blas()[1].startswith("cuBLAS cannot be used (")
        and "cublasAxpyEx_64" in cublas.load_blas()[1]
    )
    cublas.load_blas.cache_clear()
    monkeypatch.setitem(sys.modules, "cuda.pathfinder", None)
    assert "without cuda-pathfinder" in cublas.load_blas()[1]
