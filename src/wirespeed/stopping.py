"""Stopping rules: fixed counts, or a target precision within a time budget."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from .errors import UsageError

_FEWEST_SAMPLES = 6  # what a 95 % interval of the median needs
#: The fewest samples that show a scatter at all.
_LEAST_SAMPLES = 3


@dataclass(frozen=True)
class Fixed:
    """A fixed number of samples and copies, after a warm-up of one copy: the compatible modes."""

    samples: int = 3
    copies: int = 16

    def __post_init__(self) -> None:
        if self.samples < 1 or self.copies < 1:
            raise UsageError("samples and copies must be 1 or more")

    def share(self, measurements: int) -> Fixed:
        """Return the rule for each of several Measurements of a testcase: the same."""
        del measurements
        return self


@dataclass(frozen=True)
class Precise:
    """Until the interval of the median is within ``precision`` of it, or ``time_budget`` is spent.

    Parameters
    ----------
    precision
        Half of the 95 % confidence interval of the median over the median.
    time_budget
        Maximum seconds for one Measurement; up to three times that if ``fewest_samples`` take as long.
    testcase_budget
        Maximum seconds for all Measurements of a testcase, which share them equally.
    fewest_samples
        Samples that are always taken. The interval of the median has its 95 % confidence from six on;
        with fewer it is that of the extremes, which suffices where samples hardly differ.
    """

    precision: float = 0.005
    time_budget: float = 5.0
    testcase_budget: float = math.inf
    fewest_samples: int = _FEWEST_SAMPLES

    def __post_init__(self) -> None:
        if not 0 < self.precision < 1:
            raise UsageError("precision must be more than 0 % and less than 100 %")
        if not self.time_budget > 0:
            raise UsageError("the time budget must be more than 0 s")
        if not self.testcase_budget > 0:
            raise UsageError("the time budget of a testcase must be more than 0 s")
        if self.fewest_samples < _LEAST_SAMPLES:
            raise UsageError(f"the fewest samples must be {_LEAST_SAMPLES} or more")

    def share(self, measurements: int) -> Precise:
        """Return the rule for each of several Measurements of a testcase."""
        return replace(self, time_budget=min(self.time_budget, self.testcase_budget / max(1, measurements)))


Rule = Fixed | Precise
