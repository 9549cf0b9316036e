"""A simulated cluster: nodes with rails, leaf switches, spines, and faults, in virtual time."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from ..qualification import OWN_PARTS, PartKind, QualifiedNode
from .cluster import Values

#: Virtual durations of a round in s: own node, pairs, groups, latencies.
_OWN_S, _PAIRS_S, _GROUPS_S, _LATENCIES_S = 10.0, 2.0, 4.0, 0.1
#: Bandwidth between host and GPU, in bytes per second.
_HOST_LINK = 25e9
#: Round trips of a leaf switch, and of paths through spines, in s.
_NEAR_S, _FAR_S = 4e-6, 7e-6


@dataclass(frozen=True)
class ClusterFault:
    """A fault of a simulated cluster.

    Attributes:
        kind: What is slow.
        where: Index of the node, of the block of a leaf switch or trunk, or of the spine switch.
        rail: Its rail; of a GPU, its index; not used for nodes. Of a spine switch: -1 for all rails.
        factor: Factor of its bandwidth.
        sends: Of a cable: whether what the node sends is slow, or what it receives.
    """

    kind: PartKind
    where: int
    rail: int = 0
    factor: float = 0.5
    sends: bool = True


@dataclass
class SimulatedCluster:
    """Nodes whose paths are as fast as their slowest part.

    A path from node a to node b in a rail leads through a's node, NIC and cable, a's leaf switch, the trunks
    of both blocks and a spine switch if they differ, b's leaf switch, and b's cable, NIC and node. Which
    spine switch that is depends on both nodes and the rail, as the hash of a router does.

    Attributes:
        count: Number of nodes.
        block: Number of nodes of a block.
        rails: Number of rails.
        spines: Number of spine switches of a rail.
        names, blocks_of: Name and block of each node; by default ``node0`` and ``block0``, of ``block`` nodes
            each.
        peak, own_peak: Bandwidth of a rail in one direction, and of a GPU's memory (without GPUs: of the
            host's), in bytes per second.
        noise: Relative standard deviation of each value.
        faults: What is slow.
        missing: Nodes that do not answer.
        transient: Probability that a value is half of what it should be, only this time.
        seed: Seed of the noise.
        model, machine: Model of the GPUs, and name of the simulated machine that each node is.
        has_gpus: Whether the nodes have a GPU for each rail; else their host memory is measured.
        spares: Number of nodes at the end that are spares.

    Attributes:
        tests: Number of nodes, pairs and groups that were measured.
    """

    count: int
    block: int = 32
    rails: int = 8
    peak: float = 46e9
    own_peak: float = 1.3e12
    noise: float = 0.01
    faults: tuple[ClusterFault, ...] = ()
    missing: frozenset[int] = frozenset()
    transient: float = 0.0
    seed: int = 0
    model: str = ""
    spares: int = 0
    spines: int = 4
    names: tuple[str, ...] = ()
    blocks_of: tuple[str, ...] = ()
    machine: str = ""
    has_gpus: bool = True
    transport: str = "simulated"
    limit: float = 0.0
    notes: tuple[str, ...] = ()
    doubts: tuple[str, ...] = ()
    variation: float = 0.0
    losses: Values = field(default_factory=lambda: np.zeros((0, 2)))
    nodes: tuple[QualifiedNode, ...] = field(init=False)
    tests: int = field(init=False, default=0)

    def __post_init__(self) -> None:
        self._random = np.random.default_rng([self.seed, 1])
        self._passed = 0.0
        names = self.names or node_names(self.count)
        blocks_of = self.blocks_of or block_names(self.count, self.block)
        number = {name: i for i, name in enumerate(dict.fromkeys(blocks_of))}
        self.blocks = np.array([number[name] for name in blocks_of])
        self.nodes = tuple(
            QualifiedNode(
                names[i], blocks_of[i], self.model, self.rails, i >= self.count - self.spares,
                "does not answer" if i in self.missing else "",
            )
            for i in range(self.count)
        )  # fmt: skip
        blocks = int(self.blocks[-1]) + 1
        self._own = np.ones((self.count, self.rails if self.has_gpus else 1))
        self._host_links = np.ones((self.count, self.rails))
        self._sends = np.ones((self.count, self.rails))
        self._receives = np.ones((self.count, self.rails))
        self._leaf = np.ones((blocks, self.rails))
        self._trunk = np.ones((blocks, self.rails))
        self._spine = np.ones((self.spines, self.rails))
        for fault in self.faults:
            rail = slice(None) if fault.kind is PartKind.NODE or fault.rail < 0 else fault.rail
            for part, speed in (
                (PartKind.GPU, self._own), (PartKind.LEAF, self._leaf), (PartKind.TRUNK, self._trunk),
                (PartKind.SPINE, self._spine), (PartKind.MEMORY, self._own),
                (PartKind.HOST_LINK, self._host_links),
            ):  # fmt: skip
                if fault.kind is part:
                    speed[fault.where, rail] *= fault.factor
            both = fault.kind in (PartKind.NODE, PartKind.NIC)
            if both or (fault.kind is PartKind.CABLE and fault.sends):
                self._sends[fault.where, rail] *= fault.factor
            if both or (fault.kind is PartKind.CABLE and not fault.sends):
                self._receives[fault.where, rail] *= fault.factor

    def own(self, nodes: Sequence[int]) -> Mapping[PartKind, Values]:
        self._passed += _OWN_S
        groups = [[node] for node in nodes]
        own = self._measured(self._own[list(nodes)] * self.own_peak, groups)
        if not self.has_gpus:
            return {PartKind.MEMORY: own}
        links = self._measured(self._host_links[list(nodes)] * _HOST_LINK, groups)
        return {PartKind.GPU: own, PartKind.HOST_LINK: links}

    def latencies(self, pairs: Sequence[tuple[int, int]]) -> Values:
        self._passed += _LATENCIES_S
        a, b = np.array(pairs, dtype=int).reshape(-1, 2).T
        exact = np.where(self.blocks[a] == self.blocks[b], _NEAR_S, _FAR_S)
        return self._measured(exact, pairs)

    def pairs(self, pairs: Sequence[tuple[int, int]]) -> Values:
        self._passed += _PAIRS_S
        a, b = np.array(pairs, dtype=int).reshape(-1, 2).T
        speeds = np.stack([self._speeds(a, b), self._speeds(b, a)], axis=1)
        return self._measured(speeds * self.peak, pairs)

    def groups(self, groups: Sequence[Sequence[int]]) -> Values:
        """An all_reduce is as fast as the slowest path of its rings, times the number of rails."""
        self._passed += _GROUPS_S
        slowest = [
            float(self._speeds(np.array(group), np.roll(np.array(group), 1)).min()) for group in groups
        ]
        return self._measured(np.array(slowest) * self.peak * self.rails, groups)

    def seconds(self) -> float:
        return self._passed

    def is_masked(self, fault: ClusterFault) -> bool:
        """Whether other faults hide a fault on all of its paths: no measurement can find it."""
        others = tuple(other for other in self.faults if other is not fault)
        without = SimulatedCluster(
            self.count, self.block, self.rails, faults=others, spines=self.spines, blocks_of=self.blocks_of
        )
        if fault.kind in OWN_PARTS:
            return False
        of_block = fault.kind in (PartKind.LEAF, PartKind.TRUNK)
        inside = (
            np.arange(self.count)
            if fault.kind is PartKind.SPINE
            else np.flatnonzero(self.blocks == fault.where)
            if of_block
            else np.array([fault.where])
        )
        a, b = np.repeat(inside, self.count), np.tile(np.arange(self.count), len(inside))
        a, b = a[a != b], b[a != b]
        return all(np.array_equal(self._speeds(*ends), without._speeds(*ends)) for ends in ((a, b), (b, a)))

    def _speeds(self, a: np.ndarray, b: np.ndarray) -> Values:
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
        self.tests += len(groups)
        values = exact * np.exp(self._random.normal(0, self.noise, exact.shape)) if self.noise else exact
        if self.transient:
            values = np.where(self._random.random(exact.shape) < self.transient, values / 2, values)
        if self.missing:
            gone = [not self.missing.isdisjoint(group) for group in groups]
            values = np.where(np.reshape(gone, (-1,) + (1,) * (exact.ndim - 1)), np.nan, values)
        return values


def node_names(count: int) -> tuple[str, ...]:
    """Names of the nodes of a simulated cluster."""
    return tuple(f"node{i}" for i in range(count))


def block_names(count: int, size: int) -> tuple[str, ...]:
    """The block of each node of a simulated cluster whose blocks have a number of nodes."""
    return tuple(f"block{i // size}" for i in range(count))
