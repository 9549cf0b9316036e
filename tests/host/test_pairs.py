"""Messages and shared buffers between processes on host memory; the processes are threads."""

from __future__ import annotations

import ctypes
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from queue import Queue
from typing import Any

import pytest

import wirespeed
from tests.threads import together, worlds
from wirespeed.backends.host.host_buffers import HostBuffers
from wirespeed.backends.host.job_process import ShmSharing
from wirespeed.document import Document, Status
from wirespeed.errors import BackendError, OutOfMemory
from wirespeed.features.pairs.connection import Connection
from wirespeed.features.pairs.messages import HOST
from wirespeed.features.pairs.sharing import reproducer, sharing
from wirespeed.model import Engine, MemoryKind

QUICK: dict[str, Any] = {"samples": 2, "copies": 3, "timeout": 5.0}
SMALL = sharing("shm", HOST, 2**20, 4096, (0, 1, 4096))


def run(testcases: list[Any], ranks: int = 2, **options: Any) -> list[Document]:
    def one(world: Any) -> Document:
        return wirespeed.run(testcases, world=world, **{**QUICK, **options})

    return together(worlds(ranks, 5.0), one)


class Queued:
    """A wire of queues; ``spoils`` changes the data of the messages that arrive."""

    spoils: Callable[[bytes], bytes] = staticmethod(lambda data: data)

    def __init__(self, queues: dict[int, Queue[bytes]], end: int) -> None:
        self.queues, self.end = queues, end

    def libraries(self) -> dict[str, str]:
        return {"queue": "1"}

    def send(self, address: int, size: int) -> None:
        self.queues[self.end].put(ctypes.string_at(address, size))

    def receive(self, address: int, size: int) -> None:
        data = type(self).spoils(self.queues[1 - self.end].get(timeout=5))
        ctypes.memmove(address, data, size)

    def timed(self, *steps: Callable[[], None], count: int = 1) -> float:
        start = time.perf_counter()
        for _ in range(count):
            for step in steps:
                step()
        return time.perf_counter() - start

    def one(self, address: int, size: int) -> float:
        return self.timed(partial(self.receive if self.end else self.send, address, size))

    def rounds(self, send: int, receive: int, size: int, count: int) -> float:
        assert send != receive  # as in osu_latency
        steps = partial(self.send, send, size), partial(self.receive, receive, size)
        return self.timed(*(steps[::-1] if self.end else steps), count=count)

    def windows(self, send: int, receive: int, size: int, messages: int, both: bool, count: int) -> float:
        steps = [partial(self.send, send, size)] * (messages if both or not self.end else 0)
        steps += [partial(self.receive, receive, size)] * (messages if both or self.end else 0)
        return self.timed(*steps, count=count)

    def close(self) -> None: ...


@pytest.fixture
def wire(monkeypatch: pytest.MonkeyPatch) -> Iterator[type[Queued]]:
    """Let messages go by queues."""

    class Wire(Queued): ...

    queues: dict[int, Queue[bytes]] = {0: Queue(), 1: Queue()}

    def connect(self: Any, engine: Engine, kind: MemoryKind, identifier: bytes) -> None:
        if self.ends.first or self.ends.last:
            self._wires[engine, kind] = Wire(queues, 0 if self.ends.first else 1)

    monkeypatch.setattr(Connection, "_connect", connect)
    monkeypatch.setattr(Connection, "_refused_by_mpi", lambda self: "")
    yield Wire


def test_messages_with_a_rank_that_looks_on(wire: type[Queued], tmp_path: Path) -> None:
    path = tmp_path / "d.json"
    found = run(["message_mpi_host"], 3, sizes="1B,4KiB,70001", output=path)
    (result,) = wirespeed.load(path).testcases
    assert (result.status, result.reason, result.engine) == (Status.PASSED, "", "mpi")
    latency, bandwidth, rate = result.tables
    assert latency.columns.values == (1.0, 4096.0, 70001.0)
    assert [len(cell.samples) for cell in latency.cells] == [2] * 3 + [1] * 3 + [
        2
    ] * 3  # the first one is one
    assert {cell.copies for cell in latency.cells if cell.row} == {1} and latency.cells[0].copies == 3
    for one_way, frequency in zip(bandwidth.grid()[0], rate.cells, strict=True):
        assert one_way and one_way.value and frequency.value
        size = latency.columns.values[frequency.column]
        assert one_way.value == pytest.approx(frequency.value * size) and one_way.bytes == 64 * size
    assert [c.bytes for c in bandwidth.grid()[1] if c] == [2 * 64 * size for size in (1, 4096, 70001)]
    assert wirespeed.load(path).libraries["queue"] == "1"
    for other in found[1:]:  # what is decided is decided from the same values everywhere
        assert [t.values() for t in other.testcases[0].tables] == [t.values() for t in result.tables]


def test_a_wrong_byte_fails_the_messages(wire: type[Queued]) -> None:
    wire.spoils = staticmethod(lambda data: data[:-1] + bytes([data[-1] ^ 1]) if len(data) == 4096 else data)
    found = run(["message_mpi_host"], sizes="1KiB,4KiB")
    for document in found:
        (result,) = document.testcases
        assert result.status is Status.FAILED and "1 of 512 words differ" in result.reason
        cells = [cell for table in result.tables for cell in table.cells]
        assert all((cell.value is None) == (cell.column == 1) for cell in cells)
        assert cells[1].corrupted == "1/numa0->0/numa0"  # of both ends, the first one reports it
        assert "wrong data in 1/numa0->0/numa0 by mpi" in cells[1].reason
    assert all(
        d.testcases[0].status is Status.PASSED for d in run(["message_mpi_host"], verify=False, size=8)
    )


@pytest.mark.parametrize("sender", [0, 1])
def test_each_way_of_messages_is_verified(wire: type[Queued], sender: int) -> None:
    """What one end receives wrong is noticed, whichever end it is; its way is named."""

    def receive(self: Queued, address: int, size: int) -> None:
        data = self.queues[1 - self.end].get(timeout=5)
        spoiled = self.end != sender and size == 4096
        ctypes.memmove(address, data[:-1] + bytes([data[-1] ^ 1]) if spoiled else data, size)

    wire.receive = receive  # type: ignore[method-assign]
    for document in run(["message_mpi_host"], sizes="1KiB,4KiB"):
        latency, bandwidth, _ = document.testcases[0].tables
        wrong = [*(row[1] for row in latency.grid()), bandwidth.grid()[1][1]]
        wrong += [bandwidth.grid()[0][1]] if sender == 0 else []  # one way, only the first end sends
        ways = {0: "0/numa0->1/numa0", 1: "1/numa0->0/numa0"}
        assert {cell.corrupted for cell in wrong if cell} == {ways[sender]} and len(wrong) > 3
        others = [cell for table in (latency, bandwidth) for row in table.grid() for cell in row if cell]
        assert all(cell.value for cell in others if cell not in wrong)


def test_messages_that_fail_end_the_job(wire: type[Queued]) -> None:
    def fails(self: Any, *_: object) -> float:
        if self.end:
            time.sleep(0.2)
            raise BackendError("MPI failed in MPI_Recv")
        return 1.0

    wire.rounds = fails  # type: ignore[assignment,method-assign]
    for document in run(["message_mpi_host", SMALL], size=8):
        assert document.testcases[0].status is Status.ERROR and len(document.testcases) == 1
        assert "MPI failed in MPI_Recv" in document.interrupted


def test_a_message_that_never_comes_ends_the_job(wire: type[Queued]) -> None:
    """Both ends wait: the processes are late together."""
    wire.rounds = lambda self, *_: time.sleep(6) or 1.0  # type: ignore[assignment,method-assign]
    many = worlds(2, 1.0)

    def one(world: Any) -> Document:
        from wirespeed import api

        patience, api.LATE_RANK_GRACE_S = api.LATE_RANK_GRACE_S, 0.5
        try:
            return wirespeed.run(["message_mpi_host"], world=world, **{**QUICK, "timeout": 0.5}, size=8)
        finally:
            api.LATE_RANK_GRACE_S = patience

    for document in together(many, one):
        (result,) = document.testcases
        assert "timed out after 1 s while measuring 0/numa0->1/numa0 by mpi" in document.interrupted
        assert result.status in (Status.TIMED_OUT, Status.ERROR)  # rank 0 finds out, and reports it


def test_phases_of_a_shared_buffer() -> None:
    for document in run([SMALL], 3):
        (result,) = document.testcases
        assert (result.status, result.reason) == (Status.PASSED, "")
        (table,) = result.tables
        assert table.rows.labels == ("0 B", "1 B", "4 KiB") and len(table.columns.labels) == 7
        assert len(table.values()) == 21 and {len(cell.samples) for cell in table.cells} == {2}


def test_phases_of_buffers_that_are_sent(wire: type[Queued]) -> None:
    case = sharing("mpi", HOST, 2**16, 1024, (0, 1))
    for document in run([case], sizes="64KiB,128KiB"):
        (table,) = document.testcases[0].tables
        assert len(table.values()) == 16 and table.columns.values == (65536.0, 131072.0)
        assert table.rows.labels[:2] == ("0 B,allocate", "0 B,first copy")


def test_cycles_take_all_in_turn(wire: type[Queued]) -> None:
    document, _ = run([SMALL], samples=1, copies=1, rounds=3)
    assert {len(cell.samples) for cell in document.testcases[0].tables[0].cells} == {3}
    document, _ = run([reproducer(HOST, 2, 3, 100, 1000, 1)], samples=1, copies=1)
    small, extra, exact = document.testcases[0].tables
    assert [len(table.values()) for table in (small, extra, exact)] == [1, 6, 6]


@pytest.mark.parametrize(
    ("error", "status"), [(BackendError, Status.WAIVED), (OutOfMemory, Status.NO_MEMORY)]
)
def test_what_cannot_be_opened_is_waived(
    monkeypatch: pytest.MonkeyPatch, error: type[BackendError], status: Status
) -> None:
    def refuses(*_: object) -> None:
        raise error("not permitted")

    monkeypatch.setattr(ShmSharing, "open", refuses)
    for document in run([SMALL]):
        (result,) = document.testcases
        assert result.status is status and "rank 1" in result.reason and "not permitted" in result.reason


def test_without_mpi_messages_are_waived() -> None:
    for document in run(["message_mpi_host", "message_mpi_gpu", SMALL]):
        mpi, gpu, shared = document.testcases
        assert mpi.status is Status.WAIVED and "the processes were not started by MPI" in mpi.reason
        assert gpu.reason == "requires a GPU for each rank" and shared.status is Status.PASSED
    alone = wirespeed.run(["message_mpi_host"])
    assert "wirespeed run --processes 2" in alone.testcases[0].reason


def test_memory_that_is_short_at_one_end_is_freed_at_the_other(
    wire: type[Queued], monkeypatch: pytest.MonkeyPatch
) -> None:
    allocate, places = HostBuffers.allocate, dict[int, HostBuffers]()

    def short(self: HostBuffers, size: int) -> int:
        places[id(self)] = self
        if size == 4096 and self is max(places.values(), key=id):
            raise OutOfMemory("no room")
        return allocate(self, size)

    monkeypatch.setattr(HostBuffers, "allocate", short)
    monkeypatch.setattr(HostBuffers, "close", lambda self: None)
    for document in run(["message_mpi_host"], sizes="8B,4KiB"):
        (result,) = document.testcases
        assert result.status is Status.NO_MEMORY and "no room" in result.reason
        assert all(cell.value for t in result.tables for cell in t.cells if cell.column == 0)
    assert len(places) == 2 and not any(place._held for place in places.values())
