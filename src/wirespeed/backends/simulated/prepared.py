"""A Measurement on a simulated machine: its times, its data and its ends, as faults and noise make them."""

from __future__ import annotations

import math
import random
import threading
from dataclasses import replace

from ...errors import BackendError, BackendLost, MeasurementTimeout, VerificationError
from ...hardware.devices import Fault, FaultKind
from ...hardware.durations import (
    left_for_computing,
    list_seconds,
    lists_seconds,
    submission_seconds,
    verify_seconds,
)
from ...hardware.link_graph import completions
from ...measurement import Measurement, Sample
from ...model import Collective, Engine, Operation, Role, Transfer, Work
from ...options import RunOptions
from ...peer_access import FLAG_S, PeerMechanism
from ..base import Prepared
from ..test_data import keys_of
from .hardware import Exact, SimulatedHardware, is_between, zeroed
from .peers import round_trip, shown


def _corrupts(fault: Fault, work: Work) -> bool:
    """Whether a work delivers wrong data: its own fault, or its copy engine does not reach a peer."""
    if fault.kind is FaultKind.MECHANISM and fault.cause == PeerMechanism.COPY:
        return isinstance(work, Transfer) and work.engine is Engine.CE and is_between(fault, work)
    return fault.kind is FaultKind.CORRUPT and str(work).startswith(fault.where)


#: Time that every transfer takes in addition to moving its bytes, in s.
_LAUNCH_S = 2e-6
#: Number of loads in one copy of a chase, and of flags in one of signals.
_STEPS = 2**16


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

    def _flow(self) -> tuple[list[float], list[float]]:
        """The time of one copy of each transfer in s, and its rate while all of them run."""
        transfers = self.measurement.transfers
        demands = [self.hardware.demand(t) for t in transfers]
        rates = self.hardware.shares(transfers, demands)
        seconds = [0.0] * len(transfers)
        flows = [i for i, t in enumerate(transfers) if not t.operation.is_latency]
        ends = completions(
            [demands[i] for i in flows],
            self.hardware.capacities,
            [float(transfers[i].bytes) if self._is_measured(i) else math.inf for i in flows],
        )
        lists, measured = self.measurement.moves_lists, [i for i in flows if self._is_measured(i)]
        for i, end in zip(flows, ends, strict=True):
            if i in measured:
                calls_s = lists_seconds(transfers) if lists else list_seconds(transfers[i])
                seconds[i] = end + _LAUNCH_S + calls_s
        if lists:  # all are awaited together
            last, slowest = max(seconds), min(rates[i] for i in measured)
            moving = transfers[measured[0]].bytes / slowest / last
            for i in range(len(transfers)):
                if i in measured:
                    seconds[i] = last
                else:
                    rates[i] *= left_for_computing(transfers, moving)
        for i, transfer in enumerate(transfers):
            if transfer.operation is Operation.SIGNAL:
                pair = transfer.source.device, transfer.destination.device
                seconds[i] = _STEPS * round_trip(self.hardware, pair)
            if transfer.operation is Operation.CHASE:
                others = [(t, rates[j]) for j, t in enumerate(transfers) if j != i]
                seconds[i] = _STEPS * self.hardware.load_latency(transfer, others)
        return seconds, rates

    def _is_measured(self, index: int) -> bool:
        return self.measurement.transfers[index].role is Role.MEASURED

    def sample(self, copies: int) -> Sample:
        self._fail()
        transfers = self.measurement.transfers
        seconds, amounts = [], []
        for i, transfer in enumerate(transfers):
            factor = self.noise.factor(self.hardware.clock)
            if transfer.role is Role.LOAD:
                seconds.append(0.0)  # set when the measured times are known
                amounts.append(factor)
                continue
            seconds.append(self.seconds[i] * copies * factor)
            unit = _STEPS if transfer.operation.is_latency else transfer.bytes
            amounts.append(float(unit * copies))
        end = max(seconds)
        for i, transfer in enumerate(transfers):
            if transfer.role is Role.LOAD:
                seconds[i] = max(end, _LAUNCH_S)
                amounts[i] = self.rates[i] * seconds[i] / amounts[i]
        self.hardware.clock += end
        submitted = copies * submission_seconds(transfers)
        if self._listed is None:
            return Sample(tuple(seconds), tuple(amounts), end, submitted=submitted)
        return self._listed.sample(Sample(tuple(seconds), tuple(amounts), end, submitted=submitted), copies)

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
                if (flag := shown(self.hardware, pair, PeerMechanism.FLAG, self.options.seed)).stage:
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
