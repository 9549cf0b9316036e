"""Messages and shared buffers between two ranks of a described machine, in virtual time.

A message takes alpha + bytes / B (R. W. Hockney, *Parallel Computing* 20 (1994) 389), where alpha is half the
round-trip latency of the path plus the cost of the engine, and B the rate of the slowest link of the path. A
phase of sharing takes a constant time; allocating and freeing also take a time per byte. All constants are
assumptions.

Collectives on a described machine, in virtual time.

The time is t = alpha + S factor / B, the model of R. W. Hockney (*Parallel Computing* 20 (1994) 389). B is
the fair share of the slowest hop when all ranks send to the next one at once, with the efficiency of kernels
over that link. alpha is the time of a launch plus a latency for each of the log2(n) levels of a tree. It does
not model an algorithm, but is sufficient for the form of the output. Waits and barriers on the host between
operations take a constant time. Registration has no effect, and only the buffers take memory.

A collective next to transfers on a described machine: the hops of its ring share links with the transfers.

The collective is modelled as in ``simulated_collectives``: every rank sends to the next one.

The simulated backend: Transfers share the links of a Machine in virtual time.

Faults produce wrong data, errors and hangs on demand, so that their handling can be tested without hardware.
"""

from __future__ import annotations

import math
import random
import threading
from collections import Counter
from collections.abc import Callable, Sequence

from ...collectives.operations import OPERATIONS, Setting
from ...errors import BackendError, MachineError, MeasurementTimeout, OutOfMemory
from ...hardware.devices import FaultKind
from ...hardware.durations import CONNECT_S, prepare_seconds
from ...hardware.limits import ring
from ...hardware.network import Network, fair_shares
from ...hardware.topology import Machine
from ...measurement import Measurement, Sample
from ...model import (
    ALLOCATE,
    BUFFERS,
    CLOSE,
    EXPORT,
    FIRST_COPY,
    FREE,
    NEXT_COPIES,
    OPEN,
    BufferAge,
    Collective,
    Engine,
    Memory,
    Message,
    MessagePattern,
    Role,
    Sharing,
    Transfer,
)
from ...options import RunOptions
from ...testcases.collectives import members
from ...units import MIB, format_size
from ...worlds.launchers import alone
from ..base import Backend, BackendDetails, Prepared
from ..collective_backend import CollectiveBackend
from ..provider import Case, Elapsed, Group, Provider, RankDevice
from .faults import Noise, faulty
from .hardware import SimulatedHardware, SimulatedMeasurement

#: Round-trip latency in s, and rate in B/s (400 Gb/s), of ranks without a path on the machine.
_DEFAULT_LATENCY_S, _DEFAULT_RATE = 4e-6, 50e9
#: Payload over the line rate of a path.
_EFFICIENCY = 0.8
#: Cost of an engine for one message, and for each further message of a window, in s.
_COSTS_S = {Engine.MPI: (0.5e-6, 0.2e-6), Engine.NCCL: (6e-6, 0.8e-6)}
#: Additional time of the first message from buffers of each age, in s.
_AGES_S = {BufferAge.REUSED: 0.0, BufferAge.FIRST: 300e-6, BufferAge.FRESH: 20e-6}
#: Constant times of the phases, in s, and the rate of allocating and freeing, in B/s.
_PHASES_S = {ALLOCATE: 100e-6, EXPORT: 20e-6, OPEN: 500e-6, CLOSE: 150e-6, FREE: 100e-6}
_ALLOCATED_RATE = 1e12
#: Additional time of the first copy, in s.
_FIRST_COPY_S = 30e-6


class SimulatedPair(SimulatedMeasurement):
    """Simulated messages or shared buffers."""

    def _flow(self, copies: int = 1) -> tuple[list[float], list[float]]:
        del copies  # only the overlap of transfers depends on it
        times: list[float] = []
        for work in self.measurement.works:
            if isinstance(work, Message):
                times += self._message(work)
            elif isinstance(work, Sharing):
                times += self._sharing(work)
        return times, []

    def _way(self, source: Memory, destination: Memory) -> tuple[float, float]:
        """Half the round-trip latency between two memories in s, and the rate of the path in B/s."""
        network, vertex = self.hardware.network, self.hardware.machine.vertex
        try:
            way = [network.links[i] for i in network.route(vertex(source), vertex(destination))]
        except MachineError:
            return _DEFAULT_LATENCY_S / 2, _DEFAULT_RATE * _EFFICIENCY
        rate = min((link.capacity for link in way if link.capacity), default=_DEFAULT_RATE)
        return math.fsum(link.latency or 0.0 for link in way) / 2, rate * _EFFICIENCY

    def _message(self, work: Message) -> list[float]:
        latency, rate = self._way(work.source, work.destination)
        cost, next_one = _COSTS_S[work.engine]
        seconds = cost + latency + work.bytes / rate
        if work.pattern is MessagePattern.ROUND_TRIP:
            return [2 * (seconds + _AGES_S[work.age])]
        if work.pattern is MessagePattern.EACH:
            return [seconds + (_AGES_S[work.age] if i == 0 else 0.0) for i in range(work.count)]
        return [seconds + latency + (work.count - 1) * max(next_one, work.bytes / rate)]

    def _sharing(self, work: Sharing) -> list[float]:
        latency, rate = self._way(work.memory, work.user)
        cost = _COSTS_S[work.sent][0] if work.sent else 0.0
        copy = cost + latency + work.copied / rate
        size = (work.bytes + work.over) / _ALLOCATED_RATE
        seconds = {
            **_PHASES_S, ALLOCATE: _PHASES_S[ALLOCATE] + size, FREE: _PHASES_S[FREE] + size,
            FIRST_COPY: copy + _FIRST_COPY_S, NEXT_COPIES: copy,
        }  # fmt: skip
        return [seconds[phase] for phase in work.phases]

    def sample(self, copies: int) -> Sample:
        self._fail()
        now = self.hardware.clock
        seconds = tuple(exact * copies * self.noise.factor(now) for exact in self.seconds)
        work = self.measurement.works[0]
        amount = copies
        if isinstance(work, Message) and work.is_window:
            amount *= work.count * work.bytes
        wall = math.fsum(seconds)
        self.hardware.clock += wall
        return Sample(seconds, (float(amount),) * len(seconds), wall)


#: Time of a launch, and latency of one level of a tree, in s.
LAUNCH_S, HOP_S = 6e-6, 1.5e-6
#: Time in which the host waits for an operation, and in which its threads and processes meet, in s.
WAIT_S, BARRIER_S = 5e-6, 2e-6
#: NCCL allocates buffers in multiples of this, in bytes.
_GRANULE = 2 * MIB


def levels(ranks: int) -> int:
    """The number of latencies in sequence: the levels of a binary tree, for every operation."""
    return math.ceil(math.log2(ranks)) if ranks > 1 else 0


def connect(machine: Machine, ranks: int, seed: int = 0) -> CollectiveBackend:
    """The backend for collectives on the first GPUs, or ranks, of a described machine.

    Args:
        machine: The machine.
        ranks: Number of ranks.
        seed: Seed of the noise.

    Raises:
        MachineError: If the machine has fewer GPUs or ranks, or they are not connected.
    """
    provider = SimulatedProvider(machine, ranks, seed)
    return CollectiveBackend(
        "simulated", alone(), provider.group, lambda world, group: provider, virtual=True
    )


class SimulatedProvider(Provider):
    """Simulates collectives on the first GPUs, or ranks, of a machine.

    Attributes:
        machine, ranks, seed: As in ``connect``.
        colors: Number of the group of each rank; empty for one group. All groups run at once; the first is
            reported.
        first: Position of the GPU or rank of the machine with which they begin.
    """

    name = "simulated"
    can_cancel = True
    operations = tuple(OPERATIONS)

    def __init__(
        self, machine: Machine, ranks: int, seed: int = 0, colors: Sequence[int] = (), first: int = 0
    ) -> None:
        self.machine = machine
        colors = colors or [0] * ranks
        self.group = Group(colors[0], (0,), colors.count(colors[0]))
        #: Number of ranks of the smallest group.
        self.smallest = min(Counter(colors).values())
        ends = members(machine)[first:]
        if len(ends) < ranks:
            raise MachineError(
                f"Invalid number of GPUs: {first + ranks} requested but only {len(members(machine))} were "
                f"found in {machine.name or machine.host}"
            )
        rings = [
            ring([end for end, own in zip(ends, colors, strict=False) if own == color])
            for color in dict.fromkeys(colors)
        ]
        self._ring = rings[0]
        network = Network(faulty(machine, collectives=True))
        demands = [network.demand(transfer, machine.rates) for hops in rings for transfer in hops]
        self._rate = min(fair_shares(demands, network.capacities())[: len(self._ring)])
        self._random, self._seed = random.Random(seed), seed
        self._noise = Noise(machine)
        self._alike: Callable[[float], float] = lambda now: 1.0
        self._clock = 0.0
        self._released = threading.Event()
        self._case: Case | None = None
        self._buffer_bytes = 0
        by_name = {gpu.name: gpu for gpu in machine.gpus}
        gpus = [by_name[end.device] for end in ends[:ranks]]
        self._memory = min(gpu.memory_bytes for gpu in gpus)
        self.devices = tuple(
            RankDevice(gpu.index, gpu.bus_id, gpu.model, color)
            for gpu, color in zip(gpus, colors, strict=True)
        )

    def transport(self) -> str:
        """A text that says that the machine is simulated."""
        return "SIMULATED: no hardware is measured"

    def refuses(self, setting: Setting) -> str | None:
        """Why the operation is not defined for the number of ranks; None if it is."""
        return setting.operation.why_not(self.group.ranks)

    def allocate(self, size: int) -> None:
        """Check that two buffers fit into the memory of every GPU."""
        if 2 * size > self._memory:
            raise OutOfMemory(f"2 buffers of {size} bytes do not fit into {self._memory} bytes")
        self._buffer_bytes = -(-size // _GRANULE) * _GRANULE

    def bind(self, case: Case) -> None:
        self._case = case
        identity = f"{case.setting.operation.name} {case.counts} {case.width}"
        self._alike = self._noise.of(self._seed, identity).alike

    def fill(self, seed: int) -> None:
        """Do nothing: there are no buffers."""

    def once(self) -> None:
        """Simulate the faults of the machine: errors and hangs."""
        for fault in self.machine.faults:
            if not any(str(transfer).startswith(fault.where) for transfer in self._ring):
                continue
            if fault.kind in (FaultKind.ERROR, FaultKind.LOST):
                raise BackendError(f"simulated error in {self._ring[0]}")
            if fault.kind is FaultKind.HANG:
                self._released.wait()
                raise MeasurementTimeout("a simulated hang", 0)
            if fault.kind is FaultKind.STUCK:
                threading.Event().wait()

    def loop(self) -> list[Elapsed]:
        """The times of the model, with the noise of the machine."""
        case = self._case
        assert case is not None
        operation, ranks = case.setting.operation, case.ranks
        passing = operation.moved(case.counts, case.width, ranks) * operation.factor(ranks)
        exact = LAUNCH_S + HOP_S * levels(ranks) + passing / self._rate
        exact *= self._alike(self._clock)
        blocking = case.options.blocking
        exact += WAIT_S * bool(blocking) + BARRIER_S * (blocking == 1)
        iterations = tuple(self._noisy(exact) for _ in range(case.options.iterations))
        mean = math.fsum(iterations) / len(iterations)
        self._clock += math.fsum(iterations)
        cpu = mean if blocking else min(LAUNCH_S, mean)
        return [Elapsed(mean, cpu, iterations if case.options.per_iteration else ())]

    def _noisy(self, seconds: float) -> float:
        return seconds * math.exp(self._random.gauss(0.0, self.machine.noise))

    def wrong(self, seed: int) -> int:
        """The number of transfers with a ``corrupt`` fault."""
        return sum(
            fault.kind is FaultKind.CORRUPT and any(str(t).startswith(fault.where) for t in self._ring)
            for fault in self.machine.faults
        )

    def memory(self) -> dict[str, int]:
        """The memory of the buffers of a GPU; NCCL takes none here."""
        return {"Initialization": 0, "User-Allocated": 2 * self._buffer_bytes, "Collective": 0}

    def cancel(self) -> None:
        self._released.set()


class SimulatedMix(Prepared):
    """A Measurement of one collective and transfers; ``seconds`` in s per copy of each work."""

    def __init__(self, hardware: SimulatedHardware, measurement: Measurement, options: RunOptions) -> None:
        self.hardware = hardware
        self.works = [work for work in measurement.works if isinstance(work, Transfer | Collective)]
        self.noise = hardware.noise.of(options.seed, "; ".join(map(str, self.works)))
        flows = [(i, flow) for i, work in enumerate(self.works)
                 for flow in (ring(work.members) if isinstance(work, Collective) else (work,))]  # fmt: skip
        rates = [math.inf] * len(self.works)
        shares = hardware.shares([flow for _, flow in flows], [hardware.demand(flow) for _, flow in flows])
        for (i, _), share in zip(flows, shares, strict=True):
            rates[i] = min(rates[i], share)
        self.seconds = [_seconds(work, rate) for work, rate in zip(self.works, rates, strict=True)]

    def sample(self, copies: int) -> Sample:
        seconds, amounts = [], []
        for work, exact in zip(self.works, self.seconds, strict=True):
            seconds.append(exact * copies * self.noise.factor(self.hardware.clock))
            amounts.append(float(copies * (work.bytes if isinstance(work, Transfer) else 1)))
        measured = [s for s, work in zip(seconds, self.works, strict=True) if work.role is Role.MEASURED]
        wall = max(measured)
        self.hardware.clock += wall
        return Sample(tuple(seconds), tuple(amounts), wall)


def _seconds(work: Transfer | Collective, rate: float) -> float:
    if isinstance(work, Transfer):
        return LAUNCH_S + work.bytes / rate
    passing = work.counted * OPERATIONS[work.operation].factor(work.ranks)
    return LAUNCH_S + HOP_S * levels(work.ranks) + passing / rate


class SimulatedBackend(Backend):
    """Run Measurements on a machine description.

    Attributes:
        machine: The machine, with the capacities of its links, and its faults.
    """

    name = "simulated"
    sample_seconds = 1e-3
    virtual = True

    def __init__(self, machine: Machine) -> None:
        super().__init__()
        self.machine, self.hardware = machine, SimulatedHardware(machine)
        self._collectives: CollectiveBackend | None = None

    def refuses(self, measurement: Measurement) -> str | None:
        del measurement
        return None

    def prepare(self, measurement: Measurement, options: RunOptions) -> Prepared:
        """Compute the times of a Measurement without noise."""
        self.hardware.released.clear()
        self.hardware.overhead += prepare_seconds(measurement)
        self._allocate(measurement)
        if measurement.collective:
            return self._of_collectives(measurement.collective, options).prepare(measurement, options)
        if measurement.is_mixed:
            return SimulatedMix(self.hardware, measurement, options)
        if isinstance(measurement.works[0], Message | Sharing):
            return SimulatedPair(self.hardware, measurement, options)
        return SimulatedMeasurement(self.hardware, measurement, options)

    def _allocate(self, measurement: Measurement) -> None:
        """Raise an error if the transfers need more memory than a device has, or a ``full`` fault leaves."""
        needed: Counter[str] = Counter()
        for transfer in measurement.transfers:
            sources, destinations = BUFFERS[transfer.operation]
            needed[self.machine.vertex(transfer.source)] += sources * transfer.bytes
            for end in transfer.ends[1:]:
                needed[self.machine.vertex(end)] += destinations * transfer.bytes
        for vertex, size in needed.items():
            free = self.hardware.free_bytes(vertex)
            if size > free:
                requested = f"{format_size(size)} requested, {format_size(free)} is free"
                raise OutOfMemory(f"not enough memory on {vertex}: {requested}")

    def _of_collectives(self, run: Collective, options: RunOptions) -> CollectiveBackend:
        if self._collectives is None:
            self.hardware.overhead += CONNECT_S

            self._collectives = connect(self.machine, run.ranks, options.seed)
        return self._collectives

    def describe(self) -> BackendDetails:
        return self._collectives.describe() if self._collectives else BackendDetails()

    def now(self) -> float:
        return self.hardware.clock + (self._collectives.now() if self._collectives else 0.0)

    def elapsed(self) -> float:
        return self.now() + self.hardware.overhead

    def busy(self) -> dict[str, str]:
        """The devices with a ``busy`` or ``full`` fault: one, or all if the fault names none."""
        using = (FaultKind.BUSY, FaultKind.FULL)
        places = [fault.where for fault in self.machine.faults if fault.kind in using]
        devices = [device.name for device in (*self.machine.attached, *self.machine.numa)]
        return {d: "in use by a simulated load" for d in devices if any(p in ("", d) for p in places)}

    def cancel(self) -> None:
        self.hardware.released.set()
        if self._collectives is not None:
            self._collectives.cancel()

    def close(self) -> None:
        if self._collectives is not None:
            self._collectives.close()
