"""Pairs that run at the same time because they share no link: which can, which have low values and are
measured again separately, and which slowed each other down.
"""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence

from ..data import efficiencies
from ..hardware.limits import allowances, undisturbed
from ..hardware.link_graph import Network
from ..measurement import Measurement
from ..statistics import sample_interval
from ..tables import Cell, Table
from ..testcases.patterns import ALONE
from ..thresholds.values import AGAIN_FRACTION, SLOWED_FRACTION
from ..units import many


def scheduled(network: Network, measurements: Sequence[Measurement]) -> list[Measurement]:
    """Split Measurements so that pairs run together only if the links give each its full rate."""
    runs: list[Measurement] = []
    for measurement in measurements:
        apart = measurement.independent and not undisturbed(network, measurement)
        runs += measurement.separate() if apart else [measurement]
    return runs


def suspects(
    network: Network, pairs: Sequence[Measurement], cells: Mapping[str, Mapping[tuple[int, int], Cell]]
) -> list[Measurement]:
    """The pairs with low values among those that were measured concurrently.

    Low means below the typical value of a single pair, or below the median of similar pairs, by more than
    5%; or without a value, because another pair may have failed.

    Args:
        pairs: The pairs.
        cells: The measured cells, by table, row and column.
    """
    alike: dict[tuple[str, str], list[float]] = {}
    looked = []
    for pair in pairs:
        for place, alone in zip(pair.places, allowances(network, pair, efficiencies()), strict=True):
            value = cells[place.table][place.row, place.column].value
            key = (place.table, f"{alone.limit or 0:.3g}")
            looked.append((pair, place, value, alone.expected[1] if alone.expected else 0.0, key))
            if value is not None:
                alike.setdefault(key, []).append(value)
    low_pairs: dict[Measurement, None] = {}
    for pair, place, value, typical, key in looked:
        median = statistics.median(alike.get(key, [0.0]))
        if value is None:
            low = True
        elif place.reduce.is_time:
            low = value > median * (1 + AGAIN_FRACTION)
        else:
            low = value < max(median, typical) * (1 - AGAIN_FRACTION)
        if low:
            low_pairs[pair] = None
    return list(low_pairs)


def blocking(tables: Sequence[Table]) -> str:
    """Which pairs were significantly slower together than separately; empty if none.

    Significantly: the confidence intervals of the medians of their samples, which were taken in the same
    run, do not overlap, and the medians differ by over 2%.
    """
    alone = next((table for table in tables if table.key == ALONE), None)
    others = [table for table in tables if table.key != ALONE]
    if alone is None or not others:
        return ""
    together = others[-1]  # the last of several is the total
    cells = {f"{together.rows.labels[c.row]}->{together.columns.labels[c.column]}": c for c in together.cells}
    slower: list[tuple[float, str]] = []
    compared = 0
    for cell in alone.cells:
        pair = alone.columns.labels[cell.column]
        other = cells.get(pair)
        if other is None or not other.value or not cell.value:
            continue
        compared += 1
        if _apart(other, cell):
            slower.append((1 - other.value / cell.value, pair))
    if not slower:
        return ""
    most, where = max(slower)
    return (
        f"the fabric blocks: {len(slower)} of {compared} pairs that were also measured separately are slower "
        f"while others run, {where} by {most:.0%}; omit --parallel-pairs to measure each pair separately"
    )


def slowed(cells: Sequence[tuple[Cell, Cell]], left: int) -> list[str]:
    """Warnings about pairs that had low values while others ran and were measured again.

    Args:
        cells: For each pair, its cell while others ran, and its cell measured separately.
        left: Number of other low pairs that were not measured again.
    """
    changes = [1 - slow.value / fast.value for slow, fast in cells
               if _apart(slow, fast) and slow.value and fast.value]  # fmt: skip
    warnings = []
    if changes:
        values = f"{many(len(changes), 'value')} {'was' if len(changes) == 1 else 'were'}"
        warnings.append(
            f"{values} up to {max(changes):.0%} slower when run concurrently; measured again one at a time"
        )
    if left:
        warnings.append(f"{left} more pairs look low; not all were measured again one at a time")
    return warnings


def _apart(slow: Cell, fast: Cell) -> bool:
    """Whether one value is significantly below another."""
    if slow.value is None or fast.value is None or not slow.samples or not fast.samples:
        return False
    (_, highest), (lowest, _) = (sample_interval(cell.samples) for cell in (slow, fast))
    return slow.value < (1 - SLOWED_FRACTION) * fast.value and highest < lowest
