"""Take samples of a prepared Measurement until a stopping rule is met."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from ..model import Measurement, Reduce, Sample, value_of
from ..stopping import Fixed, Rule
from ..summary import half_width, summarise

_MOST_SAMPLES = 400
_MOST_COPIES = 2**16


@dataclass(frozen=True)
class Taken:
    """The samples of a Measurement and the copies that each made."""

    samples: tuple[Sample, ...]
    copies: int


def take(
    sample: Callable[[int], Sample],
    measurement: Measurement,
    rule: Rule,
    now: Callable[[], float],
    sample_seconds: float,
    check: Callable[[], None] = lambda: None,
    warm_up: Callable[[], None] | None = None,
) -> Taken:
    """Sample a prepared Measurement until the rule says stop.

    Parameters
    ----------
    sample
        Runs every transfer the given number of times and returns the times.
    now
        The clock of the time budget.
    sample_seconds
        How long a sample must last; the number of copies is chosen so that it does.
    check
        Called after every sample but warm-ups; verifies the data.
    warm_up
        Called before a fixed number of samples; None: one sample of one copy.

    Where samples are of new buffers each is one copy, and nothing is warmed up.
    """
    start = now()
    new, most = measurement.uses_new_buffers, 1 if measurement.happens_once else _MOST_SAMPLES
    if isinstance(rule, Fixed):
        if not new:
            (warm_up or (lambda: sample(1)))()
        copies = 1 if new else rule.copies
        fixed: list[Sample] = []
        for _ in range(1 if measurement.happens_once else rule.samples):
            fixed.append(sample(copies))
            check()
        return Taken(tuple(fixed), copies)
    copies = 1 if new else _copies(sample, sample_seconds)
    samples: list[Sample] = []
    fewest = rule.fewest_samples
    next_look = fewest
    while len(samples) < most:
        samples.append(sample(copies))
        check()
        spent = now() - start
        if spent >= rule.time_budget and (len(samples) >= fewest or spent >= 3 * rule.time_budget):
            break
        if len(samples) >= next_look:
            if _precise(measurement, samples, rule.precision):
                break
            next_look = max(len(samples) + 1, len(samples) * 5 // 4)
    return Taken(tuple(samples), copies)


def _copies(sample: Callable[[int], Sample], sample_seconds: float) -> int:
    """Return how many copies a sample must have to last long enough."""
    warm, copies = sample(1), 1
    while copies < _MOST_COPIES:
        copies = min(_MOST_COPIES, max(copies, round(copies * sample_seconds / max(warm.wall, 1e-9))))
        if warm.wall >= sample_seconds / 2:
            break
        warm = sample(copies)  # what a short sample lasts is mostly the start: measure a longer one
    return copies


def _precise(measurement: Measurement, samples: list[Sample], precision: float) -> bool:
    """Whether every value that the Measurement yields is known well enough."""
    return all(
        half_width(summarise([value_of(place, measurement, s) for s in samples])) <= precision
        for place in measurement.places
        if place.reduce is not Reduce.LATENESS  # as small as noise
    )
