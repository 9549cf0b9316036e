"""What links and the network allow for values of a log, which tells less than a measurement. Importers give
values these limits, and judging gives them again when a saved run is of another version.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

from msgspec.structs import replace as struct_replace

from ..collectives.operations import OPERATIONS
from ..data import efficiencies, gpu_sheet
from ..document import CollectiveInfo, Document, RankInfo, TestcaseResult
from ..errors import UsageError
from ..hardware.limits import Allowance, allowances, links_among, slowest_sender
from ..hardware.link_graph import Network, rate_of
from ..hardware.topology import Link, LinkKind, Machine
from ..measurement import Measurement
from ..model import MESSAGE_BANDWIDTH, Access, Engine
from ..tables import BUSBW, Table
from ..testcases.collectives import members
from ..thresholds.values import (
    JUDGED_BYTES,
    JUDGED_COPY_BYTES,
    LEAST_ARRAY_BYTES,
    LEAST_BOTH_WAYS,
    LEAST_MESSAGE_BYTES,
    LEAST_OF_LINE,
    LEAST_OF_MPI_BYTES,
    LEAST_PART_BYTES,
    MOST_OF_NVLINK,
    TYPICAL_OF_LINE,
    WIDER,
)
from ..units import Nics

#: In the names of testcases that copy in both directions at once.
_BOTH_WAYS = "_bidirectional_"
#: Links between host and GPU.
_TO_HOST = (LinkKind.PCIE, LinkKind.C2C)
#: Cores of a node and bytes of its memory, where a log does not tell: enough for every testcase.
_CORES, _MEMORY_BYTES = 256, 2**50
#: The vertex that stands for all switches between hosts, and the node from which its links lead.
_NETWORK, _HOST = "network", "numa0"
#: Options of an import, as in ``ImportedLog.judged_with``.
MACHINE_OPTION, NICS_OPTION = "--machine ", "--nics "
#: Begin of the origins of what the user says of a machine whose GPUs the log does not name.
GIVEN_MACHINE = "assumed: only --machine"
#: Origin of a rate that the user gives, and what is said if nobody gives one.
GIVEN = "assumed: --nics"
UNKNOWN = "the network between the hosts is unknown"
#: Operations whose bus bandwidth follows from what each host sends; a pair of ``sendrecv`` uses at least one
#: NIC, and at most all.
_SPREAD = ("all_reduce", "all_gather", "reduce_scatter")
_ROOTED = ("broadcast", "reduce")
_ALL_TO_ALL, SENDRECV = "alltoall", "sendrecv"
#: Keys of tables of what one NIC moves in one direction, or in both together -> number of directions.
ONE_NIC, ONE_NIC_BOTH_WAYS = "one-nic", "one-nic-both-ways"
DIRECTIONS = {ONE_NIC: 1, ONE_NIC_BOTH_WAYS: 2}
#: Name of the result of copies of p2pBandwidthLatencyTest through the host, and keys of its tables.
BY_HOST = "p2pBandwidthLatencyTest through the host"
ONE_WAY_BY_HOST, BOTH_WAYS_BY_HOST = (f"{way}directional-p2p-disabled-bandwidth" for way in ("uni", "bi"))


def allowed(network: Network, measurement: Measurement, testcase: str) -> list[Allowance]:
    """What the links allow for each Place of a Measurement of a log.

    Args:
        network: The links of the machine that the log is about.
        measurement: What a testcase measures.
        testcase: Its name.
    """
    widened = [_widened(allowance) for allowance in allowances(network, measurement, efficiencies())]
    return [_bridged(network, allowance, both_ways=_BOTH_WAYS in testcase) for allowance in widened]


def of_collective(network: Network, measurement: Measurement) -> list[Allowance]:
    """What the links allow for each Place of a collective of a log.

    Without NVLink, the bus bandwidth is at most the rate of PCIe. What sockets and bridges leave of it is
    unknown, so that a low value is not judged.
    """
    bounds, run = allowances(network, measurement, efficiencies()), measurement.collective
    if run is not None and run.bytes < JUDGED_BYTES:  # no log tells how long a collective takes to start
        return [replace(bound, expected=None) if bound.expected else bound for bound in bounds]
    if run is None or not OPERATIONS[run.operation].judged or not run.members:
        return bounds
    ends = {network.machine.vertex(member) for member in run.members}
    own = [i for i, link in enumerate(network.links) if {link.source, link.destination} & ends]
    memory = network.unknown_memory("numa0")
    among = links_among(network.machine, run.members)
    nvlinks = [link for link in among if link.kind is LinkKind.NVLINK and ends & {*link.ends}]
    if memory is None or nvlinks:
        return bounds
    used = tuple((i, 1.0, 1.0) for i in own if network.links[i].kind is LinkKind.PCIE)
    low, typical = (rate_of(r, Engine.NCCL, LinkKind.PCIE, Access.READ).efficiency for r in efficiencies())
    return [
        replace(
            bound, expected=(bound.limit * low, bound.limit * typical), peak=None, links=used,
            shared=((memory, 0.0),),
        ) if bound.limit and not bound.expected else bound
        for bound in bounds
    ]  # fmt: skip


def _widened(bound: Allowance) -> Allowance:
    """What links allow, with the range of values of other tools."""
    expected = bound.expected
    return replace(bound, expected=(expected[0] * WIDER, expected[1])) if expected else bound


def _bridged(network: Network, bound: Allowance, *, both_ways: bool) -> Allowance:
    """What links allow for copies that the host may limit.

    Unlike copies in one direction, those in both directions at once depend on the bridges of the host, which
    no log describes: some reach 11 of 31 GB/s to the GPU next to 25 GB/s from it, so that their range is
    wide. Low copies between GPUs without NVLink are not judged.
    """
    memory, gpus = network.unknown_memory("numa0"), {gpu.name for gpu in network.machine.gpus}
    links = [network.links[link] for link, *_ in bound.links]
    between = any(link.kind in _TO_HOST and {link.source, link.destination} <= gpus for link in links)
    if memory is None or bound.shared:
        return bound
    if between:
        return replace(bound, shared=((memory, 0.0),))
    if both_ways and bound.expected and bound.limit and any(link.kind in _TO_HOST for link in links):
        low, typical = bound.expected
        return replace(bound, expected=(min(low, LEAST_BOTH_WAYS * bound.limit), typical))
    return bound


def with_cores(machine: Machine) -> Machine:
    """The machine of a log for planning: with cores and memory, if the log tells nothing of them."""
    if any(node.cpus for node in machine.numa):
        return machine
    numa = tuple(
        replace(node, cpus=tuple(range(i * _CORES, (i + 1) * _CORES)), memory_bytes=_MEMORY_BYTES)
        for i, node in enumerate(machine.numa)
    )
    return replace(machine, numa=numa)


def with_network(machine: Machine, rate: float, origin: str) -> Machine:
    """A machine whose NICs have this rate together in each direction, in B/s."""
    ways = ((_HOST, _NETWORK), (_NETWORK, _HOST))
    links = [link for link in machine.links if (link.source, link.destination) not in ways]
    links += [Link(*ends, LinkKind.NETWORK, rate, origin, assumed=True) for ends in ways]
    return replace(machine, links=tuple(links))


def with_nics(document: Document, nics: Nics) -> Document:
    """An imported run with these NICs of each host, and the limits that follow.

    Raises:
        UsageError: If the run was measured by wirespeed.
    """
    if not document.imported:
        raise UsageError("--nics is for imported logs; this run was measured by wirespeed")
    machine = with_network(document.machine, nics.rate, GIVEN)
    cases = tuple(_limited(machine, result, document.ranks, nics) for result in document.testcases)
    warnings = tuple(warning for warning in document.warnings if warning != UNKNOWN)
    logs = tuple(
        struct_replace(log, judged_with=tuple(o for o in log.judged_with if not o.startswith(NICS_OPTION)))
        for log in document.imported
    )
    return struct_replace(document, machine=machine, testcases=cases, warnings=warnings, imported=logs)


def _limited(
    machine: Machine, result: TestcaseResult, ranks: Sequence[RankInfo], nics: Nics
) -> TestcaseResult:
    """A result with the limits of the network, if it is a collective between hosts, or of one NIC."""
    if not result.collective:
        limited = tuple(of_nics(machine, result.name, table, nics) for table in result.tables)
        return struct_replace(result, tables=limited)
    tables = []
    for table in result.tables:
        if table.key == BUSBW:
            sizes = table.columns.values
            bounds = [between_hosts(machine, ranks, result.collective, round(size), nics) for size in sizes]
            cells = (
                struct_replace(cell, **vars(bound)) if (bound := bounds[cell.column]) else cell
                for cell in table.cells
            )
            table = struct_replace(table, cells=tuple(cells))
        tables.append(table)
    return struct_replace(result, tables=tuple(tables))


def directions_of(testcase: str, table: str, row: int = 0) -> int:
    """In how many directions at once a row of a table shows what NICs move; 0 if they do not limit it."""
    if testcase.startswith("message_") and table == MESSAGE_BANDWIDTH:
        return 1 + row
    return DIRECTIONS.get(table, 0)


def of_nics(machine: Machine, testcase: str, table: Table, nics: Nics) -> Table:
    """A table with the limits of the NICs; as it is, if they do not limit it, or their number is unknown.

    RDMA uses one NIC. Messages between processes use at least one, and at most all.
    """
    is_message = table.key == MESSAGE_BANDWIDTH
    link = next((i for i, link in enumerate(machine.links) if link.destination == _NETWORK), None)
    if not (directions_of(testcase, table.key) and nics.count and link is not None):
        return table
    one, least = nics.rate / nics.count, LEAST_OF_MPI_BYTES if is_message else LEAST_MESSAGE_BYTES
    cells = []
    for cell in table.cells:
        directions = directions_of(testcase, table.key, cell.row)
        judged = table.columns.values[cell.column] >= least
        bound = _over_nic(nics.rate if is_message else one, directions, one, link, judged=judged)
        cells.append(struct_replace(cell, **vars(bound)) if cell.value is not None else cell)
    return struct_replace(table, cells=tuple(cells))


def _over_nic(most: float, directions: int, one: float, link: int, *, judged: bool) -> Allowance:
    """What is allowed for messages over one NIC, or up to some of a host, in a number of directions."""
    low, typical = (directions * one * share for share in (LEAST_OF_LINE, TYPICAL_OF_LINE))
    used = ((link, TYPICAL_OF_LINE, 1.0),)
    return Allowance(directions * most, None, (low, typical) if judged else None, used)


def hosts_of(machine: Machine, ranks: Sequence[RankInfo], count: int) -> tuple[int, int] | None:
    """The number of hosts and of ranks on each; None if there is one host, or they differ.

    If the log does not list its ranks, each GPU of a host has one.
    """
    if not ranks:
        per_host = len(machine.gpus)
        return (count // per_host, per_host) if 0 < per_host < count and count % per_host == 0 else None
    counts = Counter(rank.host for rank in ranks)
    hosts, per_host = len(counts), next(iter(counts.values()))
    alike = len(set(counts.values())) == 1 and len({rank.group for rank in ranks}) == 1
    return (hosts, per_host) if alike and hosts > 1 and hosts * per_host == count else None


def between_hosts(
    machine: Machine, ranks: Sequence[RankInfo], run: CollectiveInfo, size: int, nics: Nics | None = None
) -> Allowance | None:
    """What the network allows for the bus bandwidth of a collective between hosts; None if unknown.

    Each host of N must send and receive what the operation moves between hosts: of an array S, S (N - 1)/N
    to gather or to scatter it, twice as much to reduce it for all. Bus bandwidth is defined by what each of R
    ranks sends, (R - 1)/R instead, so that it may exceed the rate of the network.

    Args:
        machine: The machine of one host.
        ranks: All ranks; none if the log does not list them.
        run: The operation.
        size: Size of the array, in bytes.
        nics: The NICs of a host, if their number is known.
    """
    layout = hosts_of(machine, ranks, run.ranks)
    links = [i for i, link in enumerate(machine.links) if _NETWORK in (link.source, link.destination)]
    is_domain = shares_nvlink(machine, run.ranks)
    if layout is None or not links or run.operation not in OPERATIONS or is_domain:
        return None
    hosts, per_host = layout
    nvlink = any(link.kind is LinkKind.NVLINK for link in machine.links)
    if run.operation == SENDRECV and nics and nics.count:
        within = per_host == 1 or (nvlink and _inside(machine, per_host) is not None)  # else little is known
        judged = within and size >= JUDGED_COPY_BYTES
        return _over_nic(nics.rate, 1, nics.rate / nics.count, links[0], judged=judged)
    network = min(machine.links[i].capacity or 0.0 for i in links)
    per_gpu, inside = _to_host(machine), _inside(machine, per_host)
    if per_host > 1 and inside is None and per_gpu is None:
        return None  # whether the network or the host limits it is unknown
    if per_gpu:
        network = min(network, per_host * per_gpu)
    limit = network * _ratio(run.operation, hosts, per_host)
    if inside and run.operation != _ALL_TO_ALL:
        limit = min(limit, inside)
    if not limit:
        return None
    operation = OPERATIONS[run.operation]
    # Switches that reduce halve what a host sends; switches of NVLink what a GPU sends.
    peak = network * operation.factor(run.ranks) if operation.effective > 1 else None
    if peak and inside:
        peak = min(peak, (operation.effective if nvlink else 1.0) * inside)
    low, typical = (
        limit * rate_of(rates, Engine.NCCL, LinkKind.NETWORK, Access.READ).efficiency
        for rates in efficiencies()
    )
    # Bridges connect some GPUs of a host, and PCIe the others: what that leaves is unknown.
    partly = per_host > 1 and inside is None
    hosts_memory = [i for i, link in enumerate(machine.links) if link.source == link.destination == _HOST]
    shared = tuple((i, 0.0) for i in hosts_memory) if partly else ()
    judged = size >= max(LEAST_ARRAY_BYTES, LEAST_PART_BYTES * run.ranks)
    used = tuple((i, round(typical / limit, 3), 1.0) for i in links)
    peak = max(peak, limit) if peak else None
    return Allowance(limit, peak, (low, typical) if judged else None, used, shared)


def shares_nvlink(machine: Machine, count: int) -> bool:
    """Whether NVLink may connect ``count`` GPUs of several hosts: the network is then not what limits."""
    known = [gpu_sheet(gpu.model) for gpu in machine.gpus]
    return count <= MOST_OF_NVLINK and any(sheet and sheet[1].many_hosts for sheet in known)


def _ratio(operation: str, hosts: int, per_host: int) -> float:
    """The bus bandwidth over the rate at which a host sends; 0 if it is not determined."""
    ranks = hosts * per_host
    if operation in _SPREAD:
        return (ranks - 1) / ranks / ((hosts - 1) / hosts)
    if operation == _ALL_TO_ALL:
        return (ranks - 1) / (per_host * (ranks - per_host))
    return 1.0 if operation in _ROOTED else 0.0


def _to_host(machine: Machine) -> float | None:
    """The rate at which a GPU reaches a NIC, in B/s; None if unknown."""
    rates = [
        link.capacity for link in machine.links
        if link.source == "gpu0" and link.kind in (LinkKind.PCIE, LinkKind.C2C) and link.destination == _HOST
    ]  # fmt: skip
    return rates[0] if rates else None


def _inside(machine: Machine, per_host: int) -> float | None:
    """The rate at which a GPU sends to another of its host, in B/s; None if it is not known."""
    hubs = [
        {
            link.destination
            for link in machine.links
            if link.kind is LinkKind.NVLINK and link.source == gpu.name
        }
        for gpu in machine.gpus
    ]
    if per_host < 2 or not hubs:
        return None
    if all(len(own) == 1 for own in hubs):
        return slowest_sender(machine, members(machine))
    return None if any(hubs) else _to_host(machine)
