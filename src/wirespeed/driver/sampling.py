"""Sample a prepared Measurement in one round, until the stopping rule ends it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from ..measurement import Measurement, Reduce, Sample, value_of
from ..stopping import Rule
from ..summary import half_width

#: Maximum number of copies of a sample, unless it is fixed.
MAX_COPIES = 2**16


@dataclass(frozen=True)
class Taken:
    """The samples of a Measurement in one round.

    Attributes:
        samples: In the order in which they were taken.
        copies: Number of copies per sample.
        seconds: Time of sampling, with verification, in s.
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
    start, samples = now(), list[Sample]()
    if measurement.uses_new_buffers:
        copies = 1
    elif rule.copies is not None:
        warm_up()
        copies = rule.copies
    else:
        copies = _copies(sample, sample_seconds)
    while True:
        samples.append(sample(copies))
        check()
        precise = partial(_precise, measurement, samples)
        if measurement.happens_once or rule.done(len(samples), now() - start, precise, wanted):
            return Taken(tuple(samples), copies, now() - start)


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
        if place.reduce is not Reduce.LATENESS  # of the size of noise
    )
