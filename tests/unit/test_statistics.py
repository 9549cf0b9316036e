from __future__ import annotations

import math
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from wirespeed.summary import half_width, interval_rank, summarise

finite = st.floats(min_value=1e-12, max_value=1e15, allow_nan=False)


@given(st.lists(finite, min_size=1, max_size=60))
def test_statistics_are_in_order(samples: list[float]) -> None:
    s = summarise(samples)
    assert s.n == len(samples)
    assert s.min <= s.low <= s.median <= s.high <= s.max
    assert s.min <= s.mean <= s.max
    assert s.cv >= 0 and 0 <= s.confidence <= 1


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
    assert interval_rank(5)[1] < 0.95
    assert interval_rank(6) == (0, pytest.approx(1 - 2 * 0.5**6))
    assert interval_rank(10)[0] == 1
    assert interval_rank(20)[0] == 5
    assert interval_rank(100)[0] == 39
    assert interval_rank(3000)[0] == pytest.approx(1500 - 1.96 * math.sqrt(3000) / 2, abs=2)


def test_the_interval_holds_the_median_as_often_as_it_says() -> None:
    generator = random.Random(1)
    hits = 0
    for _ in range(2000):
        s = summarise([generator.expovariate(1.0) for _ in range(15)])
        hits += s.low <= math.log(2) <= s.high
    assert hits / 2000 > 0.94


def test_too_few_samples_are_never_precise() -> None:
    assert half_width(summarise([1.0])) == math.inf
    assert half_width(summarise([1.0] * 6)) == 0
    assert half_width(summarise([0.9, 1.0, 1.2])) == pytest.approx(0.15)
