"""Sample a prepared Measurement in one round, until the stopping rule ends it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from ..model import Measurement, Reduce, Sample, value_of
from ..stopping import Fixed, Rule
from ..summary import half_width

#: Maximum number of samples of a Measurement, and of copies of a sample.
MAX_SAMPLES, MAX_COPIES = 400, 2**16


@dataclass(frozen=True)
class Taken:
    """The samples of a Measurement in one round.

    Parameters
    ----------
    samples : tuple of Sample
        In the order in which they were taken.
    copies : int
        Number of copies per sample.
    seconds : float
        Time of sampling, with verification, in s.
    """

    samples: tuple[Sample, ...]
    copies: int
    seconds: float = 0.0


def take(
    sample: Callable[[int], Sample],
    measurement: Measurement,
    rule: Rule,
    now: Callable[[], float],
    sample_seconds: float,
    check: Callable[[], None] = lambda: None,
    warm_up: Callable[[], None] | None = None,
    wanted: int | None = None,
) -> Taken:
    """Sample a prepared Measurement until the stopping rule ends the round.

    Parameters
    ----------
    sample : Callable
        Runs every transfer the given number of times and returns the times.
    measurement : Measurement
        What is sampled.
    rule : Rule
        When to stop.
    now : Callable
        Clock of the time budget, in s.
    sample_seconds : float
        Minimum duration of a sample, in s; determines the number of copies.
    check : Callable
        Verifies the data; called after every sample except warm-ups.
    warm_up : Callable or None
        Called before a fixed number of samples; None takes one sample of one copy.
    wanted : int or None
        Number of samples to take within the time budget; None: until their median is precise.

    Returns
    -------
    Taken
        Samples of new buffers have one copy each and no warm-up.
    """
    start = now()
    new, most = measurement.uses_new_buffers, 1 if measurement.happens_once else MAX_SAMPLES
    if isinstance(rule, Fixed):
        if not new:
            (warm_up or (lambda: sample(1)))()
        copies = 1 if new else rule.copies
        fixed: list[Sample] = []
        for _ in range(1 if measurement.happens_once else rule.samples):
            fixed.append(sample(copies))
            check()
        return Taken(tuple(fixed), copies, now() - start)
    copies = 1 if new else _copies(sample, sample_seconds)
    samples: list[Sample] = []
    fewest, budget = rule.round_samples, rule.round_budget
    next_look = fewest
    while len(samples) < most:
        samples.append(sample(copies))
        check()
        spent = now() - start
        if spent >= budget and (len(samples) >= fewest or spent >= 3 * budget):
            break
        if wanted is not None:
            if len(samples) >= wanted:
                break
        elif len(samples) >= next_look:
            if _precise(measurement, samples, rule.precision):
                break
            next_look = max(len(samples) + 1, len(samples) * 5 // 4)
    return Taken(tuple(samples), copies, now() - start)


def _copies(sample: Callable[[int], Sample], sample_seconds: float) -> int:
    """Return the number of copies of a sample that lasts long enough."""
    warm, copies = sample(1), 1
    while copies < MAX_COPIES:
        copies = min(MAX_COPIES, max(copies, round(copies * sample_seconds / max(warm.wall, 1e-9))))
        if warm.wall >= sample_seconds / 2:
            break
        warm = sample(copies)  # a short sample is mostly start-up: measure a longer one
    return copies


def _precise(measurement: Measurement, samples: list[Sample], precision: float) -> bool:
    """Return whether the median of the samples of every value has the required precision."""
    return all(
        half_width([value_of(place, measurement, s) for s in samples]) <= precision
        for place in measurement.places
        if place.reduce is not Reduce.LATENESS  # of the size of noise
    )
