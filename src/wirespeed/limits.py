"""What links allow: routes over directed links, and fair shares among concurrent Transfers.

Pure and fast; the simulated backend moves its bytes by these functions.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass

from .errors import MachineError
from .model import BUFFERS, Access, Engine, Measurement, Operation, Reduce, Transfer
from .topology import EngineRate, LinkKind, Machine


@dataclass(frozen=True)
class Demand:
    """What one byte per second of a flow's payload takes of each resource, and its own ceiling."""

    weights: Mapping[Hashable, float]
    cap: float = math.inf


def fair_shares(demands: Sequence[Demand], capacities: Mapping[Hashable, float]) -> list[float]:
    """Return the max-min fair rate of each flow, in payload per second.

    All flows rise together; a flow stops at its own cap or when a resource that it uses is
    spent, and the others go on (progressive filling: Bertsekas and Gallager, *Data Networks*,
    section 6.5.2). A resource without a capacity does not limit.
    """
    rates = [0.0] * len(demands)
    left = dict(capacities)
    active = set(range(len(demands)))
    while active:
        load: dict[Hashable, float] = {}
        for flow in active:
            for resource, weight in demands[flow].weights.items():
                if weight > 0 and resource in left:
                    load[resource] = load.get(resource, 0.0) + weight
        step = min((max(0.0, left[r]) / w for r, w in load.items()), default=math.inf)
        step = min([step, *(demands[flow].cap - rates[flow] for flow in active)])
        if step == math.inf:
            for flow in active:
                rates[flow] = math.inf
            break
        for flow in active:
            rates[flow] += step
        for resource, weight in load.items():
            left[resource] -= step * weight
        spent = {r for r in load if left[r] <= 1e-9 * capacities[r]}
        stopped = {
            flow
            for flow in active
            if rates[flow] >= demands[flow].cap * (1 - 1e-12)
            or any(r in spent and w > 0 for r, w in demands[flow].weights.items())
        }
        active -= stopped
        if not stopped:  # rounding left a resource a hair above nothing
            break
    return rates


#: What a hop costs in the choice of a route.
_COST = {LinkKind.NVLINK: 1, LinkKind.C2C: 3, LinkKind.NETWORK: 100}


class Network:
    """The links of a Machine as a graph; resources are indices of links."""

    def __init__(self, machine: Machine) -> None:
        self.machine = machine
        self.links = machine.links
        self._memory: dict[str, int] = {}
        self._out: dict[str, list[int]] = {}
        by_ends: dict[tuple[str, str, LinkKind], int] = {}
        for i, link in enumerate(machine.links):
            if link.source == link.destination:
                self._memory[link.source] = i
            else:
                self._out.setdefault(link.source, []).append(i)
                by_ends[link.source, link.destination, link.kind] = i
        self._opposite = {
            i: by_ends.get((link.destination, link.source, link.kind)) for i, link in enumerate(machine.links)
        }
        self._routes: dict[str, dict[str, int]] = {}

    def capacities(self) -> dict[Hashable, float]:
        """Return the capacity of every link that has one, in B/s."""
        return {i: link.capacity for i, link in enumerate(self.links) if link.capacity is not None}

    def route(self, source: str, destination: str) -> tuple[int, ...]:
        """Return the links of the best way between two vertices; none where they are the same.

        Links made for data between devices are preferred to PCIe, and that to a network.

        Raises
        ------
        MachineError
            If there is no way.
        """
        if source not in self._routes:
            self._routes[source] = self._reach(source)
        arrived_by, path, at = self._routes[source], list[int](), destination
        while at != source:
            if at not in arrived_by:
                raise MachineError(
                    f"machine {self.machine.name!r} has no links that lead from {source} to {destination}"
                )
            path.append(arrived_by[at])
            at = self.links[arrived_by[at]].source
        return tuple(reversed(path))

    def _reach(self, source: str) -> dict[str, int]:
        """For every vertex that can be reached, the link by which the best way arrives."""
        arrived_by: dict[str, int] = {}
        costs = {source: 0}
        waiting = [(0, source)]
        while waiting:
            cost, vertex = heapq.heappop(waiting)
            for i in self._out.get(vertex, ()) if cost == costs[vertex] else ():
                link = self.links[i]
                further = cost + _COST.get(link.kind, 10)
                if further < costs.get(link.destination, further + 1):
                    costs[link.destination], arrived_by[link.destination] = further, i
                    heapq.heappush(waiting, (further, link.destination))
        return arrived_by

    def ends(self, transfer: Transfer) -> tuple[str, str, str]:
        """Return the vertices of a transfer's source, executor and destination."""
        vertex = self.machine.vertex
        return vertex(transfer.source), vertex(transfer.executor), vertex(transfer.destination)

    def demand(self, transfer: Transfer, rates: Sequence[EngineRate] = ()) -> Demand:
        """Return what a transfer takes of the links per byte of one buffer.

        Data goes from the source to the executor and on to the destination; what lies in a
        memory is read from it and written to it. Without ``rates`` every link carries payload
        only.
        """
        source, executor, destination = self.ends(transfer)
        reads, writes = BUFFERS[transfer.operation]
        access, weights, cap = transfer.access, dict[Hashable, float](), math.inf

        def use(link: int | None, times: float) -> None:
            nonlocal cap
            if link is None:
                return
            rate = rate_of(rates, transfer.engine, self.links[link].kind, access)
            weights[link] = weights.get(link, 0.0) + times / rate.efficiency
            opposite = self._opposite[link]
            if rate.reverse and opposite is not None and opposite != link:
                weights[opposite] = weights.get(opposite, 0.0) + times * rate.reverse
            if rate.cap is not None:
                threads = max(1, len(transfer.executor.cpus)) if transfer.engine is Engine.CPU else 1
                cap = min(cap, rate.cap * threads / max(1, reads + writes - 1))
            if rate.block_cap is not None and transfer.executor.blocks:
                cap = min(cap, rate.block_cap * transfer.executor.blocks)

        ways = [(source, destination)]
        if transfer.engine is Engine.SM_SPLIT:
            ways.append((destination, source))
        for start, end in ways:
            use(self._memory.get(start), reads)
            use(self._memory.get(end), writes)
            for link in (*self.route(start, executor), *self.route(executor, end)):
                use(link, 1)
        return Demand(weights, cap)

    def latency(self, transfer: Transfer) -> float:
        """Return the time of a dependent load by a chase's executor, caches left out, in s.

        Raises
        ------
        MachineError
            If a link on the way has no latency.
        """
        source, executor, _ = self.ends(transfer)
        way = self.route(executor, source)
        if source in self._memory:
            way = (*way, self._memory[source])
        total = 0.0
        for i in way:
            link = self.links[i]
            if link.latency is None:
                raise MachineError(
                    f"machine {self.machine.name!r} gives no latency for {link.source}->{link.destination}"
                )
            total += link.latency
        return total


def ceilings(network: Network, measurement: Measurement) -> list[float | None]:
    """Return what the links allow for each Place of a Measurement, in B/s, at their line rates.

    All transfers of the Measurement compete for the links; None where a link on the way has no
    known capacity, or the way itself is unknown, and for latencies.
    """
    capacities = network.capacities()
    try:
        demands = [
            Demand({}) if t.operation is Operation.CHASE else network.demand(t) for t in measurement.transfers
        ]
    except MachineError:  # the way is unknown, and so is what it allows
        return [None] * len(measurement.places)
    shares = fair_shares(demands, capacities)
    known = [
        math.isfinite(share) and all(resource in capacities for resource in demand.weights)
        for share, demand in zip(shares, demands, strict=True)
    ]
    found: list[float | None] = []
    for place in measurement.places:
        if place.reduce is Reduce.LATENCY or not all(known[i] for i in place.transfers):
            found.append(None)
            continue
        rates = [shares[i] * measurement.transfers[i].counted for i in place.transfers]
        found.append(rates[0] if place.reduce is Reduce.FIRST else sum(rates))
    return found


_ANY = EngineRate(Engine.CPU, LinkKind.MEMORY)


def rate_of(rates: Sequence[EngineRate], engine: Engine, link: LinkKind, access: Access) -> EngineRate:
    """Return how an engine uses links of a kind for an access; the first record that fits."""
    for rate in rates:
        if rate.engine is engine and rate.link is link and rate.access in (None, access):
            return rate
    return _ANY
