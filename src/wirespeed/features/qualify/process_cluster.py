"""The nodes of a job, measured over TCP between their processes, whose rates are added."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Annotated, Any

import msgspec
import numpy as np

from ...backends.host.nic_facts import is_disabled
from ...hardware.facts import Fact, Known
from ...qualification import TCP, EndMemory, QualifiedNode, RailLimit
from ...tables import Amount, Whole
from ...units import times
from ...worlds.crew import Crew
from .cluster import Values
from .job_nodes import LINK, MESSAGES, MOST_NAMES, PAIR, RING, JobCluster, JobNodes
from .limits import of_tcp
from .tcp_probe import SECONDS, TIMEOUT_S, Place, TcpProbe

#: Maximum time of a round in s: to connect, two directions, and bytes that do not arrive, twice.
_ROUND_S = 2 * SECONDS + 3 * TIMEOUT_S
#: Number of connections between two nodes, of which one does not fill a fast path.
_STREAMS = 4
#: Least duration of the messages of a size in s, and at the rate of the path a multiple of the time of one.
_SIZE_S, _TIMES = 0.05, 2.5
#: Rate of what arrived, its relative error and, of a pair, the share of what was sent again; None of nothing.
_RATES = Annotated[list[Amount], msgspec.Meta(min_length=2, max_length=3)] | None


class ProcessCluster(JobCluster):
    """The nodes of a job, on rank 0."""

    transport = TCP
    rails = 1
    memories = (EndMemory.HOST,)

    def __init__(self, crew: Crew, job: JobNodes, probe: TcpProbe, patience: float) -> None:
        super().__init__(crew, job, probe, patience)
        self._addresses = crew.world.addresses()
        self._number = 0
        self._sent_again: dict[int, float] = {}
        self._interfaces = [job.interfaces.get(node.name, "") for node in job.nodes]
        self._lost_links: dict[str, int] = {}  # node -> how often its interface lost its link meanwhile
        self._is_cut_off = False  # the interface of rank 0's node was switched off
        self.limits: tuple[RailLimit, ...] = tuple(
            limit
            for i, node in enumerate(job.nodes)
            for limit in of_tcp(i, job.nics_of(i), job.interfaces.get(node.name, ""))
        )
        self._slowest: dict[frozenset[int], float] = {}  # pair -> its lower rate, in bytes per second
        unused = job.unused(self.transport, "measure them with --transport nccl or mpi")
        missing = (
            f"NCCL is missing on {', '.join(job.without_nccl[:MOST_NAMES])} (pip install 'wirespeed[nccl]')"
        )
        with_gpus = len(job.gpus) == len(job.nodes)
        self._doubts = tuple(
            text for text, holds in ((unused, job.rdma), (missing, with_gpus and job.without_nccl)) if holds
        )

    @property
    def nodes(self) -> tuple[QualifiedNode, ...]:
        """All nodes, with what is known by now about those that are lost."""
        return tuple(
            msgspec.structs.replace(node, missing=node.missing or self._lost(i))
            for i, node in enumerate(self._job.nodes)
        )

    @property
    def facts(self) -> tuple[Fact, ...]:
        """The facts of two nodes, with how often their interfaces lost their links; of more nodes nothing."""
        lost = [
            Fact(Known.INTERFACE_LOST, count, device=self._job.interfaces[name], host=name)
            for name, count in self._lost_links.items()
            if any(fact.host == name for fact in self._facts)
        ]
        return (*self._facts, *lost)

    @property
    def doubts(self) -> tuple[str, ...]:
        lost = (
            f"{name}: {self._job.interfaces[name]} lost its link {times(count)} during the run: check the "
            "cable and the switch port (dmesg)"
            for name, count in self._lost_links.items()
            if count and not self._is_cut_off
        )
        return (*self._doubts, *lost)

    def pairs(self, pairs: Sequence[tuple[int, int]]) -> Values:
        tasks: dict[int, list[Any]] = {}
        couples = []
        for i, (a, b) in enumerate(pairs):
            # Nodes with different numbers of processes: as many as the smaller has.
            for first, second in zip(self._there(a), self._there(b), strict=False):
                streams = max(1, _STREAMS // len(self._there(a))) if len(self._job.nodes) == 2 else 1
                tasks[first], tasks[second] = [PAIR, self._place(second), streams], [PAIR, None, streams]
                couples.append((i, first, second))
        rates = self._measure(tasks)
        self.losses = np.full((len(pairs), 2), np.nan)
        for i, first, second in couples:
            of_pair = [self._sent_again.get(rank, np.nan) for rank in (first, second)]
            self.losses[i] = np.fmax(self.losses[i], of_pair)
        values = np.zeros((len(pairs), 2, 1))
        for i in set(range(len(pairs))) - {couple[0] for couple in couples}:
            values[i] = np.nan
        for i, first, second in couples:
            values[i, 0, 0] += rates.get(second, np.nan)
            values[i, 1, 0] += rates.get(first, np.nan)
        for i, pair in enumerate(pairs):
            self._slowest[frozenset(pair)] = float(np.fmin(values[i, 0, 0], values[i, 1, 0]))
        return values

    def sizes(self, pair: tuple[int, int], memory: EndMemory, both: bool, sizes: Sequence[int]) -> Values:
        """Messages are divided over all connections between two nodes, and each part is answered."""
        del memory  # over TCP always that of the host
        self._number += 1
        couples = list(zip(*(self._there(node) for node in pair), strict=False))
        values = np.full((len(sizes), 2, 1), np.nan)
        rate = self._slowest.get(frozenset(pair), 0.0)
        if not couples or not rate > 0:
            return values
        streams = max(1, _STREAMS // len(couples))
        durations = [max(_SIZE_S, _TIMES * size / rate) for size in sizes]
        plan = [
            [max(1, size // (len(couples) * streams)), seconds]
            for size, seconds in zip(sizes, durations, strict=True)
        ]
        tasks: dict[int, list[Any]] = {}
        patience = min(self._patience, 2 * (2 if not both else 1) * sum(durations) + 3 * TIMEOUT_S)
        for first, second in couples:
            tasks[first] = [MESSAGES, self._place(second), streams, plan, both, patience, self._number]
            tasks[second] = [MESSAGES, None, streams, plan, both, patience, self._number]
        of_sizes = Annotated[list[Amount], msgspec.Meta(min_length=len(sizes), max_length=len(sizes))]
        answers = self._ask(tasks, patience, of_sizes | None)
        self._look_at_links()
        for side in (0, 1):
            sent = [answers.get(couple[side]) for couple in couples]
            values[:, side, 0] = np.sum([np.nan if of is None else of for of in sent], axis=0)
        return values

    def groups(self, groups: Sequence[Sequence[int]]) -> Values:
        """Rings in which each node sends to the next: the slowest path."""
        tasks: dict[int, list[Any]] = {}
        rings = []
        for i, group in enumerate(groups):
            for ring in zip(*(self._there(node) for node in group), strict=False):
                rings.append((i, ring))
                for rank, after in zip(ring, (*ring[1:], ring[0]), strict=True):
                    tasks[rank] = [RING, self._place(after)]
        rates = self._measure(tasks)
        values = np.full(len(groups), np.nan)
        for i in {ring[0] for ring in rings}:
            values[i] = math.fsum(
                min((rates.get(rank, np.nan) for rank in ring), key=lambda rate: (rate == rate, rate))
                for j, ring in rings
                if j == i
            )
        return values

    def _lost(self, node: int) -> str:
        """What is the matter with a node; empty if all of its processes take tasks."""
        if node in self._failed:
            return self._failed[node]
        lost = self._crew.lost
        if self._is_cut_off:  # then no other node can answer it
            first = 0 in self._job.ranks[node]
            return f"is cut off: {self._interfaces[node]} is down" if first else ""
        return next((f"{lost[rank]} (rank {rank})" for rank in self._job.ranks[node] if rank in lost), "")

    def _look_at_links(self) -> None:
        """Ask all nodes how often their interfaces have lost their links."""
        of_rank = {rank: node for node in range(len(self._job.nodes)) for rank in self._there(node)}
        tasks = {rank: [LINK, self._interfaces[node]] for rank, node in of_rank.items()}
        for rank, lost in self._ask(tasks, _ROUND_S, Whole).items():
            name = self._job.nodes[of_rank[rank]].name
            if self._interfaces[of_rank[rank]]:
                self._lost_links[name] = max(0, lost - self._job.lost[name])
        mine = [self._interfaces[node] for rank, node in of_rank.items() if rank == 0]
        self._is_cut_off = any(interface and is_disabled(interface) for interface in mine)

    def _place(self, rank: int) -> Place:
        return self._addresses[rank], self._job.ports[rank]

    def _measure(self, tasks: Mapping[int, list[Any]]) -> dict[int, float]:
        """Let ranks measure at once; rank -> rate at which bytes arrived."""
        self._number += 1
        numbered = {rank: [*task, self._number] for rank, task in tasks.items()}
        answers = self._ask(numbered, _ROUND_S, _RATES)
        self._look_at_links()
        known = {rank: answer for rank, answer in answers.items() if answer is not None}
        self.variation = float(np.median([answer[1] for answer in known.values()])) if known else 0.0
        self._sent_again = {rank: answer[2] for rank, answer in known.items() if len(answer) > 2}
        return {rank: answer[0] for rank, answer in known.items()}
