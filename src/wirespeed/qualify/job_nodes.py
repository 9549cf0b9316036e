"""The nodes of a job: their processes, what they are, and which did not come."""

from __future__ import annotations

import statistics
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import msgspec

from ..errors import WirespeedError
from ..qualification import QualifiedNode
from ..terminal import one_line
from ..worlds.crew import Crew
from .node_facts import NodeFacts, differences, node_facts

if TYPE_CHECKING:
    from ..worlds.base import World

#: Maximum time for a node to introduce itself, or to measure itself, in s.
OWN_S = 120.0
#: Most names of RDMA devices in a note.
_MOST_NAMES = 4


@dataclass(frozen=True)
class JobNodes:
    """The nodes of a job, and what they are.

    Parameters
    ----------
    nodes : tuple[QualifiedNode, ...]
        All nodes; those from which no process came are missing.
    ranks : tuple[tuple[int, ...], ...]
        The ranks of each node, by their local rank.
    ports : Mapping[int, int]
        Rank -> port on which it listens.
    gpus : frozenset[int]
        Indices of the nodes that have GPUs.
    limit : float
        What most nodes' network interfaces carry in one direction, in bytes per second; 0 if unknown.
    notes : tuple[str, ...]
        In what nodes differ.
    rdma : tuple[str, ...]
        Names of RDMA devices that nodes have, and whose links are up.
    """

    nodes: tuple[QualifiedNode, ...]
    ranks: tuple[tuple[int, ...], ...]
    ports: Mapping[int, int]
    gpus: frozenset[int]
    limit: float
    notes: tuple[str, ...]
    rdma: tuple[str, ...]

    def unused(self, transport: str, remedy: str) -> str:
        """That the RDMA devices of the nodes are not used, and what to do."""
        names = ", ".join(self.rdma[:_MOST_NAMES])
        return f"the nodes have RDMA devices ({names}), which {transport} does not use: {remedy}"


def introduce(
    crew: Crew, secret: bytes, port: int, blocks: Mapping[str, str], spares: int, expected: Sequence[str],
    patience: float,
) -> JobNodes:  # fmt: skip
    """Ask all processes where they listen and what their nodes are; on rank 0.

    Parameters
    ----------
    crew : Crew
        The processes.
    secret : bytes
        What connections between them begin with.
    port : int
        Port on which rank 0 listens.
    blocks : Mapping[str, str]
        Host -> its block.
    spares : int
        Number of nodes at the end that are spares.
    expected : Sequence[str]
        The hosts of the job by its scheduler, to name those from which no process came; empty if unknown.
    patience : float
        Maximum time, in s.
    """
    world = crew.world
    asked, clock = time.monotonic(), time.time()
    answers = crew.ask(
        {rank: [secret, address] for rank, address in world.addresses().items()},
        patience,
        lambda task: introduction(port, task),
    )
    hosts = {host: tuple(m.rank for m in world.members if m.host == host) for host in world.hosts}
    facts = {
        host: msgspec.convert(answers[ranks[0]][1], NodeFacts)
        for host, ranks in hosts.items()
        if ranks[0] in answers
    }
    absent = _absent(world, expected)
    names = [*hosts, *absent]
    return JobNodes(
        tuple(
            QualifiedNode(
                name, blocks.get(name, ""), spare=i >= len(names) - spares, missing=absent.get(name, "")
            )
            for i, name in enumerate(names)
        ),
        tuple(hosts.get(name, ()) for name in names),
        {rank: int(answer[0]) for rank, answer in answers.items()},
        frozenset(i for i, name in enumerate(names) if name in facts and facts[name].gpus),
        statistics.median(node.limit for node in facts.values()),
        tuple(differences(facts, time.monotonic() - asked, clock)),
        tuple(sorted({device for node in facts.values() for device in node.rdma})),
    )


def introduction(port: int, task: Sequence[Any]) -> tuple[int, Any]:
    """Where this process listens, and what its node is: the answer to ``introduce``."""
    return port, msgspec.to_builtins(node_facts(str(task[1])))


def own_memory() -> list[float] | str:
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
        return dict.fromkeys(others, next(iter(world.absent.values())))
    return {f"rank {rank}": why for rank, why in world.absent.items()}
