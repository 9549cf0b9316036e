"""Work of a stream: copies by a copy engine, kernels, chases, flags. Arguments are bound once."""

from __future__ import annotations

import ctypes
from array import array
from typing import Protocol

from ...model import Operation
from ...peer_access import FLAG_S
from ...units import MIB, NANO
from .contents import SCALAR
from .device import TimedStream
from .gpu_driver import Arguments, narrow, pointer, wide
from .launch_config import NODE, LaunchConfig
from .memory import GpuBuffer

#: Bytes of a warm-up: enough to wake links and to load addresses, but fast.
WARM_UP = 64 * MIB

#: Accesses of one multiprocessor that count as one copy; with fewer, launches would dominate.
ACCESSES = 192
#: Flags of one copy of signals.
FLAGS = 256


class Work(Protocol):
    """One transfer, or a part of it, in one stream.

    Attributes:
        loops: Whether any number of copies takes a fixed number of entries in the queue of the stream.
    """

    loops: bool

    def warm_up(self) -> None:
        """Enqueue a short piece of work of the same kind."""

    def put(self, copies: int) -> None:
        """Enqueue a number of copies."""


class EngineCopy:
    """Copies by a copy engine of the GPU that owns the stream."""

    loops = False

    def __init__(self, lane: TimedStream, to: int, origin: int, size: int) -> None:
        driver = lane.device.driver
        self._copy = driver.bind_copy(to, origin, size, lane.stream)
        self._copy_to_warm_up = driver.bind_copy(to, origin, min(size, WARM_UP), lane.stream)

    def warm_up(self) -> None:
        """Copy a part."""
        self._copy_to_warm_up()

    def put(self, copies: int) -> None:
        """Enqueue a number of copies."""
        copy = self._copy
        for _ in range(copies):
            copy()


class Kernel:
    """Launches of a kernel.

    Args:
        size: Index of the argument with the bytes.
        passes: Index of the argument with the passes of a looping kernel; None if there is no such argument.
            A kernel with passes has a smaller warm-up.

    Attributes:
        done: Passes enqueued since it was created, including warm-ups.
    """

    def __init__(
        self,
        lane: TimedStream,
        shape: LaunchConfig,
        arguments: Arguments,
        size: int,
        passes: int | None = None,
    ) -> None:
        self.loops = shape.loops
        self.done = 0
        self._arguments, self._size, self._passes = arguments, size, passes
        self._unit = shape.passes
        kernel = lane.device.kernel(shape.file, shape.kernel)
        if shape.shared:
            lane.device.driver.allow_shared_memory(kernel, lane.device.shared_memory)
        self._launch = lane.device.driver.bind_launch(
            kernel, shape.blocks, shape.threads, shape.shared, lane.stream, arguments
        )

    def warm_up(self) -> None:
        """Copy a part; the whole buffer if the kernel sums all that it reads."""
        if self._passes is None:
            self.put(1)
            return
        size = self._arguments.values[self._size]
        whole, size.value = size.value, min(size.value, WARM_UP)
        self.put(1)
        size.value = whole

    def put(self, copies: int) -> None:
        """Enqueue a number of passes, in one launch if the kernel loops."""
        self.done += copies
        launches = copies
        if self._passes is not None:
            self._arguments.values[self._passes].value = copies * self._unit if self.loops else 1
            launches = 1 if self.loops else copies
        for _ in range(launches):
            self._launch()


class Axpy:
    """Launches of ``z = s x + z`` by a library; every sample begins with ``z = y``.

    The scalars make ``z`` alternately ``y + s x`` and ``y - s x``: exact, and never ``y`` again, so that a
    launch that does nothing is found.

    Args:
        x, y, z: Addresses on the GPU of the stream.
        size: Bytes of each vector.

    Attributes:
        scalar: The scalar of ``x`` in what ``z`` contains after all enqueued work.
    """

    loops = False

    def __init__(self, lane: TimedStream, operation: Operation, x: int, y: int, z: int, size: int) -> None:
        driver = lane.device.driver
        self.scalar = 0.0
        self._begin = driver.bind_copy(z, y, size, lane.stream)
        self._add = lane.device.blas().bind_axpy(operation, size, x, z, lane.stream)
        # The first launch loads the kernel, which waits for the GPU: a gate may hold it later.
        self._add(SCALAR)
        driver.synchronize(lane.stream)

    def warm_up(self) -> None:
        """Copy ``y`` to ``z``, and add once."""
        self._begin()
        self.scalar = 0.0
        self.put(1)

    def put(self, copies: int) -> None:
        """Enqueue a number of launches."""
        for _ in range(copies):
            wanted = -SCALAR if self.scalar > 0 else SCALAR
            self._add(wanted - self.scalar)
            self.scalar = wanted


class Signal:
    """Flags that this GPU sets on another, which answers each: the kernels of both, one thread each.

    The other GPU's kernel runs in a stream of that GPU; see ``SignalAnswer``.

    Attributes:
        theirs, mine: Addresses of the flag on the other GPU, and of the answer on this one.
        found: Device memory of this GPU: the number of answers that the last launch saw.
    """

    loops = True
    kernel = "ping"

    def __init__(self, lane: TimedStream, theirs: int, mine: int, found: int) -> None:
        self._lane, self._found = lane, found
        self._expected = 0
        self._arguments = Arguments(
            pointer(theirs), pointer(mine), narrow(0), narrow(0), wide(round(FLAG_S / NANO)), pointer(found)
        )
        function = lane.device.kernel("peer", f"peer_{self.kernel}")
        self._launch = lane.device.driver.bind_launch(function, 1, 1, 0, lane.stream, self._arguments)

    def warm_up(self) -> None:
        """Wait until the kernels of both GPUs run."""
        self._flags(FLAGS // 8)

    def put(self, copies: int) -> None:
        """Set or answer the flags of some copies."""
        self._flags(FLAGS * copies)

    def unanswered(self) -> bool:
        """Whether the last launch gave up."""
        return self._lane.device.words(self._found, 1) != [self._expected]

    def _flags(self, count: int) -> None:
        _, _, base, rounds, _, _ = self._arguments.values
        base.value += self._expected  # flags of a launch begin where the last one ended
        rounds.value = self._expected = count
        self._lane.device.use()
        self._launch()


class SignalAnswer(Signal):
    """The answers of the other GPU."""

    kernel = "pong"


class Chase:
    """Dependent loads by one thread on each multiprocessor in turn, over a cycle of nodes.

    Each launch continues where the previous one stopped, so that the whole working set is visited.

    Attributes:
        ends: Device memory with a pointer per multiprocessor: the final position of its last launch.
        kernel: Name of the kernel: ``chase``, or ``chase_bulk`` for bulk copies into shared memory.
    """

    loops = True

    def __init__(self, lane: TimedStream, buffer: GpuBuffer, size: int, ends: int, kernel: str) -> None:
        self._base, self._nodes = buffer.address, size // NODE
        self._ends = ends
        self._lane = lane
        self._multiprocessors = lane.device.multiprocessors
        self._position = 0
        self._expected = [0] * self._multiprocessors
        self._arguments = Arguments(pointer(0), narrow(0), narrow(0), pointer(ends))
        function = lane.device.kernel("chase", kernel)
        self._launch = lane.device.driver.bind_launch(
            function, self._multiprocessors, 1, 0, lane.stream, self._arguments
        )
        self._build(buffer, size)

    @property
    def accesses(self) -> int:
        """Accesses of one copy."""
        return ACCESSES * self._multiprocessors

    def warm_up(self) -> None:
        """Follow the cycle for a short distance."""
        self._follow(0, ACCESSES // 8)

    def put(self, copies: int) -> None:
        """Let every multiprocessor follow the cycle."""
        for block in range(self._multiprocessors):
            self._follow(block, ACCESSES * copies)

    def strayed(self) -> int:
        """The number of multiprocessors that stopped at a wrong position."""
        positions = self._lane.device.words(self._ends, self._multiprocessors)
        return sum(a != b for a, b in zip(positions, self._expected, strict=True))

    def _follow(self, block: int, accesses: int) -> None:
        start, count, where, _ = self._arguments.values
        start.value = self._base + self._position * NODE
        count.value, where.value = accesses, block
        self._position = (self._position + accesses) % self._nodes
        self._expected[block] = self._base + self._position * NODE
        self._launch()

    def _build(self, buffer: GpuBuffer, size: int) -> None:
        """Write the pointers; for host memory with the CPU, like an application that prepares GPU work."""
        words = array("Q", bytes(self._nodes * NODE))
        following = (self._base + (i + 1) % self._nodes * NODE for i in range(self._nodes))
        words[:: NODE // words.itemsize] = array("Q", following)
        address, count = words.buffer_info()
        if buffer.host:
            ctypes.memmove(buffer.host, address, count * words.itemsize)
        else:
            device, stream = self._lane.device, self._lane.stream
            device.use()
            device.driver.enqueue_write(buffer.address, address, count * words.itemsize, stream)
            device.driver.synchronize(stream)
