"""The map of a run of block lists: the best method for each block size and number of blocks.

It has the points where the best method changes, a model of each method, and the rule of two methods that
servers choose by constants.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from ..document import Document, TestcaseResult
from ..errors import UsageError
from ..model import Method, PoolLayout
from ..statistics import grouped
from ..tables import Calls, Cell, Table
from ..terminal import Tabular, brief, report
from ..testcases.blocks import COMPUTATION, PREFIX, ListTable, ListValue, of_key
from ..testcases.storage import PREFIX as OF_STORAGE
from ..units import LARGEST_SIZE, format_size

#: Methods that differ by less than this are equally good: the one that is best with fewer blocks stays so,
#: and else the first of these is the best.
EQUAL = 0.03
_SIMPLEST = (Method.BATCH, Method.KERNEL, Method.KERNEL_BULK, Method.LOOP, Method.STAGED)
#: The model of a method does not hold if its median relative error is larger.
MODEL_ERROR = 0.15
#: The fraction of the fastest rate that names the size of large blocks.
NEARLY_FULL = 0.9
#: If rates of several GPUs differ by more than this factor, the lowest one is named.
_APART = 1.2
#: vLLM's constants: it takes a kernel for smaller blocks than this, from this number of blocks on, and else
#: the driver's batch call. Source: vLLM issue 57342, tuned on one H100.
VLLM_BLOCK, VLLM_BLOCKS = 28 * 1024, 16
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
class Point:
    """One block size and number of blocks.

    Attributes:
        block, blocks: Size of a block in bytes, and number of blocks.
        best: The best method.
        rates: Rate of each method, in B/s.
        limit: What the links allow, in B/s; None if unknown.
        submissions: Time until the calls of each method have returned, in s.
        calls: Times of single calls by each method.
        slowdown: By how much each method takes longer than without the computation; for lists that move at
            the same time, than the slowest one of them separately. Absent where that was not measured.
        computation_slowdown: By how much the computation takes longer while the lists move.
        joules_per_byte: Energy of the GPUs that take part, per byte, in J/B.
        lists: Number of lists that move at the same time; the rates count the bytes of all.
    """

    block: int
    blocks: int
    best: Method
    rates: Mapping[Method, float]
    limit: float | None
    submissions: Mapping[Method, float] = field(default_factory=dict)
    calls: Mapping[Method, Calls] = field(default_factory=dict)
    slowdown: Mapping[Method, float] = field(default_factory=dict)
    computation_slowdown: Mapping[Method, float] = field(default_factory=dict)
    joules_per_byte: Mapping[Method, float] = field(default_factory=dict)
    lists: int = 1

    @property
    def share(self) -> float | None:
        """The best rate over the limit."""
        return self.rates[self.best] / self.limit if self.limit else None


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
class Model:
    """The time of a call by a method: ``call_s + blocks x block_s + bytes / rate``, the bytes of all lists.

    Attributes:
        method: The method.
        call_s, block_s: Time of a call, and of each block, in s.
        rate: Rate of large blocks, in B/s; infinite if the bytes take no time that the blocks do not take.
        error: Median relative error of the model.
        nearly_full: Smallest measured block size that reaches 90% of the fastest rate of all methods, in
            bytes; None if none does.
    """

    method: Method
    call_s: float
    block_s: float
    rate: float
    error: float
    nearly_full: int | None


@dataclass(frozen=True)
class Constants:
    """The choice between a kernel and the batch call by two constants.

    Attributes:
        kernel: The better one of the kernels.
        block_below: The kernel moves smaller blocks than this, in bytes; 0: none, None: all.
        blocks_from: From this number of blocks on.
        loss: Largest loss of the rule against the better one of the two, as a fraction of the time.
        usual_loss: That of vLLM's constants.
    """

    kernel: Method
    block_below: int | None
    blocks_from: int
    loss: float
    usual_loss: float


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
    """

    direction: str
    path: str
    points: tuple[Point, ...]
    crossings: tuple[Crossing, ...] = ()
    models: tuple[Model, ...] = ()
    rule: Constants | None = None
    layout: PoolLayout = PoolLayout.RANDOM
    while_computing: bool = False

    @property
    def by_block(self) -> dict[int, list[Point]]:
        """The points of each block size."""
        return grouped((point.block, point) for point in self.points)

    @property
    def title(self) -> str:
        """Direction and path, for people."""
        layout = f", {self.layout}" if self.layout is not PoolLayout.RANDOM else ""
        computing = ", while the GPU computes" if self.while_computing else ""
        return f"{_TITLES.get(self.direction, self.direction)} ({self.path}){layout}{computing}"

    def sentences(self) -> Iterator[str]:
        """Yield which method to use for which blocks, and what a server's constants should be."""
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
            yield f"{self.title}: {'; '.join(parts)}"
        if self.rule is not None:
            yield _constants(self.rule)
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


def _constants(rule: Constants) -> str:
    """The rule as a sentence."""
    below = "for all block sizes" if rule.block_below is None else f"below {format_size(rule.block_below)}"
    chosen = f"{rule.kernel} {below} from {rule.blocks_from} blocks on, else batch"
    if rule.block_below == 0:
        chosen = "always batch"
    return (
        f"{rule.kernel} or batch by two constants, as in vLLM: {chosen} (at most {rule.loss:.0%} slower than "
        f"the better one; vLLM's own constants, {format_size(VLLM_BLOCK)} and {VLLM_BLOCKS} blocks: at most "
        f"{rule.usual_loss:.0%})"
    )


@dataclass(frozen=True)
class StorageMap:
    """The rates of one storage device in one testcase.

    Attributes:
        testcase: Name of the testcase.
        path: Source and destination.
        title: Title for people.
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
        self, block: int, blocks: int, direction: str = "host_to_device", *, while_computing: bool = False
    ) -> Method:
        """The best method for a block size in bytes and a number of blocks, by the nearest measured point.

        Raises:
            UsageError: If the direction was not measured.
        """
        paths = [path for path in self.paths if path.direction == direction]
        known = [point for p in paths if p.while_computing == while_computing for point in p.points]
        if not known:
            when = " while the GPU computes" if paths and while_computing else ""
            raise UsageError(f"{direction} was not measured{when}")
        return min(known, key=lambda p: _distance(p.block, block) + _distance(p.blocks, blocks)).best

    def sentences(self) -> Iterator[str]:
        """Yield whether the map of one GPU holds for the others: by how much their rates differ."""
        alike = grouped(
            ((path.direction, path.layout, path.while_computing), path)
            for path in self.paths
            if path.direction in (*_ONE_WAY, "both_ways")
        )
        for paths in alike.values():
            known = [{(point.block, point.blocks): point for point in path.points} for path in paths]
            points = [[of_path[at] for of_path in known] for at in known[0] if all(at in p for p in known)]
            if len(paths) < 2 or not points:
                continue
            names = [path.path for path in paths]
            best = max(_spread([point.rates[point.best] for point in of_all], names) for of_all in points)
            most, method = max(
                (_spread(rates, names), method)
                for of_all, method in itertools.product(points, Method)
                if all(rates := [point.rates.get(method, 0.0) for point in of_all])
            )
            title = paths[0].title.replace(f" ({paths[0].path})", "")
            differ = f"the best rates of the {len(paths)} GPUs differ by up to {best[0] - 1:.0%}"
            if best[0] > _APART:
                differ += f" (lowest {best[1]})"
            if most[0] > _APART * best[0]:
                differ += f"; those by {method} by a factor of up to {most[0]:.1f} (lowest {most[1]})"
            yield f"{title}: {differ}"

    def to_json(self) -> str:
        """The maps as JSON, which a server can load."""
        return str(report("blocks").as_json(self))

    def __str__(self) -> str:
        """The maps as text."""
        return str(report("blocks").text(self))

    def __repr__(self) -> str:
        """One line."""
        return brief(f"BlockMap of {', '.join(path.title for path in self.paths) or 'nothing'}")


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
    return BlockMap(document, tuple(replace(path, points=_than_others(path, maps)) for path in maps))


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
            if (other.direction, other.path, other.while_computing) == (path.direction, path.path, False)
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
    models = tuple(filter(None, (_model(method, points, fastest) for method in methods)))
    return PathMap(result.name.removeprefix(PREFIX), path, points, crossings, models, _rule(points))


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
            fastest = max(rates.values())
            equal = [method for method in _SIMPLEST if rates.get(method, 0.0) >= (1 - EQUAL) * fastest]
            best = before = before if before in equal else equal[0]
            times, beside = (
                {m: cell.value for m in rates if (cell := found.get((i, j, m))) and cell.value is not None}
                for found in (calls, computed)
            )
            lists = max(1, round(cells[best].bytes / (block * blocks)))
            single = {method: cell.calls for method, cell in cells.items() if cell.calls is not None}
            slowdown = {method: alone / rate for method, rate in beside.items() if alone}
            yield Point(int(block), int(blocks), best, rates, cells[best].limit, times, single,
                        computation_slowdown=slowdown, joules_per_byte={
                            method: joules for method, cell in cells.items()
                            if (joules := cell.joules_per_byte) is not None
                        }, lists=lists)  # fmt: skip


def _model(method: Method, points: Sequence[Point], fastest: float) -> Model | None:
    """Fit the model of a method, with no negative part, to the relative errors of its times."""
    known = [(point, point.rates[method]) for point in points if method in point.rates]
    if len(known) < 3:
        return None
    import numpy as np  # slow, and few maps are made

    moved = [point.block * point.blocks * point.lists for point, _ in known]
    seconds = np.array([size / rate for size, (_, rate) in zip(moved, known, strict=True)])
    parts = np.array([(1.0, point.blocks, size) for size, (point, _) in zip(moved, known, strict=True)])
    scaled = parts / seconds[:, None]
    best, least = np.zeros(3), math.inf
    for chosen in itertools.chain.from_iterable(itertools.combinations(range(3), n) for n in (1, 2, 3)):
        columns = list(chosen)
        fitted, *_ = np.linalg.lstsq(scaled[:, columns], np.ones(len(known)), rcond=None)
        error = float(((scaled[:, columns] @ fitted - 1) ** 2).sum())
        if (fitted >= 0).all() and error < least:
            best, least = np.zeros(3), error
            best[columns] = fitted
    full = [point.block for point, rate in known if rate >= NEARLY_FULL * fastest]
    errors = np.abs(scaled @ best - 1)
    return Model(
        method, float(best[0]), float(best[1]), 1 / float(best[2]) if best[2] else math.inf,
        float(np.median(errors)), min(full, default=None),
    )  # fmt: skip


def _rule(points: Sequence[Point]) -> Constants | None:
    """The constants with the least loss against the better one of a kernel and the batch call."""
    kernels = [
        method for method in (Method.KERNEL, Method.KERNEL_BULK) if any(method in p.rates for p in points)
    ]
    both = [p for p in points if Method.BATCH in p.rates and any(kernel in p.rates for kernel in kernels)]
    if not both:
        return None
    score = {m: math.fsum(math.log(p.rates[m]) for p in both if m in p.rates) for m in kernels}
    kernel = max(kernels, key=lambda m: score[m] + (m is kernels[0]) * EQUAL * len(both))
    both = [point for point in both if kernel in point.rates]

    def losses(below: float, least: int) -> list[float]:
        """By how much each point takes longer than with the better one."""
        chosen = [p.rates[kernel if p.block < below and p.blocks >= least else Method.BATCH] for p in both]
        return [
            max(p.rates[kernel], p.rates[Method.BATCH]) / rate - 1
            for p, rate in zip(both, chosen, strict=True)
        ]

    blocks, counts = ({*values} for values in zip(*((p.block, p.blocks) for p in both), strict=True))
    candidates = [
        (0.0, 0),
        *((below, least) for below in (*sorted(blocks), math.inf) for least in sorted(counts)),
    ]
    below, least = min(candidates, key=lambda c: math.fsum(math.log1p(loss) for loss in losses(*c)))
    usual = losses(VLLM_BLOCK, VLLM_BLOCKS)
    if below <= min(blocks):
        return Constants(kernel, 0, 0, max(losses(0.0, 0)), max(usual))
    whole = None if math.isinf(below) else int(below)
    return Constants(kernel, whole, least, max(losses(below, least)), max(usual))
