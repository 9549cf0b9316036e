"""Block lists of GPUs: calls without the interpreter, timed from the first one to the last byte."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...model import BlockList, Memory, MemoryKind, Method, Transfer
from ..call_tables import COPY_LIST, WAIT_UNTIL, Functions, Table
from ..test_data import offsets
from .device import Device, TimedStream
from .gpu_driver import Arguments, narrow, pointer, wide
from .launch_config import LaunchConfig, list_shape
from .memory import GpuBuffer

#: A row for each lap: its start, the end of the submission, and when the last byte was there, in ns.
LapTimes = np.ndarray[Any, np.dtype[np.int64]]
#: Returns a buffer in a memory, of a size, for a GPU.
Taker = Callable[[Memory, int, Device], GpuBuffer]


@dataclass(frozen=True)
class Addresses:
    """The addresses of the blocks of a list, in the order in which they are given.

    Attributes:
        host: Array in host memory.
        device: Address of the same array in the memory of the GPU that executes; 0 if it needs none.
    """

    host: np.ndarray[Any, np.dtype[np.int64]]
    device: int = 0

    @property
    def address(self) -> int:
        """Address of the array in host memory."""
        return int(self.host.ctypes.data)


class BlockCopies:
    """The calls that move a block list once, by its method.

    Attributes:
        lane: Stream of the GPU that executes.
    """

    loops = False

    def __init__(self, lane: TimedStream, transfer: Transfer, lists: Lists) -> None:
        self._device, self._lists, self._native = lane.device, lists, lane.device.driver.native
        self._functions = Functions(self._native.failed, self._native.library())
        self._stream, self._kept = int(lane.stream), list[object]()
        assert transfer.scattered is not None
        self._scattered = transfer.scattered
        self._begin = self._functions.table([self._native.use(int(lane.device.context))])
        wait = self._functions.table([self._native.synchronize(self._stream)])
        self._calls, self._end = self._of(transfer), wait
        if lists.staging is not None and transfer.source.kind is MemoryKind.DEVICE:
            # The CPU scatters what has arrived.
            stage = self._stage(lists.staging[1].host or lists.staging[1].address)
            scatter = self._copy_list(lists.destination.address, stage.address)
            self._end = np.concatenate([wait, scatter])

    def join(self, other: BlockCopies) -> None:
        """Move another list of the same GPU too: from now on, ``laps`` makes the calls of both in turns."""
        self._functions = self._functions.joined(other._functions)
        both = [self._calls, other._calls]
        order = np.argsort(np.concatenate([np.arange(len(t)) / len(t) for t in both]), kind="stable")
        self._calls = np.concatenate(both)[order]
        self._end = np.concatenate([self._end, other._end])
        self._kept.append(other)

    def laps(self, count: int) -> LapTimes:
        """Move the list several times, one after the other.

        Raises:
            BackendError: If a call failed.
        """
        return self._functions.walk((self._begin, self._calls, self._end), count)

    def begin_at(self, word: int) -> None:
        """Let ``laps`` begin at a time in ns, from now on: the one at this address when it is called."""
        wait = self._functions.rows(WAIT_UNTIL, 1, word)
        self._begin = np.concatenate([self._begin, wait])

    def warm_up(self) -> None:
        """Move the list once."""
        self.laps(1)

    def put(self, copies: int) -> None:
        """Move the list several times."""
        self.laps(copies)

    def _of(self, transfer: Transfer) -> Table:
        """The calls before the wait."""
        lists, blocks, block = self._lists, self._scattered.blocks, self._scattered.block
        method = self._scattered.method
        if method is Method.LOOP:
            name, _ = self._native.move(0, 0, block, self._stream)
            return self._functions.rows(
                name, blocks, lists.destination.host, lists.source.host, block, self._stream
            )
        if method is Method.BATCH:
            sizes = np.full(blocks, block, np.int64)
            ends = [self._device.handle if end.kind is MemoryKind.DEVICE else None for end in transfer.ends]
            call, kept = self._native.batch(
                lists.destination.address, lists.source.address, int(sizes.ctypes.data), blocks, ends,
                self._stream,
            )  # fmt: skip
            self._kept += [sizes, kept]
            return self._functions.table([call])
        if method is not Method.STAGED:
            form = list_shape(transfer, self._device.multiprocessors, self._device.shared_memory)
            return self._launch(form, lists.destination.device, lists.source.device)
        assert lists.staging is not None
        here, there = lists.staging
        form = list_shape(transfer, self._device.multiprocessors, self._device.shared_memory)
        gathered = lists.upload(consecutive(self._scattered, here.address))
        if transfer.source.kind is MemoryKind.DEVICE:
            gather = self._launch(form, gathered, lists.source.device)
            copy = self._native.move(there.address or there.host, here.address, transfer.bytes, self._stream)
            return np.concatenate([gather, self._functions.table([copy])])
        gather = self._copy_list(self._stage(there.host).address, lists.source.address)
        copy = self._native.move(here.address, there.address or there.host, transfer.bytes, self._stream)
        scatter = self._launch(form, lists.destination.device, gathered)
        return np.concatenate([gather, self._functions.table([copy]), scatter])

    def _launch(self, form: LaunchConfig, to: int, origin: int) -> Table:
        """The launch of a kernel with lists in the memory of the GPU."""
        kernel = self._device.kernel(form.file, form.kernel)
        values = [pointer(to), pointer(origin), wide(self._scattered.block), narrow(self._scattered.blocks)]
        if form.shared:
            self._device.driver.allow_shared_memory(kernel, self._device.shared_memory)
            values.append(narrow(form.chunk))
        arguments = Arguments(*values)
        self._kept.append(arguments)
        call = self._native.launch(
            int(kernel), form.blocks, form.threads, form.shared, self._stream, arguments.address
        )
        return self._functions.table([call])

    def _stage(self, base: int) -> Addresses:
        """The addresses of the blocks of a contiguous buffer."""
        addresses = Addresses(consecutive(self._scattered, base))
        self._kept.append(addresses)
        return addresses

    def _copy_list(self, to: int, origin: int) -> Table:
        block, blocks = self._scattered.block, self._scattered.blocks
        return self._functions.table([(COPY_LIST, (to, origin, block, blocks))])


class Lists:
    """The lists of one transfer, and where they are.

    Args:
        take: Returns a buffer in a memory, of a size, for a GPU.
        transfer: The transfer.
        device: GPU that executes it.
        pools: Buffers of the source and of the destination.
        seed: Seed of the order.

    Attributes:
        source, destination: Addresses of the blocks of the pools.
        staging: Contiguous buffers on the GPU and in host memory, if the method needs them.
    """

    def __init__(
        self, take: Taker, transfer: Transfer, device: Device, pools: Sequence[GpuBuffer], seed: int
    ) -> None:
        scattered = transfer.scattered
        assert scattered is not None
        self._take, self._device = take, device
        places = offsets(scattered, seed)
        self.source, self.destination = (
            self._addresses(places[:, i], buffer) for i, buffer in enumerate(pools)
        )
        self.staging: tuple[GpuBuffer, GpuBuffer] | None = None
        if scattered.method is Method.STAGED:
            host = next(end for end in transfer.ends if end.kind is not MemoryKind.DEVICE)
            own = Memory(device.name, MemoryKind.DEVICE)
            here, there = (take(memory, transfer.bytes, device) for memory in (own, host))
            self.staging = here, there

    def upload(self, addresses: np.ndarray[Any, np.dtype[np.int64]]) -> int:
        """Copy a list to the GPU that executes, and return its address there."""
        device, memory = self._device, Memory(self._device.name, MemoryKind.DEVICE)
        buffer = self._take(memory, addresses.nbytes, device)
        device.use()
        device.driver.write(buffer.address, int(addresses.ctypes.data), addresses.nbytes)
        device.driver.synchronize_context()
        return buffer.address

    def _addresses(self, places: np.ndarray[Any, np.dtype[np.int64]], buffer: GpuBuffer) -> Addresses:
        on_gpu = np.ascontiguousarray(places + np.int64(buffer.address))
        on_host = np.ascontiguousarray(places + np.int64(buffer.host)) if buffer.host else on_gpu
        return Addresses(on_host, self.upload(on_gpu))


def consecutive(scattered: BlockList, base: int) -> np.ndarray[Any, np.dtype[np.int64]]:
    """The addresses of blocks that follow each other from an address on."""
    return np.arange(scattered.blocks, dtype=np.int64) * np.int64(scattered.block) + np.int64(base)
