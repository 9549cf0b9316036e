"""Cells from samples: values, statistics, and the bytes that count."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence

from ..limits import Allowance
from ..measurement import Measurement, Place, Reduce, value_of
from ..model import Role
from ..summary import interval, median, summarise
from ..tables import Cell
from ..units import many
from ..variation import UNSEEN, kind_of
from .rounds import Rounds, counting


def cell_of(
    measurement: Measurement,
    place: Place,
    by_links: Allowance,
    rounds: Rounds,
    *,
    skip: int,
    use_mean: bool,
) -> Cell:
    """A cell from the samples of its Measurement.

    Its value is the median of the medians of the rounds.

    Args:
        by_links: What the links allow.
        rounds: The samples of all rounds, and the number of wrong elements of a collective.
        skip: Number of leading iterations that statistics leave out.
        use_mean: Whether the value is the mean of the samples; the median otherwise.
    """
    taken, wrong = rounds.combined, rounds.wrong
    samples = counting(taken.samples, place, skip)
    values = tuple(value_of(place, measurement, sample) for sample in samples)
    if place.reduce is Reduce.LATENESS:
        parts = [[lap.by_process[place.transfers[0]] for lap in s.iterations] for s in taken.samples]
    else:
        parts = [[value_of(place, measurement, lap) for lap in s.iterations] for s in samples]
    summary = summarise(values)
    medians = rounds.medians(place, skip)
    value = summary.mean if use_mean else median(sorted(medians))
    if any(parts):  # each iteration was timed: their statistics say more than those of a few runs
        values = tuple(itertools.chain.from_iterable(parts))
        summary = summarise(tuple(itertools.chain.from_iterable(laps[skip:] for laps in parts)))
    first, copies, works = samples[0], taken.copies, measurement.works
    if measurement.collective:
        moved, copies = float(measurement.collective.counted), round(first.amounts[0])
        wrong = wrong if place.table == "time" else None
    elif place.reduce is Reduce.LATENCY:
        moved = 0.0
    else:
        moved = math.fsum(first.amounts[i] * works[i].counted for i in place.transfers) / copies
    paced = any(t.role is Role.LOAD for i, t in enumerate(measurement.transfers) if i in place.transfers)
    return Cell(
        place.row,
        place.column,
        value,
        **vars(by_links),
        reason=many(wrong, "wrong element") if wrong else "",
        bytes=0 if paced or place.reduce is Reduce.LATENCY else round(moved),
        copies=copies,
        means=_means(place.transfers, first.means),
        wrong=wrong,
        statistics=summary,
        samples=values,
        rounds=medians if len(medians) > 1 else (),
        interval=None if use_mean else interval(medians, UNSEEN[kind_of(measurement, place)]),
        expect=place.expect,
    )


def _means(transfers: Sequence[int], means: Sequence[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(means[i] for i in transfers)) if means else ()
