"""Logs of the OSU micro-benchmarks."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from ..measurement import Unit
from ..testcases.base import BANDWIDTH, LATENCY, RATE
from ..units import MB, format_size
from .log import (
    INCOMPLETE,
    FoundLog,
    FoundTable,
    Tool,
    curve,
    number,
    runs,
    says_failure,
    scaled,
    text,
    whole,
)

#: Lines with which a log of this tool begins; an excerpt begins with the heading of its table.
_START = re.compile(
    r"# OSU (MPI|OpenSHMEM|NCCL|RCCL|UPC|Xccl|MPI[-_]\w+).* Test|# Size +(Bandwidth|Latency|Avg|MB/s)\b"
)
_BEGIN = re.compile(r"# OSU (.+?) Test(?: v(\S+))?")
#: Where the buffers of the two ranks are.
_BUFFERS_IN = re.compile(r"# Send Buffer on (\w+).* Receive Buffer on (\w+)")
#: The columns of a table.
_HEAD = re.compile(r"# Size +(.+)")
_COLUMN = re.compile(
    r"((?:Avg |Min |Max )?(?:Latency|Bandwidth|Lat|MB/s|Messages/s)) ?(?:\(([\w/]+)\))?", re.IGNORECASE
)
#: Benchmarks whose two ranks send messages to each other, over MPI or NCCL.
_MESSAGES = re.compile(r"(MPI|NCCL|RCCL|Xccl)(-\w+)? ")
_PAIRS = re.compile(r"# \[ pairs: (\d{1,6}) \]")
_MICRO = 1e-6
#: Labels of the rows, as the testcase has them: the buffers of a latency, the ways of a rate.
_BUFFERS, _WAYS = ("reused buffer",), ("one way", "both ways, sum")


def _read(lines: Sequence[str]) -> Iterator[FoundLog]:
    """Yield the runs of the tool that some lines contain."""
    return (_run(part) for part in runs(lines, _BEGIN))


def _run(lines: Sequence[str]) -> FoundLog:
    match = next((match for line in lines if (match := _BEGIN.match(line))), None)
    kind = text(match[1]) if match else ""
    log = FoundLog("OSU", text(match[2] or "") if match else "", lines=len(lines), partial=True)
    buffers, pairs = ("", ""), 1
    columns: list[str] = []
    points: dict[int, list[float | None]] = {}
    for line in map(str.strip, lines):
        if line.startswith("#"):
            if several := _PAIRS.match(line):
                pairs = int(several[1])
            elif on := _BUFFERS_IN.match(line):
                buffers = (on[1], on[2])
            elif head := _HEAD.match(line):
                columns = [text(name) for name, _ in _COLUMN.findall(head[1])]
            elif says_failure(line):
                log.failures.append(text(line))
            continue
        words = line.split()
        verified = words.pop() if words[-1:] in (["Pass"], ["Fail"]) else ""
        try:
            size, values = whole(words[0]), [number(word) for word in words[1 : 1 + max(1, len(columns))]]
        except (ValueError, IndexError):
            log.other(line)
            continue
        if verified == "Fail":
            log.failures.append(f"validation failed at {size} B")
        if not values or (points and len(values) < len(next(iter(points.values())))):
            log.warnings.append(f"{INCOMPLETE}: no value at {size} B")
        else:
            points[size] = values
    if points:
        tables = _tables(kind, buffers, pairs, columns, dict(sorted(points.items())))
        log.tables += [table for table in tables if table.columns]
    else:
        log.warnings.append(f"{INCOMPLETE}: it has no values")
    return log


def _tables(
    kind: str, buffers: tuple[str, str], pairs: int, columns: Sequence[str],
    points: dict[int, list[float | None]],
) -> Iterator[FoundTable]:  # fmt: skip
    """Yield the tables of a benchmark."""
    library = "nccl" if kind.startswith(("NCCL", "RCCL")) else "mpi"
    on_gpus = set(buffers) == {"DEVICE"} or library == "nccl"
    case = f"message_{library}_{'gpu' if on_gpus else 'host'}"
    benchmark = kind.split(" ", 1)[-1]
    of_point = {
        "Latency": (LATENCY, 0),
        "Bandwidth": (BANDWIDTH, 0),
        "Bi-Directional Bandwidth": (BANDWIDTH, 1),
    }
    several = benchmark.startswith("Multiple Bandwidth")
    between = buffers[0] != buffers[1]
    if several and pairs == 1 and not between:
        yield _curve(case, kind, BANDWIDTH, 0, points, 0)
        yield _curve(case, kind, RATE, 0, points, 1)
    elif benchmark in of_point and _MESSAGES.match(kind) and not between:
        yield _curve(case, kind, *of_point[benchmark], points, 0)
    else:
        why = (
            f"from {' to '.join(_MEMORIES.get(place, place) for place in buffers)}" if between
            else "several pairs of ranks" if several
            else "no testcase measures the same" if kind
            else "the log does not name the benchmark"
        )  # fmt: skip
        yield from _kept(kind, columns, points, why)


#: Where a buffer is, for people.
_MEMORIES = {"DEVICE": "GPU memory", "HOST": "host memory", "MANAGED": "managed memory"}


def _kept(
    kind: str, columns: Sequence[str], points: dict[int, list[float | None]], why: str
) -> Iterator[FoundTable]:
    """Yield a table for each unit of what no testcase measures."""
    count = max(map(len, points.values()))
    names = [*columns, *[""] * count][:count]
    if not any(names):
        names[0] = "Latency" if "Latency" in kind else "Bandwidth"
    of_unit: dict[tuple[str, Unit, float], list[int]] = {}
    for i, name in enumerate(names):
        lower = name.lower()
        unit = (
            (RATE, Unit.FREQUENCY, 1.0) if "messages" in lower
            else (LATENCY, Unit.TIME, _MICRO) if "lat" in lower
            else (BANDWIDTH, Unit.RATE, float(MB))
        )  # fmt: skip
        of_unit.setdefault(unit, []).append(i)
    sizes = tuple(points)
    for (key, base, scale), places in of_unit.items():
        rows = tuple(
            scaled([points[size][i] if len(points[size]) > i else None for size in sizes], scale)
            for i in places
        )
        yield FoundTable(
            f"OSU {kind}".strip(), rows, tuple(names[i] or "average" for i in places),
            tuple(map(format_size, sizes)), ("value", "message"), base, key, kind or f"OSU {names[0]}",
            why_not=why, positions=tuple(map(float, sizes)),
        )  # fmt: skip


def _curve(
    case: str, kind: str, key: str, row: int, points: dict[int, list[float | None]], column: int
) -> FoundTable:
    """A curve over the size of a message."""
    scale, unit = {
        LATENCY: (_MICRO, Unit.TIME), BANDWIDTH: (float(MB), Unit.RATE), RATE: (1.0, Unit.FREQUENCY)
    }[key]  # fmt: skip
    found = {size: values[column] for size, values in points.items() if len(values) > column}
    scaled_to = dict(zip(found, scaled(found.values(), scale), strict=True))
    labels, axis = (_BUFFERS, "buffer") if key == LATENCY else (_WAYS[: row + 1], "ways")
    rows = {label: scaled_to if i == row else dict.fromkeys(found) for i, label in enumerate(labels)}
    return curve(case, key, kind, rows, unit, axis)


#: How these logs are read.
OSU = Tool(_START, _read)
