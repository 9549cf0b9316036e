"""One GPU: its context, streams, kernels, and access to its peers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from cuda.bindings import driver

from ...errors import BackendError, Unreachable
from ...topology import Gpu
from . import compiler
from .driver import TooManyPeers, check, enable_peer_access

_ATTRIBUTE = driver.CUdevice_attribute


def handles() -> dict[str, Any]:
    """Return bus id -> device of all GPUs that CUDA lets this process use."""
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


def load(source: str, architecture: str) -> Any:
    """Return the module of a source, compiled for the GPU of the current context.

    Raises
    ------
    BackendError
        If NVRTC or the driver refuses it.
    """
    code = compiler.compiled(source, architecture)
    try:
        return check(driver.cuModuleLoadData, code)
    except BackendError as error:
        if code.startswith(compiler.ELF):
            raise
        raise type(error)(
            f"NVRTC {compiler.nvrtc_version()} does not know {architecture}, and the driver refuses PTX for "
            f"what came before it: {error}; install a newer NVRTC"
        ) from error


class Lane:
    """A stream of a GPU and the events that time what runs in it."""

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
        """Let this stream wait for an event of any stream."""
        self.device.use()
        check(driver.cuStreamWaitEvent, self.stream, event, 0)

    def destroy(self) -> None:
        """Give stream and events back."""
        self.device.use()
        for event in (self.ready, self.start, self.stop, self.end):
            check(driver.cuEventDestroy, event)
        check(driver.cuStreamDestroy, self.stream)


class Device:
    """A GPU with its primary context.

    Attributes
    ----------
    multiprocessors, shared_memory
        How many it has; the most bytes of shared memory that one block may have.
    has_stream_waits
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
        # CAN_USE_STREAM_MEM_OPS is of the first version of these calls, and 0 on Hopper with today's drivers;
        # this attribute is of the version that is called. Integrated GPUs (GB10) accept a wait, but
        # then hold up the host at the next launch.
        self.has_stream_waits = bool(
            self._attribute(_ATTRIBUTE.CU_DEVICE_ATTRIBUTE_CAN_USE_64_BIT_STREAM_MEM_OPS)
            and not self._attribute(_ATTRIBUTE.CU_DEVICE_ATTRIBUTE_INTEGRATED)
        )

    @property
    def name(self) -> str:
        """As in the Machine: ``gpu0``."""
        return self.gpu.name

    @property
    def ordinal(self) -> int:
        """Its number for CUDA."""
        return int(self.handle)

    def use(self) -> None:
        """Make its context the current one of this thread."""
        check(driver.cuCtxSetCurrent, self.context)

    def kernel(self, file: str, name: str) -> Any:
        """Return a kernel; the first time its file is compiled or found in the cache.

        It is loaded here, not at its first launch: loading waits for the GPU, which is held by a gate.
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
        """Let blocks of a kernel have all the shared memory that there is."""
        most = driver.CUfunction_attribute.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
        check(driver.cuFuncSetAttribute, kernel, most, self.shared_memory)

    @property
    def architecture(self) -> str:
        """What NVRTC calls it: ``sm_90``."""
        major = self._attribute(_ATTRIBUTE.CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR)
        minor = self._attribute(_ATTRIBUTE.CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR)
        return f"sm_{major}{minor}"

    def memory(self) -> tuple[int, int]:
        """Return the free and all bytes of its memory."""
        self.use()
        free, total = check(driver.cuMemGetInfo)
        return free, total

    def close(self) -> None:
        """Give back kernels and the context."""
        self.use()
        for module in self._modules.values():
            check(driver.cuModuleUnload, module)
        check(driver.cuDevicePrimaryCtxRelease, self.handle)

    def _attribute(self, attribute: Any) -> int:
        return int(check(driver.cuDeviceGetAttribute, attribute, self.handle))


class Peers:
    """Access of GPUs to each other's memory: enabled when it is first needed, and kept.

    Where NVLink does not join them, the driver allows each GPU eight peers: then those that nothing
    uses at the moment give way.
    """

    def __init__(self) -> None:
        self._uses: dict[tuple[Device, Device], int] = {}

    def take(self, device: Device, other: Device) -> None:
        """Make the memory of another GPU accessible to a GPU until it is given back.

        Raises
        ------
        Unreachable
            If the GPUs have as many peers in use as the driver allows.
        BackendError
            If it fails although the driver says that they are peers.
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
                        f"{device.name} cannot access the memory of {other.name}: it has as many peers at "
                        f"once as the driver allows ({error})"
                    ) from error
            self._uses[pair] = 0
        self._uses[pair] += 1

    def give(self, device: Device, other: Device) -> None:
        """Note that something no longer uses it."""
        self._uses[device, other] -= 1

    def _give_way(self) -> None:
        """Disable all that nothing uses."""
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
