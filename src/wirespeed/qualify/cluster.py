"""What a qualification measures: the nodes of a cluster, real or simulated."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

import numpy as np
import numpy.typing as npt

from ..qualification import PartKind, QualifiedNode

#: Values in bytes per second; NaN where nothing answered.
Values = npt.NDArray[np.float64]


class Cluster(Protocol):
    """Nodes that measure at once; each method is one round."""

    @property
    def nodes(self) -> tuple[QualifiedNode, ...]:
        """All nodes, with what is known by now about those that are missing."""

    @property
    def rails(self) -> int:
        """Number of rails that are measured: the smallest of the nodes."""

    @property
    def transport(self) -> str:
        """What carries the bytes between nodes."""

    @property
    def limit(self) -> float:
        """What the network interfaces of most nodes carry in one direction, in bytes per second; or 0."""

    @property
    def notes(self) -> tuple[str, ...]:
        """What is to be known about the nodes."""

    @property
    def doubts(self) -> tuple[str, ...]:
        """What keeps nodes without slow parts from passing: the transport is not what it should be."""

    @property
    def variation(self) -> float:
        """Median of the relative standard deviations of the paths during the last round; 0 if unknown."""

    @property
    def losses(self) -> Values:
        """Shares of what the pairs of the last round sent again; shape (pairs, 2), or nothing if unknown."""

    def own(self, nodes: Sequence[int]) -> Mapping[PartKind, Values] | None:
        """Measure each node by itself: kind of part -> values, of shape (nodes, parts).

        None if some nodes run on the same machine, where they would disturb each other.
        """

    def latencies(self, pairs: Sequence[tuple[int, int]]) -> Values:
        """Measure the shortest round trip between pairs of nodes in s; shape (pairs,)."""

    def pairs(self, pairs: Sequence[tuple[int, int]]) -> Values:
        """Measure between pairs of nodes; shape (pairs, 2, rails): to the second node, and back."""

    def groups(self, groups: Sequence[Sequence[int]]) -> Values:
        """Measure the bus bandwidth of an all_reduce of each group; shape (groups,)."""

    def seconds(self) -> float:
        """Time since the start in s, which is virtual for simulated nodes."""
