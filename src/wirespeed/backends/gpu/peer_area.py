"""The GPUs of a process that tries peer access: their memory, and the steps that all attempts take."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...hardware.devices import Gpu
from ...peer_access import PeerMechanism
from ...units import MIB
from ..test_data import key_of, words
from .device import Device
from .gpu_driver import Arguments, GpuDriver, pointer, wide

#: Time after which a kernel or copy of a few MiB hangs, in s.
HANG_S = 1.0
#: Bytes of the region of one mechanism, its words, and bytes of the copy that is timed.
REGION, WORDS, TIMED_BYTES = MIB, MIB // 8, 16 * MIB
#: Blocks and threads of kernels.
GRID, THREADS = 16, 256


class Hung(Exception):
    """Something does not end; the process must be killed."""


@dataclass
class Area:
    """A GPU with the memory that attempts use.

    Attributes:
        device: The GPU.
        stream: Where its work is enqueued.
        target, source, flags, found: Addresses: what others write to, what is copied to others, flags, and
            results of kernels.
    """

    device: Device
    stream: Any
    target: int
    source: int
    flags: int
    found: int


class PeerAreas:
    """The GPUs of a process that tries peer access, and the steps of all attempts.

    Attributes:
        driver: The driver of the GPUs.
        send: Sends a message to the parent.
    """

    def __init__(self, driver: GpuDriver, send: Callable[[Mapping[str, Any]], None]) -> None:
        self.driver = driver
        self.send = send
        self._areas: dict[str, Area] = {}
        self._peers: set[tuple[str, str]] = set()
        self._stage = ""
        self._tried = 0

    # What the steps of all attempts need.

    def stage(
        self, text: str, mechanism: PeerMechanism | None = None, way: Sequence[str] = (), **more: bool
    ) -> None:
        """Tell the parent what is done next, and for which mechanism and way."""
        self._stage = text if not way else f"{text}, {'->'.join(way)}"
        self.send({"stage": self._stage, "mechanism": mechanism, "way": list(way), **more})

    def area(self, gpu: Mapping[str, str]) -> Area:
        """A GPU, opened on first use."""
        if gpu["name"] not in self._areas:
            self.stage(f"opening {gpu['name']}", opens=True)
            handle = self.driver.devices()[gpu["bus_id"]]
            device = Device(Gpu(int(gpu["index"]), "", gpu["bus_id"]), self.driver, handle)
            device.use()
            for name in ("store", "load", "check", "ping", "pong", "send", "receive", "add"):
                device.kernel("peer", f"peer_{name}")
            memory = [self.driver.allocate(size) for size in (TIMED_BYTES, TIMED_BYTES, 65536, 4096)]
            self._areas[gpu["name"]] = Area(device, self.driver.stream(), *memory)
        return self._areas[gpu["name"]]

    def enable(self, x: Area, y: Area) -> None:
        """Let a GPU access the memory of another."""
        pair = x.device.name, y.device.name
        if pair not in self._peers:
            self.stage("enabling peer access", way=pair)
            x.device.use()
            self.driver.enable_peer(y.device.context)
            self._peers.add(pair)

    def disable(self) -> None:
        """End all access that was enabled: a GPU has few peers at once, in all processes together."""
        for accessing, owner in self._peers:
            self._areas[accessing].device.use()
            self.driver.disable_peer(self._areas[owner].device.context)
        self._peers.clear()

    def wait(self, *areas: Area) -> None:
        """Wait for all work of some GPUs.

        Raises:
            Hung: If it does not end.
        """
        deadline = time.monotonic() + HANG_S
        for area in areas:
            area.device.use()
            while not self.driver.is_idle(area.stream):
                late = time.monotonic() > deadline
                time.sleep(0.0002)
                if late and not self.driver.is_idle(area.stream):
                    raise Hung(self._stage)

    def run(self, area: Area, kernel: str, *values: Any, blocks: int = GRID, threads: int = THREADS) -> None:
        """Enqueue a kernel."""
        area.device.use()
        function = area.device.kernel("peer", f"peer_{kernel}")
        arguments = Arguments(*values)  # the launch has only their address
        self.driver.bind_launch(function, blocks, threads, 0, area.stream, arguments)()

    def fill(self, area: Area, address: int, key: int, words: int = WORDS) -> None:
        """Write a pattern to memory of the same GPU."""
        self.run(area, "store", pointer(address), wide(words), wide(key))

    def clear(self, *areas: Area) -> None:
        """Reset flags and results."""
        for area in areas:
            area.device.use()
            self.driver.enqueue_zeros(area.flags, 65536, area.stream)
            self.driver.enqueue_zeros(area.found, 4096, area.stream)
        self.wait(*areas)

    def words(self, area: Area, address: int, count: int) -> Any:
        """Words of the memory of a GPU, as the host reads them."""
        read = np.empty(count, np.uint64)
        area.device.use()
        self.driver.read(read.ctypes.data, address, 8 * count)
        return read

    def wrong(self, area: Area, address: int, key: int, before: int, count: int = WORDS) -> tuple[int, int]:
        """The number of wrong words, and of those that were never written: by its kernel and by the host."""
        area.device.use()
        self.driver.enqueue_zeros(area.found, 16, area.stream)
        self.run(area, "check", pointer(address), wide(count), wide(key), wide(before), pointer(area.found))
        self.wait(area)
        by_kernel = self.words(area, area.found, 2)
        read = self.words(area, address, count)
        bad = read != words(key, 0, count)
        by_host = int(bad.sum()), int((bad & (read == words(before, 0, count))).sum())
        return max(by_host, (int(by_kernel[0]), int(by_kernel[1])))

    def keys(self, seed: int) -> tuple[int, int]:
        """Two new keys: of what is written, and of what was there before."""
        self._tried += 1
        return key_of(seed, os.getpid(), self._tried), key_of(seed, os.getpid(), self._tried, 1)
