"""The gate: hold streams of all GPUs, also of several processes, until one store by a host."""

from __future__ import annotations

import ctypes
import threading
from enum import StrEnum
from typing import Any

from ...units import KIB, NANO
from ...worlds.descriptors import SharedMemory
from .arguments import Arguments, narrow, pointer
from .device import Device


class GateKind(StrEnum):
    """How a stream waits: for a value in memory, if the GPU supports it, or in a spinning kernel."""

    WAIT_VALUE = "wait_value"
    SPIN = "spin"


class SignalPage:
    """Pinned memory with words that streams of every GPU can wait for and write.

    Attributes:
        kind: How streams wait.
        device: Any GPU; its context owns the page.
        timeout: Time after which a spinning kernel gives up, in s.
        page: Memory that several processes have mapped; None for memory of this process.

    Attributes:
        host, address: Address for the CPU, and for GPUs.
    """

    def __init__(
        self, kind: GateKind, device: Device, timeout: float, page: SharedMemory | None = None
    ) -> None:
        self._kind, self._device, self._page = kind, device, page
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
        if self._kind is GateKind.SPIN or not device.has_stream_waits:
            kernel = device.kernel("gate", "spin")
            self._arguments.values[0].value = self.address + offset
            self._arguments.values[1].value = value
            device.driver.bind_launch(kernel, 1, 1, 0, stream, self._arguments)()
        else:
            device.driver.wait_value(stream, self.address + offset, value)

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


class Gate:
    """A word of pinned memory visible to every GPU. It only counts up, so it is never reset.

    Attributes:
        device: Any GPU; its context owns the word.
        timeout: Time after which a spinning kernel gives up, in s.
        page: Memory that several processes have mapped; its first word is the gate of all of them. They must
            agree on the rounds. None: the gate of one process.
    """

    def __init__(
        self, kind: GateKind, device: Device, timeout: float, page: SharedMemory | None = None
    ) -> None:
        self._serial = 0
        self._lock = threading.Lock()
        self._signals = SignalPage(kind, device, timeout, page)
        self._word = ctypes.c_uint32.from_address(self._signals.host)

    def close_all(self) -> None:
        """Start a new round: streams held from now on wait for the next release."""
        self._serial += 1

    @property
    def serial(self) -> int:
        """Number of this round."""
        return self._serial

    @property
    def is_open(self) -> bool:
        """Whether this round was released."""
        return self._is_open(self._serial)

    def hold(self, device: Device, stream: Any) -> None:
        """Make a stream of the current device wait for the release."""
        self._signals.wait(device, stream, 0, self._serial)

    def tell(self, device: Device, stream: Any, offset: int, value: int) -> None:
        """Enqueue a write of a word of the page in a stream of the current device."""
        self._signals.write(device, stream, offset, value)

    def open(self, serial: int) -> None:
        """Release the streams of a round and of earlier rounds; the gate of a later round is unchanged."""
        with self._lock:
            if not self._is_open(serial):
                self._word.value = serial

    def release(self) -> None:
        """Release all streams at the same time."""
        self.open(self._serial)

    def abandon(self) -> None:
        """Release all streams after an error."""
        self.open(self._serial)

    def _is_open(self, serial: int) -> bool:
        return bool(ctypes.c_int32(self._word.value - serial).value >= 0)

    def free(self) -> None:
        """Free the word."""
        self._signals.free()
