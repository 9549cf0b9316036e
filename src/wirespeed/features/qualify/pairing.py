"""Which nodes are measured together: pairs for all nodes in one round, and groups."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

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
