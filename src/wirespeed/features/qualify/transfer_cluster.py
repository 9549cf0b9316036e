"""The nodes of a job, measured by transfers between ranks over NCCL or MPI. The rank with local index i of a
node is its rail i: NCCL and MPI give it the NIC next to its GPU. All ranks take part in every round, so that
a rank that is lost ends the run.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np

from ...api import run
from ...errors import WirespeedError
from ...hardware.facts import Fact, Known
from ...qualification import TCP, EndMemory, QualifiedNode, RailLimit
from ...tables import Cell
from ...terminal import one_line
from ...thresholds.clusters import USUAL_RDMA
from ...units import MIB
from ...worlds.base import RankLost, World
from ...worlds.crew import Crew
from .carriers import Carrier, Sent, carrier, counters, difference, others, said
from .cluster import Values
from .job_nodes import JobCluster, JobNodes
from .limits import fastest, of_rdma, of_tcp, use_of
from .messages import Hop, messages_between
from .tcp_probe import TcpProbe

if TYPE_CHECKING:
    from ...document import Document

#: Bytes of a transfer, number of samples, and duration of each that is aimed at, in s.
_BYTES, _SAMPLES, _SAMPLE_S = 8 * MIB, 3, 0.1
_MOST_COPIES = 256
#: Target precision of messages, and maximum time for those of a size in s.
_PRECISION, _OF_SIZE_S = 0.05, 0.05
#: What to do if a library does not use RDMA devices that exist.
_REMEDIES = {
    "nccl": "check NCCL_IB_DISABLE, NCCL_NET, /dev/infiniband in the container and ulimit -l; "
    "NCCL_DEBUG=INFO says what NCCL finds",
    "mpi": "its UCX may be built without RDMA, as that of the wheel libucx-cu13 is: ucx_info -d",
}
#: The task of all ranks together: what it is called. The rest of it is what `transfer` takes.
TRANSFERS = "transfers"
#: Facts of the interface by which the processes of a job meet.
_OF_INTERFACE = (
    Known.INTERFACE_KIND,
    Known.INTERFACE_SPEED,
    Known.INTERFACE_MTU,
    Known.PATH_MTU,
    Known.ROUTE_MTU,
    Known.ROUTE_INTERFACE,
    Known.INTERFACE_ADDRESS,
)


class TransferCluster(JobCluster):
    """The nodes of a job, on rank 0.

    Attributes:
        over: ``nccl`` or ``mpi``.
    """

    def __init__(self, crew: Crew, job: JobNodes, probe: TcpProbe, patience: float, over: str) -> None:
        super().__init__(crew, job, probe, patience)
        self._over = over
        self._carriers: dict[str, Carrier] = {}  # node -> what carried its bytes
        self._rate = 0.0  # median of the last rates between nodes, in bytes per second
        self._copies = 0  # per sample; 0: not known yet

    @property
    def nodes(self) -> tuple[QualifiedNode, ...]:
        return tuple(
            msgspec.structs.replace(node, rails=len(ranks), missing=node.missing or self._failed.get(i, ""))
            for i, (node, ranks) in enumerate(zip(self._job.nodes, self._job.ranks, strict=True))
        )

    @property
    def rails(self) -> int:
        return min(len(ranks) for ranks in self._job.ranks)

    @property
    def transport(self) -> str:
        """The library, and what carried its bytes if that is known: ``NCCL over InfiniBand (mlx5_0)``."""
        name, used = self._over.upper(), said(list(self._carriers.values()))
        return f"{name} over {used}" if used else name

    @property
    def limits(self) -> tuple[RailLimit, ...]:
        """What carries the rails of each node, by the devices that carried its bytes."""
        found: list[RailLimit] = []
        carriers = [self._carriers.get(node.name) for node in self._job.nodes]
        known = fastest(
            (self._job.nics_of(i), used.devices)
            for i, used in enumerate(carriers)
            if used and used.kind != TCP
        )
        for i, used in enumerate(carriers):
            if used is None:
                continue
            facts = self._job.nics_of(i)
            if used.kind == TCP:
                found += of_tcp(i, facts, used.devices[0]) if len(used.devices) == 1 else []
            else:
                found += of_rdma(i, facts, self.rails, used.devices, known)
        return tuple(found)

    @property
    def facts(self) -> tuple[Fact, ...]:
        """The facts of two nodes, with those of what carried their bytes."""
        more: list[Fact] = []
        for i, node in enumerate(self._job.nodes):
            used = self._carriers.get(node.name)
            facts = self._job.nics_of(i)
            ports = [port for port in facts.devices() if facts.text(Known.PORT_STATE, port)]
            if any(fact.host == node.name for fact in self._facts) and used and used.kind != TCP:
                more += use_of(ports, used.devices, node.name)
        # The interface by which the processes meet carries nothing then.
        over_tcp = any(each.kind == TCP for each in self._carriers.values())
        mine = [fact for fact in self._facts if over_tcp or fact.name not in _OF_INTERFACE]
        return (*mine, *more)

    @property
    def memories(self) -> tuple[EndMemory, ...]:
        """Between which memory messages are measured: that of GPUs first, if all nodes have some."""
        of_gpus = self._job.gpus and len(self._job.gpus) == len(self._job.nodes)
        return (EndMemory.GPU, EndMemory.HOST) if of_gpus else (EndMemory.HOST,)

    @property
    def doubts(self) -> tuple[str, ...]:
        """That RDMA devices are not used, by all nodes or by some, or carry less than they can."""
        kinds = {each.kind for each in self._carriers.values() if each.kind}
        if self._job.rdma and kinds == {TCP}:
            return (self._job.unused(self.transport, _REMEDIES[self._over]),)
        doubts = [others(self._carriers)]
        ports = [limit.port for limit in self.limits]
        speed = float(np.median(ports)) if ports else 0.0
        if TCP not in kinds and self._rate < USUAL_RDMA * speed:
            doubts.append(
                f"the median path reaches {self._rate / speed:.0%} of what its NICs carry, where "
                f"{USUAL_RDMA:.0%} are usual"
            )
        return tuple(filter(None, doubts))

    def pairs(self, pairs: Sequence[tuple[int, int]]) -> Values:
        ranks, rails = self._job.ranks, range(self.rails)
        there = [(ranks[a][rail], ranks[b][rail]) for a, b in pairs for rail in rails]
        back = [(b, a) for a, b in there]
        if not self._copies:
            self._copies = 1
            rate = float(np.nanmedian(self._rates(there)))
            self._copies = int(np.clip(rate * _SAMPLE_S / _BYTES, 1, _MOST_COPIES))
        rates = [self._rates(hops) for hops in (there, back)]
        return np.stack([np.reshape(of, (len(pairs), len(rails))) for of in rates], axis=1)

    def sizes(self, pair: tuple[int, int], memory: EndMemory, both: bool, sizes: Sequence[int]) -> Values:
        a, b = (self._job.ranks[node] for node in pair)
        there = list(zip(a[: self.rails], b[: self.rails], strict=True))
        back = [(target, source) for source, target in there]
        ways = [there + back] if both else [there, back]
        document, _ = self._together(ways, sizes, memory, precision=_PRECISION, time_budget=_OF_SIZE_S)
        values = {(row, int(column)): cell.value for row, column, cell in _cells(document)}
        if not any(values.values()):
            why = next((result.reason for result in document.testcases if result.reason), "no value")
            note = f"messages from {memory} were not measured: {one_line(why)}"
            self.notes = (*self.notes, *([note] if note not in self.notes else []))
        return np.array([
            [[values.get((f"rank{a}->rank{b}", size)) or np.nan for a, b in way] for way in (there, back)]
            for size in sizes
        ])  # fmt: skip

    def groups(self, groups: Sequence[Sequence[int]]) -> Values:
        """Rings in which each rank sends to the next node's: the slowest path, times the number of rails."""
        ranks, rails = self._job.ranks, range(self.rails)
        hops, of = [], []
        for i, group in enumerate(groups):
            for node, after in zip(group, (*group[1:], group[0]), strict=True):
                hops += [(ranks[node][rail], ranks[after][rail]) for rail in rails]
                of += [i] * len(rails)
        rates, index = self._rates(hops), np.array(of)
        return np.array([rates[index == i].min() * len(rails) for i in range(len(groups))])

    def _together(
        self, ways: Sequence[Sequence[Hop]], sizes: Sequence[int], memory: EndMemory, **options: Any
    ) -> tuple[Document, dict[int, Sent]]:
        """Let all ranks transfer; the run, and what the node of each rank has sent.

        Raises:
            RankLost: If one is lost: none can go on then.
        """
        crew, world = self._crew, self._crew.world
        if not crew.lost:
            task = [TRANSFERS, self._over, ways, sizes, memory, options]
            tasks = dict.fromkeys(range(world.size), task)
            answers = crew.ask(tasks, self._patience, lambda task: transfer(world, *task[1:]), Sent)
            if not crew.lost:
                document, answers[0] = answers[0]
                return document, answers
        rank, why = next(iter(crew.lost.items()))
        raise RankLost(f"{world.members[rank]} {why}")

    def _rates(self, hops: Sequence[Hop]) -> Values:
        """Rates of transfers between ranks that start together, in bytes per second."""
        options = {"samples": _SAMPLES, "copies": self._copies}
        document, sent = self._together([hops], (_BYTES,), EndMemory.GPU, **options)
        cells = {row: cell for row, _, cell in _cells(document)}
        found = [cells.get(f"rank{a}->rank{b}") for a, b in hops]
        if not any(cell and cell.value for cell in found):
            reasons = [cell.reason for cell in found if cell] + [each.reason for each in document.testcases]
            why = next(filter(None, reasons), "no transfer was measured")
            raise WirespeedError(f"--transport {self._over} is not possible here: {one_line(why)}")
        of_cells = [cell.statistics for cell in found if cell and cell.statistics]
        varied = [each.cv / math.sqrt(each.n) for each in of_cells]
        self.variation = float(np.median(varied)) if varied else 0.0
        for node, ranks in zip(self._job.nodes, self._job.ranks, strict=True):
            mine = sum(source in ranks for source, _ in hops)
            used = carrier(sent[ranks[0]], mine * _SAMPLES * self._copies * _BYTES)
            if used.kind:
                self._carriers[node.name] = used
        rates = np.array([cell.value if cell and cell.value else np.nan for cell in found])
        self._rate = float(np.nanmedian(rates))
        return rates


def transfer(
    world: World, over: str, ways: Sequence[Sequence[Hop]], sizes: Sequence[int], memory: str,
    options: dict[str, Any],
) -> tuple[Document, Sent]:  # fmt: skip
    """Transfer between ranks, the hops of a way at once, and count what this node sends; on all ranks."""
    before = counters()
    cases = [messages_between(f"transfers{i}", hops, sizes, EndMemory(memory)) for i, hops in enumerate(ways)]
    document = run(cases, world=world, share=over, rounds=1, timeout=world.timeout, **options)
    if document.interrupted:
        raise WirespeedError(document.interrupted)
    return document, difference(before, counters())


def _cells(document: Document) -> Iterator[tuple[str, str, Cell]]:
    """Yield the cells of all tables with the labels of their rows and columns."""
    for result in document.testcases:
        for table in result.tables:
            for cell in table.cells:
                yield table.rows.labels[cell.row], table.columns.labels[cell.column], cell
