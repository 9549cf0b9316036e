"""The rounds of a qualification so far."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec

from ...qualification import Qualification, RailLimit, Round, SlowPart, Stage
from .cluster import Cluster, Values, plain
from .limits import of_user


@dataclass
class RoundRecorder:
    """The rounds of a qualification so far, and what they show.

    Attributes:
        cluster: What is measured.
        within: Maximum duration in s; rounds for which there is no time are left out.
        seed: Seed of the choice of partners.
        given: What the NICs of a node carry in one direction, in bytes per second; 0 to use their facts.
        said: Called with the qualification so far after each round.
    """

    cluster: Cluster
    within: float = float("inf")
    seed: int = 0
    said: Callable[[Qualification], None] = lambda qualification: None
    rounds: list[Round] = field(default_factory=list)
    culprits: list[SlowPart] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    doubts: list[str] = field(default_factory=list)
    given: float = 0.0
    _noise: float = 0.0
    _threshold: float = 0.0
    _missing: dict[int, str] = field(default_factory=dict)

    @property
    def qualification(self) -> Qualification:
        """The qualification so far."""
        nodes = tuple(
            msgspec.structs.replace(node, missing=node.missing or self._missing.get(i, ""))
            for i, node in enumerate(self.cluster.nodes)
        )
        return Qualification(
            nodes, tuple(self.rounds), tuple(self.culprits), self.seed, noise=self._noise,
            threshold=self._threshold,
            notes=(*self.cluster.notes, *self.notes), doubts=(*self.cluster.doubts, *self.doubts),
            transport=self.cluster.transport, limits=self._limits,
        )  # fmt: skip

    @property
    def _limits(self) -> tuple[RailLimit, ...]:
        """What carries the rails of each node: as the user gives it, or by their facts."""
        if not self.given:
            return self.cluster.limits
        rails = self.cluster.rails
        return tuple(of_user(node, self.given, rails) for node in range(len(self.cluster.nodes)))

    @property
    def blocks(self) -> list[str]:
        """Name of the switch of each node; empty if it is unknown."""
        return [node.block for node in self.cluster.nodes]

    def ended(
        self, stage: Stage, groups: Sequence[Sequence[int]], values: Values, started: float, **more: Any
    ) -> None:
        """Add a round that started at a time, with further fields, and report it."""
        seconds, members = self.cluster.seconds() - started, tuple(tuple(group) for group in groups)
        self.rounds.append(Round(stage, members, plain(values), seconds, self.cluster.variation, **more))
        self.said(self.qualification)

    def in_time(self, stage: Stage, what: str = "") -> bool:
        """Whether a round as long as the longest of its stage, or of all, still fits; else doubt ``what``."""
        seconds = [each.seconds for each in self.rounds if each.stage is stage]
        if stage is Stage.SIZES:  # of two nodes, as a round of pairs is
            seconds = seconds or [each.seconds for each in self.rounds if each.stage is Stage.PAIRS]
        longest = max(seconds or [each.seconds for each in self.rounds], default=0)
        fits = self.cluster.seconds() + longest <= self.within
        doubt = f"no time was left for {what}"
        if not fits and what and doubt not in self.doubts:
            self.doubts.append(doubt)
        return fits
