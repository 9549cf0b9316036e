"""Worlds of threads: each stands for a process, with its own connections."""

from __future__ import annotations

import resource
import threading
import time
from itertools import pairwise

import pytest

from tests.threads import SECRET, together, worlds
from wirespeed.errors import MeasurementTimeout, UsageError
from wirespeed.worlds import base, launchers
from wirespeed.worlds.base import RankLost, World, WorldError
from wirespeed.worlds.crew import allow_open_files
from wirespeed.worlds.launchers import join, launched
from wirespeed.worlds.listening import addresses, listen
from wirespeed.worlds.rendezvous import connect, gather


def test_all_know_all_values() -> None:
    some = worlds(4)
    assert [w.rank for w in some] == [0, 1, 2, 3] and {w.size for w in some} == {4}
    assert [w.local_rank for w in some] == [0, 1, 2, 3] and len(some[0].hosts) == 1
    values = [{"rank": 0, "data": b"\0\1"}, 1.5, None, [1, "two"]]
    assert together(some, lambda w: w.allgather(values[w.rank], "testing")) == [values] * 4
    assert together(some, lambda w: w.broadcast(w.rank, "testing")) == [0] * 4
    assert together(some, lambda w: w.barrier("testing")) == [None] * 4
    large = "x" * 3_000_000
    assert together(some, lambda w: len(w.allgather(large, "testing"))) == [4] * 4
    together(some, World.close)


def test_one_alone() -> None:
    world = join(1.0, environment={})
    assert (world.size, world.rank, world.local_rank) == (1, 0, 0)
    assert world.allgather(5, "testing") == [5]
    world.check()
    world.close()


def test_a_rank_that_does_not_come_is_named() -> None:
    some = worlds(3, timeout=0.3)
    found = together(some[:2], lambda w: w.barrier("adding up"))
    assert isinstance(found[0], MeasurementTimeout)
    assert "rank 2" in str(found[0]) and "adding up" in str(found[0])
    assert isinstance(found[1], RankLost) and "rank 2" in str(found[1])


def test_a_rank_that_has_gone_is_named_to_all() -> None:
    some = worlds(3)
    for connection in (*some[2].links.values(), *some[2].watches.values()):
        connection.close()
    found = together(some[:2], lambda w: w.check(2.0))
    assert all(
        isinstance(f, RankLost) and "rank 2" in str(f) and "ended unexpectedly" in str(f) for f in found
    )


def test_why_a_rank_failed_is_told_to_all() -> None:
    some = worlds(3)
    some[1].fail("rank 1 failed while thinking: it hurts")
    found = together([some[0], some[2]], lambda w: w.check(2.0))
    assert [str(f) for f in found] == ["rank 1 failed while thinking: it hurts"] * 2


def test_a_lost_rank_is_named_rather_than_one_that_the_launcher_interrupts() -> None:
    jobs = worlds(3)
    for watch in jobs[2].watches.values():
        watch.close()
    jobs[1].fail("interrupted", interrupted=True)
    with pytest.raises(RankLost, match=r"^rank 2 \(process \d+ on .*\) ended unexpectedly$"):
        jobs[0].check()


def test_a_rank_that_alone_is_interrupted_says_so() -> None:
    jobs = worlds(3)
    jobs[1].fail("interrupted on rank 1", interrupted=True)
    with pytest.raises(RankLost, match=r"^interrupted on rank 1$"):
        jobs[0].check()


def test_a_rank_that_does_something_else_is_named() -> None:
    some = worlds(2)
    found = together(some, lambda w: w.barrier("eating" if w.rank else "sleeping"))
    assert isinstance(found[0], WorldError) and "rank 1" in str(found[0]) and "eating" in str(found[0])
    assert isinstance(found[1], RankLost)


def test_after_a_time_out_the_silent_rank_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(base, "REPORT_GRACE_S", 0.5)
    some = worlds(3)
    found = together(some[:2], lambda w: w.late("reducing 8 B", 5.0))
    assert "rank 2" in str(found[0]) and "does not answer" in str(found[0]) and "5 s" in str(found[0])
    assert str(found[1]) == str(found[0])


def test_after_a_time_out_the_rank_that_is_elsewhere_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(base, "REPORT_GRACE_S", 2.0)
    some = worlds(3)
    found = together(some, lambda w: w.late("reducing" if w.rank != 1 else "filling", 5.0))
    assert "rank 1" in str(found[0]) and "is still filling" in str(found[0])


def test_without_rank_0_another_speaks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(base, "REPORT_GRACE_S", 0.2)
    some = worlds(2)
    assert "rank 0" in str(some[1].late("reducing", 1.0)) and some[1].leaderless


def test_ranks_that_do_not_connect_are_named() -> None:
    with pytest.raises(WorldError, match=r"2 of 3 ranks did not connect to rank 0 .*: 1, 2"):
        gather(listen(SECRET, host="127.0.0.1"), SECRET, 3, "", 0.3)
    listeners = listen(SECRET, host="127.0.0.1")
    port = listeners[0].getsockname()[1]
    for listener in listeners:
        listener.close()
    with pytest.raises(WorldError, match=rf"could not reach rank 0 within 0\.2 s on port {port}"):
        connect([("127.0.0.1", port)], SECRET, 1, 2, "", 0.2)


def test_a_port_in_use_says_so() -> None:
    taken = listen(SECRET, host="127.0.0.1")
    with pytest.raises(WorldError, match="MASTER_PORT"):
        listen(SECRET, taken[0].getsockname()[1], "127.0.0.1")
    for listener in taken:
        listener.close()


def test_the_environment_must_be_whole() -> None:
    whole = {"RANK": "0", "WORLD_SIZE": "2", "MASTER_ADDR": "a", "MASTER_PORT": "1"}
    assert launchers.present(whole) and not launchers.present({})
    with pytest.raises(UsageError, match="but not MASTER_PORT"):
        launchers.present({**whole, "MASTER_PORT": ""})
    with pytest.raises(UsageError, match="whole numbers"):
        launchers.by_environment({**whole, "RANK": "x"}, 1)
    with pytest.raises(UsageError, match="RANK is 2; it must be from 0"):
        launchers.by_environment({**whole, "RANK": "2"}, 1)


@pytest.mark.parametrize(
    ("variables", "name", "size"),
    [
        ({}, "", 1),
        ({"OMPI_COMM_WORLD_SIZE": "4"}, "OMPI_COMM_WORLD_SIZE", 4),
        ({"SLURM_NTASKS": "8"}, "", 1),
        ({"SLURM_NTASKS": "8", "SLURM_STEP_ID": "0"}, "SLURM_NTASKS", 8),
        ({"PMI_SIZE": "2", "SLURM_STEP_NUM_TASKS": "3"}, "SLURM_STEP_NUM_TASKS", 3),
    ],
)
def test_what_a_launcher_promises(variables: dict[str, str], name: str, size: int) -> None:
    assert launchers.promised(variables) == (name, size)
    assert launched(variables) == bool(name)


def test_fewer_ranks_than_promised_is_an_error() -> None:
    with pytest.raises(WorldError, match="SLURM_STEP_NUM_TASKS promises 4 ranks, but this job has 1"):
        join(1.0, environment={"SLURM_STEP_NUM_TASKS": "4"})


def test_addresses_of_this_host() -> None:
    found = addresses()
    assert found and found[-1].startswith("127.")


def test_exchanges_do_not_wait_for_a_clock() -> None:
    some = worlds(2)

    def work(world: World) -> float:
        starts = []
        for _ in range(200):
            starts.append(time.monotonic())
            world.barrier("testing")
        return min(end - start for start, end in pairwise(starts))

    assert max(together(some, work)) < 0.01  # the quickest: a busy machine delays others
    assert threading.active_count() < 50


def test_rank_0_raises_its_limit_of_open_files_or_says_how_many_it_needs(monkeypatch) -> None:
    limits: list[tuple[int, int]] = []
    monkeypatch.setattr(resource, "setrlimit", lambda _, limit: limits.append(limit))
    for soft, hard, size, expected in (
        (1024, 20000, 4096, [(8704, 20000)]),
        (20000, 20000, 4096, []),
        (resource.RLIM_INFINITY, resource.RLIM_INFINITY, 4096, []),
        (1024, resource.RLIM_INFINITY, 4096, [(8704, resource.RLIM_INFINITY)]),
    ):
        limits.clear()
        monkeypatch.setattr(resource, "getrlimit", lambda _, both=(soft, hard): both)
        allow_open_files(2 * size)
        assert limits == expected
    monkeypatch.setattr(resource, "getrlimit", lambda _: (1024, 4096))
    with pytest.raises(WorldError, match="requires 8704 open files for its connections, but may have 4096"):
        gather([], b"", 4096, "by hand", 1.0)
