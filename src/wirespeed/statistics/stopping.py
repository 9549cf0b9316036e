"""Stopping rules: fixed counts, or a target precision within a time budget; both in one or more rounds."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import ClassVar, Self

from ..errors import UsageError

#: Maximum number of samples of a Measurement in a round, unless it is fixed.
MAX_SAMPLES = 400

#: Minimum number of samples for a 95% confidence interval of the median of the samples of one round.
_INTERVAL_SAMPLES = 6
#: Minimum number of rounds for an interval of the value.
FEWEST_ROUNDS = 3
#: Number of rounds from which the variation between rounds is estimated: enough to leave out one that is far
#: off on each side.
ROUNDS = 7
#: Maximum number of rounds.
MAX_ROUNDS = 1_000_000
#: Minimum number of samples that show scatter.
SCATTER_SAMPLES = 3
#: Number of runs that determine the number of copies of a sample.
_TRIALS = 2

#: Smallest factor by which time budgets shrink: a budget is more than 0 s.
_LEAST_FACTOR = 1e-3
#: Maximum number of samples and of copies: the bytes of all copies of a buffer still have a number.
_MOST_COUNT = 2**40


class Rule:
    """When sampling stops: what the driver asks. The methods here are those of a rule without a time budget.

    Attributes:
        rounds: Number of rounds, or their minimum; 0: until interrupted.
        copies: Number of copies per sample; None: enough for the clock of the backend.
        interleaved: Whether the rounds of all testcases are interleaved, in random order.
        time_budget: Maximum time of a Measurement whose values scatter, in s; 0 if scatter does not matter.
    """

    rounds: int
    copies: int | None
    interleaved: ClassVar[bool]
    time_budget: float = 0.0

    @property
    def round_budget(self) -> float:
        """Maximum time of sampling in one of the first rounds, in s; 0 if scatter does not matter."""
        return 0.0

    def share(self, measurements: int) -> Self:
        """The rule for each of several Measurements of a testcase."""
        return self

    def shrunk(self, factor: float) -> Self:
        """The rule with smaller time budgets; a factor above 1 changes nothing."""
        return self

    def done(
        self, samples: int, seconds: float, precise: Callable[[float], bool], wanted: int | None = None
    ) -> bool:
        """Whether sampling a Measurement in one round is over.

        Args:
            samples: Number of samples so far.
            seconds: Time of this round so far, in s.
            precise: Returns whether the medians of the samples have a precision, given as a fraction.
            wanted: Number of samples to take within the time budget; None: until their median is precise.
        """
        raise NotImplementedError

    def another(
        self, done: int, seconds: float, planned: Callable[[float, float], int], *, once: bool
    ) -> bool:
        """Whether another round of a Measurement follows.

        Args:
            done: Number of rounds so far.
            seconds: Time of these rounds, in s.
            planned: Returns the number of rounds that the first ones demand, for a precision and a time
                budget in s.
            once: Whether what is measured happens only once.
        """
        raise NotImplementedError

    def least_seconds(self, copy_s: float, sample_s: float, verify_s: float) -> float:
        """The time of the fewest samples of a round, in s.

        Args:
            copy_s, verify_s: Time of one copy, and of the verification of a sample, in s.
            sample_s: Minimum duration of a sample for the clock of the backend, in s.
        """
        raise NotImplementedError


@dataclass(frozen=True)
class Fixed(Rule):
    """A fixed number of samples and copies, after a warm-up of one copy.

    Attributes:
        samples: Number of samples.
        copies: Number of copies per sample.
        rounds: Number of rounds, one testcase after the other; 0: until interrupted.
    """

    interleaved = False  #: as in the tools whose command lines have these counts

    samples: int = 3
    copies: int = 16
    rounds: int = 1

    def __post_init__(self) -> None:
        if not (1 <= self.samples <= _MOST_COUNT and 1 <= self.copies <= _MOST_COUNT):
            raise UsageError("samples and copies must be from 1 to 2**40")
        if self.rounds < 0:
            raise UsageError("the number of rounds must be 0 (until interrupted) or more")

    def done(
        self, samples: int, seconds: float, precise: Callable[[float], bool], wanted: int | None = None
    ) -> bool:
        return samples >= self.samples

    def another(
        self, done: int, seconds: float, planned: Callable[[float, float], int], *, once: bool
    ) -> bool:
        return self.rounds == 0 or done < self.rounds

    def least_seconds(self, copy_s: float, sample_s: float, verify_s: float) -> float:
        """The time of the warm-up and all samples, in s."""
        return copy_s + self.samples * (copy_s * self.copies + verify_s)


@dataclass(frozen=True)
class Precise(Rule):
    """Measure in rounds until a value has the required precision or the time budget is spent.

    Attributes:
        precision: Target for half the 95% confidence interval of the value, as a fraction of the value. In a
            run of one or two rounds, which have no such interval: of the median of the samples of a round.
        time_budget: Maximum time of a Measurement, in s, with the rounds after the first ``rounds``; up to
            three times as long until each round has ``fewest_samples``.
        testcase_budget: Maximum time of a testcase, in s, divided equally among its Measurements.
        fewest_samples: Minimum number of samples of a run of one or two rounds. Of three or more, each has
            three or more.
        rounds: Minimum number of rounds. More follow only if there are three or more.
    """

    copies = None
    interleaved = True

    precision: float = 0.005
    time_budget: float = 5.0
    testcase_budget: float = math.inf
    fewest_samples: int = _INTERVAL_SAMPLES
    rounds: int = ROUNDS

    def __post_init__(self) -> None:
        if not 0 < self.precision < 1:
            raise UsageError("precision must be more than 0% and less than 100%")
        if not self.time_budget > 0:
            raise UsageError("the time budget must be more than 0 s")
        if not self.testcase_budget > 0:
            raise UsageError("the time budget of a testcase must be more than 0 s")
        if self.fewest_samples < SCATTER_SAMPLES:
            raise UsageError(f"the fewest samples must be {SCATTER_SAMPLES} or more")
        if not 1 <= self.rounds <= MAX_ROUNDS:
            raise UsageError(f"the number of rounds must be from 1 to {MAX_ROUNDS}, not {self.rounds}")

    def share(self, measurements: int) -> Precise:
        """The rule for each of several Measurements of a testcase: each has its part of the budget."""
        return replace(self, time_budget=min(self.time_budget, self.testcase_budget / max(1, measurements)))

    def shrunk(self, factor: float) -> Precise:
        """The rule with smaller time budgets; a factor above 1 changes nothing."""
        factor = min(1.0, max(factor, _LEAST_FACTOR))
        budgets = self.time_budget * factor, self.testcase_budget * factor
        return replace(self, time_budget=budgets[0], testcase_budget=budgets[1])

    def done(
        self, samples: int, seconds: float, precise: Callable[[float], bool], wanted: int | None = None
    ) -> bool:
        """Whether the samples are precise, or as many as wanted, or the budget is spent."""
        fewest, budget = self.round_samples, self.round_budget
        if samples >= MAX_SAMPLES or (seconds >= budget and (samples >= fewest or seconds >= 3 * budget)):
            return True
        if wanted is not None:
            return samples >= wanted
        return samples in _looks(fewest) and precise(self.precision)

    def another(
        self, done: int, seconds: float, planned: Callable[[float, float], int], *, once: bool
    ) -> bool:
        """Whether the interval may still be too wide, and there is time."""
        if once:
            return done < 1
        if done < self.rounds:  # fewer if they are long, but enough for an interval
            return seconds < self.time_budget * (1 if done >= FEWEST_ROUNDS else 3)
        return done >= FEWEST_ROUNDS and done < planned(self.precision, self.time_budget)

    def least_seconds(self, copy_s: float, sample_s: float, verify_s: float) -> float:
        """The time to find the number of copies, and of the fewest samples of a round, in s."""
        sample = max(copy_s, sample_s)
        return _TRIALS * sample + self.round_samples * (sample + verify_s)

    @property
    def round_samples(self) -> int:
        """Minimum number of samples of a round."""
        return self.fewest_samples if self.rounds < FEWEST_ROUNDS else SCATTER_SAMPLES

    @property
    def round_budget(self) -> float:
        """Maximum time of sampling in one of the first rounds, in s.

        Half of the time is for preparing these rounds and for those that follow from them.
        """
        return self.time_budget if self.rounds == 1 else self.time_budget / (2 * self.rounds)


@lru_cache
def _looks(fewest: int) -> frozenset[int]:
    """The numbers of samples at which their precision is computed: more rarely the more there are."""
    looks = [fewest]
    while looks[-1] < MAX_SAMPLES:
        looks.append(max(looks[-1] + 1, looks[-1] * 5 // 4))
    return frozenset(looks)
