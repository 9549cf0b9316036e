"""Which nodes are measured together: pairs for all nodes at once, and groups.

Which nodes share a switch, by the latencies between them.

What carried the bytes between nodes, by the counters of network interfaces and of RDMA devices.

Libraries say little of their transport, and each in its own way; what the devices of a node have sent shows
it for all of them.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...backends.host import nic_facts
from ...backends.tree import HERE, TreePath
from ...qualification import TCP
from ...units import many
from ..fleet.analysis import boundary
from .cluster import Values

#: A pair of nodes.
Pair = tuple[int, int]
#: Permutations that are tried for each matching; that with the fewest repeated pairs is taken.
_TRIES = 8


def matchings(blocks: Sequence[str], nodes: Sequence[int], rounds: int, seed: int) -> list[list[Pair]]:
    """Pair the nodes anew in each round, by turns across blocks and within them.

    Args:
        blocks: Block of each node of the cluster; empty if unknown.
        nodes: The nodes to pair. If their number is odd, another node is left out in each round.
        rounds: Number of rounds.
        seed: Seed of the choice.
    """
    random = np.random.default_rng(seed)
    seen: set[Pair] = set()
    several = len({blocks[node] for node in nodes}) > 1
    chosen = []
    for turn in range(rounds):
        tries = [
            _across(blocks, nodes, random) if several and turn % 2 == 0 else _within(blocks, nodes, random)
            for _ in range(_TRIES if len(nodes) <= 256 else 1)
        ]
        pairs = min(tries, key=lambda pairs: sum(_sorted(pair) in seen for pair in pairs))
        seen |= {_sorted(pair) for pair in pairs}
        chosen.append(pairs)
    return chosen


def _sorted(pair: Pair) -> Pair:
    return min(pair), max(pair)


def _within(blocks: Sequence[str], nodes: Sequence[int], random: np.random.Generator) -> list[Pair]:
    """Pairs of the same block; the nodes left over are paired with each other."""
    by_block: dict[str, list[int]] = {}
    for node in random.permutation(np.array(nodes)).tolist():
        by_block.setdefault(blocks[node], []).append(node)
    over = [members.pop() for members in by_block.values() if len(members) % 2]
    order = [node for members in by_block.values() for node in members] + over
    return [(order[i], order[i + 1]) for i in range(0, len(order) - 1, 2)]


def _across(blocks: Sequence[str], nodes: Sequence[int], random: np.random.Generator) -> list[Pair]:
    """Pairs of different blocks, as far as no block has more than half of the nodes."""
    names = list(dict.fromkeys(blocks[node] for node in nodes))
    rank = dict(zip(names, random.permutation(len(names)).tolist(), strict=True))
    order = sorted(random.permutation(np.array(nodes)).tolist(), key=lambda node: rank[blocks[node]])
    half = len(order) // 2
    return [(order[i], order[i + half]) for i in range(half)]


def groups_of(blocks: Sequence[str], nodes: Sequence[int]) -> list[list[int]]:
    """Groups for collectives: blocks, or about the square root of the number of nodes where unknown."""
    size = max(2, round(math.sqrt(len(nodes))))
    by_block: dict[str, list[int]] = {}
    for node in nodes:
        by_block.setdefault(blocks[node], []).append(node)
    groups = []
    for block, members in by_block.items():
        step = size if not block else len(members)
        groups += [members[i : i + step] for i in range(0, len(members), step)]
    return [group for group in groups if len(group) > 1]


def representatives(groups: Sequence[Sequence[int]]) -> list[list[int]]:
    """Groups with one node of each group, so that each crosses all of them."""
    count = min((len(group) for group in groups), default=0)
    return [[group[i] for group in groups] for i in range(count)] if len(groups) > 1 else []


def wrongly_blamed(partners: int, share: float = 0.01) -> float:
    """Probability that more than half of a node's partners are bad.

    Args:
        partners: Number of partners.
        share: Share of bad nodes.
    """
    return math.fsum(
        math.comb(partners, bad) * share**bad * (1 - share) ** (partners - bad)
        for bad in range(partners // 2 + 1, partners + 1)
    )


#: Maximum number of rounds, as a factor of the square root of the number of nodes: up to 64 nodes all pairs
#: are measured; of 512 nodes of switches of 32, each is measured with 11 of its own on average.
_ROUNDS = 8
#: Maximum number of latencies that decide what is near.
_MOST_LATENCIES = 2000
#: Largest share of the pairs of a group that may be far from each other.
_FAR = 0.1


@dataclass(frozen=True)
class MeasuredTopology:
    """Groups of nodes that are near each other.

    Attributes:
        blocks: Name of the group of each node; empty where no other node is near.
        note: What the latencies show, or why they show no groups.
    """

    blocks: tuple[str, ...]
    note: str


def rounds_of_all(nodes: Sequence[int], seed: int) -> list[list[Pair]]:
    """Matchings of all nodes: each pair twice (the circle method), or some of them once with many nodes.

    Args:
        nodes: The nodes to pair.
        seed: Seed of the choice.
    """
    order = np.random.default_rng([seed, 3]).permutation(np.array(nodes, dtype=int)).tolist()
    circle = order if len(order) % 2 == 0 else [*order, -1]
    half = len(circle) // 2
    rounds = []
    for _ in range(min(len(circle) - 1, math.ceil(_ROUNDS * math.sqrt(len(circle))))):
        pairs = zip(circle[:half], circle[: half - 1 : -1], strict=True)
        rounds.append([(a, b) for a, b in pairs if a >= 0 and b >= 0])
        circle = [circle[0], circle[-1], *circle[1:-1]]
    return rounds * 2 if len(rounds) == len(circle) - 1 else rounds


def topology_of(count: int, measured: Sequence[tuple[Sequence[Pair], Values]], seed: int) -> MeasuredTopology:
    """The groups of nodes whose latencies are those of a common switch.

    Latencies form two groups if `boundary` says so, which also tells nodes of a fleet apart; nodes with a
    small one are in the same group.

    Args:
        count: Number of nodes.
        measured: Rounds: their pairs, and the latency of each in s.
        seed: Seed of the choice of latencies.
    """
    pairs = np.array([pair for each, _ in measured for pair in each], dtype=int).reshape(-1, 2)
    latency = np.concatenate([values for _, values in measured]) if measured else np.zeros(0)
    pairs, latency = np.sort(pairs[~np.isnan(latency)], axis=1), latency[~np.isnan(latency)]
    # Of several values of a pair the smallest counts: others waited for a processor.
    pairs, same = np.unique(pairs, axis=0, return_inverse=True)
    shortest = np.full(len(pairs), np.inf)
    np.minimum.at(shortest, same.ravel(), latency)
    latency = shortest
    nothing, left = ("",) * count, "switches were not distinguished"
    some = latency
    if len(some) > _MOST_LATENCIES:
        some = np.random.default_rng([seed, 4]).choice(latency, _MOST_LATENCIES, replace=False)
    limit = boundary(some.tolist()) if len(some) else None
    if limit is None:
        return MeasuredTopology(nothing, f"latencies between nodes form no groups: {left}")
    near = latency <= limit
    group = list(range(count))

    def root(node: int) -> int:
        while group[node] != node:
            group[node] = group[group[node]]
            node = group[node]
        return node

    for a, b in pairs[near].tolist():
        group[root(a)] = root(b)
    roots = np.array([root(node) for node in range(count)])
    inside = roots[pairs[:, 0]] == roots[pairs[:, 1]]
    if (~near & inside).sum() > _FAR * inside.sum():
        return MeasuredTopology(nothing, f"latencies between nodes contradict each other: {left}")
    sizes = np.bincount(roots, minlength=count)
    names: dict[int, str] = {}
    for node in roots.tolist():
        if sizes[node] > 1:
            names.setdefault(node, f"group{len(names)}")
    low, high = (float(np.median(latency[chosen])) * 1e6 for chosen in (near, ~near))
    return MeasuredTopology(
        tuple(names.get(node, "") for node in roots.tolist()),
        f"switches were inferred from latencies: {len(names)} groups, {low:.3g} us within and {high:.3g} us "
        "between groups",
    )


#: A line of /proc/net/dev: an interface, and the bytes that it has sent, the ninth number (proc_pid_net(5)).
_LINE = re.compile(r"\s*(\S+):\s*(?:\d+\s+){8}(\d+)")
_MBIT_BYTES = 1e6 / 8
#: Type of an interface whose bytes an InfiniBand port counts, too (ARPHRD_INFINIBAND of if_arp.h).
_IPOIB = "32"
#: Share of what a node sends to others that shows what carries it, and that makes a device take part.
_MOST, _SOME = 0.5, 0.05
#: Most devices, and most nodes, that are named.
_NAMED = 4

#: Device -> its kind (``TCP``, ``IPoIB``, ``InfiniBand``, ``RoCE`` or ``EFA``), the bytes that it has sent,
#: and its speed in bytes per second (0: unknown).
Sent = dict[str, tuple[str, int, float]]


def counters(root: TreePath = HERE) -> Sent:
    """What the network interfaces and RDMA devices of this node have sent.

    Args:
        root: Folder that contains ``proc`` and ``sys``.
    """
    sent: Sent = {}
    for name, count in _LINE.findall((root / "proc/self/net/dev").read() or ""):
        folder = root / "sys/class/net" / name
        # What a bridge, a bond or a VLAN sends is counted below it.
        if name != "lo" and not folder.glob("lower_*"):
            kind = "IPoIB" if ((folder / "type").read() or "").strip() == _IPOIB else TCP
            sent[name] = (kind, int(count), interface_speed(root, name))
    for port in nic_facts.ports(root):
        if port.sent is not None:
            sent[port.label] = (port.network, port.sent, port.rate)
    return sent


def interface_speed(root: TreePath, name: str) -> float:
    """Speed of a network interface in bytes per second; 0 if unknown."""
    text = ((root / "sys/class/net" / name / "speed").read() or "").strip()
    return int(text) * _MBIT_BYTES if text.isdecimal() else 0.0


def difference(before: Mapping[str, Sequence[Any]], after: Mapping[str, Sequence[Any]]) -> Sent:
    """What devices sent between two readings."""
    return {
        name: (kind, count - before[name][1], speed)
        for name, (kind, count, speed) in after.items()
        if name in before and count > before[name][1]
    }


@dataclass(frozen=True)
class Carrier:
    """What carried the bytes that a node sent.

    Attributes:
        kind: ``TCP``, ``InfiniBand``, ``RoCE`` or ``EFA``; empty if no device has sent most of them.
        devices: Names of the devices.
        speed: Sum of their speeds, in bytes per second; 0 if unknown.
    """

    kind: str = ""
    devices: tuple[str, ...] = ()
    speed: float = 0.0


def carrier(sent: Mapping[str, Sequence[Any]], payload: float) -> Carrier:
    """What carried most of the bytes that a node sent.

    Args:
        sent: What its devices sent meanwhile.
        payload: Bytes that it had to send to other nodes, at least.
    """
    by_kind: dict[str, int] = {}
    for kind, count, _ in sent.values():
        by_kind[kind] = by_kind.get(kind, 0) + count
    over_ports = by_kind.pop("IPoIB", 0)
    for kind in by_kind.keys() - {TCP}:  # the port counts what the interface sends over it
        by_kind[kind] -= over_ports
    by_kind[TCP] = by_kind.get(TCP, 0) + over_ports
    used = max(by_kind, key=lambda kind: by_kind[kind])
    if not payload or by_kind[used] < _MOST * payload:
        return Carrier()
    kinds = (TCP, "IPoIB") if used == TCP else (used,)
    part = {
        name: speed for name, (kind, count, speed) in sent.items()
        if kind in kinds and count >= _SOME * by_kind[used]
    }  # fmt: skip
    return Carrier(used, tuple(sorted(part)), math.fsum(part.values()) if all(part.values()) else 0.0)


def said(carriers: Sequence[Carrier]) -> str:
    """The transport of most nodes for people: ``InfiniBand (mlx5_0, mlx5_1)``; empty if unknown."""
    (usual, _), *_ = Counter((each.kind, each.devices) for each in carriers).most_common(1) or [(("", ()), 0)]
    kind, devices = usual
    more = f" and {len(devices) - _NAMED} more" if len(devices) > _NAMED else ""
    return f"{kind} ({', '.join(devices[:_NAMED])}{more})" if kind else ""


def others(carriers: Mapping[str, Carrier]) -> str:
    """The nodes that use another transport than most; empty if there are none.

    Args:
        carriers: Node -> what carried its bytes.
    """
    usual, count = Counter(each.kind for each in carriers.values()).most_common(1)[0] if carriers else ("", 0)
    names = [name for name, each in carriers.items() if each.kind != usual and each.kind]
    if not usual or not names:
        return ""
    more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
    return (
        f"{', '.join(names[:_NAMED])}{more} used {carriers[names[0]].kind}, {count} of "
        f"{many(len(carriers), 'node')} {usual}"
    )
