from __future__ import annotations

import math
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from wirespeed.backends.simulated import parse
from wirespeed.data import efficiencies
from wirespeed.errors import MachineError
from wirespeed.hardware.limits import allowances, by_transport, ceilings, undisturbed
from wirespeed.hardware.link_graph import Demand, Network, completions, fair_shares
from wirespeed.hardware.topology import Link, LinkKind, Machine
from wirespeed.measurement import Measurement, Place, Reduce
from wirespeed.model import Engine, Executor, Memory, MemoryKind, Operation, Transfer
from wirespeed.testcases.table import find
from wirespeed.units import MIB


@st.composite
def flows(draw: st.DrawFn) -> tuple[list[Demand], dict[object, float]]:
    resources = draw(st.integers(1, 5))
    capacities = {i: draw(st.floats(0.1, 1e3)) for i in range(resources)}
    demands = []
    for _ in range(draw(st.integers(1, 8))):
        used = draw(st.sets(st.integers(0, resources - 1), min_size=1))
        cap = draw(st.one_of(st.just(math.inf), st.floats(0.01, 1e3)))
        demands.append(Demand({i: draw(st.floats(0.1, 3)) for i in used}, cap))
    return demands, capacities  # type: ignore[return-value]


@given(flows())
def test_shares_are_feasible_and_max_min_fair(case: tuple[list[Demand], dict[object, float]]) -> None:
    demands, capacities = case
    rates = fair_shares(demands, capacities)  # type: ignore[arg-type]
    used = {r: sum(d.weights.get(r, 0) * x for d, x in zip(demands, rates, strict=True)) for r in capacities}
    assert all(used[r] <= capacities[r] * (1 + 1e-6) for r in capacities)
    for demand, rate in zip(demands, rates, strict=True):
        assert rate <= demand.cap * (1 + 1e-9)
        # Every flow is held back by its cap, or by a spent resource on which no flow is faster.
        at_cap = rate >= demand.cap * (1 - 1e-6)
        bottleneck = any(
            used[r] >= capacities[r] * (1 - 1e-6)
            and all(rate >= x * (1 - 1e-6) for d, x in zip(demands, rates, strict=True) if r in d.weights)
            for r in demand.weights
        )
        assert at_cap or bottleneck


def test_flows_that_end_leave_the_link_to_the_others() -> None:
    link = [Demand({0: 1.0})] * 2
    assert completions(link, {0: 10.0}, [100.0, 100.0]) == [20.0, 20.0]
    assert completions(link, {0: 10.0}, [100.0, 50.0]) == [15.0, 10.0]
    assert completions(link, {0: 10.0}, [100.0, math.inf]) == [20.0, math.inf]
    assert completions([Demand({0: 1.0}, 2.0), Demand({0: 1.0})], {0: 10.0}, [100, 80]) == [50.0, 10.0]
    assert completions([], {}, []) == []


def test_a_flow_that_nothing_limits_is_infinite() -> None:
    assert fair_shares([Demand({})], {}) == [math.inf]
    assert fair_shares([], {}) == []


def _copy(source: str, destination: str, executor: str) -> Transfer:
    def memory(name: str) -> Memory:
        return Memory(name, MemoryKind.DEVICE)

    return Transfer(memory(source), memory(destination), Executor(executor), Engine.CE, 2**20)


def test_a_local_copy_uses_its_memory_twice() -> None:
    network = Network(parse("hgx-h200-2"))
    weights = network.demand(_copy("gpu0", "gpu0", "gpu0")).weights
    assert list(weights.values()) == [2.0]


def test_gpus_prefer_nvlink_to_pcie() -> None:
    network = Network(parse("dgx-a100-8"))
    kinds = [network.links[i].kind for i in network.route("gpu0", "gpu1")]
    assert kinds == [LinkKind.NVLINK, LinkKind.NVLINK]


def test_data_goes_by_way_of_the_executor() -> None:
    network = Network(parse("cpu-2-sockets"))
    node = Memory("numa0", MemoryKind.PAGEABLE)
    far = Transfer(node, node, Executor("numa1", cpus=(40,)), Engine.CPU, 2**20)
    used = {
        (network.links[int(i)].source, network.links[int(i)].destination) for i in network.demand(far).weights
    }  # type: ignore[call-overload]
    assert used == {("numa0", "numa0"), ("numa0", "numa1"), ("numa1", "numa0")}


def test_stream_operations_use_as_many_arrays_as_they_name() -> None:
    network = Network(parse("cpu-2-sockets"))
    node = Memory("numa0", MemoryKind.PAGEABLE)
    for operation, arrays in ((Operation.COPY, 2), (Operation.TRIAD, 3), (Operation.READ, 1)):
        transfer = Transfer(node, node, Executor("numa0", cpus=(0,)), Engine.CPU, 8, operation=operation)
        assert list(network.demand(transfer).weights.values()) == [arrays]


def test_ceilings_are_fair_shares_of_the_line_rates() -> None:
    def found(name: str, spec: str) -> list[float | None]:
        machine = parse(spec)
        plan = find(name).plan(machine)
        return [x and x / 1e9 for x in ceilings(Network(machine), plan.measurements[0])]

    assert found("device_local_copy", "hgx-h200-2") == [pytest.approx(4814 / 2)]
    assert found("device_stream_triad", "hgx-h200-2") == [pytest.approx(4814)]
    assert found("device_to_device_memcpy_read_ce", "hgx-h200-2") == [pytest.approx(478.1)]
    both = found("device_to_device_bidirectional_memcpy_read_ce", "hgx-h200-2")
    assert both == [pytest.approx(478.1), pytest.approx(478.1), pytest.approx(956.2)]
    assert found("all_to_one_write_ce", "dgx-a100-8") == [pytest.approx(300)]  # into one GPU
    assert found("host_to_all_memcpy_ce", "dgx-a100-8") == [pytest.approx(31.5 / 2)]  # two share a switch
    assert found("host_device_latency_sm", "hgx-h200-2") == [None]


def test_an_unknown_capacity_gives_no_ceiling() -> None:
    machine = Machine("m", links=(Link("numa0", "numa0", LinkKind.MEMORY),))
    node = Memory("numa0", MemoryKind.PAGEABLE)
    copy = Measurement((Transfer(node, node, Executor("numa0"), Engine.CPU, 8),), (Place("", 0, 0),))
    assert ceilings(Network(machine), copy) == [None]


def test_an_unknown_memory_does_not_hide_a_known_link() -> None:
    machine = parse("hgx-h200-2")
    links = tuple(
        replace(x, capacity=None) if x.source == "numa0" == x.destination else x for x in machine.links
    )
    bare = replace(machine, links=links)
    for name, limit in (("host_to_device_memcpy_ce", 63e9), ("numa_to_numa_memcpy_read_cpu", None)):
        found = ceilings(Network(bare), find(name).plan(bare).measurements[0])
        assert found == [limit and pytest.approx(limit)]


def test_no_way_says_so() -> None:
    machine = Machine(
        "split", links=(Link("a", "a", LinkKind.MEMORY, 1.0), Link("b", "b", LinkKind.MEMORY, 1.0))
    )
    with pytest.raises(MachineError, match="no links that lead from a to b"):
        Network(machine).route("a", "b")


def test_a_link_without_latency_says_so() -> None:
    machine = Machine("m", links=(Link("numa0", "numa0", LinkKind.MEMORY, 1.0),))
    node = Memory("numa0", MemoryKind.PAGEABLE)
    chase = Transfer(node, node, Executor("numa0"), Engine.CPU, 2**30, operation=Operation.CHASE)
    with pytest.raises(MachineError, match="no latency"):
        Network(machine).latency(chase)


def test_latencies_have_no_limit_and_disturb_nothing() -> None:
    machine = parse("dgx-a100-8")
    network = Network(machine)
    chases = find("device_to_device_latency_sm").plan(machine).measurements[:3]
    works = tuple(chase.works[0] for chase in chases)
    places = tuple(replace(chase.places[0], transfers=(i,)) for i, chase in enumerate(chases))
    assert undisturbed(network, Measurement(works, places, independent=True))
    ends = (Memory(name, MemoryKind.DEVICE) for name in ("gpu0", "gpu1"))
    copy = Transfer(*ends, Executor("gpu0"), Engine.SM, MIB)
    for reduce, limited in ((Reduce.LATENCY, False), (Reduce.SUM, True)):
        timed = Measurement((copy,), (Place("", 0, 0, reduce),))
        assert [limit is not None for limit in ceilings(network, timed)] == [limited]


@pytest.mark.parametrize(("size", "means", "judged"), [
    (64 * MIB, "ipc", True), (64 * MIB, "nccl", False), (64 * MIB, "mpi", False), (512 * MIB, "nccl", True),
])  # fmt: skip
def test_small_messages_of_a_library_are_not_judged(size: int, means: str, judged: bool) -> None:
    """Healthy GPUs without shared memory would fail: NCCL starts later than a copy."""
    copy = replace(_copy("gpu0", "gpu1", "gpu0"), bytes=size)
    measurement = Measurement((copy,), (Place(0, 0, (0,)),))
    bound = allowances(Network(parse("hgx-h200-2")), measurement, efficiencies())[0]
    assert bound.expected
    kept = by_transport(bound, measurement, measurement.places[0], [means]).expected
    assert bool(kept) is judged
