"""What a series of runs did: the levels that it had, or its drift. Where the level changes is found by seeded
binary segmentation (S. Kovács, P. Bühlmann, H. Li and A. Munk, *Seeded binary segmentation*, Biometrika 110
(2023) 249): the statistic of a single change is computed in intervals of all lengths, which finds short
changes in long series; the largest is taken first.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import ceil, exp, expm1, floor, log, sqrt

import numpy as np
from numpy.typing import NDArray

from ...statistics import DEVIATION_OF_MAD
from ...thresholds.changes import (
    CLIPPED,
    FEWEST_RUNS,
    LEAST_DEVIATION,
    LEAST_STEP,
    RUNS_OF_LEVEL,
    STEP,
    STEP_OF_FEW,
    STEP_OF_RUNS,
)

#: An array of float64.
Array = NDArray[np.float64]
#: Lengths of the intervals are divided by this from step to step.
_DECAY = sqrt(2)


@dataclass(frozen=True)
class Level:
    """Runs between two changes.

    Attributes:
        start: Index of its first run.
        value: Geometric mean of its values.
        strength: Statistic of the change with which it began; 0 for the first level.
    """

    start: int
    value: float
    strength: float = 0.0


@dataclass(frozen=True)
class Course:
    """What a series did.

    Attributes:
        levels: Its levels, in order; one if it did not change.
        slope: Relative change from its first to its last run, if it drifts slowly; else 0.
    """

    levels: tuple[Level, ...]
    slope: float = 0.0


def courses(values: Array) -> list[Course]:
    """What series did.

    Args:
        values: Positive values, in order of time: a row for each run, a column for each series.

    Returns:
        The course of each series.
    """
    logs = np.log(values)
    runs, series = logs.shape
    if runs < FEWEST_RUNS:
        return [Course((Level(0, float(np.exp(logs[:, i].mean()))),)) for i in range(series)]
    deviation = _deviation(logs)
    scaled = _clipped(logs, deviation) / deviation
    found = _candidates(scaled)
    return [_course(logs[:, i], scaled[:, i], float(deviation[i]), found[i]) for i in range(series)]


def last_step(values: Array) -> tuple[float, float]:
    """How far the last values are from those before, and the deviation of that from run to run.

    Args:
        values: Positive values of one series, in order of time.

    Returns:
        The logarithm of the last value over the median of the others, and its standard deviation.
    """
    earlier, last = np.log(values[:-1, None]), float(np.log(values[-1]))
    return last - float(np.median(earlier)), float(_deviation(earlier)[0]) * sqrt(1 + 1 / len(earlier))


def _deviation(logs: Array) -> Array:
    """The deviation of each series from run to run, from the differences of neighbours."""
    steps = np.median(np.abs(np.diff(logs, axis=0)), axis=0)
    deviation: Array = np.maximum(DEVIATION_OF_MAD * steps / sqrt(2), LEAST_DEVIATION)
    return deviation


def threshold(runs: int, series: int = 1) -> float:
    """The least statistic of a change, for the number of runs and the number of series that are searched."""
    return (STEP + STEP_OF_RUNS * log(max(1, runs * series))) * (1 + STEP_OF_FEW / runs)


def _clipped(logs: Array, deviation: Array) -> Array:
    """The series without outliers: values far from the median of their neighbours are moved towards it."""
    padded = np.pad(logs, ((2, 2), (0, 0)), mode="reflect")
    around = np.median([padded[i : i + len(logs)] for i in range(5)], axis=0)
    most = CLIPPED * deviation
    clipped: Array = around + np.clip(logs - around, -most, most)
    return clipped


def _candidates(scaled: Array) -> list[list[tuple[float, int, int, int]]]:
    """For each series the changes above the threshold: statistic, first and end of the interval, place."""
    runs, series = scaled.shape
    least = threshold(runs)
    found: list[list[tuple[float, int, int, int]]] = [[] for _ in range(series)]
    sums = np.vstack([np.zeros(series), np.cumsum(scaled - scaled.mean(axis=0), axis=0)])
    for first, end in _intervals(runs):
        length = end - first
        before = np.arange(RUNS_OF_LEVEL, length - RUNS_OF_LEVEL + 1, dtype=np.float64)[:, None]
        total = sums[end] - sums[first]
        statistic = sums[first + RUNS_OF_LEVEL : end - RUNS_OF_LEVEL + 1] - sums[first]
        statistic -= before * (total / length)
        np.abs(statistic, out=statistic)
        statistic *= np.sqrt(length / (before * (length - before)))
        places = statistic.argmax(axis=0)
        largest = statistic[places, np.arange(series)]
        for i in np.flatnonzero(largest > least):
            found[i].append((float(largest[i]), first, end, first + RUNS_OF_LEVEL + int(places[i])))
    return found


def _intervals(runs: int) -> Iterator[tuple[int, int]]:
    """The seeded intervals: of each length as many as overlap by half."""
    length = float(runs)
    while (whole := ceil(length)) >= 2 * RUNS_OF_LEVEL:
        number = 2 * ceil(runs / length) - 1
        shift = (runs - whole) / (number - 1) if number > 1 else 0.0
        yield from ((floor(k * shift), floor(k * shift) + whole) for k in range(number))
        length /= _DECAY


def _course(
    logs: Array, scaled: Array, deviation: float, candidates: Sequence[tuple[float, int, int, int]]
) -> Course:
    """The course of one series, from the changes that its intervals show."""
    places: list[int] = []
    for _, first, end, place in sorted(candidates, reverse=True):
        if not any(first < other < end for other in places):
            places.append(place)
    places, strengths = _confirmed(scaled, deviation, sorted(places))
    edges = [0, *places, len(scaled)]
    middles = [float(scaled[a:b].mean()) for a, b in pairwise(edges)]
    if places and (slope := _drift(scaled, edges, middles, deviation)):
        return Course((Level(0, exp(float(logs.mean()))),), slope)
    parts = zip(edges[:-1], middles, (0.0, *strengths), strict=True)
    return Course(tuple(Level(a, exp(m * deviation), strength) for a, m, strength in parts))


def _confirmed(scaled: Array, deviation: float, places: list[int]) -> tuple[list[int], list[float]]:
    """The changes between levels that differ enough, with their statistics."""
    while places:  # the weakest is dropped until all are strong enough
        edges = [0, *places, len(scaled)]
        strengths = []
        for a, b, c in zip(edges, edges[1:], edges[2:], strict=False):
            step = abs(float(scaled[a:b].mean() - scaled[b:c].mean()))
            statistic = step / sqrt(1 / (b - a) + 1 / (c - b))
            strengths.append(statistic if step * deviation >= LEAST_STEP else 0.0)
        weakest = min(range(len(places)), key=strengths.__getitem__)
        if strengths[weakest] > threshold(len(scaled)):
            return places, strengths
        del places[weakest]
    return [], []


def _drift(scaled: Array, edges: Sequence[int], middles: Sequence[float], deviation: float) -> float:
    """The relative change of a series that a line describes better than levels do, by BIC; else 0."""
    runs = len(scaled)
    time = np.arange(runs) - (runs - 1) / 2
    slope = float(time @ scaled / (time @ time))
    of_line = float(((scaled - scaled.mean() - slope * time) ** 2).sum())
    of_levels = sum(
        float(((scaled[a:b] - m) ** 2).sum()) for a, b, m in zip(edges, edges[1:], middles, strict=False)
    )
    if not of_levels:  # the runs of each level are equal
        return 0.0
    levels = len(middles)
    line = runs * log(of_line / runs) + 2 * log(runs)
    steps = runs * log(of_levels / runs) + (2 * levels - 1) * log(runs)
    return expm1(slope * (runs - 1) * deviation) if line < steps else 0.0
