"""Student's t distribution against published tables and closed forms."""

from __future__ import annotations

import math

import pytest

from wirespeed.results.significance import quantile, tail

#: Quantiles by degrees of freedom (Abramowitz and Stegun, table 26.10; probabilities of the upper tail).
TABLE = {
    0.25: {1: 1.000, 2: 0.816, 3: 0.765, 5: 0.727, 10: 0.700, 30: 0.683, 120: 0.677, math.inf: 0.674},
    0.05: {1: 6.314, 2: 2.920, 3: 2.353, 5: 2.015, 10: 1.812, 30: 1.697, 120: 1.658, math.inf: 1.645},
    0.025: {1: 12.706, 2: 4.303, 3: 3.182, 5: 2.571, 10: 2.228, 30: 2.042, 120: 1.980, math.inf: 1.960},
    0.005: {1: 63.657, 2: 9.925, 3: 5.841, 5: 4.032, 10: 3.169, 30: 2.750, 120: 2.617, math.inf: 2.576},
    0.0005: {1: 636.619, 2: 31.598, 3: 12.924, 5: 6.869, 10: 4.587, 30: 3.646, 120: 3.373, math.inf: 3.291},
}
VALUES = (1e-9, 0.01, 0.3, 1.0, 2.5, 12.7, 300.0, 1e5)


@pytest.mark.parametrize("upper", TABLE)
def test_quantiles_are_those_of_the_table(upper: float) -> None:
    for df, value in TABLE[upper].items():
        assert quantile(1 - upper, df) == pytest.approx(value, abs=1.1e-3)
        assert tail(value, df) == pytest.approx(upper, rel=3e-3)


def test_tails_are_those_of_the_closed_forms() -> None:
    for t in VALUES:
        assert tail(t, 1) == pytest.approx(math.atan2(1, t) / math.pi, rel=1e-12)  # Cauchy's distribution
        root = math.sqrt(2 + t * t)
        assert tail(t, 2) == pytest.approx(1 / (root * (root + t)), rel=1e-12)
        assert tail(-t, 2) == 1 - tail(t, 2)
    for t in (0.5, 2.0, 6.0):
        normal = math.erfc(t / math.sqrt(2)) / 2
        assert tail(t, math.inf) == normal == pytest.approx(tail(t, 9e7), rel=1e-5)


@pytest.mark.parametrize("df", [0.4, 1, 2.7, 4, 33.3, 1e3, 1e6, math.inf])
def test_a_quantile_has_its_probability(df: float) -> None:
    for p in (0.001, 0.2, 0.5, 0.6, 0.975, 0.9999):
        assert 1 - tail(quantile(p, df), df) == pytest.approx(p, rel=1e-9)
        assert quantile(p, df) == pytest.approx(-quantile(1 - p, df), rel=1e-9, abs=1e-12)


def test_the_ends_are_defined() -> None:
    assert tail(math.inf, 3) == 0 and tail(-math.inf, 3) == 1 and tail(0, 3) == 0.5
    assert tail(1e200, 3) >= 0
    for call, arguments in ((tail, (math.nan, 3)), (tail, (1, 0)), (tail, (1, math.nan))):
        with pytest.raises(ValueError, match="df > 0"):
            call(*arguments)
    for arguments in ((0, 3), (1, 3), (math.nan, 3), (0.5, 0), (0.5, math.nan)):
        with pytest.raises(ValueError):
            quantile(*arguments)
