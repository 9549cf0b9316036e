"""What links allow: routes over directed links, and fair shares among concurrent Transfers.

Pure and fast; the simulated backend moves its bytes by these functions.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from .errors import MachineError
from .model import BUFFERS, Access, Engine, Measurement, MemoryKind, Operation, Place, Reduce, Transfer
from .topology import EngineRate, LinkKind, Machine
from .units import MIB


@dataclass(frozen=True)
class Demand:
    """What one byte per second of a flow's payload takes of each resource, and its own ceiling.

    A resource is a number: the index of a link.
    """

    weights: Mapping[int, float]
    cap: float = math.inf


def fair_shares(demands: Sequence[Demand], capacities: Mapping[int, float]) -> list[float]:
    """Return the max-min fair rate of each flow, in payload per second.

    All flows rise together; a flow stops at its own cap or when a resource that it uses is
    spent, and the others go on (progressive filling: Bertsekas and Gallager, *Data Networks*,
    section 6.5.2). A resource without a capacity does not limit.
    """
    rates = [0.0] * len(demands)
    left = dict(capacities)
    active = set(range(len(demands)))
    while active:
        load: dict[int, float] = {}
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
        self._capacities: dict[int, float] = {
            i: link.capacity for i, link in enumerate(machine.links) if link.capacity is not None
        }

    def unknown_memory(self, vertex: str) -> int | None:
        """Return the link of the memory at a vertex if its capacity is unknown."""
        link = self._memory.get(vertex)
        return None if link in self._capacities else link

    def capacities(self) -> Mapping[int, float]:
        """Return the capacity of every link that has one, in B/s."""
        return self._capacities

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
        access, weights, cap = transfer.access, dict[int, float](), math.inf

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


def ceilings(
    network: Network, measurement: Measurement, rates: Sequence[EngineRate] = ()
) -> list[float | None]:
    """Return what the links allow for each Place of a Measurement, in B/s.

    All transfers of the Measurement compete for the links, at line rate or as ``rates`` say. None
    where what is known of the way does not bound it, or the way itself is unknown, and for latencies.
    """
    return _of_places(measurement, _flows(network, measurement, rates))


#: Of each transfer: what it takes of the links, and its fair share in B/s; None where that is unknown.
_Flows = list[tuple[Demand, float | None]]


def _flows(network: Network, measurement: Measurement, rates: Sequence[EngineRate]) -> _Flows:
    capacities = network.capacities()
    try:
        demands = [
            Demand({}) if t.operation is Operation.CHASE else network.demand(t, rates)
            for t in measurement.transfers
        ]
    except MachineError:  # the way is unknown, and so is what it allows
        return [(Demand({}), None)] * len(measurement.transfers)
    return [
        (demand, share if math.isfinite(share) and _is_bounded(network, demand) else None)
        for demand, share in zip(demands, fair_shares(demands, capacities), strict=True)
    ]


def _is_bounded(network: Network, demand: Demand) -> bool:
    """Whether what is known of the way bounds a flow.

    An unknown memory does not hide a link on the way that is known: no machine is built with memory
    that is slower than one of its links. Whether it carries several at once is another matter: see
    ``shared_memories``.
    """
    unknown = demand.weights.keys() - network.capacities().keys()
    kinds = {network.links[i].kind for i in demand.weights.keys() - unknown}
    return not unknown or (
        all(network.links[i].kind is LinkKind.MEMORY for i in unknown) and bool(kinds - {LinkKind.MEMORY})
    )


def shared_memories(network: Network, measurement: Measurement) -> dict[int, dict[int, float]]:
    """Return the hosts that several links enter or leave at once, and what they can carry is unknown.

    That a memory of unknown capacity is as fast as one link says nothing of several; the same holds for the
    root complexes, PCIe switches and sockets at it that a machine's description does not show.

    Returns
    -------
    dict
        Index of the memory's link -> index of each transfer that ends, begins or passes there -> the bytes
        that it moves in or out of that memory for each byte of its payload.
    """
    entering: dict[int, set[int]] = {}
    leaving: dict[int, set[int]] = {}
    passing: dict[int, dict[int, float]] = {}
    for index, transfer in enumerate(measurement.transfers):
        try:
            used = {} if transfer.operation is Operation.CHASE else network.demand(transfer).weights
        except MachineError:
            continue
        for link in used:
            one = network.links[link]
            if one.kind is LinkKind.MEMORY:
                continue
            for vertex, crossing in ((one.destination, entering), (one.source, leaving)):
                if (memory := network.unknown_memory(vertex)) is not None:
                    crossing.setdefault(memory, set()).add(link)
                    passing.setdefault(memory, {})[index] = used.get(memory, 0.0)
    return {
        memory: transfers
        for memory, transfers in passing.items()
        if len(entering.get(memory, ())) > 1 or len(leaving.get(memory, ())) > 1
    }


def undisturbed(network: Network, measurement: Measurement) -> bool:
    """Whether the links are known to give each cell what it would get if it was measured alone."""
    if shared_memories(network, measurement):
        return False
    alone = {
        (place.table, place.row, place.column): limit
        for part in measurement.separate()
        for place, limit in zip(part.places, ceilings(network, part), strict=True)
    }
    return all(
        place.reduce is Reduce.LATENCY  # a load at a time disturbs nobody
        or (limit is not None and limit >= (alone[place.table, place.row, place.column] or 0.0) * (1 - 1e-6))
        for place, limit in zip(measurement.places, ceilings(network, measurement), strict=True)
    )


def _of_places(measurement: Measurement, flows: _Flows) -> list[float | None]:
    found: list[float | None] = []
    for place in measurement.places:
        shares = [share for i in place.transfers if (share := flows[i][1]) is not None]
        if place.reduce is Reduce.LATENCY or len(shares) < len(place.transfers):
            found.append(None)
            continue
        chosen = [measurement.transfers[i] for i in place.transfers]
        rates = [share * t.counted for share, t in zip(shares, chosen, strict=True)]
        if place.reduce is Reduce.WALL:  # the slowest decides; those that end before do not help it
            wall = max(t.bytes / share for share, t in zip(shares, chosen, strict=True))
            found.append(sum(t.bytes * t.counted for t in chosen) / wall)
        else:
            found.append(rates[0] if place.reduce is Reduce.FIRST else sum(rates))
    return found


#: Smaller buffers stay in caches (those of GPUs have up to 126 MB), or are copied in a time that is
#: partly the start; what they reach says little of the links.
JUDGED_BYTES = 256 * MIB
#: A link of which less is taken is not told: it matters to nothing.
NOTED = 0.05


@dataclass(frozen=True)
class Allowance:
    """What the links allow for one Place of a Measurement.

    Parameters
    ----------
    limit
        The fair share at line rate, in B/s.
    peak
        The same if nothing else of the Measurement ran, where that makes a difference.
    expected
        The lowest normal and the typical value; None where it is not known or depends on more
        than the links: small buffers, a chosen shape of kernels, pageable memory on the way to a
        GPU, a paced load.
    links
        The links that the Place's transfers use, for data or for requests: index, the fraction of
        the capacity that the whole Measurement typically takes (0 where the capacity is unknown),
        and how far the value depends on it. Those that are hardly used are left out.
    shared
        Memories of unknown capacity that several of the Measurement's transfers share: index of the link,
        and the bytes that it typically carries for each byte of the value. 0 where transfers pass its host
        without touching it. ``expected`` holds only where they do not limit.
    """

    limit: float | None
    peak: float | None
    expected: tuple[float, float] | None
    links: tuple[tuple[int, float, float], ...]
    shared: tuple[tuple[int, float], ...] = ()


def allowances(
    network: Network, measurement: Measurement, ranges: Sequence[Sequence[EngineRate]]
) -> list[Allowance]:
    """Return what the links allow for each Place; ``ranges`` are the lowest and the typical rates."""
    if not measurement.transfers:  # only routes of transfers are known
        return [Allowance(None, None, None, ())] * len(measurement.places)
    limits = ceilings(network, measurement)
    low, typical = (
        _flows(network, measurement, _capped(rates, ranges[-1], network.machine)) for rates in ranges
    )
    load: dict[int, float] = {}
    for demand, share in typical:
        for link, weight in demand.weights.items():
            load[link] = load.get(link, 0.0) + weight * (share or 0.0)
    hosts = shared_memories(network, measurement)
    found = []
    bounds = zip(limits, _of_places(measurement, low), _of_places(measurement, typical), strict=True)
    for place, (limit, least, normal) in zip(measurement.places, bounds, strict=True):
        own = tuple(measurement.transfers[i] for i in place.transfers)
        peak = limit
        if len(own) < len(measurement.transfers):
            alone = replace(place, transfers=tuple(range(len(own))))
            peak = ceilings(network, Measurement(own, (alone,)))[0]
        judged = all(_is_judged(network.machine, transfer) for transfer in own)
        expected = (least, normal) if judged and least is not None and normal is not None else None
        parts = _parts(place, own, [typical[i] for i in place.transfers])
        links = []
        for i, part in sorted(parts.items()):
            capacity = network.links[i].capacity
            taken = load[i] / capacity if capacity else 0.0
            if taken >= NOTED or capacity is None:
                links.append((i, round(taken, 3), part))
        shared = tuple(
            (memory, _carried([(moved, typical[i][1]) for i, moved in through.items()], normal or 0.0))
            for memory, through in sorted(hosts.items())
            if not through.keys().isdisjoint(place.transfers)
        )
        found.append(Allowance(limit, peak if peak != limit else None, expected, tuple(links), shared))
    return found


def _carried(through: Sequence[tuple[float, float | None]], value: float) -> float:
    """Return the bytes that a memory carries for each byte of a value; 0 if some pass without touching it.

    Parameters
    ----------
    through
        Of each transfer what it moves in or out of the memory for each byte, and its share in B/s.
    """
    if not value or not all(moved and share for moved, share in through):
        return 0.0
    return round(sum(moved * (share or 0.0) for moved, share in through) / value, 3)


def _parts(place: Place, transfers: Sequence[Transfer], flows: _Flows) -> dict[int, float]:
    """Return how far the value of a Place depends on each link that its transfers use.

    0 where a link carries only requests and acknowledgements: it may slow the transfer, or not.
    """
    seconds = [t.bytes / share if share else 0.0 for t, (_, share) in zip(transfers, flows, strict=True)]
    rates = [t.counted * (share or 0.0) for t, (_, share) in zip(transfers, flows, strict=True)]
    found: dict[int, float] = {}
    for (demand, _), time, rate in zip(flows, seconds, rates, strict=True):
        for link, weight in demand.weights.items():
            before = found.setdefault(link, 0.0)
            if weight < 1:
                continue
            if place.reduce is Reduce.WALL:
                found[link] = max(before, time / (max(seconds) or 1.0))
            else:
                found[link] = before + rate / (sum(rates) or 1.0)
    return {link: round(part, 3) for link, part in found.items()}


def _capped(
    rates: Sequence[EngineRate], typical: Sequence[EngineRate], machine: Machine
) -> Sequence[EngineRate]:
    """Return rates with the caps that a machine's description gives for its engines."""
    caps = [rate for rate in machine.rates if rate.cap is not None and rate.engine is not Engine.CPU]
    if not caps:
        return rates
    own = [
        replace(rate, efficiency=low.efficiency, reverse=low.reverse, cap=(rate.cap or 0.0) * below)
        for rate in caps
        for low, normal in zip(rates, typical, strict=True)
        if (low.engine, low.link) == (rate.engine, rate.link) and low.access in (None, rate.access)
        for below in (low.efficiency / normal.efficiency,)
    ]
    return (*own, *rates)


def _is_judged(machine: Machine, transfer: Transfer) -> bool:
    """Whether the links alone say what a transfer should reach."""
    kinds = (transfer.source.kind, transfer.destination.kind)
    least = JUDGED_BYTES
    if transfer.engine is Engine.CPU:
        least = max(least, machine.last_cache_bytes())
    return (
        transfer.operation is not Operation.CHASE
        and transfer.bytes >= least
        and transfer.pace == 1
        and not transfer.executor.blocks
        and not transfer.executor.threads
        and (transfer.engine is Engine.CPU or MemoryKind.PAGEABLE not in kinds)
    )


_ANY = EngineRate(Engine.CPU, LinkKind.MEMORY)


def rate_of(rates: Sequence[EngineRate], engine: Engine, link: LinkKind, access: Access) -> EngineRate:
    """Return how an engine uses links of a kind for an access; the first record that fits."""
    for rate in rates:
        if rate.engine is engine and rate.link is link and rate.access in (None, access):
            return rate
    return _ANY
