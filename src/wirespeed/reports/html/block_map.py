"""The map of block lists on a page: the best method and its rate, over block size and number of blocks."""

from __future__ import annotations

from dataclasses import dataclass

from ...document import Document
from ...judging.block_map import PathMap, Point, maps_of
from ...terminal import one_line
from ...units import format_size
from ..blocks import MARKS, call_times, modelled, rate_of

#: CSS class of each method: its colour, in the order of the letters.
_CSS = {method: f"m{i}" for i, method in enumerate(MARKS)}


@dataclass(frozen=True)
class DrawnMap:
    """The map of a path.

    Attributes:
        title: Direction and path.
        counts: Numbers of blocks, which head the columns.
        rows: Block size, and for each number of blocks class, text and title of its cell; the text of a cell
            that was not measured is a dash.
        legend: Class, letter and name of each method that was measured.
        sentences, models: What follows from the map, and the model of each method.
        calls: Block size, and for each number of blocks p50/p99 of a call by the best method; empty if no
            call was timed.
    """

    title: str
    counts: tuple[int, ...]
    rows: tuple[tuple[str, tuple[tuple[str, str, str], ...]], ...]
    legend: tuple[tuple[str, str, str], ...]
    sentences: tuple[str, ...]
    models: tuple[str, ...]
    calls: tuple[tuple[str, tuple[str, ...]], ...]


def block_maps(document: Document) -> list[DrawnMap]:
    """The maps of a run; none if it measured no block lists."""
    return [_drawn(path) for path in maps_of(document)]


def _drawn(path: PathMap) -> DrawnMap:
    counts = tuple(sorted({point.blocks for point in path.points}))
    rows, calls = [], []
    for block, points in path.by_block.items():
        of_count = {point.blocks: point for point in points}
        cells = (_cell(of_count[count]) if count in of_count else ("none", "-", "") for count in counts)
        rows.append((format_size(block), tuple(cells)))
        times = (call_times(of_count[count]) if count in of_count else "-" for count in counts)
        calls.append((format_size(block), tuple(times)))
    measured = {method for point in path.points for method in point.rates}
    return DrawnMap(
        one_line(path.title),
        counts,
        tuple(rows),
        tuple(
            (_CSS[method], letter, str(method)) for method, (letter, _) in MARKS.items() if method in measured
        ),
        tuple(map(one_line, path.sentences())),
        tuple(map(modelled, path.models)),
        tuple(calls) if any(point.calls for point in path.points) else (),
    )


def _cell(point: Point) -> tuple[str, str, str]:
    """Class, text and title of a point; the title has the rates of all methods."""
    ordered = sorted(point.rates.items(), key=lambda item: -item[1])
    rates = ", ".join(f"{method} {rate_of(rate)}" for method, rate in ordered)
    share = f"; {point.share:.0%} of the limit" if point.share else ""
    share += f"; p50/p99 of a call {call_times(point)} µs" if point.best in point.calls else ""
    letter = MARKS[point.best][0]
    text = f"{letter} {rate_of(point.rates[point.best])}"
    return _CSS[point.best], text, f"{point.blocks} × {format_size(point.block)}, GB/s: {rates}{share}"
