"""A process that tries peer access, and that its parent can kill. It answers each request with messages: the
stage before each step, so that a hang has a name, each attempt, and ``done``. Descriptors of shared memory go
with them.
"""

from __future__ import annotations

import contextlib
import json
import os
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from ...backends.distributed.job_process import Handle
from ...backends.gpu.gpu_driver import IPC, VMM_FD, GpuDriver, narrow, opener_of, pointer, wide
from ...backends.gpu.peer_area import REGION, THREADS, TIMED_BYTES, WORDS, Area, Hung, PeerAreas
from ...backends.gpu.sharing import IpcSharing, MappedSharing
from ...backends.test_data import words
from ...errors import BackendError, BackendLost
from ...peer_access import FLAG_S, PeerMechanism, PeerVerdict
from ...units import NANO

#: Largest message, in bytes.
MESSAGE_BYTES = 2**16
#: Time after which a kernel stops to wait for a flag, in ns. A flag that is not seen is set again, as one of
#: the two kernels may have started late.
_FLAG_NS = round(FLAG_S / NANO)
#: Rounds of flags; blocks of words with a flag each, and words of one.
_ROUNDS, _BLOCKS, _BLOCK_WORDS = 1000, 16, 512
#: Additions of each thread.
_TIMES = 50
#: Copies that are timed together.
_COPIES = 8
#: Time after which data is verified again, in s.
_LATER_S = 0.02
#: Offsets of flags in their memory: of the flag, of the blocks.
_FLAG, _BLOCK_FLAGS, _COUNTER = 0, 1024, 2048

#: Mechanisms between processes.
_SHARING: dict[str, IpcSharing | MappedSharing] = {
    PeerMechanism.IPC: IpcSharing(), PeerMechanism.DESCRIPTOR: MappedSharing(VMM_FD),
}  # fmt: skip


class PeerWorker(PeerAreas):
    """Tries peer access for the requests of its parent."""

    def __init__(self, driver: GpuDriver, send: Callable[[Mapping[str, Any]], None]) -> None:
        super().__init__(driver, send)
        self._unseen: set[tuple[str, str]] = set()
        self._shared: list[tuple[Area, int, int]] = []
        self._release: list[Callable[[], object]] = []

    # Attempts.

    def pair(self, request: Mapping[str, Any]) -> None:
        """Try the mechanisms of one process for a pair, in the directions that are offered."""
        areas = {gpu["name"]: self.area(gpu) for gpu in request["gpus"]}
        ways = [(areas[a], areas[b]) for a, b in request["ways"]]
        tried = [PeerMechanism(name) for name in request["mechanisms"]]
        written: list[tuple[PeerMechanism, Area, Area, int, int, int, int]] = []
        for way in list(ways):
            try:
                self.enable(*way)
            except BackendLost:
                raise
            except BackendError as error:
                ways.remove(way)
                refused = PeerVerdict.NOT_OFFERED
                self.tell(*way, PeerMechanism.COPY, refused, by="the driver", detail=str(error))
        usable = [(x.device.name, y.device.name) for x, y in ways]
        for number, (x, y) in enumerate(ways):
            for mechanism in tried:
                if mechanism is PeerMechanism.BOTH:
                    continue
                with self.attempting(x, y, mechanism):
                    if mechanism in (PeerMechanism.COPY, PeerMechanism.STORE, PeerMechanism.LOAD):
                        at = REGION * (2 * list(PeerMechanism).index(mechanism) + number)
                        written.append((mechanism, x, y, *self.moved(x, y, mechanism, at, request["seed"])))
                    elif mechanism is PeerMechanism.FLAG:
                        self.flag(x, y, usable, request["seed"])
                    elif mechanism is PeerMechanism.ORDER:
                        self.order(x, y, request["seed"])
                    elif mechanism is PeerMechanism.ATOMICS:
                        self.atomics(x, y, tuple(request["native"]))
        if PeerMechanism.BOTH in tried and len(ways) == 2:
            with self.attempting(*ways[0], PeerMechanism.BOTH):
                self.both(*ways[0], request["seed"])
        if written:
            time.sleep(_LATER_S)
            self.stage("verifying again")
        for mechanism, x, y, address, key, before, first in written:
            reader = x if mechanism is PeerMechanism.LOAD else y
            wrong, stale = self.wrong(reader, address, key, before)
            if bool(wrong) != bool(first):
                detail = "wrong some time later" if wrong else "right some time later"
                counts = {"words": WORDS, "wrong": wrong or first, "stale": stale if wrong else first}
                self.tell(x, y, mechanism, PeerVerdict.WRONG, detail=detail, late=not wrong, **counts)
        if request["few_peers"]:
            self.disable()

    @contextlib.contextmanager
    def attempting(self, x: Area, y: Area, mechanism: PeerMechanism) -> Iterator[None]:
        """Name the stage of an attempt; an error of a call is its result."""
        self.stage(mechanism.about, mechanism, (x.device.name, y.device.name))
        try:
            yield
        except BackendLost:
            raise
        except BackendError as error:
            self.tell(x, y, mechanism, PeerVerdict.FAILS, detail=str(error))

    def tell(self, x: Area, y: Area, mechanism: PeerMechanism, verdict: PeerVerdict, **fields: Any) -> None:
        """Send the result of an attempt."""
        ends = {"source": x.device.name, "destination": y.device.name}
        self.send({"attempt": {**ends, "mechanism": mechanism, "verdict": verdict, **fields}})

    def told_words(self, x: Area, y: Area, mechanism: PeerMechanism, wrong: int, stale: int) -> None:
        verdict = PeerVerdict.WRONG if wrong else PeerVerdict.WORKS
        self.tell(x, y, mechanism, verdict, words=WORDS, wrong=wrong, stale=stale)

    def moved(
        self, x: Area, y: Area, mechanism: PeerMechanism, at: int, seed: int
    ) -> tuple[int, int, int, int]:
        """Move a region; return where, its keys, and the number of wrong words."""
        key, before = self.keys(seed)
        if mechanism is PeerMechanism.LOAD:
            origin, address, reader = y.target + at, x.source + at, x
            self.fill(y, origin, key)
        else:
            origin, address, reader = x.source + at, y.target + at, y
            self.fill(x, origin, key)
        self.fill(reader, address, before)
        self.wait(x, y)
        self.put(x, mechanism, address, origin, key)
        self.wait(x)
        wrong, stale = self.wrong(reader, address, key, before)
        self.told_words(x, y, mechanism, wrong, stale)
        return address, key, before, wrong

    def put(self, x: Area, mechanism: PeerMechanism, address: int, origin: int, key: int) -> None:
        """Enqueue what moves a region."""
        x.device.use()
        if mechanism is PeerMechanism.COPY:
            self.driver.enqueue_copy(address, origin, REGION, x.stream)
        elif mechanism is PeerMechanism.STORE:
            self.run(x, "store", pointer(address), wide(WORDS), wide(key))
        else:
            self.run(x, "load", pointer(address), pointer(origin), wide(WORDS))

    def both(self, x: Area, y: Area, seed: int) -> None:
        """Write in both directions at once, by copy engines and by kernels."""
        ways, keys = ((x, y), (y, x)), [self.keys(seed) for _ in range(4)]
        at = 12 * REGION
        for i, (a, b) in enumerate(ways):
            self.fill(a, a.source + at, keys[i][0])
            self.fill(b, b.target + at, keys[i][1])
            self.fill(b, b.target + at + REGION, keys[2 + i][1])
        self.wait(x, y)
        for i, (a, b) in enumerate(ways):
            self.put(a, PeerMechanism.COPY, b.target + at, a.source + at, keys[i][0])
            self.put(a, PeerMechanism.STORE, b.target + at + REGION, 0, keys[2 + i][0])
        self.wait(x, y)
        for i, (a, b) in enumerate(ways):
            wrong, stale = self.wrong(b, b.target + at, *keys[i])
            more, old = self.wrong(b, b.target + at + REGION, *keys[2 + i])
            self.told_words(a, b, PeerMechanism.BOTH, max(wrong, more), max(stale, old))

    def flag(self, x: Area, y: Area, usable: Sequence[tuple[str, str]], seed: int) -> None:
        """Set a flag on the other GPU, which answers."""
        if (y.device.name, x.device.name) not in usable:
            detail = "no access in the opposite direction"
            self.tell(x, y, PeerMechanism.FLAG, PeerVerdict.NOT_TRIED, detail=detail)
            return
        for _ in range(2):
            self.clear(x, y)
            base = narrow(self.keys(seed)[0] & 0x7FFF0000)
            limit = wide(_FLAG_NS)
            for kernel, a, b in (("pong", y, x), ("ping", x, y)):
                flags = pointer(b.flags + _FLAG), pointer(a.flags + _FLAG)
                self.run(
                    a, kernel, *flags, base, narrow(_ROUNDS), limit, pointer(a.found), blocks=1, threads=1
                )
            self.wait_for_flags(x, y)
            answers, nanoseconds = map(int, self.words(x, x.found, 2))
            seen = int(self.words(y, y.found, 1)[0])
            if answers == _ROUNDS:
                latency = nanoseconds * 1e-9 / (_ROUNDS - 1)
                self.tell(x, y, PeerMechanism.FLAG, PeerVerdict.WORKS, latency=latency)
                return
        if seen > answers:
            self.tell(x, y, PeerMechanism.FLAG, PeerVerdict.WORKS, detail="the answer did not arrive")
        else:
            self.unseen(x, y, PeerMechanism.FLAG)

    def unseen(self, x: Area, y: Area, mechanism: PeerMechanism) -> None:
        """Report that a flag was never seen."""
        self._unseen.add((x.device.name, y.device.name))
        stage = f"waiting for the flag of {x.device.name} on {y.device.name}"
        self.tell(x, y, mechanism, PeerVerdict.HANGS, stage=stage)

    def wait_for_flags(self, *areas: Area) -> None:
        """Wait for kernels that wait for flags, which they do for a limited time; then for all work."""
        end = time.monotonic() + 2 * _FLAG_NS * 1e-9
        for area in areas:
            area.device.use()
            while time.monotonic() < end and not self.driver.is_idle(area.stream):
                time.sleep(0.0002)
        self.wait(*areas)

    def order(self, x: Area, y: Area, seed: int) -> None:
        """Write data and flags; whoever sees a flag must see its data."""
        address = y.target + 10 * REGION
        for _ in range(1 if (x.device.name, y.device.name) in self._unseen else 2):
            key, before = self.keys(seed)
            self.fill(y, address, before, _BLOCKS * _BLOCK_WORDS)
            self.clear(x, y)
            base, flags = key & 0x7FFF0000, y.flags + _BLOCK_FLAGS
            shape = narrow(_BLOCKS), wide(_BLOCK_WORDS), wide(key), narrow(base + 1)
            self.run(
                y,
                "receive",
                pointer(address),
                pointer(flags),
                *shape,
                wide(_FLAG_NS),
                pointer(y.found),
                blocks=1,
            )
            self.run(x, "send", pointer(address), pointer(flags), *shape, blocks=1)
            self.wait_for_flags(x, y)
            seen, wrong = map(int, self.words(y, y.found, 2))
            if seen == _BLOCKS:
                break
        else:
            self.unseen(x, y, PeerMechanism.ORDER)
            return
        blocks = (words(key + block, 0, _BLOCK_WORDS) for block in range(_BLOCKS))
        lasting = int((self.words(y, address, _BLOCKS * _BLOCK_WORDS) != np.concatenate(list(blocks))).sum())
        verdict = PeerVerdict.WRONG if wrong or lasting else PeerVerdict.WORKS
        self.tell(x, y, PeerMechanism.ORDER, verdict, words=_BLOCKS * _BLOCK_WORDS, wrong=max(wrong, lasting),
                  late=bool(wrong and not lasting))  # fmt: skip

    def atomics(self, x: Area, y: Area, native: tuple[str, ...]) -> None:
        """Add to one counter from both GPUs."""
        if f"{x.device.name}->{y.device.name}" not in native:
            self.tell(
                x,
                y,
                PeerMechanism.ATOMICS,
                PeerVerdict.NOT_OFFERED,
                by="the driver",
                detail="no native atomics",
            )
            return
        self.clear(x, y)
        for area in (x, y):
            self.run(area, "add", pointer(y.flags + _COUNTER), narrow(_TIMES), blocks=4)
        self.wait(x, y)
        count, expected = int(self.words(y, y.flags + _COUNTER, 1)[0]), 2 * 4 * THREADS * _TIMES
        verdict = PeerVerdict.WORKS if count == expected else PeerVerdict.WRONG
        detail = "" if count == expected else f"the counter is {count}, not {expected}"
        self.tell(x, y, PeerMechanism.ATOMICS, verdict, detail=detail, words=1, wrong=int(count != expected))

    # Between processes: the parent asks both in turn.

    def share(self, request: Mapping[str, Any]) -> None:
        """Allocate memory and export it."""
        area, before = self.area(request["gpu"]), self.keys(request["seed"])[1]
        self.stage(f"exporting memory of {area.device.name}")
        sharing = _SHARING[request["mechanism"]]
        allocation = sharing.allocate(area.device, REGION)
        self._release.append(allocation.release)
        self.fill(area, allocation.address, before)
        self.wait(area)
        self._shared = [(area, allocation.address, before)]
        if isinstance(sharing, IpcSharing):
            _, data, offset, size = sharing.export(allocation)
            self.send({"handle": data.hex(), "offset": offset, "size": size})
            return
        descriptor = sharing.exported(allocation)
        assert isinstance(descriptor, int)
        self.send({"size": allocation.bytes, "descriptors": [descriptor]})
        os.close(descriptor)

    def access(self, request: Mapping[str, Any]) -> None:
        """Open memory of another process, and write to it."""
        area, owner = self.area(request["gpu"]), request["owner"]
        mechanism = PeerMechanism(request["mechanism"])
        self.stage(mechanism.about, mechanism, (area.device.name, owner))
        key, _ = self.keys(request["seed"])
        sharing, size = _SHARING[mechanism], request["size"]
        if isinstance(sharing, IpcSharing):
            handle = Handle(IPC, bytes.fromhex(request["handle"]), request["offset"], size)
            opened = sharing.open(area.device, handle)
        else:
            (descriptor,) = request["descriptors"]
            opened = sharing.opened(area.device, descriptor, size)
            os.close(descriptor)
        self._release.append(opened.release)
        self.fill(area, opened.address, key)
        self.wait(area)
        self.send({"key": key})

    def verify(self, request: Mapping[str, Any]) -> None:
        """Verify what another process wrote."""
        ((area, address, before),) = self._shared
        self.stage(f"verifying what {request['by']} wrote")
        wrong, stale = self.wrong(area, address, request["key"], before)
        late = False
        if wrong:
            time.sleep(_LATER_S)
            late = not self.wrong(area, address, request["key"], before)[0]
        self.send({"wrong": wrong, "stale": stale, "late": late, "words": WORDS})

    def release(self, request: Mapping[str, Any]) -> None:
        """Release what was shared or opened."""
        del request
        self._shared = []
        while self._release:
            self._release.pop()()

    # Rates.

    def rate(self, request: Mapping[str, Any]) -> None:
        """Measure the rates of copies of some pairs, or of a GPU with the host."""
        for ends in request["ways"]:
            x, y = (self.area(gpu) for gpu in ends)
            self.enable(x, y)
            self.stage("timing copies", PeerMechanism.COPY, (x.device.name, y.device.name))
            self.send({"pair": [x.device.name, y.device.name], "rate": self.timed(x, y.target, x.source)})
            if request["few_peers"]:
                self.disable()
        for gpu in request["hosts"]:
            area = self.area(gpu)
            self.stage(f"timing copies of {area.device.name} with the host")
            area.device.use()
            host = self.driver.allocate_host(TIMED_BYTES)
            try:
                there = self.driver.address_of(host)
                rates = self.timed(area, area.target, there), self.timed(area, there, area.source)
            finally:
                self.driver.free_host(host)
            self.send({"host": area.device.name, "rate": min(rates)})

    def timed(self, x: Area, to: int, origin: int) -> float:
        """The rate of copies, in B/s."""
        x.device.use()
        start, stop = self.driver.event(), self.driver.event()
        best = 0.0
        for _ in range(3):
            self.driver.record(start, x.stream)
            for _ in range(_COPIES):
                self.driver.enqueue_copy(to, origin, TIMED_BYTES, x.stream)
            self.driver.record(stop, x.stream)
            self.wait(x)
            best = max(best, _COPIES * TIMED_BYTES / max(self.driver.elapsed(start, stop), 1e-9))
        for event in (start, stop):
            self.driver.destroy_event(event)
        return best

    def health(self, request: Mapping[str, Any]) -> None:
        """Use a GPU without any peer, which shows whether it still works."""
        area, (key, before) = self.area(request["gpu"]), self.keys(request["seed"])
        self.stage(f"using {area.device.name} without a peer")
        self.fill(area, area.source, key)
        self.wait(area)
        wrong, _ = self.wrong(area, area.source, key, before)
        self.send({"wrong": wrong})


def _until_parent_ends(life: int) -> None:
    """End this process when its parent has ended, however that happened."""
    os.read(life, 1)
    os._exit(0)


def main(backend: str, channel: int, life: int, gpu: Mapping[str, Any]) -> None:
    """Open a GPU, and serve requests until the parent closes the channel."""
    threading.Thread(target=_until_parent_ends, args=(life,), daemon=True).start()
    link = socket.socket(fileno=channel)

    def send(message: Mapping[str, Any]) -> None:
        descriptors = message.get("descriptors", [])
        data = json.dumps({name: value for name, value in message.items() if name != "descriptors"}).encode()
        socket.send_fds(link, [data], descriptors)

    def opened() -> PeerWorker:
        open_driver = opener_of(backend)
        send({"stage": "opening the driver", "opens": True})
        return PeerWorker(open_driver(), send)

    worker: PeerWorker | None = None
    # It takes a while, and all processes do it at the same time; requests find what fails, and say it.
    with contextlib.suppress(BackendError):
        worker = opened()
        worker.area(gpu)
    while True:
        data, descriptors, _, _ = socket.recv_fds(link, MESSAGE_BYTES, 4)
        if not data:
            os._exit(0)  # a GPU that hangs would make an orderly end hang
        request = json.loads(data) | {"descriptors": descriptors}
        try:
            worker = worker or opened()
            getattr(worker, request["do"])(request)
            send({"done": True})
        except Hung as hung:
            send({"hung": str(hung)})
        except BackendLost as error:
            send({"lost": str(error)})
        except BackendError as error:
            send({"error": str(error)})


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), json.loads(sys.argv[4]))
