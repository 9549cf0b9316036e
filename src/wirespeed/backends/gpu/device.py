"""What the backend asks of a library that monitors GPUs.

A GPU: its context, streams, kernels, and access to its peers.

Find out whether MPI can send GPU memory, in a process that may crash.

An MPI library without this support treats a device address as a host address and crashes. Its own
description is not sufficient: Open MPI over UCX may support GPU memory without saying so. So a separate
process sends a few bytes from the GPU to itself.

    python -m wirespeed.backends.gpu.device BACKEND BUS_ID

The speed of the PCIe links of GPUs while data moves: an idle link sleeps at the first generation.
"""

from __future__ import annotations

import ctypes
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from ...errors import BackendError, Unreachable, WirespeedError
from ...hardware.devices import Gpu
from ...hardware.facts import Fact, Known
from ...hardware.topology import LinkKind, Machine
from ...model import MemoryKind, Transfer
from ...units import format_size
from .. import pci
from ..tree import HERE, TreePath
from .gpu_driver import Blas, GpuDriver, Monitor, TooManyPeers, driver_of


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


#: Variables by which a launcher marks a process as one of several; they are removed for the test process.
_OF_LAUNCHERS = (
    "OMPI_COMM_WORLD", "OMPI_UNIVERSE", "OMPI_APP", "OMPI_FIRST_RANK", "OMPI_NUM_APP", "OMPI_FILE_LOCATION",
    "OMPI_MCA_orte", "OMPI_MCA_ess", "OMPI_MCA_pmix", "OMPI_MCA_prte", "PMIX_", "PMI_", "PMI2_", "PRTE_",
    "SLURM_", "HYDI_", "MPIR_", "PALS_",
)  # fmt: skip
_RIGHT, _WRONG, _NO_MPI = 0, 3, 4
_TEST_BYTES = 2**20
_TEST_LIMIT_S = 30.0


def unaware(gpu: Gpu, timeout: float, environment: Mapping[str, str] = os.environ) -> str:
    """Why MPI cannot send memory of a GPU; empty if it can."""
    alone = {k: v for k, v in environment.items() if not k.startswith(_OF_LAUNCHERS)}
    limit = min(timeout, _TEST_LIMIT_S)
    try:
        done = subprocess.run(
            [sys.executable, "-P", "-m", __name__, gpu.backend, gpu.bus_id], env=alone, capture_output=True,
            text=True, timeout=limit, stdin=subprocess.DEVNULL,
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        return f"a process that tried to send GPU memory with MPI did not end within {limit:g} s"
    return verdict(done.returncode, done.stderr)


def verdict(code: int, output: str) -> str:
    """Interpret the end of the test process; empty if MPI can send GPU memory."""
    last = (output.strip().splitlines() or [""])[-1]
    hint = "for Open MPI: install the wheel libucx-cu13 and give --mca pml ucx, see `wirespeed help clusters`"
    if code == _RIGHT:
        return ""
    if code == _WRONG:
        return f"this MPI is not GPU-aware: data sent from a GPU arrived wrong; {hint}"
    if code < 0:
        return f"this MPI is not GPU-aware: the test process ended with signal {-code}; {hint}"
    if code == _NO_MPI:
        return f"could not test whether this MPI is GPU-aware: {last}"
    return f"this MPI is not GPU-aware: the test process failed: {last or f'exit code {code}'}; {hint}"


def _try(backend: str, bus_id: str) -> int:
    """Send GPU memory to this process itself, and compare the received data."""
    from ...worlds.mpi import library

    try:
        mpi = library()
    except WirespeedError as error:
        print(error, file=sys.stderr)
        return _NO_MPI
    driver = driver_of(backend)
    driver.use(driver.open(driver.devices()[bus_id]))
    source, destination = (driver.allocate(_TEST_BYTES) for _ in range(2))
    sent, received = (ctypes.c_uint8 * _TEST_BYTES)(*b"\x5a" * _TEST_BYTES), (ctypes.c_uint8 * _TEST_BYTES)()
    driver.write(source, ctypes.addressof(sent), _TEST_BYTES)
    driver.write(destination, ctypes.addressof(received), _TEST_BYTES)
    driver.synchronize_context()
    to, origin = (mpi.memory.fromaddress(address, _TEST_BYTES) for address in (destination, source))
    mpi.COMM_SELF.Sendrecv([origin, mpi.BYTE], 0, 0, [to, mpi.BYTE], 0, 0)
    driver.read(ctypes.addressof(received), destination, _TEST_BYTES)
    return _RIGHT if bytes(received) == bytes(sent) else _WRONG


if __name__ == "__main__":
    sys.exit(_try(*sys.argv[1:]))


#: Minimum and maximum number of readings of a slow link: one may fall between two copies; each takes ms.
_MIN_READINGS, _MAX_READINGS = 3, 50


class LoadedLinks:
    """The highest speed of the slowest PCIe link of each GPU, seen while it copies from or to the host.

    Attributes:
        machine: The machine of this process.
        monitor: Returns the monitor, for links that sysfs does not show; None without one.
        root: Folder that contains ``sys``.
    """

    def __init__(self, machine: Machine, monitor: Callable[[], Monitor], root: TreePath = HERE) -> None:
        by_c2c = {link.source for link in machine.links if link.kind is LinkKind.C2C}
        self._gpus = {gpu.name: gpu for gpu in machine.gpus if gpu.name not in by_c2c}
        self._monitor, self._root = monitor, root
        self._best: dict[str, pci.LinkSpeed] = {}
        self._readings: Counter[str] = Counter()

    def observe(self, transfers: Sequence[Transfer]) -> None:
        """Read the links of the GPUs that copy from or to the host, unless full speed was seen."""
        for name in dict.fromkeys(gpu for transfer in transfers for gpu in _copies_with_host(transfer)):
            best = self._best.get(name)
            known = (best and best.share >= 1) or self._readings[name] >= _MAX_READINGS
            if known or name not in self._gpus:
                continue
            speed = self._slowest(name)
            if speed is not None:
                self._readings[name] += 1
                self._best[name] = max(filter(None, (best, speed)), key=lambda seen: seen.share)

    def _slowest(self, name: str) -> pci.LinkSpeed | None:
        gpu = self._gpus[name]
        return pci.slowest(pci.entry(gpu.bus_id, self._root)) or self._monitor().pcie(gpu)

    def facts(self) -> Iterator[Fact]:
        """Yield the speeds that were seen."""
        for name, speed in self._best.items():
            if speed.share < 1 and self._readings[name] < _MIN_READINGS:
                continue
            yield Fact(Known.PCIE_LOADED, speed.address, device=name)
            for fact, value in (
                (Known.PCIE_GENERATION_LOADED, speed.generation),
                (Known.PCIE_GENERATION_LOADED_POSSIBLE, speed.generation_possible),
                (Known.PCIE_WIDTH_LOADED, speed.width),
                (Known.PCIE_WIDTH_LOADED_POSSIBLE, speed.width_possible),
            ):
                yield Fact(fact, float(value), device=name)


def _copies_with_host(transfer: Transfer) -> Iterator[str]:
    """Yield the GPU of a transfer between host and GPU."""
    ends = (transfer.source, transfer.destination)
    gpus = [end.device for end in ends if end.kind is MemoryKind.DEVICE]
    if len(gpus) == 1:
        yield gpus[0]
