"""Tests of many cells at once: textbook examples, and rates of false and of found changes."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy
import pytest

from wirespeed.measurement import Unit
from wirespeed.results.comparison_doubts import strays, too_noisy
from wirespeed.results.comparison_evidence import CellValues
from wirespeed.results.significance import (
    Contrast,
    _digamma,
    _prior,
    _trigamma,
    adjusted,
    assessed,
    contrast,
    tail,
)
from wirespeed.tables import Cell

#: Additional hours of sleep with two drugs (Student, "The probable error of a mean", 1908).
FIRST = (0.7, -1.6, -0.2, -1.2, -0.1, 3.4, 3.7, 0.8, 0.0, 2.0)
SECOND = (1.9, 0.8, 1.1, 0.1, -0.1, 4.4, 5.5, 1.6, 4.6, 3.4)


def t_and_p(one: Contrast) -> tuple[float, float]:
    t = one.difference / math.sqrt(one.variance * one.scale)
    return t, 2 * tail(abs(t), one.df)


def test_one_block_is_students_test_and_blocks_of_pairs_the_paired_one() -> None:
    together = contrast({"": FIRST}, {"": SECOND})
    assert together.df == 18
    assert t_and_p(together) == pytest.approx((1.8608, 0.07919), rel=1e-4)
    first, second = ({str(i): [x] for i, x in enumerate(side)} for side in (FIRST, SECOND))
    paired = contrast(first, second)
    assert paired.df == 9
    assert t_and_p(paired) == pytest.approx((4.0621, 0.002833), rel=2e-4)


def test_blocks_of_several_observations_are_used_completely() -> None:
    before = {"a": [1.0, 1.2], "b": [5.0, 5.2, 5.4]}
    one = contrast(before, {"a": [1.3, 1.5], "b": [5.5]})
    # by hand: differences 0.3 with weight 1, 0.3 with weight 3/4; squares within 0.02 + 0.02 + 0.08
    assert one.difference == pytest.approx(0.3) and one.scale == pytest.approx(1 / 1.75)
    assert one.df == 8 - 2 - 1 and one.variance == pytest.approx(0.12 / 5)
    more = contrast(before | {"c": [9.0, 9.2]}, {"a": [1.3, 1.5], "b": [5.5]})
    assert more.difference == pytest.approx(0.3) and more.df == 6


def test_adjusted_values_are_those_of_the_example_of_benjamini_and_hochberg() -> None:
    ps = (0.0001, 0.0004, 0.0019, 0.0095, 0.0201, 0.0278, 0.0298, 0.0344, 0.0459, 0.3240, 0.4262, 0.5719,
          0.6528, 0.7590, 1.0)  # fmt: skip
    found = adjusted(ps)
    assert [p <= 0.05 for p in found] == [True] * 4 + [False] * 11
    assert found[:4] == pytest.approx([0.0015, 0.003, 0.0095, 0.035625])
    assert found == sorted(found) and found[-1] == 1
    assert adjusted(ps[::-1]) == found[::-1] and adjusted([]) == []


def test_functions_of_gamma_have_their_known_values() -> None:
    euler = 0.57721566490153286
    assert _digamma(1) == pytest.approx(-euler, rel=1e-10)
    assert _digamma(0.5) == pytest.approx(-euler - 2 * math.log(2), rel=1e-10)
    assert _trigamma(1) == pytest.approx(math.pi**2 / 6, rel=1e-10)
    assert _trigamma(0.5) == pytest.approx(math.pi**2 / 2, rel=1e-10)


@pytest.mark.parametrize("df", [4.0, 20.0])
def test_a_prior_is_recovered(df: float) -> None:
    draw = numpy.random.default_rng(7)
    true = 1e-4 * df / draw.chisquare(df, 4000)
    seen = true * draw.chisquare(6, 4000) / 6
    found, variance, most = _prior([Contrast(0.0, x, 6, 0.5) for x in seen.tolist()])
    assert 0.75 * df < found < 1.05 * df and variance == pytest.approx(1e-4, rel=0.05)
    assert most == 6 * 4000
    equal, _, _ = _prior([Contrast(0.0, 1e-4, 6, 0.5)] * 50)
    assert math.isinf(equal)
    few, _, _ = _prior([Contrast(0.0, x, 6, 0.5) for x in seen[:20].tolist()])
    assert few < df  # what is not known is not claimed


def test_without_degrees_of_freedom_only_the_assumed_variance_counts() -> None:
    small, large = (Contrast(x, 0.0, 0, 2.0, unseen=1e-4) for x in (0.01, 0.06))
    found = assessed([small, large], ["values", "values"])
    assert [one.is_change for one in found] == [False, True]
    assert found[0].low == pytest.approx(math.exp(0.01 - 1.95996 * 0.01), rel=1e-6)
    (exact,) = assessed([contrast({"": [1.0, 1.0]}, {"": [1.0, 1.0]})], [""])
    assert exact.p == 1 and exact.low < 1 < exact.high


def test_extreme_observations_have_finite_results() -> None:
    ends = [math.log(1e-18), math.log(1e18)]
    found = assessed(
        [contrast({"": ends}, {"": ends[::-1]}), contrast({"": ends[:1]}, {"": ends[1:]})], ["", ""]
    )
    assert all(math.isfinite(x) for one in found for x in (one.p, one.low, one.high))


def test_a_narrow_interval_is_in_doubt_only_for_its_loss() -> None:
    assert not too_noisy(0.0499, 0.0499, 0.02)
    assert too_noisy(0.0501, 0.03, 0.02) and too_noisy(0.03, 0.0501, 0.02)
    assert not too_noisy(-0.02, 0.0499, 0.02)  # only better
    assert too_noisy(0.0501, 0.01, 0.02).startswith("too noisy to rule out a 5% change")
    assert not too_noisy(0.0999, 0.0999, 0.1) and "10%" in too_noisy(0.1001, 0.0, 0.1)


@pytest.mark.parametrize("unit", [Unit.RATE, Unit.TIME, Unit.FREQUENCY])
@pytest.mark.parametrize("least", [0.02, 0.3])
def test_a_run_that_strays_is_slower_than_all_before(unit: Unit, least: float) -> None:
    def found(*speeds: float, host: str = "") -> CellValues:
        values = speeds if unit.more_is_better else [1 / speed for speed in speeds]
        return CellValues(unit, cells=[(host, Cell(0, 0, value)) for value in values])

    most = max(0.2, least)
    before = found(2.0, 1.0)
    assert strays(before, found(2.0, 0.999 - most), least, paired=False)
    assert not strays(before, found(2.0, 1.001 - most), least, paired=False)
    assert not strays(before, found(9.0), least, paired=False)
    assert not strays(before, found(0.1, host="other"), least, paired=True)
    assert strays(before, found(0.1, host="other"), least, paired=False)


def rates(
    spread: Callable[[numpy.random.Generator], numpy.ndarray],
    rounds: int,
    change: float = 0.0,
    between: float = 0.0,
) -> tuple[float, float]:
    """Fraction of comparisons with a false change, and with the change of the first cell found."""
    draw = numpy.random.default_rng(11)
    false = right = 0
    for _ in range(N):
        deviations = spread(draw)
        cells = len(deviations)
        before, after = (
            draw.normal(0, between, cells) + draw.normal(0, 1, (rounds, cells)) * deviations for _ in range(2)
        )
        after[:, 0] += change
        found = assessed(
            [
                contrast({"": before[:, i].tolist()}, {"": after[:, i].tolist()}, 0.0, 2 * between**2)
                for i in range(cells)
            ],
            [""] * cells,
        )
        right += found[0].is_change
        false += any(one.is_change for one in found[bool(change) :])
    return false / N, right / N


#: Number of simulated comparisons.
N = 150


@pytest.mark.parametrize(("rounds", "between"), [(3, 0.0), (5, 0.003)])
def test_without_a_change_hardly_any_is_reported(rounds: int, between: float) -> None:
    for spread in (
        lambda draw: numpy.full(30, 0.01),
        lambda draw: 0.01 * numpy.sqrt(6 / draw.chisquare(6, 30)),
    ):
        false, _ = rates(spread, rounds, between=between)
        assert false <= 0.05


def test_a_change_of_3_percent_is_found_by_three_rounds() -> None:
    false, right = rates(lambda draw: numpy.full(40, 0.004), 3, change=0.03, between=0.002)
    assert right >= 0.95 and false <= 0.05
