"""The gate: holds streams of all GPUs, also of several processes, until one store by a host."""

from __future__ import annotations

import ctypes
import threading
from enum import StrEnum
from typing import Any

from cuda.bindings import driver

from ...units import KIB, NANO
from ...worlds.descriptors import SharedMemory
from .arguments import Arguments, narrow, pointer
from .device import Device
from .driver import check


class GateKind(StrEnum):
    """What waits in a stream: the stream itself for a value in memory, where the GPU can; or a kernel."""

    WAIT_VALUE = "wait_value"
    SPIN = "spin"


class Gate:
    """A word of pinned memory that every GPU sees. It counts up, so it is never reset.

    Parameters
    ----------
    device
        Any GPU; its context owns the word.
    timeout
        Seconds after which a spinning kernel gives up by itself.
    page
        Memory that several processes have mapped and whose first word is the gate of them all; by
        itself a gate is of one process. They must agree on the rounds.
    """

    def __init__(
        self, kind: GateKind, device: Device, timeout: float, page: SharedMemory | None = None
    ) -> None:
        self._kind = kind
        self._serial = 0
        self._lock = threading.Lock()
        self._page = page
        if not device.has_stream_waits:
            device.kernel("gate", "tell")  # here: loading waits for what is held
        device.use()
        if page is None:
            flags = driver.CU_MEMHOSTALLOC_PORTABLE | driver.CU_MEMHOSTALLOC_DEVICEMAP
            self._host = int(check(driver.cuMemHostAlloc, 4 * KIB, flags))
            ctypes.c_uint32.from_address(self._host).value = 0
        else:
            flags = driver.CU_MEMHOSTREGISTER_PORTABLE | driver.CU_MEMHOSTREGISTER_DEVICEMAP
            self._host = page.address
            check(driver.cuMemHostRegister, self._host, page.bytes, flags)
        self._word = ctypes.c_uint32.from_address(self._host)
        self._address = check(driver.cuMemHostGetDevicePointer, self._host, 0)
        self._device = device
        self._arguments = Arguments(
            ctypes.c_void_p(int(self._address)), ctypes.c_uint32(0), ctypes.c_uint64(round(timeout / NANO))
        )

    def close_all(self) -> None:
        """Begin a new round: what is held from now on waits for the next release."""
        self._serial += 1
        self._arguments.values[1].value = self._serial

    @property
    def address(self) -> int:
        """Where GPUs see the word."""
        return int(self._address)

    @property
    def serial(self) -> int:
        """The number of this round."""
        return self._serial

    @property
    def is_open(self) -> bool:
        """Whether this round was released."""
        return self._is_open(self._serial)

    def hold(self, device: Device, stream: Any) -> None:
        """Let a stream of the current device wait."""
        if self._kind is GateKind.SPIN or not device.has_stream_waits:
            kernel = device.kernel("gate", "spin")
            check(driver.cuLaunchKernel, kernel, 1, 1, 1, 1, 1, 1, 0, stream, self._arguments.address, 0)
        else:
            wait = driver.CUstreamWaitValue_flags.CU_STREAM_WAIT_VALUE_GEQ
            check(driver.cuStreamWaitValue32, stream, self._address, self._serial, wait)

    def tell(self, device: Device, stream: Any, offset: int, value: int) -> None:
        """Let a stream of the current device write a word of the page when it comes to it."""
        address = self.address + offset
        if device.has_stream_waits:
            check(driver.cuStreamWriteValue32, stream, address, value, 0)
            return
        kernel = device.kernel("gate", "tell")
        arguments = Arguments(pointer(address), narrow(value))
        check(driver.cuLaunchKernel, kernel, 1, 1, 1, 1, 1, 1, 0, stream, arguments.address, 0)

    def open(self, serial: int) -> None:
        """Let go the streams of a round and of those before it; the gate of a later one stays as it is."""
        with self._lock:
            if not self._is_open(serial):
                self._word.value = serial

    def release(self) -> None:
        """Let all streams go, at the same time."""
        self.open(self._serial)

    def abandon(self) -> None:
        """Let all streams go after something went wrong."""
        self.open(self._serial)

    def _is_open(self, serial: int) -> bool:
        return bool(ctypes.c_int32(self._word.value - serial).value >= 0)

    def free(self) -> None:
        """Give the word back."""
        self._device.use()
        check(driver.cuMemFreeHost if self._page is None else driver.cuMemHostUnregister, self._host)
