"""Tables of pairs in fewer steps: disjoint pairs concurrently, or only some of the pairs."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from ..measurement import Axis, Measurement, Place
from ..model import Transfer
from .base import Cells, Layout, Plan

#: Key of the table of pairs that are also measured separately, and the maximum number of these pairs. Small
#: groups have none, because every pair with a low value is measured again separately.
ALONE = "alone"
_MAX_SEPARATE_PAIRS = 8

#: Indices of two parties.
Pair = tuple[int, int]


def tournament(parties: int) -> list[list[Pair]]:
    """Rounds of disjoint pairs that together contain every pair exactly once.

    With an odd number, one party has no partner in each round. Source: the circle method for round-robin
    tournaments (Kirkman 1850).

    >>> tournament(4)
    [[(3, 0), (1, 2)], [(3, 1), (2, 0)], [(3, 2), (0, 1)]]
    """
    last = parties - 1 + parties % 2  # with an odd number, no party
    rounds = []
    for turn in range(last):
        pairs = [(last, turn), *(((turn + i) % last, (turn - i) % last) for i in range(1, (last + 1) // 2))]
        rounds.append([pair for pair in pairs if max(pair) < parties])
    return rounds


def peers(parties: int, chosen: int) -> set[int]:
    """The distances from a row to the columns that are measured, evenly spread.

    Each party is a column as often as it is a row. ``chosen`` 0 selects all.

    >>> sorted(peers(9, 2)), len(peers(72, 4)), sorted(peers(4, 9))
    ([1, 5], 4, [1, 2, 3])
    """
    others = parties - 1
    if chosen <= 0 or chosen >= others:
        return set(range(1, parties))
    return {1 + i * others // chosen for i in range(chosen)}


def sampled(cells: Cells, parties: int, chosen: int) -> Cells:
    """The cells of the diagonal and those of sampled peers."""
    kept = peers(parties, chosen)
    return [cell for cell in cells if cell[0] == cell[1] or (cell[1] - cell[0]) % parties in kept]


def at_once(plan: Plan, parties: int, title: str, *, checked: bool) -> Plan:
    """A plan of pairs in rounds.

    Each round has two Measurements, one per direction of its pairs; one if both cells of a pair have the same
    transfers.

    Args:
        plan: A plan with one Measurement per pair.
        parties: Number of parties.
        title: Title of the table, without the unit.
        checked: Whether a few pairs of large groups are also measured separately, to detect blocking.
    """
    by_cell = {(m.places[0].row, m.places[0].column): m for m in plan.measurements}
    local = [m for (row, column), m in by_cell.items() if row == column]
    merged = [_merged(local)] if local else []
    for pairs in tournament(parties):
        one_way, other_way = [], []
        for a, b in pairs:
            forward, backward = by_cell.get((a, b)), by_cell.get((b, a))
            if forward and backward and set(forward.transfers) == set(backward.transfers):
                forward, backward = _filling_both(forward, backward), None
            one_way += [forward] if forward else []
            other_way += [backward] if backward else []
        merged += [_merged(together) for together in (one_way, other_way) if together]
    far = [pair for pair in by_cell if pair[0] != pair[1]]
    far.sort(key=lambda pair: ((pair[1] - pair[0]) % parties, pair))
    step = max(
        1, len(far) // _MAX_SEPARATE_PAIRS + parties // _MAX_SEPARATE_PAIRS
    )  # other rows at other distances
    checks = min(_MAX_SEPARATE_PAIRS, parties // (_MAX_SEPARATE_PAIRS + 1)) if checked else 0
    alone_too = list(dict.fromkeys(far[k * step % len(far)] for k in range(checks))) if far else []
    axis = plan.tables[0].rows if plan.tables else Axis("", ())
    labels = tuple(f"{axis.labels[row]}->{axis.labels[column]}" for row, column in alone_too)
    extra = [_alone(by_cell[pair], i) for i, pair in enumerate(alone_too)]
    if not extra:
        return replace(plan, measurements=tuple(merged))
    columns, unit = Axis("pair", labels), plan.tables[0].unit
    alone = Layout(ALONE, f"{title}, pairs measured separately", Axis("", (ALONE,)), columns, unit)
    return replace(plan, tables=(*plan.tables, alone), measurements=(*merged, *extra))


def _filling_both(kept: Measurement, other: Measurement) -> Measurement:
    """A Measurement that also fills the cells of another one with the same transfers."""
    places = [
        replace(place, transfers=tuple(kept.transfers.index(other.transfers[i]) for i in place.transfers))
        for place in other.places
    ]
    return replace(kept, places=(*kept.places, *places))


def _merged(measurements: Sequence[Measurement]) -> Measurement:
    """Several Measurements merged into one."""
    transfers: list[Transfer] = []
    places: list[Place] = []
    for measurement in measurements:
        first = len(transfers)
        transfers += measurement.transfers
        places += _moved(measurement.places, first)
    return Measurement(tuple(transfers), tuple(places), independent=True)


def _moved(places: Iterable[Place], by: int) -> list[Place]:
    return [replace(place, transfers=tuple(i + by for i in place.transfers)) for place in places]


def _alone(measurement: Measurement, column: int) -> Measurement:
    """A Measurement whose last value, the total, fills the table of separate pairs."""
    place = replace(measurement.places[-1], table=ALONE, row=0, column=column)
    return replace(measurement, places=(place,))
