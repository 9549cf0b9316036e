"""The links and the virtual time of a simulated machine: concurrent transfers get max-min fair shares, which
are recomputed when one ends.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

from ...errors import BackendError, WrongWord, WrongWords
from ...hardware.devices import DeviceRecord, Fault, FaultKind, NumaNode
from ...hardware.link_graph import Demand, MachineVertices, Network, fair_shares
from ...hardware.topology import Machine
from ...measurement import Measurement
from ...model import Engine, MemoryKind, Transfer
from ..test_data import STEP, WORD_MASK
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
            f.factor for f in self.machine.faults if f.kind is FaultKind.SLOW and is_between(f, transfer)
        )
        pace = math.prod(slowed, start=transfer.pace)
        if pace < 1:
            alone = fair_shares([demand], self.capacities)[0]
            return replace(demand, cap=pace * alone)
        return demand

    def load_latency(self, transfer: Transfer, others: list[tuple[Transfer, float]]) -> float:
        """The time of one dependent load while other transfers run at their rates, in s."""
        far = self.network.latency(transfer)
        memory = self.network.memories.get(self.machine.vertex(transfer.source), -1)  # no link has this index
        used = math.fsum(
            self.network.demand(other, self.machine.rates).weights.get(memory, 0.0) * rate
            for other, rate in others
            if not other.operation.is_latency
        )
        busy = min(used / self.capacities.get(memory, math.inf), 0.95)
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


def is_between(fault: Fault, transfer: Transfer) -> bool:
    """Whether a fault of pairs is one of a transfer, which is then between two GPUs."""
    ends = transfer.source, transfer.destination
    is_peer = ends[0].device != ends[1].device and all(end.kind is MemoryKind.DEVICE for end in ends)
    return is_peer and fault.concerns(ends[0].device, ends[1].device)


def zeroed(index: int, keys: tuple[int, int, int]) -> WrongWords:
    """What is found if a copy leaves zeros in place of one word of a pattern with these keys."""
    expected = keys[0] + index * STEP & WORD_MASK
    word = WrongWord(index, expected, 0, expected, keys[2])
    return WrongWords((word,), expected, expected, source_wrong=0, unwritten=0, copied=0)
