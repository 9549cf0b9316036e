"""Whether two sides differ by more than chance: moderated t-tests of logarithms, for many cells together."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from statistics import NormalDist

from ..statistics import CONFIDENCE
from ..thresholds.changes import CAUTION, FALSE_CHANGES, FEWEST_VARIANCES, FINEST

#: Observations of one side: natural logarithms of values, by block. A block that occurs on both sides, such
#: as a host before and after, is compared only with itself.
Blocks = Mapping[str, Sequence[float]]
#: Range of the degrees of freedom of a prior.
_PRIOR_RANGE = (1e-2, 1e4)
#: Arguments of the exponential function that keep ratios finite in every format.
_MOST_EXPONENT = 100.0
#: From this many degrees of freedom the normal distribution is used; its error is below 1e-8.
_NORMAL = 1e8
#: Relative accuracy of the continued fraction, and the maximum number of its terms; it needs about the square
#: root of half the degrees of freedom.
_ACCURACY, _MOST_TERMS = 1e-15, 100_000
#: Maximum number of steps of Newton's method; 5 are typical.
_MOST_STEPS = 200
#: Smallest magnitude of a denominator of the continued fraction.
_TINY = 1e-300


@dataclass(frozen=True)
class Contrast:
    """Difference between the sides, of logarithms.

    Attributes:
        difference: Mean difference, after minus before.
        variance: Residual variance of an observation; 0 without degrees of freedom.
        df: Its degrees of freedom.
        scale: Variance of the difference, over the variance of an observation.
        unseen: Variance of the difference that the observations do not show.
        unseen_df: Degrees of freedom from which ``unseen`` is known.
    """

    difference: float
    variance: float
    df: int
    scale: float
    unseen: float = 0.0
    unseen_df: float = math.inf


@dataclass(frozen=True)
class Significance:
    """Significance of a difference.

    Attributes:
        p: Adjusted p-value: the smallest fraction of false changes (``FALSE_CHANGES``) at which it is a
            change.
        low, high: 95% confidence interval of the ratio of the sides, after over before, not adjusted.
    """

    p: float
    low: float
    high: float

    @property
    def is_change(self) -> bool:
        """Whether chance does not explain the difference."""
        return self.p <= FALSE_CHANGES


def contrast(
    before: Blocks, after: Blocks, shared: float = 0.0, unseen: float = 0.0, unseen_df: float = math.inf
) -> Contrast:
    """The difference between two sides, by least squares with one level for each block.

    With one block this is Student's two-sample test, with one observation of each side in each block the
    paired test; several in each are used completely. A block of one side tells only about the variance. At
    least one block must have observations on both sides.

    Args:
        before, after: The observations.
        shared: Variance that all observations of a side share, over that which they show.
        unseen, unseen_df: Further variance of the difference, and the degrees of freedom from which it is
            known.
    """
    total, weights, squares, n = 0.0, 0.0, 0.0, 0
    differences = []
    for name in before.keys() | after.keys():
        sides = [side[name] for side in (before, after) if side.get(name)]
        n += sum(map(len, sides))
        means = [math.fsum(side) / len(side) for side in sides]
        observed = zip(sides, means, strict=True)
        squares += math.fsum((log - mean) ** 2 for side, mean in observed for log in side)
        if len(sides) == 2:
            weight = len(sides[0]) * len(sides[1]) / (len(sides[0]) + len(sides[1]))
            differences.append((weight, means[1] - means[0]))
            weights += weight
            total += weight * (means[1] - means[0])
    mean = total / weights
    squares += math.fsum(weight * (difference - mean) ** 2 for weight, difference in differences)
    df = n - len(before.keys() | after.keys()) - 1
    return Contrast(
        mean, squares / df if df > 0 else 0.0, max(df, 0), 1 / weights + 2 * shared, unseen, unseen_df
    )


def assessed(contrasts: Sequence[Contrast], kinds: Sequence[str]) -> list[Significance]:
    """The significance of differences, the number of them accounted for.

    Few observations tell little about the variance of a cell, so that variances are moderated by those of
    cells of the same kind: Smyth, "Linear models and empirical Bayes methods for assessing differential
    expression in microarray experiments" (2004). How many cells there are is accounted for by Benjamini and
    Hochberg, "Controlling the false discovery rate" (1995).

    Args:
        contrasts: The differences.
        kinds: Kind of each; cells of one kind have similar variances.
    """
    of_kind: dict[str, list[Contrast]] = defaultdict(list)
    for cell, kind in zip(contrasts, kinds, strict=True):
        of_kind[kind].append(cell)
    priors = {kind: _prior(members) for kind, members in of_kind.items()}
    errors = [_error(cell, *priors[kind]) for cell, kind in zip(contrasts, kinds, strict=True)]
    tests = list(zip(contrasts, errors, strict=True))
    ps = adjusted([2 * tail(abs(cell.difference) / error, df) for cell, (error, df) in tests])
    return [
        Significance(p, *_interval(cell.difference, error, df))
        for p, (cell, (error, df)) in zip(ps, tests, strict=True)
    ]


def adjusted(ps: Sequence[float]) -> list[float]:
    """P-values adjusted by Benjamini and Hochberg's step-up procedure."""
    order = sorted(range(len(ps)), key=ps.__getitem__, reverse=True)
    result, least = [0.0] * len(ps), 1.0
    for rank, i in zip(range(len(ps), 0, -1), order, strict=True):
        least = min(least, ps[i] * len(ps) / rank)
        result[i] = least
    return result


def _interval(difference: float, error: float, df: float) -> tuple[float, float]:
    # Two digits of the degrees of freedom are enough, and thousands of cells share a few quantiles.
    half = quantile((1 + CONFIDENCE) / 2, float(f"{df:.2g}")) * error
    return ratio_of(difference - half), ratio_of(difference + half)


def ratio_of(difference: float) -> float:
    """The ratio with a logarithm; extreme ones are limited."""
    return math.exp(max(-_MOST_EXPONENT, min(difference, _MOST_EXPONENT)))


def _error(cell: Contrast, prior_df: float, prior: float, most_df: float) -> tuple[float, float]:
    """The standard error of a difference and its degrees of freedom (Welch and Satterthwaite)."""
    df = min(cell.df + prior_df, most_df)
    shown = 0.0
    if df > 0:
        squares = max(cell.variance, FINEST**2) * cell.df
        moderated = prior if math.isinf(prior_df) else (squares + prior_df * prior) / (cell.df + prior_df)
        shown = cell.scale * moderated
    variance = shown + cell.unseen or cell.scale * FINEST**2
    parts = ((shown, df), (cell.unseen, cell.unseen_df))
    spread = math.fsum((part / variance) ** 2 / df for part, df in parts if part)
    return math.sqrt(variance), 1 / spread if spread else math.inf


def _prior(contrasts: Sequence[Contrast]) -> tuple[float, float, float]:
    """Degrees of freedom and variance of the prior of some cells, and their total degrees of freedom.

    Variances of cells are taken as drawn from a scaled inverse chi-squared distribution; its parameters come
    from mean and variance of their logarithms (Smyth 2004, section 6.2). The total limits the degrees of
    freedom of a moderated variance.
    """
    known = [cell for cell in contrasts if cell.df > 0]
    total = math.fsum(cell.df for cell in known)
    if len(known) < FEWEST_VARIANCES:
        return 0.0, 0.0, math.inf
    logs = [
        math.log(max(cell.variance, FINEST**2)) - _digamma(cell.df / 2) + math.log(cell.df / 2)
        for cell in known
    ]
    mean = math.fsum(logs) / len(logs)
    spread = math.fsum((log - mean) ** 2 for log in logs) / (len(logs) - 1)
    # Few cells may vary alike by chance, which would claim more than is known.
    spread *= 1 + CAUTION * math.sqrt(2 / (len(logs) - 1))
    spread -= math.fsum(_trigamma(cell.df / 2) for cell in known) / len(known)
    half = _inverse_trigamma(spread) if spread > 0 else math.inf
    if math.isinf(half):
        return math.inf, ratio_of(mean), total
    return 2 * half, ratio_of(mean + _digamma(half) - math.log(half)), total


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


def _digamma(x: float) -> float:
    """The logarithmic derivative of the gamma function (Abramowitz and Stegun, 6.3.5 and 6.3.18)."""
    shift = 0.0
    while x < 8:
        shift -= 1 / x
        x += 1
    y = 1 / (x * x)
    return shift + math.log(x) - 0.5 / x - y * (1 / 12 - y * (1 / 120 - y * (1 / 252 - y / 240)))


def _trigamma(x: float) -> float:
    """The derivative of the digamma function (Abramowitz and Stegun, 6.4.6 and 6.4.12)."""
    shift = 0.0
    while x < 8:
        shift += 1 / (x * x)
        x += 1
    y = 1 / (x * x)
    return shift + 1 / x + y / 2 + y / x * (1 / 6 - y * (1 / 30 - y * (1 / 42 - y / 30)))


def _inverse_trigamma(value: float) -> float:
    """Where the trigamma function, which falls, has a value; infinite if far out."""
    low, high = (df / 2 for df in _PRIOR_RANGE)
    if value <= _trigamma(high):
        return math.inf
    while (middle := math.sqrt(low * high)) and high / low > 1 + 1e-9:
        low, high = (middle, high) if _trigamma(middle) > value else (low, middle)
    return middle
