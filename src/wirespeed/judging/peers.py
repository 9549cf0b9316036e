"""What is normal among comparable cells."""

from __future__ import annotations

from collections.abc import Hashable, Sequence

from ..results.cells import Placed
from ..topology import Machine

#: Fewer cells do not say what is normal.
_FEWEST = 4


def quantile(ordered: Sequence[float], fraction: float) -> float:
    """Return a quantile of sorted values, interpolated between neighbours."""
    position = fraction * (len(ordered) - 1)
    i = int(position)
    return ordered[i] + (position - i) * (ordered[min(i + 1, len(ordered) - 1)] - ordered[i])


def normal_of(ordered: Sequence[float]) -> float | None:
    """Return what the better quarter of some sorted values reaches; None if they are too few.

    This is normal as long as at most three quarters of them are slow.
    """
    return quantile(ordered, 0.75) if len(ordered) >= _FEWEST else None


class ComparableCells:
    """Which cells of a run are comparable."""

    def __init__(self, machine: Machine) -> None:
        self._kind_of = [link.kind for link in machine.links]
        self._kinds: dict[tuple[int, ...], str] = {}  # many cells share their links and bounds
        self._bounds: dict[tuple[float | None, float], str] = {}

    def group(self, measured: Placed, normal: float) -> Hashable:
        """Return what comparable cells have in common: testcase, kinds of links, limit and typical value.

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
        return key.testcase, key.table, size, self._kinds[used], self._bounds[bound]
