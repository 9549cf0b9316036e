"""A collective next to transfers on a described machine: the hops of its ring share links with the transfers.

The collective is modelled as in ``simulated_collectives``: every rank sends to the next one.
"""

from __future__ import annotations

import math

from ...collectives.operations import OPERATIONS
from ...limits import ring
from ...measurement import Measurement, Sample
from ...model import Collective, Role, Transfer
from ...options import RunOptions
from ..base import Prepared
from .hardware import SimulatedHardware
from .simulated_collectives import HOP_S, LAUNCH_S, levels


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
