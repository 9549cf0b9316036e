"""Collectives on a described machine, in virtual time. The time is alpha + S factor / B (R. W. Hockney,
*Parallel Computing* 20 (1994) 389): B is the fair share of the slowest hop when all ranks send to the next
one, with the efficiency of kernels over that link and, next to transfers, with what they leave; alpha is the
time of a launch plus a latency for each of the log2(n) levels of a tree. No algorithm is modelled; this
suffices for the form of the output. Waits and barriers on the host take a constant time.
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
from ...hardware.limits import ring
from ...hardware.link_graph import Network, fair_shares
from ...hardware.topology import Machine
from ...testcases.collectives import members
from ...units import MIB
from ...worlds.launchers import alone
from ..collective_backend import CollectiveBackend
from ..provider import Case, Elapsed, Group, Provider, RankDevice
from .faults import Noise, faulty

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
        drawn = (self._random.gauss(0.0, self.machine.noise) for _ in range(case.options.iterations))
        iterations = tuple(exact * math.exp(noise) for noise in drawn)
        mean = math.fsum(iterations) / len(iterations)
        self._clock += math.fsum(iterations)
        cpu = mean if blocking else min(LAUNCH_S, mean)
        return [Elapsed(mean, cpu, iterations if case.options.per_iteration else ())]

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
