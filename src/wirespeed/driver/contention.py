"""Whether the transfers of a Measurement really ran at the same time.

Concurrent measurement of pairs: which pairs can run together, look low, or slowed each other down.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from functools import cache
from itertools import pairwise

from ..data import efficiencies
from ..hardware.devices import is_host
from ..hardware.limits import allowances, undisturbed
from ..hardware.network import Network
from ..measurement import Measurement, Place, Sample
from ..model import Executor, Memory, Operation, Role, Transfer
from ..statistics.summary import sample_interval
from ..tables import Cell, Table
from ..testcases.patterns import ALONE
from ..units import many

#: Transfers ran one after another if each needed this fraction of its typical time after the one before it
#: had ended, and the first one ended no later than this multiple of its typical time.
_LEAST, _MOST = 0.9, 1.15
#: Only ends that are far apart tell: the earlier one at this fraction of the later one, or more.
_NEAR = 0.2
#: Typical fraction of the limit where no range is known.
_TYPICAL = 0.8


def one_after_another(network: Network, measurement: Measurement, samples: Sequence[Sample]) -> str:
    """A warning if the measured transfers ran one after another; empty if they ran together.

    Transfers that start together and share a link end at the same time, or later ones end within less time
    than they need alone. If a queue or an engine serialises them, each ends a whole duration after the one
    before it. Those that were to begin after the end of another one are not concurrent, and no warning.

    Args:
        network: Links of the machine, for the typical duration of each transfer alone.
        measurement: Transfers that start together.
        samples: Its samples.
    """
    works = measurement.transfers
    measured = [
        i
        for i, work in enumerate(works)
        if work.role is Role.MEASURED and work.operation is not Operation.CHASE
    ]
    if len(measured) < 2 or measurement.is_mixed:
        return ""
    start = {i: works[i].start for i in measured}
    ends = sorted((start[i] + statistics.median(s.seconds[i] for s in samples), i) for i in measured)
    first, earliest = ends[0]
    needed = cache(lambda i: _alone(network, measurement, i, samples[0]))  # computed where times are apart
    serial = all(
        _gpus(works[i]) & _gpus(works[j])  # only those of one GPU share a queue: else, a link is slow
        and before >= _NEAR * later and 0 < _LEAST * needed(i) <= later - before
        and (not start[i] or later - start[i] >= _MOST * needed(i))
        for (before, j), (later, i) in pairwise(ends)
    ) and first - start[earliest] <= _MOST * needed(earliest)  # fmt: skip
    # Copy engines start the clock of a transfer when its turn comes: its duration does not show the wait.
    begin = min(start.values())
    queued = all(
        s.wall >= _LEAST * math.fsum(s.seconds[i] for i in measured)
        and s.wall > _MOST * (max(t.start + own for t, own in zip(works, s.seconds, strict=True)) - begin)
        for s in samples
    )
    if not serial and not queued:
        return ""
    order = ", then ".join(works[i].way for _, i in ends[:3]) + (", ..." if len(ends) > 3 else "")
    if not queued:  # a link at half its rate looks the same
        return (
            f"transfers that started together ended one after another ({order}): they share a queue or "
            "copy engine, so try the engine sm, or the later ones are slow alone, too, so measure them alone"
        )
    return (
        f"transfers that started together ran one after another ({order}): their rates are not those of "
        "concurrent transfers; they may share a queue or a copy engine, so try the engine sm"
    )


def _gpus(work: Transfer) -> set[str]:
    """The GPUs whose queues or copy engines a transfer may use."""
    ends: tuple[Memory | Executor, ...] = (*work.ends, work.executor)
    return {f"{end.rank}/{end.device}" for end in ends if not is_host(end.device)}


def _alone(network: Network, measurement: Measurement, index: int, sample: Sample) -> float:
    """The typical duration of a transfer alone, in s; 0 if unknown."""
    work = measurement.transfers[index]
    alone = Measurement((work,), (Place("", 0, 0),))
    (allowed,) = allowances(network, alone, efficiencies())
    rate = allowed.expected[1] if allowed.expected else (allowed.limit or 0.0) * _TYPICAL
    return sample.amounts[index] * work.counted / rate if rate else 0.0


#: A pair with a value below its typical value by more than this fraction is measured again.
LOW_FRACTION = 0.05

#: Relative differences below this are noise.
NOISE_FRACTION = 0.02


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
    5 %; or without a value, because another pair may have failed.

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
            low = value > median * (1 + LOW_FRACTION)
        else:
            low = value < max(median, typical) * (1 - LOW_FRACTION)
        if low:
            low_pairs[pair] = None
    return list(low_pairs)


def blocking(tables: Sequence[Table]) -> str:
    """Which pairs were significantly slower together than separately; empty if none.

    Significantly: the confidence intervals of the medians of their samples, which were taken in the same
    run, do not overlap, and the medians differ by over 2 %.
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
    return slow.value < (1 - NOISE_FRACTION) * fast.value and highest < lowest
