"""Which nodes share a switch, by the latencies between them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ...thresholds.clusters import MOST_FAR
from ..fleet.analysis import boundary
from .cluster import Values

#: A pair of nodes.
Pair = tuple[int, int]
#: Maximum number of rounds, as a factor of the square root of the number of nodes: up to 64 nodes all pairs
#: are measured; of 512 nodes of switches of 32, each is measured with 11 of its own on average.
_ROUNDS = 8
#: Maximum number of latencies that decide what is near.
_MOST_LATENCIES = 2000


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
    if (~near & inside).sum() > MOST_FAR * inside.sum():
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


#: Device -> its kind (``TCP``, ``IPoIB``, ``InfiniBand``, ``RoCE`` or ``EFA``), the bytes that it has sent,
#: and its speed in bytes per second (0: unknown).
Sent = dict[str, tuple[str, int, float]]
