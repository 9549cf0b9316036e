from __future__ import annotations

from dataclasses import replace

import pytest

from wirespeed.backends.simulated import parse
from wirespeed.errors import UnknownTestcase
from wirespeed.features.nvbandwidth.versions import of_nvbandwidth
from wirespeed.measurement import Reduce
from wirespeed.model import Access, Engine, MemoryKind, Operation, Role
from wirespeed.options import TIERS, includes
from wirespeed.testcases.table import TABLE, PlanOptions, find, select

TWO = parse("hgx-h200-2")
_COPIES = """host_to_device_memcpy_ce device_to_host_memcpy_ce host_to_device_bidirectional_memcpy_ce
device_to_host_bidirectional_memcpy_ce device_to_device_memcpy_read_ce device_to_device_memcpy_write_ce
device_to_device_bidirectional_memcpy_read_ce device_to_device_bidirectional_memcpy_write_ce
all_to_host_memcpy_ce all_to_host_bidirectional_memcpy_ce host_to_all_memcpy_ce
host_to_all_bidirectional_memcpy_ce all_to_one_write_ce all_to_one_read_ce one_to_all_write_ce
one_to_all_read_ce"""
NVBANDWIDTH = _COPIES.split()


def test_the_first_forty_four_are_those_of_nvbandwidth_in_its_order() -> None:
    sm = [name.removesuffix("_ce") + "_sm" for name in NVBANDWIDTH]
    tma = [f"device_to_device_{kind}_{way}_tma" for kind in ("memcpy", "bidirectional_memcpy")
           for way in ("read", "write")]  # fmt: skip
    local = [f"device_local_{what}" for what in ("copy", "copy_sm", "read_sm", "write_sm")]
    latencies = ["host_device_latency_sm", "device_to_device_latency_sm"]
    last = [*latencies, *tma, *local, "device_to_device_latency_tma", "device_local_copy_tma"]
    assert [case.name for case in TABLE[:44]] == [*NVBANDWIDTH, *sm, *last]
    assert [case.index for case in TABLE[:44]] == list(range(44))
    assert sum(case.name.startswith("multinode_") for case in TABLE) == 11
    assert len({case.name for case in TABLE}) == len(TABLE)


def test_the_testcases_of_nvbandwidth_0_8_have_its_numbers() -> None:
    old = {case.name: case.index for case in of_nvbandwidth("0.8")}
    assert list(old.values()) == [*range(48)]
    assert list(old)[:35] == [c.name for c in TABLE[:34]] + ["device_local_copy"]
    assert old["multinode_bisect_write_ce"] == 47
    assert old["multinode_device_to_device_broadcast_one_to_all_sm"] == 45
    assert [c.index for c in of_nvbandwidth("0.10")] == [*range(57)]


def test_the_testcases_of_other_versions() -> None:
    assert [case.index for case in of_nvbandwidth("0.4")] == [*range(30)]
    assert not [case for case in of_nvbandwidth("0.4") if case.name.startswith(("device_local", "multinode"))]
    newest = {case.name: case.index for case in of_nvbandwidth("0.11")}
    assert [*newest.values()] == [*range(44), *([None] * 15)]  # later numbers are not published
    assert {"device_to_device_latency_counted", "multinode_multicast_reduce"} < newest.keys()


def test_testcases_that_are_not_implemented_say_why() -> None:
    cases = {case.name: case for case in of_nvbandwidth("0.11")}
    counted, reduce = cases["device_to_device_latency_counted"], cases["multinode_multicast_reduce"]
    old = "gpu0 has no Compute Fabric Transport (compute capability 10.0 or later)"
    assert counted.plan(parse("hgx-h200-2")).reason == old
    assert counted.plan(parse("nvl72")).reason == (
        "counted writes of the Compute Fabric Transport are not implemented"
    )
    assert reduce.plan(parse("hgx-h200-2")).reason.startswith("requires at least two processes")
    many = "requires NVLink multicast objects, which wirespeed does not create"
    assert reduce.plan(parse("nvl72")).reason == many
    assert cases["multinode_device_to_device_broadcast_all_to_all_sm"].plan(parse("nvl72")).reason == many


@pytest.mark.parametrize(("name", "column"), [("all_to_one_read_sm", True), ("one_to_all_read_sm", False)])
def test_the_sender_executes_two_reads_in_old_versions(name: str, column: bool) -> None:
    machine = parse("dgx-a100-8")
    for version in ("0.4", "0.8", "0.10"):
        case = next(case for case in of_nvbandwidth(version) if case.name == name)
        first = case.plan(machine).measurements[0].transfers
        sends = {"gpu0"} if column else {f"gpu{i}" for i in range(1, 8)}
        assert {t.source.device for t in first} == sends
        pushed = {t.executor.device for t in first} == sends
        assert pushed == (version == "0.8")


def test_bulk_copies_are_waived_where_a_gpu_has_none() -> None:
    old, new = parse("dgx-a100-8"), parse("hgx-h200-2")
    why = "gpu0 has no bulk copies (compute capability 9.0 or later)"
    for index in ("34", "35", "36", "37", "42", "43"):
        plan = find(index).plan(old)
        assert (plan.measurements, plan.reason) == ((), why)
        assert {t.engine for m in find(index).plan(new).measurements for t in m.transfers} == {Engine.SM_BULK}
    mixed = replace(new, gpus=(new.gpus[0], replace(new.gpus[1], compute_capability="8.9")))
    plan = find("34").plan(mixed)
    assert len(plan.measurements) == 1 and not plan.reason
    assert [(cell.row, cell.column) for cell in plan.waived] == [(1, 0)]


def test_the_sum_with_the_host_is_that_of_one_copy_per_gpu() -> None:
    machine = parse("dgx-a100-8")
    for name, outbound in (("all_to_host_sum_ce", True), ("host_to_all_sum_ce", False)):
        (measurement,) = find(name).plan(machine, PlanOptions(size=1000)).measurements
        ends = [(t.source if outbound else t.destination).device for t in measurement.transfers]
        assert ends == [f"gpu{i}" for i in range(8)]
        assert {t.engine for t in measurement.transfers} == {Engine.CE}
        assert measurement.places[0].reduce is Reduce.WALL


def test_choosing() -> None:
    assert find("4").name == find("device_to_device_memcpy_read_ce").name
    assert [c.name for c in select(["38", "device_local_copy"])] == ["device_local_copy"]
    assert len(select(prefixes=["host_stream_"])) == 6
    assert select() == TABLE
    with pytest.raises(UnknownTestcase, match="did you mean device_local_copy"):
        find("device_local_copi")
    with pytest.raises(UnknownTestcase, match="no testcase has the index 999"):
        find("999")
    with pytest.raises(UnknownTestcase, match="starts with 'zzz'"):
        select(prefixes=["zzz"])


@pytest.mark.parametrize("spec", ["hgx-h200-2", "dgx-a100-8", "nvl72", "cpu-2-sockets"])
def test_reads_are_executed_by_the_receiver_and_writes_by_the_sender(spec: str) -> None:
    machine = parse(spec)
    for case in TABLE:
        for measurement in case.plan(machine).measurements:
            for transfer in measurement.transfers:
                if transfer.operation is not Operation.COPY or transfer.access is Access.LOCAL:
                    continue
                if "_read" in case.name:
                    assert str(transfer.executor) == str(transfer.destination)
                elif "_write" in case.name:
                    assert str(transfer.executor) == str(transfer.source)
                else:  # between host and GPU: the GPU, whichever way
                    assert transfer.executor.device.startswith("gpu")


def test_loads_are_twice_as_large_on_copy_engines() -> None:
    plan = find("host_to_device_bidirectional_memcpy_ce").plan(TWO, PlanOptions(size=1000))
    measured, load = plan.measurements[0].transfers
    assert (measured.bytes, measured.role) == (1000, Role.MEASURED)
    assert (load.bytes, load.role) == (2000, Role.LOAD)
    assert (load.source, load.destination) == (measured.destination, measured.source)


def test_all_gpus_both_ways_are_measured_with_one_kernel_each_on_sms() -> None:
    plan = find("all_to_host_bidirectional_memcpy_sm").plan(TWO, PlanOptions(size=1000))
    transfers = plan.measurements[0].transfers
    assert [t.engine for t in transfers] == [Engine.SM_SPLIT, Engine.SM_SPLIT]
    assert [t.bytes for t in transfers] == [500, 500]


def test_host_memory_is_pinned_on_the_node_nearest_to_the_gpu() -> None:
    machine = parse("dgx-a100-8")
    plan = find("host_to_device_memcpy_ce").plan(machine)
    sources = [m.transfers[0].source for m in plan.measurements]
    assert [s.device for s in sources] == ["numa0"] * 4 + ["numa1"] * 4
    assert {s.kind for s in sources} == {MemoryKind.PINNED}


def test_stars_point_where_nvbandwidth_points_them() -> None:
    machine = parse("dgx-a100-8")
    into = {"all_to_one_write_ce": True, "one_to_all_read_ce": True,
            "all_to_one_read_ce": False, "one_to_all_write_ce": False}  # fmt: skip
    for name, inbound in into.items():
        measurement = find(name).plan(machine).measurements[3]
        ends = {(t.destination if inbound else t.source).device for t in measurement.transfers}
        assert ends == {"gpu3"} and len(measurement.transfers) == 7
        assert measurement.places[0].reduce is Reduce.WALL


def test_every_rank_writes_once_in_the_bisection() -> None:
    machine = parse("nvl72")
    plan = find("multinode_bisect_write_ce").plan(machine)
    (measurement,) = plan.measurements
    assert len(measurement.transfers) == len(measurement.places) == 72
    assert {t.destination.rank for t in measurement.transfers} == set(range(72))
    assert plan.tables[0].rows.labels[:2] == ("0->36", "1->37")


def test_what_cannot_run_says_why() -> None:
    cpu, lonely, apart = parse("cpu-2-sockets"), parse("tests/machines/one-gpu.json"), parse("pcie-2-no-p2p")
    assert find("0").plan(cpu).reason == "no GPU was found"
    assert find("4").plan(lonely).reason == "requires at least two GPUs"
    assert find("4").plan(apart).reason == "no GPU has peer access to another"
    assert "processes" in find("multinode_bisect_write_ce").plan(TWO).reason
    assert "two NUMA nodes" in find("numa_to_numa_bidirectional_memcpy_read_cpu").plan(TWO).reason


def test_a_pair_without_peer_access_is_waived_and_the_others_are_not() -> None:
    gpu0, gpu1 = TWO.gpus
    half = replace(TWO, gpus=(gpu0, replace(gpu1, peers=())))
    plan = find("4").plan(half)
    assert len(plan.measurements) == 1 and not plan.reason
    assert [w.reason for w in plan.waived] == ["gpu1 has no peer access to gpu0"]
    assert len(find("6").plan(half).waived) == 6  # both directions are needed, in three tables
    assert len(find("12").plan(half).measurements) == 1


def test_a_chosen_size_applies_except_where_the_size_is_what_is_measured() -> None:
    options = PlanOptions(size=4096)
    assert find("4").plan(TWO, options).measurements[0].transfers[0].bytes == 4096
    assert find("33").plan(TWO, options).measurements[0].transfers[0].bytes == 2 * 2**20


def test_tiers_grow() -> None:
    ladder = find("host_latency_ladder")
    counts = [len(ladder.plan(TWO, PlanOptions(tier=tier)).measurements) for tier in TIERS]
    assert counts[0] < counts[1] <= counts[2]
    threads = find("host_bandwidth_ladder").plan(TWO, PlanOptions(tier="full")).tables[1].columns.values
    assert threads == tuple(float(i) for i in range(1, 33))
    sizes, threads = find("host_bandwidth_ladder").plan(TWO, PlanOptions(tier="quick")).tables
    assert sizes.columns.values[0] == 2**18  # less than a page for each of 32 cores is not judged
    assert threads.columns.values == (1.0, 4.0, 16.0, 32.0)
    assert includes("full", "quick") and not includes("quick", "full")


def test_one_core_cannot_load_itself() -> None:
    machine = parse("cpu-2-sockets")
    lonely = replace(machine, numa=tuple(replace(n, cpus=n.cpus[:1]) for n in machine.numa))
    assert "the load requires a second one" in find("host_loaded_latency").plan(lonely).reason
