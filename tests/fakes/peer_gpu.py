"""Two or more GPUs in host memory that several processes share, with faults of peer access from a variable.

It is the module of a backend, by the name ``tests.fakes.peer_gpu``. ``FAKE_PEERS`` has faults such as
``drop 0 1;hang 1 0``: what GPU 0 writes to the memory of GPU 1 vanishes, kernels of GPU 1 that access GPU 0
never end. Each stream is a thread, so that kernels of two GPUs wait for each other.
"""

from __future__ import annotations

import ctypes
import mmap
import os
import queue
import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from tests.fakes.gpu import pattern
from wirespeed.backends.gpu.gpu_driver import Arguments, GpuProperties
from wirespeed.errors import BackendError, BackendLost
from wirespeed.peer_access import MOST_PEERS

#: Variables: faults, number of GPUs, a file that exists after a hang, from which on GPUs may be ``dead``, and
#: how many peers a GPU can access at once.
VARIABLE, COUNT, MARK, PEERS = "FAKE_PEERS", "FAKE_GPUS", "FAKE_MARK", "FAKE_MOST_PEERS"


def words(address: int, count: int) -> Any:
    return np.frombuffer((ctypes.c_uint64 * count).from_address(address), np.uint64)


class PeerStream:
    def __init__(self, device: int) -> None:
        self.device = device
        self.work: queue.Queue[Callable[[], object]] = queue.Queue()
        self.pending = 0
        threading.Thread(target=self._serve, daemon=True).start()

    def put(self, call: Callable[[], object]) -> None:
        self.pending += 1
        self.work.put(call)

    def _serve(self) -> None:
        while True:
            self.work.get()()
            self.pending -= 1


class PeerDriver:
    name = __name__
    hidden_remedy, peer_remedy = "look again", "ask again"
    default_stream = None

    def __init__(self) -> None:
        texts = filter(None, os.environ.get(VARIABLE, "").split(";"))
        self.faults = {(kind, int(a), int(b)) for kind, a, b in map(str.split, texts)}
        self.current = 0
        self.peers: set[tuple[int, int]] = set()  # of this process
        self.checked: Counter[int] = Counter()  # address -> how often it was verified
        self.ranges: list[tuple[int, int, int, int]] = []  # address, size, owner, file

    def fault(self, kind: str, source: int, address: int) -> bool:
        """Whether a fault concerns a GPU that accesses an address."""
        owner = next((o for start, size, o, _ in self.ranges if start <= address < start + size), source)
        return (kind, source, owner) in self.faults

    def devices(self) -> dict[str, int]:
        return {f"00000000:00:{6 + i:02x}": i for i in range(int(os.environ.get(COUNT, "2")))}

    def properties(self, device: int) -> GpuProperties:
        return GpuProperties("in memory", (9, 0), 4, 2**16, True)

    def open(self, device: int) -> int:
        return device

    def close(self, device: int) -> None: ...

    def use(self, context: int) -> None:
        self.current = context

    def enable_peer(self, context: int) -> None:
        if ("refuse", self.current, context) in self.faults:
            raise BackendError("peer access is not supported between these two devices")
        self.peers.add((self.current, context))
        if sum(accessing == self.current for accessing, _ in self.peers) > int(
            os.environ.get(PEERS, MOST_PEERS)
        ):
            raise BackendError("peer mapping resources exhausted")

    def disable_peer(self, context: int) -> None:
        self.peers.remove((self.current, context))

    def _map(self, file: int, size: int, owner: int) -> int:
        mapped = mmap.mmap(file, size)
        address = ctypes.addressof(ctypes.c_char.from_buffer(mapped))
        self.ranges.append((address, size, owner, file))
        self.__dict__.setdefault("kept", []).append(mapped)
        return address

    def _create(self, size: int) -> int:
        file = os.memfd_create(f"gpu{self.current}")
        os.truncate(file, size)
        return file

    def allocate(self, size: int) -> int:
        return self._map(self._create(size), size, self.current)

    def free(self, address: int) -> None: ...

    def allocate_host(self, size: int) -> int:
        return self._map(self._create(size), size, -1)

    free_host = free

    def address_of(self, host: int) -> int:
        return host

    def read(self, host: int, address: int, size: int) -> None:
        ctypes.memmove(host, address, size)

    def enqueue_copy(self, to: int, origin: int, size: int, stream: PeerStream) -> None:
        def copy() -> None:
            self._act(stream.device, to)
            if not self.fault("drop", stream.device, to):
                ctypes.memmove(to, origin, size)

        stream.put(copy)

    def _act(self, device: int, address: int) -> None:
        """Do what faults of any access do."""
        if self.fault("hang", device, address):
            if os.environ.get(MARK):
                Path(os.environ[MARK]).touch()
            threading.Event().wait()
        if self.fault("die", device, address):
            os._exit(7)

    def enqueue_zeros(self, address: int, size: int, stream: PeerStream) -> None:
        stream.put(lambda: ctypes.memset(address, 0, size))

    def stream(self) -> PeerStream:
        return PeerStream(self.current)

    def is_idle(self, stream: PeerStream) -> bool:
        if ("lost", stream.device, stream.device) in self.faults:
            raise BackendLost("the GPU is lost")
        is_dead = ("dead", stream.device, stream.device) in self.faults and Path(os.environ[MARK]).exists()
        return stream.pending == 0 and not is_dead

    def event(self) -> list[float]:
        return [0.0]

    def destroy_event(self, event: list[float]) -> None: ...

    def record(self, event: list[float], stream: PeerStream) -> None:
        stream.put(lambda: event.__setitem__(0, time.perf_counter()))

    def elapsed(self, start: list[float], stop: list[float]) -> float:
        return 1e-3  # all copies are equally fast

    # Kernels.

    def source(self, file: str) -> str:
        return file

    def module(self, source: str, device: int, headers: object = None) -> str:
        return source

    def function(self, module: str, name: str) -> str:
        return name

    def load(self, function: object) -> None: ...

    def bind_launch(
        self, function: str, blocks: int, threads: int, shared: int, stream: PeerStream, arguments: Arguments
    ) -> Callable[[], object]:
        kernel = getattr(self, function)
        values = [value.value or 0 for value in arguments.values]
        return lambda: stream.put(lambda: kernel(stream.device, blocks * threads, *values))

    def peer_store(self, device: int, threads: int, to: int, count: int, key: int) -> None:
        self._act(device, to)
        if self.fault("drop", device, to):
            return
        content = pattern(key, 8 * count)
        if self.fault("corrupt", device, to):
            content[8] ^= 1
        ctypes.memmove(to, content.ctypes.data, 8 * count)

    def peer_load(self, device: int, threads: int, to: int, origin: int, count: int) -> None:
        self._act(device, origin)
        ctypes.memmove(to, origin, 8 * count)

    def peer_check(
        self, device: int, threads: int, at: int, count: int, key: int, before: int, found: int
    ) -> None:
        here = words(at, count)
        wrong = here != pattern(key, 8 * count).view(np.uint64)
        self.checked[at] += 1
        if self.checked[at] > 1 and any(kind == "fade" and b == device for kind, _, b in self.faults):
            wrong[3] = True  # what was right at first
        stale = wrong & (here == pattern(before, 8 * count).view(np.uint64))
        words(found, 2)[:] += np.array([wrong.sum(), stale.sum()], np.uint64)

    def _set(self, device: int, flag: int, value: int) -> None:
        if not self.fault("drop", device, flag) and not self.fault("unseen", device, flag):
            ctypes.c_uint32.from_address(flag).value = value

    @staticmethod
    def _seen(flag: int, value: int, limit: int) -> bool:
        end, word = time.monotonic() + limit * 1e-9, ctypes.c_uint32.from_address(flag)
        while word.value != value:
            if time.monotonic() > end:
                return False
            time.sleep(0.00002)
        return True

    def peer_ping(
        self,
        device: int,
        threads: int,
        theirs: int,
        mine: int,
        base: int,
        rounds: int,
        limit: int,
        result: int,
    ) -> None:
        start = time.perf_counter()
        for i in range(1, rounds + 1):
            self._set(device, theirs, base + i)
            if not self._seen(mine, base + i, limit):
                break
            words(result, 2)[0] = i
        words(result, 2)[1] = int((time.perf_counter() - start) * 1e9)

    def peer_pong(
        self,
        device: int,
        threads: int,
        theirs: int,
        mine: int,
        base: int,
        rounds: int,
        limit: int,
        result: int,
    ) -> None:
        for i in range(1, rounds + 1):
            if not self._seen(mine, base + i, limit):
                break
            words(result, 1)[0] = i
            self._set(device, theirs, base + i)

    def peer_send(
        self, device: int, threads: int, data: int, flags: int, blocks: int, count: int, key: int, base: int
    ) -> None:
        is_late = self.fault("late", device, data)
        for block in range(blocks):
            if not is_late:
                self.peer_store(device, threads, data + 8 * count * block, count, key + block)
            self._set(device, flags + 4 * block, base + block)
        time.sleep(0.05 if is_late else 0)
        for block in range(blocks if is_late else 0):
            self.peer_store(device, threads, data + 8 * count * block, count, key + block)

    def peer_receive(
        self, device: int, threads: int, data: int, flags: int, blocks: int, count: int, key: int, base: int,
        limit: int, result: int,
    ) -> None:  # fmt: skip
        for block in range(blocks):
            if not self._seen(flags + 4 * block, base + block, limit):
                return
            expected = pattern(key + block, 8 * count).view(np.uint64)
            words(result, 2)[1] += np.uint64((words(data + 8 * count * block, count) != expected).sum())
            words(result, 2)[0] = block + 1

    def peer_add(self, device: int, threads: int, counter: int, times: int) -> None:
        words(counter, 1)[0] += np.uint64(threads * times)

    # Sharing.

    def create_memory(self, device: int, size: int, mechanism: str = "") -> tuple[int, int]:
        return self._create(size), size

    def map_memory(self, file: int, size: int, devices: Sequence[int]) -> tuple[int, Callable[[], None]]:
        owner = int(str(Path(f"/proc/self/fd/{file}").readlink()).removeprefix("/memfd:gpu").split(" ")[0])
        return self._map(file, size, owner), lambda: None

    def export_memory(self, file: int, mechanism: str) -> int:
        return os.dup(file)

    def import_memory(self, exported: int, mechanism: str) -> int:
        return os.dup(exported)

    def export_allocation(self, address: int) -> tuple[bytes, int]:
        start, size, owner, file = next(r for r in self.ranges if r[0] <= address < r[0] + r[1])
        return f"{os.getpid()} {file} {size} {owner}".encode(), address - start

    def open_allocation(self, handle: bytes) -> int:
        if ("no-ipc", 0, 0) in self.faults:
            raise BackendError("cuIpcOpenMemHandle failed: not permitted")
        process, file, size, owner = map(int, handle.decode().split())
        return self._map(os.open(f"/proc/{process}/fd/{file}", os.O_RDWR), size, owner)

    def close_allocation(self, address: int) -> None: ...


def open_driver() -> PeerDriver:
    return PeerDriver()
