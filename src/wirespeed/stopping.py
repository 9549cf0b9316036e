"""Stopping rules: fixed counts, or a target precision within a time budget; both in one or more rounds."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from .errors import UsageError

#: Minimum number of samples for a 95 % confidence interval of the median of the samples of one round.
_INTERVAL_SAMPLES = 6
#: Minimum number of rounds for an interval of the value.
FEWEST_ROUNDS = 3
#: Number of rounds from which the variation between rounds is estimated: enough to leave out one that is far
#: off on each side.
ROUNDS = 7
#: Maximum number of rounds.
MAX_ROUNDS = 1_000_000
#: Minimum number of samples that show scatter.
_SCATTER_SAMPLES = 3

#: Maximum number of samples and of copies: the bytes of all copies of a buffer still have a number.
_MOST_COUNT = 2**40


@dataclass(frozen=True)
class Fixed:
    """A fixed number of samples and copies, after a warm-up of one copy.

    Parameters
    ----------
    samples : int
        Number of samples.
    copies : int
        Number of copies per sample.
    rounds : int
        Number of rounds, one testcase after the other; 0: until interrupted.
    """

    samples: int = 3
    copies: int = 16
    rounds: int = 1

    def __post_init__(self) -> None:
        if not (1 <= self.samples <= _MOST_COUNT and 1 <= self.copies <= _MOST_COUNT):
            raise UsageError("samples and copies must be from 1 to 2**40")
        if self.rounds < 0:
            raise UsageError("the number of rounds must be 0 (until interrupted) or more")

    def share(self, measurements: int) -> Fixed:
        """Return the rule for each of several Measurements of a testcase: the same rule."""
        del measurements
        return self


@dataclass(frozen=True)
class Precise:
    """Measure in rounds until a value has the required precision or the time budget is spent.

    Parameters
    ----------
    precision : float
        Target for half the 95 % confidence interval of the value, as a fraction of the value. In a run of one
        or two rounds, which have no such interval: of the median of the samples of a round.
    time_budget : float
        Maximum time of a Measurement, in s, with the rounds after the first ``rounds``; up to three times as
        long until each round has ``fewest_samples``.
    testcase_budget : float
        Maximum time of a testcase, in s, divided equally among its Measurements.
    fewest_samples : int
        Minimum number of samples of a run of one or two rounds. Of three or more, each has three or more.
    rounds : int
        Minimum number of rounds. More follow only if there are three or more.
    """

    precision: float = 0.005
    time_budget: float = 5.0
    testcase_budget: float = math.inf
    fewest_samples: int = _INTERVAL_SAMPLES
    rounds: int = ROUNDS

    def __post_init__(self) -> None:
        if not 0 < self.precision < 1:
            raise UsageError("precision must be more than 0 % and less than 100 %")
        if not self.time_budget > 0:
            raise UsageError("the time budget must be more than 0 s")
        if not self.testcase_budget > 0:
            raise UsageError("the time budget of a testcase must be more than 0 s")
        if self.fewest_samples < _SCATTER_SAMPLES:
            raise UsageError(f"the fewest samples must be {_SCATTER_SAMPLES} or more")
        if not 1 <= self.rounds <= MAX_ROUNDS:
            raise UsageError(f"the number of rounds must be from 1 to {MAX_ROUNDS}")

    def share(self, measurements: int) -> Precise:
        """Return the rule for each of several Measurements of a testcase."""
        return replace(self, time_budget=min(self.time_budget, self.testcase_budget / max(1, measurements)))

    @property
    def round_samples(self) -> int:
        """Minimum number of samples of a round."""
        return self.fewest_samples if self.rounds < FEWEST_ROUNDS else _SCATTER_SAMPLES

    @property
    def round_budget(self) -> float:
        """Maximum time of sampling in one of the first rounds, in s.

        Half of the time is for preparing these rounds and for those that follow from them.
        """
        return self.time_budget if self.rounds == 1 else self.time_budget / (2 * self.rounds)


Rule = Fixed | Precise
