"""A second driver of GPUs, in host memory: streams run what is enqueued in them when somebody looks at them.

It is the module of a backend as well, by the name ``tests.fakes.gpu``. It has the kernels that copies need.
"""

from __future__ import annotations

import ctypes
import mmap
import os
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from inspect import isgeneratorfunction
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import numpy as np

from wirespeed.backends.gpu.backend import GpuBackend
from wirespeed.backends.gpu.gpu_driver import FABRIC, Arguments, GpuProperties, Headers, TooManyPeers
from wirespeed.backends.test_data import STEP, WORD_MASK
from wirespeed.errors import BackendError, Unreachable
from wirespeed.model import Operation

if TYPE_CHECKING:  # it loads numpy, for which each process of an attempt would wait
    from wirespeed.backends.call_tables import Call, Failure

#: One entry of a stream: returns False as long as it must wait.
Step = Callable[[], bool | None]


class Stream:
    def __init__(self) -> None:
        self.queue: deque[Step] = deque()

    def __int__(self) -> int:
        return id(self)


class Event:
    """``happened`` and ``time`` are those of the last record."""

    def __init__(self) -> None:
        self.times: list[float] = [0.0]

    def __int__(self) -> int:
        return id(self)


def memory(address: int, size: int) -> Any:
    return np.frombuffer((ctypes.c_char * size).from_address(address), np.uint8)


#: Operation of ``compare``, and kind of ``fill`` -> type of numbers, and the lowest bits of those in a word.
_NUMBERS = {3: (np.float64, (16,), 48), 4: (np.float32, (16, 40), 20), 6: (np.float16, (16, 28, 40, 52), 9)}
_KINDS = {1: 3, 2: 4, 3: 6}


def numbers(operation: int, key: int, size: int) -> Any:
    """The sources of a sum, as float64."""
    _, shifts, bits = _NUMBERS[operation]
    words = pattern(key, -(-size // 8) * 8).view(np.uint64)
    parts = [words >> np.uint64(shift) & np.uint64(2**bits - 1) for shift in shifts]
    return np.stack(parts, axis=1).reshape(-1).astype(np.float64)


def fill(to: int, size: int, kind: int, key: int) -> None:
    if kind:
        operation = _KINDS[kind]
        content = numbers(operation, key, size).astype(_NUMBERS[operation][0]).view(np.uint8)[:size]
    else:
        content = pattern(key, size)
    memory(to, size)[:] = content


def pattern(key: int, size: int) -> Any:
    words = np.arange(-(-size // 8), dtype=np.uint64) * np.uint64(STEP) + np.uint64(key)
    return words.view(np.uint8)[:size]


def compare(at: int, size: int, operation: int, a: int, b: int, scalar: float, found: int) -> None:
    here, want = memory(at, size), pattern(a, size)
    if operation:
        x, y = (b, a) if operation == 3 else (a, b)
        total = numbers(operation, y, size) + scalar * numbers(operation, x, size)
        want = total.astype(_NUMBERS[operation][0]).view(np.uint8)[:size]
    if found and (wrong := np.unique(np.flatnonzero(here != want) // 8)).size:
        words = (ctypes.c_uint64 * 2).from_address(found)
        words[:] = words[0] + wrong.size, max(words[1], WORD_MASK - int(wrong[0]))
    here[:] = ~want


def copy_cover(to: int, origin: int, size: int, passes: int) -> None:
    ctypes.memmove(to, origin, size)


def _blocks(to: int, origin: int, count: int) -> Any:
    """The addresses of destinations and sources of a block list."""
    lists = (memory(at, 8 * count).view(np.uint64).tolist() for at in (to, origin))
    return zip(*lists, strict=True)


def fill_blocks(to: int, origin: int, base: int, block: int, blocks: int, key: int) -> None:
    whole = pattern(key, block * blocks)
    for there, here in _blocks(to, origin, blocks):
        memory(here, block)[:] = whole[there - base : there - base + block]


def copy_blocks(to: int, origin: int, block: int, blocks: int, chunk: int = 0) -> None:
    for there, here in _blocks(to, origin, blocks):
        ctypes.memmove(there, here, block)


def triad(to: int, a: int, b: int, size: int, scalar: float) -> None:
    first, second, result = (memory(at, size).view(np.float64) for at in (a, b, to))
    np.copyto(result, first + scalar * second)


class Function:
    """A kernel, as the driver's handle."""

    def __init__(self, call: Callable[..., Any]) -> None:
        self.call = call

    def __int__(self) -> int:
        return id(self)


_KERNELS: dict[str, Callable[..., Any]] = {
    f.__name__: f for f in (fill, compare, copy_cover, fill_blocks, copy_blocks, triad)
}
_KERNELS["copy_blocks_bulk"] = copy_blocks

#: Polls after which a kernel that waits for a flag gives up.
_POLLS = 100


def _word(address: int) -> ctypes.c_uint32:
    return ctypes.c_uint32.from_address(address)


def peer_ping(theirs: int, mine: int, base: int, rounds: int, limit: int, found: int) -> Iterator[bool]:
    """Set flags; yields False while it waits."""
    for i in range(1, rounds + 1):
        _word(theirs).value = base + i
        yield from _seen(mine, base + i)
        if _word(mine).value != _word(theirs).value:
            return
        _word(found).value = i


def peer_pong(theirs: int, mine: int, base: int, rounds: int, limit: int, found: int) -> Iterator[bool]:
    for i in range(1, rounds + 1):
        yield from _seen(mine, base + i)
        if _word(mine).value != (base + i) % 2**32:
            return
        _word(found).value = i
        _word(theirs).value = base + i


def _seen(flag: int, value: int) -> Iterator[bool]:
    for _ in range(_POLLS):
        if _word(flag).value == value % 2**32:
            return
        yield False


_KERNELS |= {f.__name__: f for f in (peer_ping, peer_pong)}


class MemoryDriver:
    """A driver of GPUs whose memory is the host's.

    Attributes:
        damage: Called with the address and the size of each copy that was made.
        most_peers: Enabled accesses of all GPUs that the driver allows.
        left: What exists: memory, pinned memory, streams, events, contexts.
    """

    name = __name__
    hidden_remedy, peer_remedy = "look again", "ask again"
    default_stream = Stream()

    def __init__(self, gpus: int = 2) -> None:
        self.gpus = gpus
        self._running = threading.RLock()
        self.damage: Callable[[int, int], None] = lambda address, size: None
        self.most_peers = 8
        self.peers: list[Any] = []
        self.left: dict[Any, Any] = {}
        self.streams: list[Stream] = []
        self.functions: dict[int, Function] = {}
        self.native = MemoryCalls(self)
        self.use = self.write_value = lambda *_: None  # one address space; its streams wait by themselves
        self.synchronize_context = lambda: None

    # GPUs.

    def devices(self) -> dict[str, Any]:
        return {f"00000000:00:{6 + i:02x}": i for i in range(self.gpus)}

    def properties(self, device: int) -> GpuProperties:
        return GpuProperties("in memory", (1, 0), 4, 2**16, True)

    def open(self, device: int) -> int:
        self.left["context", device] = device
        return device

    def close(self, device: int) -> None:
        del self.left["context", device]

    def enable_peer(self, context: int) -> None:
        if len(self.peers) == self.most_peers:
            raise TooManyPeers("no more peers")
        self.peers.append(context)

    def disable_peer(self, context: int) -> None:
        self.peers.remove(context)

    # Memory.

    def allocate(self, size: int) -> int:
        block = ctypes.create_string_buffer(size)
        self.left[ctypes.addressof(block)] = block
        return ctypes.addressof(block)

    def free(self, address: int) -> None:
        del self.left[address]

    allocate_host, free_host = allocate, free

    def memory(self) -> tuple[int, int]:
        return 2**37, 2**37

    def pin(self, host: int, size: int) -> None:
        self.left["pinned", host] = size

    def unpin(self, host: int) -> None:
        del self.left["pinned", host]

    def address_of(self, host: int) -> int:
        return host

    def read(self, host: int, address: int, size: int) -> None:
        self._run()
        ctypes.memmove(host, address, size)

    def write(self, address: int, host: int, size: int) -> None:
        ctypes.memmove(address, host, size)

    def enqueue_copy(self, to: int, origin: int, size: int, stream: Stream) -> None:
        def copy() -> None:
            ctypes.memmove(to, origin, size)
            self.damage(to, size)

        stream.queue.append(copy)

    def bind_copy(self, to: int, origin: int, size: int, stream: Stream) -> Callable[[], object]:
        return lambda: self.enqueue_copy(to, origin, size, stream)

    def enqueue_zeros(self, address: int, size: int, stream: Stream) -> None:
        stream.queue.append(lambda: ctypes.memset(address, 0, size) and None)

    # Streams and events.

    def stream(self) -> Stream:
        self.streams.append(Stream())
        self.left[self.streams[-1]] = True
        return self.streams[-1]

    def destroy_stream(self, stream: Stream) -> None:
        assert self.is_idle(stream)
        self.streams.remove(stream)
        del self.left[stream]

    def is_idle(self, stream: Stream) -> bool:
        self._run()
        return not stream.queue

    def synchronize(self, stream: Stream) -> None:
        assert self.is_idle(stream), "nothing will let this stream go on"

    def _run(self) -> None:
        """Run what can run in all streams."""
        with self._running:
            self._run_streams()

    def _run_streams(self) -> None:
        moved = True
        while moved:
            moved = False
            for stream in self.streams:
                while stream.queue and stream.queue[0]() is not False:
                    stream.queue.popleft()
                    moved = True

    def event(self) -> Event:
        event = Event()
        self.left[event] = True
        return event

    def destroy_event(self, event: Event) -> None:
        del self.left[event]

    def record(self, event: Event, stream: Stream) -> None:
        event.times = times = list[float]()
        stream.queue.append(lambda: times.append(time.perf_counter()))

    def has_happened(self, event: Event) -> bool:
        self._run()
        return bool(event.times)

    def elapsed(self, start: Event, stop: Event) -> float:
        return stop.times[0] - start.times[0]

    def wait_event(self, stream: Stream, event: Event) -> None:
        times = event.times
        stream.queue.append(lambda: bool(times))

    def wait_value(self, stream: Stream, address: int, value: int) -> None:
        word = ctypes.c_uint32.from_address(address)
        stream.queue.append(lambda: word.value >= value)

    # Kernels.

    def source(self, file: str) -> str:
        return file

    def module(self, source: str, device: int, headers: Headers | None = None) -> str:
        return source

    def function(self, module: str, name: str) -> Function:
        function = Function(_KERNELS[name])
        self.functions[int(function)] = function
        return function

    def load(self, function: Any) -> None: ...

    def unload(self, module: str) -> None: ...

    def allow_shared_memory(self, function: Any, size: int) -> None: ...

    def bind_launch(
        self, function: Any, blocks: int, threads: int, shared: int, stream: Stream, arguments: Arguments
    ) -> Callable[[], object]:
        def launch() -> None:
            values = [value.value or 0 for value in arguments.values]
            if isgeneratorfunction(function.call):
                running = function.call(*values)
                stream.queue.append(lambda: next(running, None))
            else:
                stream.queue.append(lambda: function.call(*values))

        return launch

    def open_blas(self) -> MemoryBlas:
        self.blas = MemoryBlas(self)
        return self.blas

    # Sharing: created memory is a file without a name.

    def create_memory(self, device: int, size: int, mechanism: str = "") -> tuple[int, int]:
        size = -(-size // mmap.PAGESIZE) * mmap.PAGESIZE
        file = os.memfd_create("gpu")
        os.truncate(file, size)
        return file, size

    def map_memory(self, file: int, size: int, devices: Sequence[int]) -> tuple[int, Callable[[], None]]:
        mapped = mmap.mmap(file, size)
        address = ctypes.addressof(ctypes.c_char.from_buffer(mapped))
        self.left[address] = mapped

        def release() -> None:
            self.left.pop(address).close()
            os.close(file)

        return address, release

    def export_memory(self, file: int, mechanism: str) -> int | bytes:
        return str(file).encode() if mechanism == FABRIC else os.dup(file)

    def import_memory(self, exported: int | bytes, mechanism: str) -> int:
        return os.dup(int(exported))

    def fabric_remedy(self) -> str:
        return "weave a fabric"

    def export_allocation(self, address: int) -> tuple[bytes, int]:
        return str(address).encode(), 0

    def open_allocation(self, handle: bytes) -> int:
        return int(handle)

    def close_allocation(self, address: int) -> None:
        assert address in self.left


class MemoryCalls:
    """The calls of the driver for compiled code: C functions that enqueue in the streams of the driver.

    Attributes:
        made: Names of the calls that were made.
        refuses: Name of a call that fails, with status 7.
        has_batch: Whether there is a call for many copies.
    """

    def __init__(self, driver: MemoryDriver) -> None:
        self._driver = driver
        self.made: list[str] = []
        self.refuses = ""
        self.has_batch = True

    def _function(self, name: str, call: Callable[..., None], *types: Any) -> Any:
        def called(*arguments: int) -> int:
            self.made.append(name)
            if name == self.refuses:
                return 7
            call(*arguments)
            return 0

        return ctypes.CFUNCTYPE(ctypes.c_int, *types)(called)

    def _stream(self, handle: int) -> Stream:
        return next(stream for stream in self._driver.streams if int(stream) == handle)

    def _move(self, to: int, origin: int, size: int, stream: int) -> None:
        self._driver.enqueue_copy(to, origin, size, self._stream(stream))

    def _batch(self, to: int, origin: int, sizes: int, count: int, stream: int) -> None:
        lengths = memory(sizes, 8 * count).view(np.uint64).tolist()
        for (there, here), size in zip(_blocks(to, origin, count), lengths, strict=True):
            self._move(there, here, size, stream)

    def _launch(self, function: int, stream: int, arguments: int) -> None:
        pointers = ctypes.cast(arguments, ctypes.POINTER(ctypes.c_void_p))
        values = [ctypes.c_uint64.from_address(pointers[i] or 0).value for i in range(3)]
        blocks = ctypes.c_uint32.from_address(pointers[3] or 0).value
        call = self._driver.functions[function].call
        self._stream(stream).queue.append(lambda: call(*values, blocks))

    def library(self) -> Any:
        word = ctypes.c_int64
        return SimpleNamespace(
            use=self._function("use", lambda context: None, word),
            synchronize=self._function(
                "synchronize", lambda stream: self._driver.synchronize(self._stream(stream)), word
            ),
            move=self._function("move", self._move, *[word] * 4),
            batch=self._function("batch", self._batch, *[word] * 5),
            launch=self._function("launch", self._launch, *[word] * 3),
        )

    def use(self, context: int) -> Call:
        return "use", (context,)

    def synchronize(self, stream: int) -> Call:
        return "synchronize", (stream,)

    def move(self, to: int, origin: int, size: int, stream: int) -> Call:
        return "move", (to, origin, size, stream)

    def batch(
        self, to: int, origin: int, sizes: int, count: int, ends: Sequence[int | None], stream: int
    ) -> tuple[Call, object]:
        if not self.has_batch:
            raise Unreachable("this driver makes one copy at a time")
        return ("batch", (to, origin, sizes, count, stream)), None

    def launch(
        self, function: int, blocks: int, threads: int, shared: int, stream: int, arguments: int
    ) -> Call:
        assert blocks > 0 and 0 < threads <= 1024
        return "launch", (function, stream, arguments)

    def failed(self, failure: Failure) -> BackendError:
        return BackendError(f"{failure.name} failed: status {failure.status}")


class MemoryBlas:
    """Adds vectors in the streams of a driver; ``scalars`` are those that it was given."""

    def __init__(self, driver: MemoryDriver) -> None:
        self.scalars: list[float] = []
        self._left = driver.left
        self._left[self] = True

    def bind_axpy(
        self, operation: Operation, size: int, x: int, y: int, stream: Stream
    ) -> Callable[[float], object]:
        types = {Operation.HAXPY: np.float16, Operation.SAXPY: np.float32, Operation.TRIAD: np.float64}
        vectors = [memory(at, size).view(types[operation]) for at in (x, y)]

        def add(scalar: float) -> None:
            self.scalars.append(scalar)
            first, second = vectors
            stream.queue.append(lambda: np.copyto(second, first * type(second[0])(scalar) + second))

        return add

    def close(self) -> None:
        del self._left[self]


#: The driver that ``open_driver`` returns: a test puts one here.
opened: list[MemoryDriver] = []


def open_driver() -> MemoryDriver:
    return opened[-1]


class MemoryBackend(GpuBackend):
    """The backend of these GPUs, which nothing monitors."""

    name, title = __name__, "memory"

    def without_blas(self) -> str:
        return ""

    def unusable(self) -> str:
        return ""

    def open_monitor(self) -> None:
        return None

    def libraries(self) -> dict[str, str]:
        return {"driver": "in memory"}
