"""Samples of a prepared Measurement, in rounds, until the stopping rule ends them. Each round has new
buffers, because values differ between rounds by more than the samples of one round show (T. Kalibera and R.
Jones, *Rigorous Benchmarking in Reasonable Time*, ISMM 2013; A. Abedi and T. Brecht, *Conducting Repeatable
Experiments in Highly Variable Cloud Computing Environments*, ICPE 2017).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import chain, pairwise
from statistics import fmean

from ..measurement import Measurement, Place, Reduce, Sample, value_of
from ..statistics import MAX_SAMPLES, SCATTER_SAMPLES, Rule, half_width, median, rounds_for

#: Maximum number of copies of a sample, unless it is fixed.
MAX_COPIES = 2**16


@dataclass(frozen=True)
class Taken:
    """The samples of a Measurement in one round.

    Attributes:
        samples: In the order in which they were taken.
        copies: Number of copies per sample.
        seconds: Time of sampling, with verification, in s.
        preparing: Time of the round without sampling, in s.
        wrong: Number of wrong elements; None if nothing was counted.
        first: Time of the first call with a block list in s, which is not in the samples; None without one.
        calls: Times of single calls with a block list, in s.
    """

    samples: tuple[Sample, ...]
    copies: int
    seconds: float = 0.0
    preparing: float = 0.0
    wrong: int | None = None
    first: float | None = None
    calls: tuple[float, ...] = ()


#: A first call with a block list that takes this multiple of a sample shows that one call is a sample.
_LONG_FIRST = 4
#: Single calls with a block list that are timed after the samples if the samples have several copies without
#: a time of each: maximum number, and time after which no further one follows, in s.
_CALLS, _CALLS_S = 100, 0.02


def take(
    sample: Callable[[int], Sample],
    measurement: Measurement,
    rule: Rule,
    now: Callable[[], float],
    sample_seconds: float,
    check: Callable[[], None] = lambda: None,
    warm_up: Callable[[], None] = lambda: None,
    wanted: int | None = None,
) -> Taken:
    """Sample a prepared Measurement until the stopping rule ends the round.

    Args:
        sample: Runs every transfer the given number of times and returns the times.
        measurement: What is sampled.
        rule: When to stop.
        now: Clock of the time budget, in s.
        sample_seconds: Minimum duration of a sample, in s; determines the number of copies.
        check: Verifies the data; called after every sample except warm-ups.
        warm_up: Called before the first sample if the number of copies is fixed.
        wanted: Number of samples to take within the time budget; None: until their median is precise.

    Returns:
        Samples of new buffers have one copy each and no warm-up.
    """
    start, samples, first = now(), list[Sample](), None
    if measurement.uses_new_buffers:
        copies = 1
    elif measurement.moves_lists:
        first = sample(1).wall
        long = first >= _LONG_FIRST * sample_seconds
        copies = rule.copies or (1 if long else _copies(sample, sample_seconds))
    elif rule.copies is not None:
        warm_up()
        copies = rule.copies
    else:
        copies = _copies(sample, sample_seconds)
    while True:
        samples.append(sample(copies))
        check()
        precise = partial(_precise, measurement, samples)
        if measurement.moves_lists and rule.copies is None and len(samples) < SCATTER_SAMPLES:
            continue  # one call can take much longer than others, and fewer samples are not judged
        if measurement.happens_once or rule.done(len(samples), now() - start, precise, wanted):
            calls = _calls(sample, samples, copies, now) if measurement.moves_lists else ()
            return Taken(tuple(samples), copies, now() - start, first=first, calls=calls)


def _calls(
    sample: Callable[[int], Sample], samples: Sequence[Sample], copies: int, now: Callable[[], float]
) -> tuple[float, ...]:
    """The times of single calls with a block list, in s: of the samples, or of further calls."""
    if copies == 1:
        return tuple(each.wall for each in samples)
    if all(each.calls for each in samples):
        return tuple(chain.from_iterable(each.calls for each in samples))
    calls, end = list[float](), now() + _CALLS_S
    while len(calls) < _CALLS and now() < end:
        calls.append(sample(1).wall)
    return tuple(calls)


def _copies(sample: Callable[[int], Sample], sample_seconds: float) -> int:
    """The number of copies of a sample that lasts long enough."""
    warm, copies = sample(1), 1
    while copies < MAX_COPIES:
        copies = min(MAX_COPIES, max(copies, round(copies * sample_seconds / max(warm.wall, 1e-9))))
        if warm.wall >= sample_seconds / 2:
            break
        warm = sample(copies)  # a short sample is mostly start-up: measure a longer one
    return copies


def _precise(measurement: Measurement, samples: list[Sample], precision: float) -> bool:
    """Whether the median of the samples of every value has the required precision."""
    return all(
        half_width([value_of(place, measurement, s) for s in samples]) <= precision
        for place in measurement.places
        if place.reduce not in (Reduce.LATENESS, Reduce.SUBMISSION)  # of the size of noise
    )


#: Maximum number of rounds: with more, the interval gets at most 12% narrower, because runs vary too
#: (``summary.RUN_SHARE``).
WORTH = 16
#: Largest correlation of successive samples that is believed: few samples do not show more.
_MOST_CORRELATION = 0.9


@dataclass
class Rounds:
    """What was taken of a Measurement in all rounds so far.

    Attributes:
        measurement: What is measured, with smaller buffers than planned if there was not enough memory.
        taken: What was taken in each round.
        planned: Number of rounds that the first ones demand; None until they are measured.
        samples: Number of samples of each further round.
        ended: Whether no round follows because one failed.
    """

    measurement: Measurement
    taken: list[Taken] = field(default_factory=list)
    planned: int | None = None
    samples: int | None = None
    ended: bool = False
    _another: tuple[int, bool] = (-1, False)

    def follows(self, rule: Rule) -> bool:
        """Whether another round follows, by the rule of the testcase, which is the same for all rounds."""
        if self.ended:
            return False
        if self._another[0] != len(self.taken):  # asked several times for each round
            # Preparing the first round also loads libraries.
            spent = math.fsum(t.seconds for t in self.taken) + math.fsum(t.preparing for t in self.taken[1:])
            another = rule.another(len(self.taken), spent, self._plan, once=self.measurement.happens_once)
            self._another = len(self.taken), another
        return self._another[1]

    def _plan(self, precision: float, budget: float) -> int:
        """How many rounds there are; determined once, with the number of samples of further ones.

        The number of samples makes the interval narrowest in the time that there is: the square root of the
        costs of a round and of a sample over their variances (Kalibera and Jones, section 6).
        """
        if self.planned is not None:
            return self.planned
        done = len(self.taken)
        unsteady = Reduce.LATENESS, Reduce.SUBMISSION
        places = [place for place in self.measurement.places if place.reduce not in unsteady]
        rounds = [values_of(self.taken, self.measurement, place) for place in places]
        needed = max((rounds_for(medians(values), precision) for values in rounds), default=done)
        sampling = math.fsum(taken.seconds for taken in self.taken)
        taken = sum(len(taken.samples) for taken in self.taken)
        sample_s = sampling / taken
        preparing = median(sorted(taken.preparing for taken in self.taken))
        ratio = max(map(_ratio, rounds), default=0.0)
        best = math.sqrt(preparing / sample_s * ratio) if sample_s > 0 else 0.0
        # Not fewer than before, so that the rounds that follow do not vary more than the first ones.
        self.samples = math.ceil(min(MAX_SAMPLES, max(taken / done, best)))
        cost = preparing + self.samples * sample_s
        affordable = (budget - done * preparing - sampling) / cost if cost > 0 else math.inf
        self.planned = max(
            done, min(math.ceil(min(needed, WORTH)), done + math.floor(min(affordable, WORTH)))
        )
        return self.planned


def values_of(
    taken: Sequence[Taken], measurement: Measurement, place: Place, skip: int = 0
) -> list[list[float]]:
    """The values of the samples of each round, in the unit of the place, without leading iterations."""
    return [
        [value_of(place, measurement, sample) for sample in counting(each.samples, place, skip)]
        for each in taken
    ]


def medians(rounds: Iterable[Iterable[float]]) -> tuple[float, ...]:
    """The median of each round."""
    return tuple(median(sorted(values)) for values in rounds)


def counting(samples: Sequence[Sample], place: Place, skip: int) -> Sequence[Sample]:
    """Samples without the leading iterations that lateness does not count."""
    if place.reduce is not Reduce.LATENESS:
        return samples
    return [replace(sample, iterations=sample.iterations[skip:]) for sample in samples]


def _ratio(rounds: Sequence[Sequence[float]]) -> float:
    """The variance of independent samples over the variance of rounds; infinite if only samples vary.

    The variance between the medians of rounds contains the variance of their samples, which is subtracted.
    """
    within = fmean([_variance(r) * _inflation(r) if len(r) > 1 else 0.0 for r in rounds])
    if not within:
        return 0.0
    number = fmean([len(r) for r in rounds])
    between = _variance([median(sorted(r)) for r in rounds]) - math.pi / 2 * within / number
    return within / between if between > 0 else math.inf


def _variance(values: Sequence[float]) -> float:
    """The variance of a sample. That of the standard library is exact, and takes ten times as long."""
    middle = fmean(values)
    return math.fsum((value - middle) ** 2 for value in values) / (len(values) - 1)


def _inflation(samples: Sequence[float]) -> float:
    """By how much correlation of successive samples increases the variance of their mean.

    The factor (1 + r) / (1 - r) of a process with correlation r of neighbours (AR(1)).
    """
    middle = fmean(samples)
    total = math.fsum((x - middle) ** 2 for x in samples)
    together = math.fsum((x - middle) * (y - middle) for x, y in pairwise(samples))
    r = min(_MOST_CORRELATION, max(0.0, together / total)) if total else 0.0
    return (1 + r) / (1 - r)
