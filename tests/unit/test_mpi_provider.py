"""The calls of MPI that a loop of collectives makes, and in which order."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from wirespeed.backends.call_tables import Call
from wirespeed.backends.mpi import provider
from wirespeed.backends.provider import REHEARSED_BYTES, Case, Elapsed, Group
from wirespeed.collectives.data_types import BY_NAME
from wirespeed.collectives.operations import OPERATIONS, Setting
from wirespeed.collectives.options import CollectiveOptions

BARRIER = "MPI_Barrier"
OPERATION = "MPI_Allreduce"


class Functions:
    """Functions of MPI that note the names of the calls that run without Python in between."""

    in_place = status = 0

    def __init__(self, mpi: Any) -> None:
        self.made: list[tuple[list[str], list[str], list[str], int]] = []

    def handle(self, thing: Any) -> int:
        return 1

    def _note(self, before: list[Call], calls: list[Call], after: list[Call], count: int) -> None:
        self.made.append((*([name for name, _ in some] for some in (before, calls, after)), count))  # type: ignore[arg-type]

    def timed(
        self, before: list[Call], calls: list[Call], after: list[Call], rounds: int = 1
    ) -> tuple[float, float]:
        self._note(before, calls, after, rounds)
        return 6.0, 6.0

    def laps(self, before: list[Call], calls: list[Call], after: list[Call], count: int) -> tuple[float, ...]:
        self._note(before, calls, after, count)
        return tuple(float(i) for i in range(count))


@pytest.fixture
def mpi(monkeypatch: pytest.MonkeyPatch) -> provider.MpiProvider:
    comm = SimpleNamespace(Get_size=lambda: 2, Get_rank=lambda: 0, Split=lambda color, rank: comm)
    library = SimpleNamespace(
        COMM_WORLD=comm, SUM="sum", PROD="prod", MAX="max", MIN="min",
        Datatype=SimpleNamespace(fromcode=lambda code: code),
    )  # fmt: skip
    monkeypatch.setattr(provider, "library", lambda: library)
    monkeypatch.setattr(provider, "MpiFunctions", Functions)
    me = SimpleNamespace(host="here")
    world: Any = SimpleNamespace(size=2, rank=0, local_rank=0, me=me, members=(me, me))
    return provider.MpiProvider(world, Group(0, (0, 1), 1))


def looped(
    mpi: provider.MpiProvider, timing: CollectiveOptions, size: int = 64
) -> tuple[list[tuple[list[str], list[str], list[str], int]], list[Elapsed]]:
    """Run a loop twice; return what ran without Python in between, and the times."""
    setting = Setting(OPERATIONS["all_reduce"], BY_NAME["float"], "sum")
    counts = setting.operation.counts(size // 4, 4, 2)
    mpi.allocate(size)
    mpi.bind(Case(setting, 2, counts, False, timing))
    times = [mpi.loop()[0], mpi.loop()[0]]
    native: Any = mpi._native
    return native.made, times


@pytest.mark.parametrize(
    ("timing", "calls", "after"),
    [
        (CollectiveOptions(iterations=4), [OPERATION], []),
        (CollectiveOptions(iterations=4, blocking=1), [OPERATION, BARRIER], []),
        (CollectiveOptions(iterations=4, blocking=2), [OPERATION], []),
        (CollectiveOptions(iterations=4, blocking=3), [OPERATION], [BARRIER]),
        (CollectiveOptions(iterations=4, per_iteration=True), [OPERATION], []),
        (CollectiveOptions(iterations=4, blocking=1, per_iteration=True), [OPERATION, BARRIER], []),
        (CollectiveOptions(iterations=4, blocking=3, per_iteration=True), [OPERATION], [BARRIER]),
    ],
)
def test_a_loop_is_one_compiled_call_that_begins_with_a_barrier(
    mpi: provider.MpiProvider, timing: CollectiveOptions, calls: list[str], after: list[str]
) -> None:
    (first, second), times = looped(mpi, timing)
    assert first == ([OPERATION] * 20 + [BARRIER], calls, after, 4)  # Open MPI's first operations are slow
    assert second == ([BARRIER], calls, after, 4)
    assert times[0].seconds == times[0].cpu == 6.0 / 4
    assert times[0].iterations == ((0.0, 1.0, 2.0, 3.0) if timing.per_iteration else ())


def test_one_iteration_is_rehearsed_and_large_arrays_are_not(mpi: provider.MpiProvider) -> None:
    (first, _), _ = looped(mpi, CollectiveOptions(iterations=1))
    assert first[0] == [OPERATION] * 20 + [BARRIER]
    made, _ = looped(mpi, CollectiveOptions(iterations=1), REHEARSED_BYTES + 4)
    assert made[2][0] == [BARRIER]
