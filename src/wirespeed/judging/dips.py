"""Sizes of a curve that are far slower than their neighbours, which no limit is required to see."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

from ..document import Document, TestcaseResult
from ..measurement import Unit
from ..model import Engine
from ..results.cells import Key, key_of
from ..tables import BUSBW, Cell, Table
from ..thresholds.values import DIP_FALL, DIP_HALF, DIP_LARGE, DIP_RISE, DIP_TIME, DIP_VALLEY, DIP_WARMED_UP
from ..units import format_size
from .path_kinds import COLLECTIVES, GPU_GPU, HOST_GPU, PROCESSES, path_kind

#: Curves over sizes of messages. Those of memory have steps at the sizes of caches.
_KINDS = (COLLECTIVES, PROCESSES, HOST_GPU, GPU_GPU)


@dataclass(frozen=True)
class Dip:
    """A size that is far slower than a neighbouring one.

    Attributes:
        key: The value of the size, which the verdicts are on.
        size, other: The slow size and the neighbouring one, in bytes.
        times: Time of the slow size over the time of the other one.
        returns: Whether the time is not too long for the size alone, but a larger size is faster again.
    """

    key: Key
    size: int
    other: int
    times: float
    returns: bool = False

    def __str__(self) -> str:
        size, other = format_size(self.size), format_size(self.other)
        if self.size > self.other and self.times < self.size / self.other / DIP_FALL:
            share, then = self.size / self.other / self.times, ", larger ones more" if self.returns else ""
            return f"{self.key.testcase}: {size} reaches {share:.0%} of the rate of {other}{then}"
        return f"{self.key.testcase}: {size} takes {self.times:.2g} times as long as {other}"


def dips(document: Document) -> tuple[Dip, ...]:
    """The sizes of all curves of a run that are far slower than a neighbouring one."""
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
    curves = []
    for row in range(len(table.rows.labels)):
        cells = [cell for cell in table.cells if cell.row == row and cell.value and sizes[cell.column] > 0]
        curves.append(sorted(cells, key=lambda cell: sizes[cell.column]))
    of_nccl = collective and result.engine == Engine.NCCL
    valleys = [dict(_valleys(curve, sizes, table.unit, of_nccl=of_nccl)) for curve in curves]
    shared = set[int]().union(*valleys)
    for curve, own in zip(curves, valleys, strict=True) if collective else ():
        shared -= {cell.column for cell in curve} - own.keys()
    for cells, own in zip(curves, valleys, strict=True):
        found = {slow.column: (slow, other, False) for slow, other in _slow(cells, sizes, table.unit)}
        falls = False
        for cell in cells:
            _, _, returns = valley = own.get(cell.column, (cell, cell, False))
            fell, falls = falls, cell.column in own.keys() & shared and not returns
            # Of neighbouring sizes that are all slow, the first one is named.
            if cell.column in own.keys() & shared - found.keys() and not (fell and falls):
                found[cell.column] = valley
        for slow, other, returns in found.values():
            key = key_of(result, table, slow)
            if collective:
                judged = next((t for t in result.tables if t.key == BUSBW), table)
                key = next(
                    (key_of(result, judged, c) for c in judged.cells
                     if (c.row, c.column) == (slow.row, slow.column)), key,
                )  # fmt: skip
            times = _seconds(slow, sizes, table.unit) / _seconds(other, sizes, table.unit)
            yield Dip(key, int(sizes[slow.column]), int(sizes[other.column]), times, returns)


def _slow(cells: Sequence[Cell], sizes: Sequence[float], unit: Unit) -> Iterator[tuple[Cell, Cell]]:
    """Yield each slow cell of a curve in the order of sizes, and the neighbour that shows it."""
    for small, large in pairwise(cells):
        ratio = sizes[large.column] / sizes[small.column]
        time = _seconds(large, sizes, unit) / _seconds(small, sizes, unit)
        warms_up = small is cells[0] and sizes[small.column] < DIP_WARMED_UP
        if ratio / time >= DIP_RISE and time <= DIP_TIME and not warms_up:
            yield small, large
        elif ratio / time <= DIP_FALL:
            yield large, small


def _valleys(
    cells: Sequence[Cell], sizes: Sequence[float], unit: Unit, *, of_nccl: bool
) -> Iterator[tuple[int, tuple[Cell, Cell, bool]]]:
    """Yield the large sizes that are slower than a smaller one, by column.

    Each with the fastest smaller size, and whether a larger one is faster again.
    """
    rates = [sizes[cell.column] / _seconds(cell, sizes, unit) for cell in cells]
    for i, cell in enumerate(cells[1:], 1):
        before = max(range(i), key=lambda k: rates[k])
        share = rates[i] / rates[before]
        returns = share <= DIP_VALLEY and rates[i] <= DIP_VALLEY * max(rates[i:])
        falls = of_nccl and share <= DIP_HALF
        if sizes[cell.column] >= DIP_LARGE and (returns or falls):
            yield cell.column, (cell, cells[before], returns)


def _seconds(cell: Cell, sizes: Sequence[float], unit: Unit) -> float:
    """The time of a value, in s; of several samples the shortest: short ones are easily disturbed."""
    value = cell.value or 0.0
    if unit is Unit.TIME:
        return min([value, *(s for s in cell.samples if s > 0)])
    return sizes[cell.column] / max([value, *cell.samples])
