from __future__ import annotations

import itertools
from collections.abc import Callable

import pytest

from wirespeed.driver.cells_of_samples import cell_of
from wirespeed.driver.sampling import Taken, take
from wirespeed.errors import UsageError
from wirespeed.hardware.limits import Allowance
from wirespeed.measurement import Measurement, Place, Sample
from wirespeed.model import Engine, Executor, Memory, MemoryKind, Transfer
from wirespeed.statistics import Fixed, Precise

NODE = Memory("numa0", MemoryKind.PAGEABLE)
COPY = Measurement(
    (Transfer(NODE, NODE, Executor("numa0"), Engine.CPU, 1000),), (Place("", 0, 0),)
)  # fmt: skip


class Clock:
    """Samples of given lengths, and the clock that they take."""

    def __init__(self, seconds: Callable[[int], float]) -> None:
        self.seconds, self.time, self.copies, self.checks = seconds, 0.0, list[int](), 0

    def sample(self, copies: int) -> Sample:
        spent = self.seconds(len(self.copies)) * copies
        self.copies.append(copies)
        self.time += spent
        return Sample((spent,), (1000.0 * copies,), spent)

    def check(self) -> None:
        self.checks += 1


def warm_up(clock: Clock) -> None:
    clock.sample(1)


def run(clock: Clock, rule: Fixed | Precise, sample_seconds: float = 1e-3) -> int:
    taken = take(
        clock.sample, COPY, rule, lambda: clock.time, sample_seconds, clock.check, lambda: warm_up(clock)
    )
    assert clock.copies.count(taken.copies) >= len(taken.samples)  # warm-ups are not kept
    assert clock.checks == len(taken.samples)
    return len(taken.samples)


def test_fixed_takes_what_it_says() -> None:
    clock = Clock(lambda _: 1e-3)
    assert run(clock, Fixed(5, 7)) == 5
    assert clock.copies == [1, 7, 7, 7, 7, 7]


def test_precise_stops_as_soon_as_the_interval_is_narrow() -> None:
    assert run(Clock(lambda _: 1e-3), Precise(0.005, 10, rounds=1)) == 6


def test_precise_goes_on_while_it_is_wide() -> None:
    noise = itertools.cycle([1.0, 1.1, 0.9, 1.05, 0.95])
    clock = Clock(lambda _: 1e-3 * next(noise))
    assert 20 < run(clock, Precise(0.02, 100, rounds=1)) < 400


def test_precise_stops_when_the_budget_is_spent() -> None:
    noise = itertools.cycle([1.0, 2.0])
    clock = Clock(lambda _: next(noise))
    assert run(clock, Precise(0.001, 7.0, rounds=1)) <= 6
    assert clock.time < 12


def test_the_budget_is_overrun_threefold_for_the_fewest_samples() -> None:
    assert run(Clock(lambda _: 0.4), Precise(0.01, 1.0, rounds=1)) == 6
    noise = itertools.cycle([0.4, 0.9])
    clock = Clock(lambda _: next(noise))
    assert run(clock, Precise(0.001, 1.0, rounds=1)) < 6 and 3.0 <= clock.time < 4.0


def test_one_long_sample_is_kept_even_if_it_overruns_the_budget() -> None:
    assert run(Clock(lambda _: 60.0), Precise(0.01, 1.0, rounds=1)) == 1


def test_the_measurements_of_a_testcase_share_its_budget() -> None:
    quick = Precise(0.01, 0.3, 1.0, 3)
    assert [quick.share(n).time_budget for n in (1, 2, 10)] == [0.3, 0.3, 0.1]
    assert Precise().share(1000) == Precise() and Fixed(2, 3).share(9) == Fixed(2, 3)
    noise = itertools.cycle([0.1, 0.2])
    assert run(Clock(lambda _: next(noise)), quick.share(100)) == 1  # 10 ms, and at most three times that


def test_few_samples_suffice_where_they_hardly_differ() -> None:
    quick = Precise(0.01, 10.0, 100.0, 3)
    assert run(Clock(lambda _: 1e-3), quick) == 3
    noise = itertools.cycle([1.0, 1.0, 1.03])
    assert run(Clock(lambda _: 1e-3 * next(noise)), quick) > 3
    for wrong in ({"fewest_samples": 2}, {"testcase_budget": 0.0}):
        with pytest.raises(UsageError):
            Precise(**wrong)  # type: ignore[arg-type]


def test_short_copies_are_repeated_until_a_sample_is_long_enough() -> None:
    clock = Clock(lambda _: 1e-5)
    run(clock, Precise(rounds=1), sample_seconds=2e-3)
    assert clock.copies[:2] == [1, 200]


def test_a_start_that_costs_more_than_a_copy_is_seen_through() -> None:
    clock = Clock(lambda _: 0.0)
    clock.sample = lambda copies: _late(clock, copies)  # type: ignore[method-assign]
    taken = take(clock.sample, COPY, Precise(rounds=1), lambda: clock.time, 2e-3)
    assert taken.samples[0].wall == pytest.approx(2e-3, rel=0.5)


def _late(clock: Clock, copies: int) -> Sample:
    """A start of 200 µs and copies of 1 µs."""
    spent = 2e-4 + 1e-6 * copies
    clock.time += spent
    return Sample((spent,), (1000.0 * copies,), spent)


@pytest.mark.parametrize("wrong", [(0, 1), (1, 0), (-1, 5)])
def test_wrong_counts(wrong: tuple[int, int]) -> None:
    with pytest.raises(UsageError):
        Fixed(*wrong)


@pytest.mark.parametrize("wrong", [(0.0, 1.0), (1.0, 1.0), (0.1, 0.0)])
def test_wrong_precision(wrong: tuple[float, float]) -> None:
    with pytest.raises(UsageError):
        Precise(*wrong)


@pytest.mark.parametrize("copies", [(1, 1), (200, 100), (3, 7), (7, 3)])
def test_the_bytes_of_a_copy_do_not_depend_on_how_often_rounds_repeat_it(copies: tuple[int, int]) -> None:
    """Each round finds how many copies make a sample long enough: the next one has another number of them."""
    rounds = [Taken((Sample((1e-6 * n,), (1000.0 * n,), 1e-6 * n),) * 2, n) for n in copies]
    cell = cell_of(COPY, COPY.places[0], Allowance(None, None, None, ()), rounds, skip=0, use_mean=False)
    assert cell.bytes == 1000 and cell.value == pytest.approx(1e9)
