"""The gate of the streams of GPUs: one store by a host opens it for all, also in several processes."""

from __future__ import annotations

import ctypes
import threading
from typing import Any

from ...units import KIB, NANO
from ...worlds.descriptors import SharedMemory
from .device import Device
from .gpu_driver import Arguments, narrow, pointer


class Gate:
    """Pinned memory, of which streams of every GPU can wait for the first word, and write the others.

    The first word is the gate of all processes that have mapped the memory; they agree on the rounds. It only
    counts up, so it is never reset.

    Args:
        device: Any GPU; its context owns the page.
        timeout: Time after which a spinning kernel gives up, in s.
        page: Memory that several processes have mapped; None for memory of this process.

    Attributes:
        host, address: Address for the CPU, and for GPUs.
        serial: Number of this round.
    """

    def __init__(self, device: Device, timeout: float, page: SharedMemory | None = None) -> None:
        self._device, self._page = device, page
        if not device.has_stream_waits:  # later, loading waits for held streams
            device.kernel("gate", "tell")
        device.use()
        if page is None:
            self.host = device.driver.allocate_host(4 * KIB)
            ctypes.memset(self.host, 0, 4 * KIB)
        else:
            self.host = page.address
            device.driver.pin(self.host, page.bytes)
        self.address = device.driver.address_of(self.host)
        self._arguments = Arguments(pointer(self.address), narrow(0), ctypes.c_uint64(round(timeout / NANO)))
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
        if device.has_stream_waits:
            device.driver.wait_value(stream, self.address, self.serial)
            return
        kernel = device.kernel("gate", "spin")
        self._arguments.values[1].value = self.serial
        device.driver.bind_launch(kernel, 1, 1, 0, stream, self._arguments)()

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
