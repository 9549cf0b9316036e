"""Pure functions from samples to statistics."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache
from statistics import NormalDist

from .document import Statistics

CONFIDENCE = 0.95


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
    lowest, achieved = interval_rank(n)
    return Statistics(
        n=n,
        median=median(ordered),
        mean=mean,
        min=ordered[0],
        max=ordered[-1],
        cv=spread / abs(mean) if mean else 0.0,
        low=ordered[lowest],
        high=ordered[n - 1 - lowest],
        confidence=achieved,
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


def half_width(statistics: Statistics) -> float:
    """Return half the confidence interval of the median, relative to the median; infinite for one sample.

    With fewer than six samples the interval is the range, and ``statistics.confidence`` is lower.
    """
    if statistics.n < 2 or not statistics.median:
        return math.inf
    return (statistics.high - statistics.low) / 2 / abs(statistics.median)
