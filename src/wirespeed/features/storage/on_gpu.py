"""Blocks between a file and a GPU, through pinned host memory. Each call at a time is a thread with two
buffers, so the slower of storage and copy engine decides.
"""

from __future__ import annotations

import time
from concurrent.futures import Future
from contextlib import ExitStack

import numpy as np

from ...backends.gpu.device import Device
from ...backends.gpu.gpu_driver import driver_of
from ...errors import BackendError, OutOfMemory
from ...hardware.devices import Gpu
from ...model import Transfer
from ...options import RunOptions
from ...units import format_size
from .calls import END, START, Array, Blocks, next_movers
from .prepared import FilledFile, StoragePrepared


class StagedPrepared(StoragePrepared):
    """Calls of one transfer between a file and a GPU, which has a place for each buffer in pinned memory."""

    turns = 2

    def __init__(
        self, contents: FilledFile, transfer: Transfer, options: RunOptions, laps: int, gpu: Gpu
    ) -> None:
        self._gpu, self._resources = gpu, ExitStack()
        super().__init__(contents, transfer, options, laps)

    def _open(self) -> None:
        """Allocate the places, which have the contents to write, or zeros, and bind what uses them."""
        driver = driver_of(self._gpu.backend)
        handles = driver.devices()
        if self._gpu.bus_id not in handles:
            name = f"{self._gpu.name} at {self._gpu.bus_id}"
            raise BackendError(f"this process may not use {name}; {driver.hidden_remedy}")
        self._device = Device(self._gpu, driver, handles[self._gpu.bus_id])
        self._resources.callback(self._device.close)
        self._device.use()
        block = self._calls.block
        size = block * len(self._buffers)
        try:
            base = driver.allocate(size)
        except OutOfMemory as error:
            name = self._gpu.name
            raise OutOfMemory(f"{format_size(size)} on {name}: {error}; give a smaller --size") from error
        self._resources.callback(driver.free, base)
        self._places = [base + i * block for i in range(len(self._buffers))]
        self._stream = driver.stream()
        self._resources.callback(driver.destroy_stream, self._stream)
        for place, address in zip(self._places, map(int, self._addresses), strict=True):
            if self._writes:
                driver.write(place, address, block)
            else:
                driver.enqueue_zeros(place, block, self._stream)
        driver.synchronize(self._stream)
        driver.synchronize_context()
        self._bind()
        self._resources.callback(self._device.use)  # the first one, by whatever thread

    def __exit__(self, *_: object) -> None:
        super().__exit__()
        self._resources.close()

    def _found(self, index: int) -> Array:
        """The words that are on the GPU, which are overwritten: what stays is no proof of a later copy."""
        driver, place, block = self._device.driver, self._places[index], self._calls.block
        self._device.use()
        found = np.empty(block // 8, np.uint64)
        driver.read(found.ctypes.data, place, block)
        driver.enqueue_zeros(place, block, self._stream)
        driver.synchronize(self._stream)
        return found

    def _bind(self) -> None:
        """Pin the buffers, and bind the copies of each one from or to its place in the memory of the GPU."""
        driver, host = self._device.driver, int(self._addresses[0])
        pinned_bytes = sum(buffer.nbytes for buffer in self._buffers)
        try:
            driver.pin(host, pinned_bytes)
        except OutOfMemory as error:
            hint = "raise the limit of locked memory (`ulimit -l`), or give a smaller --size"
            raise OutOfMemory(f"{format_size(pinned_bytes)} of pinned memory: {error}; {hint}") from error
        self._resources.callback(driver.unpin, host)
        self._copies, self._waits = [], []
        for place, address in zip(self._places, map(int, self._addresses), strict=True):
            stream = driver.stream()
            self._resources.callback(driver.destroy_stream, stream)
            pinned = driver.address_of(address)
            ends = (pinned, place) if self._writes else (place, pinned)
            self._copies.append(driver.bind_copy(*ends, self._calls.block, stream))
            self._waits.append((driver.synchronize, stream))

    def _start(self, blocks: Blocks) -> list[Future[None]]:
        self._moves = next_movers(blocks, self._buffers, self._results)
        does = self._write if self._writes else self._read
        return [self._in_thread(does, call) for call in range(self._calls.depth)]

    def _wait(self, index: int) -> None:
        """Wait for the copy of a buffer."""
        synchronize, stream = self._waits[index]
        synchronize(stream)

    def _read(self, call: int) -> None:
        """Read into one buffer while the other one is copied to the GPU."""
        self._device.use()
        index, other = 2 * call, 2 * call + 1
        begin = index
        self._results[begin, START] = time.monotonic_ns()
        while self._moves[index]():
            self._copies[index]()
            index, other = other, index
            self._wait(index)
        self._wait(other)
        self._results[begin, END] = time.monotonic_ns()

    def _write(self, call: int) -> None:
        """Write from one buffer while the other one receives a copy from the GPU."""
        self._device.use()
        index, other = 2 * call, 2 * call + 1
        begin = index
        self._results[begin, START] = time.monotonic_ns()
        self._fetch(index)
        while True:
            self._fetch(other)
            self._wait(index)
            if not self._moves[index]():
                break
            index, other = other, index
        self._results[begin, END] = time.monotonic_ns()
        self._wait(other)

    def _fetch(self, index: int) -> None:
        """Copy from the GPU to a buffer, of which one word shows whether the copy was made."""
        self._buffers[index][self._calls.block // 16] = 0
        self._copies[index]()
