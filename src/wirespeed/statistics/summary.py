"""Student's t distribution: probabilities of its tails, and quantiles.

Pure functions from samples to statistics.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from functools import lru_cache
from statistics import NormalDist, stdev
from typing import TypeVar

from ..tables import LARGEST, Statistics
from .stopping import FEWEST_ROUNDS

K = TypeVar("K")
V = TypeVar("V")

#: From this many degrees of freedom the normal distribution is used; its error is below 1e-8.
_NORMAL = 1e8
#: Relative accuracy of the continued fraction, and the maximum number of its terms; it needs about the square
#: root of half the degrees of freedom.
_ACCURACY, _MOST_TERMS = 1e-15, 100_000
#: Maximum number of steps of Newton's method; 5 are typical.
_MOST_STEPS = 200
#: Smallest magnitude of a denominator of the continued fraction.
_TINY = 1e-300


def tail(t: float, df: float) -> float:
    """The probability that a variable with Student's t distribution exceeds a value.

    Args:
        t: The value; may be infinite.
        df: Degrees of freedom, more than 0, not necessarily whole; infinite for the normal distribution.

    Returns:
        The probability of the upper tail, from 0 to 1; twice that of ``abs(t)`` is the p-value of a two-sided
        test.

    Raises:
        ValueError: If ``df`` is not positive or ``t`` is not a number.
    """
    if not df > 0 or math.isnan(t):
        raise ValueError(f"Student's t distribution needs a number and df > 0, not t = {t}, df = {df}")
    if t < 0:
        return 1 - tail(-t, df)
    if math.isinf(t):
        return 0.0
    if df >= _NORMAL:
        return 0.5 * math.erfc(t / math.sqrt(2))
    # P(|T| > t) = I_x(df/2, 1/2) with x = df / (df + t²) (Abramowitz and Stegun, 26.7.1)
    ratio = t / math.sqrt(df)
    inside = ratio / math.hypot(1, ratio)  # its square is 1 - x, without cancellation
    outside = 1 / math.hypot(1, ratio)
    return 0.5 * _incomplete_beta(outside**2, inside**2, df / 2, 0.5)


@lru_cache(maxsize=4096)
def quantile(p: float, df: float) -> float:
    """The value that a variable with Student's t distribution does not exceed with a probability.

    Args:
        p: The probability, more than 0 and less than 1; 0.975 for a two-sided 95% interval.
        df: Degrees of freedom, more than 0, not necessarily whole; infinite for the normal distribution.

    Raises:
        ValueError: If ``p`` or ``df`` is out of range.
    """
    if not 0 < p < 1:
        raise ValueError(f"a quantile needs a probability between 0 and 1, not {p}")
    if not df > 0:
        raise ValueError(f"Student's t distribution needs df > 0, not {df}")
    if p <= 0.5:
        return -quantile(1 - p, df) if p < 0.5 else 0.0
    # For t > 0 the tail is convex and heavier than that of the normal distribution, whose quantile is below:
    # from there, Newton's method approaches the quantile from below.
    t = max(NormalDist().inv_cdf(p), 0.0)
    for _ in range(_MOST_STEPS):
        step = (tail(t, df) - (1 - p)) / _density(t, df)
        t += step
        if step <= _ACCURACY * t:
            break
    return t


def _density(t: float, df: float) -> float:
    if df >= _NORMAL:
        return NormalDist().pdf(t)
    scale = math.lgamma((df + 1) / 2) - math.lgamma(df / 2) - math.log(df * math.pi) / 2
    return math.exp(scale - (df + 1) * math.log(math.hypot(1, t / math.sqrt(df))))


def _incomplete_beta(x: float, complement: float, a: float, b: float) -> float:
    """The regularised incomplete beta function I_x(a, b); ``complement`` is 1 - x."""
    if not x:
        return 0.0
    if not complement:
        return 1.0
    scale = math.lgamma(a + b) - math.lgamma(a) - math.lgamma(b)
    front = math.exp(scale + a * math.log(x) + b * math.log(complement))
    if x < (a + 1) / (a + b + 2):  # where the fraction converges fast
        return front * _fraction(x, a, b) / a
    return 1 - front * _fraction(complement, b, a) / b


def _fraction(x: float, a: float, b: float) -> float:
    """The continued fraction of the incomplete beta function by Lentz's method.

    Press et al., *Numerical Recipes*, 3rd edition, section 6.4; Digital Library of Mathematical Functions,
    8.17.22.
    """
    above, below = 1.0, 1 / _away(1 - (a + b) * x / (a + 1))
    value = below
    for m in range(1, _MOST_TERMS):
        for term in (
            m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m)),
            -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1)),
        ):
            below = 1 / _away(1 + term * below)
            above = _away(1 + term / above)
            value *= below * above
        if abs(below * above - 1) < _ACCURACY:
            break
    return value


def _away(denominator: float) -> float:
    """A denominator that is not too close to 0 to divide by."""
    return denominator if abs(denominator) > _TINY else _TINY


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


def nearest_rank(ordered: Sequence[float], fraction: float) -> float:
    """The smallest of sorted samples that a fraction of them do not exceed: a sample, not interpolated."""
    return ordered[max(0, math.ceil(fraction * len(ordered)) - 1)]


@lru_cache(maxsize=4096)
def interval_rank(n: int, confidence: float = CONFIDENCE) -> tuple[int, float]:
    """Which order statistics bound the median of n samples, and the confidence of that interval.

    The interval from the k-th smallest to the k-th largest sample (k from 0) contains the median of any
    distribution with probability 1 - 2 P(X <= k), X binomial with n trials of one half (H. A. David, *Order
    Statistics*, section 7.1). Returns the largest k that reaches ``confidence``; 0 (the range) if none does.
    """
    if n >= 1000:  # 0.5**n would underflow; the normal approximation is accurate for such n
        deviate = NormalDist().inv_cdf((1 + confidence) / 2)
        return math.floor((n - 1 - deviate * math.sqrt(n)) / 2), confidence
    rank, tail, term = 0, 0.0, 0.5**n
    achieved = max(0.0, 1 - 2 * term)
    for k in range(n // 2):
        tail += term
        if 1 - 2 * tail < confidence:
            break
        rank, achieved = k, 1 - 2 * tail
        term *= (n - k) / (k + 1)
    return rank, achieved


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
            (``variation.UNSEEN``).

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
    """The standard error of the median of n rounds and of the run, over that of one round."""
    return math.sqrt(math.pi / 2 / n + RUN_SHARE**2)


def sample_interval(samples: Sequence[float]) -> tuple[float, float]:
    """The 95% confidence interval of the median of independent samples of one run.

    It says what this run measured, not what the next one will: it compares values that were measured at the
    same time with the same buffers. With fewer than six samples it is their range.
    """
    ordered = sorted(samples)
    rank, _ = interval_rank(len(ordered))
    return ordered[rank], ordered[len(ordered) - 1 - rank]


def half_width(samples: Sequence[float]) -> float:
    """Half the interval of the median of samples, relative to it; infinite for one sample."""
    middle = median(sorted(samples))
    if len(samples) < 2 or not middle:
        return math.inf
    low, high = sample_interval(samples)
    return (high - low) / 2 / abs(middle)
