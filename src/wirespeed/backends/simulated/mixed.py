"""A collective next to transfers on a described machine: the hops of its ring share links with the transfers.

The collective is modelled as in ``simulated_collectives``: every rank sends to the next one.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Self

from ...limits import ring
from ...model import Collective, Measurement, Role, Sample, Transfer
from ...options import RunOptions
from ...testcases.collective_ops import OPERATIONS
from .simulated_collectives import HOP_S, LAUNCH_S, LEVELS

if TYPE_CHECKING:
    from .backend import SimulatedBackend


class SimulatedMix:
    """A Measurement of one collective and transfers; ``seconds`` in s per copy of each work."""

    def __init__(self, backend: SimulatedBackend, measurement: Measurement, options: RunOptions) -> None:
        self.backend = backend
        self.works = [work for work in measurement.works if isinstance(work, Transfer | Collective)]
        self.noise = backend.noise.of(options.seed, "; ".join(map(str, self.works)))
        flows = [(i, flow) for i, work in enumerate(self.works)
                 for flow in (ring(work.members) if isinstance(work, Collective) else (work,))]  # fmt: skip
        rates = [math.inf] * len(self.works)
        shares = backend.shares([flow for _, flow in flows], [backend.demand(flow) for _, flow in flows])
        for (i, _), share in zip(flows, shares, strict=True):
            rates[i] = min(rates[i], share)
        self.seconds = [_seconds(work, rate) for work, rate in zip(self.works, rates, strict=True)]

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        return None

    def sample(self, copies: int) -> Sample:
        """Return times with noise, and advance the virtual clock."""
        seconds, amounts = [], []
        for work, exact in zip(self.works, self.seconds, strict=True):
            seconds.append(exact * copies * self.noise.factor(self.backend.clock))
            amounts.append(float(copies * (work.bytes if isinstance(work, Transfer) else 1)))
        measured = [s for s, work in zip(seconds, self.works, strict=True) if work.role is Role.MEASURED]
        wall = max(measured)
        self.backend.clock += wall
        return Sample(tuple(seconds), tuple(amounts), wall)

    def verify(self) -> None:
        """Do nothing: there are no buffers."""


def _seconds(work: Transfer | Collective, rate: float) -> float:
    if isinstance(work, Transfer):
        return LAUNCH_S + work.bytes / rate
    passing = work.counted * OPERATIONS[work.operation].factor(work.ranks)
    return LAUNCH_S + HOP_S * LEVELS[work.operation](work.ranks) + passing / rate
