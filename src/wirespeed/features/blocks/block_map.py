"""The map of a run of block lists: the best method for each block size and number of blocks, the points where
it changes, a model of each method, the rule of two methods that servers choose by constants, and whether the
map of a device holds for others like it.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from importlib import import_module
from typing import Any

from ...document import Document, TestcaseResult
from ...errors import UsageError
from ...hardware.topology import Machine
from ...model import Method, PoolLayout
from ...options import as_counts, as_size
from ...statistics import grouped
from ...tables import Cell, Table
from ...terminal import Tabular, brief
from ...thresholds.values import GPUS_APART
from ...units import LARGEST_SIZE, format_size, many
from ..storage.testcases import PREFIX as OF_STORAGE
from .block_models import Constants, Model, Point, best_of, model_of, rule_of
from .testcases import COMPUTATION, PREFIX, ListTable, ListValue, kind_of, of_key

#: Smaller differences between them are not shown.
_ALIKE = 0.01
#: Direction of a testcase, as people write it.
_TITLES = {
    "host_to_device": "host → GPU",
    "device_to_host": "GPU → host",
    "device_to_device": "GPU → GPU",
    "host": "host → host",
    "both_ways": "host ↔ GPU",
    "host_to_all": "host → all GPUs",
    "all_to_host": "all GPUs → host",
}
#: The directions that others have at once.
_ONE_WAY = ("host_to_device", "device_to_host")
_AT_ONCE = {"both_ways": _ONE_WAY, "host_to_all": _ONE_WAY[:1], "all_to_host": _ONE_WAY[1:]}


@dataclass(frozen=True)
class Crossing:
    """Where the best method of a block size changes: from a number of blocks on.

    Attributes:
        block, blocks: Size of a block in bytes, and the first measured number with the other method.
        before, after: The best method with fewer blocks, and from there on.
    """

    block: int
    blocks: int
    before: Method
    after: Method


@dataclass(frozen=True)
class PathMap:
    """The map of one path.

    Attributes:
        direction: Key of the direction: ``host_to_device``.
        path: Source and destination: ``numa0->gpu0``.
        points: In the order of block sizes, then of numbers of blocks.
        crossings, models: Where the best method changes, and the model of each method.
        rule: Of a kernel and the batch call; None where both were not measured.
        layout: Which block goes where.
        while_computing: Whether the GPU computed meanwhile.
        like: Path of a device of the same model, whose map stands for this one; empty for that map.
    """

    direction: str
    path: str
    points: tuple[Point, ...]
    crossings: tuple[Crossing, ...] = ()
    models: tuple[Model, ...] = ()
    rule: Constants | None = None
    layout: PoolLayout = PoolLayout.RANDOM
    while_computing: bool = False
    like: str = ""

    @property
    def kind(self) -> tuple[str, PoolLayout, bool]:
        """Direction, layout and computation."""
        return self.direction, self.layout, self.while_computing

    @property
    def by_block(self) -> dict[int, list[Point]]:
        """The points of each block size."""
        return grouped((point.block, point) for point in self.points)

    @property
    def title(self) -> str:
        """Direction and path as text."""
        layout = f", {self.layout}" if self.layout is not PoolLayout.RANDOM else ""
        computing = ", while the GPU computes" if self.while_computing else ""
        return f"{_TITLES.get(self.direction, self.direction)} ({self.path}){layout}{computing}"

    def sentences(self) -> Iterator[str]:
        """Yield which method to use for which blocks, and by how much they slow each other down."""
        groups: list[tuple[list[int], tuple[tuple[int, Method], ...]]] = []
        for block, points in self.by_block.items():
            steps = tuple(
                (point.blocks, point.best)
                for before, point in zip((None, *points), points, strict=False)
                if before is None or before.best is not point.best
            )
            if groups and groups[-1][1] == steps:
                groups[-1][0].append(block)
            else:
                groups.append(([block], steps))
        parts = [
            f"{' to '.join(dict.fromkeys(map(format_size, (blocks[0], blocks[-1]))))}: {_chosen(steps)}"
            for blocks, steps in groups
        ]
        if parts:
            yield "; ".join(parts)
        yield from self._slowdowns()

    def _slowdowns(self) -> Iterator[str]:
        """Yield how much longer lists by the best method take, and the computation next to them."""
        than = "one way" if self.direction == "both_ways" else "to or from one GPU"
        than = "without the computation" if self.while_computing else than
        for text, found in (
            (f"blocks take {{}} as long as {than}", [p.slowdown.get(p.best) for p in self.points]),
            ("the computation takes {} as long as without blocks",
             [p.computation_slowdown.get(p.best) for p in self.points]),
        ):  # fmt: skip
            factors = sorted(factor for factor in found if factor is not None)
            if factors:
                middle = factors[len(factors) // 2]
                yield "by the best method, " + text.format(f"{middle:.2f} times (up to {factors[-1]:.2f})")


def _chosen(steps: Sequence[tuple[int, Method]]) -> str:
    """The methods of a block size, each with the number of blocks from which it is the best."""
    (_, first), *others = steps
    return ", ".join([str(first), *(f"{method} from {blocks} blocks on" for blocks, method in others)])


@dataclass(frozen=True)
class StorageMap:
    """The rates of one storage device in one testcase.

    Attributes:
        testcase: Name of the testcase.
        path: Source and destination.
        title: Title in reports.
        rates: Block size in bytes and number of calls at a time -> rate, in B/s.
    """

    testcase: str
    path: str
    title: str
    rates: Mapping[tuple[int, int], float]


@dataclass(frozen=True, repr=False)
class BlockMap(Tabular):
    """The maps of a run: which way to move scattered blocks.

    Attributes:
        document: The run.
        paths: The map of each path.
    """

    document: Document
    paths: tuple[PathMap, ...]

    @property
    def simulated(self) -> bool:
        """Whether no hardware was measured."""
        return self.document.simulated

    @property
    def storage(self) -> tuple[StorageMap, ...]:
        """The rates of storage, of each device and testcase."""
        results = (result for result in self.document.testcases if result.name.startswith(OF_STORAGE))
        return tuple(
            StorageMap(result.name, table.key, table.title, {
                (round(table.rows.values[cell.row]), round(table.columns.values[cell.column])): cell.value
                for cell in table.cells if cell.value is not None
            })
            for result in results for table in result.tables if _has_sizes(table)
        )  # fmt: skip

    def best(
        self,
        block: int | str,
        blocks: int,
        direction: str = "host_to_device",
        *,
        while_computing: bool = False,
    ) -> Method:
        """The best method for a block size and a number of blocks, by the nearest measured point.

        Args:
            block: Size of a block in bytes, or a text such as ``"64KiB"``.
            blocks: Number of blocks.
            direction: As for ``blocks``.
            while_computing: Whether the GPU computes meanwhile.

        Raises:
            UsageError: If a size is invalid, or the direction was not measured.
        """
        size, (count,) = as_size(block), as_counts((blocks,))
        paths = [path for path in self.drawn if path.direction == direction]
        known = [point for p in paths if p.while_computing == while_computing for point in p.points]
        if not known:
            when = " while the GPU computes" if paths and while_computing else ""
            raise UsageError(f"{direction} was not measured{when}")
        return min(known, key=lambda p: _distance(p.block, size) + _distance(p.blocks, count)).best

    @property
    def drawn(self) -> tuple[PathMap, ...]:
        """The maps that stand for all: those of the first device of each model."""
        return tuple(path for path in self.paths if not path.like)

    def sentences(self) -> Iterator[str]:
        """Yield whether the map of a device holds for others like it: by how much their rates differ."""
        for path in self.drawn:
            others = [other for other in self.paths if other.like == path.path and other.kind == path.kind]
            known = [
                {(point.block, point.blocks): point.rates for point in p.points} for p in (path, *others)
            ]
            points = [[rates[at] for rates in known] for at in known[0] if all(at in p for p in known)]
            if not others or not points:
                continue
            names = [p.path for p in (path, *others)]
            methods = [m for m in Method if all(m in rates for of_all in points for rates in of_all)]
            best = max(
                _spread([max(rates[m] for m in methods) for rates in of_all], names) for of_all in points
            )
            most, method = max(
                (_spread([rates[m] for rates in of_all], names), m) for of_all in points for m in methods
            )
            text = f"{many(len(others), 'path')} like {path.path}, measured at {many(len(points), 'point')}: "
            text += f"best rates differ by at most {max(best[0] - 1, _ALIKE):.0%}"
            if best[0] > GPUS_APART:
                text += f" (lowest {best[1]})"
            if most[0] > GPUS_APART * best[0]:
                text += f"; those of {method} by a factor of up to {most[0]:.1f} (lowest {most[1]})"
            yield text

    def to_json(self) -> str:
        """The maps as JSON, which a server can load."""
        return str(_text().as_json(self))

    def __str__(self) -> str:
        """The maps as text."""
        return str(_text().text(self))

    def __repr__(self) -> str:
        """One line."""
        return brief(f"BlockMap of {', '.join(path.title for path in self.drawn) or 'nothing'}")


def _text() -> Any:
    """The forms of maps, which import this module."""
    return import_module(f"{__package__}.text")


def _spread(rates: Sequence[float], names: Sequence[str]) -> tuple[float, str]:
    """The largest rate over the smallest one, and the name of the smallest one."""
    lowest = min(rates)
    return max(rates) / lowest, names[rates.index(lowest)]


def _distance(value: int, other: int) -> float:
    return abs(math.log(value / other))


def map_of(document: Document) -> BlockMap:
    """The maps of a run, in the order of its testcases."""
    maps = []
    for result in document.testcases:
        paths: dict[ListTable, dict[ListValue, dict[Method, Table]]] = {}
        for table in result.tables:
            if (lists := of_key(result.name, table.key)) and _has_sizes(table):
                path = replace(lists, method=Method.LOOP, shown=ListValue.RATE)
                paths.setdefault(path, {}).setdefault(lists.shown, {})[lists.method] = table
        for path, shown in paths.items():
            if points := tuple(_points(shown, _alone(result, path))):
                made = _map(result, path.path, points)
                maps.append(replace(made, layout=path.layout, while_computing=path.computing))
    maps = [replace(path, points=_than_others(path, maps)) for path in maps]
    firsts: dict[object, PathMap] = {}
    for made in sorted(maps, key=lambda path: -len(path.points)):  # stable: of full maps the first one
        firsts.setdefault(_group(made, document.machine), made)
    return BlockMap(document, tuple(_like(made, firsts[_group(made, document.machine)]) for made in maps))


def _group(path: PathMap, machine: Machine) -> object:
    """What paths of alike devices have in common."""
    return path.kind, kind_of(path.path, machine)


def _like(path: PathMap, first: PathMap) -> PathMap:
    """A map that says which one stands for it; a few points say neither a rule nor a model."""
    if path is first:
        return path
    if len(path.points) == len(first.points):
        return replace(path, like=first.path)
    return replace(path, like=first.path, crossings=(), models=(), rule=None)


def _alone(result: TestcaseResult, path: ListTable) -> float | None:
    """The rate of the computation without lists on the GPU of a path, in B/s; None if unknown."""
    table = next((table for table in result.tables if table.key == COMPUTATION), None)
    for cell in table.cells if table else ():
        assert table is not None
        if cell.value and table.rows.labels[cell.row] in path.path.replace("<->", "->").split("->"):
            return cell.value
    return None


def _than_others(path: PathMap, maps: Sequence[PathMap]) -> tuple[Point, ...]:
    """The points of a path with the slowdown by what happens at the same time."""
    alike = [other for other in maps if other.layout is path.layout]
    if path.while_computing:
        others = [
            other for other in alike
            if (other.path, other.kind) == (path.path, (path.direction, path.layout, False))
        ]  # fmt: skip
    elif path.direction in _AT_ONCE:
        ends = set(path.path.split("<->"))  # one text if all GPUs take part
        others = [
            other for other in alike
            if other.direction in _AT_ONCE[path.direction] and not other.while_computing
            and (len(ends) == 1 or set(other.path.split("->")) == ends)
        ]  # fmt: skip
        if len(others) < 2:
            return path.points
    else:
        return path.points
    known = [{(point.block, point.blocks): point.rates for point in other.points} for other in others]

    def slowdown(point: Point) -> dict[Method, float]:
        rates = [of_other.get((point.block, point.blocks), {}) for of_other in known]
        return {
            method: len(rates) * min(of_other[method] for of_other in rates) / rate
            for method, rate in point.rates.items()
            if rates and all(method in of_other for of_other in rates)
        }

    return tuple(replace(point, slowdown=slowdown(point)) for point in path.points)


def _map(result: TestcaseResult, path: str, points: tuple[Point, ...]) -> PathMap:
    methods = list(dict.fromkeys(method for point in points for method in point.rates))
    fastest = max(rate for point in points for rate in point.rates.values())
    rows = PathMap("", "", points).by_block.values()
    crossings = tuple(
        Crossing(point.block, point.blocks, before.best, point.best)
        for row in rows
        for before, point in itertools.pairwise(row)
        if before.best is not point.best
    )
    models = tuple(filter(None, (model_of(method, points, fastest) for method in methods)))
    return PathMap(result.name.removeprefix(PREFIX), path, points, crossings, models, rule_of(points))


def _has_sizes(table: Table) -> bool:
    """Whether the axes are block sizes and numbers of blocks; those of a file may be anything."""
    values = (*table.rows.values, *table.columns.values)
    return bool(table.rows.values and table.columns.values) and all(1 <= v <= LARGEST_SIZE for v in values)


def _measured(tables: Mapping[Method, Table]) -> dict[tuple[int, int, Method], Cell]:
    """The cells with a value, by row, column and method."""
    return {
        (cell.row, cell.column, method): cell
        for method, table in tables.items()
        for cell in table.cells
        if cell.value is not None and cell.value > 0 and not cell.corrupted
    }


def _points(shown: Mapping[ListValue, Mapping[Method, Table]], alone: float | None) -> Iterator[Point]:
    """Yield the points at which a method has a value; ``alone``: rate of the computation without lists."""
    tables = shown.get(ListValue.RATE, {})
    if not tables:
        return
    axes, values = next(iter(tables.values())), _measured(tables)
    calls, computed = (
        _measured(shown.get(what, {})) for what in (ListValue.SUBMISSION, ListValue.COMPUTATION)
    )
    for i, block in enumerate(axes.rows.values):
        before: Method | None = None
        for j, blocks in enumerate(axes.columns.values):
            cells = {method: cell for method in tables if (cell := values.get((i, j, method)))}
            rates = {method: cell.value for method, cell in cells.items() if cell.value is not None}
            if not rates:
                continue
            best = before = best_of(rates, before)
            times, beside = (
                {m: cell.value for m in rates if (cell := found.get((i, j, m))) and cell.value is not None}
                for found in (calls, computed)
            )
            lists = max(1, round(cells[best].bytes / (block * blocks)))
            single = {method: cell.calls for method, cell in cells.items() if cell.calls is not None}
            slowdown = {method: alone / rate for method, rate in beside.items() if alone}
            yield Point(int(block), int(blocks), best, rates, cells[best].limit, times, single,
                        computation_slowdown=slowdown, lists=lists)  # fmt: skip
