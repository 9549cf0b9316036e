"""Student's t distribution: probabilities of its tails, and quantiles."""

from __future__ import annotations

import math
from functools import lru_cache
from statistics import NormalDist

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
        p: The probability, more than 0 and less than 1; 0.975 for a two-sided 95 % interval.
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
