"""The links and the virtual time of a simulated machine. Concurrent transfers get max-min fair shares, which
are recomputed when one ends; times have seeded noise and the faults of the machine, also those of attempts of
peer access.
"""

from __future__ import annotations

import math
import random
import threading
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import NamedTuple

from msgspec import structs

from ...errors import (
    BackendError,
    BackendLost,
    MachineError,
    MeasurementTimeout,
    VerificationError,
    WrongWord,
    WrongWords,
)
from ...hardware.devices import DeviceRecord, Fault, FaultKind, NumaNode
from ...hardware.durations import (
    left_for_computing,
    list_seconds,
    lists_seconds,
    start_seconds,
    submission_seconds,
    verify_seconds,
)
from ...hardware.network import Demand, MachineVertices, Network, completions, fair_shares
from ...hardware.topology import Machine
from ...measurement import Measurement, Sample
from ...model import Collective, Engine, Executor, Memory, MemoryKind, Operation, Role, Transfer, Work
from ...options import RunOptions
from ...peer_access import FLAG_S, Attempt, Pair, PeerAccess, PeerMechanism, PeerVerdict, rounds
from ...units import MIB
from ..base import Prepared
from ..test_data import STEP, WORD_MASK, keys_of
from .faults import Noise, faulty


class Exact(NamedTuple):
    """What is known of a simulated Measurement before it is measured, the same in all rounds.

    Attributes:
        identity: A text that is unique to it.
        seconds, rates: Time of a copy of each transfer without noise in s, and its rate while all run in B/s.
        verify_s: Time to verify a sample, in s.
    """

    identity: str
    seconds: list[float]
    rates: list[float]
    verify_s: float


class SimulatedHardware:
    """What all simulated Measurements of a machine share.

    Attributes:
        machine: The machine, with the capacities of its links, and its faults.
        network: The links of the machine with its faults.
        capacities: Their capacities, in B/s.
        clock: Virtual time of samples, in s.
        overhead: Virtual time of everything else, in s.
        released: Ends a simulated hang.
        noise: By how much times vary.
        vertices: Its devices and switches.
        known: The Measurements that were prepared before.
    """

    def __init__(self, machine: Machine) -> None:
        self.machine = machine
        self.network = Network(faulty(machine))
        self.capacities = self.network.capacities()
        self.clock = self.overhead = 0.0
        self.released = threading.Event()
        self.noise = Noise(machine)
        self.vertices = MachineVertices(machine)
        self.known: dict[Measurement, Exact] = {}

    def free_bytes(self, vertex: str) -> float:
        """The free memory of a device, with its ``full`` faults; infinite where the description has none."""
        device = self.vertices.of(vertex).device
        free = next((self._size(known) for known in self.machine.devices if known.name == device), math.inf)
        full = (f.factor for f in self.machine.faults if f.kind is FaultKind.FULL and f.where == device)
        return min([free, *full])

    @staticmethod
    def _size(device: DeviceRecord) -> float:
        size = device.free_bytes if isinstance(device, NumaNode) else getattr(device, "memory_bytes", 0)
        return size or math.inf

    def shares(self, transfers: Sequence[Transfer], demands: Sequence[Demand]) -> list[float]:
        """The rate of each of several concurrent transfers, in B/s, from what each takes."""
        rates = fair_shares(demands, self.capacities)
        for transfer, rate in zip(transfers, rates, strict=True):
            if not math.isfinite(rate) and not transfer.operation.is_latency:
                raise BackendError(
                    f"machine {self.machine.name!r} has no capacity for any link of {transfer}"
                )
        return rates

    def demand(self, transfer: Transfer) -> Demand:
        """What a transfer takes of the links, and its cap."""
        if transfer.operation.is_latency:  # one load at a time uses no relevant capacity
            return Demand({})
        demand = self.network.demand(transfer, self.machine.rates)
        slowed = (
            f.factor for f in self.machine.faults if f.kind is FaultKind.SLOW and _is_between(f, transfer)
        )
        pace = math.prod(slowed, start=transfer.pace)
        if pace < 1:
            alone = fair_shares([demand], self.capacities)[0]
            return replace(demand, cap=pace * alone)
        return demand

    def load_latency(self, transfer: Transfer, others: list[tuple[Transfer, float]]) -> float:
        """The time of one dependent load while other transfers run at their rates, in s."""
        far = self.network.latency(transfer)
        memory = self._memory_index(transfer)
        used = 0.0
        for other, rate in others:
            if memory is not None and not other.operation.is_latency:
                used += self.network.demand(other, self.machine.rates).weights.get(memory, 0.0) * rate
        busy = min(used / self.capacities.get(memory, math.inf), 0.95) if memory is not None else 0.0
        far *= 1 + 0.3 * busy / (1 - busy)  # queueing delay of a server with this utilisation
        if transfer.engine is not Engine.CPU or transfer.source.device != transfer.executor.device:
            return far
        latency, held = 0.0, 0.0
        for level in sorted(self.machine.caches, key=lambda c: c.level):
            if level.latency is None or level.type == "instruction":
                continue
            share = min(1.0, level.bytes / transfer.bytes)
            latency += max(0.0, share - held) * level.latency
            held = max(held, share)
        return latency + (1 - held) * far

    def _memory_index(self, transfer: Transfer) -> int | None:
        vertex = self.machine.vertex(transfer.source)
        for i, link in enumerate(self.network.links):
            if link.source == link.destination == vertex:
                return i
        return None


def _is_between(fault: Fault, transfer: Transfer) -> bool:
    """Whether a fault of pairs is one of a transfer, which is then between two GPUs."""
    ends = transfer.source, transfer.destination
    is_peer = ends[0].device != ends[1].device and all(end.kind is MemoryKind.DEVICE for end in ends)
    return is_peer and fault.concerns(ends[0].device, ends[1].device)


def _corrupts(fault: Fault, work: Work) -> bool:
    """Whether a work delivers wrong data: its own fault, or its copy engine does not reach a peer."""
    if fault.kind is FaultKind.MECHANISM and fault.cause == PeerMechanism.COPY:
        return isinstance(work, Transfer) and work.engine is Engine.CE and _is_between(fault, work)
    return fault.kind is FaultKind.CORRUPT and str(work).startswith(fault.where)


#: Time that every transfer takes in addition to moving its bytes, in s.
_LAUNCH_S = 2e-6
#: Number of loads in one copy of a chase, and of flags in one of signals.
_STEPS = 2**16


def zeroed(index: int, keys: tuple[int, int, int]) -> WrongWords:
    """What is found if a copy leaves zeros in place of one word of a pattern with these keys."""
    expected = keys[0] + index * STEP & WORD_MASK
    word = WrongWord(index, expected, 0, expected, keys[2])
    return WrongWords((word,), expected, expected, source_wrong=0, unwritten=0, copied=0)


def _identity(measurement: Measurement) -> str:
    """A text that is unique to the Measurement: the seed of its noise."""
    does = [
        f"{t} {t.operation} {t.bytes} {len(t.executor.cpus)}" if isinstance(t, Transfer) else str(t)
        for t in measurement.works
    ]
    fills = [f"{p.table} {p.row} {p.column}" for p in measurement.places]
    return "; ".join(does + fills)


#: Additional time of the first call with a block list; the fraction of calls that are interrupted, and by
#: how much they take longer: assumptions.
_FIRST_CALL_S, _INTERRUPTED, _INTERRUPTED_FACTOR = 40e-6, 0.02, 1.25


class SimulatedCalls:
    """The times of the single calls with a block list.

    Attributes:
        identity: The seed of their noise.
        scatter: Standard deviation of a call, as a fraction of its time.
    """

    def __init__(self, identity: str, scatter: float) -> None:
        self._random, self._scatter = random.Random(f"calls {identity}"), scatter
        self._is_first = True

    def sample(self, whole: Sample, copies: int) -> Sample:
        """A sample with its calls; the first call with new buffers takes longer."""
        if self._is_first:
            self._is_first = False
            seconds = tuple(s + _FIRST_CALL_S for s in whole.seconds)
            whole = replace(whole, seconds=seconds, wall=whole.wall + _FIRST_CALL_S)
        parts = [self._random.lognormvariate(0.0, self._scatter) for _ in range(copies)]
        if self._scatter:
            slow = (self._random.random() < _INTERRUPTED for _ in parts)
            parts = [part * (_INTERRUPTED_FACTOR if s else 1.0) for part, s in zip(parts, slow, strict=True)]
        each = whole.wall / math.fsum(parts)
        return replace(whole, calls=tuple(each * part for part in parts))


class SimulatedMeasurement(Prepared):
    """A Measurement with its times without noise; ``seconds`` in s per copy, ``rates`` in B/s."""

    def __init__(self, hardware: SimulatedHardware, measurement: Measurement, options: RunOptions) -> None:
        self.hardware = hardware
        self.measurement = measurement
        self.options = options
        known = hardware.known.get(measurement)
        if known is None:
            known = hardware.known[measurement] = Exact(
                _identity(measurement), *self._flow(), verify_seconds(measurement)
            )
        self.seconds, self.rates, self.verify_s = known.seconds, known.rates, known.verify_s
        self.noise = hardware.noise.of(options.seed, known.identity)
        scatter = hardware.machine.noise
        self._listed = SimulatedCalls(known.identity, scatter) if measurement.moves_lists else None

    def _flow(self, copies: int = 1) -> tuple[list[float], list[float]]:
        """The time of some copies of each transfer in s, and its rate while all of them run."""
        transfers = self.measurement.transfers
        demands = [self.hardware.demand(t) for t in transfers]
        rates = self.hardware.shares(transfers, demands)
        seconds = [0.0] * len(transfers)
        flows = [i for i, t in enumerate(transfers) if not t.operation.is_latency]
        ends = completions(
            [demands[i] for i in flows],
            self.hardware.capacities,
            [float(transfers[i].bytes * copies) if self._is_measured(i) else math.inf for i in flows],
            [transfers[i].start for i in flows],
        )
        lists, measured = self.measurement.moves_lists, [i for i in flows if self._is_measured(i)]
        for i, end in zip(flows, ends, strict=True):
            if i in measured:
                calls_s = lists_seconds(transfers) if lists else list_seconds(transfers[i])
                seconds[i] = end - transfers[i].start + (_LAUNCH_S + calls_s) * copies
        if lists:  # all are awaited together
            last, slowest = max(seconds), min(rates[i] for i in measured)
            moving = transfers[measured[0]].bytes * copies / slowest / last
            for i in range(len(transfers)):
                if i in measured:
                    seconds[i] = last
                else:
                    rates[i] *= left_for_computing(transfers, moving)
        for i, transfer in enumerate(transfers):
            if transfer.operation is Operation.SIGNAL:
                pair = transfer.source.device, transfer.destination.device
                seconds[i] = copies * _STEPS * _round_trip(self.hardware, pair)
            if transfer.operation is Operation.CHASE:
                others = [(t, rates[j]) for j, t in enumerate(transfers) if j != i]
                seconds[i] = copies * _STEPS * self.hardware.load_latency(transfer, others)
        return seconds, rates

    def _is_measured(self, index: int) -> bool:
        return self.measurement.transfers[index].role is Role.MEASURED

    def sample(self, copies: int) -> Sample:
        self._fail()
        transfers = self.measurement.transfers
        seconds, amounts = [], []
        if self.measurement.is_staggered:  # how far they overlap depends on the number of copies
            exact, _ = self._flow(copies)
        else:
            exact = [time * copies for time in self.seconds]
        for i, transfer in enumerate(transfers):
            factor = self.noise.factor(self.hardware.clock)
            if transfer.role is Role.LOAD:
                seconds.append(0.0)  # set when the measured times are known
                amounts.append(factor)
                continue
            # Not shorter than the rate of the transfer allows.
            held = transfer.bytes * copies * transfer.counted / transfer.rate
            seconds.append(max(exact[i] * factor, held))
            unit = _STEPS if transfer.operation.is_latency else transfer.bytes
            amounts.append(float(unit * copies))
        measured = [(t.start, s) for t, s in zip(transfers, seconds, strict=True) if t.role is Role.MEASURED]
        end = max(start + time for start, time in measured)
        for i, transfer in enumerate(transfers):
            if transfer.role is Role.LOAD:
                seconds[i] = max(end - transfer.start, _LAUNCH_S)
                amounts[i] = self.rates[i] * seconds[i] / amounts[i]
        wall = end - min(start for start, _ in measured)
        self.hardware.clock += end
        submitted = copies * submission_seconds(transfers)
        if self._listed is None:
            return Sample(tuple(seconds), tuple(amounts), wall, submitted=submitted)
        return self._listed.sample(Sample(tuple(seconds), tuple(amounts), wall, submitted=submitted), copies)

    def _fail(self) -> None:
        for fault in self.hardware.machine.faults:
            for transfer in self.measurement.works:
                if not str(transfer).startswith(fault.where):
                    continue
                if fault.kind is FaultKind.ERROR:
                    raise BackendError(f"simulated error in {transfer}")
                if fault.kind is FaultKind.LOST:
                    raise BackendLost(f"simulated loss of the device in {transfer}")
                if fault.kind is FaultKind.HANG:
                    self.hardware.released.wait()
                    raise MeasurementTimeout(f"waiting for {transfer}", self.options.timeout)
                if fault.kind is FaultKind.STUCK:
                    threading.Event().wait()
        for transfer in self.measurement.transfers:
            if transfer.operation is Operation.SIGNAL:
                pair = transfer.source.device, transfer.destination.device
                if (flag := _shown(self.hardware, pair, _M.FLAG, self.options.seed)).stage:
                    raise MeasurementTimeout(flag.stage, FLAG_S)

    def verify(self) -> None:
        """Raise an error for transfers that deliver wrong data."""
        self.hardware.overhead += self.verify_s
        for fault in self.hardware.machine.faults:
            for transfer in self.measurement.works:
                if not isinstance(transfer, Collective) and _corrupts(fault, transfer):
                    words = max(1, transfer.bytes // 8)
                    index = self.noise.random.randrange(words)
                    found = zeroed(index, keys_of(self.options.seed, index))
                    raise VerificationError(str(transfer), 8 * index, 1, words, transfer.way, found)


#: Time of one attempt, and of one that hangs until its process is killed, in s.
_ATTEMPT_S, _HANG_S = 0.01, 2.0
#: Words of 8 bytes that an attempt verifies; bytes of the copy that is timed.
_WORDS, _TIMED_BYTES = MIB // 8, 16 * MIB
#: Round trip of a flag, in s: over NVLink as measured between two H100s, else an assumption.
_LINKED_S, _UNLINKED_S = 4.5e-6, 8e-6
#: Factor of the speed of copies to a GPU whose BAR1 is small: 2.0 of 12.2 GB/s in issue 9 of
#: aikitoria/open-gpu-kernel-modules.
_SMALL_BAR = 0.16

_M, _V = PeerMechanism, PeerVerdict
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
        attempt = _shown(hardware, pair, mechanism, seed)
        ended = attempt.verdict is _V.FAILS or "copy engine" in attempt.stage
        yield attempt


def _round_trip(hardware: SimulatedHardware, pair: Pair) -> float:
    """The time from setting a flag on another GPU until its answer is seen, in s."""
    return _LINKED_S if _is_linked(hardware, pair) else _UNLINKED_S


def _shown(hardware: SimulatedHardware, pair: Pair, mechanism: PeerMechanism, seed: int) -> Attempt:
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
        return structs.replace(good, latency=_round_trip(hardware, pair))
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
