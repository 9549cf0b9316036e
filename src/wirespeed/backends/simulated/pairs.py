"""Messages and shared buffers between two ranks of a described machine, in virtual time.

A message takes alpha + bytes / B (R. W. Hockney, *Parallel Computing* 20 (1994) 389): alpha is half of the
latency of the way and what an engine costs, B what the slowest link of the way carries. Phases of sharing
take a constant, those that grow with the buffer a time for its bytes besides. All constants are assumed.
"""

from __future__ import annotations

import math

from ...errors import MachineError
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
    Sample,
    Sharing,
)
from .backend import SimulatedMeasurement

#: Latency, there and back, and rate where a machine describes no way between two ranks: 400 Gb/s.
_FAR_LATENCY, _FAR_RATE = 4e-6, 50e9
#: Part of its line rate that a way carries.
_EFFICIENCY = 0.8
#: What an engine costs for a message, and for each one more of a window, in s.
_COSTS = {Engine.MPI: (0.5e-6, 0.2e-6), Engine.NCCL: (6e-6, 0.8e-6)}
#: What the first message of new buffers takes longer, the very first of its size, and every one, in s.
_AGES = {BufferAge.REUSED: 0.0, BufferAge.FIRST: 300e-6, BufferAge.FRESH: 20e-6}
#: Constants of the phases, in s, and the rate at which a buffer is allocated and freed.
_PHASES = {ALLOCATE: 100e-6, EXPORT: 20e-6, OPEN: 500e-6, CLOSE: 150e-6, FREE: 100e-6}
_ALLOCATED_RATE = 1e12
_FIRST_COPY = 30e-6


class SimulatedPair(SimulatedMeasurement):
    """Messages or shared buffers whose undisturbed times are known."""

    def _flow(self) -> tuple[list[float], list[float]]:
        """Return the seconds of one copy: of each message or phase."""
        found: list[float] = []
        for work in self.measurement.works:
            if isinstance(work, Message):
                found += self._message(work)
            elif isinstance(work, Sharing):
                found += self._sharing(work)
        return found, []

    def _way(self, source: Memory, destination: Memory) -> tuple[float, float]:
        """Return half of the latency between two memories, and the rate of the way."""
        network, vertex = self.backend.network, self.backend.machine.vertex
        try:
            way = [network.links[i] for i in network.route(vertex(source), vertex(destination))]
        except MachineError:
            return _FAR_LATENCY / 2, _FAR_RATE * _EFFICIENCY
        rate = min((link.capacity for link in way if link.capacity), default=_FAR_RATE)
        return sum(link.latency or 0.0 for link in way) / 2, rate * _EFFICIENCY

    def _message(self, work: Message) -> list[float]:
        latency, rate = self._way(work.source, work.destination)
        cost, next_one = _COSTS[work.engine]
        one = cost + latency + work.bytes / rate
        if work.pattern is MessagePattern.ROUND_TRIP:
            return [2 * (one + _AGES[work.age])]
        if work.pattern is MessagePattern.EACH:
            return [one + (_AGES[work.age] if i == 0 else 0.0) for i in range(work.count)]
        return [one + latency + (work.count - 1) * max(next_one, work.bytes / rate)]

    def _sharing(self, work: Sharing) -> list[float]:
        latency, rate = self._way(work.memory, work.user)
        cost = _COSTS[work.sent][0] if work.sent else 0.0
        copy = cost + latency + work.copied / rate
        size = (work.bytes + work.over) / _ALLOCATED_RATE
        seconds = {
            **_PHASES, ALLOCATE: _PHASES[ALLOCATE] + size, FREE: _PHASES[FREE] + size,
            FIRST_COPY: copy + _FIRST_COPY, NEXT_COPIES: copy,
        }  # fmt: skip
        return [seconds[phase] for phase in work.phases]

    def sample(self, copies: int) -> Sample:
        """Return times with noise; virtual time passes."""
        self._fail()
        sigma = self.backend.machine.noise
        seconds = tuple(
            one * copies * (math.exp(self.random.gauss(0.0, sigma)) if sigma else 1.0) for one in self.seconds
        )
        work = self.measurement.works[0]
        amount = copies
        if isinstance(work, Message) and work.is_window:
            amount *= work.count * work.bytes
        wall = sum(seconds)
        self.backend.clock += wall
        return Sample(seconds, (float(amount),) * len(seconds), wall)
