"""Pure functions from samples to statistics."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache
from statistics import NormalDist, stdev

from .document import LARGEST, Statistics
from .stopping import FEWEST_ROUNDS
from .student import quantile

CONFIDENCE = 0.95
#: Standard deviation of a run in addition to what its rounds show, over that between its rounds: clocks,
#: other tenants and the history of a process vary more slowly than rounds. Measured (`docs/results`).
RUN_SHARE = 0.5
#: Standard error of the median of normal values over that of their mean: 1.20 for five, 1.25 for many (H. A.
#: David, *Order Statistics*, section 2.3).
_MEDIAN_ERROR = 1.2


def summarise(samples: Sequence[float]) -> Statistics:
    """Return the statistics of one or more samples.

    Raises
    ------
    ValueError
        If there is no sample.
    """
    if not samples:
        raise ValueError("no samples to summarise")
    ordered = sorted(samples)
    n = len(ordered)
    mean = math.fsum(ordered) / n
    mean = min(max(mean, ordered[0]), ordered[-1])  # rounding must not move it out of the range
    spread = math.sqrt(math.fsum((x - mean) ** 2 for x in ordered) / (n - 1)) if n > 1 else 0.0
    return Statistics(
        n=n,
        median=median(ordered),
        mean=mean,
        min=ordered[0],
        max=ordered[-1],
        cv=spread / abs(mean) if mean else 0.0,
    )


def median(ordered: Sequence[float]) -> float:
    """Return the median of sorted samples."""
    middle = len(ordered) // 2
    if len(ordered) % 2:
        return ordered[middle]
    low, high = ordered[middle - 1], ordered[middle]
    return low + (high - low) / 2


@lru_cache(maxsize=4096)
def interval_rank(n: int, confidence: float = CONFIDENCE) -> tuple[int, float]:
    """Return which order statistics bound the median of n samples, and the confidence of that interval.

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


def interval(rounds: Sequence[float]) -> tuple[float, float] | None:
    """Return the 95 % confidence interval of a value, as the next run of the machine finds it.

    The value is the median of the rounds. Half of the interval is ``t E s sqrt(1/n + r**2)``: quantile t of
    Student's t with n - 1 degrees of freedom (Student, *The Probable Error of a Mean*, Biometrika 6, 1908),
    ratio E of the standard errors of median and mean, standard deviation s between n rounds, and ratio r of
    the standard deviations of runs and rounds (``RUN_SHARE``).

    Parameters
    ----------
    rounds : Sequence[float]
        The median of each round.

    Returns
    -------
    tuple[float, float] or None
        None with fewer than three rounds.
    """
    n = len(rounds)
    if n < FEWEST_ROUNDS:
        return None
    value, half = median(sorted(rounds)), _wide(rounds) * math.sqrt(1 / n + RUN_SHARE**2)
    return max(0.0, value - half), min(LARGEST, value + half)


def rounds_for(rounds: Sequence[float], precision: float) -> float:
    """Return how many rounds make half the interval ``precision`` of the value; infinite if no number does.

    Parameters
    ----------
    rounds : Sequence[float]
        The medians of the first rounds, at least three.
    precision : float
        Half of the interval, relative to the value.
    """
    wide = _wide(rounds)
    if wide == 0:
        return len(rounds)
    room = (precision * abs(median(sorted(rounds))) / wide) ** 2 - RUN_SHARE**2
    return 1 / room if room > 0 else math.inf


def _wide(rounds: Sequence[float]) -> float:
    """Return half the interval of the median of one round that varies like some rounds."""
    return _MEDIAN_ERROR * quantile((1 + CONFIDENCE) / 2, len(rounds) - 1) * stdev(rounds)


def sample_interval(samples: Sequence[float]) -> tuple[float, float]:
    """Return the 95 % confidence interval of the median of independent samples of one run.

    It says what this run measured, not what the next one will: it compares values that were measured at the
    same time with the same buffers. With fewer than six samples it is their range.
    """
    ordered = sorted(samples)
    rank, _ = interval_rank(len(ordered))
    return ordered[rank], ordered[len(ordered) - 1 - rank]


def half_width(samples: Sequence[float]) -> float:
    """Return half the interval of the median of samples, relative to it; infinite for one sample."""
    middle = median(sorted(samples))
    if len(samples) < 2 or not middle:
        return math.inf
    low, high = sample_interval(samples)
    return (high - low) / 2 / abs(middle)
