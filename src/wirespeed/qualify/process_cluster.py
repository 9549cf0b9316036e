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

from ..errors import WirespeedError
from ..qualification import QualifiedNode
from ..terminal import one_line
from ..worlds.crew import Crew
from .cluster import Values
from .node_facts import NodeFacts, differences, node_facts
from .tcp_probe import SECONDS, TIMEOUT_S, Place, TcpProbe

if TYPE_CHECKING:
    from ..worlds.base import World

#: Maximum time of a round in s: to connect, two directions, and bytes that do not arrive, twice.
_ROUND_S = 2 * SECONDS + 3 * TIMEOUT_S
#: Maximum time for a node to introduce itself, or to measure itself, in s.
_OWN_S = 120.0
#: Maximum time to dismiss the ranks, in s.
_DISMISS_S = 5.0
_SECRET_BYTES = 32
_PAIR, _RING, _OWN = "pair", "ring", "own"
#: Most names of RDMA devices in a note.
_MOST_NAMES = 4


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
    patience : float
        Maximum time of a round, in s; longer ones end earlier.
    """

    transport = "TCP"
    rails = 1

    def __init__(
        self, world: World, blocks: Mapping[str, str], spares: int = 0, expected: Sequence[str] = (),
        patience: float = float("inf"),
    ) -> None:  # fmt: skip
        self._started = time.monotonic()
        self._crew = Crew(world)
        self._ranks = {host: [m.rank for m in world.members if m.host == host] for host in world.hosts}
        self._addresses = world.addresses()
        secret = secrets.token_bytes(_SECRET_BYTES)
        self._probe = TcpProbe(secret)
        self._round_s = min(_ROUND_S, patience)
        self._own_s = min(_OWN_S, patience)
        self._number = 0
        asked, clock = time.monotonic(), time.time()
        answers = self._crew.ask(
            {rank: [secret, address] for rank, address in self._addresses.items()},
            self._own_s,
            lambda task: _introduction(self._probe, task),
        )
        self._ports = {rank: int(port) for rank, (port, _) in answers.items()}
        facts = {
            host: msgspec.convert(answers[ranks[0]][1], NodeFacts)
            for host, ranks in self._ranks.items()
            if ranks[0] in answers
        }
        self.limit = float(np.median([node.limit for node in facts.values()]))
        notes = differences(facts, time.monotonic() - asked, clock)
        if rdma := sorted({device for node in facts.values() for device in node.rdma}):
            notes.append(
                f"the nodes have RDMA devices ({', '.join(rdma[:_MOST_NAMES])}), which TCP does not use: "
                "this says nothing about them"
            )
        self.notes = tuple(notes)
        self._failed: dict[str, str] = {}
        self._with_gpus = {host for host, node in facts.items() if node.gpus}
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
        """Measure copies within the memory of each GPU; nothing without GPUs."""
        tasks = {
            self._ranks[self._all[node].name][0]: [_OWN]
            for node in nodes
            if self._all[node].name in self._with_gpus and self._there(node)
        }
        answers = self._crew.ask(tasks, self._own_s, lambda task: work(self._probe, task)) if tasks else {}
        measured: dict[int, list[float]] = {}
        for i, node in enumerate(nodes):
            answer = answers.get(next(iter(self._there(node)), -1), [])
            if isinstance(answer, str):
                self._failed[self._all[node].name] = f"could not measure itself: {answer}"
            else:
                measured[i] = answer
        values = np.full((len(nodes), max((len(row) for row in measured.values()), default=0)), np.nan)
        for i, row in measured.items():
            values[i, : len(row)] = row
        return values

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
        if host in self._failed:
            return self._failed[host]
        lost = self._crew.lost
        return next((f"{lost[rank]} (rank {rank})" for rank in self._ranks.get(host, ()) if rank in lost), "")

    def _place(self, rank: int) -> Place:
        return self._addresses[rank], self._ports[rank]

    def _measure(self, tasks: Mapping[int, list[Any]]) -> dict[int, float]:
        """Let ranks measure at once; rank -> rate at which bytes arrived."""
        self._number += 1
        answers = self._crew.ask(
            {rank: [*task, self._number] for rank, task in tasks.items()},
            self._round_s,
            lambda task: work(self._probe, task),
        )
        known = {rank: answer for rank, answer in answers.items() if answer is not None}
        self.variation = float(np.median([answer[1] for answer in known.values()])) if known else 0.0
        return {rank: answer[0] for rank, answer in known.items()}


def work(probe: TcpProbe, task: Sequence[Any]) -> Any:
    """Do a task of rank 0: a kind, where the next process listens, and the number of the round."""
    if task[0] == _OWN:
        return _own()
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
            probes.append(TcpProbe(bytes(task[0])))
            return _introduction(probes[0], task)
        return work(probes[0], task)

    try:
        Crew(world).serve(answer, patience)
    finally:
        for probe in probes:
            probe.close()


def _introduction(probe: TcpProbe, task: Sequence[Any]) -> tuple[int, Any]:
    """Where this process listens, and what its node is."""
    return probe.port, msgspec.to_builtins(node_facts(str(task[1])))


def _own() -> list[float] | str:
    """Bandwidth of copies within the memory of each GPU of this node, in bytes per second; or the error."""
    from ..backends import describe
    from ..bandwidth import memory_bandwidth

    try:
        return [memory_bandwidth(device=gpu.name).value for gpu in describe(None).gpus]
    except WirespeedError as error:
        return one_line(str(error))


def _absent(world: World, expected: Sequence[str]) -> dict[str, str]:
    """Nodes from which no process came -> why; named by the scheduler if it says so, else by rank."""
    others = [host for host in expected if host not in world.hosts]
    if others and world.absent:
        why = next(iter(world.absent.values()))
        return dict.fromkeys(others, why)
    return {f"rank {rank}": why for rank, why in world.absent.items()}
