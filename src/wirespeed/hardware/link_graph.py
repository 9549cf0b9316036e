"""The links of a Machine as a graph: its vertices with their hosts, routes, and fair shares of concurrent
flows. Pure and fast: the simulated backend moves its bytes with it. No other module reads the names of
vertices.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

from ..errors import MachineError
from ..model import BUFFERS, Access, Engine, Executor, Operation, Transfer
from .devices import DeviceKind, is_host, parse
from .topology import EngineRate, LinkKind, Machine

#: First digits of the compute capability -> NVLinks of a GPU, and the rate of one in each direction, in B/s,
#: as drivers report it.
_NVLINKS = {"7": (6, 25e9), "8": (12, 25e9), "9": (18, 26.562e9), "10": (18, 50e9)}


class Vertex(NamedTuple):
    """A device or switch.

    Attributes:
        name: Name in the links: ``gpu0``; in a job also ``3/gpu0`` (of rank 3) and ``node1:pcie0`` (of a
            host).
        host: Its host, as facts name it: empty for the host of the first rank.
        device: Its name on that host, as facts name it.
    """

    name: str
    host: str
    device: str


def whole(name: str) -> str:
    """The name of a vertex without the part of it that a link enters or leaves (``pcie0 up``)."""
    return name.partition(" ")[0]


class MachineVertices:
    """The vertices of one machine."""

    def __init__(self, machine: Machine) -> None:
        self._links = machine.links
        self._gpu_names = {gpu.name for gpu in machine.gpus}
        self._other_kinds = set(machine.others)
        self._node_names = {node.name for node in machine.numa}
        self._rank_devices = {rank.device for rank in machine.ranks}
        first = machine.ranks[0].host if machine.ranks else ""
        self._ranks = {str(rank.index): rank.host if rank.host != first else "" for rank in machine.ranks}
        self._hosts = {rank.host: self._ranks[str(rank.index)] for rank in machine.ranks}

    def of(self, name: str) -> Vertex:
        """The vertex with a name in the links."""
        rank, slash, device = name.partition("/")
        if slash:
            return Vertex(name, self._ranks.get(rank, ""), device)
        host, colon, device = name.partition(":")
        if colon and host in self._hosts:
            return Vertex(name, self._hosts[host], device)
        return Vertex(name, "", name)

    @property
    def hosts(self) -> frozenset[str]:
        """The hosts of the ranks, as facts name them; empty without ranks."""
        return frozenset(self._hosts.values())

    def is_node(self, name: str) -> bool:
        """Whether a vertex is a NUMA node."""
        return self.of(name).device in self._node_names

    def kind(self, name: str) -> DeviceKind | None:
        """The kind of a device; None for a switch."""
        parsed = parse(self.of(name).device)
        return parsed[0] if parsed else None

    def is_other(self, name: str) -> bool:
        """Whether a vertex is a device of a kind that another package adds."""
        kind = self.kind(name)
        return kind is not None and kind.name in self._other_kinds

    @cached_property
    def others(self) -> tuple[Vertex, ...]:
        """The devices of kinds that other packages add."""
        with_memory = (link.source for link in self._links if link.kind is LinkKind.MEMORY)
        return tuple(self.of(name) for name in with_memory if self.is_other(name))

    @cached_property
    def gpus(self) -> tuple[Vertex, ...]:
        """The GPUs of all hosts."""
        names = (self._gpu_names | self._rank_devices) - self._node_names
        with_memory = (self.of(link.source) for link in self._links if link.kind is LinkKind.MEMORY)
        return tuple(vertex for vertex in with_memory if vertex.device in names)

    @cached_property
    def nodes(self) -> tuple[Vertex, ...]:
        """The NUMA nodes of all hosts, the first host first."""
        ends = sorted({end for link in self._links for end in link.ends})
        others = (end for end in ends if is_host(self.of(end).device))
        return tuple(map(self.of, dict.fromkeys((*sorted(self._node_names), *others))))

    def gpus_at(self, place: str) -> tuple[Vertex, ...]:
        """The GPUs that a place is about: itself, those below a switch, or all without a place."""
        known = {vertex.name: vertex for vertex in self.gpus}
        if not place:
            return self.gpus
        if place in known:
            return (known[place],)
        return tuple(
            known[link.destination]
            for link in self._links
            if link.source == place and link.destination in known
        )


def nvlinks_of(machine: Machine, device: str) -> int:
    """The number of NVLinks that a GPU has: as many as the rate of its links makes; 0 if unknown.

    Bridges connect fewer than the GPU has.
    """
    models = {gpu.name: gpu for gpu in machine.gpus}
    major = models[device].compute_capability.partition(".")[0] if device in models else ""
    most, rate = _NVLINKS.get(major, (0, 1.0))
    vertices = MachineVertices(machine)
    rates: dict[str, float] = {}
    for link in machine.links:
        if link.kind is LinkKind.NVLINK and link.capacity and vertices.of(link.source).device == device:
            rates[link.source] = rates.get(link.source, 0.0) + link.capacity
    found = next(iter(rates.values()), 0.0)  # of the first rank with a device of this name
    return min(most, max(1, round(found / rate))) if found else most


@dataclass(frozen=True)
class Demand:
    """Resources that one byte per second of a flow's payload takes, and the flow's own cap.

    Attributes:
        weights: Resource -> units taken per unit of payload. A resource is the index of a link.
        cap: Maximum rate of the flow, in payload per second.
    """

    weights: Mapping[int, float]
    cap: float = math.inf


def fair_shares(demands: Sequence[Demand], capacities: Mapping[int, float]) -> list[float]:
    """The max-min fair rate of each flow, in payload per second.

    The rates of all flows rise together. A flow stops at its own cap, or when a resource that it uses is
    exhausted; the others continue (progressive filling: Bertsekas and Gallager, *Data Networks*, section
    6.5.2). A resource without a capacity does not limit.
    """
    if len(demands) == 1:  # nothing to share, and by far the most common case
        weights = demands[0].weights.items()
        fastest = (max(0.0, capacities[r]) / w for r, w in weights if w > 0 and r in capacities)
        return [min(demands[0].cap, min(fastest, default=math.inf))]
    rates = [0.0] * len(demands)
    used = [[(r, w) for r, w in demand.weights.items() if w > 0 and r in capacities] for demand in demands]
    left = {r: capacities[r] for flow in used for r, _ in flow}
    active = list(range(len(demands)))
    while active:
        load: dict[int, float] = {}
        for flow in active:
            for resource, weight in used[flow]:
                load[resource] = load.get(resource, 0.0) + weight
        step = min([max(0.0, left[r]) / w for r, w in load.items()], default=math.inf)
        step = min([step, *[demands[flow].cap - rates[flow] for flow in active]])
        if step == math.inf:
            for flow in active:
                rates[flow] = math.inf
            break
        for flow in active:
            rates[flow] += step
        for resource, weight in load.items():
            left[resource] -= step * weight
        spent = {r for r in load if left[r] <= 1e-9 * capacities[r]}
        rising = [
            flow
            for flow in active
            if rates[flow] < demands[flow].cap * (1 - 1e-12) and spent.isdisjoint([r for r, _ in used[flow]])
        ]
        if len(rising) == len(active):  # rounding left a tiny amount of a resource
            break
        active = rising
    return rates


def completions(
    demands: Sequence[Demand], capacities: Mapping[int, float], amounts: Sequence[float]
) -> list[float]:
    """When each of several flows ends that share resources, in s; infinite if it never ends.

    Args:
        demands: What each flow takes.
        capacities: Capacity of each resource.
        amounts: Payload of each flow; infinite for a flow that runs as long as the others.
    """
    left, ends = list(amounts), [math.inf] * len(demands)
    waiting = {i for i, amount in enumerate(amounts) if amount < math.inf}
    clock = 0.0
    while waiting:
        running = [i for i, end in enumerate(ends) if end == math.inf]
        rates = dict(zip(running, fair_shares([demands[i] for i in running], capacities), strict=True))
        durations = {i: left[i] / rate for i, rate in rates.items() if i in waiting and rate > 0}
        step = min(durations.values(), default=math.inf)
        if step == math.inf:  # what is left never ends
            break
        clock += step
        for i, duration in durations.items():
            left[i] -= step * rates[i]
            if duration <= step * (1 + 1e-9):
                ends[i] = clock
                waiting.discard(i)
    return ends


#: Cost of a hop in the choice of a route; 10 for the kinds that are not listed.
_HOP_COST = {LinkKind.NVLINK: 1, LinkKind.C2C: 3, LinkKind.NETWORK: 100}


class Network:
    """The links of a Machine as a graph; resources are link indices.

    Attributes:
        machine, links: The Machine and its links.
        memories: Vertex -> the link of its memory.
    """

    def __init__(self, machine: Machine) -> None:
        self.machine = machine
        self.links = machine.links
        vertices, attached = MachineVertices(machine), {device.name for device in machine.attached}
        #: Vertices that forward nothing.
        self._attached = {
            link.source for link in machine.links if vertices.of(link.source).device in attached
        }
        self.memories: dict[str, int] = {}
        self._out: dict[str, list[int]] = {}
        by_ends: dict[tuple[str, str, LinkKind], int] = {}
        for i, link in enumerate(machine.links):
            if link.source == link.destination:
                self.memories[link.source] = i
            else:
                self._out.setdefault(link.source, []).append(i)
                if whole(link.source) != whole(link.destination):
                    by_ends[whole(link.source), whole(link.destination), link.kind] = i
        self._opposite = {
            i: by_ends.get((whole(link.destination), whole(link.source), link.kind))
            for i, link in enumerate(machine.links)
        }
        self._routes: dict[str, dict[str, int]] = {}
        self._known_steps: dict[tuple[str, str, str, Operation, bool], list[tuple[int, int]]] = {}
        self._capacities: dict[int, float] = {
            i: link.capacity for i, link in enumerate(machine.links) if link.capacity is not None
        }

    def unknown_memory(self, vertex: str) -> int | None:
        """The link of the memory at a vertex, if its capacity is unknown."""
        link = self.memories.get(vertex)
        return None if link in self._capacities else link

    def capacities(self) -> Mapping[int, float]:
        """The capacity of every link with a known capacity, in B/s."""
        return self._capacities

    def joined_by(self, source: str, destination: str) -> set[LinkKind]:
        """The kinds of links on the way from one GPU to another; empty if there is none."""
        ends = [self.machine.vertex(Executor(name)) for name in (source, destination)]
        try:
            return {self.machine.links[i].kind for i in self.route(*ends)}
        except MachineError:
            return set()

    def route(self, source: str, destination: str) -> tuple[int, ...]:
        """The links of the best path between two vertices; empty if they are the same.

        Links made for data between devices are preferred to PCIe, and PCIe to a network. Data between sockets
        takes the links of the sockets, not of GPUs.

        Raises:
            MachineError: If there is no path.
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
        """The link on which the best path arrives at each vertex in reach; devices forward nothing."""
        arrived_by: dict[str, int] = {}
        costs = {source: 0}
        waiting = [(0, source)]
        while waiting:
            cost, vertex = heapq.heappop(waiting)
            forwards = vertex == source or vertex not in self._attached
            for i in self._out.get(vertex, ()) if forwards and cost == costs[vertex] else ():
                link = self.links[i]
                further = cost + _HOP_COST.get(link.kind, 10)
                if further < costs.get(link.destination, further + 1):
                    costs[link.destination], arrived_by[link.destination] = further, i
                    heapq.heappush(waiting, (further, link.destination))
        return arrived_by

    def ends(self, transfer: Transfer) -> tuple[str, str, str]:
        """The vertices of a transfer's source, executor and destination."""
        vertex = self.machine.vertex
        return vertex(transfer.source), vertex(transfer.executor), vertex(transfer.destination)

    def demand(self, transfer: Transfer, rates: Sequence[EngineRate] = ()) -> Demand:
        """What a transfer takes of the links per byte of one buffer.

        Data goes from the source to the executor and on to the destination; it is read from one memory and
        written to the other. Without ``rates``, every link carries only payload.
        """
        engine, access, weights, cap = transfer.engine, transfer.access, dict[int, float](), math.inf
        for link, times in self._steps(transfer):
            rate = rate_of(rates, engine, self.links[link].kind, access)
            weights[link] = weights.get(link, 0.0) + times / rate.efficiency
            opposite = self._opposite[link]
            if rate.reverse and opposite is not None and opposite != link:
                weights[opposite] = weights.get(opposite, 0.0) + times * rate.reverse
            if rate.cap is not None:
                threads = max(1, len(transfer.executor.cpus)) if engine is Engine.CPU else 1
                cap = min(cap, rate.cap * threads / max(1, sum(BUFFERS[transfer.operation]) - 1))
            if rate.block_cap is not None and transfer.executor.blocks:
                cap = min(cap, rate.block_cap * transfer.executor.blocks)
        return Demand(weights, cap)

    def _steps(self, transfer: Transfer) -> list[tuple[int, int]]:
        """The links of a transfer, and how often each byte of one buffer passes them."""
        key = *self.ends(transfer), transfer.operation, transfer.engine is Engine.SM_SPLIT
        if (known := self._known_steps.get(key)) is not None:
            return known
        source, executor, destination, operation, split = key
        reads, writes = BUFFERS[operation]
        steps: list[tuple[int, int]] = []
        ways = [(source, destination), (destination, source)]
        for start, end in ways if split else ways[:1]:
            memories = (self.memories.get(start), reads), (self.memories.get(end), writes)
            steps += [(link, times) for link, times in memories if link is not None]
            steps += [(link, 1) for link in (*self.route(start, executor), *self.route(executor, end))]
        self._known_steps[key] = steps
        return steps

    def latency(self, transfer: Transfer) -> float:
        """The time of a dependent load by a chase's executor, without caches, in s.

        Raises:
            MachineError: If a link on the path has no latency.
        """
        source, executor, _ = self.ends(transfer)
        way = self.route(executor, source)
        if source in self.memories:
            way = (*way, self.memories[source])
        total = 0.0
        for i in way:
            link = self.links[i]
            if link.latency is None:
                raise MachineError(
                    f"machine {self.machine.name!r} has no latency for {link.source}->{link.destination}"
                )
            total += link.latency
        return total


#: What an engine without a record does: every link carries only payload.
_LINE_RATE = EngineRate(Engine.CPU, LinkKind.MEMORY)


def rate_of(rates: Sequence[EngineRate], engine: Engine, link: LinkKind, access: Access) -> EngineRate:
    """How an engine uses links of a kind for an access; the first matching record."""
    for rate in rates:
        if rate.engine is engine and rate.link is link and rate.access in (None, access):
            return rate
    return _LINE_RATE
