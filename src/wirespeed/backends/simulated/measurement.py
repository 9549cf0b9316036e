"""Transfers of a simulated Measurement: their times, with seeded noise, and the faults of the machine."""

from __future__ import annotations

import math
import threading

from ...durations import verify_seconds
from ...errors import BackendError, BackendLost, MeasurementTimeout, VerificationError
from ...faults import FaultKind
from ...measurement import Measurement, Sample
from ...model import Collective, Operation, Role, Transfer
from ...network import completions
from ...options import RunOptions
from ...wrong_words import WrongWord, WrongWords
from ..base import Prepared
from ..word_pattern import STEP, WORD_MASK, keys_of
from .hardware import Exact, SimulatedHardware

#: Time that every transfer takes in addition to moving its bytes, in s.
_LAUNCH_S = 2e-6
#: Number of loads in one copy of a chase.
_CHASE_LOADS = 2**16


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

    def _flow(self, copies: int = 1) -> tuple[list[float], list[float]]:
        """The time of some copies of each transfer in s, and its rate while all of them run."""
        transfers = self.measurement.transfers
        demands = [self.hardware.demand(t) for t in transfers]
        rates = self.hardware.shares(transfers, demands)
        seconds = [0.0] * len(transfers)
        flows = [i for i, t in enumerate(transfers) if t.operation is not Operation.CHASE]
        ends = completions(
            [demands[i] for i in flows],
            self.hardware.capacities,
            [float(transfers[i].bytes * copies) if self._is_measured(i) else math.inf for i in flows],
            [transfers[i].start for i in flows],
        )
        for i, end in zip(flows, ends, strict=True):
            if self._is_measured(i):
                seconds[i] = end - transfers[i].start + _LAUNCH_S * copies
        for i, transfer in enumerate(transfers):
            if transfer.operation is Operation.CHASE:
                others = [(t, rates[j]) for j, t in enumerate(transfers) if j != i]
                seconds[i] = copies * _CHASE_LOADS * self.hardware.load_latency(transfer, others)
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
            seconds.append(self._held(transfer, exact[i] * factor, copies))
            unit = _CHASE_LOADS if transfer.operation is Operation.CHASE else transfer.bytes
            amounts.append(float(unit * copies))
        measured = [(t.start, s) for t, s in zip(transfers, seconds, strict=True) if t.role is Role.MEASURED]
        end = max(start + time for start, time in measured)
        for i, transfer in enumerate(transfers):
            if transfer.role is Role.LOAD:
                seconds[i] = max(end - transfer.start, _LAUNCH_S)
                amounts[i] = self.rates[i] * seconds[i] / amounts[i]
        wall = end - min(start for start, _ in measured)
        self.hardware.clock += end
        return Sample(tuple(seconds), tuple(amounts), wall)

    @staticmethod
    def _held(transfer: Transfer, seconds: float, copies: int) -> float:
        """A time that is not shorter than the rate of the transfer allows."""
        return max(seconds, transfer.bytes * copies * transfer.counted / transfer.rate)

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

    def verify(self) -> None:
        """Raise an error for transfers with a ``corrupt`` fault."""
        self.hardware.overhead += self.verify_s
        for fault in self.hardware.machine.faults:
            for transfer in self.measurement.works:
                if isinstance(transfer, Collective):
                    continue
                if fault.kind is FaultKind.CORRUPT and str(transfer).startswith(fault.where):
                    words = max(1, transfer.bytes // 8)
                    index = self.noise.random.randrange(words)
                    found = zeroed(index, keys_of(self.options.seed, index))
                    raise VerificationError(str(transfer), 8 * index, 1, words, transfer.way, found)
