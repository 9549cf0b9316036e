from __future__ import annotations

import math
import random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.conftest import with_long
from wirespeed.statistics import (
    RUN_SHARE,
    half_width,
    interval,
    interval_rank,
    rounds_for,
    sample_interval,
    spread,
    summarise,
)

finite = st.floats(min_value=1e-12, max_value=1e15, allow_nan=False)


@given(st.lists(finite, min_size=1, max_size=60))
def test_statistics_are_in_order(samples: list[float]) -> None:
    s = summarise(samples)
    assert s.n == len(samples)
    low, high = sample_interval(samples)
    assert s.min <= low <= s.median <= high <= s.max
    assert s.min <= s.mean <= s.max
    assert s.cv >= 0


@given(st.lists(finite, min_size=2, max_size=30), st.floats(1e-3, 1e3))
def test_statistics_scale_with_the_samples(samples: list[float], factor: float) -> None:
    one, other = summarise(samples), summarise([x * factor for x in samples])
    assert other.median == pytest.approx(one.median * factor)
    assert other.cv == pytest.approx(one.cv, rel=1e-6, abs=1e-6)


def test_known_values() -> None:
    s = summarise([3.0, 1.0, 2.0, 4.0])
    assert (s.median, s.mean, s.min, s.max) == (2.5, 2.5, 1.0, 4.0)
    assert s.cv == pytest.approx(math.sqrt(5 / 3) / 2.5)
    assert summarise([7.0]).cv == 0


def test_nothing_has_no_statistics() -> None:
    with pytest.raises(ValueError, match="no sample"):
        summarise([])


def test_interval_ranks_are_those_of_the_tables() -> None:
    # Order statistics that bound the median with 95 %: n = 6 is the first that can.
    assert interval_rank(6) == interval_rank(8) == 0
    assert interval_rank(9) == interval_rank(10) == 1
    assert interval_rank(20) == 5
    assert interval_rank(100) == 39
    assert interval_rank(3000) == pytest.approx(1500 - 1.96 * math.sqrt(3000) / 2, abs=2)


def test_the_interval_holds_the_median_as_often_as_it_says() -> None:
    generator = random.Random(1)
    hits = 0
    for _ in range(2000):
        low, high = sample_interval([generator.expovariate(1.0) for _ in range(15)])
        hits += low <= math.log(2) <= high
    assert hits / 2000 > 0.94


def test_too_few_samples_are_never_precise() -> None:
    assert half_width([1.0]) == math.inf
    assert half_width([1.0] * 6) == 0
    assert half_width([0.9, 1.0, 1.2]) == pytest.approx(0.15)


def test_the_interval_of_rounds_is_that_of_the_formula() -> None:
    assert interval([10.0, 12.0]) is None
    half = 3.35 * 2  # the standard deviation of 10, 12, 14 is 2
    assert interval([12.0, 10.0, 14.0]) == pytest.approx((12 - half, 12 + half))
    assert interval([12.0, 10.0, 14.0], 0.5)[1] == pytest.approx(12 + math.hypot(half, 1.96 * 6))  # type: ignore[index]
    assert interval([5.0] * 4) == (5.0, 5.0)
    assert (interval([1.0, 9.0, 30.0]) or (1.0,))[0] == 0.0  # no rate and no time is negative


def test_one_round_that_is_far_off_on_each_side_hardly_counts() -> None:
    usual = [1.0, 1.01, 0.99, 1.005, 0.995]
    assert interval([*usual, 0.98, 1.02]) == interval([*usual, 0.1, 9.0])
    assert spread(usual) < spread([*usual, 9.0]) > 1  # six rounds are too few to leave one out


def test_the_number_of_rounds_is_that_which_makes_the_interval_narrow() -> None:
    rounds = [99.9, 100.0, 100.1, 100.05, 99.95, 100.02, 99.98]
    number = rounds_for(rounds, 0.001)
    first = interval(rounds)
    assert first and 7 < number < 16
    errors = [math.sqrt(math.pi / 2 / n + RUN_SHARE**2) for n in (7, number)]
    assert (first[1] - first[0]) / 2 * errors[1] / errors[0] == pytest.approx(0.1, rel=1e-3)
    assert rounds_for([1.0] * 5, 0.001) == 5
    assert rounds_for([90.0, 100.0, 110.0], 0.001) == math.inf  # runs vary by more than this


@pytest.mark.parametrize("n", with_long([3, 4, 5, 6, 7, 8, 12, 16, 30, 100], 5, 8, 12, 30))
def test_intervals_hold_the_mean_of_many_runs_as_often_as_they_say(n: int) -> None:
    """Of runs that differ by half of what rounds differ by, 95 % of the intervals hold the mean."""
    generator, runs = np.random.default_rng(n), 4000
    rounds = 100 + generator.normal(0, 1, (runs, n)) + generator.normal(0, RUN_SHARE, (runs, 1))
    found = [interval(list(map(float, of_run))) for of_run in rounds]
    hits = sum(one is not None and one[0] <= 100 <= one[1] for one in found)
    assert hits / runs == pytest.approx(0.95, abs=0.015)
