"""The map of block lists, over block size and number: as text for a terminal, and as JSON for a server to
load, whose fields docs/blocks.md describes.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any

import msgspec
from rich.console import RenderableType
from rich.table import Column
from rich.text import Text

from ...judging.judged import Judged
from ...model import Method
from ...reports.console import pieces, printed
from ...reports.records import picked
from ...reports.style import SIMULATED, Style
from ...terminal import colored, columns
from ...thresholds.values import MODEL_ERROR, NEARLY_FULL
from ...units import GB, KIB, MICRO, format_size, format_time
from .block_map import BlockMap, PathMap, StorageMap, map_of
from .block_models import Model, Point
from .saturation import saturations

#: Letter and colour of each method: none of the colours means pass or fail.
MARKS = {
    Method.LOOP: ("L", "white on grey37"),
    Method.BATCH: ("B", "black on light_steel_blue1"),
    Method.KERNEL: ("K", "white on dodger_blue3"),
    Method.KERNEL_BULK: ("U", "black on cyan3"),
    Method.STAGED: ("S", "white on purple"),
}

#: Of smaller blocks of storage, people also want the number of calls in a second.
_FEW_CALLS_BYTES = 64 * KIB


#: Width of a value, and of terminals in which it is narrower.
_VALUE, _NARROW, _WIDE_ENOUGH = 9, 7, 80


def render(judged: Judged, style: Style) -> str:
    """The maps of a run, with what follows from them."""
    return text(map_of(judged.document), style)


def text(blocks: BlockMap, style: Style | None = None) -> str:
    """The maps as text; without a style for this terminal.

    ``verbose`` has the map of each device, the times of calls, and the models.
    """
    style = style or Style(columns(), colored())
    document, parts = blocks.document, list[RenderableType]()
    if document.simulated:
        parts.append(Text(f"{SIMULATED} (machine {document.machine.name})", style="bold magenta"))
    shown = blocks.paths if style.verbose else blocks.drawn
    parts += [part for path in shown for part in _drawn(path, style)]
    used = [method for method in MARKS if any(method in p.rates for path in shown for p in path.points)]
    if used:
        parts.append(Text("  ".join(f"{MARKS[method][0]} {method}" for method in used), style="dim"))
    parts += [Text(sentence) for sentence in blocks.sentences()]
    if blocks.drawn and not style.verbose:
        parts.append(Text("-v shows every map, models, and vLLM's rule for this machine", style="dim"))
    parts += [part for storage in blocks.storage if storage.rates for part in _of_storage(storage)]
    if not blocks.paths and not blocks.storage:
        others = ", ".join(result.name for result in document.testcases) or "nothing"
        parts.append(Text(f"no block list was measured, only {others}; measure with `wirespeed blocks`"))
    return printed(style, *parts)


def _drawn(path: PathMap, style: Style) -> Iterator[RenderableType]:
    """The map of a path, and what follows from it."""
    counts = sorted({point.blocks for point in path.points})
    width = _VALUE if style.width >= _WIDE_ENOUGH else _NARROW
    yield Text(f"{path.title}: best method and its rate in GB/s", style="bold")
    heads = "".join(f"{count:<{width}}" for count in counts)
    yield Text(f"{'block':>8} {heads}{'blocks' if width == _VALUE else ''}".rstrip(), style="dim")
    for block, row in path.by_block.items():
        line = Text(f"{format_size(block):>8} ")
        by_count = {point.blocks: point for point in row}
        for count in counts:
            point = by_count.get(count)
            if point is None:
                line.append(f"{'-':<{width}}", style="dim")
                continue
            letter, color = MARKS[point.best]
            value = f"{letter} {rate_of(point.rates[point.best])}"
            line.append(f"{value:<{width - 1}}", style=color).append(" ")
        yield line
    for sentence in path.sentences():
        yield Text(sentence)
    if style.verbose:
        yield from (Text(str(rule)) for rule in (path.rule,) if rule is not None)
        yield from (Text(f"  {modelled(model)}", style="dim") for model in path.models)
        yield from _calls(path, counts, style)
    yield Text("")


def _calls(path: PathMap, counts: Sequence[int], style: Style) -> Iterator[RenderableType]:
    """The time of a call by the best method: half of the calls, and 99%, take no longer."""
    if not any(point.calls for point in path.points):
        return
    yield Text(f"{path.title}: time of a call by the best method in µs, p50/p99", style="bold")
    rows = []
    for block, row in path.by_block.items():
        by_count = {point.blocks: call_times(point) for point in row}
        rows.append([format_size(block), *(by_count.get(count, "-") for count in counts)])
    yield from pieces(Column("block", no_wrap=True), list(map(str, counts)), rows, style.width)


def call_times(point: Point) -> str:
    """The p50 and p99 of a call by the best method, in µs; a dash if no call was timed."""
    calls = point.calls.get(point.best)
    return "/".join(f"{time / MICRO:.0f}" for time in (calls.p50, calls.p99)) if calls else "-"


def _of_storage(storage: StorageMap) -> Iterator[Text]:
    """The rates of a storage device, and what they are at most."""
    sizes, depths = (sorted({point[i] for point in storage.rates}) for i in (0, 1))
    yield Text(f"{storage.title}: rate in GB/s", style="bold")
    yield Text(f"{'block':>8} " + "".join(f"{depth:<9}" for depth in depths) + "calls at a time", style="dim")
    for size in sizes:
        row = [storage.rates.get((size, depth)) for depth in depths]
        cells = "".join(f"{'-' if rate is None else rate_of(rate):<9}" for rate in row)
        yield Text(f"{format_size(size):>8} {cells}".rstrip())
    (size, depth), most = max(storage.rates.items(), key=lambda point: point[1])
    calls = f", {most / size:,.0f} calls a second" if size < _FEW_CALLS_BYTES else ""
    yield Text(f"fastest: {rate_of(most)} GB/s{calls} with {format_size(size)}, {depth} at a time")
    yield Text("")


def rate_of(rate: float) -> str:
    value = rate / GB
    digits = 0 if value >= 100 else 1 if value >= 1 else 2 if value >= 0.1 else 3
    return f"{value:.{digits}f}"


def modelled(model: Model) -> str:
    """The model of a method in one line."""
    rate = "" if math.isinf(model.rate) else f", bytes at {rate_of(model.rate)} GB/s"
    full = f"never reaches {NEARLY_FULL:.0%} of the fastest rate"
    if model.nearly_full:
        full = f"{NEARLY_FULL:.0%} of the fastest rate from blocks of {format_size(model.nearly_full)} on"
    if model.error > MODEL_ERROR:
        return f"{model.method}: the time of a block depends on its size; {full}"
    return (
        f"{model.method}: {format_time(model.call_s)} per call, {format_time(model.block_s)} per block{rate} "
        f"(median error {model.error:.0%}); {full}"
    )


#: Version of the shape.
SHAPE = 1


def render_blocks_json(judged: Judged, style: Style) -> str:
    """The maps of a run as one JSON object."""
    return as_json(map_of(judged.document))


def as_json(blocks: BlockMap) -> str:
    """A map as one JSON object."""
    return msgspec.json.format(msgspec.json.encode(data(blocks)), indent=1).decode() + "\n"


def data(blocks: BlockMap) -> dict[str, Any]:
    """The maps as plain data, for a server to load."""
    document = blocks.document
    return {
        "schema": SHAPE,
        **picked(document, "simulated host started"),
        "testcases": [result.name for result in document.testcases],
        "sentences": list(blocks.sentences()),
        "paths": [
            {
                **picked(path, "direction path layout while_computing like"),
                "points": [
                    picked(
                        point, "direction path block blocks best rates limit submission_s calls p50_s p99_s "
                        "first_s slowdown computation_slowdown",
                        direction=path.direction, path=path.path, submission_s=point.submissions,
                        calls={method: calls.n for method, calls in point.calls.items()},
                        p50_s={method: calls.p50 for method, calls in point.calls.items()},
                        p99_s={method: calls.p99 for method, calls in point.calls.items()},
                        first_s={method: calls.first for method, calls in point.calls.items()},
                    )
                    for point in path.points
                ],
                "crossings": list(map(vars, path.crossings)),
                "models": [
                    vars(model) | {"rate": None if math.isinf(model.rate) else model.rate}
                    for model in path.models
                ],
                "rule": path.rule and vars(path.rule),
                "sentences": [*path.sentences(), *map(str, filter(None, (path.rule,)))],
            }
            for path in blocks.paths
        ],
        "storage": [
            {
                **picked(storage, "testcase path"),
                "points": [
                    {"block": block, "depth": depth, "rate": rate}
                    for (block, depth), rate in sorted(storage.rates.items())
                ],
            }
            for storage in blocks.storage
        ],
        "thread_blocks": [
            vars(curve) | {"saturating": curve.saturating} for curve in saturations(document)
        ],
    }  # fmt: skip
