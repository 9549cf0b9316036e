"""Limits and expected ranges of Measurements, from what the links allow."""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace

from ..collectives.operations import OPERATIONS
from ..errors import MachineError
from ..measurement import Measurement, Place, Reduce
from ..model import Access, Collective, Engine, Executor, Memory, Operation, Transfer
from ..thresholds.values import JUDGED_BYTES, JUDGED_COPY_BYTES, MOST_CACHED
from ..units import MIB
from .judged_sizes import START_S, is_between, is_judged, is_small
from .link_graph import Demand, Network, fair_shares, rate_of
from .topology import EngineRate, Link, LinkKind, Machine


def ceilings(network: Network, measurement: Measurement) -> list[float | None]:
    """The limit of each Place of a Measurement, in B/s.

    All transfers of the Measurement compete for the links at line rate. None for latencies, for an unknown
    path, and if the known part of the path does not bound the rate.
    """
    return predicted(network, measurement, demands(network, measurement, ()))


def demands(network: Network, measurement: Measurement, rates: Sequence[EngineRate]) -> list[Demand] | None:
    """What each transfer of a Measurement takes of the links; None if a path is unknown.

    It depends on the routes, not on the capacities of the links.
    """
    try:
        return [
            Demand({}) if t.operation is Operation.CHASE else network.demand(t, rates)
            for t in measurement.transfers
        ]
    except MachineError:
        return None


def predicted(
    network: Network, measurement: Measurement, needed: Sequence[Demand] | None
) -> list[float | None]:
    """The value of each Place of a Measurement with known ``demands``, as ``ceilings`` does."""
    return _of_places(measurement, _shared(network, measurement, needed))


#: For each transfer: what it takes of the links, and its fair share in B/s; None if unknown.
_Flows = list[tuple[Demand, float | None]]


def _shared(network: Network, measurement: Measurement, needed: Sequence[Demand] | None) -> _Flows:
    if needed is None:  # unknown path, so unknown limit
        return [(Demand({}), None)] * len(measurement.transfers)
    shares = fair_shares(needed, network.capacities())
    return [
        (demand, share if _is_bounded(network, demand) and math.isfinite(share) else None)
        for demand, share in zip(needed, shares, strict=True)
    ]


def _is_bounded(network: Network, demand: Demand) -> bool:
    """Whether the known part of the path bounds a flow.

    An unknown memory does not prevent a known link from bounding the flow: no machine has memory that is
    slower than one of its links. Whether the memory carries several flows at once is a different question;
    see ``shared_memories``.
    """
    if len(network.capacities()) == len(network.links):
        return True
    unknown = demand.weights.keys() - network.capacities().keys()
    kinds = {network.links[i].kind for i in demand.weights.keys() - unknown}
    return not unknown or (
        all(network.links[i].kind is LinkKind.MEMORY for i in unknown) and bool(kinds - {LinkKind.MEMORY})
    )


def shared_memories(
    network: Network, measurement: Measurement, needed: Sequence[Demand] | None = None
) -> dict[int, dict[int, float]]:
    """The memories of unknown capacity that several links enter or leave at once.

    A memory of unknown capacity may be as fast as one link and slower than several; the same holds for the
    root complexes, PCIe switches and sockets that a machine's description does not contain.

    Args:
        network: The links.
        measurement: Transfers that run together.
        needed: What each of them takes of the links at line rate, if known.

    Returns:
        Index of the memory's link -> index of each transfer that starts at, ends at or passes it -> bytes
        that the transfer moves in or out of the memory per byte of payload.
    """
    entering: dict[int, set[int]] = {}
    leaving: dict[int, set[int]] = {}
    passing: dict[int, dict[int, float]] = {}
    if len(network.capacities()) == len(network.links):
        return {}
    for index, transfer in enumerate(measurement.transfers):
        try:
            demand = needed[index] if needed else network.demand(transfer)
        except MachineError:
            continue
        used = {} if transfer.operation is Operation.CHASE else demand.weights
        for link in used:
            edge = network.links[link]
            if edge.kind is LinkKind.MEMORY:
                continue
            for vertex, crossing in ((edge.destination, entering), (edge.source, leaving)):
                if (memory := network.unknown_memory(vertex)) is not None:
                    crossing.setdefault(memory, set()).add(link)
                    passing.setdefault(memory, {})[index] = used.get(memory, 0.0)
    return {
        memory: transfers
        for memory, transfers in passing.items()
        if len(entering.get(memory, ())) > 1 or len(leaving.get(memory, ())) > 1
    }


def undisturbed(network: Network, measurement: Measurement) -> bool:
    """Whether the links give each cell the same rate as if it was measured separately."""
    if shared_memories(network, measurement):
        return False
    alone = {
        (place.table, place.row, place.column): limit
        for part in measurement.separate()
        for place, limit in zip(part.places, ceilings(network, part), strict=True)
    }
    return all(
        place.reduce.is_time  # one load at a time disturbs no other transfer
        or (limit is not None and limit >= (alone[place.table, place.row, place.column] or 0.0) * (1 - 1e-6))
        for place, limit in zip(measurement.places, ceilings(network, measurement), strict=True)
    )


def _of_places(measurement: Measurement, flows: _Flows) -> list[float | None]:
    values: list[float | None] = []
    transfers = measurement.transfers
    for place in measurement.places:
        shares = [share for i in place.transfers if (share := flows[i][1]) is not None]
        if place.reduce.is_time or len(shares) < len(place.transfers):
            values.append(None)
        elif place.reduce is Reduce.FIRST:
            values.append(shares[0] * transfers[place.transfers[0]].counted)
        else:
            chosen = [transfers[i] for i in place.transfers]
            if place.reduce is Reduce.WALL:  # the slowest decides; flows that end earlier do not speed it up
                wall = max(t.bytes / share for share, t in zip(shares, chosen, strict=True))
                values.append(sum(t.bytes * t.counted for t in chosen) / wall)
            else:
                values.append(math.fsum(share * t.counted for share, t in zip(shares, chosen, strict=True)))
    return values


#: As before, of a collective. Recorded there for two GPUs: 7 to 19 µs for 8 B to 32 KiB; more ranks take
#: longer, and an algorithm for small arrays moves them more slowly.
START_OF_COLLECTIVE_S = (200e-6, 20e-6)
#: Ranks of a collective above which its start takes longer, in proportion.
_RANKS_OF_START = 8
#: Links below this load are omitted.
NOTED = 0.05


@dataclass(frozen=True)
class Allowance:
    """Limit and expected range of one Place of a Measurement.

    Attributes:
        limit: Fair share at line rate, in B/s.
        peak: Limit without the other transfers of the Measurement, in B/s, where it differs.
        expected: Lower end of the expected range and typical value, in B/s; of a small buffer, with the time
            that the start of a copy takes. None if unknown, or if more than the links limits the rate: a
            start that takes longer than the copy, a cache that may hold a buffer, a chosen kernel shape,
            pageable memory on the way to a GPU.
        links: Links that the Place's transfers use, for data or for requests: index, fraction of the capacity
            that the whole Measurement typically uses (0 if the capacity is unknown), and how far the value
            depends on the link. Links with a low load are omitted.
        shared: Memories of unknown capacity that several of the Measurement's transfers share: index of the
            link, and bytes that it typically carries per byte of the value; 0 if transfers pass its host
            without touching it. ``expected`` holds only if they do not limit.
    """

    limit: float | None
    peak: float | None
    expected: tuple[float, float] | None
    links: tuple[tuple[int, float, float], ...]
    shared: tuple[tuple[int, float], ...] = ()


def by_transport(
    bound: Allowance, measurement: Measurement, place: Place, means: Collection[str]
) -> Allowance:
    """What links allow for a Place whose bytes these transports moved.

    A library of messages starts later than a copy, so that its small buffers are not judged: 64 MiB in both
    directions over NCCL took 60 us more on two H100s than their rate with large buffers says.
    """
    if measurement.collective or {Engine.NCCL, Engine.MPI}.isdisjoint(means):
        return bound
    of_library = any(measurement.transfers[i].bytes < JUDGED_COPY_BYTES for i in place.transfers)
    return replace(bound, expected=None) if of_library and bound.expected else bound


def allowances(
    network: Network, measurement: Measurement, ranges: Sequence[Sequence[EngineRate]]
) -> list[Allowance]:
    """What the links allow for each Place; ``ranges`` are the lowest and the typical rates."""
    if measurement.collective:
        bus = _of_collective(network, measurement.collective, ranges)
        none = Allowance(None, None, None, ())
        return [bus if place.reduce is Reduce.BUS else none for place in measurement.places]
    if not measurement.transfers:  # only routes of transfers are known
        return [Allowance(None, None, None, ())] * len(measurement.places)
    transfers = measurement.transfers
    plain = demands(network, measurement, ())
    limits = predicted(network, measurement, plain)
    low, typical = (
        _shared(network, measurement, demands(network, measurement, capped(r, ranges[-1], network.machine)))
        for r in ranges
    )
    load: dict[int, float] = {}
    for demand, share in typical:
        for link, weight in demand.weights.items():
            load[link] = load.get(link, 0.0) + weight * (share or 0.0)
    hosts = shared_memories(network, measurement, plain)
    by_place = []
    started = (
        _of_places(measurement, _started(measurement, flows, seconds))
        for flows, seconds in zip((low, typical), START_S, strict=True)
    )
    bounds = zip(limits, *started, _of_places(measurement, typical), strict=True)
    for place, (limit, least, normal, unstarted) in zip(measurement.places, bounds, strict=True):
        own = tuple(transfers[i] for i in place.transfers)
        peak = limit
        if len(own) < len(transfers):
            alone = Measurement(own, (replace(place, transfers=tuple(range(len(own)))),))
            needed = [plain[i] for i in place.transfers] if plain else demands(network, alone, ())
            peak = predicted(network, alone, needed)[0]
        # What lists that move both ways, or next to a computation, should reach is unknown.
        several_lists = measurement.moves_lists and len(transfers) > 1
        judged = not several_lists and all(
            is_judged(network, transfers[i], *low[i]) and _is_bounded(network, typical[i][0])
            for i in place.transfers
        )
        expected = (least, normal) if judged and least is not None and normal is not None else None
        if expected and peak and any(is_small(t) and not is_between(t) for t in own):
            peak *= MOST_CACHED
        payload = [plain[i].weights if plain else {} for i in place.transfers]
        parts = _parts(place, own, [typical[i] for i in place.transfers], payload)
        links = []
        for i, part in sorted(parts.items()):
            capacity = network.links[i].capacity
            taken = load[i] / capacity if capacity else 0.0
            if taken >= NOTED or capacity is None:
                links.append((i, round(taken, 3), part))
        shared = tuple(
            (memory, _carried([(moved, typical[i][1]) for i, moved in through.items()], unstarted or 0.0))
            for memory, through in sorted(hosts.items())
            if not through.keys().isdisjoint(place.transfers)
        )
        by_place.append(Allowance(limit, peak if peak != limit else None, expected, tuple(links), shared))
    return by_place


def _started(measurement: Measurement, flows: _Flows, seconds: float) -> _Flows:
    """The flows with the time that the start of each copy of a small buffer takes, in s."""
    return [
        (demand, with_start(share, t.bytes, seconds) if share and is_small(t) else share)
        for t, (demand, share) in zip(measurement.transfers, flows, strict=True)
    ]


def with_start(rate: float, size: int, seconds: float) -> float:
    """The rate of copies of ``size`` bytes, each of which takes some time besides moving them, in B/s."""
    return size / (size / rate + seconds)


def ring(members: Sequence[Memory]) -> tuple[Transfer, ...]:
    """The transfers by which each of some GPUs sends to the next one."""
    return tuple(
        Transfer(end, members[(i + 1) % len(members)], Executor(end.device, end.rank), Engine.SM, MIB)
        for i, end in enumerate(members)
    )


def _of_collective(network: Network, run: Collective, ranges: Sequence[Sequence[EngineRate]]) -> Allowance:
    """What the links allow for the bus bandwidth of a collective.

    The limit is the line rate at which the slowest GPU can send: the bus factor is derived from what must
    leave every rank, so that no bus bandwidth exceeds it unless the switch reduces. A range is known where
    each GPU reaches all others by NVLink through one switch, or there are two.
    """
    limit = slowest_sender(network.machine, run.members)
    if limit is None:
        return Allowance(None, None, None, ())
    starts = [seconds * max(1.0, run.ranks / _RANKS_OF_START) for seconds in START_OF_COLLECTIVE_S]
    operation = OPERATIONS[run.operation]
    moved = round(run.counted * operation.factor(run.ranks))
    lowest = limit * rate_of(ranges[0], Engine.NCCL, LinkKind.NVLINK, Access.READ).efficiency
    judged = operation.judged and (run.bytes >= JUDGED_BYTES or moved >= starts[0] * lowest)
    peak = limit * operation.effective if judged and operation.effective > 1 else None
    reached: dict[str, set[str]] = {}
    for edge in links_among(network.machine, run.members):
        if edge.kind is LinkKind.NVLINK:
            reached.setdefault(edge.source, set()).add(edge.destination)
    if any(len(reached.get(network.machine.vertex(member), ())) != 1 for member in run.members):
        return Allowance(limit, peak, None, ())
    least, typical = (
        limit * rate_of(rates, Engine.NCCL, LinkKind.NVLINK, Access.READ).efficiency for rates in ranges
    )
    taken: dict[int, float] = {}
    for transfer in ring(run.members):
        for link, weight in network.demand(transfer).weights.items():
            if network.links[link].kind is not LinkKind.MEMORY:
                taken[link] = taken.get(link, 0.0) + weight * typical / (
                    network.links[link].capacity or typical
                )
    links = tuple((link, round(min(part, 1.0), 3), 1.0) for link, part in sorted(taken.items()))
    if judged and run.bytes < JUDGED_BYTES:
        least, typical = (with_start(r, moved, s) for r, s in zip((least, typical), starts, strict=True))
    return Allowance(limit, peak, (least, typical) if judged else None, links)


def links_among(machine: Machine, members: Sequence[Memory]) -> list[Link]:
    """The links of a machine without those that lead to other GPUs than some."""
    others = {gpu.name for gpu in machine.gpus} - {machine.vertex(member) for member in members}
    return [link for link in machine.links if others.isdisjoint(link.ends)]


def slowest_sender(machine: Machine, members: Sequence[Memory]) -> float | None:
    """The line rate at which the slowest of some GPUs can send, in B/s; None where one is unknown."""
    rates: list[float | None] = []
    leaving: dict[tuple[str, LinkKind], list[float]] = {}
    for link in links_among(machine, members):
        leaving.setdefault((link.source, link.kind), []).append(link.capacity or 0.0)
    for member in members:
        vertex = machine.vertex(member)
        kinds = (LinkKind.NVLINK, LinkKind.PCIE)
        if (kind := next((kind for kind in kinds if (vertex, kind) in leaving), None)) is None:
            return None
        capacities = leaving[vertex, kind]
        # Paths over PCIe to several GPUs leave through one slot.
        most = max(capacities) if kind is LinkKind.PCIE else math.fsum(capacities)
        rates.append(most if all(capacities) else None)
    known = [rate for rate in rates if rate]
    return min(known) if len(members) > 1 and len(known) == len(rates) else None


def _carried(through: Sequence[tuple[float, float | None]], value: float) -> float:
    """The bytes that a memory carries per byte of a value; 0 if some pass without touching it.

    Args:
        through: For each transfer: bytes that it moves in or out of the memory per byte, and its share in
            B/s.
    """
    if not value or not all(moved and share for moved, share in through):
        return 0.0
    return round(math.fsum(moved * (share or 0.0) for moved, share in through) / value, 3)


def _parts(
    place: Place, transfers: Sequence[Transfer], flows: _Flows, payload: Sequence[Collection[int]]
) -> dict[int, float]:
    """How far the value of a Place depends on each link that its transfers use.

    0 if a link carries only requests and acknowledgements, not the ``payload`` of a transfer: it may or may
    not slow the transfer down.
    """
    seconds = [t.bytes / share if share else 0.0 for t, (_, share) in zip(transfers, flows, strict=True)]
    rates = [t.counted * (share or 0.0) for t, (_, share) in zip(transfers, flows, strict=True)]
    parts: dict[int, float] = {}
    for (demand, _), time, rate, carrying in zip(flows, seconds, rates, payload, strict=True):
        for link in demand.weights:
            before = parts.setdefault(link, 0.0)
            if link not in carrying:
                continue
            if place.reduce is Reduce.WALL:
                parts[link] = max(before, time / (max(seconds) or 1.0))
            else:
                parts[link] = before + rate / (math.fsum(rates) or 1.0)
    return {link: round(part, 3) for link, part in parts.items()}


def capped(
    rates: Sequence[EngineRate], typical: Sequence[EngineRate], machine: Machine
) -> Sequence[EngineRate]:
    """Rates with the caps from the machine's description of its engines."""
    caps = [rate for rate in machine.rates if rate.cap is not None and rate.engine is not Engine.CPU]
    if not caps:
        return rates
    own = [
        replace(rate, efficiency=low.efficiency, reverse=low.reverse, cap=(rate.cap or 0.0) * below)
        for rate in caps
        for low, normal in zip(rates, typical, strict=True)
        if (low.engine, low.link) == (rate.engine, rate.link) and low.access in (None, rate.access)
        for below in (low.efficiency / normal.efficiency,)
    ]
    return (*own, *rates)
