"""Pairs that are measured concurrently: which may be, which look low, which slowed each other down."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence

from .data import efficiencies
from .limits import Network, allowances, undisturbed
from .model import Measurement, Reduce
from .results.document import Cell, Table
from .testcases.rounds import ALONE
from .units import many

#: A pair looks low this far below what it should reach, as a fraction.
_LOOKS_LOW = 0.05

#: A difference below this part of the value is not worth telling.
_NOISE = 0.02


def scheduled(network: Network, measurements: Sequence[Measurement]) -> list[Measurement]:
    """Return Measurements, apart where the links are not known to give each pair what it gets alone."""
    found: list[Measurement] = []
    for measurement in measurements:
        apart = measurement.independent and not undisturbed(network, measurement)
        found += measurement.separate() if apart else [measurement]
    return found


def suspects(
    network: Network, pairs: Sequence[Measurement], cells: Mapping[str, Mapping[tuple[int, int], Cell]]
) -> list[Measurement]:
    """Return the pairs that look low, of those that were measured concurrently.

    Low: below the typical value of a pair alone, or below the median of the pairs that are alike, by more
    than 5 %; or without a value, since one of the others may have failed.

    Parameters
    ----------
    cells
        What was measured, by table, row and column.
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
    found: dict[Measurement, None] = {}
    for pair, place, value, typical, key in looked:
        median = statistics.median(alike.get(key, [0.0]))
        if value is None:
            low = True
        elif place.reduce is Reduce.LATENCY:
            low = value > median * (1 + _LOOKS_LOW)
        else:
            low = value < max(median, typical) * (1 - _LOOKS_LOW)
        if low:
            found[pair] = None
    return list(found)


def blocking(tables: Sequence[Table]) -> str:
    """Return where pairs were slower at the same time than alone, beyond noise; empty if nowhere.

    Beyond noise: the intervals of the two medians are apart, and the medians by more than 2 %.
    """
    alone = next((table for table in tables if table.key == ALONE), None)
    others = [table for table in tables if table.key != ALONE]
    if alone is None or not others:
        return ""
    together = others[-1]  # of several, the last is the total
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
        f"the fabric blocks: {len(slower)} of {compared} pairs that were measured alone too are slower while "
        f"others run, {where} by {most:.0%}; without --parallel-pairs every pair runs alone"
    )


def slowed(cells: Sequence[tuple[Cell, Cell]], left: int) -> list[str]:
    """Return what to warn of pairs that looked low while others ran and were measured again alone.

    Parameters
    ----------
    cells
        Of each pair its cell while others ran, and alone.
    left
        How many more looked low and were not measured again.
    """
    changes = [1 - slow.value / fast.value for slow, fast in cells
               if _apart(slow, fast) and slow.value and fast.value]  # fmt: skip
    found = []
    if changes:
        slower = f"{many(len(changes), 'cell')} up to {max(changes):.0%} slower while other pairs ran"
        found.append(f"{slower}; measured again alone")
    if left:
        found.append(f"{left} more pairs look low; not all were measured again alone")
    return found


def _apart(slow: Cell, fast: Cell) -> bool:
    """Whether one value is below another beyond noise."""
    if slow.value is None or fast.value is None or slow.statistics is None or fast.statistics is None:
        return False
    return slow.value < (1 - _NOISE) * fast.value and slow.statistics.high < fast.statistics.low
