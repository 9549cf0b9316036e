"""What changed on a machine, and since when: its values against its own past.

Where the level of a series of runs changes is found by seeded binary segmentation (S. Kovács, P. Bühlmann, H.
Li and A. Munk, *Seeded binary segmentation*, Biometrika 110 (2023) 249): the statistic of a single change is
computed in intervals of all lengths, which finds short changes in long series; the largest is taken first.
All series of a machine are searched at once.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from math import ceil, exp, expm1, floor, log, sqrt
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..document import Document
from ..measurement import Unit
from ..results.cells import Difference, Key, placed
from ..results.history import FEWEST, CellOf, Past, PastRun
from ..statistics import DEVIATION_OF_MAD, grouped, median
from ..units import many
from .localise import Observation, localise
from .path_kinds import PathKind, path_kind, path_kinds
from .verdict import Verdict

#: Changes at most this many runs apart, and within this fraction of all runs, are one.
_NEAR, _NEAR_FRACTION = 2, 0.01
#: Runs before and after a change whose settings are compared.
_AROUND = 3
#: More devices and links than this explain nothing: the kinds of paths say more.
_MOST_CULPRITS = 3
#: From this fraction of the values of a kind of path on, the kind is what changed, not a device.
_NEARLY_ALL = 0.8
#: A speed within this of what it was before a change has returned.
_RETURNED = 0.01
#: An array of float64.
_Array = NDArray[np.float64]
#: Fewest runs in which a change is looked for.
FEWEST_RUNS = 8
#: Smallest relative change that is one.
_LEAST_CHANGE = 0.005
#: Values further from their neighbours than this many deviations count as that far.
_CLIPPED = 3.0
#: Smallest deviation from run to run that is assumed, relative to the value: rounds of equal values occur.
_LEAST_DEVIATION = 5e-4
#: The statistic of a change must exceed ``(a + b ln runs) (1 + c / runs)``: more runs have more places for
#: it, and the deviation of few is uncertain. Calibrated by simulation: below 1 false alarm in 400 series of
#: 8 to 2,000 runs of independent noise (benchmarks/history.py).
_THRESHOLD, _MORE, _FEW = 3.6, 0.17, 10.0
#: Lengths of the intervals are divided by this from step to step.
_DECAY = sqrt(2)


@dataclass(frozen=True)
class Event:
    """Cells that changed together, or drift.

    Attributes:
        run: Index of the first run after the change; of the first run at all for a drift.
        since: When that run started, as ISO 8601 text.
        ratio: Geometric mean of speed after over speed before.
        cells: Indices of the cells.
        kinds: The kinds of paths of the cells.
        culprits: The devices or links that explain it.
        differences: What else changed then.
        is_drift: Whether it is slow, over all runs.
        until: When the speed was back, as ISO 8601 text; empty if it is not.
        is_whole: Whether all values of these kinds of paths changed.
    """

    run: int
    since: str
    ratio: float
    cells: tuple[int, ...]
    kinds: tuple[PathKind, ...]
    culprits: tuple[str, ...] = ()
    differences: tuple[Difference, ...] = ()
    is_drift: bool = False
    until: str = ""
    is_whole: bool = False

    @property
    def is_worse(self) -> bool:
        """Whether the cells became slower."""
        return self.ratio < 1

    @property
    def lasts(self) -> bool:
        """Whether the cells are still slower."""
        return self.is_worse and not self.until


@dataclass(frozen=True)
class KindHistory:
    """The history of a kind of path.

    Attributes:
        kind: The kind.
        cells: Indices of its cells.
        unit: Unit of the values.
        speeds: For each run the geometric mean of the speeds of its cells, relative to their medians; nan
            without a value.
        last: Median of its values in the latest run that has any, in base units.
        failing: Number of its values that failed in the latest run.
    """

    kind: PathKind
    cells: tuple[int, ...]
    unit: Unit
    speeds: tuple[float, ...]
    last: float
    failing: int = 0


@dataclass(frozen=True)
class MachineHistory:
    """The history of a machine, judged.

    Attributes:
        past: Its runs.
        kinds: Each kind of path.
        events: What changed, the latest first.
        replaced: When which GPU came in place of which: start of the run, text.
    """

    past: Past
    kinds: tuple[KindHistory, ...]
    events: tuple[Event, ...]
    replaced: tuple[tuple[str, str], ...]

    @cached_property
    def latest(self) -> Document:
        """The latest run."""
        return self.past.latest

    def of(self, kind: PathKind) -> list[Event]:
        """The events of a kind of path, the latest first."""
        return [event for event in self.events if kind in event.kinds]


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


def judged(past: Past) -> MachineHistory:
    """Find what changed in the runs of a machine."""
    more = np.array([Unit(cell.unit).more_is_better for cell in past.cells])
    speeds = np.where(more, past.values, 1 / past.values)  # of which more is better
    events = [*_events(past, speeds)]
    events.sort(key=lambda event: (event.run, -abs(log(event.ratio))), reverse=True)
    return MachineHistory(past, tuple(_kinds(past, speeds)), tuple(events), tuple(_replaced(past.runs)))


def _kind_of(past: Past, cell: CellOf) -> PathKind:
    collectives = {result.name for result in past.latest.testcases if result.collective}
    return path_kind(cell.testcase, collective=cell.testcase in collectives)


def _kinds(past: Past, speeds: _Array) -> Iterator[KindHistory]:
    """Yield each kind of path that was measured, in the order of screens."""
    by_kind = grouped((_kind_of(past, cell), i) for i, cell in enumerate(past.cells))
    for kind in sorted(by_kind, key=path_kinds().index):
        cells = by_kind[kind]
        rates = [i for i in cells if past.cells[i].unit == Unit.RATE]
        figures = ([i for i in rates if past.cells[i].testcase in group] for group in kind.key_figures)
        chosen = next(filter(None, figures), cells)
        unit = Counter(past.cells[i].unit for i in chosen).most_common(1)[0][0]
        chosen = [i for i in chosen if past.cells[i].unit == unit]
        part = speeds[:, chosen]
        has_any = ~np.isnan(part).all(axis=1)
        if not has_any.any():
            continue
        logs = np.log(part / np.nanmedian(part, axis=0))
        means = np.full(len(part), np.nan)
        means[has_any] = np.nanmean(logs[has_any], axis=1)
        last = past.values[np.flatnonzero(has_any)[-1], chosen]
        values = tuple(float(value) for value in np.exp(means))
        failed = past.runs[-1].verdicts.get(Verdict.FAIL, ())
        failing = len({past.cells[i] for i in cells} & {*failed})
        yield KindHistory(kind, tuple(cells), Unit(unit), values, float(np.nanmedian(last)), failing)


def _events(past: Past, speeds: _Array) -> Iterator[Event]:
    """Yield the changes and drifts, each with all cells that take part."""
    steps: list[_Step] = []
    drifts: dict[bool, list[tuple[int, float]]] = {}
    levels: dict[int, list[tuple[int, float]]] = {}
    for cells, present in _alike(speeds):
        for cell, course in zip(cells, courses(speeds[present][:, cells]), strict=True):
            levels[cell] = [(int(present[level.start]), level.value) for level in course.levels]
            steps += [
                _Step(int(present[after.start]), cell, after.value / before.value, after.strength)
                for before, after in pairwise(course.levels)
            ]
            if course.slope:
                drifts.setdefault(course.slope > 0, []).append((cell, 1 + course.slope))
    near = max(_NEAR, round(_NEAR_FRACTION * len(speeds)))
    certain = threshold(*speeds.shape)
    for group in _together(steps, near):
        if len(group) == 1 and group[0].strength < certain:  # one of many series, in which chance does it
            continue
        run = Counter(step.run for step in group).most_common(1)[0][0]
        yield _event(past, run, {step.cell: step.ratio for step in group}, levels)
    for moved in drifts.values():
        yield _event(past, 0, dict(moved), levels, is_drift=True)


def _alike(speeds: _Array) -> Iterator[tuple[list[int], NDArray[np.int64]]]:
    """Yield the cells that the same runs have, with these runs."""
    has_value = ~np.isnan(speeds)
    masks = grouped((has_value[:, cell].tobytes(), cell) for cell in range(speeds.shape[1]))
    for cells in masks.values():
        if len(present := np.flatnonzero(has_value[:, cells[0]])):
            yield cells, present


class _Step(NamedTuple):
    """A change of one cell: index of its first run, the cell, speed after over before, and its statistic."""

    run: int
    cell: int
    ratio: float
    strength: float


def _together(steps: Sequence[_Step], near: int) -> Iterator[list[_Step]]:
    """Yield the changes in one direction that are near in time."""
    for is_better in (False, True):
        group: list[_Step] = []
        for step in sorted(step for step in steps if (step.ratio > 1) is is_better):
            if group and step.run - group[-1].run > near:
                yield group
                group = []
            group.append(step)
        if group:
            yield group


def _event(
    past: Past, run: int, ratios: dict[int, float], levels: dict[int, list[tuple[int, float]]], *,
    is_drift: bool = False,
) -> Event:  # fmt: skip
    ratio = exp(sum(map(log, ratios.values())) / len(ratios))
    found = {_kind_of(past, past.cells[cell]) for cell in ratios}
    kinds = tuple(sorted(found, key=path_kinds().index))
    cells = tuple(sorted(ratios))
    if is_drift:
        return Event(run, past.runs[run].started, ratio, cells, kinds, is_drift=True)
    around = ~np.isnan(past.values[max(0, run - _AROUND) : run + _AROUND]).all(axis=0)
    of_kinds = sum(_kind_of(past, past.cells[i]) in found for i in np.flatnonzero(around))
    culprits = tuple(_culprits(past, ratios)) if len(cells) < _NEARLY_ALL * of_kinds else ()
    return Event(
        run, past.runs[run].started, ratio, cells, kinds,
        culprits if len(culprits) <= _MOST_CULPRITS else (),
        tuple(_differences(past.runs, run)),
        until="" if ratio > 1 else _until(past, run, ratios, levels),
        is_whole=len(cells) >= of_kinds,
    )  # fmt: skip


def _until(past: Past, run: int, ratios: dict[int, float], levels: dict[int, list[tuple[int, float]]]) -> str:
    """When most of the cells were as fast again as before a run; empty if they are not."""
    back: list[int] = []
    for cell in ratios:
        before = [value for start, value in levels[cell] if start < run - _NEAR]
        after = [start for start, value in levels[cell]
                 if start > run + _NEAR and before and value >= before[-1] * (1 - _RETURNED)]  # fmt: skip
        back += after[:1]
    return past.runs[int(median(sorted(back)))].started if 2 * len(back) > len(ratios) else ""


def _culprits(past: Past, ratios: dict[int, float]) -> Iterator[str]:
    """Yield the links and devices of the machine of today that explain a change."""
    indices = {past.key(cell): i for i, cell in enumerate(past.cells)}
    observations, places = list[Observation](), list[Key]()
    is_worse = next(iter(ratios.values())) < 1
    for place in placed(past.latest):
        cell = indices.get(place.key)
        if cell is None or not place.cell.links:
            continue
        ratio = ratios.get(cell, 1.0)
        low = cell in ratios
        speed = min(1.0, ratio if is_worse else 1 / ratio)
        observations.append(Observation(len(places), speed, 1.0, place.cell.links, low))
        places.append(place.key)
    if not any(observation.low for observation in observations):
        return
    yield from (str(culprit) for culprit in localise(past.latest.machine, observations))


def _differences(runs: Sequence[PastRun], run: int) -> Iterator[Difference]:
    """Yield what the runs before and after a change were made with that differs."""
    before, after = runs[max(0, run - _AROUND) : run], runs[run : run + _AROUND]
    for name in dict.fromkeys(name for one in (*before, *after) for name in one.texts):
        first, second = ({one.texts.get(name, "") for one in side} for side in (before, after))
        if first and second and not first & second:
            yield Difference(name, ", ".join(sorted(first)), ", ".join(sorted(second)))


def _replaced(runs: Sequence[PastRun]) -> Iterator[tuple[str, str]]:
    """Yield when a GPU came in place of another one."""
    known: dict[str, str] = {}
    for run in runs:
        gpus = {name: text for name, text in run.texts.items() if name.startswith("GPU ") and "GPU-" in text}
        for name, text in gpus.items():
            if name in known and known[name] != text and known[name] not in gpus.values():
                (model, _, uuid), (new, _, other) = known[name].rpartition(" "), text.rpartition(" ")
                models = f"{model} → {new}, " if model != new else ""
                yield run.started, f"{name.replace('GPU ', 'gpu')} was replaced: {models}{uuid} → {other}"
        known |= gpus


def summary(history: MachineHistory) -> str:
    """What to know first: the changes that last."""
    lasting = [event for event in history.events if event.lasts]
    if not history.kinds:
        return "no value counts: in all runs other processes used the devices, or nothing was measured"
    if len(history.past.runs) < FEWEST_RUNS:
        return f"too few runs to see a change: {FEWEST_RUNS} are needed"
    if not lasting:
        return "no kind of path is slower than it was"
    worst = min(lasting, key=lambda event: event.ratio)
    return f"{where(worst)}: {change(worst)} since {day(worst.since)}{because(worst)}"


def where(event: Event) -> str:
    """The culprits of a change, or the kinds of paths, and how many values changed."""
    kinds = ", ".join(map(str, event.kinds))
    values = many(len(event.cells), "value")
    extent = f"all {values}" if event.is_whole and len(event.cells) > 1 else values
    return f"{', '.join(event.culprits)} ({extent} of {kinds})" if event.culprits else f"{kinds} ({extent})"


def change(event: Event) -> str:
    """The change in percent, with its sign."""
    return f"{event.ratio - 1:+.1%}".replace("-", "−")


def because(event: Event) -> str:
    """The first of what else changed, after a colon; empty if nothing did."""
    first = next(iter(event.differences), None)
    return f": {first}" if first else ""


def day(started: str) -> str:
    """The day of an ISO 8601 text."""
    return started[:10]


def courses(values: _Array) -> list[Course]:
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
    steps = np.median(np.abs(np.diff(logs, axis=0)), axis=0)  # between neighbours
    deviation: _Array = np.maximum(DEVIATION_OF_MAD * steps / sqrt(2), _LEAST_DEVIATION)
    scaled = _clipped(logs, deviation) / deviation
    found = _candidates(scaled)
    return [_course(logs[:, i], scaled[:, i], float(deviation[i]), found[i]) for i in range(series)]


def threshold(runs: int, series: int = 1) -> float:
    """The least statistic of a change, for the number of runs and the number of series that are searched."""
    return (_THRESHOLD + _MORE * log(max(1, runs * series))) * (1 + _FEW / runs)


def _clipped(logs: _Array, deviation: _Array) -> _Array:
    """The series without outliers: values far from the median of their neighbours are moved towards it."""
    padded = np.pad(logs, ((2, 2), (0, 0)), mode="reflect")
    around = np.median([padded[i : i + len(logs)] for i in range(5)], axis=0)
    most = _CLIPPED * deviation
    clipped: _Array = around + np.clip(logs - around, -most, most)
    return clipped


def _candidates(scaled: _Array) -> list[list[tuple[float, int, int, int]]]:
    """For each series the changes above the threshold: statistic, first and end of the interval, place."""
    runs, series = scaled.shape
    least = threshold(runs)
    found: list[list[tuple[float, int, int, int]]] = [[] for _ in range(series)]
    sums = np.vstack([np.zeros(series), np.cumsum(scaled - scaled.mean(axis=0), axis=0)])
    for first, end in _intervals(runs):
        length = end - first
        before = np.arange(FEWEST, length - FEWEST + 1, dtype=np.float64)[:, None]
        total = sums[end] - sums[first]
        statistic = sums[first + FEWEST : end - FEWEST + 1] - sums[first]
        statistic -= before * (total / length)
        np.abs(statistic, out=statistic)
        statistic *= np.sqrt(length / (before * (length - before)))
        places = statistic.argmax(axis=0)
        largest = statistic[places, np.arange(series)]
        for i in np.flatnonzero(largest > least):
            found[i].append((float(largest[i]), first, end, first + FEWEST + int(places[i])))
    return found


def _intervals(runs: int) -> Iterator[tuple[int, int]]:
    """The seeded intervals: of each length as many as overlap by half."""
    length = float(runs)
    while (whole := ceil(length)) >= 2 * FEWEST:
        number = 2 * ceil(runs / length) - 1
        shift = (runs - whole) / (number - 1) if number > 1 else 0.0
        yield from ((floor(k * shift), floor(k * shift) + whole) for k in range(number))
        length /= _DECAY


def _course(
    logs: _Array, scaled: _Array, deviation: float, candidates: Sequence[tuple[float, int, int, int]]
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


def _confirmed(scaled: _Array, deviation: float, places: list[int]) -> tuple[list[int], list[float]]:
    """The changes between levels that differ enough, with their statistics."""
    while places:  # the weakest is dropped until all are strong enough
        edges = [0, *places, len(scaled)]
        strengths = []
        for a, b, c in zip(edges, edges[1:], edges[2:], strict=False):
            step = abs(float(scaled[a:b].mean() - scaled[b:c].mean()))
            statistic = step / sqrt(1 / (b - a) + 1 / (c - b))
            strengths.append(statistic if step * deviation >= _LEAST_CHANGE else 0.0)
        weakest = min(range(len(places)), key=strengths.__getitem__)
        if strengths[weakest] > threshold(len(scaled)):
            return places, strengths
        del places[weakest]
    return [], []


def _drift(scaled: _Array, edges: Sequence[int], middles: Sequence[float], deviation: float) -> float:
    """The relative change of a series that a line describes better than levels do, by BIC; else 0."""
    runs = len(scaled)
    time = np.arange(runs) - (runs - 1) / 2
    slope = float(time @ scaled / (time @ time))
    of_line = float(((scaled - scaled.mean() - slope * time) ** 2).sum())
    of_levels = sum(
        float(((scaled[a:b] - m) ** 2).sum()) for a, b, m in zip(edges, edges[1:], middles, strict=False)
    )
    levels = len(middles)
    line = runs * log(of_line / runs) + 2 * log(runs)
    steps = runs * log(of_levels / runs) + (2 * levels - 1) * log(runs)
    return expm1(slope * (runs - 1) * deviation) if line < steps else 0.0
