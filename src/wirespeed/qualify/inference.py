"""Which parts explain the slow paths of sampled pairs.

A path is as fast as the slowest of its parts, so a part that is slow slows all of its paths. Parts are named
one after another: of those of the largest kind that explain, the one most of whose paths are slow. What it
explains is divided out before the next, so that no part is blamed for what another does to it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from ..qualification import OF_NODE, Culprit, Part
from .cluster import Values
from .matchings import Pair

#: Least share of the median by which a part is slow, and the same in standard deviations of one value, and of
#: the median of a part's values.
LEAST, SIGMAS, SIGMAS_OF_MEDIAN = 0.05, 3.3, 6.0
#: Share of the paths, or of the rails, of a part of several that must be slow.
_MOST = 0.75
#: Fewest nodes of a block whose switches can be told from their nodes.
_FEWEST = 3
#: Fewest paths of a node, a NIC or a cable that show that it is slow.
_FEWEST_PATHS = 2
#: Most parts that are named.
_MOST_CULPRITS = 200


@dataclass(frozen=True)
class Paths:
    """Measured paths, one value each.

    Parameters
    ----------
    source, target, rail : array of int
        Indices of the nodes and the rail.
    value : array of float
        Bandwidth in bytes per second.
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
        columns: list[list[npt.NDArray[np.generic]]] = [[], [], [], []]
        for pairs, values in rounds:
            a, b = np.array(pairs, dtype=np.int64).reshape(-1, 2).T
            rails = values.shape[2]
            for direction, (source, target) in enumerate(((a, b), (b, a))):
                known = ~np.isnan(values[:, direction])
                for column, of_paths in zip(
                    columns,
                    (
                        np.repeat(source[:, None], rails, 1), np.repeat(target[:, None], rails, 1),
                        np.repeat(np.arange(rails)[None], len(source), 0), values[:, direction],
                    ),
                    strict=True,
                ):  # fmt: skip
                    column.append(of_paths[known])
        return cls(*(np.concatenate(column) if column else np.zeros(0) for column in columns))  # type: ignore[arg-type]


@dataclass(frozen=True)
class Inference:
    """What explains the slow paths.

    Parameters
    ----------
    culprits : tuple[Culprit, ...]
        Slow parts, not confirmed yet.
    reference : float
        Median of the paths that are not slow, in bytes per second.
    noise : float
        Their relative standard deviation.
    threshold : float
        Share of the median below which a path is slow.
    """

    culprits: tuple[Culprit, ...]
    reference: float
    noise: float
    threshold: float


def reference_of(values: Values) -> tuple[float, float]:
    """Median and relative standard deviation of the values of paths that are not slow.

    The best tenth shows where these are, so that it does not matter how many are slow.
    """
    if not len(values):
        return 0.0, 0.0
    best = float(np.quantile(values, 0.9))
    fast = values[values > 0.85 * best]
    reference = float(np.median(fast))
    above = fast[fast >= reference] / reference - 1  # slow values only spread the others
    return reference, float(1.4826 * np.median(above))


def explain(paths: Paths, blocks: Sequence[str], rails: int, variation: float = 0.0) -> Inference:
    """Name the parts that explain the slow paths.

    Parameters
    ----------
    paths : Paths
        Measured paths.
    blocks : Sequence[str]
        Block of each node; empty if unknown.
    rails : int
        Number of rails.
    variation : float
        Relative standard deviation of a value while it was measured: the least by which values vary.
    """
    reference, noise = reference_of(paths.value)
    noise = max(noise, variation)
    cut = max(0.0, 1 - max(LEAST, SIGMAS * noise))
    if not reference:
        return Inference((), reference, noise, cut)
    names = list(dict.fromkeys(blocks))
    number = {name: i for i, name in enumerate(names)}
    block = np.array([number[name] for name in blocks])
    sizes = np.array([blocks.count(name) if name else 0 for name in names])
    rest = paths
    culprits: list[Culprit] = []
    while len(culprits) < _MOST_CULPRITS and len(rest.value):
        seeking = _Seeking(rest, block, sizes, rails, rest.value / reference, noise, cut)
        if (slow := seeking.next()) is None:
            break
        culprits.append(_culprit(slow, rest, block, names, reference, cut))
        # A path that this part slows cannot show others that are slow by less; one that is much slower does.
        explained = slow.mine & (rest.value >= cut * culprits[-1].value)
        rest = rest.only(~explained)
    return Inference(tuple(sorted(culprits, key=lambda c: c.value)), reference, noise, cut)


@dataclass(frozen=True)
class _Slow:
    """A slow part: its kind, its node or block, its rail and direction, and which paths are its own."""

    part: Part
    where: int
    rail: int
    sends: bool | None
    mine: npt.NDArray[np.bool_]


def _culprit(
    slow: _Slow,
    paths: Paths,
    block: npt.NDArray[np.int64],
    names: Sequence[str],
    reference: float,
    cut: float,
) -> Culprit:
    """A slow part and its evidence."""
    mine = slow.mine
    ends = {*paths.source[mine].tolist(), *paths.target[mine].tolist()}
    name = ""
    nodes: tuple[int, ...] = (slow.where,)
    if slow.part in (Part.LEAF, Part.TRUNK):
        name, nodes = names[slow.where], tuple(np.flatnonzero(block == slow.where).tolist())
        if slow.part is Part.TRUNK and len(others := {int(block[node]) for node in ends} - {slow.where}) == 1:
            name = f"{name} or {names[others.pop()]}"  # all paths lead through both
    partners = ends - set(nodes)
    part = slow.part
    if slow.part in OF_NODE and len(partners) == 1:  # either end explains the same paths
        part, other = Part.PATH, partners.copy().pop()
        nodes = (other, slow.where) if slow.sends is False else (slow.where, other)
    rail = slow.rail < 0 or paths.rail == slow.rail
    touched = np.isin(paths.source, list(partners)) | np.isin(paths.target, list(partners))
    others_values = paths.value[touched & rail & ~mine & (paths.value >= cut * reference)]
    return Culprit(
        part, nodes, slow.rail, slow.sends, name, float(np.median(paths.value[mine])), reference,
        len(partners) or len(ends), float(others_values.min()) if len(others_values) else 0.0,
        float(others_values.max()) if len(others_values) else 0.0,
    )  # fmt: skip


@dataclass
class _Seeking:
    """Search for the next part; ``ratio`` is the share of the median."""

    paths: Paths
    block: npt.NDArray[np.int64]
    sizes: npt.NDArray[np.int64]
    rails: int
    ratio: Values
    noise: float
    cut: float

    def __post_init__(self) -> None:
        self._at, self._to = self.block[self.paths.source], self.block[self.paths.target]
        self._across = self._at != self._to
        self._switches = len(self.sizes) * self.rails
        self._units = len(self.block) * self.rails
        # Each path is of two units: what the source sends and what the target receives, in its rail.
        self._sent = self.paths.source * self.rails + self.paths.rail
        self._received = self.paths.target * self.rails + self.paths.rail

    def next(self) -> _Slow | None:
        """The next slow part; None if nothing else explains slow paths."""
        return self._switch() or self._of_nodes()

    def _switch(self) -> _Slow | None:
        """A leaf switch or a trunk, most of whose paths are slow."""
        slow = self.ratio < self.cut
        if not slow.any():
            return None
        shares = []
        for across in (False, True):
            chosen = self._across == across
            of, bad = np.zeros(self._switches), np.zeros(self._switches)
            for end in (self._at, self._to):
                key = (end * self.rails + self.paths.rail)[chosen]
                of += np.bincount(key, minlength=self._switches)
                bad += np.bincount(key, slow[chosen], self._switches)
            with np.errstate(invalid="ignore"):
                shares.append(np.where(of > 0, bad / np.maximum(of, 1), np.nan))
        within, crossing = shares
        large = np.repeat(self.sizes >= _FEWEST, self.rails)
        leaf = large & (within >= _MOST) & ((crossing >= _MOST) | np.isnan(crossing))
        trunk = large & (crossing >= _MOST) & (within <= 1 - _MOST)
        for part, suspects, share in ((Part.LEAF, leaf, within), (Part.TRUNK, trunk, crossing)):
            if suspects.any():
                switch = int(np.argmax(np.where(suspects, share, -1)))
                where, rail = divmod(switch, self.rails)
                mine = ((self._at == where) | (self._to == where)) & (self.paths.rail == rail)
                return _Slow(part, where, rail, None, mine & self._across if part is Part.TRUNK else mine)
        return None

    def _of_nodes(self) -> _Slow | None:
        """A node, a NIC or a cable, the median of whose paths is slow."""
        units = np.concatenate([self._sent, self._received + self._units])
        ratio = np.tile(self.ratio, 2)
        order = np.lexsort((ratio, units))
        counts = np.bincount(units, minlength=2 * self._units)
        first = np.cumsum(counts) - counts
        # Of an even number the higher of the two in the middle: blame needs more than half.
        middle = np.minimum(first + counts // 2, len(order) - 1)
        median = np.where(counts > 0, ratio[order[middle]], 1.0)
        margin = np.maximum(LEAST, SIGMAS_OF_MEDIAN * 1.2533 * self.noise / np.sqrt(np.maximum(counts, 1)))
        slow = (median < 1 - margin) & (counts >= _FEWEST_PATHS)
        if not slow.any():
            return None
        halfway = (1 + median[units]) / 2
        share = np.bincount(units, ratio < halfway, 2 * self._units) / np.maximum(counts, 1)
        # (direction, node, rail)
        slow_of, share_of, median_of = (
            array.reshape(2, -1, self.rails) for array in (slow, np.where(slow, share, 0), median)
        )
        if self.rails > 1:
            nodes = slow_of.mean((0, 2)) >= _MOST
            if nodes.any():
                worst = int(np.argmax(np.where(nodes, share_of.mean((0, 2)), -1)))
                mine = (self.paths.source == worst) | (self.paths.target == worst)
                return _Slow(Part.NODE, worst, -1, None, mine)
        score = share_of - median_of * 1e-3  # the most severe of equal ones
        best = np.unravel_index(int(np.argmax(np.where(slow_of, score, -1))), slow_of.shape)
        direction, node, rail = (int(index) for index in best)
        in_rail = self.paths.rail == rail
        sent, received = (self.paths.source == node) & in_rail, (self.paths.target == node) & in_rail
        if slow_of[:, node, rail].all():
            return _Slow(Part.NIC, node, rail, None, sent | received)
        return _Slow(Part.CABLE, node, rail, direction == 0, sent if direction == 0 else received)
