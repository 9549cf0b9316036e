"""The cells of a judged run whose values can be predicted, with their ratios to normal."""

from __future__ import annotations

from dataclasses import dataclass

from ..document import Document
from ..measurement import Measurement
from ..results.cells import Key, Placed, placed
from .expectations import planned
from .peers import ComparableCells, normal_of
from .verdict import Verdict
from .verdicts import Check

#: Lower ratios to normal, measured or predicted, count as this one, because 0 has no logarithm.
SLOWEST = 1e-6


@dataclass(frozen=True)
class Seen:
    """A measured cell.

    Attributes:
        key: Location of the cell.
        group: Equal for cells that are comparable.
        typical, ratio: Value over the typical value of the expected range, and over that of the better
            comparable cells, if these are as expected.
        slow: Whether it is slow.
        links: Links of the cell, as in ``Allowance``.
        measurement: How it was measured.
        place: Index of its Place.
    """

    key: Key
    group: int
    typical: float
    ratio: float
    slow: bool
    links: tuple[tuple[int, float, float], ...]
    measurement: Measurement
    place: int


def slow_keys(check: Check) -> frozenset[Key]:
    """Cells whose value is worse than expected."""
    return frozenset(
        judgement.key
        for judgement in check.judgements
        if judgement.verdict.is_worse and judgement.value is not None
    )


def seen_cells(document: Document, check: Check) -> list[Seen]:
    """Return the cells whose value can be predicted, with their ratios to normal.

    Normal is what the better quarter of comparable cells reaches, if that is as expected; else the typical
    value of the expected range.
    """
    slow, plans, peers = slow_keys(check), planned(document), ComparableCells(document.machine)
    judgements = {judgement.key: judgement for judgement in check.judgements}
    groups: dict[object, list[tuple[Placed, tuple[float, float, float]]]] = {}
    for measured in placed(document):
        cell, judgement = measured.cell, judgements.get(measured.key)
        if judgement is None or judgement.verdict is Verdict.BUSY:
            continue
        value, limit, normal, least = cell.value, cell.limit, judgement.normal, judgement.least
        if value and limit and normal and least and measured.key._replace(bytes=0) in plans:
            members = groups.setdefault(peers.group(measured, normal), [])
            members.append((measured, (value / limit, normal / limit, least / limit)))
    seen = []
    for number, members in enumerate(groups.values()):
        best = normal_of(sorted(reached for _, (reached, _, _) in members)) or 0.0
        for (key, cell, _, _), (reached, normal, least) in members:
            good = best if best >= least else normal
            typical, ratio = (max(reached / usual, SLOWEST) for usual in (normal, good))
            where = plans[key._replace(bytes=0)]
            seen.append(Seen(key, number, typical, ratio, key in slow, cell.links, *where))
    return seen
