"""The machine of several ranks, from what each sees; descriptors and clocks of a host."""

from __future__ import annotations

import ctypes
import os
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from threading import local

import pytest

from tests.conftest import own_time
from tests.threads import together, worlds, worlds_on
from wirespeed.backends.distributed import synchronised_start as clocks
from wirespeed.driver.jobs import Observed, gather_facts, gather_machine, gather_observed, join
from wirespeed.errors import UsageError
from wirespeed.hardware.devices import Gpu, NumaNode
from wirespeed.hardware.facts import Fact, Facts, Known
from wirespeed.hardware.topology import Link, LinkKind, Machine
from wirespeed.tables import Quantity
from wirespeed.worlds.base import RankLost, WorldError
from wirespeed.worlds.descriptors import Descriptors, SharedMemory, fetch

NODE = NumaNode(0, tuple(range(8)), 2, 2**34)
NVLINK = tuple(
    Link(a, b, LinkKind.NVLINK, 450e9)
    for i in range(2) for a, b in ((f"gpu{i}", "nvswitch"), ("nvswitch", f"gpu{i}"))
)  # fmt: skip
GPUS = tuple(Gpu(i, "X", f"00000000:0{i}:00", uuid=f"GPU-{i}") for i in range(2))
HOST = Machine("a", numa=(NODE,))
NODE_OF_2 = Machine("g", numa=(NODE,), gpus=GPUS, links=NVLINK)


def test_what_the_other_hosts_observed(monkeypatch: pytest.MonkeyPatch) -> None:
    def seen(rank: int) -> Observed:
        counts = (Quantity("mlx5_0", "errors of the port", float(rank), counter=True) for _ in range(2))
        return Observed((next(counts),), (next(counts),), (Fact(Known.NCCL_TRANSPORTS, (f"{rank}",)),))

    found = together(worlds_on(monkeypatch, ["a", "b", "a", "b"]), lambda w: gather_observed(w, seen(w.rank)))
    assert all(one == found[0] for one in found)
    (before,), (after,), (fact,) = found[0].before, found[0].after, found[0].facts
    assert before == after == Quantity("mlx5_0", "errors of the port", 1.0, host="b", counter=True)
    assert fact == Fact(Known.NCCL_TRANSPORTS, ("1",), host="b")


def test_a_gpu_for_each_local_rank(monkeypatch: pytest.MonkeyPatch) -> None:
    found = together(worlds_on(monkeypatch, ["a", "b", "a", "b"]), lambda w: gather_machine(w, NODE_OF_2))
    assert all(machine == found[0] for machine in found)
    assert [(r.host, r.device) for r in found[0].ranks] == [
        ("a", "gpu0"), ("b", "gpu0"), ("a", "gpu1"), ("b", "gpu1")
    ]  # fmt: skip
    ends = {(link.source, link.destination) for link in found[0].links}
    assert ("0/gpu0", "nvswitch") in ends and ("nvswitch", "2/gpu1") in ends
    assert ("1/gpu0", "b:nvswitch") in ends and ("b:nvswitch", "3/gpu1") in ends and len(ends) == 8
    assert found[0].name == "4 ranks on 2 hosts"


def test_facts_of_all_hosts(monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[int] = []

    def facts(rank: int) -> tuple[Fact, ...]:
        read.append(rank)
        return Fact(Known.SHM, float(rank), "B"), Fact(Known.NVLINKS, reason="none")

    found = together(
        worlds_on(monkeypatch, ["a", "b", "a", "b"]), lambda w: gather_facts(w, lambda: facts(w.rank))
    )
    assert sorted(read) == [0, 1] and all(one == found[0] for one in found)
    assert [(one.host, one.value) for one in found[0]] == [("", 0.0), ("", None), ("b", 1.0), ("b", None)]
    assert Facts(found[0], "b").number(Known.SHM) == 1 and Facts(found[0]).number(Known.SHM) == 0
    assert [one.host for one in Facts(found[0]).of_each_host] == ["", "b"]


def test_launchers_that_show_each_rank_its_own_gpu() -> None:
    def own(rank: int) -> Machine:
        return replace(NODE_OF_2, gpus=(replace(GPUS[rank], index=0),), links=())

    found = together(worlds(2), lambda w: gather_machine(w, own(w.rank)))
    assert [rank.device for rank in found[0].ranks] == ["gpu0", "gpu0"] and found[0] == found[1]
    described = [(rank.model, rank.bus_id, rank.uuid) for rank in found[0].ranks]
    assert described == [("X", "00000000:00:00", "GPU-0"), ("X", "00000000:01:00", "GPU-1")]


def test_more_ranks_than_gpus_are_refused() -> None:
    for error in together(worlds(3), lambda w: gather_machine(w, NODE_OF_2)):
        assert isinstance(error, UsageError)
        assert "3 ranks were started on" in str(error) and "start 2 ranks on each host" in str(error)


def test_hosts_with_and_without_gpus_are_refused() -> None:
    some = worlds(2)
    for error in together(some, lambda w: gather_machine(w, HOST if w.rank else NODE_OF_2)):
        assert isinstance(error, UsageError) and "rank 1 " in str(error) and "sees no GPU" in str(error)


def test_cores_are_shared_among_the_ranks_of_a_host() -> None:
    found = together(worlds(2), lambda w: gather_machine(w, HOST))
    assert [rank.cpus for rank in found[0].ranks] == [(0, 1), (2, 3)]
    many = replace(HOST, numa=(replace(NODE, cpus=(4, 5), threads_per_core=1),))
    found = together(worlds(3), lambda w: gather_machine(w, many))
    assert [rank.cpus for rank in found[0].ranks] == [(4,), (5,), (4,)]
    none = together(worlds(2), lambda w: gather_machine(w, Machine("nothing")))
    assert all(isinstance(error, UsageError) for error in none)


def test_a_process_alone_is_no_job() -> None:
    assert join(1, [], 1.0, {}) is None
    assert join(1, [], 1.0, {"OMPI_COMM_WORLD_SIZE": "1"}) is None
    with pytest.raises(UsageError, match="number of processes"):
        join(0, [], 1.0, {})
    with pytest.raises(UsageError, match="MASTER_ADDR"):
        join(1, [], 1.0, {"RANK": "0", "WORLD_SIZE": "2"})


def test_memory_is_shared_by_descriptors() -> None:
    memory, descriptors = SharedMemory.create(8192), Descriptors()
    token = descriptors.offer(os.dup(memory.descriptor))
    other = SharedMemory(fetch(descriptors.address, token, 5.0), 8192)
    ctypes.c_uint64.from_address(memory.address + 8184).value = 77
    assert ctypes.c_uint64.from_address(other.address + 8184).value == 77 and other.address != memory.address
    descriptors.withdraw(token)
    with pytest.raises(WorldError, match="does not hand out its descriptor"):
        fetch(descriptors.address, token, 5.0)
    descriptors.close()
    with pytest.raises(WorldError, match="could not be fetched"):
        fetch(descriptors.address, token, 5.0)
    other.unmap()
    memory.unmap()
    os.close(other.descriptor)
    os.close(memory.descriptor)


def test_clocks_that_are_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    here, true = local(), time.monotonic_ns
    monkeypatch.setattr(clocks, "time", own_time(monotonic_ns=lambda: true() + here.ahead))
    some = worlds_on(monkeypatch, ["a", "b", "a", "c"])
    ahead = {"a": 0, "b": 5_000_000_000, "c": -7_000_000}

    def compared(world):  # type: ignore[no-untyped-def]
        here.ahead = ahead[world.me.host]
        return clocks.compare(world)

    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(compared, some))
    assert all(one == found[0] for one in found)
    for offset, error, host in zip(found[0].offsets, found[0].errors, "abac", strict=True):
        assert abs(offset - ahead[host]) <= error
    assert found[0].errors[0] == found[0].errors[2] == 0
    assert 0 < found[0].error < 0.1 and found[0].lead == 8 * max(found[0].errors)


def test_a_host_that_goes_while_clocks_are_compared(monkeypatch: pytest.MonkeyPatch) -> None:
    some = worlds_on(monkeypatch, ["a", "b"])
    some[1].close()
    (error,) = together(some[:1], clocks.compare)
    assert isinstance(error, RankLost) and "rank 1" in str(error)
