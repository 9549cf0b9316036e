"""What a run would measure: transfers, routes, shared links and limits. Nothing is measured."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from ...data import efficiencies
from ...errors import MachineError
from ...hardware.limits import allowances, demands
from ...hardware.network import Demand, Network, fair_shares
from ...hardware.topology import LinkKind, Machine
from ...measurement import Measurement, Unit
from ...model import Collective, Engine, Operation, Role, Transfer
from ...options import PlanOptions
from ...testcases.table import Plan, Testcase

#: A link is full if its load reaches this fraction of its capacity.
_FULL = 1 - 1e-6


@dataclass(frozen=True)
class PlannedWork:
    """A transfer or a collective as it would run.

    Attributes:
        source, destination: The memories; empty for a collective. Several destinations: ``gpu1+gpu2``.
        memory: How they are allocated.
        operation: What is done: ``copy``, ``read``, ``chase``, or a collective.
        executor: The device that executes.
        engine: What moves the bytes.
        blocks, threads: Shape of the kernel, or number of CPUs; 0 for the choice of the backend.
        bytes: Bytes of one buffer.
        load: Whether it is load, whose rate is not reported.
        route: Vertices from the source over the executor to the (first) destination; empty if unknown.
        limit: Rate that the links allow while all transfers of the measurement run, in B/s; None if unknown.
        alone: Rate that they allow if it runs alone, in B/s.
        bound: What bounds it: a link (``gpu0->nvswitch``), a memory, or why that is unknown.
    """

    source: str
    destination: str
    memory: tuple[str, str]
    operation: str
    executor: str
    engine: str
    blocks: int
    threads: int
    bytes: int
    load: bool
    route: tuple[str, ...]
    limit: float | None
    alone: float | None
    bound: str


@dataclass(frozen=True)
class PlannedLink:
    """A link that the transfers of a measurement use.

    Attributes:
        index: Index in the links of the machine.
        name: Source and destination, or the device of a memory.
        kind: Kind of the link.
        capacity: Its rate, in B/s; None if unknown.
        load: Bytes per second that it carries at the limits.
        used_by: Numbers of the transfers that use it, from 0.
    """

    index: int
    name: str
    kind: str
    capacity: float | None
    load: float
    used_by: tuple[int, ...]

    @property
    def full(self) -> bool:
        """Whether it bounds transfers."""
        return self.capacity is not None and self.load >= self.capacity * _FULL


@dataclass(frozen=True)
class PlannedValue:
    """A value that a measurement would report.

    Attributes:
        table, row, column: Its place.
        unit: Its unit.
        reduce: How it is made of the times.
        of: Numbers of the transfers that it is made of.
        limit: What the links allow, in B/s.
        expected: Lowest value that passes and typical value, in B/s.
    """

    table: str
    row: str
    column: str
    unit: Unit
    reduce: str
    of: tuple[int, ...]
    limit: float | None
    expected: tuple[float, float] | None


@dataclass(frozen=True)
class PlannedMeasurement:
    """Works that would start together.

    Attributes:
        testcase: Name of the testcase.
        works: The transfers.
        links: Links that they use.
        values: Values that are reported.
        refused: Why it cannot run here; empty if it can.
    """

    testcase: str
    works: tuple[PlannedWork, ...]
    links: tuple[PlannedLink, ...]
    values: tuple[PlannedValue, ...]
    refused: str


@dataclass(frozen=True)
class DryRun:
    """Everything that a run would measure.

    Attributes:
        machine: Name of the machine.
        simulated: Whether it exists only as a description.
        measurements: The measurements, in order.
        waived: What cannot be measured, with the reasons.
    """

    machine: str
    simulated: bool
    measurements: tuple[PlannedMeasurement, ...]
    waived: tuple[str, ...]


def dry_run(
    testcases: Sequence[Testcase],
    machine: Machine,
    options: PlanOptions = PlanOptions(),
    refuses: Callable[[Measurement], str] = lambda measurement: "",
) -> DryRun:
    """What a run of some testcases would measure.

    Args:
        testcases: The testcases.
        machine: The machine.
        options: Options of the run.
        refuses: Returns why no backend runs a measurement; empty if one does.

    Raises:
        UsageError: If a testcase is not valid on the machine.
    """
    network = Network(machine)
    measurements, waived = [], []
    for case in testcases:
        plan = case.plan(machine, options)
        measurements += [_measurement(case, plan, m, network, refuses(m)) for m in plan.measurements]
        reasons = [plan.reason] if plan.reason else [cell.reason for cell in plan.waived]
        waived += [f"{case.name}: {reason}" for reason in dict.fromkeys(reasons)]
    return DryRun(machine.name or machine.host, machine.simulated, tuple(measurements), tuple(waived))


def _measurement(
    case: Testcase, plan: Plan, measurement: Measurement, network: Network, refused: str
) -> PlannedMeasurement:
    layouts = {layout.key: layout for layout in plan.tables}
    allowed = allowances(network, measurement, efficiencies())
    values = []
    for place, allowance in zip(measurement.places, allowed, strict=True):
        layout = layouts[place.table]
        row, column = layout.rows.labels[place.row], layout.columns.labels[place.column]
        how = (layout.unit, place.reduce, place.transfers, allowance.limit, allowance.expected)
        values.append(PlannedValue(place.table, row, column, *how))
    works, links = _works(measurement, network)
    return PlannedMeasurement(case.name, works, links, tuple(values), refused)


def _works(
    measurement: Measurement, network: Network
) -> tuple[tuple[PlannedWork, ...], tuple[PlannedLink, ...]]:
    """The works with their limits, and the links that they use with their loads."""
    transfers = measurement.transfers
    needed = demands(network, measurement, ())
    rates = fair_shares(needed, network.capacities()) if needed else [math.inf] * len(transfers)
    load: dict[int, float] = {}
    users: dict[int, list[int]] = {}
    for number, (needs, rate) in enumerate(zip(needed or (), rates, strict=False)):
        for at, weight in needs.weights.items():
            users.setdefault(at, []).append(number)
            load[at] = load.get(at, 0.0) + weight * (rate if math.isfinite(rate) else 0.0)
    links = {}
    for i in sorted(users):
        link = network.links[i]
        is_memory = link.kind is LinkKind.MEMORY and link.source == link.destination
        name = f"memory of {link.source}" if is_memory else f"{link.source}->{link.destination}"
        links[i] = PlannedLink(i, name, link.kind, link.capacity, load[i], tuple(users[i]))
    works = []
    wanted: Sequence[Demand | None] = needed or [None] * len(transfers)
    planned = zip(wanted, rates, strict=True)
    for work in measurement.works:
        if isinstance(work, Collective):
            works.append(_collective(work))
            continue
        assert isinstance(work, Transfer)
        demand, rate = next(planned)
        bounds = [links[i].name for i in demand.weights if links[i].full] if demand else []
        works.append(_transfer(work, network, demand, rate, bounds))
    return tuple(works), tuple(links.values())


def _transfer(
    work: Transfer, network: Network, demand: Demand | None, rate: float, bounds: Sequence[str]
) -> PlannedWork:
    alone = fair_shares([demand], network.capacities())[0] if demand else math.inf
    known = math.isfinite(rate)
    if work.operation.is_latency:
        bound = "latency: one load at a time"
    elif not known:
        bound = "no link with a known capacity"
    else:
        bound = ", ".join(bounds) or "unknown"
    executor = work.executor
    return PlannedWork(
        str(work.source), "+".join(map(str, work.ends[1:])), (work.source.kind, work.destination.kind),
        work.operation, str(executor), work.engine, executor.blocks, _threads(work),
        work.bytes, work.role is Role.LOAD, _route(network, work), rate if known else None,
        alone if math.isfinite(alone) else None, bound,
    )  # fmt: skip


def _threads(work: Transfer) -> int:
    """The number of threads of a GPU's block, or of the host; 0 for the choice of the backend."""
    if work.calls:
        return work.calls.depth if work.engine is Engine.IO else 1
    return work.executor.threads or len(work.executor.cpus)


def _collective(work: Collective) -> PlannedWork:
    return PlannedWork(
        "", "", ("", ""), work.setting, f"{work.ranks} ranks", Engine.NCCL, 0, 0, work.bytes,
        work.role is Role.LOAD, (), None, None, "the links between the ranks",
    )  # fmt: skip


def _route(network: Network, work: Transfer) -> tuple[str, ...]:
    """The vertices that the bytes of a transfer pass; empty if the route is unknown."""
    source, executor, destination = network.ends(work)
    ways = [(source, executor)]
    if work.operation not in (Operation.CHASE, Operation.READ):
        ways.append((executor, destination))
    try:
        links = [i for start, end in ways for i in network.route(start, end)]
    except MachineError:
        return ()
    return (source, *(network.links[i].destination for i in links))
