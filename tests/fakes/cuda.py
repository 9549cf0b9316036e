"""A CUDA driver without a GPU: it enumerates GPUs, keeps account of what it is given, and refuses on request.

What it is asked for by the functions of ``cuda.bindings.driver`` is done on host memory or not at all;
a function that is not here must not be called.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
from cuda.bindings import driver as real

_OK = real.CUresult.CUDA_SUCCESS
_ATTRIBUTE = real.CUdevice_attribute


class FakeCuda:
    """GPUs of compute capability 9.0.

    Attributes:
        count, bus: How many GPUs, and the PCI address (domain, bus, device) of each.
        peers: Whether one GPU can access another.
        most_peers: Enabled accesses of one GPU that the driver allows.
        attributes: Name without ``CU_DEVICE_ATTRIBUTE_`` -> value of all GPUs.
        milliseconds: What events are apart.
        refused: Function -> the error that it returns, or raises.

    Attributes:
        calls: Names of the functions that were called.
        launched: Names of the kernels that were launched.
        enabled: Pairs of GPUs of which the first may access the second.
    """

    def __init__(
        self,
        count: int = 2,
        bus: Callable[[int], tuple[int, int, int]] = lambda i: (0, 0, 6 + i),
        peers: Callable[[int, int], bool] = lambda a, b: True,
        most_peers: int = 8,
        attributes: dict[str, int] | None = None,
        milliseconds: float = 1.0,
        refused: dict[str, Any] | None = None,
    ) -> None:
        self.count, self.bus, self.peers, self.most_peers = count, bus, peers, most_peers
        self.attributes = {
            "COMPUTE_CAPABILITY_MAJOR": 9, "COMPUTE_CAPABILITY_MINOR": 0, "MULTIPROCESSOR_COUNT": 132,
            "MAX_SHARED_MEMORY_PER_BLOCK_OPTIN": 232_448, "CAN_USE_64_BIT_STREAM_MEM_OPS": 1,
            "CAN_USE_STREAM_MEM_OPS_V1": 0, "INTEGRATED": 0,
            **(attributes or {}),
        }  # fmt: skip
        self.milliseconds = milliseconds
        self.refused = refused or {}
        self.calls: list[str] = []
        self.launched: list[str] = []
        self.enabled: set[tuple[int, int]] = set()
        self._current = 0
        self._handles = 1000
        self._memory: list[Any] = []

    def install(self, monkeypatch: pytest.MonkeyPatch) -> FakeCuda:
        """Stand in for the driver until the test ends."""
        for name in dir(real):
            if name.startswith("cu") and callable(getattr(real, name)):
                monkeypatch.setattr(real, name, self._function(name))
        return self

    def _function(self, name: str) -> Callable[..., Any]:
        def call(*arguments: Any) -> Any:
            self.calls.append(name)
            answer = self.refused.get(name)
            if isinstance(answer, Exception):
                raise answer
            if answer is not None:
                return answer, None
            found = getattr(self, name, None)
            assert found is not None, f"the fake has no {name}"
            result = found(*arguments)
            if isinstance(result, real.CUresult):
                return (result,)
            return (_OK, *(result if isinstance(result, tuple) else () if result is None else (result,)))

        call.__name__ = name
        return call

    def _new(self, *_: Any) -> int:
        self._handles += 1
        return self._handles

    def _nothing(self, *_: Any) -> None: ...

    cuInit = cuDevicePrimaryCtxRelease = cuEventRecord = cuEventQuery = cuEventDestroy = _nothing
    cuStreamDestroy = cuStreamWaitEvent = cuStreamQuery = cuFuncLoad = cuModuleUnload = _nothing
    cuMemFree = cuMemsetD8Async = cuMemcpyDtoH = cuMemcpyAsync = cuMemFreeHost = _nothing
    cuMemcpyHtoDAsync = cuStreamSynchronize = _nothing
    cuMemHostRegister = cuMemHostUnregister = cuStreamWaitValue32 = cuFuncSetAttribute = _nothing
    cuStreamCreate = cuEventCreate = cuModuleLoadData = cuMemAlloc = _new

    def cuGetErrorString(self, status: Any) -> bytes:
        return b"refused by the fake"

    def cuDriverGetVersion(self) -> int:
        return 13000

    def cuDeviceGetCount(self) -> int:
        return self.count

    def cuDeviceGet(self, ordinal: int) -> int:
        return ordinal

    def cuDeviceGetName(self, size: int, device: int) -> bytes:
        return b"NVIDIA H200".ljust(size, b"\0")

    def cuDeviceGetUuid(self, device: int) -> Any:
        return SimpleNamespace(bytes=bytes([*range(15), device]))

    def cuDeviceTotalMem(self, device: int) -> int:
        return 150_754_820_096

    def cuDeviceGetAttribute(self, attribute: Any, device: int) -> Any:
        name = attribute.name.removeprefix("CU_DEVICE_ATTRIBUTE_")
        place = ("PCI_DOMAIN_ID", "PCI_BUS_ID", "PCI_DEVICE_ID")
        if name in place:
            return self.bus(device)[place.index(name)]
        return self.attributes.get(name, real.CUresult.CUDA_ERROR_INVALID_VALUE)

    def cuDeviceCanAccessPeer(self, device: int, other: int) -> int:
        return int(self.peers(device, other))

    def cuDeviceGetP2PAttribute(self, attribute: Any, device: int, other: int) -> int:
        assert attribute == real.CUdevice_P2PAttribute.CU_DEVICE_P2P_ATTRIBUTE_NATIVE_ATOMIC_SUPPORTED
        return self.attributes.get("NVLINK", 0)

    def cuDevicePrimaryCtxRetain(self, device: int) -> int:
        return device

    def cuCtxSetCurrent(self, context: int) -> None:
        self._current = context

    def cuCtxEnablePeerAccess(self, context: int, flags: int) -> Any:
        if sum(device == self._current for device, _ in self.enabled) == self.most_peers:
            return real.CUresult.CUDA_ERROR_TOO_MANY_PEERS
        assert (self._current, context) not in self.enabled
        self.enabled.add((self._current, context))
        return None

    def cuCtxDisablePeerAccess(self, context: int) -> None:
        self.enabled.remove((self._current, context))

    def cuMemHostAlloc(self, size: int, flags: int) -> int:
        self._memory.append(ctypes.create_string_buffer(size))
        return ctypes.addressof(self._memory[-1])

    def cuMemHostGetDevicePointer(self, address: int, flags: int) -> int:
        return address

    def cuMemGetInfo(self) -> tuple[int, int]:
        return 2**37, 2**37

    def cuEventElapsedTime(self, start: int, stop: int) -> float:
        return self.milliseconds

    def cuModuleGetFunction(self, module: int, name: bytes) -> str:
        return name.decode()

    def cuStreamWriteValue32(self, stream: int, address: int, value: int, flags: int) -> None:
        ctypes.c_uint32.from_address(address).value = value

    def cuLaunchKernel(self, kernel: str, *rest: Any) -> None:
        self.launched.append(kernel)
        if kernel == "tell":
            pointers = ctypes.cast(rest[-2], ctypes.POINTER(ctypes.c_void_p))
            word = ctypes.c_uint64.from_address(pointers[0]).value
            ctypes.c_uint32.from_address(word).value = ctypes.c_uint32.from_address(pointers[1]).value
