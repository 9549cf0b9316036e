"""Stopping rules: fixed counts, or a target precision within a time budget."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from .errors import UsageError

#: Minimum number of samples for a 95 % confidence interval of the median.
_INTERVAL_SAMPLES = 6
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
    """

    samples: int = 3
    copies: int = 16

    def __post_init__(self) -> None:
        if not (1 <= self.samples <= _MOST_COUNT and 1 <= self.copies <= _MOST_COUNT):
            raise UsageError("samples and copies must be from 1 to 2**40")

    def share(self, measurements: int) -> Fixed:
        """Return the rule for each of several Measurements of a testcase: the same rule."""
        del measurements
        return self


@dataclass(frozen=True)
class Precise:
    """Sample until the median has the required precision or the time budget is spent.

    Parameters
    ----------
    precision : float
        Target for half the 95 % confidence interval of the median, as a fraction of the median.
    time_budget : float
        Maximum time of a Measurement, in s; up to three times as long until there are ``fewest_samples``.
    testcase_budget : float
        Maximum time of a testcase, in s, divided equally among its Measurements.
    fewest_samples : int
        Minimum number of samples. With fewer than six, the interval is the range of the samples, and its
        confidence is below 95 %.
    """

    precision: float = 0.005
    time_budget: float = 5.0
    testcase_budget: float = math.inf
    fewest_samples: int = _INTERVAL_SAMPLES

    def __post_init__(self) -> None:
        if not 0 < self.precision < 1:
            raise UsageError("precision must be more than 0 % and less than 100 %")
        if not self.time_budget > 0:
            raise UsageError("the time budget must be more than 0 s")
        if not self.testcase_budget > 0:
            raise UsageError("the time budget of a testcase must be more than 0 s")
        if self.fewest_samples < _SCATTER_SAMPLES:
            raise UsageError(f"the fewest samples must be {_SCATTER_SAMPLES} or more")

    def share(self, measurements: int) -> Precise:
        """Return the rule for each of several Measurements of a testcase."""
        return replace(self, time_budget=min(self.time_budget, self.testcase_budget / max(1, measurements)))


Rule = Fixed | Precise
