"""Noise of simulated times, at the levels at which times vary: samples, rounds, runs, and slow changes."""

from __future__ import annotations

import math
import random
from collections import Counter
from functools import cache

from ...faults import FaultKind
from ...topology import Machine

#: Level of a ``noise`` fault -> what it does.
LEVELS = {
    "sample": "between samples",
    "round": "between rounds, with the same value for all samples of one",
    "process": "between runs with different seeds",
    "drift": "slowly",
}
#: Period of slow changes, in s of virtual time.
_PERIOD_S = 30.0


class Noise:
    """The noise of one run.

    Attributes:
        machine: Its ``noise`` is that between samples; faults define the other levels.
    """

    def __init__(self, machine: Machine) -> None:
        self._sigmas = {"sample": machine.noise}
        self._sigmas |= {f.where: f.factor for f in machine.faults if f.kind is FaultKind.NOISE}
        self._rounds: Counter[str] = Counter()
        self._phase = cache(lambda seed: random.Random(f"drift {seed}").random())

    def of(self, seed: int, identity: str) -> PreparedNoise:
        """The noise of a Measurement that is prepared again; every time differs."""
        number = self._rounds[identity]
        self._rounds[identity] += 1
        return PreparedNoise(self._sigmas, seed, identity, number, self._phase(seed))


class PreparedNoise:
    """The noise of one round of a Measurement.

    Attributes:
        random: Random numbers of this round.
    """

    def __init__(self, sigmas: dict[str, float], seed: int, identity: str, number: int, phase: float) -> None:
        self.random = random.Random(f"{seed} {identity} {number}" if number else f"{seed} {identity}")
        self._sample, self._drift = sigmas["sample"], sigmas.get("drift", 0.0)
        self._shift = 0.0
        if of_run := sigmas.get("process", 0.0):
            self._shift += random.Random(f"run {seed} {identity}").gauss(0.0, of_run)
        if of_round := sigmas.get("round", 0.0):
            self._shift += random.Random(f"round {seed} {identity} {number}").gauss(0.0, of_round)
        self._phase = phase

    def factor(self, now: float) -> float:
        """By how much a sample is longer at a time of the virtual clock, in s."""
        alike = self.alike(now)
        return alike * math.exp(self.random.gauss(0.0, self._sample)) if self._sample else alike

    def alike(self, now: float) -> float:
        """By how much all samples are longer at a time of the virtual clock, in s."""
        if not self._drift and not self._shift:
            return 1.0
        angle = 2 * math.pi * (now / _PERIOD_S + self._phase)
        return math.exp(self._shift + math.sqrt(2) * self._drift * math.sin(angle))
