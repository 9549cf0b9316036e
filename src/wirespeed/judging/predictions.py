"""The values that Measurements would have on a changed machine."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from ..data import efficiencies
from ..data.causes import Cause
from ..hardware.cause_effects import Effect
from ..hardware.limits import capped, demands, predicted, ring
from ..hardware.link_graph import Demand, Network, fair_shares
from ..hardware.topology import EngineRate, Machine
from ..measurement import Measurement
from .cells_seen import Routes


@dataclass(frozen=True)
class Hypothesis:
    """A changed machine.

    Attributes:
        machine: The machine as it would behave.
        place: Device or switch of the cause; empty for the whole machine, and without a known cause.
        cause: What would have changed it; None for a slow link or device without a known cause.
        effect: Effect of the cause.
        amount, factor: Amount of the effect, and factor of the speed of its links.
    """

    machine: Machine
    place: str = ""
    cause: Cause | None = None
    effect: Effect | None = None
    amount: float = 0.0
    factor: float = 1.0


def typical_rates(machine: Machine) -> Sequence[EngineRate]:
    """The rates that engines typically reach on a machine."""
    return capped(efficiencies()[-1], efficiencies()[-1], machine)


class Predictions:
    """Values of Measurements on one machine.

    Attributes:
        network: Links of the machine.
        rates: What engines reach.
        routes: Routes of a machine with other speeds of the same links, to which new ones are added; None:
            none yet.
    """

    def __init__(self, network: Network, rates: Sequence[EngineRate], routes: Routes | None = None) -> None:
        self.network, self.rates = network, rates
        self.routes: Routes = {} if routes is None else routes
        self._values: dict[int, list[float | None]] = {}

    def of(self, measurement: Measurement) -> list[float | None]:
        """The value of each Place of a Measurement in B/s; None if unknown.

        The Measurement is recognised by its identity: keep it.
        """
        key = id(measurement)
        if key not in self._values:
            self._values[key] = self._predicted(measurement)
        return self._values[key]

    def route(self, measurement: Measurement) -> list[Demand] | None:
        """What each transfer takes of the links; None if a path is unknown."""
        key, run = id(measurement), measurement.collective
        if key not in self.routes:
            whole = Measurement(ring(run.members), ()) if run else measurement
            self.routes[key] = demands(self.network, whole, self.rates)
        return self.routes[key]

    def _predicted(self, measurement: Measurement) -> list[float | None]:
        needed = self.route(measurement)
        if not needed:  # an unknown path, or members without one
            return [None] * len(measurement.places)
        if measurement.collective:
            rate = min(fair_shares(needed, self.network.capacities()))
            return [rate if math.isfinite(rate) else None] * len(measurement.places)
        return predicted(self.network, measurement, needed)
