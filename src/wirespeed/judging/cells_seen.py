"""The values of a run beside comparable ones, and what is normal among those."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass

from ..document import Document
from ..features import functions
from ..hardware.link_graph import Demand
from ..hardware.topology import Machine
from ..measurement import Measurement
from ..results.cells import Key, Placed, placed
from ..thresholds.causes import FEWEST_CELLS, NORMAL
from .replanned import planned
from .verdict import Judgement, Verdict


def quantile(ordered: Sequence[float], fraction: float) -> float:
    """A quantile of sorted values, interpolated between neighbours."""
    position = fraction * (len(ordered) - 1)
    i = int(position)
    return ordered[i] + (position - i) * (ordered[min(i + 1, len(ordered) - 1)] - ordered[i])


def normal_of(ordered: Sequence[float]) -> float | None:
    """What the better quarter of some sorted values reaches; None if they are too few.

    This is normal as long as at most three quarters of them are slow.
    """
    return quantile(ordered, NORMAL) if len(ordered) >= FEWEST_CELLS else None


class ComparableCells:
    """Which cells of a run are comparable."""

    def __init__(self, machine: Machine) -> None:
        self._kind_of = [link.kind for link in machine.links]
        self._kinds: dict[tuple[int, ...], str] = {}  # many cells share their links and bounds
        self._bounds: dict[tuple[float | None, float], str] = {}

    def group(self, measured: Placed, normal: float) -> Hashable:
        """What comparable cells have in common: testcase, kinds of links, limit and typical value.

        Args:
            measured: The cell.
            normal: Its typical value.
        """
        key, cell, _, result = measured
        used = tuple([link for link, _, _ in cell.links])
        if used not in self._kinds:
            self._kinds[used] = " ".join(sorted({self._kind_of[link] for link in used}))
        bound = cell.limit, normal
        if bound not in self._bounds:
            self._bounds[bound] = f"{cell.limit:.3g} {normal:.3g}"
        size = key.column if result.collective else ""  # the rate of a collective grows with it
        for alike in functions("judging", "alike"):
            if (same := alike(key.testcase, key.table)) is None:
                continue
            return key.testcase, same, key.row, key.column, self._kinds[used], self._bounds[bound]
        return key.testcase, key.table, size, self._kinds[used], self._bounds[bound]


#: Lower ratios to normal, measured or predicted, count as this one, because 0 has no logarithm.
SLOWEST = 1e-6


@dataclass(frozen=True)
class PredictableCell:
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


def slow_keys(judgements: Iterable[Judgement]) -> frozenset[Key]:
    """Cells whose value is worse than expected."""
    return frozenset(
        judgement.key
        for judgement in judgements
        if judgement.verdict.is_worse and judgement.value is not None and not judgement.is_above
    )


def seen_cells(document: Document, judged: Sequence[Judgement]) -> list[PredictableCell]:
    """The cells whose value can be predicted, with their ratios to normal.

    Normal is what the better quarter of comparable cells reaches, if that is as expected; else the typical
    value of the expected range.
    """
    slow, plans, peers = slow_keys(judged), planned(document), ComparableCells(document.machine)
    judgements = {judgement.key: judgement for judgement in judged}
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
            seen.append(PredictableCell(key, number, typical, ratio, key in slow, cell.links, *where))
    return seen


#: What the transfers of each Measurement take of the links, by the identity of the Measurement.
Routes = dict[int, list[Demand] | None]
