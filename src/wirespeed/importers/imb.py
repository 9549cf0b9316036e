"""Logs of the Intel MPI Benchmarks (IMB-MPI1).

Formats and factors: ``src_c/IMB_output.c`` of intel/mpi-benchmarks. ``Mbytes/sec`` are MB/s since IMB 2018
and MiB/s before; each row says which, because its rate follows from its size and time, or its messages.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence

from ..measurement import Unit
from ..testcases.base import BANDWIDTH, LATENCY, RATE
from ..units import MB, MIB, many
from .log import FoundLog, FoundTable, Tool, curve, doubt, in_units, numbers, parts, runs, size_of, text

_BLOCK = re.compile(r"\s*#\s*Benchmarking (\S+)")
_HEAD = re.compile(r"\s*(?:Group +)?#(bytes +#)?repetitions\s")
#: Lines with which a log of this tool begins.
_START = re.compile(rf"\s*#\s+(?:Intel ?\(R\)|PALLAS) MPI Benchmark|{_BLOCK.pattern}|{_HEAD.pattern}")
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
_MESSAGES, _MICRO = "message_mpi_host", 1e-6
_TOOL = "IMB"


def _read(lines: Sequence[str]) -> Iterator[FoundLog]:
    """Yield the runs of the tool that some lines contain, one for each table."""
    for run in runs(lines, _SUITE):
        yield from _of_run(run)


def _of_run(lines: Sequence[str]) -> Sequence[FoundLog]:
    suite = next((match for line in lines if (match := _SUITE.match(line))), None)
    version, part = (text(suite[1]), suite[2]) if suite else ("", _MPI1)
    alike = part == _MPI1 and not any(_OF_GPUS.search(line) for line in lines)
    logs = [_of_table(table, version, alike) for table in parts(lines, _START, _ROW)]
    if suite and not any(_END in line for line in lines):
        doubt(logs[-1], f"it lacks its last line, '{_END}'")
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
        elif _HEAD.match(line):
            columns = line.replace("overlap[%]", "").split()
        elif _LIMIT.match(line):
            log.warnings.append(f"not measured: {text(line)}")
        elif columns and _ROW.match(line) and (values := numbers(line)):
            row = dict(zip(columns, values, strict=False))
            size = size_of(row.get("#bytes", 0.0))
            if size is None or len(values) < len(columns):
                doubt(log, f"a row is cut: {line.strip()}")
                continue
            if row.get("defects"):
                log.failures.append(f"validation failed at {size} B: {row['defects']:g} defects")
            found = groups.setdefault(row.get("Group") or 0.0, {})
            for column, value in row.items():
                found.setdefault(column, {})[size] = value
        else:
            log.other(line.strip(), _KNOWN)
    if not groups and (name or columns):
        doubt(log, f"it has no results of {name or 'a benchmark'}")
    for group, found in groups.items():
        called = f"{name} of group {group:g}".strip() if len(groups) > 1 else name
        log.tables += _tables(called, processes, found, alike)
    return log


def _tables(
    name: str, processes: int, found: Mapping[str, Mapping[int, float | None]], alike: bool
) -> Iterator[FoundTable]:
    """Yield the tables of times, of rates and of messages."""
    bare = name.removeprefix("Multi-")
    times = {
        _LABELS.get(column.partition("[")[0], column): in_units(values, _MICRO)
        for column, values in found.items()
        if column.endswith("[usec]")
    }
    rates = found.get("Mbytes/sec", {})
    counts = found.get("Msg/sec", {})
    of_two = alike and processes in (0, 2) and name == bare
    called = f"{_TOOL} {name}".strip() + (f", {many(processes, 'process', 'processes')}" if processes else "")
    why = "no testcase measures the same"
    if bare == "PingPong" and of_two and "time" in times:
        yield curve(_MESSAGES, LATENCY, called, {"reused buffer": times.pop("time")}, Unit.TIME, "buffer")
        why = "one message at a time; message_mpi_host measures the rate of concurrent ones"
    if times:
        yield curve(called, "latency", called, times, Unit.TIME, "time", why)
    by_unit = in_units(rates, _unit(found))
    if bare in _WINDOWED and of_two and rates:
        row, ways = _WINDOWED[bare], ("one way", "both ways, sum")
        rows = {way: by_unit if i == row else {} for i, way in enumerate(ways[: row + 1])}
        yield curve(_MESSAGES, BANDWIDTH, called, rows, Unit.RATE, "ways")
        if counts and not row:
            rows = {ways[0]: in_units(counts, 1.0)}
            yield curve(_MESSAGES, RATE, called, rows, Unit.FREQUENCY, "ways")
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
        exact = size * messages if messages else size / ((time or 0.0) * _MICRO)
        ratio = exact / rate
        return min(_MEGABYTES, key=lambda unit: min(abs(ratio * n / unit - 1) for n in _COUNTED))
    return float(MB)


#: How these logs are read.
IMB = Tool(_START, _read)
