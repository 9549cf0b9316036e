"""Blocks between a file and a GPU, through pinned host memory or by cuFile (GPUDirect Storage). Through
pinned memory, each call at a time is a thread with two buffers, so the slower of storage and copy engine
decides. cuFile moves blocks without host memory if the kernel, the file system and the device can.
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
from .calls import END, LAST, START, Array, Blocks, draw, next_movers
from .cufile import CuFile
from .prepared import FilledFile, StoragePrepared


class OnGpu(StoragePrepared):
    """Calls of one transfer between a file and a GPU, which has a place for each buffer."""

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

    def _bind(self) -> None:
        """Bind what moves the data of the places."""

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


class StagedPrepared(OnGpu):
    """Calls through pinned memory of the host."""

    turns = 2

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


class CuFilePrepared(OnGpu):
    """Calls of cuFile.

    Of what it reads, the last block of each call at a time is compared. What it writes begins with the number
    of the sample, so that an earlier one is no proof.
    """

    def _bind(self) -> None:
        """Register the file and the memory of the GPU with cuFile."""
        self._number = 0
        self._file = CuFile(self._contents.file.descriptor)
        self._resources.callback(self._file.close)
        self._file.register(self._places[0], self._calls.block * len(self._places))

    @property
    def way(self) -> str:
        return self._file.way

    def _move(self, index: int, offset: int) -> None:
        """Move a block between the file and its place on the GPU."""
        base, block = self._places[0], self._calls.block
        self._file.move(base, block, offset, index * block, writes=self._writes)

    def _start(self, blocks: Blocks) -> list[Future[None]]:
        if self._writes:
            self._device.use()
            self._number += 1
            number, driver = np.array([self._number], np.uint64), self._device.driver
            for place in self._places:
                driver.write(place, number.ctypes.data, number.nbytes)
            driver.synchronize_context()
        return [self._in_thread(self._calls_of, call, blocks) for call in range(self._calls.depth)]

    def _calls_of(self, call: int, blocks: Blocks) -> None:
        """Move blocks until there is no more."""
        self._device.use()
        result = self._results[call]
        result[START] = time.monotonic_ns()
        while (offset := draw(blocks)) >= 0:
            self._move(call, offset)
            result[LAST] = offset
        result[END] = time.monotonic_ns()

    def _written(self, offset: int) -> Array:
        words = super()._written(offset)
        words[0], words[-1] = self._number, self._buffers[0][self._calls.block // 8 - 1]
        return words
