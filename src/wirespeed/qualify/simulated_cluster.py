"""A simulated cluster: nodes with rails, leaf switches, spines, and faults, in virtual time."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from ..errors import MachineError
from ..qualification import PartKind, QualifiedNode
from .cluster import Values

#: Words of faults in the name of a machine, e.g. ``nic=0.5@node17.3``.
_KINDS = {
    "node": PartKind.NODE, "gpu": PartKind.GPU, "nic": PartKind.NIC, "cable": PartKind.CABLE,
    "leaf": PartKind.LEAF, "trunk": PartKind.TRUNK,
}  # fmt: skip
#: Virtual durations of a round in s: own node, pairs, groups, latencies.
_OWN_S, _PAIRS_S, _GROUPS_S, _LATENCIES_S = 10.0, 2.0, 4.0, 0.1
#: Round trips of a leaf switch, and of paths through spines, in s.
_NEAR_S, _FAR_S = 4e-6, 7e-6


@dataclass(frozen=True)
class ClusterFault:
    """A fault of a simulated cluster.

    Parameters
    ----------
    kind : PartKind
        What is slow.
    where : int
        Index of the node, or of the block of a switch or trunk.
    rail : int
        Its rail; of a GPU, its index; not used for nodes.
    factor : float
        Factor of its bandwidth.
    sends : bool
        Of a cable: whether what the node sends is slow, or what it receives.
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
    of both blocks if they differ, b's leaf switch, and b's cable, NIC and node.

    Parameters
    ----------
    count : int
        Number of nodes.
    block : int
        Number of nodes of a block.
    rails : int
        Number of rails.
    peak, own_peak : float
        Bandwidth of a rail in one direction, and of a GPU's memory, in bytes per second.
    noise : float
        Relative standard deviation of each value.
    faults : tuple[ClusterFault, ...]
        What is slow.
    missing : frozenset[int]
        Nodes that do not answer.
    transient : float
        Probability that a value is half of what it should be, only this time.
    seed : int
        Seed of the noise.
    model : str
        Model of the GPUs.
    spares : int
        Number of nodes at the end that are spares.

    Attributes
    ----------
    tests : int
        Number of nodes, pairs and groups that were measured.
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
    transport: str = "simulated"
    limit: float = 0.0
    notes: tuple[str, ...] = ()
    variation: float = 0.0
    losses: Values = field(default_factory=lambda: np.zeros((0, 2)))
    nodes: tuple[QualifiedNode, ...] = field(init=False)
    tests: int = field(init=False, default=0)

    def __post_init__(self) -> None:
        self._random = np.random.default_rng([self.seed, 1])
        self._passed = 0.0
        self.blocks = np.arange(self.count) // self.block
        self.nodes = tuple(
            QualifiedNode(
                f"node{i}", f"block{self.blocks[i]}", self.model, self.rails, i >= self.count - self.spares,
                "does not answer" if i in self.missing else "",
            )
            for i in range(self.count)
        )  # fmt: skip
        blocks = int(self.blocks[-1]) + 1
        self._own = np.ones((self.count, self.rails))
        self._sends = np.ones((self.count, self.rails))
        self._receives = np.ones((self.count, self.rails))
        self._leaf = np.ones((blocks, self.rails))
        self._trunk = np.ones((blocks, self.rails))
        for fault in self.faults:
            rail = slice(None) if fault.kind is PartKind.NODE else fault.rail
            for part, speed in (
                (PartKind.GPU, self._own), (PartKind.LEAF, self._leaf), (PartKind.TRUNK, self._trunk),
            ):  # fmt: skip
                if fault.kind is part:
                    speed[fault.where, rail] *= fault.factor
            both = fault.kind in (PartKind.NODE, PartKind.NIC)
            if both or (fault.kind is PartKind.CABLE and fault.sends):
                self._sends[fault.where, rail] *= fault.factor
            if both or (fault.kind is PartKind.CABLE and not fault.sends):
                self._receives[fault.where, rail] *= fault.factor

    def own(self, nodes: Sequence[int]) -> Values:
        self._passed += _OWN_S
        return self._measured(self._own[list(nodes)] * self.own_peak, [[node] for node in nodes])

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
        without = SimulatedCluster(self.count, self.block, self.rails, faults=others)
        if fault.kind is PartKind.GPU:
            return False
        of_block = fault.kind in (PartKind.LEAF, PartKind.TRUNK)
        inside = np.flatnonzero(self.blocks == fault.where) if of_block else np.array([fault.where])
        a, b = np.repeat(inside, self.count), np.tile(np.arange(self.count), len(inside))
        a, b = a[a != b], b[a != b]
        return all(np.array_equal(self._speeds(*ends), without._speeds(*ends)) for ends in ((a, b), (b, a)))

    def _speeds(self, a: np.ndarray, b: np.ndarray) -> Values:
        """Speed of each path from a node of a to that of b; shape (paths, rails)."""
        at, to = self.blocks[a], self.blocks[b]
        speeds = np.minimum(self._sends[a], self._receives[b])
        speeds = np.minimum(speeds, np.minimum(self._leaf[at], self._leaf[to]))
        across = np.minimum(self._trunk[at], self._trunk[to])
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


def parse_cluster_fault(text: str, count: int, block: int, rails: int) -> ClusterFault:
    """Parse a fault such as ``nic=0.5@node17.3``, ``leaf=0.7@block2.0`` or ``node=0.5@node3``.

    Raises
    ------
    MachineError
        If there is no such fault or place.
    """
    match = re.fullmatch(r"(\w+)=(0?\.\d{1,6})@(node|block)(\d{1,6})(?:\.(\d{1,3}))?(<-)?", text)
    kind = _KINDS.get(match[1]) if match else None
    if match is None or kind is None:
        raise MachineError(
            f"unknown fault {text!r} of a cluster; write node=0.5@node17, gpu=0.5@node17.3, "
            "nic=0.5@node17.3, cable=0.5@node17.3 (what it sends; with <- at the end: what it receives), "
            "leaf=0.5@block2.3 or trunk=0.5@block2.3, lost@node3, or noise=3%"
        )
    of_block = kind in (PartKind.LEAF, PartKind.TRUNK)
    where, rail = int(match[4]), int(match[5] or 0)
    places = -(-count // block) if of_block else count
    if of_block != (match[3] == "block") or where >= places or rail >= rails:
        name = "block" if of_block else "node"
        raise MachineError(
            f"the fault {text!r} has no place: write {name}0 to {name}{places - 1}, with .0 to .{rails - 1} "
            "for the rail"
        )
    return ClusterFault(kind, where, rail, float(match[2]), not match[6])


#: Nodes of a block of a simulated cluster of many nodes, and of one with few.
_BLOCK, _SMALL_BLOCK = 32, 8


def parse_cluster(spec: str, *, seed: int = 0, spares: int = 0) -> SimulatedCluster | None:
    """The cluster of a text such as ``dgx-a100-8x64+nic=0.5@node17.3+noise=3%``; None for one machine.

    Raises
    ------
    MachineError
        If there is no such machine, fault or place.
    """
    from ..backends.simulated.machines import MACHINES
    from ..units import parse_fraction

    name, *suffixes = spec.split("+")
    match = re.fullmatch(r"(.+)x(\d{1,5})", name)
    if match is None or match[1] not in MACHINES:
        return None
    machine, count = MACHINES[match[1]](), int(match[2])
    if not 2 <= count <= _MOST_NODES:
        raise MachineError(f"a simulated cluster has 2 to {_MOST_NODES} nodes, not {count}")
    if not 0 <= spares < count:
        raise MachineError(f"of {count} nodes, 0 to {count - 1} can be spares, not {spares}")
    block, rails = _BLOCK if count > 128 else _SMALL_BLOCK, max(1, len(machine.gpus))
    faults, missing, noise = [], set(), 0.01
    for text in suffixes:
        if text.startswith("noise="):
            noise = parse_fraction(text.removeprefix("noise="))
        elif lost := re.fullmatch(r"lost@node(\d{1,6})", text):
            if int(lost[1]) >= count:
                raise MachineError(f"the fault {text!r} has no place: write node0 to node{count - 1}")
            missing.add(int(lost[1]))
        else:
            faults.append(parse_cluster_fault(text, count, block, rails))
    model = machine.gpus[0].model if machine.gpus else ""
    return SimulatedCluster(
        count, block, rails, noise=noise, faults=tuple(faults), missing=frozenset(missing), seed=seed,
        model=model, spares=spares,
    )  # fmt: skip


#: Maximum number of nodes of a simulated cluster.
_MOST_NODES = 16384
