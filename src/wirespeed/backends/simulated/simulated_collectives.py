"""Collectives on a described machine: the time is a latency and what passes the links at their rate.

t = alpha + S factor / B. B is the fair share of the slowest hop when all ranks send to the next one
at once, with the efficiency of kernels over that link; alpha is a launch and a latency for each of
the log2(n) levels of a tree. This is the model of R. W. Hockney (*Parallel Computing* 20 (1994) 389),
no model of an algorithm: what it is good for is the form of the output.
"""

from __future__ import annotations

import math
import random
import threading
from collections.abc import Callable

from ...errors import BackendError, MachineError, MeasurementTimeout, OutOfMemory
from ...limits import Network, fair_shares, ring
from ...testcases.collective_ops import Setting
from ...testcases.collectives import members
from ...topology import FaultKind, Machine
from ...worlds.launchers import alone
from ..collective_backend import CollectiveBackend
from ..provider import Case, Elapsed, Group, RankDevice
from .faults import faulty

_LAUNCH = 6e-6
_HOP = 1.5e-6


def _tree(ranks: int) -> int:
    return math.ceil(math.log2(ranks)) if ranks > 1 else 0


#: Operation -> how many latencies of a hop follow each other, from the number of ranks.
LEVELS: dict[str, Callable[[int], int]] = {
    "all_reduce": _tree,
    "all_gather": _tree,
    "reduce_scatter": _tree,
    "alltoall": _tree,
    "alltoallv": _tree,
    "broadcast": _tree,
    "reduce": _tree,
    "gather": _tree,
    "scatter": _tree,
    "sendrecv": _tree,
    "hypercube": _tree,
}


def connect(machine: Machine, ranks: int, seed: int = 0) -> CollectiveBackend:
    """Return what runs collectives on the first GPUs, or ranks, of a described machine.

    Raises
    ------
    MachineError
        If it has fewer, or nothing joins them.
    """
    provider = SimulatedProvider(machine, ranks, seed)
    return CollectiveBackend(
        "simulated", alone(), provider.group, lambda world, group: provider, virtual=True
    )


class SimulatedProvider:
    """Runs collectives on the first GPUs of a described machine, in virtual time."""

    name = "simulated"
    can_cancel = True
    operations = LEVELS.keys()

    def __init__(self, machine: Machine, ranks: int, seed: int = 0) -> None:
        self.machine = machine
        self.group = Group(0, (0,), ranks)
        ends = members(machine)
        if len(ends) < ranks:
            raise MachineError(
                f"{ranks} ranks need {ranks} GPUs; {machine.name or machine.host} has {len(ends)}"
            )
        self._ring = ring(ends[:ranks])
        network = Network(faulty(machine))
        demands = [network.demand(transfer, machine.rates) for transfer in self._ring]
        self._rate = min(fair_shares(demands, network.capacities()))
        self._random = random.Random(seed)
        self._released = threading.Event()
        self._case: Case | None = None
        by_name = {gpu.name: gpu for gpu in machine.gpus}
        gpus = [by_name[transfer.source.device] for transfer in self._ring]
        self._memory = min(gpu.memory_bytes for gpu in gpus)
        self.devices = tuple(RankDevice(gpu.index, gpu.bus_id, gpu.model) for gpu in gpus)

    def libraries(self) -> dict[str, str]:
        """It measures with nothing."""
        return {}

    def transport(self) -> str:
        """What stands in for one."""
        return "SIMULATED: no hardware is measured"

    def refuses(self, setting: Setting) -> str | None:
        """All that NCCL has."""
        return setting.operation.why_not(self.group.ranks)

    def exceeds(self, case: Case) -> str:
        """No size is too large to be counted."""
        del case
        return ""

    def allocate(self, size: int) -> None:
        """Two buffers must fit into every GPU."""
        if 2 * size > self._memory:
            raise OutOfMemory(f"2 buffers of {size} bytes do not fit into {self._memory} bytes")

    def register(self) -> None:
        """Nothing is there to be registered."""

    def bind(self, case: Case) -> None:
        """Remember it."""
        self._case = case

    def fill(self, seed: int) -> None:
        """There is no data."""

    def once(self) -> None:
        """Fail where that was asked for."""
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

    def align(self) -> None:
        """There is one process."""

    def loop(self) -> list[Elapsed]:
        """Return the times of the model, with the machine's noise."""
        case = self._case
        assert case is not None
        operation, ranks = case.setting.operation, case.ranks
        passing = operation.moved(case.counts, case.width, ranks) * operation.factor(ranks)
        exact = _LAUNCH + _HOP * LEVELS[operation.name](ranks) + passing / self._rate
        iterations = tuple(self._noisy(exact) for _ in range(case.timing.iterations))
        mean = sum(iterations) / len(iterations)
        return [Elapsed(mean, min(_LAUNCH, mean), iterations if case.timing.per_iteration else ())]

    def _noisy(self, seconds: float) -> float:
        return seconds * math.exp(self._random.gauss(0.0, self.machine.noise))

    def wrong(self, seed: int) -> int:
        """Find wrong data where it was asked for."""
        return sum(
            fault.kind is FaultKind.CORRUPT and any(str(t).startswith(fault.where) for t in self._ring)
            for fault in self.machine.faults
        )

    def memory(self) -> dict[str, int]:
        """Nothing is allocated."""
        return {}

    def cancel(self) -> None:
        """End a simulated hang."""
        self._released.set()

    def close(self) -> None:
        """Nothing is held."""
