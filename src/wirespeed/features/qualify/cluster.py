"""What a qualification measures: the nodes of a cluster, real or simulated."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

import numpy as np
import numpy.typing as npt

from ...hardware.facts import Fact
from ...qualification import EndMemory, PartKind, QualifiedNode, RailLimit

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
        """The transport of the bytes between nodes."""

    @property
    def notes(self) -> tuple[str, ...]:
        """Conditions of the nodes that a reader must know."""

    @property
    def doubts(self) -> tuple[str, ...]:
        """What keeps nodes without slow parts from passing: the transport is not what it should be."""

    @property
    def variation(self) -> float:
        """Median of the relative standard errors of the paths in the last round; 0 if unknown."""

    @property
    def losses(self) -> Values:
        """Shares of what the pairs of the last round sent again; shape (pairs, 2), or nothing if unknown."""

    @property
    def limits(self) -> tuple[RailLimit, ...]:
        """What carries the rails of each node, by the transport that was used."""

    @property
    def facts(self) -> tuple[Fact, ...]:
        """The facts of two nodes, each with the name of its host; of more those that were examined."""

    @property
    def memories(self) -> tuple[EndMemory, ...]:
        """Between which memory ``sizes`` can measure; the first is that of ``pairs``."""

    def examine(self, pair: tuple[int, int]) -> None:
        """Read the facts of two nodes, which explain what is slow between them."""

    def own(self, nodes: Sequence[int]) -> Mapping[PartKind, Values] | None:
        """Measure each node by itself: kind of part -> values, of shape (nodes, parts).

        None if some nodes run on the same machine, where they would disturb each other.
        """

    def pairs(self, pairs: Sequence[tuple[int, int]]) -> Values:
        """Measure between pairs of nodes; shape (pairs, 2, rails): to the second node, and back."""

    def sizes(self, pair: tuple[int, int], memory: EndMemory, both: bool, sizes: Sequence[int]) -> Values:
        """Measure messages between two nodes; shape (sizes, 2, rails): to the second node, and back.

        Args:
            pair: The nodes.
            memory: Where messages are sent from and received: one of ``memories``.
            both: Whether to measure both directions at once, not one after the other.
            sizes: Bytes of a message of a process, ascending.
        """

    def groups(self, groups: Sequence[Sequence[int]]) -> Values:
        """Measure the bus bandwidth of an all_reduce of each group; shape (groups,)."""

    def seconds(self) -> float:
        """Time since the start in s, which is virtual for simulated nodes."""


def plain(values: Values) -> tuple[tuple[float | None, ...], ...]:
    """Values as they are saved: a row for each test, None where nothing answered."""
    return tuple(
        tuple(None if np.isnan(value) else float(value) for value in np.ravel(row)) for row in values
    )
