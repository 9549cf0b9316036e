"""Copies between processes on host memory; the processes are threads, their buffers are shared for real."""

from __future__ import annotations

import ctypes
import re
import time
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from queue import Queue
from threading import Lock
from typing import Any, ClassVar

import pytest

import wirespeed
from tests.threads import together, worlds, worlds_on
from wirespeed.backends import discover
from wirespeed.backends.base import Backend
from wirespeed.backends.distributed.backend import DistributedBackend
from wirespeed.backends.distributed.job_process import (
    Allocation,
    Handle,
    JobContext,
    LocalPart,
    TransferTiming,
)
from wirespeed.backends.distributed.prepared import DistributedPrepared
from wirespeed.backends.host.backend import HostBackend
from wirespeed.backends.host.job_process import HostEndpoint, ShmSharing
from wirespeed.document import Document, Status
from wirespeed.driver.jobs import gather_machine
from wirespeed.errors import (
    BackendError,
    BackendLost,
    MeasurementTimeout,
    OutOfMemory,
    UsageError,
    WirespeedError,
)
from wirespeed.features.transfers.program import of_line
from wirespeed.measurement import Sample
from wirespeed.options import RunOptions
from wirespeed.tables import SKEW
from wirespeed.worlds.base import World, WorldError
from wirespeed.worlds.mpi import Move

READ, BOTH, STAR, BISECT = "44", "46", "52", "56"
QUICK: dict[str, Any] = {"size": "256KiB", "samples": 2, "copies": 2, "timeout": 20.0}

pytestmark = pytest.mark.filterwarnings("error::pytest.PytestUnhandledThreadExceptionWarning")


def run(some: list[World], testcases: list[str], **options: Any) -> list[Document]:
    """Run in all ranks at once; what each returns, or its error."""
    make: Callable[[World], Any] = options.pop("backend", lambda _: HostBackend(discover()))

    def one(world: World) -> Document:
        return wirespeed.run(testcases, world=world, backends=[make(world)], **{**QUICK, **options})

    return together(some, one)


def values(document: Document, case: int = 0) -> dict[tuple[int, int], float | None]:
    return {(c.row, c.column): c.value for c in document.testcases[case].tables[0].cells}


def test_all_eleven_with_the_data_checked(tmp_path: Path) -> None:
    output = tmp_path / "d.json"
    began = time.monotonic()
    found = run(worlds(3), [str(i) for i in (*range(44, 54), 56)], output=output)
    elapsed = time.monotonic() - began
    assert [(r.name, r.status, r.reason) for r in found[0].testcases if r.status is not Status.PASSED] == []
    document = wirespeed.load(output)
    assert document == found[0] and len(document.testcases) == 11
    assert [r.engine for r in document.testcases] == ["cpu"] * 11
    assert all(0 < r.seconds < elapsed for r in document.testcases)  # not since the host started
    assert len(values(document)) == 6 and len(values(document, 8)) == 3 and len(values(document, 10)) == 3
    assert document.testcases[0].tables[0].title == "memcpy CPU rank(row) -> rank(column) bandwidth"
    assert {c.means for r in document.testcases for t in r.tables for c in t.cells} == {("shm",)}
    state = {quantity.name: quantity for quantity in document.testcases[-1].state_after}
    median, largest = state[SKEW], state["start skew, largest"]
    assert 0 < median.value <= largest.value and median.unit == largest.unit == "s"
    text = wirespeed.render(document, "table")
    assert "3 ranks on 1" in text and "transport between ranks: shm" in text
    assert "Process 2 (" in wirespeed.render(document, "nvbandwidth")
    # what is decided is decided from the same values everywhere
    for other in found[1:]:
        assert [t.values() for r in other.testcases for t in r.tables] == [
            t.values() for r in document.testcases for t in r.tables
        ]


def test_the_stop_rule_is_the_same_in_all_ranks() -> None:
    options = {"samples": None, "copies": None, "precision": 0.001, "time_budget": 0.5}
    found = run(worlds(2), [READ], **options)
    samples = [[c.samples for c in d.testcases[0].tables[0].cells] for d in found]
    assert samples[0] == samples[1] and samples[0][0]


def test_odd_sizes_curves_and_rounds() -> None:
    found = run(worlds(3), [READ, BISECT], size=None, sizes="1B,70B,4097", parallel_pairs=True)
    assert [r.status for r in found[0].testcases] == [Status.PASSED] * 2
    assert len(found[0].testcases[0].tables[0].values()) == 18


class Wrong(LocalPart):
    """Something changes a word on its way."""

    def verify(self) -> None:
        for piece in self._pieces:
            if piece.owns_destination and piece.transfer.destination.rank == 1:
                ctypes.c_uint64.from_address(piece.destination + 4096).value ^= 1
        super().verify()


@dataclass
class Patched:
    """A host backend whose side is another."""

    make: Callable[[JobContext, Any], HostEndpoint]
    name = "patched"
    sample_seconds = 2e-3

    def __post_init__(self) -> None:
        self.inner = HostBackend(discover())

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)

    def side(self, job: JobContext) -> HostEndpoint:
        return self.make(job, self.inner._workers)


def patched(**methods: Any) -> Callable[[World], Patched]:
    """Return what makes backends whose side has these methods and attributes."""
    return lambda _: Patched(type("Side", (HostEndpoint,), methods))


def only(rank: int, part: type[LocalPart]) -> Callable[[World], Any]:
    """Return what makes the backends of a job in which one rank does its part in another way."""
    other = patched(part=lambda self, pieces: part(self, pieces))
    return lambda world: other(world) if world.rank == rank else HostBackend(discover())


def test_wrong_data_is_found_by_the_rank_that_owns_it() -> None:
    found = run(worlds(2), [READ, STAR], backend=patched(part=lambda self, pieces: Wrong(self, pieces)))
    for document in found:
        assert [r.status for r in document.testcases] == [Status.FAILED] * 2
        assert "1 of 32768 words differ, the first at byte offset 4096" in document.testcases[0].reason
        cells = values(document)
        assert cells[0, 1] is not None and cells[1, 0] is None  # the other pair is measured all the same


class Unopened(ShmSharing):
    """Handles that nobody can open."""

    name = "fabric"

    def open(self, place: Any, handle: Handle) -> Allocation:
        raise BackendError("the handle is not valid here")


class Unallocated(ShmSharing):
    """Memory that is not permitted."""

    def allocate(self, place: Any, size: int) -> Allocation:
        raise BackendError("not permitted; there is no channel")


def side_with(sharing: type[ShmSharing]) -> Callable[[World], Patched]:
    class Side(HostEndpoint):
        def __init__(self, job: JobContext, workers: Any) -> None:
            super().__init__(job, workers)
            self.mechanisms = {"fabric": sharing(job.descriptors, 5.0), **self.mechanisms}

    return lambda _: Patched(Side)


@pytest.mark.parametrize("sharing", [Unopened, Unallocated])
def test_handles_that_cannot_be_opened_fall_back_to_the_next_means(sharing: type[ShmSharing]) -> None:
    found = run(worlds(2), [READ, BOTH], backend=side_with(sharing))
    case = found[0].testcases[0]
    assert case.status is Status.PASSED and {c.means for c in case.tables[0].cells} == {("shm",)}
    assert len(case.warnings) == 2
    assert case.warnings[0].startswith("fabric does not work between ranks ")
    assert "not valid here" in case.warnings[0] or "no channel" in case.warnings[0]
    assert found[0].testcases[1].warnings == ()  # it is known by then
    forced = run(worlds(2), [READ], backend=side_with(sharing), share="fabric")[0].testcases[0]
    assert forced.status is Status.ERROR and "fabric: " in forced.reason
    only = run(worlds(2), [READ], backend=side_with(sharing), share="shm")[0].testcases[0]
    assert only.status is Status.PASSED and only.warnings == ()


def test_hosts_that_share_nothing_are_waived(monkeypatch: pytest.MonkeyPatch) -> None:
    found = run(worlds_on(monkeypatch, ["a", "b", "a"]), [READ, BISECT])
    pairs, bisect = found[0].testcases
    assert pairs.status is Status.PASSED and bisect.status is Status.WAIVED
    assert {place for place, value in values(found[0]).items() if value} == {(0, 2), (2, 0)}
    reason = pairs.tables[0].cells[0].reason
    assert "memory cannot be shared with another host: shm: it does not reach another host" in reason
    assert "start all with mpirun or srun" in reason
    assert SKEW in {quantity.name for quantity in found[0].testcases[0].state_after}
    alone = run(worlds_on(monkeypatch, ["a", "b"]), [READ])[0].testcases[0]
    assert alone.status is Status.WAIVED and "another host" in alone.reason


def test_what_has_no_ranks_does_not_run_in_a_job() -> None:
    document = run(worlds(2), ["host_stream_copy", READ])[0]
    waived, measured = document.testcases
    assert waived.status is Status.WAIVED and "this is a job of 2 processes" in waived.reason
    assert measured.status is Status.PASSED


class Post:
    """Messages between threads, as MPI carries them between processes."""

    boxes: ClassVar[dict[tuple[int, int, int], Queue[tuple[int, int]]]] = defaultdict(Queue)
    making: ClassVar[Lock] = Lock()  # making a queue is not atomic: two threads would each get their own

    def __init__(self, world: World) -> None:
        self._rank = world.rank

    def box(self, sender: int, receiver: int, tag: int) -> Queue[tuple[int, int]]:
        with self.making:
            return self.boxes[sender, receiver, tag]

    def move(self, moves: Sequence[Move], copies: int) -> None:
        for _ in range(copies):
            for move in moves:
                if move.sends:
                    self.box(self._rank, move.peer, move.tag).put((move.address, move.bytes))
            for move in moves:
                if not move.sends:
                    address, size = self.box(move.peer, self._rank, move.tag).get(timeout=10)
                    assert size == move.bytes
                    ctypes.memmove(move.address, address, size)


def test_hosts_that_share_nothing_send_messages(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("wirespeed.backends.distributed.job_process.Messages", Post)
    found = run(worlds_on(monkeypatch, ["a", "b", "a"]), [READ, BOTH, STAR, BISECT])[0]
    assert [r.status for r in found.testcases] == [Status.PASSED] * 4
    by = {(c.row, c.column): c.means for c in found.testcases[0].tables[0].cells}
    assert {place for place, means in by.items() if means == ("shm",)} == {(0, 2), (2, 0)}
    assert set(by.values()) == {("shm",), ("mpi",)}
    # The unit is right; a loaded machine may suspend a process for longer than a copy takes.
    assert all(1e5 < v < 1e13 for r in found.testcases for t in r.tables for v in t.values())
    seen = found.testcases[-1].state_after
    assert {q.label for q in seen if q.unit == "B"} == {"available memory", "b: available memory"}
    assert {quantity.host for quantity in seen} == {"", "b"}
    titles = [r.tables[0].title for r in found.testcases]
    assert titles[0].startswith("memcpy CPU+MPI rank(row)") and "CPU+MPI" in titles[2]
    text = wirespeed.render(found, "table")
    assert "transport between ranks: mpi; shm: 0, 2 · 2, 0; start skew" in text.replace("\n", " ")


def test_hosts_that_start_too_far_apart_are_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("wirespeed.backends.distributed.job_process.Messages", Post)

    class Late(HostEndpoint):
        def release(self, arriving: int) -> None:
            time.sleep(0.05)
            super().release(arriving)

    def make(world: World) -> Any:
        return Patched(Late) if world.rank else HostBackend(discover())

    (case,) = run(worlds_on(monkeypatch, ["a", "b"]), [BISECT], backend=make, samples=4)[0].testcases
    (warning,) = case.warnings
    match = re.match(r"hosts started (\d+) µs apart in samples of ", warning)
    assert match and int(match[1]) > 10_000  # 50 ms, more or less as busy as this machine is


def test_memory_that_is_short(monkeypatch: pytest.MonkeyPatch) -> None:
    failed: set[int] = set()

    def allocate(self: ShmSharing, place: Any, size: int) -> Allocation:
        if size > 2**19 and id(self) not in failed:  # once: after the unused buffers were freed there is room
            failed.add(id(self))
            raise OutOfMemory("not enough memory")
        return original(self, place, size)

    def never(self: ShmSharing, place: Any, size: int) -> Allocation:
        raise OutOfMemory("not enough memory")

    original = ShmSharing.allocate
    monkeypatch.setattr(ShmSharing, "allocate", allocate)
    found = run(worlds(2), [READ], size=None, sizes="256KiB,1MiB")
    assert found[0].testcases[0].status is Status.PASSED
    failed.clear()
    monkeypatch.setattr(ShmSharing, "allocate", never)
    found = run(worlds(2), [READ])
    case = found[0].testcases[0]
    assert case.status is Status.NO_MEMORY and "not enough memory" in case.reason and "rank " in case.reason


def test_too_large_a_buffer() -> None:
    (case,) = run(worlds(2), [READ], size="900GiB")[0].testcases
    assert case.status is Status.NO_MEMORY and "not enough memory" in case.reason


def test_ranks_with_different_options() -> None:
    def one(world: World) -> Document:
        return wirespeed.run([READ], world=world, seed=world.rank, **{**QUICK, "copies": 1})

    for error in together(worlds(2), one):
        assert isinstance(error, WorldError) and "seed is '1' on rank 1" in str(error)


def test_wrong_use() -> None:
    for error in together(worlds(2), lambda w: wirespeed.run([READ], world=w, machine="simulated:nvl72")):
        assert isinstance(error, UsageError) and "omit --processes and the launcher" in str(error)
    with pytest.raises(UsageError, match="there is no transport 'telepathy'"):
        wirespeed.run([READ], machine="simulated:nvl72", share="telepathy")


class Slow(LocalPart):
    def finish(self) -> list[TransferTiming]:
        raise MeasurementTimeout("waiting for what does not come", 1.0)


def test_a_time_out_in_one_rank_is_one_in_all() -> None:
    for document in run(worlds(2), [READ], backend=only(1, Slow)):
        assert isinstance(document, Document)
        case = document.testcases[0]
        assert case.status is Status.TIMED_OUT and "rank 1" in case.reason and "does not come" in case.reason


def test_a_call_that_fails_in_one_rank_while_others_wait_at_the_gate() -> None:
    class Failing(LocalPart):
        def arm(self, copies: int) -> None:
            raise BackendError("the call failed")

    for document in run(worlds(2), [READ, BISECT], backend=only(1, Failing)):
        assert [r.status for r in document.testcases] == [Status.ERROR] * 2
        assert "rank 1" in document.testcases[1].reason and "the call failed" in document.testcases[1].reason


def test_a_failure_does_not_cancel_the_next_measurement() -> None:
    class FailsOnce(LocalPart):
        calls = 0

        def arm(self, copies: int) -> None:
            FailsOnce.calls += 1
            if FailsOnce.calls == 2:
                raise BackendError("the call failed")
            super().arm(copies)

    for document in run(worlds(2), [READ], backend=only(1, FailsOnce)):
        failed, measured = document.testcases[0].tables[0].cells
        assert "the call failed" in failed.reason and failed.value is None
        assert measured.value is not None


@pytest.mark.leaves("the buffers of a lost job, which other processes may still use, until the process ends")
def test_a_rank_that_is_gone_ends_the_run() -> None:
    some = worlds(3)

    class Gone(LocalPart):
        def arm(self, copies: int) -> None:
            for connection in (*some[2].links.values(), *some[2].watches.values()):
                connection.socket.shutdown(2)
            super().arm(copies)

    found = run(some, [READ, BISECT], backend=only(2, Gone))
    for document in found[:2]:
        assert not isinstance(document, WirespeedError)
        assert "rank 2 (process" in document.interrupted and "ended unexpectedly" in document.interrupted
        assert len(document.testcases) == 1


def test_ctrl_c_is_told_from_a_rank_that_is_gone() -> None:
    some = worlds(2)
    machine = discover()
    machines = together(some, lambda w: gather_machine(w, machine))
    options = RunOptions(timeout=5.0)
    backends = [
        DistributedBackend(w, m, [HostBackend(machine)], options) for w, m in zip(some, machines, strict=True)
    ]
    assert backends[0].interrupted() == ""  # it was the user
    assert backends[0].interrupted() == ""  # who asks again, or through another backend, is told the same
    with pytest.raises(BackendLost, match="interrupted"):
        backends[0].exchange.gather(None, "testing")
    some[0].fail("rank 0 failed")
    assert "rank 0 failed" in backends[1].interrupted()
    for backend in backends:
        backend.cancel()
        backend.close()


def test_no_backend_for_what_a_rank_owns() -> None:
    found = run(worlds(2), [READ, BOTH], backend=lambda _: NoMemory())
    for document in found:
        assert "no backend of this process moves the memory of numa0" in document.interrupted
        assert len(document.testcases) == 1


class NoMemory(Backend):
    """A backend that takes no part in jobs."""

    name, sample_seconds = "none", 1e-3


def test_a_load_between_ranks_lasts_as_long_as_what_is_measured() -> None:
    case = of_line("rank0 -> rank1 1MiB; load rank1 -> rank0 64KiB").testcase
    seen: list[tuple[Sample, dict[int, int]]] = []

    class Noted(DistributedPrepared):
        def sample(self, copies: int) -> Sample:
            loads, found = dict(self._loads), super().sample(copies)
            if self._rank == 0:
                seen.append((found, loads))
            return found

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("wirespeed.backends.distributed.backend.DistributedPrepared", Noted)
        documents = run(worlds(2), [case], samples=5, copies=4)
    assert {document.testcases[0].status for document in documents} == {Status.PASSED}
    (table,) = documents[0].testcases[0].tables
    assert len(table.cells) == 1 and table.cells[0].value
    sample, loads = seen[-1]
    assert loads.keys() == {1} and loads[1] > 1
    assert sample.amounts == (4 * 2**20, 4 * 2**16 * loads[1])
    assert sample.wall == sample.seconds[0]


def test_messages_are_no_load(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        "wirespeed.backends.distributed.transport_selection.TransportSelector.of", lambda *_: "mpi"
    )
    for document in run(worlds(2), [of_line("rank0 -> rank1; load rank1 -> rank0").testcase]):
        assert document.testcases[0].status is Status.WAIVED
        assert "messages by mpi are no load" in document.testcases[0].reason
