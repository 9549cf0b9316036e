"""What of MPI is called to send and receive buffers by their addresses; how a command ends in a job."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from msgspec.structs import replace

import wirespeed
from wirespeed.cli import measuring as job
from wirespeed.document import Document
from wirespeed.errors import ExitCode, UsageError
from wirespeed.run_errors import RunInterrupted
from wirespeed.worlds import mpi
from wirespeed.worlds.base import MPI_VARIABLES, WorldError
from wirespeed.worlds.mpi import Messages, MessagesRefused, Move

WORLD: Any = SimpleNamespace(rank=0, size=2)


class Comm:
    def __init__(self, rank: int, size: int) -> None:
        self.rank, self.size = rank, size
        self.calls: list[tuple[Any, ...]] = []

    def Get_rank(self) -> int:
        return self.rank

    def Get_size(self) -> int:
        return self.size

    def Isend(self, *arguments: Any) -> str:
        self.calls.append(("send", *arguments))
        return "request"

    def Irecv(self, *arguments: Any) -> str:
        self.calls.append(("receive", *arguments))
        return "request"


def library(size: int = 2) -> Any:
    waits: list[int] = []
    return SimpleNamespace(
        COMM_WORLD=Comm(0, size), BYTE="byte", waits=waits,
        memory=SimpleNamespace(fromaddress=lambda address, size: (address, size)),
        Request=SimpleNamespace(Waitall=lambda requests: waits.append(len(requests))),
    )  # fmt: skip


def test_messages_go_in_windows_and_large_ones_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    found = library()
    monkeypatch.setenv("PMIX_RANK", "0")
    monkeypatch.setattr(mpi, "library", lambda: found)
    messages = Messages(WORLD)
    messages.move([Move(1000, 64, 1, True, 5), Move(2000, 2**30 + 8, 1, False, 6)], 20)
    assert found.COMM_WORLD.calls[:3] == [
        ("send", [(1000, 64), "byte"], 1, 5),
        ("receive", [(2000, 2**30), "byte"], 1, 6),
        ("receive", [(2000 + 2**30, 8), "byte"], 1, 6),
    ]
    assert len(found.COMM_WORLD.calls) == 60 and found.waits == [48, 12]


def test_mpi_is_not_started_in_a_job_that_it_did_not_start(monkeypatch: pytest.MonkeyPatch) -> None:
    """Open MPI leaves its shared memory in /dev/shm where ranks end early."""
    for name in MPI_VARIABLES:
        monkeypatch.delenv(name, raising=False)

    def started() -> None:
        raise AssertionError

    monkeypatch.setattr(mpi, "library", started)
    with pytest.raises(MessagesRefused, match="MPI did not start the processes: start all with mpirun"):
        Messages(WORLD)


def test_why_mpi_cannot_carry_messages(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PMIX_RANK", "0")
    monkeypatch.setattr(mpi, "library", lambda: library(size=1))
    with pytest.raises(MessagesRefused, match="MPI has 1 ranks, this job 2: start all with mpirun"):
        Messages(WORLD)

    def missing() -> None:
        raise WorldError("MPI cannot be used")

    monkeypatch.setattr(mpi, "library", missing)
    with pytest.raises(MessagesRefused, match="MPI cannot be used"):
        Messages(WORLD)


class Spoken:
    """A World that notes how it was left."""

    def __init__(self, rank: int, leaderless: bool = False) -> None:
        self.rank, self.leaderless = rank, leaderless
        self.did: list[object] = []

    def close(self) -> None:
        self.did.append("closed")

    def fail(self, reason: str, *, interrupted: bool = False) -> None:
        self.did.append(f"{reason} (a signal)" if interrupted else reason)

    def leave(self, code: int) -> None:
        self.did.append(code)


@pytest.fixture(scope="module")
def document() -> Document:
    return wirespeed.run(["44"], machine="simulated:nvl72", sample_peers=1, samples=1)


def test_rank_0_speaks_and_all_leave_in_order(document: Document) -> None:
    for rank in (0, 1):
        world: Any = Spoken(rank)
        shown: list[Document] = []
        assert job.lead(world, lambda: document, shown.append) == 0
        assert world.did == ["closed"] and len(shown) == (rank == 0)


def test_a_job_that_ended_early_is_left_at_once(
    document: Document, capsys: pytest.CaptureFixture[str]
) -> None:
    lost = replace(document, interrupted="rank 0 ended unexpectedly")
    world: Any = Spoken(1, leaderless=True)
    job.lead(world, lambda: lost, lambda _: None)
    assert world.did[:2] == ["rank 0 ended unexpectedly", ExitCode.RUN]
    assert "rank 0 ended unexpectedly" in capsys.readouterr().err  # nobody else can say it

    def interrupted() -> Document:
        raise RunInterrupted(replace(document, interrupted="Ctrl-C"))

    world = Spoken(1)
    with pytest.raises(RunInterrupted):
        job.lead(world, interrupted, lambda _: None)
    assert world.did[:2] == ["Ctrl-C (a signal)", 130]


def test_what_all_find_is_told_by_one(document: Document) -> None:
    def wrong() -> Document:
        raise UsageError("no such thing")

    first: Any = Spoken(0)
    with pytest.raises(UsageError):
        job.lead(first, wrong, lambda _: None)
    other: Any = Spoken(1)
    assert job.lead(other, wrong, lambda _: None) == 2
    assert first.did == other.did == ["closed"]


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("Open MPI v5.0.11, package: Open MPI built by someone", "Open MPI v5.0.11"),
        ("MPICH Version:      5.0.2\nMPICH Release date: ...\nMPICH ABI: 17", "MPICH 5.0.2"),
        ("Intel(R) MPI Library 2021.18.1 for Linux* OS\n", "Intel(R) MPI Library 2021.18.1 for Linux* OS"),
    ],
)
def test_the_name_of_an_mpi_is_one_line(text: str, name: str) -> None:
    assert mpi.version(SimpleNamespace(Get_library_version=lambda: text)) == name
