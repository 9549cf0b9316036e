"""Messages and shared buffers between two ranks of a described machine, in virtual time. A message takes
alpha + bytes / B (R. W. Hockney, *Parallel Computing* 20 (1994) 389), where alpha is half the round-trip
latency of the path plus the cost of the engine, and B the rate of the slowest link of the path. A phase of
sharing takes a constant time; allocating and freeing also take a time per byte. All constants are
assumptions.
"""

from __future__ import annotations

import math

from ...errors import MachineError
from ...measurement import Sample
from ...model import (
    ALLOCATE,
    CLOSE,
    EXPORT,
    FIRST_COPY,
    FREE,
    NEXT_COPIES,
    OPEN,
    BufferAge,
    Engine,
    Memory,
    Message,
    MessagePattern,
    Sharing,
)
from .prepared import SimulatedMeasurement

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
