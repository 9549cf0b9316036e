"""Attempts of peer access on a simulated machine: what its faults do to each mechanism of each pair."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence

from msgspec import structs

from ...errors import BackendError, MachineError
from ...hardware.devices import FaultKind
from ...hardware.durations import start_seconds
from ...hardware.topology import Machine
from ...model import Engine, Executor, Memory, MemoryKind, Transfer
from ...peer_access import Attempt, Pair, PeerAccess, PeerMechanism, PeerVerdict, rounds
from ...units import MIB
from .hardware import SimulatedHardware

_M, _V = PeerMechanism, PeerVerdict

#: Time of one attempt, and of one that hangs until its process is killed, in s.
_ATTEMPT_S, _HANG_S = 0.01, 2.0
#: Words of 8 bytes that an attempt verifies; bytes of the copy that is timed.
_WORDS, _TIMED_BYTES = MIB // 8, 16 * MIB
#: Round trip of a flag, in s: over NVLink as measured between two H100s, else an assumption.
_LINKED_S, _UNLINKED_S = 4.5e-6, 8e-6
#: Factor of the speed of copies to a GPU whose BAR1 is small: 2.0 of 12.2 GB/s in issue 9 of
#: aikitoria/open-gpu-kernel-modules.
_SMALL_BAR = 0.16
_BETWEEN = (_M.IPC, _M.DESCRIPTOR)
_WRITES = (_M.COPY, _M.STORE, _M.BOTH, _M.ATOMICS, *_BETWEEN)
#: Fault -> mechanism -> what its attempt shows. A posted write that vanishes is no error; a read is answered.
_SHOWS: dict[FaultKind, dict[PeerMechanism, PeerVerdict]] = {
    FaultKind.DROPPED: {
        **dict.fromkeys(_WRITES, _V.WRONG), **dict.fromkeys((_M.FLAG, _M.ORDER, _M.NCCL), _V.HANGS),
    },
    FaultKind.CORRUPT: dict.fromkeys((*_WRITES, _M.LOAD, _M.ORDER, _M.NCCL), _V.WRONG),
    FaultKind.LATE: {_M.ORDER: _V.WRONG},
    FaultKind.UNSEEN: dict.fromkeys((_M.FLAG, _M.ORDER, _M.NCCL), _V.HANGS),
    FaultKind.BOTH_WAYS: {_M.BOTH: _V.WRONG},
}  # fmt: skip
#: Faults that make attempts end early: what the first attempt shows.
_ENDING = {
    FaultKind.HANG: _V.HANGS,
    FaultKind.STUCK: _V.HANGS,
    FaultKind.ERROR: _V.FAILS,
    FaultKind.LOST: _V.FAILS,
}
#: Faults of a whole GPU after which it cannot be used, and how that shows.
_UNUSABLE = {
    FaultKind.HANG: "a copy from the host hangs",
    FaultKind.STUCK: "a copy from the host hangs; the killed process does not end",
    FaultKind.LOST: "simulated loss of the device",
}


def _of_mechanism(name: str) -> PeerVerdict:
    """What an attempt shows if only its mechanism is broken: who waits for a flag waits forever."""
    return _V.HANGS if name in (_M.FLAG, _M.NCCL) else _V.WRONG


def attempted(machine: Machine, mechanisms: Sequence[PeerMechanism], seed: int) -> PeerAccess:
    """Try the pairs that the driver offers."""
    hardware = SimulatedHardware(machine)
    offered = [(gpu.name, peer) for gpu in machine.gpus for peer in gpu.peers]
    attempts: list[Attempt] = []
    seconds = start_seconds(machine)
    for pairs in rounds([gpu.name for gpu in machine.gpus]):
        lasting = [0.0]
        for a, b in pairs:
            both = [pair for pair in ((a, b), (b, a)) if pair in offered]
            of_pair = [attempt for pair in both for attempt in _of_pair(hardware, pair, mechanisms, seed)]
            lasting.append(_HANG_S * any(a.verdict is _V.HANGS for a in of_pair) + _ATTEMPT_S * len(of_pair))
            attempts += of_pair
        seconds += max(lasting)
    host = {
        gpu.name: rate
        for gpu in machine.gpus
        if (rate := min(_of_host(hardware, gpu.name, gpu.numa, seed), default=0.0))
    }
    unusable = {
        fault.where: _UNUSABLE[fault.kind]
        for fault in machine.faults
        if fault.kind in _UNUSABLE and fault.where in {gpu.name for gpu in machine.gpus}
    }
    hosts = host if PeerMechanism.COPY in mechanisms else {}
    return PeerAccess(tuple(attempts), hosts, unusable, seconds=seconds)


def _of_pair(
    hardware: SimulatedHardware, pair: Pair, mechanisms: Sequence[PeerMechanism], seed: int
) -> Iterator[Attempt]:
    ended = False
    for mechanism in mechanisms:
        if ended:
            yield Attempt(*pair, mechanism, _V.NOT_TRIED, "an earlier attempt ended its process")
            continue
        attempt = shown(hardware, pair, mechanism, seed)
        ended = attempt.verdict is _V.FAILS or "copy engine" in attempt.stage
        yield attempt


def round_trip(hardware: SimulatedHardware, pair: Pair) -> float:
    """The time from setting a flag on another GPU until its answer is seen, in s."""
    return _LINKED_S if _is_linked(hardware, pair) else _UNLINKED_S


def shown(hardware: SimulatedHardware, pair: Pair, mechanism: PeerMechanism, seed: int) -> Attempt:
    good = Attempt(*pair, mechanism, _V.WORKS)
    way = "->".join(pair)
    shown: dict[PeerVerdict, Attempt] = {}
    for fault in hardware.machine.faults:
        if fault.kind in _ENDING and way.startswith(fault.where):
            verdict = _ENDING[fault.kind]
            stage = f"copy engine, {way}" if verdict is _V.HANGS else ""
            shown[verdict] = Attempt(*pair, mechanism, verdict, "" if stage else "simulated error", stage)
            continue
        kind = fault.kind
        if kind is FaultKind.CAUSE and fault.cause == "acs" and not fault.where:
            if _is_linked(hardware, pair):
                continue
            kind = FaultKind.DROPPED
        concerned = way.startswith(fault.where) if kind is FaultKind.CORRUPT else fault.concerns(*pair)
        of_one = (
            {PeerMechanism(fault.cause): _of_mechanism(fault.cause)} if kind is FaultKind.MECHANISM else {}
        )
        verdict_of = of_one or _SHOWS.get(kind, {})
        if not concerned or mechanism not in verdict_of:
            continue
        verdict = verdict_of[mechanism]
        if verdict is _V.HANGS:
            stage = f"waiting for the flag of {pair[0]} on {pair[1]}"
            shown[verdict] = Attempt(*pair, mechanism, verdict, stage=stage)
        else:
            stale = _WORDS if kind is FaultKind.DROPPED else 0
            shown[verdict] = Attempt(
                *pair, mechanism, verdict, words=_WORDS, wrong=stale or 1,
                stale=stale or int(kind is FaultKind.LATE), late=kind is FaultKind.LATE,
            )  # fmt: skip
    if bad := next((shown[verdict] for verdict in PeerVerdict if verdict in shown), None):
        return bad
    if mechanism is PeerMechanism.COPY:
        return structs.replace(good, rate=_peer_rate(hardware, pair, seed))
    if mechanism is PeerMechanism.FLAG:
        return structs.replace(good, latency=round_trip(hardware, pair))
    if mechanism is PeerMechanism.ATOMICS and not _is_linked(hardware, pair):
        return Attempt(*pair, mechanism, _V.NOT_OFFERED, "no native atomics", by="the driver")
    return good


def _is_linked(hardware: SimulatedHardware, pair: Pair) -> bool:
    try:
        return all(hardware.network.links[i].kind == "nvlink" for i in hardware.network.route(*pair))
    except MachineError:
        return False


def _gpu(name: str) -> Memory:
    return Memory(name, MemoryKind.DEVICE)


def _of_host(hardware: SimulatedHardware, gpu: str, node: int, seed: int) -> list[float]:
    """The rates of copies to and from the host; none if they are unknown."""
    host = Memory(f"numa{node}", MemoryKind.PINNED)
    ways = ((host, _gpu(gpu)), (_gpu(gpu), host))
    rates = [_rate(hardware, source, destination, gpu, seed) for source, destination in ways]
    return [rate for rate in rates if rate]


def _peer_rate(hardware: SimulatedHardware, pair: Pair, seed: int) -> float | None:
    """The rate of a copy between GPUs, with the faults of the pair; None if it is unknown."""
    rate = _rate(hardware, _gpu(pair[0]), _gpu(pair[1]), pair[0], seed)
    if rate is None:
        return None
    for fault in hardware.machine.faults:
        if fault.cause == "bar1" and fault.where == pair[1]:
            rate *= _SMALL_BAR
    return rate


def _rate(
    hardware: SimulatedHardware, source: Memory, destination: Memory, by: str, seed: int
) -> float | None:
    """The rate of a copy without other traffic; None if it is unknown."""
    transfer = Transfer(source, destination, Executor(by), Engine.CE, _TIMED_BYTES)
    try:
        rate = hardware.shares([transfer], [hardware.demand(transfer)])[0]
    except (BackendError, MachineError):
        return None
    return rate * (1 + random.Random(f"{seed} {transfer}").gauss(0.0, hardware.machine.noise))
