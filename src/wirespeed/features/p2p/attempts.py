"""Attempts of peer access between all GPUs of a machine, in processes that can be killed or simulated. What
the driver does not offer is not tried; pairs that work are slow if other ways of the same machine are faster.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Iterable, Mapping, Sequence
from itertools import permutations

from msgspec.structs import replace

from ...document import Status, TestcaseResult
from ...errors import MachineError, UsageError
from ...hardware.facts import OK, Fact, Facts, Known
from ...hardware.link_graph import Network
from ...hardware.topology import LinkKind, Machine
from ...measurement import Axis, Unit
from ...peer_access import ALL, PEER_ACCESS, SHORT, Attempt, Pair, PeerAccess, PeerMechanism, PeerVerdict
from ...tables import Cell, Table
from ...thresholds.causes import ENOUGH_PAIRS, PEER_OF_HOST, PEER_OF_LINE, PEER_OF_MIRROR, PEER_OF_PEERS
from ...units import GB


def attempt_peers(
    machine: Machine, facts: Facts, mechanisms: Sequence[PeerMechanism] = ALL, *, seed: int | None = None
) -> PeerAccess:
    """Try peer access between all GPUs of this host.

    Args:
        machine: The machine.
        facts: What its system reports, which says who does not offer peer access.
        mechanisms: The mechanisms to try.
        seed: Seed of the patterns; None for a new one, so that no attempt can find the data of another.

    Raises:
        UsageError: If the machine is that of several processes.
        BackendError: If no GPU can be used.
    """
    if machine.ranks:
        raise UsageError("peer access is tried on one host: give a machine without ranks")
    began = time.monotonic()
    seed = secrets.randbits(32) if seed is None else seed
    if machine.simulated:
        from ...backends.simulated.peers import attempted

        tried = attempted(machine, mechanisms, seed)
    else:
        from .processes import PeerProcesses

        native = [
            f"{gpu.name}->{peer}"
            for gpu in machine.gpus
            for peer in gpu.peers
            if facts.text(Known.P2P_ATOMICS, f"{gpu.name}->{peer}") == OK
        ]
        with PeerProcesses(machine, mechanisms, seed, native) as processes:
            tried = processes.attempted()
        tried = replace(tried, seconds=time.monotonic() - began)
    access = replace(tried, attempts=(*tried.attempts, *not_offered(machine, facts)))
    places = {mechanism: place for place, mechanism in enumerate(PeerMechanism)}
    order = {gpu.name: gpu.index for gpu in machine.gpus}
    ordered = sorted(
        access.attempts, key=lambda a: (order[a.source], order[a.destination], places[a.mechanism])
    )
    short = set(mechanisms) <= set(SHORT)
    return with_slow(replace(access, attempts=tuple(ordered), short=short), *_joined(machine))


def tried(machine: Machine, facts: Iterable[Fact]) -> PeerAccess | None:
    """The short form of the attempts of peer access; None if none is offered, or on several hosts."""
    if machine.ranks or not any(gpu.peers for gpu in machine.gpus):
        return None
    return attempt_peers(machine, Facts(facts), SHORT)


def not_offered(machine: Machine, facts: Facts) -> list[Attempt]:
    """An attempt for each pair that the driver does not offer, with who says so."""
    attempts = []
    for gpu, other in permutations(machine.gpus, 2):
        if other.name in gpu.peers:
            continue
        name = f"{gpu.name}->{other.name}"
        reasons = [facts.text(fact, name) for fact in (Known.P2P_WRITE, Known.P2P_READ)]
        why = next((reason for reason in reasons if reason not in ("", OK)), "")
        by = "NVML" if why else "the driver"
        detail = why or ("NVML allows it" if OK in reasons else "")
        attempts.append(
            Attempt(gpu.name, other.name, PeerMechanism.COPY, PeerVerdict.NOT_OFFERED, detail, by=by)
        )
    return attempts


def _joined(machine: Machine) -> tuple[dict[Pair, object], dict[Pair, float]]:
    """Kinds and capacities of the links of each pair, and the line rate of those joined only by NVLink."""
    network = Network(machine)
    joined: dict[Pair, object] = {}
    line: dict[Pair, float] = {}
    for a, b in permutations((gpu.name for gpu in machine.gpus), 2):
        try:
            links = [machine.links[i] for i in network.route(a, b)]
        except MachineError:
            links = []
        joined[a, b] = sorted((str(link.kind), link.capacity or 0.0) for link in links)
        if links and all(link.kind is LinkKind.NVLINK and link.capacity for link in links):
            line[a, b] = min(link.capacity or 0.0 for link in links)
    return joined, line


#: Worst verdict -> status of the testcase.
_STATUS = {
    PeerVerdict.HANGS: Status.TIMED_OUT,
    PeerVerdict.FAILS: Status.ERROR,
    PeerVerdict.WRONG: Status.FAILED,
    PeerVerdict.NOT_TRIED: Status.INTERRUPTED,
    PeerVerdict.NOT_OFFERED: Status.WAIVED,
}


def as_testcase(access: PeerAccess) -> TestcaseResult:
    """The attempts as a testcase, for formats and comparisons: rates of copies, and round trips of flags."""
    gpus = access.gpus
    axes = Axis("accessing GPU", gpus), Axis("GPU with the memory", gpus)
    rates, trips = [], []
    for (a, b), attempts in access.pairs.items():
        row, column, verdict = gpus.index(a), gpus.index(b), access.verdicts[a, b]
        deciding = access.deciding((a, b))
        why = ""
        if deciding is not None and verdict is not PeerVerdict.WORKS:
            why = ": ".join(filter(None, (str(verdict), deciding.stage or deciding.detail or deciding.by)))
        is_wrong = any(attempt.verdict is PeerVerdict.WRONG for attempt in attempts)
        rate = next((attempt.rate for attempt in attempts if attempt.rate), None)
        kept = rate if verdict in (PeerVerdict.WORKS, PeerVerdict.SLOW) else None
        why = "" if kept else why
        rates.append(Cell(row, column, kept, reason=why, corrupted=f"{a}->{b}" if is_wrong else ""))
        if latency := next((attempt.latency for attempt in attempts if attempt.latency), None):
            trips.append(Cell(row, column, latency))
    title = "copies from the GPU of the row to that of the column"
    tables = [Table("copy", title, Unit.RATE, *axes, tuple(rates))]
    if trips:
        tables.append(Table("flag", "round trip of a flag", Unit.TIME, *axes, tuple(trips)))
    status, worst = _STATUS.get(access.verdict, Status.PASSED), access.bad()
    first = next(iter(worst), None)
    reason = f"{first[0]}->{first[1]} {worst[first]}" if first and not status.good else ""
    reason = reason or ("" if status is Status.PASSED else str(access.verdict))
    about = "attempts of peer access"
    return TestcaseResult(PEER_ACCESS, status, about, reason, tables=tuple(tables), seconds=access.seconds)


def with_slow(access: PeerAccess, joined: Mapping[Pair, object], line: Mapping[Pair, float]) -> PeerAccess:
    """The attempts with copies judged by other ways of the same machine: works or slow.

    Args:
        access: The attempts.
        joined: Pair -> how it is joined; only pairs that are joined alike are compared with each other.
        line: Pair -> line rate of its links, in B/s, where only these limit it.
    """
    rates = {a.pair: a.rate for a in access.attempts if a.mechanism is PeerMechanism.COPY and a.rate}

    def judged(attempt: Attempt) -> Attempt:
        rate, pair = rates.get(attempt.pair), attempt.pair
        if (
            rate is None
            or attempt.mechanism is not PeerMechanism.COPY
            or attempt.verdict is not PeerVerdict.WORKS
        ):
            return attempt
        ways = [access.through_host.get(gpu) for gpu in pair]
        host = min(filter(None, ways)) if all(ways) else 0.0
        alike = sorted(other for p, other in rates.items() if joined.get(p) == joined.get(pair))
        median = alike[len(alike) // 2] if len(alike) >= ENOUGH_PAIRS else 0.0
        for least, whole, what in (
            (PEER_OF_HOST, host, "through the host"),
            (PEER_OF_MIRROR, rates.get((pair[1], pair[0]), 0.0), "in the other direction"),
            (PEER_OF_PEERS, median, "is the median of pairs joined alike"),
            (PEER_OF_LINE, line.get(pair, 0.0), "is the line rate"),
        ):
            if rate < least * whole:
                detail = f"{rate / GB:.1f} GB/s; {whole / GB:.1f} {what}"
                return replace(attempt, verdict=PeerVerdict.SLOW, detail=detail)
        return attempt

    return replace(access, attempts=tuple(map(judged, access.attempts)))
