"""Which parts explain the slow paths of sampled pairs. A path is as fast as the slowest of its parts, so a
part that is slow slows all of its paths. Parts are named one after another: of those of the largest kind that
explain, the one most of whose paths are slow. What it explains is divided out before the next, so that no
part is blamed for what another does to it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from ...qualification import OF_NODE, PartKind, SlowPart
from ...thresholds import clusters
from .cluster import Values
from .pairing import Pair

#: Parts that slow several nodes.
_SWITCHES = (PartKind.LEAF, PartKind.TRUNK, PartKind.SPINE)
#: Most parts that are named.
_MOST_CULPRITS = 200


@dataclass(frozen=True)
class Paths:
    """Measured paths, one value each.

    Attributes:
        source, target, rail: Indices of the nodes and the rail.
        value: Bandwidth in bytes per second.
    """

    source: npt.NDArray[np.int64]
    target: npt.NDArray[np.int64]
    rail: npt.NDArray[np.int64]
    value: Values

    def only(self, kept: npt.NDArray[np.bool_]) -> Paths:
        """Some of the paths."""
        return Paths(self.source[kept], self.target[kept], self.rail[kept], self.value[kept])

    @classmethod
    def of(cls, rounds: Sequence[tuple[Sequence[Pair], Values]]) -> Paths:
        """The paths of rounds of pairs that answered; values have the shape (pairs, 2, rails)."""
        found = [(np.zeros(0, np.int64),) * 3 + (np.zeros(0),)]
        for pairs, values in rounds:
            ends = np.array(pairs, dtype=np.int64).reshape(-1, 2)
            for direction, (sources, targets) in enumerate((ends.T, ends.T[::-1])):
                of_direction = values[:, direction]
                test, rail = np.nonzero(~np.isnan(of_direction))
                found.append((sources[test], targets[test], rail, of_direction[test, rail]))
        return cls(*map(np.concatenate, zip(*found, strict=True)))


def reference_of(values: Values, noise: float = 0.0) -> tuple[float, float]:
    """Median and relative standard deviation of the values of paths that are not slow.

    The best tenth shows where these are, so that it does not matter how many are slow.

    Args:
        values: Values in bytes per second.
        noise: Relative standard deviation of one value, if it is known.
    """
    if not len(values):
        return 0.0, 0.0
    best = float(np.quantile(values, clusters.FASTEST))
    # The best tenth begins 1.28 deviations above the median; what is 2.5 below still counts.
    fast = values[values > best * (1 - max(clusters.FAST_FRACTION, clusters.FAST_SIGMAS * noise))]
    reference = float(np.median(fast))
    above = fast[fast >= reference] / reference - 1  # slow values only spread the others
    return reference, float(1.4826 * np.median(above))


#: Number of values -> what makes 1.4826 x their median absolute deviation an unbiased estimate of the
#: standard deviation (Croux and Rousseeuw 1992, "Time-efficient algorithms for two highly robust estimators
#: of scale").
_CORRECTION = {2: 1.196, 3: 1.495, 4: 1.363, 5: 1.206, 6: 1.200, 7: 1.140, 8: 1.129, 9: 1.107}


def spread(paths: Paths, rails: int) -> float:
    """Median over all parts of the relative standard deviation of what each sends to different partners.

    Unlike the deviation of the fast paths, it does not become smaller where fast and slow are only chance.
    It is robust against slow partners as long as most parts have fewer than half of them.

    Args:
        paths: Measured paths.
        rails: Number of rails.

    Returns:
        The deviation; 0 if no part has enough values.
    """
    if not len(paths.value):
        return 0.0
    unit = paths.source * rails + paths.rail
    order = np.lexsort((paths.value, unit))
    counts = np.bincount(unit)
    first = np.cumsum(counts) - counts
    deviations = []
    for count in np.unique(counts[counts >= clusters.FEWEST_VALUES]).tolist():
        values = paths.value[order[first[counts == count][:, None] + np.arange(count)]]
        deviations.append(deviation(values))
    return float(np.median(np.concatenate(deviations))) if deviations else 0.0


def deviation(values: Values) -> Values:
    """Relative standard deviation of each row of values, from the median absolute deviation."""
    count = values.shape[1]
    middle = np.median(values, axis=1)
    absolute = np.median(np.abs(values - middle[:, None]), axis=1)
    corrected = 1.4826 * _CORRECTION.get(count, count / (count - 0.8)) * absolute
    return np.asarray(np.divide(corrected, middle, where=middle > 0, out=np.zeros_like(middle)))


def margin(noise: float, count: npt.ArrayLike) -> Values:
    """Share of the reference by which the median of values of paths that are not slow stays above.

    Args:
        noise: Relative standard deviation of one value.
        count: Number of values.
    """
    return np.asarray(clusters.SIGMAS_OF_MEDIAN * 1.2533 * noise / np.sqrt(count), dtype=np.float64)


def normal_paths(paths: Paths, rails: int, variation: float = 0.0) -> tuple[float, float]:
    """Median, in bytes per second, and relative standard deviation of the paths that are not slow.

    Args:
        paths: Measured paths.
        rails: Number of rails.
        variation: Relative standard error of a value, by how much it varied while it was measured: the least
            by which values vary.
    """
    varies = max(spread(paths, rails), variation)
    reference, noise = reference_of(paths.value, varies)
    return reference, max(noise, varies)


def threshold_of(noise: float) -> float:
    """Share of the median below which a path is slow, from the deviation of those that are not."""
    return max(0.0, 1 - max(clusters.LEAST_SLOW, clusters.SIGMAS * noise))


def explain(
    paths: Paths, blocks: Sequence[str], rails: int, reference: float, noise: float
) -> tuple[tuple[SlowPart, ...], float]:
    """The parts that explain the slow paths, and what they leave unexplained.

    Args:
        paths: Measured paths.
        blocks: Block of each node; empty if unknown.
        rails: Number of rails.
        reference, noise: Median and deviation of the paths that are not slow (see ``normal_paths``).

    Returns:
        The slow parts, not confirmed yet, and the share of the paths between blocks that are slow and that
        none of them explains, in the rail with most.
    """
    if not reference:
        return (), 0.0
    cut = threshold_of(noise)
    names = list(dict.fromkeys(blocks))
    number = {name: i for i, name in enumerate(names)}
    block = np.array([number[name] for name in blocks])
    sizes = np.array([blocks.count(name) if name else 0 for name in names])
    unexplained = np.ones(len(paths.value), dtype=bool)
    culprits: list[SlowPart] = []
    while len(culprits) < _MOST_CULPRITS and unexplained.any():
        seeking = _Seeking(paths, unexplained, names, block, sizes, rails, noise, cut, reference)
        found = next(seeking.not_contradicted(), None)
        if found is None:
            break
        slow, mine, level = found
        culprits.append(seeking.culprit(slow, mine, level))
        # A path that this part slows cannot show others that are slow by less; one that is much slower does.
        # Paths that share a link through spine switches by chance are slow by different factors.
        unexplained &= ~(mine & ((paths.value >= cut * level) | (slow.kind is PartKind.SPINE)))
    across = block[paths.source] != block[paths.target]
    counts = np.bincount(paths.rail[across], minlength=rails)
    left = np.bincount(paths.rail[across & unexplained & (paths.value < cut * reference)], minlength=rails)
    share = float((np.where(left > 1, left, 0) / np.maximum(counts, 1)).max())
    return tuple(sorted(culprits, key=lambda c: c.value)), share


@dataclass(frozen=True)
class _Suspect:
    """A slow part: its kind, its node or block, its rail (-1: all), and its direction.

    Only slow paths show which lead through one of several spine switches: those below ``below`` B/s.
    """

    kind: PartKind
    where: int
    rail: int
    sends: bool | None
    below: float = 0.0

    def leads(self, paths: Paths, block: npt.NDArray[np.int64]) -> npt.NDArray[np.bool_]:
        """Which paths lead through it."""
        switch = self.kind in _SWITCHES
        at, to = (block[paths.source], block[paths.target]) if switch else (paths.source, paths.target)
        starts, ends = at == self.where, to == self.where
        mine: npt.NDArray[np.bool_]
        if self.kind is PartKind.SPINE:
            mine = (at != to) & (paths.value < self.below)
        elif self.sends is not None:
            mine = starts if self.sends else ends
        else:
            mine = starts ^ ends if self.kind is PartKind.TRUNK else starts | ends
        if self.rail >= 0:
            mine &= paths.rail == self.rail
        return mine


@dataclass
class _Seeking:
    """Search for the next part among all paths, from those that no part explains yet."""

    all: Paths
    unexplained: npt.NDArray[np.bool_]
    names: Sequence[str]
    block: npt.NDArray[np.int64]
    sizes: npt.NDArray[np.int64]
    rails: int
    noise: float
    cut: float
    reference: float

    def __post_init__(self) -> None:
        self.paths = self.all.only(self.unexplained)
        self.ratio = self.paths.value / self.reference
        self.at, self.to = self.block[self.paths.source], self.block[self.paths.target]
        self.across = self.at != self.to
        self.switches = len(self.sizes) * self.rails
        self._units = len(self.block) * self.rails
        # Each path is of two units: what the source sends and what the target receives, in its rail.
        self._sent = self.paths.source * self.rails + self.paths.rail
        self._received = self.paths.target * self.rails + self.paths.rail

    def not_contradicted(self) -> Iterator[tuple[_Suspect, npt.NDArray[np.bool_], float]]:
        """Candidates with their paths and their speed.

        A path is not faster than any of its parts, so that the paths of other slow parts, too, say how fast a
        candidate is at least.
        """
        for slow in self.candidates():
            mine = slow.leads(self.all, self.block)
            if slow.kind is PartKind.SPINE:  # slow paths that other parts explain do not show it
                mine &= self.unexplained
            values = self.all.value[mine & self.unexplained]
            several = slow.kind in _SWITCHES  # some of its nodes may be slower than it
            level = reference_of(values)[0] if several else float(np.median(values))
            faster = float((self.all.value[mine] * self.cut > level).mean())
            if faster <= (
                1 - clusters.MOST_PATHS if several or slow.kind is PartKind.NODE else clusters.MOST_FASTER
            ):
                yield slow, mine, level

    def culprit(self, slow: _Suspect, through: npt.NDArray[np.bool_], level: float) -> SlowPart:
        """A slow part and its evidence."""
        paths, block = self.all, self.block
        mine = through & self.unexplained
        ends = {*paths.source[mine].tolist(), *paths.target[mine].tolist()}
        name = ""
        nodes: tuple[int, ...] = (slow.where,)
        share = 1.0
        rail = slow.rail < 0 or paths.rail == slow.rail
        if slow.kind is PartKind.SPINE:
            nodes = tuple(sorted(ends))
            share = float(mine.sum() / ((block[paths.source] != block[paths.target]) & rail).sum())
        elif slow.kind in (PartKind.LEAF, PartKind.TRUNK):
            name, nodes = self.names[slow.where], tuple(np.flatnonzero(block == slow.where).tolist())
            others = {int(block[node]) for node in ends} - {slow.where}
            if slow.kind is PartKind.TRUNK and len(others) == 1:
                name = f"{name} or {self.names[others.pop()]}"  # all paths lead through both
        partners = ends - set(nodes)
        kind = slow.kind
        if slow.kind in OF_NODE and len(partners) == 1:  # either end explains the same paths
            kind, other = PartKind.PATH, partners.copy().pop()
            nodes = (other, slow.where) if slow.sends is False else (slow.where, other)
        touched = np.isin(paths.source, list(partners)) | np.isin(paths.target, list(partners))
        normal = touched & rail & ~mine & (paths.value >= self.cut * self.reference)
        values = paths.value[normal]
        least, most = (float(values.min()), float(values.max())) if len(values) else (0.0, 0.0)
        return SlowPart(
            kind, nodes, slow.rail, slow.sends, name, level, self.reference,
            len(partners) or len(ends), least, most, share=share,
        )  # fmt: skip

    def candidates(self) -> Iterator[_Suspect]:
        """Parts that explain slow paths, the most likely first."""
        yield from self._switches_of()
        yield from self._spines()
        yield from self._of_nodes()

    def _switches_of(self) -> Iterator[_Suspect]:
        """Leaf switches and trunks most of whose paths are nearer to their median than to that of all."""
        within, crossing = _OfSwitches.of(self, across=False), _OfSwitches.of(self, across=True)
        large = np.repeat(self.sizes >= clusters.FEWEST_OF_BLOCK, self.rails)
        leaf = large & within.slow & (crossing.slow | (crossing.counts == 0))
        trunk = large & crossing.slow & (within.below(crossing.halfway) <= 1 - clusters.MOST_PATHS)
        for part, suspects, paths in ((PartKind.LEAF, leaf, within), (PartKind.TRUNK, trunk, crossing)):
            for switch in _best(suspects, paths.below(paths.halfway)):
                where, rail = divmod(switch, self.rails)
                yield _Suspect(part, where, rail, None)

    def _spines(self) -> Iterator[_Suspect]:
        """Spine switches: some paths between blocks are slow in a rail, of all blocks and nodes alike."""
        slow = self.ratio < self.cut
        # Paths of what a node sends or receives, most of which is slow, show the node.
        of_nodes = np.zeros(len(slow), dtype=bool)
        for units in (self._sent, self._received):
            counts = np.bincount(units[self.across], minlength=self._units)
            slow_of = np.bincount(units[self.across & slow], minlength=self._units)
            of_nodes |= ((slow_of >= clusters.MOST_PATHS * counts) & (slow_of > 0))[units]
        rails = []
        for rail in range(self.rails):
            of_rail = self.paths.rail == rail
            crossing, within = of_rail & self.across & ~of_nodes, of_rail & ~self.across
            chosen = crossing & slow
            share = chosen.sum() / max(1, crossing.sum())
            touched = np.bincount(
                np.concatenate([self.at[chosen], self.to[chosen]]), minlength=len(self.sizes)
            )
            alike = len(self.sizes) <= 2 or touched.max() <= clusters.MOST_PATHS * chosen.sum()
            enough = chosen.sum() >= clusters.FEWEST_OF_SPINE and share >= clusters.LEAST_OF_SPINE
            if enough and alike and slow[within].sum() * clusters.LESS_WITHIN <= share * within.sum():
                rails.append(rail)
        for rail in [-1] if self.rails > 1 and len(rails) >= clusters.MOST_PATHS * self.rails else rails:
            yield _Suspect(PartKind.SPINE, -1, rail, None, self.cut * self.reference)

    def _of_nodes(self) -> Iterator[_Suspect]:
        """Nodes, NICs and cables, the median of whose paths is slow."""
        units = np.concatenate([self._sent, self._received + self._units])
        ratio = np.tile(self.ratio, 2)
        median, counts = _medians(units, ratio, 2 * self._units)
        margins = np.maximum(clusters.LEAST_SLOW, margin(self.noise, np.maximum(counts, 1)))
        slow = (median < 1 - margins) & (counts >= clusters.FEWEST_PATHS)
        if not slow.any():
            return
        halfway = (1 + median[units]) / 2
        share = np.bincount(units, ratio < halfway, 2 * self._units) / np.maximum(counts, 1)
        # (direction, node, rail)
        slow_of, share_of, median_of = (
            array.reshape(2, -1, self.rails) for array in (slow, np.where(slow, share, 0), median)
        )
        if self.rails > 1:
            nodes = slow_of.mean((0, 2)) >= clusters.MOST_PATHS
            for node in _best(nodes, share_of.mean((0, 2))):
                yield _Suspect(PartKind.NODE, node, -1, None)
        # Of equal shares that of more paths, then the most severe.
        score = share_of + 1e-3 * counts.reshape(slow_of.shape) - 1e-6 * median_of
        for unit in _best(slow_of.ravel(), score.ravel()):
            direction, node, rail = (int(index) for index in np.unravel_index(unit, slow_of.shape))
            if slow_of[:, node, rail].all():
                yield _Suspect(PartKind.NIC, node, rail, None)
            else:
                yield _Suspect(PartKind.CABLE, node, rail, direction == 0)


@dataclass(frozen=True)
class _OfSwitches:
    """The paths within the blocks of all switches, or those that leave them."""

    keys: npt.NDArray[np.int64]
    ratio: Values
    median: Values
    counts: npt.NDArray[np.int64]
    noise: float

    @classmethod
    def of(cls, seeking: _Seeking, *, across: bool) -> _OfSwitches:
        chosen = seeking.across == across
        ends = (seeking.at, seeking.to)
        keys = np.concatenate([(end * seeking.rails + seeking.paths.rail)[chosen] for end in ends])
        ratio = np.tile(seeking.ratio[chosen], 2)
        return cls(keys, ratio, *_medians(keys, ratio, seeking.switches), seeking.noise)

    @property
    def halfway(self) -> Values:
        """Between the median of each switch and that of all paths."""
        return np.asarray((1 + self.median) / 2)

    def below(self, limits: Values) -> npt.NDArray[np.float64]:
        """Share of the paths of each switch that are below its limit; 0 of none."""
        below = np.bincount(self.keys, self.ratio < limits[self.keys], len(limits))
        return np.asarray(below / np.maximum(self.counts, 1))

    @property
    def slow(self) -> npt.NDArray[np.bool_]:
        """Whether the median of each switch is slow, and most of its paths with it."""
        least = np.maximum(clusters.LEAST_SLOW, margin(self.noise, np.maximum(self.counts, 1)))
        return np.asarray((self.median < 1 - least) & (self.below(self.halfway) >= clusters.MOST_PATHS))


def _medians(keys: npt.NDArray[np.int64], values: Values, size: int) -> tuple[Values, npt.NDArray[np.int64]]:
    """Median and number of the values of each key; 1 for a key without values.

    Of an even number it is the higher of the two in the middle: blame needs more than half.
    """
    order = np.lexsort((values, keys))
    counts = np.bincount(keys, minlength=size)
    first = np.cumsum(counts) - counts
    if not len(order):
        return np.ones(size), counts
    middle = np.minimum(first + counts // 2, len(order) - 1)
    return np.where(counts > 0, values[order[middle]], 1.0), counts


def _best(suspects: npt.NDArray[Any], score: npt.NDArray[Any]) -> list[int]:
    """Indices of suspects, those of the highest score first."""
    chosen = np.flatnonzero(suspects)
    return [int(index) for index in chosen[np.argsort(-score[chosen], kind="stable")]]
