"""Sample a prepared Measurement in rounds, until the stopping rule ends it; alone, or with other pairs.

A run measures everything in rounds, each with new buffers, because values differ between rounds by more than
the samples of one round show (T. Kalibera and R. Jones, *Rigorous Benchmarking in Reasonable Time*, ISMM
2013; A. Abedi and T. Brecht, *Conducting Repeatable Experiments in Highly Variable Cloud Computing
Environments*, ICPE 2017). Pairs that share nothing run together: which can, which look low, and which slowed
each other down. Transfers of one Measurement are checked for having run at the same time.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache, partial
from itertools import chain, pairwise
from statistics import fmean

from ..data import efficiencies
from ..hardware.devices import is_host
from ..hardware.limits import allowances, undisturbed
from ..hardware.network import Network
from ..measurement import Measurement, Place, Reduce, Sample, value_of
from ..model import Executor, Memory, Role, Transfer
from ..statistics import MAX_SAMPLES, SCATTER_SAMPLES, Rule, half_width, median, rounds_for, sample_interval
from ..tables import Cell, Table
from ..testcases.patterns import ALONE
from ..units import many

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
    """The times of single calls with a block list, in s: those of the samples, or of further calls."""
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
    """The variance of independent samples over that of rounds; infinite if only samples vary.

    The variance between the medians of rounds contains that of their samples, which is subtracted.
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


#: Transfers ran one after another if each needed this fraction of its typical time after the one before it
#: had ended, and the first one ended no later than this multiple of its typical time.
_LEAST, _MOST = 0.9, 1.15
#: Only ends that are far apart are evidence: the earlier one at this fraction of the later one, or more.
_NEAR = 0.2
#: Typical fraction of the limit where no range is known.
_TYPICAL = 0.8


def one_after_another(network: Network, measurement: Measurement, samples: Sequence[Sample]) -> str:
    """A warning if the measured transfers ran one after another; empty if they ran together.

    Transfers that start together and share a link end at the same time, or later ones end within less time
    than they need separately. If a queue or an engine serialises them, each ends a whole duration after
    the one before it. Those that were to begin after the end of another one are not concurrent: no warning.
    Nor is there one for totals that are as high as expected: several copies from one GPU to others take turns
    at its links, and fill them all the same.

    Args:
        network: Links of the machine, for the typical duration of each transfer without others.
        measurement: Transfers that start together.
        samples: Its samples.
    """
    works = measurement.transfers
    measured = [
        i for i, work in enumerate(works) if work.role is Role.MEASURED and not work.operation.is_latency
    ]
    if len(measured) < 2 or measurement.is_mixed:
        return ""
    start = {i: works[i].start for i in measured}
    ends = sorted((start[i] + statistics.median(s.seconds[i] for s in samples), i) for i in measured)
    first, earliest = ends[0]
    needed = cache(lambda i: _alone(network, measurement, i, samples[0]))  # computed where times are apart
    serial = all(
        _gpus(works[i]) & _gpus(works[j])  # only those of one GPU share a queue: else, a link is slow
        and before >= _NEAR * later and 0 < _LEAST * needed(i) <= later - before
        and (not start[i] or later - start[i] >= _MOST * needed(i))
        for (before, j), (later, i) in pairwise(ends)
    ) and first - start[earliest] <= _MOST * needed(earliest)  # fmt: skip
    # Copy engines start the clock of a transfer when its turn comes: its duration does not show the wait.
    begin = min(start.values())
    queued = all(
        s.wall >= _LEAST * math.fsum(s.seconds[i] for i in measured)
        and s.wall > _MOST * (max(t.start + own for t, own in zip(works, s.seconds, strict=True)) - begin)
        for s in samples
    )
    if not (serial or queued) or _costs_nothing(network, measurement, samples):
        return ""
    order = ", then ".join(works[i].way for _, i in ends[:3]) + (", ..." if len(ends) > 3 else "")
    if not queued:  # a link at half its rate looks the same
        return (
            f"transfers that started together ended one after another ({order}): either they "
            "share a queue or a copy engine (try the engine sm), or the later ones are slow by themselves "
            "(measure each separately)"
        )
    return (
        f"transfers that started together ran one after another ({order}): their rates are not those of "
        "concurrent transfers; they may share a queue or a copy engine, so try the engine sm"
    )


def _costs_nothing(network: Network, measurement: Measurement, samples: Sequence[Sample]) -> bool:
    """Whether all values are totals (all bytes over the time until the last end), as high as expected."""
    allowed = allowances(network, measurement, efficiencies())
    return all(
        place.reduce is Reduce.WALL and by.expected is not None
        and statistics.median(value_of(place, measurement, s) for s in samples) >= by.expected[0]
        for place, by in zip(measurement.places, allowed, strict=True)
    )  # fmt: skip


def _gpus(work: Transfer) -> set[str]:
    """The GPUs whose queues or copy engines a transfer may use."""
    ends: tuple[Memory | Executor, ...] = (*work.ends, work.executor)
    return {f"{end.rank}/{end.device}" for end in ends if not is_host(end.device)}


def _alone(network: Network, measurement: Measurement, index: int, sample: Sample) -> float:
    """The typical duration of a transfer without others, in s; 0 if unknown."""
    work = measurement.transfers[index]
    alone = Measurement((work,), (Place("", 0, 0),))
    (allowed,) = allowances(network, alone, efficiencies())
    rate = allowed.expected[1] if allowed.expected else (allowed.limit or 0.0) * _TYPICAL
    return sample.amounts[index] * work.counted / rate if rate else 0.0


#: A pair with a value below its typical value by more than this fraction is measured again.
LOW_FRACTION = 0.05

#: Relative differences below this are noise.
NOISE_FRACTION = 0.02


def scheduled(network: Network, measurements: Sequence[Measurement]) -> list[Measurement]:
    """Split Measurements so that pairs run together only if the links give each its full rate."""
    runs: list[Measurement] = []
    for measurement in measurements:
        apart = measurement.independent and not undisturbed(network, measurement)
        runs += measurement.separate() if apart else [measurement]
    return runs


def suspects(
    network: Network, pairs: Sequence[Measurement], cells: Mapping[str, Mapping[tuple[int, int], Cell]]
) -> list[Measurement]:
    """The pairs with low values among those that were measured concurrently.

    Low means below the typical value of a single pair, or below the median of similar pairs, by more than
    5%; or without a value, because another pair may have failed.

    Args:
        pairs: The pairs.
        cells: The measured cells, by table, row and column.
    """
    alike: dict[tuple[str, str], list[float]] = {}
    looked = []
    for pair in pairs:
        for place, alone in zip(pair.places, allowances(network, pair, efficiencies()), strict=True):
            value = cells[place.table][place.row, place.column].value
            key = (place.table, f"{alone.limit or 0:.3g}")
            looked.append((pair, place, value, alone.expected[1] if alone.expected else 0.0, key))
            if value is not None:
                alike.setdefault(key, []).append(value)
    low_pairs: dict[Measurement, None] = {}
    for pair, place, value, typical, key in looked:
        median = statistics.median(alike.get(key, [0.0]))
        if value is None:
            low = True
        elif place.reduce.is_time:
            low = value > median * (1 + LOW_FRACTION)
        else:
            low = value < max(median, typical) * (1 - LOW_FRACTION)
        if low:
            low_pairs[pair] = None
    return list(low_pairs)


def blocking(tables: Sequence[Table]) -> str:
    """Which pairs were significantly slower together than separately; empty if none.

    Significantly: the confidence intervals of the medians of their samples, which were taken in the same
    run, do not overlap, and the medians differ by over 2%.
    """
    alone = next((table for table in tables if table.key == ALONE), None)
    others = [table for table in tables if table.key != ALONE]
    if alone is None or not others:
        return ""
    together = others[-1]  # the last of several is the total
    cells = {f"{together.rows.labels[c.row]}->{together.columns.labels[c.column]}": c for c in together.cells}
    slower: list[tuple[float, str]] = []
    compared = 0
    for cell in alone.cells:
        pair = alone.columns.labels[cell.column]
        other = cells.get(pair)
        if other is None or not other.value or not cell.value:
            continue
        compared += 1
        if _apart(other, cell):
            slower.append((1 - other.value / cell.value, pair))
    if not slower:
        return ""
    most, where = max(slower)
    return (
        f"the fabric blocks: {len(slower)} of {compared} pairs that were also measured separately are slower "
        f"while others run, {where} by {most:.0%}; omit --parallel-pairs to measure each pair separately"
    )


def slowed(cells: Sequence[tuple[Cell, Cell]], left: int) -> list[str]:
    """Warnings about pairs that had low values while others ran and were measured again.

    Args:
        cells: For each pair, its cell while others ran, and its cell measured separately.
        left: Number of other low pairs that were not measured again.
    """
    changes = [1 - slow.value / fast.value for slow, fast in cells
               if _apart(slow, fast) and slow.value and fast.value]  # fmt: skip
    warnings = []
    if changes:
        values = f"{many(len(changes), 'value')} {'was' if len(changes) == 1 else 'were'}"
        warnings.append(
            f"{values} up to {max(changes):.0%} slower when run concurrently; measured again one at a time"
        )
    if left:
        warnings.append(f"{left} more pairs look low; not all were measured again one at a time")
    return warnings


def _apart(slow: Cell, fast: Cell) -> bool:
    """Whether one value is significantly below another."""
    if slow.value is None or fast.value is None or not slow.samples or not fast.samples:
        return False
    (_, highest), (lowest, _) = (sample_interval(cell.samples) for cell in (slow, fast))
    return slow.value < (1 - NOISE_FRACTION) * fast.value and highest < lowest
