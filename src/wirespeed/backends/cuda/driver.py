"""Calls to the CUDA driver; the only module that checks the driver's status codes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from cuda.bindings import driver

from ...errors import BackendError, BackendLost, OutOfMemory
from ..gpu.gpu_driver import TooManyPeers

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
