"""A GPU: its context, streams, kernels, and access to its peers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from cuda.bindings import driver

from ...devices.gpu import Gpu
from ...errors import BackendError, Unreachable
from . import compiler
from .driver import TooManyPeers, check, enable_peer_access

_ATTRIBUTE = driver.CUdevice_attribute


def handles() -> dict[str, Any]:
    """Return bus ID -> device of all GPUs that CUDA lets this process use."""
    check(driver.cuInit, 0)
    found = {}
    for ordinal in range(check(driver.cuDeviceGetCount)):
        device = check(driver.cuDeviceGet, ordinal)
        domain, bus, slot = (
            check(driver.cuDeviceGetAttribute, attribute, device)
            for attribute in (
                _ATTRIBUTE.CU_DEVICE_ATTRIBUTE_PCI_DOMAIN_ID,
                _ATTRIBUTE.CU_DEVICE_ATTRIBUTE_PCI_BUS_ID,
                _ATTRIBUTE.CU_DEVICE_ATTRIBUTE_PCI_DEVICE_ID,
            )
        )
        found[f"{domain:08x}:{bus:02x}:{slot:02x}"] = device
    return found


def load(source: str, architecture: str, headers: compiler.Headers | None = None) -> Any:
    """Return the module of a source, compiled for the GPU of the current context.

    Raises
    ------
    BackendError
        If NVRTC or the driver rejects it.
    """
    code = compiler.compiled(source, architecture, headers=headers)
    try:
        return check(driver.cuModuleLoadData, code)
    except BackendError as error:
        if code.startswith(compiler.ELF):
            raise
        raise type(error)(
            f"NVRTC {compiler.nvrtc_version()} does not know {architecture}, and the driver rejects PTX for "
            f"the previous architecture: {error}; install a newer NVRTC"
        ) from error


class TimedStream:
    """A stream of a GPU, with the events that time its work."""

    def __init__(self, device: Device) -> None:
        device.use()
        self.device = device
        self.stream = check(driver.cuStreamCreate, driver.CUstream_flags.CU_STREAM_NON_BLOCKING)
        self.ready, self.start, self.stop, self.end = (
            check(driver.cuEventCreate, driver.CUevent_flags.CU_EVENT_DEFAULT) for _ in range(4)
        )

    def record(self, event: Any) -> None:
        """Record an event in this stream."""
        self.device.use()
        check(driver.cuEventRecord, event, self.stream)

    def wait(self, event: Any) -> None:
        """Make this stream wait for an event of any stream."""
        self.device.use()
        check(driver.cuStreamWaitEvent, self.stream, event, 0)

    def destroy(self) -> None:
        """Destroy the stream and its events."""
        self.device.use()
        for event in (self.ready, self.start, self.stop, self.end):
            check(driver.cuEventDestroy, event)
        check(driver.cuStreamDestroy, self.stream)


class Device:
    """A GPU with its primary context.

    Attributes
    ----------
    multiprocessors, shared_memory : int
        Number of multiprocessors; maximum shared memory of a block, in bytes.
    has_stream_waits : bool
        Whether its streams can wait for a value in memory and write one.
    """

    def __init__(self, gpu: Gpu, handle: Any) -> None:
        self.gpu = gpu
        self.handle = handle
        self.context = check(driver.cuDevicePrimaryCtxRetain, handle)
        self._modules: dict[str, Any] = {}
        self._kernels: dict[tuple[str, str], Any] = {}
        self.multiprocessors = self._attribute(_ATTRIBUTE.CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT)
        self.shared_memory = self._attribute(_ATTRIBUTE.CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN)
        # CAN_USE_STREAM_MEM_OPS describes the first version of these calls, and is 0 on Hopper with current
        # drivers; this attribute describes the version in use. Integrated GPUs (GB10) accept a wait, but then
        # block the host at the next launch.
        self.has_stream_waits = bool(
            self._attribute(_ATTRIBUTE.CU_DEVICE_ATTRIBUTE_CAN_USE_64_BIT_STREAM_MEM_OPS)
            and not self._attribute(_ATTRIBUTE.CU_DEVICE_ATTRIBUTE_INTEGRATED)
        )

    @property
    def name(self) -> str:
        """Name in the Machine: ``gpu0``."""
        return self.gpu.name

    @property
    def ordinal(self) -> int:
        """CUDA's number of the GPU."""
        return int(self.handle)

    def use(self) -> None:
        """Make its context current in this thread."""
        check(driver.cuCtxSetCurrent, self.context)

    def kernel(self, file: str, name: str) -> Any:
        """Return a kernel; on first use its file is compiled or loaded from the cache.

        The kernel is loaded here, not at its first launch: loading waits for the GPU, which a gate may hold.
        """
        if (file, name) not in self._kernels:
            self.use()
            if file not in self._modules:
                self._modules[file] = load(compiler.source(file), self.architecture)
            function = check(driver.cuModuleGetFunction, self._modules[file], name.encode())
            check(driver.cuFuncLoad, function)
            self._kernels[file, name] = function
        return self._kernels[file, name]

    def allow_shared_memory(self, kernel: Any) -> None:
        """Allow blocks of a kernel to use all shared memory."""
        most = driver.CUfunction_attribute.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
        check(driver.cuFuncSetAttribute, kernel, most, self.shared_memory)

    @property
    def architecture(self) -> str:
        """NVRTC's name of the architecture: ``sm_90``."""
        major = self._attribute(_ATTRIBUTE.CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR)
        minor = self._attribute(_ATTRIBUTE.CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR)
        return f"sm_{major}{minor}"

    def memory(self) -> tuple[int, int]:
        """Return free and total bytes of its memory."""
        self.use()
        free, total = check(driver.cuMemGetInfo)
        return free, total

    def close(self) -> None:
        """Release kernels and the context."""
        self.use()
        for module in self._modules.values():
            check(driver.cuModuleUnload, module)
        check(driver.cuDevicePrimaryCtxRelease, self.handle)

    def _attribute(self, attribute: Any) -> int:
        return int(check(driver.cuDeviceGetAttribute, attribute, self.handle))


class Peers:
    """Access of GPUs to each other's memory, enabled on first use and kept.

    Without NVLink the driver allows each GPU only eight peers. Then unused peers are disabled to make room.
    """

    def __init__(self) -> None:
        self._uses: dict[tuple[Device, Device], int] = {}

    def take(self, device: Device, other: Device) -> None:
        """Make the memory of another GPU accessible until ``give``.

        Raises
        ------
        Unreachable
            If the driver's maximum number of peers is in use.
        BackendError
            If enabling fails although the driver reports that the GPUs are peers.
        """
        pair = (device, other)
        if pair not in self._uses:
            try:
                self._enable(*pair)
            except TooManyPeers:
                self._give_way()
                try:
                    self._enable(*pair)
                except TooManyPeers as error:
                    raise Unreachable(
                        f"{device.name} cannot access the memory of {other.name}: the driver's maximum "
                        f"number of peers is in use ({error})"
                    ) from error
            self._uses[pair] = 0
        self._uses[pair] += 1

    def give(self, device: Device, other: Device) -> None:
        """Release one use of the access."""
        self._uses[device, other] -= 1

    def _give_way(self) -> None:
        """Disable all unused access."""
        for device, other in [pair for pair, uses in self._uses.items() if not uses]:
            device.use()
            check(driver.cuCtxDisablePeerAccess, other.context)
            del self._uses[device, other]

    def _enable(self, device: Device, other: Device) -> None:
        device.use()
        try:
            enable_peer_access(other.context)
        except TooManyPeers:
            raise
        except BackendError as error:
            raise type(error)(
                f"{device.name} cannot access the memory of {other.name}, although the driver reports them "
                f"as peers: {error}; check the IOMMU and ACS settings, or `nvidia-smi topo -p2p r`"
            ) from error


Devices = Mapping[str, Device]
