"""The nodes of a job, measured over TCP between their processes.

The processes of a node measure at once, and their rates are added: over TCP they share its network. Rank 0
says what to measure and measures itself, too; nodes that are lost on the way are findings.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np

from ..qualification import QualifiedNode
from ..worlds.crew import Crew
from .cluster import Values
from .tcp_probe import SECONDS, TIMEOUT_S, Place, TcpProbe

if TYPE_CHECKING:
    from ..worlds.base import World

#: Maximum time of a round in s: to connect, two directions, and bytes that do not arrive, twice.
_ROUND_S = 2 * SECONDS + 3 * TIMEOUT_S
#: Maximum time to dismiss the ranks, in s.
_DISMISS_S = 5.0
_SECRET_BYTES = 32
_PAIR, _RING = "pair", "ring"


class ProcessCluster:
    """The nodes of a job, on rank 0.

    Parameters
    ----------
    world : World
        The processes of the job.
    blocks : Mapping[str, str]
        Host -> its block.
    spares : int
        Number of nodes at the end that are spares.
    expected : Sequence[str]
        The hosts of the job by its scheduler, to name those from which no process came; empty if unknown.
    """

    transport = "TCP"
    rails = 1

    def __init__(
        self, world: World, blocks: Mapping[str, str], spares: int = 0, expected: Sequence[str] = ()
    ) -> None:
        self._started = time.monotonic()
        self._crew = Crew(world)
        self._ranks = {host: [m.rank for m in world.members if m.host == host] for host in world.hosts}
        self._addresses = world.addresses()
        secret = secrets.token_bytes(_SECRET_BYTES)
        self._probe = TcpProbe(secret)
        self._ports = self._crew.ask(
            dict.fromkeys(range(world.size), secret), _ROUND_S, lambda task: self._probe.port
        )
        self._number = 0
        self.variation = 0.0
        absent = _absent(world, expected)
        names = [*world.hosts, *absent]
        self._all = tuple(
            QualifiedNode(
                name, blocks.get(name, ""), spare=i >= len(names) - spares, missing=absent.get(name, "")
            )
            for i, name in enumerate(names)
        )

    @property
    def nodes(self) -> tuple[QualifiedNode, ...]:
        """All nodes, with what is known by now about those that are lost."""
        return tuple(
            msgspec.structs.replace(node, missing=node.missing or self._lost(node.name)) for node in self._all
        )

    def seconds(self) -> float:
        return time.monotonic() - self._started

    def own(self, nodes: Sequence[int]) -> Values:
        """Nothing: TCP shows only what is between nodes."""
        return np.empty((len(nodes), 0))

    def pairs(self, pairs: Sequence[tuple[int, int]]) -> Values:
        tasks: dict[int, list[Any]] = {}
        couples = []
        for i, (a, b) in enumerate(pairs):
            # Nodes with different numbers of processes: as many as the smaller has.
            for first, second in zip(self._there(a), self._there(b), strict=False):
                tasks[first], tasks[second] = [_PAIR, self._place(second)], [_PAIR, None]
                couples.append((i, first, second))
        rates = self._measure(tasks)
        values = np.zeros((len(pairs), 2, 1))
        for i in set(range(len(pairs))) - {couple[0] for couple in couples}:
            values[i] = np.nan
        for i, first, second in couples:
            values[i, 0, 0] += rates.get(second, np.nan)
            values[i, 1, 0] += rates.get(first, np.nan)
        return values

    def groups(self, groups: Sequence[Sequence[int]]) -> Values:
        """Rings in which each node sends to the next: the slowest path."""
        tasks: dict[int, list[Any]] = {}
        rings = []
        for i, group in enumerate(groups):
            for ring in zip(*(self._there(node) for node in group), strict=False):
                rings.append((i, ring))
                for rank, after in zip(ring, (*ring[1:], ring[0]), strict=True):
                    tasks[rank] = [_RING, self._place(after)]
        rates = self._measure(tasks)
        values = np.full(len(groups), np.nan)
        for i in {ring[0] for ring in rings}:
            values[i] = sum(
                min((rates.get(rank, np.nan) for rank in ring), key=lambda rate: (rate == rate, rate))
                for j, ring in rings
                if j == i
            )
        return values

    def close(self) -> None:
        """Dismiss the other ranks."""
        self._crew.dismiss(_DISMISS_S)
        self._probe.close()

    def _there(self, node: int) -> list[int]:
        """The ranks of a node that take tasks."""
        return [
            rank
            for rank in self._ranks.get(self._all[node].name, ())
            if rank in self._ports and rank not in self._crew.lost
        ]

    def _lost(self, host: str) -> str:
        """What is the matter with a node; empty if all of its processes take tasks."""
        lost = self._crew.lost
        return next((f"{lost[rank]} (rank {rank})" for rank in self._ranks.get(host, ()) if rank in lost), "")

    def _place(self, rank: int) -> Place:
        return self._addresses[rank], self._ports[rank]

    def _measure(self, tasks: Mapping[int, list[Any]]) -> dict[int, float]:
        """Let ranks measure at once; rank -> rate at which bytes arrived."""
        self._number += 1
        answers = self._crew.ask(
            {rank: [*task, self._number] for rank, task in tasks.items()},
            _ROUND_S,
            lambda task: work(self._probe, task),
        )
        known = {rank: answer for rank, answer in answers.items() if answer is not None}
        self.variation = float(np.median([answer[1] for answer in known.values()])) if known else 0.0
        return {rank: answer[0] for rank, answer in known.items()}


def work(probe: TcpProbe, task: Sequence[Any]) -> tuple[float, float] | None:
    """Do a task of rank 0: a kind, where the next process listens, and the number of the round."""
    kind, place, number = task
    where = (str(place[0]), int(place[1])) if place else None
    return probe.ring(where, number) if kind == _RING and where else probe.pair(where, number)


def serve(world: World, patience: float) -> None:
    """Measure what rank 0 says, on other ranks.

    Raises
    ------
    RankLost
        If rank 0 has ended.
    """
    probes: list[TcpProbe] = []

    def answer(task: Any) -> Any:
        if not probes:
            probes.append(TcpProbe(bytes(task)))
            return probes[0].port
        return work(probes[0], task)

    try:
        Crew(world).serve(answer, patience)
    finally:
        for probe in probes:
            probe.close()


def _absent(world: World, expected: Sequence[str]) -> dict[str, str]:
    """Nodes from which no process came -> why; named by the scheduler if it says so, else by rank."""
    others = [host for host in expected if host not in world.hosts]
    if others and world.absent:
        why = next(iter(world.absent.values()))
        return dict.fromkeys(others, why)
    return {f"rank {rank}": why for rank, why in world.absent.items()}
