"""Logs of benchmarks of MPI: the Intel MPI Benchmarks (IMB-MPI1) and the OSU micro-benchmarks.

Formats and factors of IMB: ``src_c/IMB_output.c`` of intel/mpi-benchmarks. ``Mbytes/sec`` are MB/s since IMB
2018 and MiB/s before; each row says which, because its rate follows from its size and time, or its messages.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence

from ..measurement import Unit
from ..testcases.base import BANDWIDTH, LATENCY, RATE
from ..units import MB, MIB, format_size, many
from .log import (
    FoundLog,
    FoundTable,
    Tool,
    curve,
    each,
    in_units,
    number,
    numbers,
    parts,
    runs,
    says_failure,
    scaled,
    size_of,
    text,
    whole,
)

_BLOCK = re.compile(r"\s*#\s*Benchmarking (\S+)")
_HEAD_IMB = re.compile(r"\s*(?:Group +)?#(bytes +#)?repetitions\s")
#: Lines with which a log of this tool begins.
_START_IMB = re.compile(rf"\s*#\s+(?:Intel ?\(R\)|PALLAS) MPI Benchmark|{_BLOCK.pattern}|{_HEAD_IMB.pattern}")
_SUITE = re.compile(
    r"\s*#\s+(?:Intel ?\(R\)|PALLAS) MPI Benchmark(?:s| Suite) V?([\w. ]+?)(?: Update \d+)?, *([\w-]*)"
)
#: The part whose benchmarks are those of our testcases, and the program that sends from GPUs.
_MPI1, _OF_GPUS = "MPI-1", re.compile(r"IMB-\w+-GPU\b")
_PROCESSES = re.compile(r"\s*# ?#processes = (\d{1,7})")
_ROW = re.compile(r"\s*\d+\s+\d+\s+\S|\s*\d+\s+\d+\.\d+\s")
#: The last line of a program that ran to its end.
_END = "All processes entering MPI_Finalize"
#: How often a byte counts: once, sent and received (Sendrecv), or both to both neighbours (Exchange).
_COUNTED = (1, 2, 4)
_MEGABYTES = (float(MB), float(MIB))
#: Benchmark -> row of the table of rates with the same definition: 64 concurrent messages of two processes.
_WINDOWED = {"Uniband": 0, "Biband": 1}
_LABELS = {"t": "time", "t_min": "minimum", "t_max": "maximum", "t_avg": "average", "t_ovrl": "overlapped",
           "t_pure": "pure", "t_CPU": "computation"}  # fmt: skip
_LIMIT = re.compile(r"\s*\d+ +(out-of-mem|int-overflow|time-out)\.?;")
_KNOWN = re.compile(r"#|$|[~=-]{5,}|[$>] |\[?\d+ additional processes")
_MESSAGES_IMB, _MICRO_IMB = "message_mpi_host", 1e-6
_TOOL = "IMB"


def _read_of_imb(lines: Sequence[str]) -> Iterator[FoundLog]:
    """Yield the runs of the tool that some lines contain, one for each table."""
    for run in runs(lines, _SUITE):
        yield from _of_run(run)


def _of_run(lines: Sequence[str]) -> Sequence[FoundLog]:
    suite = next((match for line in lines if (match := _SUITE.match(line))), None)
    version, part = (text(suite[1]), suite[2]) if suite else ("", _MPI1)
    alike = part == _MPI1 and not any(_OF_GPUS.search(line) for line in lines)
    logs = [_of_table(table, version, alike) for table in parts(lines, _START_IMB, _ROW)]
    if suite and not any(_END in line for line in lines):
        logs[-1].doubt(f"it lacks its last line, '{_END}'")
    return logs


def _of_table(lines: Sequence[str], version: str, alike: bool) -> FoundLog:
    """Read a table; ``alike`` says whether its benchmarks may be those of testcases."""
    log = FoundLog(_TOOL, version, lines=len(lines), partial=True)
    name, processes, columns = "", 0, list[str]()
    groups: dict[float, dict[str, dict[int, float | None]]] = {}  # group -> column -> size -> number
    for line in lines:
        if match := _BLOCK.match(line):
            name = text(match[1])
        elif match := _PROCESSES.match(line):
            processes = int(match[1])
        elif _HEAD_IMB.match(line):
            columns = line.replace("overlap[%]", "").split()
        elif _LIMIT.match(line):
            log.warnings.append(f"not measured: {text(line)}")
        elif columns and _ROW.match(line) and (values := numbers(line)):
            row = dict(zip(columns, values, strict=False))
            size = size_of(row.get("#bytes", 0.0))
            if size is None or len(values) < len(columns):
                log.doubt(f"a row is cut: {line.strip()}")
                continue
            if row.get("defects"):
                log.failures.append(f"validation failed at {size} B: {row['defects']:g} defects")
            found = groups.setdefault(row.get("Group") or 0.0, {})
            for column, value in row.items():
                found.setdefault(column, {})[size] = value
        else:
            log.other(line.strip(), _KNOWN)
    if not groups and (name or columns):
        log.doubt(f"it has no results of {name or 'a benchmark'}")
    for group, found in groups.items():
        called = f"{name} of group {group:g}".strip() if len(groups) > 1 else name
        log.tables += _tables_of_imb(called, processes, found, alike)
    return log


def _tables_of_imb(
    name: str, processes: int, found: Mapping[str, Mapping[int, float | None]], alike: bool
) -> Iterator[FoundTable]:
    """Yield the tables of times, of rates and of messages."""
    bare = name.removeprefix("Multi-")
    times = {
        _LABELS.get(column.partition("[")[0], column): in_units(values, _MICRO_IMB)
        for column, values in found.items()
        if column.endswith("[usec]")
    }
    rates = found.get("Mbytes/sec", {})
    counts = found.get("Msg/sec", {})
    of_two = alike and processes in (0, 2) and name == bare
    called = f"{_TOOL} {name}".strip() + (f", {many(processes, 'process', 'processes')}" if processes else "")
    why = "no testcase measures the same"
    if bare == "PingPong" and of_two and "time" in times:
        yield curve(_MESSAGES_IMB, LATENCY, called, {"reused buffer": times.pop("time")}, Unit.TIME, "buffer")
        why = "one message at a time; message_mpi_host measures the rate of concurrent ones"
    if times:
        yield curve(called, "latency", called, times, Unit.TIME, "time", why)
    by_unit = in_units(rates, _unit(found))
    if bare in _WINDOWED and of_two and rates:
        row, ways = _WINDOWED[bare], ("one way", "both ways, sum")
        rows = {way: by_unit if i == row else {} for i, way in enumerate(ways[: row + 1])}
        yield curve(_MESSAGES_IMB, BANDWIDTH, called, rows, Unit.RATE, "ways")
        if counts and not row:
            rows = {ways[0]: in_units(counts, 1.0)}
            yield curve(_MESSAGES_IMB, RATE, called, rows, Unit.FREQUENCY, "ways")
        return
    if rates:
        yield curve(called, "bandwidth", called, {"rate": by_unit}, Unit.RATE, "value", why)
    if counts:
        yield curve(called, "rate", called, {"messages": in_units(counts, 1.0)}, Unit.FREQUENCY, "value", why)


def _unit(found: Mapping[str, Mapping[int, float | None]]) -> float:
    """The bytes of an ``Mbyte``, which follow from the rows: 1e6 or 2**20."""
    rates, counts = found.get("Mbytes/sec", {}), found.get("Msg/sec", {})
    times = found.get("t[usec]") or found.get("t_max[usec]") or {}
    for size in sorted(rates, reverse=True):
        rate, time, messages = rates[size], times.get(size), counts.get(size)
        if not rate or rate < 1 or not (time or messages):
            continue
        exact = size * messages if messages else size / ((time or 0.0) * _MICRO_IMB)
        ratio = exact / rate
        return min(_MEGABYTES, key=lambda unit: min(abs(ratio * n / unit - 1) for n in _COUNTED))
    return float(MB)


#: How these logs are read.
IMB = Tool(_START_IMB, _read_of_imb)


#: Lines with which a log of this tool begins; an excerpt begins with the heading of its table.
_START_OSU = re.compile(
    r"# OSU (MPI|OpenSHMEM|NCCL|RCCL|UPC|Xccl|MPI[-_]\w+).* Test|# Size +(Bandwidth|Latency|Avg|MB/s)\b"
)
_BEGIN = re.compile(r"# OSU (.+?) Test(?: v(\S+))?")
#: Where the buffers of the two ranks are.
_BUFFERS_IN = re.compile(r"# Send Buffer on (\w+).* Receive Buffer on (\w+)")
#: The columns of a table.
_HEAD_OSU = re.compile(r"# Size +(.+)")
_COLUMN = re.compile(
    r"((?:Avg |Min |Max )?(?:Latency|Bandwidth|Lat|MB/s|Messages/s)) ?(?:\(([\w/]+)\))?", re.IGNORECASE
)
#: Benchmarks whose two ranks send messages to each other, over MPI or NCCL.
_MESSAGES_OSU = re.compile(r"(MPI|NCCL|RCCL|Xccl)(-\w+)? ")
_PAIRS = re.compile(r"# \[ pairs: (\d{1,6}) \]")
_MICRO_OSU = 1e-6
#: Labels of the rows, as the testcase has them: the buffers of a latency, the ways of a rate.
_BUFFERS, _WAYS = ("reused buffer",), ("one way", "both ways, sum")


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
            elif head := _HEAD_OSU.match(line):
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
            log.doubt(f"no value at {size} B")
        else:
            points[size] = values
    if points:
        tables = _tables_of_osu(kind, buffers, pairs, columns, dict(sorted(points.items())))
        log.tables += [table for table in tables if table.columns]
    else:
        log.doubt("it has no values")
    return log


def _tables_of_osu(
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
    elif benchmark in of_point and _MESSAGES_OSU.match(kind) and not between:
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
            else (LATENCY, Unit.TIME, _MICRO_OSU) if "lat" in lower
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
        LATENCY: (_MICRO_OSU, Unit.TIME), BANDWIDTH: (float(MB), Unit.RATE), RATE: (1.0, Unit.FREQUENCY)
    }[key]  # fmt: skip
    found = {size: values[column] for size, values in points.items() if len(values) > column}
    scaled_to = dict(zip(found, scaled(found.values(), scale), strict=True))
    labels, axis = (_BUFFERS, "buffer") if key == LATENCY else (_WAYS[: row + 1], "ways")
    rows = {label: scaled_to if i == row else dict.fromkeys(found) for i, label in enumerate(labels)}
    return curve(case, key, kind, rows, unit, axis)


#: How these logs are read.
OSU = Tool(_START_OSU, each(_run, runs, _BEGIN))
