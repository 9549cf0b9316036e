"""Buffers in host memory for messages and for sharing between two processes."""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np

from ...errors import BackendError, OutOfMemory
from ...units import format_size
from ...worlds.descriptors import Descriptors
from ..distributed.job_process import Mechanism
from .job_process import SHM, ShmSharing


class HostBuffers:
    """Memory of the process from ``malloc``, whose pages exist when they are first written.

    Attributes:
        timeout: Maximum time to open another process' memory, in s.
    """

    where: Any = None

    def __init__(self, timeout: float) -> None:
        self._timeout = timeout
        self._held: dict[int, Any] = {}
        self._descriptors: Descriptors | None = None

    def allocate(self, size: int) -> int:
        """Allocate memory and return its address."""
        try:
            array = np.empty(size, np.uint8)
        except MemoryError as error:
            raise OutOfMemory(
                f"a buffer of {format_size(size)} in host memory: {error}; give a smaller size"
            ) from error
        self._held[array.ctypes.data] = array
        return int(array.ctypes.data)

    def free(self, address: int) -> None:
        """Free memory."""
        del self._held[address]

    def write(self, address: int, data: Any) -> None:
        """Copy an array to an address."""
        ctypes.memmove(address, data.ctypes.data, data.nbytes)

    def read(self, address: int, size: int) -> Any:
        """A copy of ``size`` bytes at an address."""
        content = np.empty(size, np.uint8)
        ctypes.memmove(content.ctypes.data, address, size)
        return content

    def copy(self, destination: int, source: int, size: int) -> None:
        """Copy with this thread."""
        ctypes.memmove(destination, source, size)

    def sharing(self, mechanism: str) -> Mechanism:
        """A mechanism that shares host memory."""
        if mechanism != SHM:
            raise BackendError(f"host memory is shared by {SHM}, not by {mechanism}")
        if self._descriptors is None:
            self._descriptors = Descriptors()
        return ShmSharing(self._descriptors, self._timeout)

    def close(self) -> None:
        """Free all memory."""
        self._held.clear()
        if self._descriptors is not None:
            self._descriptors.close()
