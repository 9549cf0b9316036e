"""Attributes of this process' GPUs from CUDA, before a context exists."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from cuda.bindings import driver

from .cuda_driver import attribute, handles, name_of
from .driver import check

_NATIVE_ATOMICS = driver.CUdevice_P2PAttribute.CU_DEVICE_P2P_ATTRIBUTE_NATIVE_ATOMIC_SUPPORTED


class Cuda:
    """The GPUs that CUDA lets this process use, by bus ID as in ``Gpu``.

    Raises:
        BackendError: If the driver cannot be loaded or initialised.
    """

    def __init__(self) -> None:
        self._handles = handles()
        #: In CUDA's order.
        self.bus_ids = tuple(self._handles)

    def version(self) -> int:
        """The CUDA version that the driver supports, e.g. 13000."""
        return int(check(driver.cuDriverGetVersion))

    def name(self, bus_id: str) -> str:
        return name_of(self._handles[bus_id])

    def uuid(self, bus_id: str) -> str:
        """The UUID in the form of ``nvidia-smi -L``."""
        uuid = check(driver.cuDeviceGetUuid, self._handles[bus_id])
        return f"GPU-{UUID(bytes=bytes(uuid.bytes)[:16])}"

    def memory_bytes(self, bus_id: str) -> int:
        """The size of its memory."""
        return int(check(driver.cuDeviceTotalMem, self._handles[bus_id]))

    def attribute(self, bus_id: str, name: str) -> int:
        """An attribute, named without ``CU_DEVICE_ATTRIBUTE_``."""
        return attribute(self._handles[bus_id], name)

    def can_access(self, bus_id: str, other: str) -> bool | None:
        """Whether a GPU can access another's memory; None if CUDA lacks one of them."""
        ends = self._both(bus_id, other)
        return None if ends is None else bool(check(driver.cuDeviceCanAccessPeer, *ends))

    def has_native_atomics(self, bus_id: str, other: str) -> bool:
        """Whether atomics work on the other's memory, as over NVLink but not over PCIe."""
        ends = self._both(bus_id, other)
        return ends is not None and bool(check(driver.cuDeviceGetP2PAttribute, _NATIVE_ATOMICS, *ends))

    def _both(self, bus_id: str, other: str) -> tuple[Any, Any] | None:
        if bus_id not in self._handles or other not in self._handles:
            return None
        return self._handles[bus_id], self._handles[other]
