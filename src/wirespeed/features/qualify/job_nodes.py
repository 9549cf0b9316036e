"""The nodes of a job: what they are, which did not come, and their rates over TCP between their processes.
The processes of a node measure in parallel, and their rates are added: over TCP they share its network. Rank
0 measures itself, too; nodes that are lost on the way are findings.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
import numpy as np

from ...backends.host.nic_facts import lost_links
from ...errors import WirespeedError
from ...hardware.facts import Fact, Facts
from ...qualification import OWN_PARTS, PartKind, QualifiedNode
from ...tables import Amount
from ...terminal import one_line
from ...worlds.crew import Crew
from .cluster import Values
from .limits import FACTS, MTU, facts_of, facts_of_two, read_facts, read_mtus
from .node_facts import NO_NCCL, NodeFacts, differences, node_facts
from .tcp_probe import TcpProbe

if TYPE_CHECKING:
    from ...worlds.base import World

#: Maximum time for a node to introduce itself, or to measure itself, in s.
OWN_S = 120.0
#: Maximum time to dismiss the ranks, in s.
_DISMISS_S = 5.0
#: Most names of RDMA devices in a note.
MOST_NAMES = 4


@dataclass(frozen=True)
class JobNodes:
    """The nodes of a job, and what they are.

    Attributes:
        nodes: All nodes; those from which no process came are missing.
        ranks: The ranks of each node, by their local rank.
        ports: Rank -> port on which it listens.
        gpus: Indices of the nodes that have GPUs.
        notes: In what nodes differ.
        without_nccl: Names of nodes without NCCL, if others have it.
        shared: Whether some nodes run on the same machine, so that they do not measure themselves.
        rdma: Names of RDMA devices that nodes have, and whose links are up.
        facts: The facts of two nodes, each with the name of its host; of more nodes nothing.
        interfaces: Node -> network interface by which rank 0 reaches it.
        nics: Node -> facts of what carries its data.
        lost: Node -> how often its interface had lost its link before.
    """

    nodes: tuple[QualifiedNode, ...]
    ranks: tuple[tuple[int, ...], ...]
    ports: Mapping[int, int]
    gpus: frozenset[int]
    notes: tuple[str, ...]
    rdma: tuple[str, ...]
    shared: bool = False
    without_nccl: tuple[str, ...] = ()
    facts: tuple[Fact, ...] = ()
    interfaces: Mapping[str, str] = field(default_factory=dict)
    nics: Mapping[str, tuple[Fact, ...]] = field(default_factory=dict)
    lost: Mapping[str, int] = field(default_factory=dict)

    def nics_of(self, node: int) -> Facts:
        """The facts of the NICs that carry the data of a node."""
        return Facts(self.nics.get(self.nodes[node].name, ()))

    def unused(self, transport: str, remedy: str) -> str:
        """That the RDMA devices of the nodes are not used, and what to do."""
        names = ", ".join(self.rdma[:MOST_NAMES])
        return f"the nodes have RDMA devices ({names}), which {transport} does not use: {remedy}"


def introduce(
    crew: Crew, secret: bytes, probe: TcpProbe, blocks: Mapping[str, str], expected: Sequence[str],
    patience: float,
) -> JobNodes:  # fmt: skip
    """Ask all processes where they listen and what their nodes are; on rank 0.

    Args:
        crew: The processes.
        secret: What connections between them begin with.
        probe: Rank 0's end of connections.
        blocks: Host -> its block.
        expected: The hosts of the job by its scheduler, to name those from which no process came; empty if
            unknown.
        patience: Maximum time, in s.
    """
    world = crew.world
    asked, clock, is_pair = time.monotonic(), time.time(), len(world.hosts) == 2
    tasks = {rank: [secret, address, is_pair] for rank, address in world.addresses().items()}
    answers = crew.ask(tasks, patience, lambda task: introduction(probe.port, task), tuple[Port, NodeFacts])
    took = time.monotonic() - asked
    hosts = {host: tuple(m.rank for m in world.members if m.host == host) for host in world.hosts}
    answers |= {0: msgspec.convert(answers[0], tuple[Port, NodeFacts])} if 0 in answers else {}
    facts = {host: answers[ranks[0]][1] for host, ranks in hosts.items() if ranks[0] in answers}
    ports = {rank: answer[0] for rank, answer in answers.items()}
    first = {host: ranks[0] for host, ranks in hosts.items() if host in facts}
    interfaces = {host: node.interface for host, node in facts.items()}
    found = facts_of_two(crew, first, interfaces, probe, ports, patience) if len(first) == 2 else ()
    without_nccl = tuple(host for host, node in facts.items() if node.nccl in ("", NO_NCCL))
    absent = _absent(world, expected)
    names = [*hosts, *absent]
    return JobNodes(
        tuple(QualifiedNode(name, blocks.get(name, ""), missing=absent.get(name, "")) for name in names),
        tuple(hosts.get(name, ()) for name in names),
        ports,
        frozenset(i for i, name in enumerate(names) if name in facts and facts[name].gpus),
        tuple(differences(facts, took, clock)),
        tuple(sorted({device for node in facts.values() for device in node.rdma})),
        len({node.boot for node in facts.values() if node.boot})
        < sum(bool(node.boot) for node in facts.values()),
        without_nccl if len(without_nccl) < len(facts) else (),
        found,
        interfaces,
        {host: node.nics or facts_of(host, found) for host, node in facts.items()},
        {host: node.lost for host, node in facts.items()},
    )


def introduction(port: int, task: Sequence[Any]) -> tuple[int, Any]:
    """Where this process listens, and what its node is: the answer to ``introduce``.

    One of two nodes leaves out the facts of its NICs, so that one small packet holds the answer: it says the
    same behind the measurement of the largest packet.
    """
    facts, is_pair = node_facts(str(task[1])), len(task) > 2 and task[2]
    return port, msgspec.to_builtins(msgspec.structs.replace(facts, nics=()) if is_pair else facts)


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
    from ...api import run
    from ...backends import describe

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


#: A port, and what a node measures of itself: kind of part -> its values, or an error.
Port = Annotated[int, msgspec.Meta(ge=1, le=65535)]
OwnValues = dict[str, list[Amount]] | str


#: Tasks of a rank: what they are called. The rest of each is what `work` takes.
OWN, LINK, PAIR, RING, MESSAGES = "own", "link", "pair", "ring", "messages"


def work(probe: TcpProbe, task: Sequence[Any]) -> Any:
    """Do a task of rank 0: a kind, where the next process listens, and the number of the round."""
    if task[0] == OWN:
        return own_values()
    if task[0] == FACTS:
        return read_facts(task)
    if task[0] == MTU:
        return read_mtus(probe, task)
    if task[0] == LINK:
        return lost_links(str(task[1])) if task[1] else 0
    kind, place, *more, number = task
    where = (str(place[0]), int(place[1])) if place else None
    if kind == MESSAGES:
        streams, plan, both, most = more
        sizes = [(int(size), float(seconds)) for size, seconds in plan]
        return probe.messages(where, number, int(streams), sizes, bool(both), float(most))
    if kind == RING and where:
        return probe.ring(where, number)
    return probe.pair(where, number, int(more[0]))


class JobCluster:
    """The nodes of a job on rank 0, however their paths are measured.

    Attributes:
        crew: The processes of the job.
        job: Its nodes.
        probe: Rank 0's end of connections.
        patience: Maximum time of a round, in s; longer ones end earlier.
    """

    def __init__(self, crew: Crew, job: JobNodes, probe: TcpProbe, patience: float) -> None:
        self._started = time.monotonic()
        self._crew, self._job, self._probe, self._patience = crew, job, probe, patience
        self._facts, self.notes = job.facts, job.notes
        self._failed: dict[int, str] = {}  # node -> why it could not measure itself
        self.variation = 0.0
        self.losses = np.zeros((0, 2))

    def seconds(self) -> float:
        return time.monotonic() - self._started

    def own(self, nodes: Sequence[int]) -> Mapping[PartKind, Values] | None:
        if self._job.shared:
            return None
        first = {node: there[0] for node in nodes if (there := self._there(node))}
        answers = self._ask({rank: [OWN] for rank in first.values()}, OWN_S, OwnValues)
        rows = {}
        for node, rank in first.items():
            answer = answers.get(rank, {})
            if isinstance(answer, str):
                self._failed[node] = f"could not measure itself: {answer}"
            else:
                rows[node] = answer
        return own_table(nodes, rows)

    def examine(self, pair: tuple[int, int]) -> None:
        first = {self._job.nodes[node].name: there[0] for node in pair if (there := self._there(node))}
        if len(first) == 2:
            patience = min(OWN_S, self._patience)
            self._facts = facts_of_two(
                self._crew, first, self._job.interfaces, self._probe, self._job.ports, patience
            )

    def close(self) -> None:
        """Dismiss the other ranks."""
        self._crew.dismiss(_DISMISS_S)
        self._probe.close()

    def _ask(self, tasks: Mapping[int, list[Any]], seconds: float, kind: Any) -> dict[int, Any]:
        """Give ranks their tasks; rank -> its answer, of this type."""
        patience = min(seconds, self._patience)
        return self._crew.ask(tasks, patience, lambda task: work(self._probe, task), kind)

    def _there(self, node: int) -> list[int]:
        """The ranks of a node that take tasks."""
        return [
            rank for rank in self._job.ranks[node] if rank in self._job.ports and rank not in self._crew.lost
        ]
