"""The interface between what measures GPUs and their driver, with the arguments of its kernels, which are
laid out once for many launches. Methods are named after what they do, not after the functions of one vendor.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from ...errors import BackendError

if TYPE_CHECKING:
    from ...hardware.devices import Gpu
    from ...model import Operation
    from ...tables import State
    from ..call_tables import Call, Failure
    from ..pci import LinkSpeed


class Arguments:
    """Values and the array of pointers to them, as a launch requires.

    Attributes:
        values: ctypes scalars. A launch reads them when it is enqueued; they may be changed afterwards.
        address: Address of the array.
    """

    def __init__(self, *values: Any) -> None:
        self.values = values
        self._pointers = (ctypes.c_void_p * len(values))(*(ctypes.addressof(v) for v in values))
        self.address = ctypes.addressof(self._pointers)


def pointer(address: int) -> ctypes.c_void_p:
    """A pointer argument."""
    return ctypes.c_void_p(address)


def wide(value: int) -> ctypes.c_uint64:
    """A 64-bit argument."""
    return ctypes.c_uint64(value)


def narrow(value: int) -> ctypes.c_uint32:
    """A 32-bit argument."""
    return ctypes.c_uint32(value)


#: Mechanisms by which processes share memory of a GPU: handles of plain allocations; descriptors of virtual
#: memory on one host; handles of virtual memory within a fabric of several hosts.
IPC, VMM_FD, FABRIC = "ipc", "vmm-fd", "fabric"


class Monitor:
    """A library that reports the state of GPUs. This one knows nothing."""

    def state(self, gpu: Gpu) -> State:
        """The readings that affect the speed of a GPU."""
        return ()

    def counters(self, gpu: Gpu) -> State:
        """The counters of errors that take too long to be read during measurements."""
        return ()

    def processes(self, gpu: Gpu) -> dict[int, int | None]:
        """The processes that compute on a GPU: ID -> bytes of its memory; None if not known."""
        return {}

    def free_memory(self, gpu: Gpu) -> tuple[int, int] | None:
        """The free and all bytes of the memory of a GPU; None if not known."""
        return None

    def pcie(self, gpu: Gpu) -> LinkSpeed | None:
        """The speed of the PCIe link of a GPU, and what GPU and system support; None if not known."""
        return None

    def close(self) -> None:
        """Release the library."""


class TooManyPeers(BackendError):
    """The driver's maximum number of peers of a GPU is reached; disabling one makes room."""


@dataclass(frozen=True)
class GpuProperties:
    """Properties of a GPU.

    Attributes:
        model: Name of the product.
        capability: Version of the architecture, as in ``Gpu.compute_capability``.
        multiprocessors: Number of multiprocessors.
        shared_memory: Maximum shared memory of a block, in bytes.
        has_stream_waits: Whether its streams can wait for a value in memory and write one.
    """

    model: str
    capability: tuple[int, int]
    multiprocessors: int
    shared_memory: int
    has_stream_waits: bool


@dataclass(frozen=True)
class Headers:
    """Headers that a source includes; functions that they declare without a space are those of the GPU.

    Attributes:
        folder: Folder of the headers.
        version: Their version, which distinguishes code in the cache.
        empty: Names of headers that these include and the compiler lacks. They are empty.
    """

    folder: Path
    version: str
    empty: tuple[str, ...] = ()


class NativeCalls(Protocol):
    """Calls of the driver for ``native.Functions``, which makes them without the interpreter."""

    def library(self) -> Any:
        """The loaded library with the functions of all these calls."""

    def use(self, context: int) -> Call: ...

    def synchronize(self, stream: int) -> Call: ...

    def record(self, event: int, stream: int) -> Call: ...

    def copy(self, to: int, origin: int, size: int, stream: int) -> Call: ...

    def move(self, to: int, origin: int, size: int, stream: int) -> Call:
        """A copy between any two memories; pinned memory of the host by its address there."""

    def batch(
        self, to: int, origin: int, sizes: int, count: int, ends: Sequence[int | None], stream: int
    ) -> tuple[Call, object]:
        """One call that makes many copies, and what must exist as long as it is used.

        Args:
            to, origin, sizes: Addresses of the lists of addresses and of sizes.
            count: Number of copies.
            ends: Devices of source and destination; None for the host.

        Raises:
            Unreachable: If the driver has no such call.
        """

    def failed(self, failure: Failure) -> BackendError:
        """The error of a call that failed."""

    def launch(
        self, function: int, blocks: int, threads: int, shared: int, stream: int, arguments: int
    ) -> Call: ...


class Blas(Protocol):
    """A library of linear algebra on one GPU."""

    def bind_axpy(
        self, operation: Operation, size: int, x: int, y: int, stream: Any
    ) -> Callable[[float], object]:
        """A call that enqueues ``y = s x + y`` for a scalar, on vectors of ``size`` bytes each."""

    def close(self) -> None:
        """Release what the library holds on the GPU."""


class GpuDriver(Protocol):
    """A driver of GPUs.

    Contexts, streams, events, modules and functions are handles of the driver, which convert to ``int``.
    Everything that needs a context works in the one that the calling thread uses: see ``use``. Methods check
    the status of every call; they raise OutOfMemory, BackendLost (this process cannot measure any more) or
    BackendError.

    Attributes:
        name: Name of the backend whose GPUs it drives, as in ``Gpu.backend``.
        hidden_remedy, peer_remedy: What to check if a GPU cannot be used, and if it cannot access its peer.
        default_stream: Handle of the default stream of every context.
        native: Its calls without the interpreter.
    """

    name: str
    hidden_remedy: str
    peer_remedy: str
    default_stream: Any
    native: NativeCalls

    # GPUs and their contexts.

    def devices(self) -> Mapping[str, Any]:
        """Bus ID -> device of all GPUs that this process may use, in the driver's order."""

    def properties(self, device: Any) -> GpuProperties: ...

    def open(self, device: Any) -> Any:
        """The context of a device that all its users in this process share."""

    def close(self, device: Any) -> None:
        """Release what ``open`` returned."""

    def use(self, context: Any) -> None:
        """Make a context the one that the calling thread uses."""

    def synchronize_context(self) -> None:
        """Wait for all work of the context."""

    def enable_peer(self, context: Any) -> None:
        """Let the current context access the memory of another.

        Raises:
            TooManyPeers: If the driver's maximum is reached.
        """

    def disable_peer(self, context: Any) -> None: ...

    # Memory.

    def allocate(self, size: int) -> int: ...

    def free(self, address: int) -> None: ...

    def memory(self) -> tuple[int, int]:
        """The free and total bytes."""

    def read(self, host: int, address: int, size: int) -> None:
        """Copy from the GPU to the host, and wait for it."""

    def write(self, address: int, host: int, size: int) -> None:
        """Copy from the host to the GPU; may return before the data is there."""

    def enqueue_write(self, address: int, host: int, size: int, stream: Any) -> None: ...

    def enqueue_copy(self, to: int, origin: int, size: int, stream: Any) -> None: ...

    def enqueue_zeros(self, address: int, size: int, stream: Any) -> None: ...

    def bind_copy(self, to: int, origin: int, size: int, stream: Any) -> Callable[[], object]:
        """``enqueue_copy`` with these arguments, converted once for many calls."""

    # Memory of the host. GPUs access it at an address of their own.

    def allocate_host(self, size: int) -> int:
        """Allocate pinned memory, which all GPUs can access."""

    def free_host(self, host: int) -> None: ...

    def pin(self, host: int, size: int) -> None:
        """Make existing memory accessible to all GPUs."""

    def unpin(self, host: int) -> None: ...

    def address_of(self, host: int) -> int:
        """The address for GPUs of pinned memory."""

    # Streams and events.

    def stream(self) -> Any:
        """Create a stream that does not wait for the default stream."""

    def destroy_stream(self, stream: Any) -> None: ...

    def synchronize(self, stream: Any) -> None: ...

    def is_idle(self, stream: Any) -> bool: ...

    def event(self) -> Any:
        """Create an event that records the time."""

    def destroy_event(self, event: Any) -> None: ...

    def record(self, event: Any, stream: Any) -> None: ...

    def has_happened(self, event: Any) -> bool:
        """Whether all work before an event in its stream is done."""

    def elapsed(self, start: Any, stop: Any) -> float:
        """The time between two events, in s."""

    def wait_event(self, stream: Any, event: Any) -> None:
        """Make a stream wait for an event of any stream."""

    def wait_value(self, stream: Any, address: int, value: int) -> None:
        """Make a stream wait until a word of 32 bits is no smaller than a value."""

    def write_value(self, stream: Any, address: int, value: int) -> None:
        """Enqueue a write of a word of 32 bits."""

    # Kernels.

    def source(self, file: str) -> str:
        """The source of the kernels in a file."""

    def module(self, source: str, device: Any, headers: Headers | None = None) -> Any:
        """A source compiled for a device and loaded.

        Raises:
            BackendError: If the compiler or the driver rejects it.
        """

    def unload(self, module: Any) -> None: ...

    def function(self, module: Any, name: str) -> Any: ...

    def load(self, function: Any) -> None:
        """Load a function now; the first launch would do it, and wait for the GPU."""

    def variable(self, module: Any, name: str) -> tuple[int, int]:
        """The address and the size of a variable."""

    def allow_shared_memory(self, function: Any, size: int) -> None:
        """Allow blocks of a kernel to use this much shared memory, in bytes."""

    def bind_launch(
        self, function: Any, blocks: int, threads: int, shared: int, stream: Any, arguments: Arguments
    ) -> Callable[[], object]:
        """A call that enqueues a kernel; arguments are read at each call.

        Args:
            blocks, threads: Number of blocks, and of threads of a block.
            shared: Shared memory of a block, in bytes.
        """

    def open_blas(self) -> Blas:
        """The library of linear algebra for the current context.

        Raises:
            BackendError: If it cannot be loaded, or there is none.
        """

    # Graphs of enqueued work.

    def begin_capture(self, stream: Any) -> None:
        """Capture what this thread enqueues in a stream. Other threads may allocate memory meanwhile."""

    def end_capture(self, stream: Any) -> Any:
        """The graph of what was enqueued."""

    def executable(self, graph: Any) -> Any: ...

    def launch_graph(self, executable: Any, stream: Any) -> None: ...

    def destroy_graph(self, graph: Any, executable: Any) -> None: ...

    # Virtual memory, and sharing of memory between processes.

    def create_memory(self, device: Any, size: int, mechanism: str = "") -> tuple[Any, int]:
        """Create memory without an address; return it with its size, the next multiple of the granularity.

        Args:
            mechanism: ``VMM_FD`` or ``FABRIC`` to export it by; empty if it is not shared.
        """

    def map_memory(self, memory: Any, size: int, devices: Sequence[Any]) -> tuple[int, Callable[[], None]]:
        """Map memory for some devices; return its address, and a function that unmaps and frees it.

        If it cannot be mapped, it is freed.
        """

    def export_memory(self, memory: Any, mechanism: str) -> int | bytes:
        """A descriptor of created memory (``VMM_FD``), or its handle (``FABRIC``)."""

    def import_memory(self, exported: int | bytes, mechanism: str) -> Any:
        """The memory that another process exported."""

    def fabric_remedy(self) -> str:
        """Describe what this process has and lacks for ``FABRIC``."""

    def export_allocation(self, address: int) -> tuple[bytes, int]:
        """The ``IPC`` handle of allocated memory, and the offset of an address in it."""

    def open_allocation(self, handle: bytes) -> int:
        """The address of memory that another process allocated; peer access is enabled."""

    def close_allocation(self, address: int) -> None: ...


def driver_of(backend: str) -> GpuDriver:
    """The driver of the GPUs that a backend discovered; see ``opener_of``."""
    return opener_of(backend)()


def opener_of(backend: str) -> Callable[[], GpuDriver]:
    """What opens the driver of the GPUs that a backend discovered.

    Args:
        backend: Its name, as in ``Gpu.backend``. Its module has a function ``open_driver``.

    Raises:
        BackendError: If there is no such function.
    """
    own = (Path(__file__).parents[1] / backend).is_dir()
    module = import_module(f"..{backend}" if own else backend, __package__)
    if not hasattr(module, "open_driver"):
        raise BackendError(f"the backend {backend} offers no access to the memory of its GPUs")
    opener: Callable[[], GpuDriver] = module.open_driver
    return opener
