"""Devices and switches of a machine, with their hosts. No other module reads the names of vertices."""

from __future__ import annotations

from functools import cached_property
from typing import NamedTuple

from .devices import is_host, parse
from .devices.kind import DeviceKind
from .topology import LinkKind, Machine

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
        """The NUMA nodes of all hosts, those of the first host first."""
        ends = sorted({end for link in self._links for end in (link.source, link.destination)})
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
