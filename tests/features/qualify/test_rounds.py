"""How many rounds a Measurement has, and how many samples."""

from __future__ import annotations

import random
from collections.abc import Sequence

import pytest

from wirespeed.driver.sampling import WORTH, Rounds, Taken
from wirespeed.errors import UsageError
from wirespeed.measurement import Measurement, Place, Sample
from wirespeed.model import Engine, Executor, Memory, MemoryKind, Transfer
from wirespeed.options import RunOptions
from wirespeed.statistics import MAX_SAMPLES, Fixed, Precise

NODE = Memory("numa0", MemoryKind.PAGEABLE)
COPY = Measurement((Transfer(NODE, NODE, Executor("numa0"), Engine.CPU, 1000),), (Place("", 0, 0),))


def rounds_of(medians: Sequence[float], samples: Sequence[float] = (1.0,), seconds: float = 0.1,
              preparing: float = 0.1) -> Rounds:  # fmt: skip
    """Return rounds with times in s and their samples, relative to the median."""
    rounds = Rounds(COPY)
    for middle in medians:
        times = [middle * factor for factor in samples]
        taken = Taken(tuple(Sample((t,), (1000.0,), t) for t in times), 1, seconds, preparing)
        rounds.taken.append(taken)
    return rounds


def test_counts_have_as_many_rounds_as_are_asked_for() -> None:
    assert not rounds_of([1.0]).follows(Fixed()) and rounds_of([]).follows(Fixed())
    assert rounds_of([1.0]).follows(Fixed(rounds=2)) and not rounds_of([1.0] * 2).follows(Fixed(rounds=2))
    assert rounds_of([1.0] * 50).follows(Fixed(rounds=0))  # until interrupted


def test_equal_rounds_need_no_more_than_the_first() -> None:
    assert rounds_of([1.0] * 6).follows(Precise()) and not rounds_of([1.0] * 7).follows(Precise())


def test_a_quick_run_has_one_round_and_two_stay_two() -> None:
    assert not rounds_of([1.0]).follows(Precise(rounds=1))
    assert rounds_of([1.0]).follows(Precise(rounds=2)) and not rounds_of([1.0, 2.0]).follows(
        Precise(rounds=2)
    )


def test_rounds_that_differ_are_followed_by_as_many_as_are_worth_it() -> None:
    rounds = rounds_of([1.0, 1.1, 0.9, 1.05, 0.95, 1.02, 0.98], seconds=0.01, preparing=0.01)
    assert rounds.follows(Precise(time_budget=100.0)) and rounds.planned == WORTH


def test_the_number_is_determined_once() -> None:
    rounds = rounds_of([1.0, 1.001, 0.999, 1.0005, 0.9995, 1.0, 1.0], seconds=0.01, preparing=0.01)
    rounds.follows(Precise())
    planned = rounds.planned
    rounds.taken.append(Taken((Sample((2.0,), (1000.0,), 2.0),), 1, 0.01, 0.01))
    rounds.follows(Precise())
    assert rounds.planned == planned and 7 <= (planned or 0) <= WORTH


def test_long_rounds_are_fewer_but_enough_for_an_interval() -> None:
    assert rounds_of([1.0] * 2, seconds=4.0).follows(Precise(time_budget=5.0))
    assert not rounds_of([1.0] * 3, seconds=4.0).follows(Precise(time_budget=5.0))
    assert not rounds_of([1.0], seconds=16.0).follows(Precise(time_budget=5.0))


def test_the_first_preparation_may_take_long() -> None:
    """It loads libraries and compiles kernels."""
    rounds = Rounds(COPY)
    rounds.taken.append(Taken((Sample((1.0,), (1000.0,), 1.0),), 1, 0.1, 59.9))
    assert rounds.follows(Precise())


def test_costly_rounds_have_more_samples() -> None:
    """Kalibera and Jones: the root of the ratios of costs and of variances."""
    noisy = [1.0 + 0.01 * random.Random(i).gauss(0, 1) for i in range(10)]
    cheap = rounds_of([1.0, 1.02, 0.98, 1.01, 0.99, 1.0, 1.0], noisy, seconds=0.1, preparing=0.001)
    costly = rounds_of([1.0, 1.02, 0.98, 1.01, 0.99, 1.0, 1.0], noisy, seconds=0.1, preparing=10.0)
    for rounds in (cheap, costly):
        rounds.follows(Precise(time_budget=1000.0))
    assert cheap.samples == 10 and (costly.samples or 0) > 20


def test_correlated_samples_count_less() -> None:
    slow = [1.0 + 0.01 * (i // 5) for i in range(20)]
    mixed = [slow[i * 7 % 20] for i in range(20)]
    found = []
    for samples in (slow, mixed):
        rounds = rounds_of([1.0, 1.04, 0.96, 1.02, 0.98, 1.0, 1.0], samples, preparing=10.0)
        rounds.follows(Precise(time_budget=1000.0))
        found.append(rounds.samples or 0)
    assert found[0] > found[1]


def test_what_samples_vary_is_no_difference_between_rounds() -> None:
    """The medians of ten samples that vary by 1 % differ by 0.4 %: rounds that differ by less are alike."""
    samples = [1.0 + 0.01 * (-1) ** i for i in range(10)]
    alike = rounds_of([1.0, 1.001, 0.999, 1.002, 0.998, 1.0, 1.0], samples, preparing=1.0)
    differing = rounds_of([1.0, 1.01, 0.99, 1.02, 0.98, 1.0, 1.0], samples, preparing=1.0)
    for rounds in (alike, differing):
        rounds.follows(Precise(time_budget=1000.0))
    assert alike.samples == MAX_SAMPLES and (differing.samples or 0) < 20


def test_a_round_that_failed_is_the_last() -> None:
    rounds = rounds_of([1.0])
    rounds.ended = True
    assert not rounds.follows(Precise())


@pytest.mark.parametrize(("given", "rule"), [
    ({}, Precise()),
    ({"tier": "quick"}, Precise(0.01, 0.2, 0.6, 3, rounds=1)),
    ({"tier": "quick", "rounds": 4}, Precise(0.01, 0.2, 0.6, 3, rounds=4)),
    ({"rounds": 1}, Precise(rounds=1)),
    ({"rounds": 7, "precision": 0.01}, Precise(0.01, rounds=7)),
    ({"samples": 2, "rounds": 3}, Fixed(2, 16, 3)),
    ({"within": 20.0, "rounds": 3}, Precise(0.01, 0.2, 0.6, 3, rounds=3)),
])  # fmt: skip
def test_the_number_of_rounds_is_an_option(given: dict[str, float], rule: Fixed | Precise) -> None:
    assert RunOptions(**given).rule == rule  # type: ignore[arg-type]


@pytest.mark.parametrize("rounds", [-1, 1_000_001, 0])
def test_a_wrong_number_of_rounds_is_refused(rounds: int) -> None:
    with pytest.raises(UsageError, match="rounds must be"):
        RunOptions(rounds=rounds)
