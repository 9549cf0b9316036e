"""Logs of the OSU micro-benchmarks."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from ..measurement import Unit
from ..testcases.messages import BANDWIDTH, LATENCY, RATE
from ..units import MB, format_size
from .log import FoundLog, FoundTable, is_cut, number, runs, scaled, text, whole

#: Lines with which a log of this tool begins.
START = re.compile(r"# OSU (MPI|OpenSHMEM|NCCL|RCCL|UPC|Xccl|MPI-\w+).* Test")
_BEGIN = re.compile(r"# OSU (.+?) Test(?: v(\S+))?")
_DEVICE = re.compile(r"# Send Buffer on DEVICE .* Receive Buffer on DEVICE")
_PAIRS = re.compile(r"# \[ pairs: (\d{1,6}) \]")
_MICRO = 1e-6
#: Labels of the rows, as the testcase has them: the buffers of a latency, the ways of a rate.
_BUFFERS, _WAYS = ("reused buffer",), ("one way", "both ways, sum")


def read(lines: Sequence[str]) -> Iterator[FoundLog]:
    """Yield the runs of the tool that some lines contain."""
    return (_run(part) for part in runs(lines, _BEGIN))


def _run(lines: Sequence[str]) -> FoundLog:
    match = next(match for line in lines if (match := _BEGIN.match(line)))
    kind = text(match[1])
    log = FoundLog("OSU", text(match[2] or ""), lines=len(lines), partial=True)
    on_gpus, pairs = False, 1
    points: dict[int, list[float | None]] = {}
    for at, line in enumerate(map(str.strip, lines)):
        if line.startswith("#"):
            on_gpus |= bool(_DEVICE.match(line))
            if several := _PAIRS.match(line):
                pairs = int(several[1])
            continue
        words = line.split()
        verified = words.pop() if words[-1:] in (["Pass"], ["Fail"]) else ""
        try:
            size, values = whole(words[0]), [number(word) for word in words[1:4]]
        except (ValueError, IndexError):
            log.other(line)
            continue
        if verified == "Fail":
            log.failures.append(f"validation failed at {size} B")
        if not values or is_cut(lines, at) or (points and len(values) < len(next(iter(points.values())))):
            log.failures.append(f"the log ends early: no value at {size} B")
        else:
            points[size] = values
    if not points:
        log.failures.append("the log ends early: it has no values")
    if points:
        tables = _tables(kind, on_gpus, pairs, dict(sorted(points.items())))
        log.tables += [table for table in tables if table.columns]
    return log


def _tables(
    kind: str, on_gpus: bool, pairs: int, points: dict[int, list[float | None]]
) -> Iterator[FoundTable]:
    """Yield the tables of a benchmark."""
    library = "nccl" if kind.startswith(("NCCL", "RCCL")) else "mpi"
    case = f"message_{library}_{'gpu' if on_gpus or library == 'nccl' else 'host'}"
    benchmark = kind.split(" ", 1)[-1]
    of_point = {
        "Latency": (LATENCY, 0),
        "Bandwidth": (BANDWIDTH, 0),
        "Bi-Directional Bandwidth": (BANDWIDTH, 1),
    }
    several = benchmark.startswith("Multiple Bandwidth")
    if several and pairs == 1:
        yield _curve(case, kind, BANDWIDTH, 0, points, 0)
        yield _curve(case, kind, RATE, 0, points, 1)
    elif benchmark in of_point and kind.startswith(("MPI", "NCCL", "RCCL")):
        yield _curve(case, kind, *of_point[benchmark], points, 0)
    else:
        key, scale = (LATENCY, _MICRO) if "Latency" in kind else (BANDWIDTH, float(MB))
        unit = Unit.TIME if key == LATENCY else Unit.RATE
        values = tuple(scaled([values[0] for values in points.values() if values], scale))
        labels = tuple(format_size(size) for size, point in points.items() if point)
        why = "several pairs of ranks" if several else "no testcase measures the same"
        yield FoundTable(f"OSU {kind}", (values,), ("average",), labels, ("value", "message"), unit,
                         title=kind, why_not=why)  # fmt: skip


def _curve(
    case: str, kind: str, key: str, row: int, points: dict[int, list[float | None]], column: int
) -> FoundTable:
    """A curve over the size of a message."""
    sizes = tuple(size for size, values in points.items() if len(values) > column and size > 0)
    scale = {LATENCY: _MICRO, BANDWIDTH: float(MB), RATE: 1.0}[key]
    unit = {LATENCY: Unit.TIME, BANDWIDTH: Unit.RATE, RATE: Unit.FREQUENCY}[key]
    values = scaled([points[size][column] for size in sizes], scale)
    rows = _BUFFERS if key == LATENCY else _WAYS[: row + 1]
    empty: tuple[float | None, ...] = (None,) * len(sizes)
    return FoundTable(
        case, (*[empty] * row, values), rows, tuple(map(format_size, sizes)),
        ("buffer" if key == LATENCY else "ways", "message"), unit, key, kind,
        positions=tuple(map(float, sizes)),
    )  # fmt: skip
