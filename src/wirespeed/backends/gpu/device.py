"""A GPU as the backend uses it: its context, streams, kernels, and access to its peers."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from ...errors import BackendError, Unreachable
from ...hardware.devices import Gpu
from ...units import format_size
from .gpu_driver import Blas, GpuDriver, TooManyPeers


def process_name(pid: int, used: int | None = None) -> str:
    """A process by name, if visible, and ID, with the bytes that it uses, if known."""
    try:
        name = Path(f"/proc/{pid}/comm").read_text().strip()
    except OSError:  # in another container, or ended
        name = "a process"
    return f"{name} (PID {pid}{f', {format_size(used)}' if used else ''})"


class TimedStream:
    """A stream of a GPU, with the events that time its work."""

    def __init__(self, device: Device) -> None:
        device.use()
        self.device = device
        self.stream = device.driver.stream()
        self.ready, self.start, self.stop, self.end = (device.driver.event() for _ in range(4))

    def record(self, event: Any) -> None:
        """Record an event in this stream."""
        self.device.use()
        self.device.driver.record(event, self.stream)

    def wait(self, event: Any) -> None:
        """Make this stream wait for an event of any stream."""
        self.device.use()
        self.device.driver.wait_event(self.stream, event)

    def elapsed(self, start: Any, stop: Any) -> float:
        """The seconds between two events.

        Raises:
            BackendError: If the difference is not plausible, so the event clock cannot be trusted.
        """
        seconds = self.device.driver.elapsed(start, stop)
        if seconds <= 0:
            raise BackendError(f"the GPU's events are {seconds:g} s apart, although work ran between them")
        return seconds

    @property
    def is_idle(self) -> bool:
        """Whether all its work is done."""
        return self.device.driver.is_idle(self.stream)

    def destroy(self) -> None:
        """Destroy the stream and its events."""
        self.device.use()
        for event in (self.ready, self.start, self.stop, self.end):
            self.device.driver.destroy_event(event)
        self.device.driver.destroy_stream(self.stream)


class Device:
    """A GPU with its primary context.

    Attributes:
        use: Makes its context current in the calling thread.
        multiprocessors, shared_memory, has_stream_waits: As in ``GpuProperties``.
    """

    def __init__(self, gpu: Gpu, driver: GpuDriver, handle: Any) -> None:
        self.gpu = gpu
        self.driver = driver
        self.handle = handle
        self.context = driver.open(handle)
        self.use = partial(driver.use, self.context)
        self._modules: dict[str, Any] = {}
        self._kernels: dict[tuple[str, str], Any] = {}
        self._blas: Blas | None = None
        properties = driver.properties(handle)
        self.multiprocessors = properties.multiprocessors
        self.shared_memory = properties.shared_memory
        self.has_stream_waits = properties.has_stream_waits

    @property
    def name(self) -> str:
        """Name in the Machine: ``gpu0``."""
        return self.gpu.name

    def later(self, call: Callable[..., object], *arguments: Any) -> Callable[[], None]:
        """A call that is made later, in the context of this GPU."""

        def made() -> None:
            self.use()
            call(*arguments)

        return made

    def kernel(self, file: str, name: str) -> Any:
        """A kernel; on first use its file is compiled or loaded from the cache.

        The kernel is loaded here, not at its first launch: loading waits for the GPU, which a gate may hold.
        """
        if (file, name) not in self._kernels:
            self.use()
            if file not in self._modules:
                self._modules[file] = self.driver.module(self.driver.source(file), self.handle)
            function = self.driver.function(self._modules[file], name)
            self.driver.load(function)
            self._kernels[file, name] = function
        return self._kernels[file, name]

    def blas(self) -> Blas:
        """The library of linear algebra, opened on first use."""
        if self._blas is None:
            self.use()
            self._blas = self.driver.open_blas()
        return self._blas

    def memory(self) -> tuple[int, int]:
        """Free and total bytes of its memory."""
        self.use()
        return self.driver.memory()

    def words(self, address: int, count: int) -> list[int]:
        """Words of 64 bits of its memory."""
        self.use()
        read = (ctypes.c_uint64 * count)()
        self.driver.read(ctypes.addressof(read), address, ctypes.sizeof(read))
        return list(read)

    def close(self) -> None:
        """Release kernels and the context."""
        self.use()
        if self._blas is not None:
            self._blas.close()
        for module in self._modules.values():
            self.driver.unload(module)
        self.driver.close(self.handle)


def map_for(users: Sequence[Device], memory: Any, size: int) -> tuple[int, Callable[[], None]]:
    """Map created memory for some GPUs of this process, the first of which is current.

    Returns:
        Its address, and a function that unmaps and frees it.

    Raises:
        BackendError: If it cannot be mapped; then the memory is freed.
    """
    device = users[0]
    try:
        address, release = device.driver.map_memory(memory, size, [user.handle for user in users])
    except BackendError as error:
        raise type(error)(f"{format_size(size)} could not be mapped for {device.name}: {error}") from error
    return address, device.later(release)


class Peers:
    """Access of GPUs to each other's memory, enabled on first use and kept.

    Without NVLink the driver allows each GPU only eight peers. Then unused peers are disabled to make room.
    """

    def __init__(self) -> None:
        self._uses: dict[tuple[Device, Device], int] = {}

    def take(self, device: Device, other: Device) -> None:
        """Make the memory of another GPU accessible until ``give``.

        Raises:
            Unreachable: If the driver's maximum number of peers is reached.
            BackendError: If enabling fails although the driver reports that the GPUs are peers.
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
            device.driver.disable_peer(other.context)
            del self._uses[device, other]

    def _enable(self, device: Device, other: Device) -> None:
        device.use()
        try:
            device.driver.enable_peer(other.context)
        except TooManyPeers:
            raise
        except BackendError as error:
            raise type(error)(
                f"{device.name} cannot access the memory of {other.name}, although the driver reports them "
                f"as peers: {error}; {device.driver.peer_remedy}"
            ) from error
