"""The values of a run beside comparable ones, and what is normal among those."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from typing import NamedTuple

from ..document import Document
from ..features import functions
from ..hardware.link_graph import Demand
from ..hardware.topology import Link, Machine
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


class Observation(NamedTuple):
    """A value beside comparable ones, from which ``localise`` and ``fit`` infer what is slow.

    Attributes:
        group: Equal for cells that are comparable; they use links of the same kinds.
        ratio: Value over limit, or speed over that of other runs.
        normal: The same of a typical value on a good machine.
        links: Links of the cell: index, used fraction of the capacity, and how far the value depends on the
            link.
        low: Whether the cell is low regardless of its peers.
        value, limit: Value and limit in B/s, 0 if unknown; with them a link is known to carry little if
            another one limits.
    """

    group: Hashable
    ratio: float
    normal: float
    links: tuple[tuple[int, float, float], ...]
    low: bool = False
    value: float = 0.0
    limit: float = 0.0

    @property
    def typical(self) -> float:
        """Value over typical value."""
        return max(self.ratio / self.normal, SLOWEST)

    def payload(self, link: Link) -> float:
        """The fraction of the capacity of a link that is payload; without a value, the ratio.

        A limit above the capacity is that of several transfers, which share the load between links.
        """
        if not self.value or not self.limit:
            return self.ratio
        return self.value / max(self.limit, link.capacity or 0.0)


def slow_keys(judgements: Iterable[Judgement]) -> frozenset[Key]:
    """Cells whose value is worse than expected."""
    return frozenset(
        judgement.key
        for judgement in judgements
        if judgement.verdict.is_worse and judgement.value is not None and not judgement.is_above
    )


def seen_cells(
    document: Document, judged: Sequence[Judgement]
) -> tuple[list[Key], list[Observation], list[float]]:
    """The cells whose value can be predicted: their keys, they themselves, and their ratios to normal.

    Normal is what the better quarter of comparable cells reaches, if that is as expected; else the typical
    value of the expected range.
    """
    slow, plans, peers = slow_keys(judged), planned(document), ComparableCells(document.machine)
    judgements = {judgement.key: judgement for judgement in judged}
    numbers: dict[Hashable, int] = {}  # of groups
    groups: dict[int, list[tuple[Key, Observation, float]]] = {}
    for measured in placed(document):
        cell, judgement = measured.cell, judgements.get(measured.key)
        if judgement is None or judgement.verdict is Verdict.BUSY:
            continue
        value, limit, normal, least = cell.value, cell.limit, judgement.normal, judgement.least
        if value and limit and normal and least and measured.key._replace(bytes=0) in plans:
            number = numbers.setdefault(peers.group(measured, normal), len(numbers))
            low = measured.key in slow
            seen_cell = Observation(number, value / limit, normal / limit, cell.links, low, value, limit)
            groups.setdefault(number, []).append((measured.key, seen_cell, least / limit))
    keys, seen, ratios = list[Key](), list[Observation](), list[float]()
    for members in groups.values():
        best = normal_of(sorted(member.ratio for _, member, _ in members)) or 0.0
        for key, member, least in members:
            keys.append(key)
            seen.append(member)
            ratios.append(max(member.ratio / (best if best >= least else member.normal), SLOWEST))
    return keys, seen, ratios


#: What the transfers of each Measurement take of the links, by the identity of the Measurement.
Routes = dict[int, list[Demand] | None]
