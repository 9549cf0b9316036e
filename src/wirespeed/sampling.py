"""When to stop sampling: after fixed counts, or at a target precision."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace

from .errors import UsageError
from .model import Measurement, Reduce, Sample, value_of
from .statistics import half_width, summarise

_MOST_SAMPLES = 400
_MOST_COPIES = 2**16
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


@dataclass(frozen=True)
class Taken:
    """The samples of a Measurement and the copies that each made."""

    samples: tuple[Sample, ...]
    copies: int


def take(
    sample: Callable[[int], Sample],
    measurement: Measurement,
    rule: Rule,
    now: Callable[[], float],
    sample_seconds: float,
    check: Callable[[], None] = lambda: None,
    warm_up: Callable[[], None] | None = None,
) -> Taken:
    """Sample a prepared Measurement until the rule says stop.

    Parameters
    ----------
    sample
        Runs every transfer the given number of times and returns the times.
    now
        The clock of the time budget.
    sample_seconds
        How long a sample must last; the number of copies is chosen so that it does.
    check
        Called after every sample but warm-ups; verifies the data.
    warm_up
        Called before a fixed number of samples; None: one sample of one copy.

    Where samples are of new buffers each is one copy, and nothing is warmed up.
    """
    start = now()
    new, most = measurement.uses_new_buffers, 1 if measurement.happens_once else _MOST_SAMPLES
    if isinstance(rule, Fixed):
        if not new:
            (warm_up or (lambda: sample(1)))()
        copies = 1 if new else rule.copies
        fixed: list[Sample] = []
        for _ in range(1 if measurement.happens_once else rule.samples):
            fixed.append(sample(copies))
            check()
        return Taken(tuple(fixed), copies)
    copies = 1 if new else _copies(sample, sample_seconds)
    samples: list[Sample] = []
    fewest = rule.fewest_samples
    next_look = fewest
    while len(samples) < most:
        samples.append(sample(copies))
        check()
        spent = now() - start
        if spent >= rule.time_budget and (len(samples) >= fewest or spent >= 3 * rule.time_budget):
            break
        if len(samples) >= next_look:
            if _precise(measurement, samples, rule.precision):
                break
            next_look = max(len(samples) + 1, len(samples) * 5 // 4)
    return Taken(tuple(samples), copies)


def _copies(sample: Callable[[int], Sample], sample_seconds: float) -> int:
    """Return how many copies a sample must have to last long enough."""
    warm, copies = sample(1), 1
    while copies < _MOST_COPIES:
        copies = min(_MOST_COPIES, max(copies, round(copies * sample_seconds / max(warm.wall, 1e-9))))
        if warm.wall >= sample_seconds / 2:
            break
        warm = sample(copies)  # what a short sample lasts is mostly the start: measure a longer one
    return copies


def _precise(measurement: Measurement, samples: list[Sample], precision: float) -> bool:
    """Whether every value that the Measurement yields is known well enough."""
    return all(
        half_width(summarise([value_of(place, measurement, s) for s in samples])) <= precision
        for place in measurement.places
        if place.reduce is not Reduce.LATENESS  # as small as noise
    )
