"""Cells from samples: values, statistics, and the bytes that count."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence

from ..hardware.limits import Allowance, by_transport
from ..measurement import UNSEEN, Measurement, Place, Reduce, kind_of, value_of
from ..model import Role
from ..statistics import interval, median, nearest_rank, summarise
from ..tables import Calls, Cell
from ..units import many
from .sampling import Taken, counting, medians, values_of


def cell_of(
    measurement: Measurement,
    place: Place,
    by_links: Allowance,
    rounds: Sequence[Taken],
    *,
    skip: int,
    use_mean: bool,
) -> Cell:
    """A cell from the samples of its Measurement.

    Its value is the median of the medians of the rounds.

    Args:
        by_links: What the links allow.
        rounds: What was taken in each round.
        skip: Number of leading iterations that statistics leave out.
        use_mean: Whether the value is the mean of the samples; the median otherwise.
    """
    taken = [sample for each in rounds for sample in each.samples]
    wrong = sum(counts) if (counts := [each.wrong for each in rounds if each.wrong is not None]) else None
    samples = counting(taken, place, skip)
    of_rounds = values_of(rounds, measurement, place, skip)
    values = tuple(itertools.chain.from_iterable(of_rounds))
    if place.reduce is Reduce.LATENESS:
        parts = [[lap.by_process[place.transfers[0]] for lap in s.iterations] for s in taken]
    else:
        parts = [[value_of(place, measurement, lap) for lap in s.iterations] for s in samples]
    summary = summarise(values)
    middles = medians(of_rounds)
    value = summary.mean if use_mean else median(sorted(middles))
    if any(parts):  # each iteration was timed: their statistics say more than those of a few runs
        values = tuple(itertools.chain.from_iterable(parts))
        summary = summarise(tuple(itertools.chain.from_iterable(laps[skip:] for laps in parts)))
    first, copies, works = samples[0], rounds[-1].copies, measurement.works
    if measurement.collective:
        moved, copies = float(measurement.collective.counted), round(first.amounts[0])
        wrong = wrong if place.table == "time" else None
    elif place.reduce.is_time:
        moved = 0.0
    else:
        moved = math.fsum(first.amounts[i] * works[i].counted for i in place.transfers) / rounds[0].copies
    means = tuple(dict.fromkeys(first.means[i] for i in place.transfers)) if first.means else ()
    by_links = by_transport(by_links, measurement, place, means)
    of_load = any(t.role is Role.LOAD for i, t in enumerate(measurement.transfers) if i in place.transfers)
    return Cell(
        place.row,
        place.column,
        value,
        **vars(by_links),
        reason=many(wrong, "wrong element") if wrong else "",
        bytes=0 if of_load or place.reduce.is_time else round(moved),
        copies=copies,
        means=means,
        wrong=wrong,
        statistics=summary,
        samples=values,
        rounds=middles if len(middles) > 1 else (),
        interval=None if use_mean else interval(middles, UNSEEN[kind_of(measurement, place)]),
        calls=_calls(rounds) if measurement.moves_lists and not place.reduce.is_time else None,
    )


def _calls(rounds: Sequence[Taken]) -> Calls | None:
    """The times of single calls with a block list in all rounds; None if no call was timed."""
    ordered = sorted(itertools.chain.from_iterable(each.calls for each in rounds))
    if not ordered:
        return None
    first = sorted(each.first for each in rounds if each.first is not None)
    p50, p99 = (nearest_rank(ordered, fraction) for fraction in (0.5, 0.99))
    return Calls(len(ordered), p50, p99, median(first) if first else None)
