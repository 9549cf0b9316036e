"""A simulated cluster: nodes with rails, leaf switches, spines, and faults, in virtual time; the text behind
``--machine`` describes it.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np

from ...errors import MachineError
from ...hardware.facts import Fact, Facts
from ...qualification import EndMemory, PartKind, QualifiedNode, RailLimit
from . import cluster_faults
from .cluster import Values
from .limits import fastest, of_rdma

#: Virtual durations of a round in s: own node, pairs, groups, large messages.
_OWN_S, _PAIRS_S, _GROUPS_S, _SIZES_S = 10.0, 2.0, 4.0, 1.0
#: Bandwidth of the memory of a GPU, or of a host without GPUs, and between host and GPU, in bytes per second.
_OWN_PEAK, _HOST_LINK = 1.3e12, 25e9


@dataclass
class SimulatedCluster:
    """Nodes whose paths are as fast as their slowest part.

    A path from node a to node b in a rail leads through a's node, NIC and cable, a's leaf switch, the trunks
    of both blocks and a spine switch if they differ, b's leaf switch, and b's cable, NIC and node. Which
    spine switch that is depends on both nodes and the rail, as the hash of a router does.

    Attributes:
        count: Number of nodes.
        block: Number of nodes of a block; 0 if it is unknown who shares a switch.
        rails: Number of rails.
        spines: Number of spine switches of a rail.
        peak: Bandwidth of a rail in one direction, in bytes per second.
        noise: Relative standard deviation of each value.
        faults: What is slow.
        missing: Nodes that do not answer.
        transient: Probability that a value is half of what it should be, only this time.
        seed: Seed of the noise.
        model, machine: Model of the GPUs, and name of the simulated machine that each node is.
        has_gpus: Whether the nodes have a GPU for each rail; else their host memory is measured.
        nic: The NIC of each rail.
        causes: Faults that the facts of a node show.

    """

    count: int
    block: int = 32
    rails: int = 8
    peak: float = 46e9
    noise: float = 0.01
    faults: tuple[cluster_faults.ClusterFault, ...] = ()
    missing: frozenset[int] = frozenset()
    transient: float = 0.0
    seed: int = 0
    model: str = ""
    spines: int = 4
    machine: str = ""
    has_gpus: bool = True
    transport: str = "simulated"
    notes: tuple[str, ...] = ()
    doubts: tuple[str, ...] = ()
    variation: float = 0.0
    losses: Values = field(default_factory=lambda: np.zeros((0, 2)))
    nic: cluster_faults.NicModel = cluster_faults.ONE_ENDPOINT
    causes: tuple[cluster_faults.NodeFault, ...] = ()
    nodes: tuple[QualifiedNode, ...] = field(init=False)
    _examined: tuple[int, ...] = field(init=False, default=())

    def __post_init__(self) -> None:
        self._random = np.random.default_rng([self.seed, 1])
        self._passed = 0.0
        self._examined = (0, 1) if self.count == 2 else ()
        self.blocks = np.arange(self.count) // (self.block or self.count)
        self.nodes = tuple(
            QualifiedNode(
                f"node{i}", f"block{block}" if self.block else "", self.model, self.rails,
                "does not answer" if i in self.missing else "",
            )
            for i, block in enumerate(self.blocks.tolist())
        )  # fmt: skip
        blocks = int(self.blocks[-1]) + 1
        self._own = np.ones((self.count, self.rails if self.has_gpus else 1))
        self._host_links, self._sends, self._receives, self._of_gpus, self._both = (
            np.ones((self.count, self.rails)) for _ in range(5)
        )
        self._leaf, self._trunk = (np.ones((blocks, self.rails)) for _ in range(2))
        self._spine = np.ones((self.spines, self.rails))
        for cause in self.causes:
            factor = cluster_faults.factor_of(cause.fault, cause.amount, self.nic)
            at = slice(None) if cause.node < 0 else cause.node
            for speed in (self._of_gpus,) if cause.fault.of_gpus else (self._sends, self._receives):
                speed[at] *= factor
        parts = {
            PartKind.GPU: self._own, PartKind.MEMORY: self._own, PartKind.HOST_LINK: self._host_links,
            PartKind.LEAF: self._leaf, PartKind.TRUNK: self._trunk, PartKind.SPINE: self._spine,
        }  # fmt: skip
        for fault in self.faults:
            rail = slice(None) if fault.kind is PartKind.NODE or fault.rail < 0 else fault.rail
            where = slice(None) if fault.where < 0 else fault.where
            if fault.both:
                speeds = [self._both]
            elif fault.kind is PartKind.CABLE:
                speeds = [self._sends if fault.sends else self._receives]
            else:
                speeds = [parts[fault.kind]] if fault.kind in parts else [self._sends, self._receives]
            for speed in speeds:
                speed[where, rail] *= fault.factor

    @property
    def memories(self) -> tuple[EndMemory, ...]:
        """Between which memory messages are measured."""
        return (EndMemory.GPU, EndMemory.HOST) if self.has_gpus else (EndMemory.HOST,)

    @property
    def facts(self) -> tuple[Fact, ...]:
        """The facts that two nodes report."""
        return tuple(fact for node in self._examined for fact in self._facts_of(node))

    def examine(self, pair: tuple[int, int]) -> None:
        self._examined = pair

    def _facts_of(self, node: int) -> tuple[Fact, ...]:
        of_node = cluster_faults.facts_of({node: self.nodes[node].name}, self.nic, self.rails, self.causes)
        return tuple(fact.checked() for fact in of_node)

    @cached_property
    def limits(self) -> tuple[RailLimit, ...]:
        """The limits of the rails of each node."""
        special = {cause.node for cause in self.causes} - {-1}
        usual = next((node for node in range(self.count) if node not in special), 0)
        known = {node: Facts(self._facts_of(node), self.nodes[node].name) for node in {usual, *special}}
        best = fastest((facts, ()) for facts in known.values())
        return tuple(
            limit
            for i in range(self.count)
            for limit in of_rdma(i, known[i if i in special else usual], self.rails, (), best)
        )

    def own(self, nodes: Sequence[int]) -> Mapping[PartKind, Values]:
        self._passed += _OWN_S
        groups = [[node] for node in nodes]
        own = self._measured(self._own[list(nodes)] * _OWN_PEAK, groups)
        if not self.has_gpus:
            return {PartKind.MEMORY: own}
        links = self._measured(self._host_links[list(nodes)] * _HOST_LINK, groups)
        return {PartKind.GPU: own, PartKind.HOST_LINK: links}

    def pairs(self, pairs: Sequence[tuple[int, int]]) -> Values:
        self._passed += _PAIRS_S
        a, b = np.array(pairs, dtype=int).reshape(-1, 2).T
        return self._measured(self._of_memory(a, b, self.memories[0]) * self.peak, pairs)

    def sizes(self, pair: tuple[int, int], memory: EndMemory, both: bool, sizes: Sequence[int]) -> Values:
        self._passed += _SIZES_S
        a, b = np.array([pair[0]]), np.array([pair[1]])
        speeds = self._of_memory(a, b, memory)
        if both:
            speeds = np.minimum(speeds, np.minimum(self._both[a], self._both[b])[:, None])
        return self._measured(np.repeat(speeds * self.peak, len(sizes), axis=0), [pair] * len(sizes))

    def _of_memory(self, a: np.ndarray, b: np.ndarray, memory: EndMemory) -> Values:
        """Speeds between nodes of a and of b and back, from a kind of memory; shape (pairs, 2, rails)."""
        speeds = np.stack([self.speeds(a, b), self.speeds(b, a)], axis=1)
        if memory is EndMemory.GPU:
            speeds = np.minimum(speeds, np.minimum(self._of_gpus[a], self._of_gpus[b])[:, None])
        return np.asarray(speeds)

    def groups(self, groups: Sequence[Sequence[int]]) -> Values:
        """An all_reduce is as fast as the slowest path of its rings, times the number of rails."""
        self._passed += _GROUPS_S
        slowest = [float(self.speeds(np.array(group), np.roll(np.array(group), 1)).min()) for group in groups]
        return self._measured(np.array(slowest) * self.peak * self.rails, groups)

    def seconds(self) -> float:
        return self._passed

    def speeds(self, a: np.ndarray, b: np.ndarray) -> Values:
        """Speed of each path from a node of a to that of b; shape (paths, rails)."""
        at, to = self.blocks[a], self.blocks[b]
        speeds = np.minimum(self._sends[a], self._receives[b])
        speeds = np.minimum(speeds, np.minimum(self._leaf[at], self._leaf[to]))
        rails = np.arange(self.rails)
        # Odd factors spread the pairs of nodes over the spine switches.
        mixed = (a * 2654435761 + b * 2246822519)[:, None] + rails * 3266489917
        spine = self._spine[(mixed >> 13) % self.spines, rails]
        across = np.minimum(np.minimum(self._trunk[at], self._trunk[to]), spine)
        crossing = (at != to)[:, None]
        return np.asarray(np.where(crossing, np.minimum(speeds, across), speeds))

    def _measured(self, exact: Values, groups: Sequence[Sequence[int]]) -> Values:
        values = exact * np.exp(self._random.normal(0, self.noise, exact.shape)) if self.noise else exact
        if self.transient:
            values = np.where(self._random.random(exact.shape) < self.transient, values / 2, values)
        if self.missing:
            gone = [not self.missing.isdisjoint(group) for group in groups]
            values = np.where(np.reshape(gone, (-1,) + (1,) * (exact.ndim - 1)), np.nan, values)
        return values


#: Nodes of a block of a simulated cluster of many nodes, and of one with few.
_BLOCK, _SMALL_BLOCK = 32, 8
#: Maximum number of nodes of a simulated cluster.
_MOST_NODES = 16384
#: Spine switches of a rail, and relative standard deviation of a value.
_SPINES, _NOISE = 4, 0.01


@dataclass(frozen=True)
class _NamedCluster:
    """A cluster with a name.

    Attributes:
        machine: Name of the simulated machine that each node is.
        count: Number of nodes.
        peak: Bandwidth of a rail in one direction, in bytes per second.
        nic: The NIC of each rail.
    """

    machine: str
    count: int
    peak: float = 46e9
    nic: cluster_faults.NicModel = cluster_faults.ONE_ENDPOINT


#: Clusters with names, whose nodes share no switch that is known.
_CLUSTERS = {"dgx-spark-2": _NamedCluster("dgx-spark", 2, 23e9, cluster_faults.SPARK)}


def parse_cluster(spec: str, *, seed: int = 0) -> SimulatedCluster | None:
    """The cluster of a text such as ``dgx-a100-8x64+nic=0.5@node17.3+noise=3%``; None for one machine.

    Args:
        spec: Name of a machine and number of nodes; then faults.
        seed: Seed of the noise.

    Raises:
        MachineError: If there is no such fault or place, or too many nodes.
    """
    from ...backends.simulated.machines import MACHINES
    from ...units import parse_fraction

    name, *suffixes = spec.split("+")
    cluster = _CLUSTERS.get(name)
    if cluster is None:
        match = re.fullmatch(r"(.+)x(\d{1,5})", name)
        if match is None or match[1] not in MACHINES:
            return None
        cluster = _NamedCluster(match[1], int(match[2]))
    count = cluster.count
    if not 2 <= count <= _MOST_NODES:
        raise MachineError(f"a simulated cluster has 2 to {_MOST_NODES} nodes, not {count}")
    machine = MACHINES[cluster.machine]()
    has_gpus, rails = bool(machine.gpus), max(1, len(machine.gpus))
    names = [f"node{i}" for i in range(count)]
    size = 0 if name in _CLUSTERS else _BLOCK if count > 128 else _SMALL_BLOCK
    switches = [f"block{i}" for i in range(math.ceil(count / size))] if size else [""]
    faults, causes, missing, noise = [], [], set(), _NOISE
    for text in suffixes:
        if text.startswith("noise="):
            noise = parse_fraction(text.removeprefix("noise="))
        elif lost := re.fullmatch(r"lost@(.+)", text):
            if lost[1] not in names:
                raise MachineError(f"the fault {text!r} has no place: write {names[0]} to {names[-1]}")
            missing.add(names.index(lost[1]))
        elif cause := cluster_faults.parse_node_fault(text, names, cluster.nic, rails, has_gpus=has_gpus):
            causes.append(cause)
        else:
            faults.append(cluster_faults.parse_cluster_fault(text, names, switches, rails, _SPINES, has_gpus))
    return SimulatedCluster(
        count, size, rails, peak=cluster.peak, noise=noise, faults=tuple(faults),
        missing=frozenset(missing), seed=seed, model=machine.gpus[0].model if has_gpus else "",
        machine=cluster.machine, has_gpus=has_gpus,
        nic=replace(cluster.nic, gbits=cluster.peak * 8e-9 / cluster_faults.OF_PORT), causes=tuple(causes),
    )  # fmt: skip
