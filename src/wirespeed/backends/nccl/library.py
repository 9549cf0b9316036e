"""The library NCCL: whether this process can use it, its versions, and its C functions."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable
from importlib import import_module
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

from ...errors import BackendError

if TYPE_CHECKING:
    from ..call_tables import Failure, Functions
    from ..gpu.gpu_driver import GpuDriver

#: Size of ncclUniqueId, in bytes: NCCL_UNIQUE_ID_BYTES in nccl.h.
IDENTIFIER_BYTES = 128
#: Name of the backend whose GPUs NCCL uses.
GPU_BACKEND = "cuda"
INSTALL_NCCL = "pip install 'wirespeed[nccl]', or 'wirespeed[nccl12]' for drivers before 580"


def bindings() -> Any:
    """The module of NCCL's bindings, which is imported at the first call."""
    return import_module("nccl.bindings.nccl")


def refuses(rank: int) -> tuple[str, bytes]:
    """Check whether NCCL can be used in this process.

    Returns:
        reason: Why NCCL cannot be used; empty if it can.
        identifier: Identifier of a new communicator on rank 0; empty on the others.
    """
    os.environ.setdefault("NCCL_NVLS_ENABLE", "0")  # sends and receives do not use multicast objects
    try:
        nccl = bindings()
    except (ImportError, RuntimeError) as error:
        return f"NCCL cannot be used: {error}; {INSTALL_NCCL}", b""
    try:
        identifier = nccl.get_unique_id() if rank == 0 else None  # it owns the bytes behind its address
        return "", ctypes.string_at(identifier.ptr, IDENTIFIER_BYTES) if identifier is not None else b""
    except nccl.NCCLError as error:
        return f"NCCL failed: {error}", b""


def libraries() -> dict[str, str]:
    """The versions of NCCL and of its bindings."""
    return {"nccl": version_text(int(bindings().get_version())), "nccl4py": version("nccl4py")}


def version_text(number: int) -> str:
    """A version of NCCL as people write it, of the number that ncclGetVersion returns."""
    return f"{number // 10000}.{number // 100 % 100}.{number % 100}"


def words_of(nccl: Any, failed: Failure) -> str:
    """The name of a call that failed, and NCCL's words for its status; calls of the driver have none."""
    if not failed.name.startswith("nccl"):
        return failed.name
    return f"{failed.name}: {nccl.get_error_string(failed.status)}"


def functions(driver: GpuDriver, error: Callable[[Failure], BackendError]) -> Functions:
    """The C functions of NCCL, which must be loaded already, and of the driver."""
    from ..call_tables import Functions

    return Functions(error, ctypes.CDLL("libnccl.so.2"), driver.native.library())
