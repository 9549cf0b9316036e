"""What changed on a machine, and since when: all series of its values are searched for changes of their level
(``change_points.py``). A level needs several runs, so the newest run is also compared with those before it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from importlib import import_module
from itertools import pairwise
from math import exp, log
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ...document import Document
from ...judging.cells_seen import Observation
from ...judging.judge import judge
from ...judging.localise import localise
from ...judging.path_kinds import PathKind, path_kind, path_kinds
from ...judging.verdict import Verdict
from ...measurement import Unit
from ...results.cells import Key, placed
from ...results.settings import Difference
from ...statistics import grouped, median
from ...terminal import Tabular, brief, colored, columns
from ...thresholds.changes import (
    FEWEST_RUNS,
    MOST_CULPRITS,
    NEAR_FRACTION,
    NEAR_RUNS,
    NEARLY_ALL,
    RETURNED,
    RUNS_OF_LEVEL,
    TOLERANCE,
)
from ...units import many
from .change_points import Array, courses, last_step, threshold
from .history_file import Past, PastRun, SeriesKey

#: Runs before and after a change whose settings are compared.
_AROUND = 3
#: Maximum number of runs with which the newest one is compared: more drift, or have several levels.
_RECENT = 10


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
        is_newest: Whether only the newest value of each cell shows it: the next run may be as before.
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
    is_newest: bool = False

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
        figures: Indices of those whose values are shown, which have one unit.
        unit: Unit of the values.
        speeds: For each run the geometric mean of the speeds of its cells, relative to their medians; nan
            without a value.
        last: Median of its values in the latest run that has any, in base units.
        runs: Number of runs that have values; fewer than ``FEWEST_RUNS`` show no change of level.
        failing: Number of its values that failed in the latest run; None if that is not known.
    """

    kind: PathKind
    cells: tuple[int, ...]
    figures: tuple[int, ...]
    unit: Unit
    speeds: tuple[float, ...]
    last: float
    runs: int
    failing: int | None = None

    @property
    def is_judged(self) -> bool:
        """Whether there are enough runs to see a change."""
        return self.runs >= FEWEST_RUNS


@dataclass(frozen=True, eq=False, repr=False)
class MachineHistory(Tabular):
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

    def __repr__(self) -> str:
        kind = " (simulated)" if self.simulated else ""
        runs = many(len(self.past.runs), "run")
        return brief(f"MachineHistory of {self.latest.hostname}{kind}: {runs}; {summary(self)}")

    def __str__(self) -> str:
        """The screen of ``wirespeed history``."""
        forms = import_module(f"{__package__}.text")  # which imports this module
        return str(forms.text(self, forms.Style(columns(), colored())))

    @property
    def simulated(self) -> bool:
        """Whether no hardware was measured."""
        return self.latest.simulated

    @cached_property
    def latest(self) -> Document:
        """The latest run."""
        return self.past.latest

    def of(self, kind: PathKind) -> list[Event]:
        """The events of a kind of path, the latest first."""
        return [event for event in self.events if kind in event.kinds]

    def worst(self, kind: PathKind | None = None) -> Event | None:
        """The largest loss that lasts, of all kinds of paths or of one."""
        lasting = (event for event in self.events if event.lasts and (kind is None or kind in event.kinds))
        return min(lasting, key=lambda event: event.ratio, default=None)

    def value(self, kind: KindHistory) -> float:
        """The median of the latest values of a kind: of those that its worst change made slower, if any."""
        cells = [i for i in worst.cells if i in kind.figures] if (worst := self.worst(kind.kind)) else []
        left = self.past.values[:, cells]
        left = left[~np.isnan(left).all(axis=1)]
        return float(np.nanmedian(left[-1])) if len(left) else kind.last


def judged(past: Past) -> MachineHistory:
    """Find what changed in the runs of a machine."""
    more = np.array([Unit(cell.unit).more_is_better for cell in past.cells])
    speeds = np.where(more, past.values, 1 / past.values)  # of which more is better
    events = [*_events(past, speeds)]
    events.sort(key=lambda event: (event.run, -abs(log(event.ratio))), reverse=True)
    return MachineHistory(past, tuple(_kinds(past, speeds)), tuple(events), tuple(_replaced(past.runs)))


def _kind_of(past: Past, cell: SeriesKey) -> PathKind:
    collectives = {result.name for result in past.latest.testcases if result.collective}
    return path_kind(cell.testcase, collective=cell.testcase in collectives)


def _kinds(past: Past, speeds: Array) -> Iterator[KindHistory]:
    """Yield each kind of path that was measured, in the order of screens."""
    by_kind = grouped((_kind_of(past, cell), i) for i, cell in enumerate(past.cells))
    failed = _failed(past) if by_kind else None
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
        count = int((~np.isnan(past.values[:, cells])).sum(axis=0).max())
        failing = None if failed is None else len({past.key(past.cells[i]) for i in cells} & failed)
        yield KindHistory(
            kind, tuple(cells), tuple(i for i in cells if past.cells[i].unit == unit), Unit(unit), values,
            float(np.nanmedian(last)), count, failing,
        )  # fmt: skip


def _failed(past: Past) -> set[Key] | None:
    """The values that failed in the newest run; None if it was not judged, and is not there to be."""
    newest = past.runs[-1]
    if newest.verdict:
        return {past.key(cell) for cell in newest.verdicts.get(Verdict.FAIL, ())}
    if newest.started != past.latest.started:
        return None
    return {one.key for one in judge(past.latest).judgements if one.verdict is Verdict.FAIL}


def _events(past: Past, speeds: Array) -> Iterator[Event]:
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
    near = max(NEAR_RUNS, round(NEAR_FRACTION * len(speeds)))
    certain = threshold(*speeds.shape)
    for group in _together(steps, near):
        if len(group) == 1 and group[0].strength < certain:  # one of many series, in which chance does it
            continue
        run = Counter(step.run for step in group).most_common(1)[0][0]
        yield _event(past, run, {step.cell: step.ratio for step in group}, levels)
    for moved in drifts.values():
        yield _event(past, 0, dict(moved), levels, is_drift=True)
    for run, ratios in _newest(past, speeds, levels).items():
        yield _event(past, run, ratios, levels, is_newest=True)


def _newest(
    past: Past, speeds: Array, levels: dict[int, list[tuple[int, float]]]
) -> dict[int, dict[int, float]]:
    """The cells that are slower only in the newest run that has them: run -> cell -> speed over before."""
    steps: list[tuple[int, int, int, float, float]] = []
    for cells, present in _alike(speeds):
        last = int(present[-1])
        for cell in cells:
            rows = present[present >= levels[cell][-1][0]][-_RECENT - 1 :]
            if len(rows) > RUNS_OF_LEVEL:
                steps.append((last, cell, len(rows), *last_step(speeds[rows, cell])))
    by_kind = grouped((_kind_of(past, past.cells[step[1]]), step[-1]) for step in steps)
    usual = {kind: median(sorted(deviations)) for kind, deviations in by_kind.items()}
    fallen: dict[int, dict[int, float]] = {}
    certain: set[int] = set()
    for run, cell, runs, step, own in steps:
        deviation = max(own, usual[_kind_of(past, past.cells[cell])])  # that of few runs is uncertain
        if step < log(1 - TOLERANCE) and -step > threshold(runs) * deviation:
            fallen.setdefault(run, {})[cell] = exp(step)
            certain |= {run} if -step > threshold(runs, len(steps)) * deviation else set()
    return {run: cells for run, cells in fallen.items() if len(cells) > 1 or run in certain}


def _alike(speeds: Array) -> Iterator[tuple[list[int], NDArray[np.int64]]]:
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
    is_drift: bool = False, is_newest: bool = False,
) -> Event:  # fmt: skip
    ratio = exp(sum(map(log, ratios.values())) / len(ratios))
    found = {_kind_of(past, past.cells[cell]) for cell in ratios}
    kinds = tuple(sorted(found, key=path_kinds().index))
    cells = tuple(sorted(ratios))
    if is_drift:
        return Event(run, past.runs[run].started, ratio, cells, kinds, is_drift=True)
    around = ~np.isnan(past.values[max(0, run - _AROUND) : run + _AROUND]).all(axis=0)
    of_kinds = sum(_kind_of(past, past.cells[i]) in found for i in np.flatnonzero(around))
    culprits = tuple(_culprits(past, ratios)) if len(cells) < NEARLY_ALL * of_kinds else ()
    return Event(
        run, past.runs[run].started, ratio, cells, kinds,
        culprits if len(culprits) <= MOST_CULPRITS else (),
        tuple(_differences(past.runs, run)),
        until="" if ratio > 1 else _until(past, run, ratios, levels),
        is_whole=len(cells) >= of_kinds,
        is_newest=is_newest,
    )  # fmt: skip


def _until(past: Past, run: int, ratios: dict[int, float], levels: dict[int, list[tuple[int, float]]]) -> str:
    """When most of the cells were as fast again as before a run; empty if they are not."""
    back: list[int] = []
    for cell in ratios:
        before = [value for start, value in levels[cell] if start < run - NEAR_RUNS]
        after = [start for start, value in levels[cell]
                 if start > run + NEAR_RUNS and before and value >= before[-1] * (1 - RETURNED)]  # fmt: skip
        back += after[:1]
    return past.runs[int(median(sorted(back)))].started if 2 * len(back) > len(ratios) else ""


def _culprits(past: Past, ratios: dict[int, float]) -> Iterator[str]:
    """Yield the links and devices of the machine of today that explain a change."""
    indices = {past.key(cell): i for i, cell in enumerate(past.cells)}
    observations: list[Observation] = []
    is_worse = next(iter(ratios.values())) < 1
    for place in placed(past.latest):
        cell = indices.get(place.key)
        if cell is None or not place.cell.links:
            continue
        ratio = ratios.get(cell, 1.0)
        low = cell in ratios
        speed = min(1.0, ratio if is_worse else 1 / ratio)
        observations.append(Observation(len(observations), speed, 1.0, place.cell.links, low))
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
    worst = history.worst()
    if not history.kinds:
        return "no value counts: in all runs other processes used the devices, or nothing was measured"
    judged = [kind for kind in history.kinds if kind.is_judged]
    if worst:
        return f"{where(worst)}: {change(worst)} {when(worst)}{because(worst)}"
    if not judged:
        runs = max(kind.runs for kind in history.kinds)
        return f"not judged: {many(runs, 'run')}, {FEWEST_RUNS} are needed to detect a change"
    if others := [str(kind.kind) for kind in history.kinds if not kind.is_judged]:
        return f"no judged kind of path is slower than it was; too few runs of {', '.join(others)}"
    return "no kind of path is slower than it was"


def when(event: Event) -> str:
    """Since when the speed is another one."""
    return f"in the newest run, {day(event.since)}" if event.is_newest else f"since {day(event.since)}"


def course(history: MachineHistory, kind: KindHistory) -> str:
    """What a kind of path did: its worst change that lasts, or that it is steady, or not judged."""
    if worst := history.worst(kind.kind):
        return f"{change(worst)} {when(worst)}{because(worst)}"
    if not kind.is_judged:
        return f"not judged ({kind.runs} of {FEWEST_RUNS} runs)"
    return "as before" if history.of(kind.kind) else "steady"


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
