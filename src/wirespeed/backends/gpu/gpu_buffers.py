"""Buffers in the memory of a GPU, for messages and for sharing between two processes."""

from __future__ import annotations

from typing import Any

import numpy as np

from ...devices.gpu import Gpu
from ...errors import BackendError, OutOfMemory
from ...units import format_size
from ...worlds.descriptors import Descriptors
from ..shared_memory import Mechanism
from .device import Device
from .gpu_driver import FABRIC, IPC, VMM_FD, driver_of
from .ipc import DescriptorSharing, FabricSharing, IpcSharing


class GpuBuffers:
    """Memory of one GPU, from the plain allocator.

    Attributes:
        gpu: A GPU of this process.
        timeout: Maximum time to open another process' memory, in s.
    """

    def __init__(self, gpu: Gpu, timeout: float) -> None:
        self._driver = driver_of(gpu.backend)
        self.where = Device(gpu, self._driver, self._driver.devices()[gpu.bus_id])
        self.where.use()
        self._timeout = timeout
        self._descriptors: Descriptors | None = None
        self.stream = self._driver.stream()

    def allocate(self, size: int) -> int:
        """Allocate memory and return its address."""
        self.where.use()
        try:
            return self._driver.allocate(size)
        except OutOfMemory as error:
            raise OutOfMemory(
                f"a buffer of {format_size(size)} on {self.where.name}: {error}; give a smaller size"
            ) from error

    def free(self, address: int) -> None:
        """Free memory."""
        self.where.use()
        self._driver.free(address)

    def write(self, address: int, data: Any) -> None:
        """Copy an array to the GPU."""
        self.where.use()
        self._driver.write(address, data.ctypes.data, data.nbytes)
        self._driver.synchronize_context()  # the copy can return early; other streams do not wait for it

    def read(self, address: int, size: int) -> Any:
        """A copy of GPU memory."""
        self.where.use()
        data = np.empty(size, np.uint8)
        self._driver.read(data.ctypes.data, address, size)
        return data

    def copy(self, destination: int, source: int, size: int) -> None:
        """Copy with a copy engine."""
        self.where.use()
        self._driver.enqueue_copy(destination, source, size, self.stream)
        self._driver.synchronize(self.stream)

    def sharing(self, mechanism: str) -> Mechanism:
        """A mechanism that shares memory of a GPU."""
        known = (IPC, VMM_FD, FABRIC)
        if mechanism not in known:
            raise BackendError(f"memory of a GPU is shared by {', '.join(known)}, not by {mechanism}")
        if mechanism == VMM_FD:
            if self._descriptors is None:
                self._descriptors = Descriptors()
            return DescriptorSharing(self._descriptors, self._timeout)
        return IpcSharing() if mechanism == IPC else FabricSharing()

    def close(self) -> None:
        """Destroy the stream; the context ends with the process."""
        self.where.use()
        self._driver.destroy_stream(self.stream)
        if self._descriptors is not None:
            self._descriptors.close()
