"""When streams of GPUs start, and how fast they go on: the gate, which one store by a host opens for all
GPUs, also of several processes; a clock of the host that streams wait for; and work that it holds to a rate.
"""

from __future__ import annotations

import ctypes
import math
import threading
from itertools import pairwise
from typing import Any

from ...errors import starting_threads
from ...units import KIB, MICRO, NANO
from ...worlds.descriptors import SharedMemory
from .device import Device, TimedStream
from .gpu_driver import Arguments, narrow, pointer
from .stream_ops import EngineCopy, Kernel


class SignalPage:
    """Pinned memory with words that streams of every GPU can wait for and write.

    Args:
        device: Any GPU; its context owns the page.
        timeout: Time after which a spinning kernel gives up, in s.
        page: Memory that several processes have mapped; None for memory of this process.

    Attributes:
        host, address: Address for the CPU, and for GPUs.
    """

    def __init__(self, device: Device, timeout: float, page: SharedMemory | None = None) -> None:
        self._device, self._page = device, page
        self.load(device)
        device.use()
        if page is None:
            self.host = device.driver.allocate_host(4 * KIB)
            ctypes.memset(self.host, 0, 4 * KIB)
        else:
            self.host = page.address
            device.driver.pin(self.host, page.bytes)
        self.address = device.driver.address_of(self.host)
        self._arguments = Arguments(pointer(self.address), narrow(0), ctypes.c_uint64(round(timeout / NANO)))

    def load(self, device: Device) -> None:
        """Load the kernels that a GPU needs: later, loading waits for held streams."""
        if not device.has_stream_waits:
            device.kernel("gate", "tell")

    def wait(self, device: Device, stream: Any, offset: int, value: int) -> None:
        """Make a stream of the current device wait until a word is no smaller than a value."""
        if device.has_stream_waits:
            device.driver.wait_value(stream, self.address + offset, value)
            return
        kernel = device.kernel("gate", "spin")
        self._arguments.values[0].value = self.address + offset
        self._arguments.values[1].value = value
        device.driver.bind_launch(kernel, 1, 1, 0, stream, self._arguments)()

    def write(self, device: Device, stream: Any, offset: int, value: int) -> None:
        """Enqueue a write of a word in a stream of the current device."""
        address = self.address + offset
        if device.has_stream_waits:
            device.driver.write_value(stream, address, value)
            return
        kernel = device.kernel("gate", "tell")
        arguments = Arguments(pointer(address), narrow(value))
        device.driver.bind_launch(kernel, 1, 1, 0, stream, arguments)()

    def free(self) -> None:
        """Free the page."""
        self._device.use()
        driver = self._device.driver
        free = driver.free_host if self._page is None else driver.unpin
        free(self.host)


class Gate(SignalPage):
    """The first word of a page is the gate of all processes that have mapped it; they agree on the rounds.

    It only counts up, so it is never reset.

    Attributes:
        serial: Number of this round.
    """

    def __init__(self, device: Device, timeout: float, page: SharedMemory | None = None) -> None:
        super().__init__(device, timeout, page)
        self.serial = 0
        self._lock = threading.Lock()
        self._word = ctypes.c_uint32.from_address(self.host)

    def close_all(self) -> None:
        """Start a new round: streams held from now on wait for the next release."""
        self.serial += 1

    @property
    def is_open(self) -> bool:
        """Whether this round was released."""
        return self._is_open(self.serial)

    def hold(self, device: Device, stream: Any) -> None:
        """Make a stream of the current device wait for the release."""
        self.wait(device, stream, 0, self.serial)

    def open(self, serial: int) -> None:
        """Release the streams of a round and of earlier rounds; the gate of a later round is unchanged."""
        with self._lock:
            if not self._is_open(serial):
                self._word.value = serial

    def release(self) -> None:
        """Release all streams at the same time."""
        self.open(self.serial)

    def _is_open(self, serial: int) -> bool:
        return bool(ctypes.c_int32(self._word.value - serial).value >= 0)


#: Value of the clock before the start, and one that no stream waits beyond.
_BEFORE, _AFTER_ALL = 2**32 - 1, 2**31 - 1


class Ticks(SignalPage):
    """The microseconds since the first measured transfer of a round could begin, in a word of pinned memory.

    A compiled thread without the GIL updates it, from when a stream has told that the round began. Streams
    wait for it as for the gate, which takes no multiprocessor: a kernel that waits could not run next to one
    that fills the GPU.
    """

    def __init__(self, device: Device, timeout: float) -> None:
        from ..host import threads as ticking

        super().__init__(device, timeout)
        self._ticking = ticking
        self._serial = 0
        self._word = ctypes.c_uint32.from_address(self.host + ticking.CLOCK)
        self._stop = ctypes.c_uint64.from_address(self.host + ticking.STOP)
        self._thread: threading.Thread | None = None

    def reset(self) -> None:
        """Begin a round, in which no stream waits yet: the clock stands still until ``begin`` is reached."""
        self.stop()
        self._serial += 1
        self._word.value = _BEFORE
        self._thread = threading.Thread(
            target=self._ticking.tick, args=(self.host, self._serial), name="ticks", daemon=True
        )
        with starting_threads():
            self._thread.start()

    def begin(self, device: Device, stream: Any) -> None:
        """Make a stream of the current device start the clock."""
        self.write(device, stream, self._ticking.STARTED, self._serial)

    def hold(self, device: Device, stream: Any, seconds: float) -> None:
        """Make a stream of the current device wait for a time after the start."""
        self.wait(device, stream, self._ticking.CLOCK, round(seconds / MICRO))

    @property
    def now(self) -> float:
        """Time since the start, in s; 0 before it."""
        value = self._word.value
        return 0.0 if value == _BEFORE else value * MICRO

    def stop(self) -> None:
        """Stop the clock."""
        if self._thread is not None:
            self._stop.value = self._serial
            self._thread.join()
            self._thread = None

    def abandon(self) -> None:
        """Release all streams after an error."""
        self.stop()
        self._word.value = _AFTER_ALL

    def free(self) -> None:
        """Stop the clock and free its memory."""
        self.stop()
        super().free()


#: Alignment of the parts of a copy.
ALIGNMENT_BYTES = 4 * KIB
#: Time that a piece of a copy takes at its rate, in s, and least bytes of a piece. The host enqueues several
#: thousand pieces in a second.
_PIECE_S, _LEAST_PIECE_BYTES = 100e-6, 64 * KIB
#: Least time between the waits of a stream, in s, and how far ahead its pieces are enqueued.
LEAST_WAIT_S, _AHEAD_S = 50e-6, 10e-3


def pieces_of(size: int, rate: float, paced: int) -> int:
    """The number of pieces of one copy.

    Args:
        size: Bytes of one copy.
        rate: Rate in B/s of the buffer.
        paced: Number of transfers of the Measurement that are held to a rate.
    """
    return max(1, min(int(size / (rate * _PIECE_S * paced)), size // _LEAST_PIECE_BYTES))


class Paced:
    """Work that is held to a rate: each piece of it ends no earlier than it is due.

    The times count from the start of the transfer, so that a late piece delays no other.

    Attributes:
        work: The work at full speed.
        size, pieces: Bytes of one copy, and the number of pieces in which it is made.
        rate: Rate in B/s of the buffer.
        start: Time from the common start until the transfer begins, in s.
    """

    loops = False

    def __init__(
        self,
        lane: TimedStream,
        work: EngineCopy | Kernel,
        ticks: Ticks,
        size: int,
        pieces: int,
        rate: float,
        start: float,
    ) -> None:
        self.work, self.pieces = work, pieces
        self._lane, self._ticks, self._rate, self._start = lane, ticks, rate, start
        edges = [size * i // pieces // ALIGNMENT_BYTES * ALIGNMENT_BYTES for i in range(pieces)] + [size]
        self._parts = [(begin, end - begin) for begin, end in pairwise(edges)]
        self._next, self._moved, self._held = 0, 0, 0.0

    def warm_up(self) -> None:
        """Copy a part at full speed."""
        self.work.warm_up()

    def begin(self) -> None:
        """Begin the schedule of a sample."""
        self._moved, self._held = 0, self._start

    def ready(self, pieces: int) -> int:
        """How many pieces begin soon: a queue that is full of waits would stop the other streams."""
        soon = (self._ticks.now + _AHEAD_S - self._start) * self._rate - self._moved
        return max(0, min(pieces, math.ceil(soon / self._parts[0][1])))

    def put(self, pieces: int) -> None:
        """Enqueue pieces, each with a wait behind it, unless the last wait was just before."""
        for _ in range(pieces):
            begin, size = self._parts[self._next]
            self.work.part(begin, size)
            self._moved += size
            self._next = (self._next + 1) % self.pieces
            if not self._next and isinstance(self.work, Kernel):
                self.work.done += 1
            if self._due - self._held >= LEAST_WAIT_S:
                self.wait()

    def wait(self) -> None:
        """Make the stream wait until everything that was enqueued is due."""
        if self._due > self._held:
            self._held = self._due
            self._ticks.hold(self._lane.device, self._lane.stream, self._held)

    @property
    def _due(self) -> float:
        return self._start + self._moved / self._rate
