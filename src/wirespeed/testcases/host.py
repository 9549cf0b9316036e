"""Testcases of the CPUs' memory: copies, latencies, curves of both, and the STREAM kernels, which GPUs run in
their memory too.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from ..hardware.topology import Machine
from ..measurement import Axis, Measurement, Place, Reduce, Unit
from ..model import Access, Engine, Operation, Role, Transfer
from ..units import GIB, KIB
from .base import DEFAULT_SIZE, Layout, Plan, PlanOptions, Testcase, Tier, WaivedCell, count_axis, size_axis
from .patterns import (
    Grouping,
    Parties,
    Party,
    chase,
    chasing,
    cores,
    memories,
    nodes,
    of_parties,
    pairs,
    pairs_both_ways,
    within,
)

#: Operation, number of arrays that count (each that is read or written, as J. D. McCalpin counts), formula.
KERNELS = (
    (Operation.COPY, 2, "b = a"),
    (Operation.SCALE, 2, "b = s a"),
    (Operation.ADD, 3, "c = a + b"),
    (Operation.TRIAD, 3, "c = a + s b"),
    (Operation.READ, 1, "sum of a, nothing stored"),
    (Operation.WRITE, 1, "a = s, nothing loaded"),
)


def stream(
    prefix: str,
    group: Grouping,
    engine: Engine,
    executed: str,
    title: str,
    size: int | Callable[[Machine], int],
) -> tuple[Testcase, ...]:
    """A testcase per kernel; ``executed`` completes the description."""
    return tuple(
        Testcase(
            f"{prefix}_stream_{operation}",
            f"STREAM: {formula}, {executed}",
            within(group),
            f"STREAM {operation} {title}bandwidth",
            engine,
            Access.LOCAL,
            operation,
            size,
            counted=arrays,
            counts=f"{arrays} array{'s' * (arrays > 1)}, as STREAM counts",
        )
        for operation, arrays, formula in KERNELS
    )


#: Smallest part of a buffer for each core that the start of the threads does not dominate, in bytes.
LEAST_PART = 4 * KIB
#: Working sets, buffers and numbers of threads of the ladders grow by this factor.
_LADDER_STEP = {"quick": 4, "standard": 2, "full": 2}
#: Fractions of full speed at which the other cores read, by tier.
_PACES = {
    "quick": (0.0, 0.25, 0.5, 0.75, 1.0),
    "standard": tuple(i / 10 for i in range(11)),
    "full": tuple(i / 20 for i in range(21)),
}


def streaming_size(machine: Machine) -> int:
    """A size larger than the last caches of a node, in bytes."""
    return max(DEFAULT_SIZE, 2 * machine.last_cache_bytes())


def chase_size(machine: Machine) -> int:
    """A size much larger than the last cache, at most an eighth of the smallest node's memory."""
    wanted = max(DEFAULT_SIZE, 4 * machine.last_cache_bytes())
    smallest = min((n.memory_bytes for n in machine.numa if n.memory_bytes), default=8 * wanted)
    return min(wanted, max(DEFAULT_SIZE, smallest // 8))


def _one_way(case: Testcase, party: Party, size: int, cpus: tuple[int, ...]) -> Transfer:
    executor = replace(party.executor, cpus=cpus)
    return Transfer(party.memory, party.memory, executor, case.engine, size, counted=case.counted)


def _ladder(first: int, last: int, tier: Tier) -> list[int]:
    """Sizes that grow by a factor from the first one to the last one."""
    sizes = []
    while first < last:
        sizes.append(first)
        first *= _LADDER_STEP[tier]
    return [*sizes, last]


@of_parties(nodes, 1)
def latency_ladder(machine: Machine, case: Testcase, options: PlanOptions, group: Parties, size: int) -> Plan:
    """Nodes x working sets: one core chases through its own node's memory."""
    del size
    sizes = _ladder(4 * KIB, GIB, options.tier)
    measurements = tuple(
        Measurement(
            (chasing(case, party.executor, party.memory, working_set),), (Place("", i, j, Reduce.LATENCY),)
        )
        for i, party in enumerate(group.parties)
        for j, working_set in enumerate(sizes)
    )
    layout = Layout("", case.title, group.axis, size_axis("working set", sizes), case.unit)
    return Plan((layout,), measurements)


@of_parties(nodes, 1)
def bandwidth_ladder(
    machine: Machine, case: Testcase, options: PlanOptions, group: Parties, size: int
) -> Plan:
    """Nodes x sizes with all threads, and nodes x numbers of threads with the largest size.

    The quick preset leaves out the sizes that cannot be judged.
    """
    sizes = _ladder(16 * KIB, size, options.tier)
    most = max(len(party.executor.cpus) for party in group.parties)
    if options.tier == "quick":
        sizes = [n for n in sizes if n >= min(LEAST_PART * most, size)]
    step = _LADDER_STEP[options.tier]
    counts = tuple(range(1, most + 1)) if options.tier == "full" else powers(most, step)
    measurements, waived = [], []
    for i, party in enumerate(group.parties):
        cpus = party.executor.cpus
        for j, of_ladder in enumerate(sizes):
            measurements.append(
                Measurement((_one_way(case, party, of_ladder, cpus),), (Place("size", i, j),))
            )
        for j, n in enumerate(counts):
            if n > len(cpus):
                waived.append(WaivedCell("threads", i, j, f"{party.label} has {len(cpus)} cores"))
                continue
            transfer = _one_way(case, party, size, cpus[:n])
            measurements.append(Measurement((transfer,), (Place("threads", i, j),)))
    return Plan(
        (
            Layout("size", case.title.format(part="over sizes"), group.axis,
                   size_axis("buffer size", sizes), case.unit),
            Layout("threads", case.title.format(part="over threads"), group.axis,
                   count_axis("threads", counts), case.unit),
        ),
        tuple(measurements),
        tuple(waived),
    )  # fmt: skip


def powers(most: int, base: int = 2) -> tuple[int, ...]:
    """The powers of a base up to a number, and this number."""
    return tuple(sorted({min(base**i, most) for i in range(most.bit_length() + 1)}))


@of_parties(nodes, 1)
def loaded_latency(machine: Machine, case: Testcase, options: PlanOptions, group: Parties, size: int) -> Plan:
    """Nodes x paces: one core chases while the node's others read at a fraction of their speed."""
    paces = _PACES[options.tier]
    axis = Axis("load on other cores", tuple(f"{p:.0%}" for p in paces), paces, "")
    measurements, waived = [], []
    for i, party in enumerate(group.parties):
        first, *others = party.executor.cpus
        for j, pace in enumerate(paces):
            if not others:
                reason = f"{party.label} has only one core; the load requires a second one"
                waived += [WaivedCell(key, i, j, reason) for key in ("latency", "bandwidth")]
                continue
            probe = chasing(case, replace(party.executor, cpus=(first,)), party.memory, size)
            places = [Place("latency", i, j, Reduce.LATENCY, (0,))]
            loads = []
            if pace > 0:
                load = replace(probe, executor=replace(party.executor, cpus=tuple(others)), pace=pace)
                load = replace(load, bytes=streaming_size(machine), role=Role.LOAD, operation=Operation.READ)
                loads.append(load)
                places.append(Place("bandwidth", i, j, Reduce.SUM, (1,)))
            measurements.append(Measurement((probe, *loads), tuple(places)))
    return Plan(
        (
            Layout("latency", case.title.format(part="latency"), group.axis, axis, Unit.TIME),
            Layout("bandwidth", case.title.format(part="bandwidth of the load"), group.axis, axis,
                   Unit.RATE),
        ),
        tuple(measurements),
        tuple(waived),
    )  # fmt: skip


def _copies() -> tuple[Testcase, ...]:
    def row(name: str, title: str, access: Access, ways: int, does: str) -> Testcase:
        one_way = pairs(nodes, diagonal=True, columns_of=memories)
        pattern = one_way if ways == 1 else pairs_both_ways(nodes)
        return Testcase(f"numa_to_numa_{name}_cpu", does, pattern, f"memcpy CPU NUMA(row) {title} bandwidth",
                        Engine.CPU, access, size=streaming_size)  # fmt: skip

    return (
        row("memcpy_read", "<- NUMA(column)", Access.READ, 1,
            "the row's cores copy from the column's memory into their own"),
        row("memcpy_write", "-> NUMA(column)", Access.WRITE, 1,
            "the row's cores copy from their own memory into the column's"),
        row("bidirectional_memcpy_read", "<-> NUMA(column) {part}", Access.READ, 2,
            "the cores of both nodes read from each other at once; each rate and the sum"),
        row("bidirectional_memcpy_write", "<-> NUMA(column) {part}", Access.WRITE, 2,
            "the cores of both nodes write to each other at once; each rate and the sum"),
        Testcase("all_nodes_local_copy_cpu",
                 "all nodes copy in their own memory at once; the sum is the total of the machine",
                 within(nodes, together=True), "memcpy CPU local, all nodes at once, bandwidth",
                 Engine.CPU, Access.LOCAL, size=streaming_size,
                 counts="every copied byte once (it is read and written)"),
    )  # fmt: skip


#: The STREAM kernels on host memory.
STREAM = stream("host", memories, Engine.CPU, "by all cores of a node in its own memory", "", streaming_size)
#: The host-memory testcases.
TESTCASES = (
    *_copies(),
    *STREAM,
    Testcase("host_saxpy", "z = s x + y in single precision, by all cores of a node in its own memory",
             within(memories), "saxpy bandwidth", Engine.CPU, Access.LOCAL, Operation.SAXPY,
             size=streaming_size, counted=3, counts="3 arrays"),
    Testcase("host_latency",
             "one of the row's cores follows a random cycle through the column's memory",
             chase(cores, diagonal=True, columns_of=memories),
             "memory latency CPU NUMA(row) <- NUMA(column)", Engine.CPU,
             size=chase_size, fixed_size=True, unit=Unit.TIME, counts=""),
    Testcase("host_latency_ladder",
             "latency over working sets from 4 KiB to 1 GiB; each cache is a step",
             latency_ladder, "memory latency CPU over working sets", Engine.CPU,
             fixed_size=True, unit=Unit.TIME, counts=""),
    Testcase("host_bandwidth_ladder",
             "local copies over sizes, and over the number of threads",
             bandwidth_ladder, "memcpy CPU local {part}, bandwidth", Engine.CPU, Access.LOCAL,
             size=streaming_size, counts="every copied byte once (it is read and written)"),
    Testcase("host_loaded_latency",
             "latency on one core while the other cores of its node read at increasing rates",
             loaded_latency, "loaded latency CPU: {part}", Engine.CPU, size=chase_size, fixed_size=True,
             unit=Unit.TIME, counts="every byte that the load reads once"),
)  # fmt: skip
