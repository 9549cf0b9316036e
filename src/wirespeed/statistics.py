"""From samples to statistics, and when sampling stops: fixed counts, or a target precision within a time
budget. Both rules measure in one or more rounds.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from statistics import NormalDist, stdev
from typing import ClassVar, Self, TypeVar

from .errors import UsageError
from .tables import LARGEST, Statistics

K = TypeVar("K")
V = TypeVar("V")

#: Maximum number of samples of a Measurement in a round, unless it is fixed.
MAX_SAMPLES = 400

#: Minimum number of samples for a 95% confidence interval of the median of the samples of one round.
_INTERVAL_SAMPLES = 6
#: Minimum number of rounds for an interval of the value.
FEWEST_ROUNDS = 3
#: Number of rounds from which the variation between rounds is estimated: enough to leave out one that is far
#: off on each side.
ROUNDS = 7
#: Maximum number of rounds.
MAX_ROUNDS = 1_000_000
#: Minimum number of samples that show scatter.
SCATTER_SAMPLES = 3
#: Number of runs that determine the number of copies of a sample.
_TRIALS = 2

#: Largest difference of equal times, in s.
_ROUNDED_S = 1e-9
#: Smallest factor by which time budgets shrink: a budget is more than 0 s.
_LEAST_FACTOR = 1e-3
#: Maximum number of samples and of copies: the bytes of all copies of a buffer still have a number.
_MOST_COUNT = 2**40


class Rule:
    """When sampling stops: what the driver asks. The methods here are those of a rule without a time budget.

    Attributes:
        rounds: Number of rounds, or their minimum; 0: until interrupted.
        copies: Number of copies per sample; None: enough for the clock of the backend.
        interleaved: Whether the rounds of all testcases are interleaved, in random order.
        time_budget: Maximum time of a Measurement whose values scatter, in s; 0 if scatter does not matter.
    """

    rounds: int
    copies: int | None
    interleaved: ClassVar[bool]
    time_budget: float = 0.0

    @property
    def round_budget(self) -> float:
        """Maximum time of sampling in one of the first rounds, in s; 0 if scatter does not matter."""
        return 0.0

    def share(self, measurements: int) -> Self:
        """The rule for each of several Measurements of a testcase."""
        return self

    def shrunk(self, factor: float) -> Self:
        """The rule with smaller time budgets; a factor above 1 changes nothing."""
        return self

    def done(
        self, samples: int, seconds: float, precise: Callable[[float], bool], wanted: int | None = None
    ) -> bool:
        """Whether sampling a Measurement in one round is over.

        Args:
            samples: Number of samples so far.
            seconds: Time of this round so far, in s.
            precise: Returns whether the medians of the samples have a precision, given as a fraction.
            wanted: Number of samples to take within the time budget; None: until their median is precise.
        """
        raise NotImplementedError

    def another(
        self, done: int, seconds: float, planned: Callable[[float, float], int], *, once: bool
    ) -> bool:
        """Whether another round of a Measurement follows.

        Args:
            done: Number of rounds so far.
            seconds: Time of these rounds, in s.
            planned: Returns the number of rounds that the first ones demand, for a precision and a time
                budget in s.
            once: Whether what is measured happens only once.
        """
        raise NotImplementedError

    def least_seconds(self, copy_s: float, sample_s: float, verify_s: float) -> float:
        """The time of the fewest samples of a round, in s.

        Args:
            copy_s, verify_s: Time of one copy, and of the verification of a sample, in s.
            sample_s: Minimum duration of a sample for the clock of the backend, in s.
        """
        raise NotImplementedError


@dataclass(frozen=True)
class Fixed(Rule):
    """A fixed number of samples and copies, after a warm-up of one copy.

    Attributes:
        samples: Number of samples.
        copies: Number of copies per sample.
        rounds: Number of rounds, one testcase after the other; 0: until interrupted.
    """

    interleaved = False  #: as in the tools whose command lines have these counts

    samples: int = 3
    copies: int = 16
    rounds: int = 1

    def __post_init__(self) -> None:
        if not (1 <= self.samples <= _MOST_COUNT and 1 <= self.copies <= _MOST_COUNT):
            raise UsageError("samples and copies must be from 1 to 2**40")
        if self.rounds < 0:
            raise UsageError("the number of rounds must be 0 (until interrupted) or more")

    def done(
        self, samples: int, seconds: float, precise: Callable[[float], bool], wanted: int | None = None
    ) -> bool:
        return samples >= self.samples

    def another(
        self, done: int, seconds: float, planned: Callable[[float, float], int], *, once: bool
    ) -> bool:
        return self.rounds == 0 or done < self.rounds

    def least_seconds(self, copy_s: float, sample_s: float, verify_s: float) -> float:
        """The time of the warm-up and all samples, in s."""
        return copy_s + self.samples * (copy_s * self.copies + verify_s)


@dataclass(frozen=True)
class Precise(Rule):
    """Measure in rounds until a value has the required precision or the time budget is spent.

    Attributes:
        precision: Target for half the 95% confidence interval of the value, as a fraction of the value. In a
            run of one or two rounds, which have no such interval: of the median of the samples of a round.
        time_budget: Maximum time of a Measurement, in s, with the rounds after the first ``rounds``; up to
            three times as long until each round has ``fewest_samples``.
        testcase_budget: Maximum time of a testcase, in s, divided equally among its Measurements.
        fewest_samples: Minimum number of samples of a run of one or two rounds. Of three or more, each has
            three or more.
        rounds: Minimum number of rounds. More follow only if there are three or more.
    """

    copies = None
    interleaved = True

    precision: float = 0.005
    time_budget: float = 5.0
    testcase_budget: float = math.inf
    fewest_samples: int = _INTERVAL_SAMPLES
    rounds: int = ROUNDS

    def __post_init__(self) -> None:
        if not 0 < self.precision < 1:
            raise UsageError("precision must be more than 0% and less than 100%")
        if not self.time_budget > 0:
            raise UsageError("the time budget must be more than 0 s")
        if not self.testcase_budget > 0:
            raise UsageError("the time budget of a testcase must be more than 0 s")
        if self.fewest_samples < SCATTER_SAMPLES:
            raise UsageError(f"the fewest samples must be {SCATTER_SAMPLES} or more")
        if not 1 <= self.rounds <= MAX_ROUNDS:
            raise UsageError(f"the number of rounds must be from 1 to {MAX_ROUNDS}, not {self.rounds}")

    def share(self, measurements: int) -> Precise:
        """The rule for each of several Measurements of a testcase: each has its part of the budget."""
        return replace(self, time_budget=min(self.time_budget, self.testcase_budget / max(1, measurements)))

    def shrunk(self, factor: float) -> Precise:
        """The rule with smaller time budgets; a factor above 1 changes nothing."""
        factor = min(1.0, max(factor, _LEAST_FACTOR))
        budgets = self.time_budget * factor, self.testcase_budget * factor
        return replace(self, time_budget=budgets[0], testcase_budget=budgets[1])

    def done(
        self, samples: int, seconds: float, precise: Callable[[float], bool], wanted: int | None = None
    ) -> bool:
        """Whether the samples are precise, or as many as wanted, or the budget is spent."""
        fewest, budget = self.round_samples, self.round_budget
        if samples >= MAX_SAMPLES or (seconds >= budget and (samples >= fewest or seconds >= 3 * budget)):
            return True
        if wanted is not None:
            return samples >= wanted
        return samples in _looks(fewest) and precise(self.precision)

    def another(
        self, done: int, seconds: float, planned: Callable[[float, float], int], *, once: bool
    ) -> bool:
        """Whether the interval may still be too wide, and there is time."""
        if once:
            return done < 1
        if done < self.rounds:  # fewer if they are long, but enough for an interval
            return seconds < self.time_budget * (1 if done >= FEWEST_ROUNDS else 3)
        return done >= FEWEST_ROUNDS and done < planned(self.precision, self.time_budget)

    def least_seconds(self, copy_s: float, sample_s: float, verify_s: float) -> float:
        """The time to find the number of copies, and of the fewest samples of a round, in s."""
        sample = max(copy_s, sample_s)
        return _TRIALS * sample + self.round_samples * (sample + verify_s)

    @property
    def round_samples(self) -> int:
        """Minimum number of samples of a round."""
        return self.fewest_samples if self.rounds < FEWEST_ROUNDS else SCATTER_SAMPLES

    @property
    def round_budget(self) -> float:
        """Maximum time of sampling in one of the first rounds, in s.

        Half of the time is for preparing these rounds and for those that follow from them.
        """
        return self.time_budget if self.rounds == 1 else self.time_budget / (2 * self.rounds)


@lru_cache
def _looks(fewest: int) -> frozenset[int]:
    """The numbers of samples at which their precision is computed: more rarely the more there are."""
    looks = [fewest]
    while looks[-1] < MAX_SAMPLES:
        looks.append(max(looks[-1] + 1, looks[-1] * 5 // 4))
    return frozenset(looks)


#: Confidence of intervals.
CONFIDENCE = 0.95
#: Standard deviation of a run in addition to what its rounds show, over that between its rounds: clocks,
#: other tenants and the history of a process vary more slowly than rounds. Measured (`docs/results`).
RUN_SHARE = 0.5
#: Number of rounds from which their standard deviation is Winsorised.
WINSORISED = 7
#: Half of the interval over the spread of 3, 4, ... rounds, from 1,500,000 simulated runs each
#: (``tests/unit/test_statistics.py`` simulates some again).
_QUANTILES = (3.35, 2.28, 1.94, 1.71, 2.63, 2.21, 1.99, 1.81, 1.72, 1.62, 1.56, 1.50, 1.46, 1.42)
#: For more rounds: the quantile of the normal distribution, and how far 3.6 / n is above it.
NORMAL, _EXCESS = 1.96, 3.6


def summarise(samples: Sequence[float]) -> Statistics:
    """The statistics of one or more samples.

    Raises:
        ValueError: If there is no sample.
    """
    if not samples:
        raise ValueError("no samples to summarise")
    ordered = sorted(samples)
    n = len(ordered)
    mean = math.fsum(ordered) / n
    mean = min(max(mean, ordered[0]), ordered[-1])  # rounding must not move it out of the range
    spread = math.sqrt(math.fsum((sample - mean) ** 2 for sample in ordered) / (n - 1)) if n > 1 else 0.0
    return Statistics(
        n=n,
        median=median(ordered),
        mean=mean,
        min=ordered[0],
        max=ordered[-1],
        cv=spread / abs(mean) if mean else 0.0,
    )


def grouped(pairs: Iterable[tuple[K, V]]) -> dict[K, list[V]]:
    """The values of each key, in the order in which they come."""
    groups: dict[K, list[V]] = {}
    for key, value in pairs:
        groups.setdefault(key, []).append(value)
    return groups


def median(ordered: Sequence[float]) -> float:
    """The median of sorted samples."""
    middle = len(ordered) // 2
    if len(ordered) % 2:
        return ordered[middle]
    low, high = ordered[middle - 1], ordered[middle]
    return low + (high - low) / 2


#: Standard deviation over median absolute deviation of a normal distribution.
DEVIATION_OF_MAD = 1.4826


def centre(values: Iterable[float]) -> tuple[float, float]:
    """The median, and the standard deviation estimated by the median absolute deviation."""
    ordered = sorted(values)
    middle = median(ordered)
    return middle, DEVIATION_OF_MAD * median(sorted(abs(value - middle) for value in ordered))


def of_slowest(times: Sequence[float], by_process: Sequence[Sequence[float]]) -> bool:
    """Whether each time of all processes together, in s, is that of the slowest process, up to rounding."""
    slowest = map(max, zip(*by_process, strict=False))
    same_length = all(len(own) == len(times) for own in by_process)
    return same_length and all(abs(a - b) < _ROUNDED_S for a, b in zip(times, slowest, strict=False))


def nearest_rank(ordered: Sequence[float], fraction: float) -> float:
    """The smallest of sorted samples that a fraction of them do not exceed: a sample, not interpolated."""
    return ordered[max(0, math.ceil(fraction * len(ordered)) - 1)]


@lru_cache(maxsize=4096)
def interval_rank(n: int) -> int:
    """Which order statistics bound the median of n samples.

    The interval from the k-th smallest to the k-th largest sample (k from 0) contains the median of any
    distribution with probability 1 - 2 P(X <= k), X binomial with n trials of one half (H. A. David, *Order
    Statistics*, section 7.1). Returns the largest k that reaches ``CONFIDENCE``; 0 (the range) if none does.
    """
    if n >= 1000:  # 0.5**n would underflow; the normal approximation is accurate for such n
        deviate = NormalDist().inv_cdf((1 + CONFIDENCE) / 2)
        return math.floor((n - 1 - deviate * math.sqrt(n)) / 2)
    rank, tail, term = 0, 0.0, 0.5**n
    for k in range(n // 2):
        tail += term
        if 1 - 2 * tail < CONFIDENCE:
            break
        rank = k
        term *= (n - k) / (k + 1)
    return rank


def interval(rounds: Sequence[float], unseen: float = 0.0) -> tuple[float, float] | None:
    """The 95% confidence interval of a value, as the next run of the machine finds it.

    The value is the median of the rounds. Half of the interval is ``sqrt((q s)**2 + (1.96 u value)**2)`` with
    the standard deviation s between the rounds and the part u of the variation that no round shows. From
    seven rounds, s is Winsorised: the lowest and the highest count as their neighbours (J. W. Tukey and D. H.
    McLaughlin, *Less Vulnerable Confidence and Significance Procedures for Location*, Sankhya A 25, 1963),
    because single rounds may be far off. q is that for which 95% of simulated runs with normal rounds have
    their mean in the interval, if runs differ by ``RUN_SHARE`` of the standard deviation of rounds.

    Args:
        rounds: The median of each round.
        unseen: Standard deviation between runs that no round shows, as a fraction of the value
            (``measurement.UNSEEN``).

    Returns:
        None with fewer than three rounds.
    """
    n = len(rounds)
    if n < FEWEST_ROUNDS:
        return None
    value = median(sorted(rounds))
    half = math.hypot(_quantile(n) * spread(rounds), NORMAL * unseen * value)
    return max(0.0, value - half), min(LARGEST, value + half)


def rounds_for(rounds: Sequence[float], precision: float) -> float:
    """How many rounds make their part of half the interval ``precision``; infinite if no number does.

    Args:
        rounds: The medians of the first rounds, at least three.
        precision: Half of the interval, relative to the value.
    """
    n, half = len(rounds), _quantile(len(rounds)) * spread(rounds)
    if half == 0:
        return n
    # As the quantile of many rounds, relative to the first ones.
    factor = precision * abs(median(sorted(rounds))) / half
    room = (factor * _error(n)) ** 2 - RUN_SHARE**2
    return math.pi / 2 / room if room > 0 else math.inf


def spread(rounds: Sequence[float]) -> float:
    """The standard deviation of rounds; from seven it is Winsorised by one on each side."""
    if len(rounds) < WINSORISED:
        return stdev(rounds)
    ordered = sorted(rounds)
    return stdev([ordered[1], *ordered[1:-1], ordered[-2]])


def _quantile(n: int) -> float:
    """The factor from the spread of n rounds to half of the interval."""
    if n - FEWEST_ROUNDS < len(_QUANTILES):
        return _QUANTILES[n - FEWEST_ROUNDS]
    return NORMAL * _error(n) * (1 + _EXCESS / n)


def _error(n: int) -> float:
    """The standard error of the median of n rounds and of the run, over the standard error of one round."""
    return math.sqrt(math.pi / 2 / n + RUN_SHARE**2)


def sample_interval(samples: Sequence[float]) -> tuple[float, float]:
    """The 95% confidence interval of the median of independent samples of one run.

    It says what this run measured, not what the next one will: it compares values that were measured at the
    same time with the same buffers. With fewer than six samples it is their range.
    """
    ordered = sorted(samples)
    rank = interval_rank(len(ordered))
    return ordered[rank], ordered[len(ordered) - 1 - rank]


def half_width(samples: Sequence[float]) -> float:
    """Half the interval of the median of samples, relative to it; infinite for one sample."""
    middle = median(sorted(samples))
    if len(samples) < 2 or not middle:
        return math.inf
    low, high = sample_interval(samples)
    return (high - low) / 2 / abs(middle)
