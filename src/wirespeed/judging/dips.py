"""Sizes of a curve that are far slower than their neighbours, which no limit is required to see."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

from ..document import Document, TestcaseResult
from ..measurement import Unit
from ..results.cells import Key, key_of
from ..tables import BUSBW, Cell, Table
from ..units import format_size
from .path_kinds import COLLECTIVES, GPU_GPU, HOST_GPU, PROCESSES, path_kind

#: A size dips if the next larger one has this many times its rate and at most this fraction of its time.
#: Where start-up dominates, the rate grows with the size and the time does not fall; switches between
#: algorithms and protocols change the rate of published curves by at most a factor of two.
_RISE, _TIME = 8.0, 0.5
#: A size dips, too, if it has at most this fraction of the rate of the next smaller one.
_FALL = 0.2
#: The first size of a curve is slow where it warms up, up to this size in bytes.
_WARMED_UP = 64 * 1024
#: Curves over sizes of messages. Those of memory have steps at the sizes of caches.
_KINDS = (COLLECTIVES, PROCESSES, HOST_GPU, GPU_GPU)


@dataclass(frozen=True)
class Dip:
    """A size that is far slower than a neighbouring one.

    Attributes:
        key: The value of the size, which the verdicts are on.
        size, other: The slow size and the neighbouring one, in bytes.
        times: Time of the slow size over that of the other one.
    """

    key: Key
    size: int
    other: int
    times: float

    def __str__(self) -> str:
        size, other = format_size(self.size), format_size(self.other)
        return f"{self.key.testcase}: {size} takes {self.times:.2g} times as long as {other}"


def dips(document: Document) -> tuple[Dip, ...]:
    """Return the sizes of all curves of a run that are far slower than a neighbouring one."""
    return tuple(
        dip
        for result in document.testcases
        if path_kind(result.name, collective=result.collective is not None) in _KINDS
        for table in result.tables
        for dip in _of_table(result, table)
    )


def _of_table(result: TestcaseResult, table: Table) -> Iterator[Dip]:
    """Yield the dips of the curves of a table; of a collective, only of the times: logs round rates."""
    collective, sizes = result.collective is not None, table.columns.values
    if table.columns.unit != "B" or len(sizes) != len(table.columns.labels):
        return
    if table.unit not in (Unit.TIME, Unit.RATE) or (collective and table.key != "time"):
        return
    for row in range(len(table.rows.labels)):
        cells = [cell for cell in table.cells if cell.row == row and cell.value and sizes[cell.column] > 0]
        cells.sort(key=lambda cell: sizes[cell.column])
        for slow, other in _slow(cells, sizes, table.unit):
            key = key_of(result, table, slow)
            if collective:
                judged = next((t for t in result.tables if t.key == BUSBW), table)
                key = next(
                    (key_of(result, judged, c) for c in judged.cells
                     if (c.row, c.column) == (slow.row, slow.column)), key,
                )  # fmt: skip
            times = _seconds(slow, sizes, table.unit) / _seconds(other, sizes, table.unit)
            yield Dip(key, int(sizes[slow.column]), int(sizes[other.column]), times)


def _slow(cells: Sequence[Cell], sizes: Sequence[float], unit: Unit) -> Iterator[tuple[Cell, Cell]]:
    """Yield each slow cell of a curve in the order of sizes, and the neighbour that shows it."""
    for small, large in pairwise(cells):
        ratio = sizes[large.column] / sizes[small.column]
        time = _seconds(large, sizes, unit) / _seconds(small, sizes, unit)
        warms_up = small is cells[0] and sizes[small.column] < _WARMED_UP
        if ratio / time >= _RISE and time <= _TIME and not warms_up:
            yield small, large
        elif ratio / time <= _FALL:
            yield large, small


def _seconds(cell: Cell, sizes: Sequence[float], unit: Unit) -> float:
    """Return the time of a value, in s; of several samples the shortest: short ones are easily disturbed."""
    value = cell.value or 0.0
    if unit is Unit.TIME:
        return min([value, *(s for s in cell.samples if s > 0)])
    return sizes[cell.column] / max([value, *cell.samples])
