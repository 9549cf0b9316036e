"""A clock of the host that streams wait for: for start offsets and rates."""

from __future__ import annotations

import ctypes
import threading
from typing import Any

from ...errors import starting_threads
from ...units import MICRO
from .device import Device
from .gate import SignalPage

#: Value of the clock before the start, and one that no stream waits beyond.
_BEFORE, _AFTER_ALL = 2**32 - 1, 2**31 - 1


class Ticks:
    """The microseconds since the first measured transfer of a round could begin, in a word of pinned memory.

    A compiled thread without the GIL updates it, from when a stream has told that the round began. Streams
    wait for it as for the gate, which takes no multiprocessor: a kernel that waits could not run next to one
    that fills the GPU.

    Attributes:
        page: Memory of this process.
    """

    def __init__(self, page: SignalPage) -> None:
        from ..host import ticking

        self._page, self._ticking = page, ticking
        self._serial = 0
        self._word = ctypes.c_uint32.from_address(page.host + ticking.CLOCK)
        self._stop = ctypes.c_uint64.from_address(page.host + ticking.STOP)
        self._thread: threading.Thread | None = None

    def load(self, device: Device) -> None:
        """Load the kernels that a GPU needs."""
        self._page.load(device)

    def reset(self) -> None:
        """Begin a round, in which no stream waits yet: the clock stands still until ``begin`` is reached."""
        self.stop()
        self._serial += 1
        self._word.value = _BEFORE
        self._thread = threading.Thread(
            target=self._ticking.tick, args=(self._page.host, self._serial), name="ticks", daemon=True
        )
        with starting_threads():
            self._thread.start()

    def begin(self, device: Device, stream: Any) -> None:
        """Make a stream of the current device start the clock."""
        self._page.write(device, stream, self._ticking.STARTED, self._serial)

    def hold(self, device: Device, stream: Any, seconds: float) -> None:
        """Make a stream of the current device wait for a time after the start."""
        self._page.wait(device, stream, self._ticking.CLOCK, round(seconds / MICRO))

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
        self._page.free()
