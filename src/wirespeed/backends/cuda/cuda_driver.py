"""``GpuDriver`` of CUDA, and the backend that measures NVIDIA GPUs with it: each method of the interface
calls the functions of CUDA that do it.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any
from uuid import UUID

from cuda.bindings import driver

from ...errors import BackendError, Unreachable
from ..gpu.backend import GpuBackend
from ..gpu.gpu_driver import Arguments, GpuProperties, Headers, NativeCalls
from .compiler import ELF, compiled, cuda_source, nvrtc_version
from .cublas import CuBlas, load_blas
from .driver import check, enable_peer_access, ending, explained, ready
from .nvml import Nvml
from .packages import BINDINGS, BLAS_WHEELS, INSTALL, WHEELS, extra
from .virtual_memory import create, exported, imex_channels, imported, map_for

if TYPE_CHECKING:
    from ..call_tables import Call, Failure

_ATTRIBUTE = driver.CUdevice_attribute
_HANDLE_BYTES = 64  # bytes of a CUipcMemHandle
_LAZY_PEER_ACCESS = driver.CUipcMem_flags.CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS.value
_ALLOCATE_FOR_ALL = driver.CU_MEMHOSTALLOC_PORTABLE | driver.CU_MEMHOSTALLOC_DEVICEMAP
_PIN_FOR_ALL = driver.CU_MEMHOSTREGISTER_PORTABLE | driver.CU_MEMHOSTREGISTER_DEVICEMAP
_THREAD_LOCAL = driver.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_THREAD_LOCAL
_NO_LESS = driver.CUstreamWaitValue_flags.CU_STREAM_WAIT_VALUE_GEQ
_S_PER_MS = 1e-3


def handles() -> dict[str, Any]:
    """Bus ID -> device of all GPUs that CUDA lets this process use."""
    check(driver.cuInit, 0)
    devices = {}
    for ordinal in range(check(driver.cuDeviceGetCount)):
        device = check(driver.cuDeviceGet, ordinal)
        domain, bus, slot = (attribute(device, f"PCI_{part}_ID") for part in ("DOMAIN", "BUS", "DEVICE"))
        devices[f"{domain:08x}:{bus:02x}:{slot:02x}"] = device
    return devices


def attribute(device: Any, name: str) -> int:
    """An attribute of a device, named without ``CU_DEVICE_ATTRIBUTE_``."""
    wanted = getattr(_ATTRIBUTE, f"CU_DEVICE_ATTRIBUTE_{name}")
    return int(check(driver.cuDeviceGetAttribute, wanted, device))


def name_of(device: Any) -> str:
    """The model name."""
    text: bytes = check(driver.cuDeviceGetName, 256, device)
    return text.split(b"\0")[0].decode()


def _capability(device: Any) -> tuple[int, int]:
    major, minor = (attribute(device, f"COMPUTE_CAPABILITY_{part}") for part in ("MAJOR", "MINOR"))
    return major, minor


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


class CudaDriver:
    """The CUDA driver; ``GpuDriver`` describes its methods.

    Methods that are functions of the driver are bound to ``check``, not wrapped: each call in a loop that is
    timed takes one Python frame.
    """

    name = "cuda"
    hidden_remedy = "check CUDA_VISIBLE_DEVICES and the permissions of /dev/nvidia*"
    peer_remedy = "check the IOMMU and ACS settings, or `nvidia-smi topo -p2p r`"

    def __init__(self) -> None:
        self.native: NativeCalls = CudaNativeCalls()
        self.default_stream = driver.CUstream(0)

        self.devices = handles
        self.open = partial(check, driver.cuDevicePrimaryCtxRetain)
        self.close = partial(check, driver.cuDevicePrimaryCtxRelease)
        self.use = partial(check, driver.cuCtxSetCurrent)
        self.synchronize_context = partial(check, driver.cuCtxSynchronize)
        self.enable_peer = enable_peer_access
        self.disable_peer = partial(check, driver.cuCtxDisablePeerAccess)

        self.free = partial(check, driver.cuMemFree)
        self.memory = partial(check, driver.cuMemGetInfo)
        self.read = partial(check, driver.cuMemcpyDtoH)
        self.write = partial(check, driver.cuMemcpyHtoD)
        self.enqueue_write = partial(check, driver.cuMemcpyHtoDAsync)
        self.enqueue_copy = partial(check, driver.cuMemcpyAsync)
        self.free_host = partial(check, driver.cuMemFreeHost)
        self.unpin = partial(check, driver.cuMemHostUnregister)

        self.destroy_stream = partial(check, driver.cuStreamDestroy)
        self.synchronize = partial(check, driver.cuStreamSynchronize)
        self.is_idle = partial(ready, driver.cuStreamQuery)
        self.destroy_event = partial(check, driver.cuEventDestroy)
        self.record = partial(check, driver.cuEventRecord)
        self.has_happened = partial(ready, driver.cuEventQuery)
        self.wait_event = ending(driver.cuStreamWaitEvent, 0)
        self.wait_value = ending(driver.cuStreamWaitValue32, _NO_LESS)
        self.write_value = ending(driver.cuStreamWriteValue32, 0)

        self.source = cuda_source
        self.unload = partial(check, driver.cuModuleUnload)
        self.load = partial(check, driver.cuFuncLoad)

        self.open_blas = CuBlas

        self.end_capture = partial(check, driver.cuStreamEndCapture)
        self.launch_graph = partial(check, driver.cuGraphLaunch)

        self.create_memory = create
        self.map_memory = map_for
        self.export_memory = exported
        self.import_memory = imported
        self.fabric_remedy = imex_channels
        self.close_allocation = partial(check, driver.cuIpcCloseMemHandle)

    def properties(self, device: Any) -> GpuProperties:
        # CAN_USE_STREAM_MEM_OPS describes the first version of these calls, and is 0 on Hopper with current
        # drivers; this attribute describes the version in use. Integrated GPUs (GB10) accept a wait, but then
        # block the host at the next launch.
        waits = attribute(device, "CAN_USE_64_BIT_STREAM_MEM_OPS") and not attribute(device, "INTEGRATED")
        return GpuProperties(
            name_of(device),
            _capability(device),
            attribute(device, "MULTIPROCESSOR_COUNT"),
            attribute(device, "MAX_SHARED_MEMORY_PER_BLOCK_OPTIN"),
            bool(waits),
        )

    def allocate(self, size: int) -> int:
        return int(check(driver.cuMemAlloc, size))

    def enqueue_zeros(self, address: int, size: int, stream: Any) -> None:
        check(driver.cuMemsetD8Async, address, 0, size, stream)

    def bind_copy(self, to: int, origin: int, size: int, stream: Any) -> Callable[[], object]:
        ends = driver.CUdeviceptr(to), driver.CUdeviceptr(origin)
        return partial(check, driver.cuMemcpyAsync, *ends, size, stream)

    def allocate_host(self, size: int) -> int:
        return int(check(driver.cuMemHostAlloc, size, _ALLOCATE_FOR_ALL))

    def pin(self, host: int, size: int) -> None:
        """Register existing memory."""
        check(driver.cuMemHostRegister, host, size, _PIN_FOR_ALL)

    def address_of(self, host: int) -> int:
        return int(check(driver.cuMemHostGetDevicePointer, host, 0))

    def stream(self) -> Any:
        return check(driver.cuStreamCreate, driver.CUstream_flags.CU_STREAM_NON_BLOCKING)

    def event(self) -> Any:
        return check(driver.cuEventCreate, driver.CUevent_flags.CU_EVENT_DEFAULT)

    def elapsed(self, start: Any, stop: Any) -> float:
        return float(check(driver.cuEventElapsedTime, start, stop)) * _S_PER_MS

    def module(self, source: str, device: Any, headers: Headers | None = None) -> Any:
        architecture = "sm_{}{}".format(*_capability(device))
        code = compiled(source, architecture, headers=headers)
        try:
            return check(driver.cuModuleLoadData, code)
        except BackendError as error:
            if code.startswith(ELF):
                raise
            raise type(error)(
                f"NVRTC {nvrtc_version()} does not know {architecture}, and the driver rejects PTX "
                f"for the previous architecture: {error}; install a newer NVRTC"
            ) from error

    def function(self, module: Any, name: str) -> Any:
        return check(driver.cuModuleGetFunction, module, name.encode())

    def variable(self, module: Any, name: str) -> tuple[int, int]:
        address, size = check(driver.cuModuleGetGlobal, module, name.encode())
        return int(address), int(size)

    def allow_shared_memory(self, function: Any, size: int) -> None:
        most = driver.CUfunction_attribute.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
        check(driver.cuFuncSetAttribute, function, most, size)

    def bind_launch(
        self, function: Any, blocks: int, threads: int, shared: int, stream: Any, arguments: Arguments
    ) -> Callable[[], object]:
        grid = blocks, 1, 1, threads, 1, 1
        return partial(check, driver.cuLaunchKernel, function, *grid, shared, stream, arguments.address, 0)

    def begin_capture(self, stream: Any) -> None:
        check(driver.cuStreamBeginCapture, stream, _THREAD_LOCAL)

    def executable(self, graph: Any) -> Any:
        return check(driver.cuGraphInstantiate, graph, 0)

    def destroy_graph(self, graph: Any, executable: Any) -> None:
        check(driver.cuGraphExecDestroy, executable)
        check(driver.cuGraphDestroy, graph)

    def export_allocation(self, address: int) -> tuple[bytes, int]:
        base, _ = check(driver.cuMemGetAddressRange, address)
        handle = check(driver.cuIpcGetMemHandle, base)
        return ctypes.string_at(int(handle.getPtr()), _HANDLE_BYTES), address - int(base)

    def open_allocation(self, handle: bytes) -> int:
        """Map memory that another process allocated; the driver enables peer access."""
        raw = driver.CUipcMemHandle()
        ctypes.memmove(int(raw.getPtr()), handle, _HANDLE_BYTES)
        return int(check(driver.cuIpcOpenMemHandle, raw, _LAZY_PEER_ACCESS))


class CudaNativeCalls:
    """``NativeCalls`` of the CUDA driver."""

    def library(self) -> ctypes.CDLL:
        return ctypes.CDLL("libcuda.so.1")

    def use(self, context: int) -> Call:
        return "cuCtxSetCurrent", (context,)

    def synchronize(self, stream: int) -> Call:
        return "cuStreamSynchronize", (stream,)

    def record(self, event: int, stream: int) -> Call:
        return "cuEventRecord", (event, stream)

    def copy(self, to: int, origin: int, size: int, stream: int) -> Call:
        return "cuMemcpyDtoDAsync_v2", (to, origin, size, stream)

    def move(self, to: int, origin: int, size: int, stream: int) -> Call:
        return "cuMemcpyAsync", (to, origin, size, stream)

    def batch(
        self, to: int, origin: int, sizes: int, count: int, ends: Sequence[int | None], stream: int
    ) -> tuple[Call, object]:
        """``cuMemcpyBatchAsync``; before CUDA 13 with another argument: where it stores the failed index."""
        attributes, words = driver.CUmemcpyAttributes(), (ctypes.c_size_t * 2)()
        attributes.srcAccessOrder = driver.CUmemcpySrcAccessOrder.CU_MEMCPY_SRC_ACCESS_ORDER_STREAM
        for hint, device in zip((attributes.srcLocHint, attributes.dstLocHint), ends, strict=True):
            kind = driver.CUmemLocationType
            on_host = device is None
            hint.type = kind.CU_MEM_LOCATION_TYPE_HOST if on_host else kind.CU_MEM_LOCATION_TYPE_DEVICE
            hint.id = 0 if device is None else int(device)
        first, failed = (ctypes.addressof(words) + i * ctypes.sizeof(ctypes.c_size_t) for i in range(2))
        lists = to, origin, sizes, count, int(attributes.getPtr()), first, 1
        kept, library = (attributes, words), self.library()
        if hasattr(library, "cuMemcpyBatchAsync_v2"):
            return ("cuMemcpyBatchAsync_v2", (*lists, stream)), kept
        if hasattr(library, "cuMemcpyBatchAsync"):
            return ("cuMemcpyBatchAsync", (*lists, failed, stream)), kept
        raise Unreachable("the driver has no cuMemcpyBatchAsync: it requires a driver for CUDA 12.8 or later")

    def failed(self, failure: Failure) -> BackendError:
        return explained(failure.name, driver.CUresult(failure.status))

    def launch(
        self, function: int, blocks: int, threads: int, shared: int, stream: int, arguments: int
    ) -> Call:
        return "cuLaunchKernel", (function, blocks, 1, 1, threads, 1, 1, shared, stream, arguments, 0)


_PACKAGES = (BINDINGS, *WHEELS.values(), *BLAS_WHEELS.values(), "nvidia-ml-py")


class CudaBackend(GpuBackend):
    """Backend for transfers of GPUs by CUDA."""

    name = "cuda"
    title = "CUDA"

    def without_blas(self) -> str:
        return load_blas()[1]

    def open_monitor(self) -> Nvml | None:
        """NVML; None without it: discovery has reported the reason."""
        if find_spec("pynvml"):
            import pynvml

            with suppress(pynvml.NVMLError):
                return Nvml(pynvml)
        return None

    def libraries(self) -> dict[str, str]:
        versions = {"NVIDIA driver": self._machine.driver} if self._machine.driver else {}
        for package in _PACKAGES:
            with suppress(PackageNotFoundError):
                versions[package] = version(package)
        return versions

    def unusable(self) -> str:
        machine = self._machine
        supported = machine.cuda // 1000
        fitting = extra(supported)
        install = f"pip install 'wirespeed[{fitting}]'"
        try:
            needed = int(version(BINDINGS).split(".")[0])
        except PackageNotFoundError:
            return f"the Python package {BINDINGS} is missing: {install if fitting else INSTALL}"
        if not machine.cuda or supported >= needed:
            return ""
        return (
            f"the driver {machine.driver} supports CUDA {supported}.{machine.cuda % 1000 // 10}, but "
            f"{BINDINGS} requires {needed}.0: update the driver{f', or {install}' if fitting else ''}"
        )
