"""The simulated backend: Transfers share the links of a Machine in virtual time.

Concurrent transfers get max-min fair shares, which are recomputed when one ends. Every time has seeded noise.
Faults produce wrong data, errors and hangs on demand, so that their handling can be tested without hardware.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Self

from ...document import State
from ...durations import CONNECT_S, prepare_seconds, verify_seconds
from ...errors import BackendError, BackendLost, MeasurementTimeout, OutOfMemory, VerificationError
from ...model import Collective, Engine, Measurement, Message, Operation, Role, Sample, Sharing, Transfer
from ...network import Demand, Network, completions, fair_shares
from ...options import RunOptions
from ...topology import FaultKind, Machine
from ...units import format_size
from ..base import Prepared
from .faults import faulty
from .noise import Noise

if TYPE_CHECKING:
    from ..collective_backend import CollectiveBackend

#: Time that every transfer takes in addition to moving its bytes, in s.
_LAUNCH_S = 2e-6
#: Number of loads in one copy of a chase.
_CHASE_LOADS = 2**16


class SimulatedBackend:
    """Run Measurements on a machine description.

    Parameters
    ----------
    machine : Machine
        The machine, with the capacities of its links, and its faults.

    Attributes
    ----------
    network : Network
        The links of the machine with its faults.
    capacities : Mapping[int, float]
        Their capacities, in B/s.
    clock : float
        Virtual time of samples, in s.
    overhead : float
        Virtual time of everything else, in s.
    released : Event
        Ends a simulated hang.
    noise : Noise
        By how much times vary.
    """

    name = "simulated"
    sample_seconds = 1e-3

    def __init__(self, machine: Machine) -> None:
        self.machine = machine
        self.network = Network(faulty(machine))
        self.clock = self.overhead = 0.0
        self.warnings: list[str] = []
        self.released = threading.Event()
        self._collectives: CollectiveBackend | None = None
        self.capacities = self.network.capacities()
        self.noise = Noise(machine)

    def refuses(self, measurement: Measurement) -> str | None:
        """Return None: every Measurement can be simulated."""
        del measurement
        return None

    def prepare(self, measurement: Measurement, options: RunOptions) -> Prepared:
        """Compute the times of a Measurement without noise.

        Raises
        ------
        BackendError
            If no link of a transfer has a capacity.
        OutOfMemory
            If a fault leaves too little memory.
        """
        self.released.clear()
        self.overhead += prepare_seconds(measurement)
        self._allocate(measurement)
        if measurement.collective:
            return self._of_collectives(measurement.collective, options).prepare(measurement, options)
        if measurement.is_mixed:
            from .mixed import SimulatedMix

            return SimulatedMix(self, measurement, options)
        if isinstance(measurement.works[0], Message | Sharing):
            from .pairs import SimulatedPair

            return SimulatedPair(self, measurement, options)
        return SimulatedMeasurement(self, measurement, options)

    def _allocate(self, measurement: Measurement) -> None:
        """Raise an error if a ``full`` fault leaves too little memory for the transfers."""
        for fault in self.machine.faults:
            if fault.kind is not FaultKind.FULL:
                continue
            needed = sum(
                t.bytes for t in measurement.transfers for end in t.ends if end.device == fault.where
            )
            if needed > fault.factor:
                raise OutOfMemory(
                    f"not enough memory on {fault.where}: {format_size(needed)} requested, "
                    f"{format_size(fault.factor)} is free"
                )

    def _of_collectives(self, run: Collective, options: RunOptions) -> CollectiveBackend:
        if self._collectives is None:
            self.overhead += CONNECT_S
            from .simulated_collectives import connect

            self._collectives = connect(self.machine, run.ranks, options.seed)
        return self._collectives

    def describe(self) -> dict[str, Any]:
        """Return the fields of the Document that collectives add."""
        return self._collectives.describe() if self._collectives else {}

    def now(self) -> float:
        """Return the virtual time, in s."""
        return self.clock + (self._collectives.now() if self._collectives else 0.0)

    def elapsed(self) -> float:
        """Return the virtual time of the run, in s."""
        return self.now() + self.overhead

    def state(self) -> State:
        """Return no readings: a simulated machine has no state."""
        return ()

    def busy(self) -> dict[str, str]:
        """Return the devices with a ``busy`` or ``full`` fault: one, or all if the fault names none."""
        using = (FaultKind.BUSY, FaultKind.FULL)
        places = [fault.where for fault in self.machine.faults if fault.kind in using]
        devices = [*(gpu.name for gpu in self.machine.gpus), *(node.name for node in self.machine.numa)]
        return {d: "in use by a simulated load" for d in devices if any(p in ("", d) for p in places)}

    def libraries(self) -> dict[str, str]:
        """Return no libraries."""
        return {}

    def cancel(self) -> None:
        """End a simulated hang."""
        self.released.set()
        if self._collectives is not None:
            self._collectives.cancel()

    def close(self) -> None:
        """Close the backend of collectives."""
        if self._collectives is not None:
            self._collectives.close()

    def shares(self, transfers: Sequence[Transfer], demands: Sequence[Demand]) -> list[float]:
        """Return the rate of each of several concurrent transfers, in B/s, from what each takes."""
        rates = fair_shares(demands, self.capacities)
        for transfer, rate in zip(transfers, rates, strict=True):
            if not math.isfinite(rate) and transfer.operation is not Operation.CHASE:
                raise BackendError(
                    f"machine {self.machine.name!r} has no capacity for any link of {transfer}"
                )
        return rates

    def demand(self, transfer: Transfer) -> Demand:
        """Return what a transfer takes of the links, and its cap."""
        if transfer.operation is Operation.CHASE:  # one load at a time uses no relevant capacity
            return Demand({})
        demand = self.network.demand(transfer, self.machine.rates)
        if transfer.pace < 1:
            alone = fair_shares([demand], self.capacities)[0]
            return replace(demand, cap=transfer.pace * alone)
        return demand

    def load_latency(self, transfer: Transfer, others: list[tuple[Transfer, float]]) -> float:
        """Return the time of one dependent load while other transfers run at their rates, in s."""
        far = self.network.latency(transfer)
        memory = self._memory_index(transfer)
        used = 0.0
        for other, rate in others:
            if memory is not None and other.operation is not Operation.CHASE:
                used += self.network.demand(other, self.machine.rates).weights.get(memory, 0.0) * rate
        busy = min(used / self.capacities.get(memory, math.inf), 0.95) if memory is not None else 0.0
        far *= 1 + 0.3 * busy / (1 - busy)  # queueing delay of a server with this utilisation
        if transfer.engine is not Engine.CPU or transfer.source.device != transfer.executor.device:
            return far
        latency, held = 0.0, 0.0
        for cache in sorted(self.machine.caches, key=lambda c: c.level):
            if cache.latency is None or cache.type == "instruction":
                continue
            share = min(1.0, cache.bytes / transfer.bytes)
            latency += max(0.0, share - held) * cache.latency
            held = max(held, share)
        return latency + (1 - held) * far

    def _memory_index(self, transfer: Transfer) -> int | None:
        vertex = self.machine.vertex(transfer.source)
        for i, link in enumerate(self.network.links):
            if link.source == link.destination == vertex:
                return i
        return None


def _identity(measurement: Measurement) -> str:
    """Return a text that is unique to the Measurement: the seed of its noise."""
    does = [
        f"{t} {t.operation} {t.bytes} {len(t.executor.cpus)}" if isinstance(t, Transfer) else str(t)
        for t in measurement.works
    ]
    fills = [f"{p.table} {p.row} {p.column}" for p in measurement.places]
    return "; ".join(does + fills)


class SimulatedMeasurement:
    """A Measurement with its times without noise; ``seconds`` in s per copy, ``rates`` in B/s."""

    def __init__(self, backend: SimulatedBackend, measurement: Measurement, options: RunOptions) -> None:
        self.backend = backend
        self.measurement = measurement
        self.options = options
        self.noise = backend.noise.of(options.seed, _identity(measurement))
        self.seconds, self.rates = self._flow()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        return None

    def _flow(self, copies: int = 1) -> tuple[list[float], list[float]]:
        """Return the time of some copies of each transfer in s, and its rate while all of them run."""
        transfers = self.measurement.transfers
        demands = [self.backend.demand(t) for t in transfers]
        rates = self.backend.shares(transfers, demands)
        seconds = [0.0] * len(transfers)
        flows = [i for i, t in enumerate(transfers) if t.operation is not Operation.CHASE]
        ends = completions(
            [demands[i] for i in flows],
            self.backend.capacities,
            [float(transfers[i].bytes * copies) if self._is_measured(i) else math.inf for i in flows],
            [transfers[i].start for i in flows],
        )
        for i, end in zip(flows, ends, strict=True):
            if self._is_measured(i):
                seconds[i] = end - transfers[i].start + _LAUNCH_S * copies
        for i, transfer in enumerate(transfers):
            if transfer.operation is Operation.CHASE:
                others = [(t, rates[j]) for j, t in enumerate(transfers) if j != i]
                seconds[i] = copies * _CHASE_LOADS * self.backend.load_latency(transfer, others)
        return seconds, rates

    def _is_measured(self, index: int) -> bool:
        return self.measurement.transfers[index].role is Role.MEASURED

    def sample(self, copies: int) -> Sample:
        """Return times with noise, and advance the virtual clock."""
        self._fail()
        transfers = self.measurement.transfers
        seconds, amounts = [], []
        if self.measurement.is_staggered:  # how far they overlap depends on the number of copies
            exact, _ = self._flow(copies)
        else:
            exact = [one * copies for one in self.seconds]
        for i, transfer in enumerate(transfers):
            factor = self.noise.factor(self.backend.clock)
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
        self.backend.clock += end
        return Sample(tuple(seconds), tuple(amounts), wall)

    @staticmethod
    def _held(transfer: Transfer, seconds: float, copies: int) -> float:
        """Return a time that is not shorter than the rate of the transfer allows."""
        return max(seconds, transfer.bytes * copies * transfer.counted / transfer.rate)

    def _fail(self) -> None:
        for fault in self.backend.machine.faults:
            for transfer in self.measurement.works:
                if not str(transfer).startswith(fault.where):
                    continue
                if fault.kind is FaultKind.ERROR:
                    raise BackendError(f"simulated error in {transfer}")
                if fault.kind is FaultKind.LOST:
                    raise BackendLost(f"simulated loss of the device in {transfer}")
                if fault.kind is FaultKind.HANG:
                    self.backend.released.wait()
                    raise MeasurementTimeout(f"waiting for {transfer}", self.options.timeout)
                if fault.kind is FaultKind.STUCK:
                    threading.Event().wait()

    def verify(self) -> None:
        """Raise an error for transfers with a ``corrupt`` fault."""
        self.backend.overhead += verify_seconds(self.measurement)
        for fault in self.backend.machine.faults:
            for transfer in self.measurement.works:
                if isinstance(transfer, Collective):
                    continue
                if fault.kind is FaultKind.CORRUPT and str(transfer).startswith(fault.where):
                    words = max(1, transfer.bytes // 8)
                    offset = 8 * self.noise.random.randrange(words)
                    raise VerificationError(str(transfer), offset, 1, words, transfer.way)
