"""One pair of the nodes of a simulated cluster."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from ..qualification import PartKind
from .cluster import two_of

if TYPE_CHECKING:
    from .simulated_cluster import SimulatedCluster


def only(cluster: SimulatedCluster, pair: Sequence[str]) -> SimulatedCluster:
    """Two nodes of a cluster, with their faults and those of what joins them.

    Raises:
        UsageError: If there is no such pair.
    """
    names = [node.name for node in cluster.nodes]
    kept = two_of(pair, names)
    blocks = list(dict.fromkeys(cluster.blocks[i] for i in kept))
    faults = []
    for fault in cluster.faults:
        places = blocks if fault.kind in (PartKind.LEAF, PartKind.TRUNK) else kept
        if fault.kind is PartKind.SPINE or fault.where < 0:
            faults.append(fault)
        elif fault.where in places:
            faults.append(replace(fault, where=places.index(fault.where)))
    causes = [
        replace(cause, node=kept.index(cause.node)) if cause.node in kept else cause
        for cause in cluster.causes
        if cause.node in (*kept, -1)
    ]
    return replace(
        cluster, count=2, names=tuple(names[i] for i in kept), spares=0, faults=tuple(faults),
        blocks_of=tuple(cluster.nodes[i].block for i in kept), causes=tuple(causes),
        missing=frozenset(kept.index(i) for i in kept if i in cluster.missing),
    )  # fmt: skip
