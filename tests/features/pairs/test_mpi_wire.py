"""The calls of MPI that messages make: those of the OSU micro-benchmarks."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from wirespeed.backends.call_tables import Call
from wirespeed.features.pairs import libraries as mpi

SEND, RECEIVE, BYTES = 0x1000, 0x2000, 100


class Functions:
    """Functions of MPI that note the calls of the last loop."""

    status, request_bytes, status_bytes = 7, 8, 24

    def __init__(self, library: Any) -> None:
        self.loop: tuple[list[Call], list[Call], list[Call], int] = ([], [], [], 0)

    def handle(self, thing: Any) -> int:
        return 1

    def timed(
        self, before: list[Call], calls: list[Call], after: list[Call], rounds: int = 1
    ) -> tuple[float, float]:
        self.loop = before, calls, after, rounds
        return 1.0, 2.0


@pytest.fixture
def wires(monkeypatch: pytest.MonkeyPatch) -> list[mpi.MpiWire]:
    monkeypatch.setattr(mpi, "MpiFunctions", Functions)
    library = SimpleNamespace(BYTE="byte", COMM_WORLD="world")
    return [mpi.MpiWire(library, 1 - rank, rank == 0) for rank in range(2)]


def made(wire: mpi.MpiWire) -> tuple[list[tuple[str, int, int]], int, int]:
    """Return name, address and size of each call of the last loop, how often it ran, and the calls after."""
    functions: Any = wire._native
    before, calls, after, rounds = functions.loop
    assert [name for name, _ in before] == ["MPI_Sendrecv"]  # a common start
    return [(name, *words[:2]) for name, words in calls], rounds, len(after)


def test_a_round_trip_uses_two_buffers(wires: list[mpi.MpiWire]) -> None:
    first, last = wires
    for wire in wires:
        assert wire.rounds(SEND, RECEIVE, BYTES, 5) == 1.0
    out, back = ("MPI_Send", SEND, BYTES), ("MPI_Recv", RECEIVE, BYTES)
    assert made(first) == ([out, back], 5, 0) and made(last) == ([back, out], 5, 0)


def test_windows_one_way_are_each_answered(wires: list[mpi.MpiWire]) -> None:
    first, last = wires
    for wire in wires:
        assert wire.windows(SEND, RECEIVE, BYTES, 3, False, 5) == 1.0
    sent, rounds, after = made(first)
    assert sent[:3] == [("MPI_Isend", SEND, BYTES)] * 3 and (rounds, after) == (5, 0)
    assert sent[3][:2] == ("MPI_Waitall", 3) and sent[4][::2] == ("MPI_Recv", 1) and len(sent) == 5
    received, rounds, after = made(last)
    assert received[:3] == [("MPI_Irecv", RECEIVE, BYTES)] * 3 and (rounds, after) == (5, 0)
    assert received[3][:2] == ("MPI_Waitall", 3) and received[4][::2] == ("MPI_Send", 1)


def test_windows_both_ways_are_concurrent(wires: list[mpi.MpiWire]) -> None:
    for wire in wires:
        assert wire.windows(SEND, RECEIVE, BYTES, 2, True, 5) == 2.0
        calls, rounds, after = made(wire)
        assert calls[:4] == [("MPI_Irecv", RECEIVE, BYTES)] * 2 + [("MPI_Isend", SEND, BYTES)] * 2
        assert calls[4][:2] == ("MPI_Waitall", 4) and len(calls) == 5 and (rounds, after) == (5, 1)
