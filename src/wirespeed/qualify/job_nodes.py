"""The nodes of a job: their processes, what they are, and which did not come."""

from __future__ import annotations

import statistics
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np

from ..errors import WirespeedError
from ..qualification import OWN_PARTS, PartKind, QualifiedNode
from ..terminal import one_line
from ..worlds.crew import Crew
from .cluster import Values
from .node_facts import NO_NCCL, NodeFacts, differences, node_facts

if TYPE_CHECKING:
    from ..worlds.base import World

#: Maximum time for a node to introduce itself, or to measure itself, in s.
OWN_S = 120.0
#: Most names of RDMA devices in a note.
_MOST_NAMES = 4


@dataclass(frozen=True)
class JobNodes:
    """The nodes of a job, and what they are.

    Attributes:
        nodes: All nodes; those from which no process came are missing.
        ranks: The ranks of each node, by their local rank.
        ports: Rank -> port on which it listens.
        gpus: Indices of the nodes that have GPUs.
        limit: What most nodes' network interfaces carry in one direction, in bytes per second; 0 if unknown.
        notes: In what nodes differ.
        without_nccl: Names of nodes without NCCL, if others have it.
        shared: Whether some nodes run on the same machine, so that they do not measure themselves.
        rdma: Names of RDMA devices that nodes have, and whose links are up.
    """

    nodes: tuple[QualifiedNode, ...]
    ranks: tuple[tuple[int, ...], ...]
    ports: Mapping[int, int]
    gpus: frozenset[int]
    limit: float
    notes: tuple[str, ...]
    rdma: tuple[str, ...]
    shared: bool = False
    without_nccl: tuple[str, ...] = ()

    def unused(self, transport: str, remedy: str) -> str:
        """That the RDMA devices of the nodes are not used, and what to do."""
        names = ", ".join(self.rdma[:_MOST_NAMES])
        return f"the nodes have RDMA devices ({names}), which {transport} does not use: {remedy}"


def introduce(
    crew: Crew, secret: bytes, port: int, blocks: Mapping[str, str], spares: int, expected: Sequence[str],
    patience: float,
) -> JobNodes:  # fmt: skip
    """Ask all processes where they listen and what their nodes are; on rank 0.

    Args:
        crew: The processes.
        secret: What connections between them begin with.
        port: Port on which rank 0 listens.
        blocks: Host -> its block.
        spares: Number of nodes at the end that are spares.
        expected: The hosts of the job by its scheduler, to name those from which no process came; empty if
            unknown.
        patience: Maximum time, in s.
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
    without_nccl = tuple(host for host, node in facts.items() if node.nccl in ("", NO_NCCL))
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
        len({node.boot for node in facts.values() if node.boot})
        < sum(bool(node.boot) for node in facts.values()),
        without_nccl if len(without_nccl) < len(facts) else (),
    )


def introduction(port: int, task: Sequence[Any]) -> tuple[int, Any]:
    """Where this process listens, and what its node is: the answer to ``introduce``."""
    return port, msgspec.to_builtins(node_facts(str(task[1])))


#: Testcases that a node measures by itself: with GPUs, and without; number of samples of each value.
_OF_GPUS, _OF_HOST, _SAMPLES = {
    "device_local_copy": PartKind.GPU, "host_to_device_memcpy_ce": PartKind.HOST_LINK,
    "device_to_host_memcpy_ce": PartKind.HOST_LINK,
}, {"host_stream_copy": PartKind.MEMORY}, 3  # fmt: skip


def own_values() -> dict[str, list[float]] | str:
    """Measure this node by itself.

    Returns:
        Kind of part -> bandwidth of each in bytes per second, of a link that of the slower direction; or the
        error.
    """
    from ..api import run
    from ..backends import describe

    cases = _OF_GPUS if describe(None).gpus else _OF_HOST
    try:
        document = run(list(cases), samples=_SAMPLES, rounds=1)
    except WirespeedError as error:
        return one_line(str(error))
    found: dict[PartKind, dict[str, float]] = {}
    for result in document.testcases:
        for table in result.tables:
            for cell in table.cells:
                if cell.value:
                    of_kind = found.setdefault(cases[result.name], {})
                    name = table.columns.labels[cell.column]
                    of_kind[name] = min(cell.value, of_kind.get(name, cell.value))
    if document.interrupted or not found:
        return document.interrupted or "no value was measured"
    return {kind: list(values.values()) for kind, values in found.items()}


def own_table(
    nodes: Sequence[int], rows: Mapping[int, Mapping[str, Sequence[float]]]
) -> dict[PartKind, Values]:
    """The values of some nodes: kind of part -> array of shape (nodes, parts), NaN where a node has none.

    Args:
        nodes: The nodes.
        rows: Node -> kind of part -> its values.
    """
    table = {}
    for kind in OWN_PARTS:
        most = max((len(row.get(kind, ())) for row in rows.values()), default=0)
        if most:
            table[kind] = np.full((len(nodes), most), np.nan)
            for i, node in enumerate(nodes):
                values = rows.get(node, {}).get(kind, ())
                table[kind][i, : len(values)] = values
    return table


def _absent(world: World, expected: Sequence[str]) -> dict[str, str]:
    """Nodes from which no process came -> why; named by the scheduler if it says so, else by rank."""
    others = [host for host in expected if host not in world.hosts]
    if others and world.absent:
        return dict.fromkeys(others, next(iter(world.absent.values())))
    return {f"rank {rank}": why for rank, why in world.absent.items()}
