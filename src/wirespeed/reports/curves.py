"""The curves of a table, and which of them differ from the others."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from statistics import fmean, median

from ..tables import Table

#: Maximum number of distinguishable curves in one plot.
MOST_CURVES = 6
#: A curve is an outlier if it differs from the median of all by more than this, on average.
_OUTLIER = 0.05


@dataclass(frozen=True)
class Curve:
    """A curve: values over a quantity, in base units.

    Attributes:
        name: What was measured, e.g. a device.
        xs: Positions, in the unit of the axis.
        ys: Values, in base units.
        apart: Mean difference from the median of all curves, relative to it; 0 unless the curve is an
            outlier.
    """

    name: str
    xs: tuple[float, ...]
    ys: tuple[float, ...]
    apart: float = 0.0

    @property
    def label(self) -> str:
        """Name, and how far an outlier is from the others."""
        return f"{self.name} ({self.apart:+.0%} from median)" if self.apart else self.name


def curves_of(table: Table) -> list[Curve]:
    """The rows of a table as curves, without missing values."""
    curves = []
    for name, row in zip(table.rows.labels, table.grid(), strict=True):
        points = [
            (x, cell.value)
            for x, cell in zip(table.columns.values, row, strict=True)
            if cell is not None and cell.value is not None
        ]
        if points:
            xs, ys = zip(*points, strict=True)
            curves.append(Curve(name, xs, ys))
    return curves


def outliers_first(curves: Sequence[Curve]) -> tuple[list[Curve], list[Curve]]:
    """Choose the curves to tell apart in one plot.

    Args:
        curves: All curves of the plot.

    Returns:
        At most ``MOST_CURVES`` curves, and the others. If there are others, the first curves are those that
        differ most from the median of all.
    """
    if len(curves) <= MOST_CURVES:
        return list(curves), []
    values: dict[float, list[float]] = {}
    for curve in curves:
        for x, y in zip(curve.xs, curve.ys, strict=True):
            values.setdefault(x, []).append(y)
    normal = {x: median(ys) for x, ys in values.items()}
    sized = []
    for curve in curves:
        differences = list(_differences(curve, normal))
        apart = fmean(differences)
        size = fmean(map(abs, differences))
        sized.append((size, replace(curve, apart=apart if size > _OUTLIER else 0.0)))
    outliers = sorted((pair for pair in sized if pair[0] > _OUTLIER), key=lambda pair: -pair[0])
    others = (pair for pair in sized if pair[0] <= _OUTLIER)
    ordered = [curve for _, curve in (*outliers, *others)]
    return ordered[:MOST_CURVES], ordered[MOST_CURVES:]


def _differences(curve: Curve, normal: dict[float, float]) -> Iterator[float]:
    """The difference of each value from the normal one, relative to it."""
    for x, y in zip(curve.xs, curve.ys, strict=True):
        size = abs(normal[x])
        yield (y - normal[x]) / size if size else float(y != 0)
