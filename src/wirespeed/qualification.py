"""Qualification: which nodes of a cluster are slow, and everything that was measured to find out. A rail is
the path of the GPUs with the same local index, each with its NIC, through the switches that join them; nodes
without GPUs have one rail. Nodes whose NICs of a rail share a leaf switch are a block.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property
from statistics import median

import msgspec

from .statistics import grouped
from .tables import Amount, Integer, Number, Whole
from .thresholds.clusters import JUDGED_SIZES, LEAST_THRESHOLD
from .units import many

#: What carries bytes between nodes by network interfaces, not by RDMA devices.
TCP = "TCP"


class Stage(StrEnum):
    """The kinds of rounds, by what they measure."""

    OWN = "own node"  #: each node by itself, all at once
    LATENCY = "latency"  #: round trips in s, which only older runs have
    PAIRS = "pairs"  #: each node with one other, all at once
    GROUPS = "groups"  #: collectives of groups of nodes, at once
    CONFIRM = "confirm"  #: suspects with nodes that are not
    SIZES = "sizes"  #: large messages between two nodes, one size after the other


class EndMemory(StrEnum):
    """Memory from which messages between nodes are sent, and in which they are received."""

    GPU = "GPU memory"
    HOST = "host memory"


class PartKind(StrEnum):
    """Kinds of parts that can be slow."""

    NODE = "node"  #: all rails of a node
    GPU = "GPU"  #: a GPU by itself, without the network
    HOST_LINK = "link to the host"  #: between the host and a GPU, in either direction
    MEMORY = "host memory"  #: of a NUMA node of a node without GPUs
    NIC = "NIC"  #: a node's rail in both directions
    LOSSY = "lossy cable"  #: a node whose packets are lost in one direction
    CABLE = "cable"  #: a node's rail in one direction
    LEAF = "leaf switch"  #: all nodes of a block in one rail
    TRUNK = "trunk"  #: all nodes of a block in one rail, but only with other blocks
    SPINE = "spine switch"  #: some of the paths between blocks, of all blocks alike
    PATH = "path"  #: between two nodes that were measured with each other only: either end
    BETWEEN = "between groups"  #: groups that are fast, but not together
    ALIKE = "rail"  #: a rail of most nodes, which are all as slow, so that none stands out


#: Parts whose nodes are in doubt: nothing shows which of them is slow.
OF_SEVERAL = (PartKind.PATH, PartKind.ALIKE)
#: Parts that slow one node, which can be left out.
OF_NODE = (
    PartKind.NODE, PartKind.GPU, PartKind.HOST_LINK, PartKind.MEMORY, PartKind.NIC, PartKind.CABLE,
)  # fmt: skip
#: Parts that a node measures by itself.
OWN_PARTS = (PartKind.GPU, PartKind.HOST_LINK, PartKind.MEMORY)
#: Slow parts of one node that its network, and so what it reports of its NICs, may explain.
BY_NETWORK = tuple(kind for kind in OF_NODE if kind not in OWN_PARTS)


class QualifiedNode(msgspec.Struct, frozen=True, omit_defaults=True):
    """A node that takes part.

    Attributes:
        name: Name of its host.
        block: Name of the leaf switch, or switches, that it shares with others; empty if unknown.
        model: Its GPUs' model; empty without GPUs.
        rails: Number of its rails.
        missing: Why it does not answer; empty if it does.
    """

    name: str
    block: str = ""
    model: str = ""
    rails: Whole = 1
    missing: str = ""


class Round(msgspec.Struct, frozen=True, omit_defaults=True):
    """What was measured at once.

    Attributes:
        stage: What it measures.
        groups: Indices of the nodes of each test.
        values: Values of each test in bytes per second; None where nothing answered. Own node: one per part.
            Pairs and sizes: one per rail from the first node to the second, then one per rail back. Groups:
            one bus bandwidth.
        seconds: Duration in s.
        variation: Median of the relative standard errors of the values, by how much they varied while they
            were measured; 0 if unknown.
        losses: Pairs over TCP: shares of what the first node and the second sent again.
        parts: Own node: kind of the part of each value; parts of a kind are in order.
        sizes: Sizes: bytes of the messages of each test.
        memory: Sizes: where messages are sent from and received.
        both: Sizes: whether both directions were measured at once, not one after the other.
    """

    stage: Stage
    groups: tuple[tuple[Whole, ...], ...]
    values: tuple[tuple[Amount | None, ...], ...]
    seconds: Amount = 0
    variation: Amount = 0
    losses: tuple[tuple[Amount | None, ...], ...] = ()
    parts: tuple[PartKind, ...] = ()
    sizes: tuple[Whole, ...] = ()
    memory: EndMemory | None = None
    both: bool = False


@dataclass(frozen=True)
class SizeCurve:
    """The rates of messages by their size, in one direction of a rail.

    Attributes:
        memory: Where they are sent from and received.
        both: Whether the other direction was measured at the same time.
        source, target, rail: The path.
        rates: Size in bytes -> median rate in bytes per second; ascending.
    """

    memory: EndMemory
    both: bool
    source: int
    target: int
    rail: int
    rates: dict[int, float]

    @property
    def large(self) -> float:
        """Median rate of the largest sizes, in bytes per second."""
        return median(list(self.rates.values())[-JUDGED_SIZES:])


class RailLimit(msgspec.Struct, frozen=True, omit_defaults=True):
    """What carries a rail of a node in one direction.

    Attributes:
        node, rail: The node and its rail; -1 for each of its rails.
        devices: Names of the devices: network interfaces of TCP, ports of RDMA.
        port: What their ports carry, in bytes per second.
        slot: What their PCIe links carry, with the lanes and generation that both ends support; 0 if unknown.
        least: Rate below which the rail is slow.
        both: Rate of each direction below which it is slow if both are measured at once; 0: not judged.
    """

    node: Whole
    rail: Integer
    devices: tuple[str, ...] = ()
    port: Amount = 0
    slot: Amount = 0
    least: Amount = 0
    both: Amount = 0

    @property
    def rate(self) -> float:
        """What the rail can carry, in bytes per second."""
        return min(self.port, self.slot) if self.slot else self.port


class SlowPart(msgspec.Struct, frozen=True, omit_defaults=True):
    """A slow part, and its evidence.

    Attributes:
        kind: Its kind.
        nodes: Indices of the nodes that it slows.
        rail: Its rail; -1 for all. Of a GPU or its link: index of the GPU; of host memory: of the NUMA node.
        sends: Of a cable: whether what the node sends is slow, or what it receives.
        block: Of a switch or a trunk: the block.
        value, expected: Median of its values, and of the values of parts that are not slow, in bytes per
            second; of a lossy cable the share that was sent again.
        partners: Number of nodes with which it was measured.
        lowest, highest: Range of what these partners reach with others, in bytes per second.
        confirmed: Whether it was slow again with other partners.
        share: Of a spine switch: share of the paths between blocks that are slow.
        limited: Whether ``expected`` is what the NICs at both ends carry, not what others reach.
        memory: Of a path: the memory between which it is slow; None for all that were measured.
        both: Of a path: whether it is slow only if both directions are used at once.
    """

    kind: PartKind
    nodes: tuple[Whole, ...]
    rail: Integer = -1
    sends: bool | None = None
    block: str = ""
    value: Amount = 0
    expected: Amount = 0
    partners: Whole = 0
    lowest: Amount = 0
    highest: Amount = 0
    confirmed: bool = False
    share: Amount = 1
    limited: bool = False
    memory: EndMemory | None = None
    both: bool = False


class Qualification(msgspec.Struct, frozen=True, omit_defaults=True, dict=True):
    """The nodes of a cluster, what was measured of them, and what is slow.

    Attributes:
        nodes: All nodes.
        rounds: Everything that ran, in order.
        culprits: What is slow; the most severe first.
        seed: Seed of the choice of partners.
        transport: What the processes used between nodes, e.g. ``TCP``.
        noise: Relative standard deviation of the values of paths that are not slow.
        threshold: Share of the median below which a part is slow.
        notes: Conditions under which it was measured.
        doubts: What was not compared, or a transport that is not what it should be, so that a qualification
            that finds nothing is only a warning.
        limits: What carries the rails of each node; empty if it is unknown.
    """

    nodes: tuple[QualifiedNode, ...]
    rounds: tuple[Round, ...] = ()
    culprits: tuple[SlowPart, ...] = ()
    seed: Integer = 0
    transport: str = ""
    noise: Number = 0
    threshold: Amount = 0
    notes: tuple[str, ...] = ()
    doubts: tuple[str, ...] = ()
    limits: tuple[RailLimit, ...] = ()

    def __post_init__(self) -> None:
        count = len(self.nodes)
        if any(limit.node >= count for limit in self.limits):
            raise ValueError(f"a qualification of {count} nodes has limits of another one")
        groups = [culprit.nodes for culprit in self.culprits]
        groups += [group for each in self.rounds for group in each.groups]
        if not count or any(not group or max(group) >= count for group in groups):
            raise ValueError(f"a qualification of {count} nodes names another one")
        if any(len(culprit.nodes) < 2 for culprit in self.culprits if culprit.kind in OF_SEVERAL):
            raise ValueError("a path has two nodes")
        for each in self.rounds:
            if each.stage is Stage.SIZES and not (
                each.memory
                and len(each.sizes) == len(each.groups)
                and all(each.sizes)
                and all(len(group) == 2 for group in each.groups)
            ):
                raise ValueError("messages of several sizes have sizes, memory and two ends each")

    @property
    def fails(self) -> bool:
        """Whether something is slow or missing."""
        confirmed = any(culprit.confirmed for culprit in self.culprits)
        return confirmed or any(node.missing for node in self.nodes)

    @property
    def compared(self) -> bool:
        """Whether there were enough paths, and these vary little enough, to say what is slow."""
        if self.has_limits and self._all_reach:
            return True
        return (self.has_peers or self.has_limits) and self.threshold >= LEAST_THRESHOLD

    @property
    def varies(self) -> bool:
        """Whether the paths were compared with each other, and vary too much to say what is slow."""
        return bool(self.noise) and self.threshold < LEAST_THRESHOLD

    @property
    def _all_reach(self) -> bool:
        """Whether each single value between two nodes is what their NICs carry, however much they vary."""
        limits = [(self.limit_of((a, b), rail), values) for (a, b, rail), values in self.paths.items()]
        return all(limit is not None and min(values) >= limit.least for limit, values in limits)

    @cached_property
    def has_limits(self) -> bool:
        """Whether two nodes answered and what carries each of their rails is known."""
        return self.is_one_pair and self.limits_known

    @cached_property
    def limits_known(self) -> bool:
        """Whether what carries each rail that was measured is known."""
        paths = self.paths
        of = self._least
        ends = {(node, rail) for (source, target, rail) in paths for node in (source, target)}
        return bool(paths) and all((node, rail) in of or (node, -1) in of for node, rail in ends)

    @cached_property
    def _least(self) -> dict[tuple[int, int], RailLimit]:
        """Node and rail (-1: each) -> what carries it, if that is known."""
        return {(limit.node, limit.rail): limit for limit in self.limits if limit.least}

    @cached_property
    def paths(self) -> dict[tuple[int, int, int], list[float]]:
        """Source, target and rail -> its values in the rounds of pairs, in bytes per second."""
        return grouped((path, value) for _, _, path, value in self._between_two(Stage.PAIRS))

    def _between_two(self, stage: Stage) -> Iterator[tuple[Round, int, tuple[int, int, int], float]]:
        """Yield the values between two nodes, each with its round, the index of its test, and its path."""
        for each in self.rounds:
            tests = zip(each.groups, each.values, strict=False)
            for test, (group, values) in enumerate(tests if each.stage is stage else ()):
                rails = len(values) // 2
                for i, value in enumerate(values[: 2 * rails] if len(group) == 2 else ()):
                    if value is not None:
                        source, target = group if i < rails else group[::-1]
                        yield each, test, (source, target, i % rails), value

    @property
    def curves(self) -> list[SizeCurve]:
        """The rates of messages by their size; repeated measurements as their medians."""
        found: dict[tuple[EndMemory, bool, int, int, int], dict[int, list[float]]] = {}
        for each, test, path, value in self._between_two(Stage.SIZES):
            if value and each.memory is not None:
                sizes = found.setdefault((each.memory, each.both, *path), {})
                sizes.setdefault(each.sizes[test], []).append(value)
        return [
            SizeCurve(*key, {size: median(of_size) for size, of_size in sorted(rates.items())})
            for key, rates in found.items()
        ]

    def limit_of(self, path: Sequence[int], rail: int) -> RailLimit | None:
        """The lower of what carries a rail at both ends of a path; None if one is unknown."""
        of = self._least
        ends = [of.get((node, rail)) or of.get((node, -1)) for node in path]
        known = [limit for limit in ends if limit is not None]
        return min(known, key=lambda limit: limit.least) if known and len(known) == len(ends) else None

    @cached_property
    def has_peers(self) -> bool:
        """Whether several pairs of nodes were measured."""
        return len({frozenset(path[:2]) for path in self.paths}) > 1

    @property
    def excluded(self) -> tuple[str, ...]:
        """The nodes to leave out: those that are missing, and those with a slow part of their own."""
        slow = {node for culprit in self.culprits if culprit.kind in OF_NODE for node in culprit.nodes}
        return tuple(node.name for i, node in enumerate(self.nodes) if node.missing or i in slow)

    @property
    def in_doubt(self) -> tuple[str, ...]:
        """The nodes of slow paths of which no partner shows which end is slow, and that are not left out."""
        ends = {i for culprit in self.culprits if culprit.kind in OF_SEVERAL for i in culprit.nodes}
        out = set(self.excluded)
        return tuple(node.name for i, node in enumerate(self.nodes) if i in ends and node.name not in out)

    @cached_property
    def is_one_pair(self) -> bool:
        """Whether two nodes answered, which have only each other; one may have been lost later."""
        there = {i for i, node in enumerate(self.nodes) if not node.missing}
        return not self.has_peers and len(there.union(*(path[:2] for path in self.paths))) == 2

    @property
    def usable(self) -> str:
        """How many of the nodes can be used, in words."""
        every = many(len(self.nodes), "node")
        if not self.compared and not self.culprits:
            return f"none of {every} judged"
        good = len(self.nodes) - len(self.excluded) - len(self.in_doubt)
        return f"{good} of {every} usable" + (f", {len(self.in_doubt)} in doubt" if self.in_doubt else "")

    @property
    def chosen(self) -> tuple[str, ...]:
        """The nodes to use: those that are good."""
        out = {*self.excluded, *self.in_doubt}
        return tuple(node.name for node in self.nodes if node.name not in out)


def part_name(culprit: SlowPart, nodes: Sequence[QualifiedNode]) -> str:
    """What people call a part, e.g. ``node17's rail 3``."""
    first = nodes[culprit.nodes[0]].name
    of_rail = f" of rail {culprit.rail}" if nodes[culprit.nodes[0]].rails > 1 else ""
    match culprit.kind:
        case PartKind.NODE:
            return first
        case PartKind.GPU:
            return f"{first}'s GPU {culprit.rail}"
        case PartKind.HOST_LINK:
            return f"{first}'s link between host and GPU {culprit.rail}"
        case PartKind.MEMORY:
            return f"{first}'s host memory of NUMA node {culprit.rail}"
        case PartKind.NIC:
            return f"{first}'s NIC{of_rail}"
        case PartKind.CABLE | PartKind.LOSSY:
            return f"{first}'s cable{of_rail} ({'sending' if culprit.sends else 'receiving'})"
        case PartKind.PATH:
            between = ("between", "and") if culprit.sends is None else ("from", "to")
            name = f"path {between[0]} {first} {between[1]} {nodes[culprit.nodes[1]].name}{of_rail}"
            how = [str(culprit.memory)] if culprit.memory else []
            how += ["both directions at once"] if culprit.both else []
            return f"{name} ({', '.join(how)})" if how else name
        case PartKind.ALIKE:
            rail = f"rail {culprit.rail}" if culprit.rail >= 0 else "all rails"
            some = "all" if len(culprit.nodes) == len(nodes) else f"{len(culprit.nodes)} of"
            return f"{rail} of {some} {many(len(nodes), 'node')}"
        case PartKind.LEAF | PartKind.TRUNK:
            return f"{culprit.kind} of {culprit.block}{of_rail}"
        case PartKind.SPINE:
            return f"spine switches{of_rail if culprit.rail >= 0 else ''}"
    return f"between {', '.join(nodes[node].name for node in culprit.nodes)}"


def compact(hosts: Sequence[str]) -> str:
    """The hosts as a list of Slurm: ``node[1-3,7],login``."""
    ranges: dict[tuple[str, int], list[int]] = {}
    plain = []
    for host in hosts:
        if match := re.fullmatch(r"(.*?)(\d+)", host):
            ranges.setdefault((match[1], len(match[2])), []).append(int(match[2]))
        else:
            plain.append(host)
    parts = []
    for (prefix, width), numbers in ranges.items():
        numbers.sort()
        spans: list[list[int]] = []
        for number in numbers:
            if spans and number == spans[-1][1] + 1:
                spans[-1][1] = number
            else:
                spans.append([number, number])
        texts = [
            f"{first:0{width}d}" if first == last else f"{first:0{width}d}-{last:0{width}d}"
            for first, last in spans
        ]
        alone = len(texts) == 1 and "-" not in texts[0]
        parts.append(f"{prefix}{texts[0]}" if alone else f"{prefix}[{','.join(texts)}]")
    return ",".join(parts + plain)
