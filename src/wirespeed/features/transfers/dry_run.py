"""What a run would measure: transfers, routes, shared links and limits. Nothing is measured."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

from ...data import efficiencies
from ...errors import MachineError
from ...hardware.limits import allowances, demands
from ...hardware.network import Demand, Network, fair_shares
from ...hardware.topology import LinkKind, Machine
from ...measurement import Measurement
from ...model import Collective, Engine, Operation, Role, Transfer
from ...options import PlanOptions
from ...testcases.table import Plan, Testcase

#: A part of a dry run as JSON has it: rates and limits in B/s, None where unknown.
Data = dict[str, Any]
#: A link is full if its load reaches this fraction of its capacity.
_FULL = 1 - 1e-6


def dry_run(
    case: Testcase, machine: Machine, options: PlanOptions, refuses: Callable[[Measurement], str]
) -> Data:
    """What a run of a testcase would measure: name of the machine, measurements, and what is waived.

    Args:
        case: The testcase.
        machine: The machine.
        options: Options of the run.
        refuses: Returns why no backend runs a measurement; empty if one does.

    Raises:
        UsageError: If the testcase is not valid on the machine.
    """
    network, plan = Network(machine), case.plan(machine, options)
    reasons = [plan.reason] if plan.reason else [cell.reason for cell in plan.waived]
    return {
        "machine": machine.name or machine.host,
        "simulated": machine.simulated,
        "measurements": [_measurement(case, plan, m, network, refuses(m)) for m in plan.measurements],
        "waived": [f"{case.name}: {reason}" for reason in dict.fromkeys(reasons)],
    }


def _measurement(
    case: Testcase, plan: Plan, measurement: Measurement, network: Network, refused: str
) -> Data:
    """Works that would start together, the links that they use, and the values that are reported.

    A value is made ``of`` the works with these numbers, and has the lowest value that passes and the typical
    one as ``expected``.
    """
    layouts = {layout.key: layout for layout in plan.tables}
    allowed = allowances(network, measurement, efficiencies())
    values = []
    for place, allowance in zip(measurement.places, allowed, strict=True):
        layout = layouts[place.table]
        values.append({
            "table": place.table, "row": layout.rows.labels[place.row],
            "column": layout.columns.labels[place.column], "unit": layout.unit, "reduce": place.reduce,
            "of": place.transfers, "limit": allowance.limit, "expected": allowance.expected,
        })  # fmt: skip
    works, links = _works(measurement, network)
    return {"testcase": case.name, "works": works, "links": links, "values": values, "refused": refused}


def is_full(link: Data) -> bool:
    """Whether a link bounds transfers."""
    return link["capacity"] is not None and bool(link["load"] >= link["capacity"] * _FULL)


def _works(measurement: Measurement, network: Network) -> tuple[list[Data], list[Data]]:
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
    links: dict[int, Data] = {}
    for i in sorted(users):
        link = network.links[i]
        is_memory = link.kind is LinkKind.MEMORY and link.source == link.destination
        name = f"memory of {link.source}" if is_memory else f"{link.source}->{link.destination}"
        links[i] = {
            "index": i, "name": name, "kind": link.kind, "capacity": link.capacity, "load": load[i],
            "used_by": users[i],
        }  # fmt: skip
    works = []
    wanted: Sequence[Demand | None] = needed or [None] * len(transfers)
    planned = zip(wanted, rates, strict=True)
    for work in measurement.works:
        if isinstance(work, Collective):
            works.append(_collective(work))
            continue
        assert isinstance(work, Transfer)
        demand, rate = next(planned)
        bounds = [links[i]["name"] for i in demand.weights if is_full(links[i])] if demand else []
        works.append(_transfer(work, network, demand, rate, bounds))
    return works, list(links.values())


def _transfer(
    work: Transfer, network: Network, demand: Demand | None, rate: float, bounds: Sequence[str]
) -> Data:
    """A transfer with its route, its limit while all run and alone, and what bounds it."""
    alone = fair_shares([demand], network.capacities())[0] if demand else math.inf
    known = math.isfinite(rate)
    if work.operation.is_latency:
        bound = "latency: one load at a time"
    elif not known:
        bound = "no link with a known capacity"
    else:
        bound = ", ".join(bounds) or "unknown"
    executor = work.executor
    return {
        "source": str(work.source), "destination": "+".join(map(str, work.ends[1:])),
        "memory": (work.source.kind, work.destination.kind), "operation": work.operation,
        "executor": str(executor), "engine": work.engine, "blocks": executor.blocks,
        "threads": _threads(work), "bytes": work.bytes, "load": work.role is Role.LOAD,
        "route": _route(network, work), "limit": rate if known else None,
        "alone": alone if math.isfinite(alone) else None, "bound": bound,
    }  # fmt: skip


def _threads(work: Transfer) -> int:
    """The number of threads of a GPU's block, or of the host; 0 for the choice of the backend."""
    if work.calls:
        return work.calls.depth if work.engine is Engine.IO else 1
    return work.executor.threads or len(work.executor.cpus)


def _collective(work: Collective) -> Data:
    return {
        "source": "", "destination": "", "memory": ("", ""), "operation": work.setting,
        "executor": f"{work.ranks} ranks", "engine": Engine.NCCL, "blocks": 0, "threads": 0,
        "bytes": work.bytes, "load": work.role is Role.LOAD, "route": (), "limit": None, "alone": None,
        "bound": "the links between the ranks",
    }  # fmt: skip


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
