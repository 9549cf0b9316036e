"""Logs of ``ucx_perftest``.

Formats and units: ``src/tools/perf/perftest_run.c`` of openucx/ucx. ``MB/s`` are MiB/s.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Sequence

from ..measurement import Unit
from ..units import MIB, format_size
from .log import FoundLog, FoundTable, Tool, doubt, in_base, numbers, scaled, size_of, text

_HEAD = re.compile(r"\s*\|\s+\|(\s+\|)? +(latency|overhead) \(usec\) +\| +bandwidth \(MB/s\)")
#: Lines with which a log of this tool begins; the last line of newer versions is enough.
_START = re.compile(rf"{_HEAD.pattern}|\s*\| API: +\S|\s*Final: +\d+( +[\d.]+){{5,7}}\s*$")
#: What a client or a server prints about the test, between the bars of a box.
_ABOUT = re.compile(
    r"\s*\| (API|Test|Data layout|Send memory|Recv memory|Message size|Window size): +([^|]*)\|"
)
#: The stages of newer versions: a line of progress, and the last one.
_STAGE = re.compile(r"\s*(\[thread \d+\]|Final:)(.*)")
_PERCENTILE = re.compile(r"\| +# iterations +\| +(\S+) +\|")
_NAME = re.compile(r"=+ (\w+) =+$")
#: Columns: iterations, a time three times, and two rates each of bytes and messages.
_COLUMNS = 8
_KNOWN = re.compile(r"[+|]|$|Waiting for|Accepted connection|[+$#] |\[[\d.]+\] \[|=+")
_UCX_ERROR = re.compile(r".*UCX +(ERROR|FATAL) ")
#: A whole number of messages per second above this tells their size.
_PRECISE = 1000
_WHY = "no testcase measures UCX"
_MICRO = 1e-6
_TOOL = "ucx_perftest"


def _read(lines: Sequence[str]) -> Iterator[FoundLog]:
    """Yield the runs of the tool that some lines contain: a heading, or a new result, begins one."""
    start = last = 0
    for i, line in enumerate(lines):
        again = _STAGE.match(line) and "Final" in lines[last]
        if last and (_HEAD.match(line) or _NAME.match(line.strip()) or again):
            yield _run(lines[start:i])
            start, last = i, 0
        if _result(line):
            last = i
    yield _run(lines[start:])


def _result(line: str) -> list[float | None] | None:
    """The numbers of a result; None if the line is none."""
    match = _STAGE.match(line)
    values = numbers(match[2] if match else line)
    return values if values and (match or len(values) == len(line.split()) == _COLUMNS) else None


def _run(lines: Sequence[str]) -> FoundLog:
    log = FoundLog(_TOOL, lines=len(lines), partial=True)
    about: dict[str, str] = {}
    kind, percentile, staged, final = "", "typical", False, False
    values: list[float | None] = []
    for line in lines:
        if match := _HEAD.match(line):
            kind, staged = match[2], bool(match[1])
        elif match := _ABOUT.match(line):
            about[match[1]] = text(match[2])
        elif match := _NAME.match(line.strip()):
            about.setdefault("Test", text(match[1]))
        elif (row := _result(line)) is not None:
            if len(row) < _COLUMNS:
                doubt(log, f"a row is cut: {line.strip()}")
                continue
            values, final = row, final or "Final:" in line
        elif _UCX_ERROR.match(line):
            log.failures.append(text(line.partition("UCX")[2]))
        else:
            if match := _PERCENTILE.search(line):
                percentile = text(match[1])
            log.other(line.strip(), _KNOWN)
    if not values:
        if kind:
            doubt(log, "it has no results")
        return log
    if staged and not final:
        doubt(log, "it has no line 'Final:'; the values are those of the last line of progress")
    log.tables += _tables(about, kind or "overhead", percentile, values)
    told = [
        f"{name.lower()}: {value}" for name, value in about.items() if name in ("Send memory", "Recv memory")
    ]
    if told:
        log.notes.append(", ".join(told))
    return log


def _tables(
    about: dict[str, str], kind: str, percentile: str, values: Sequence[float | None]
) -> Iterator[FoundTable]:
    """Yield the tables of times, of rates and of messages: the averages of all iterations."""
    name = f"{_TOOL} {about.get('Test', '')}".strip()
    size = size_of(in_base(about.get("Message size"))) or _by_rates(values[5], values[7])
    label = format_size(size) if size else "size not in the log"
    axes = ("value", "message")
    positions = (float(size),) if size else ()
    times = ((values[1] or None,), (values[2],), (values[3],))  # 0.000 in versions without a percentile
    last, whole = "average of the last window", "average"
    for key, labels, table, unit in (
        (kind, (percentile, last, whole), tuple(scaled(row, _MICRO) for row in times), Unit.TIME),
        ("bandwidth", (last, whole), tuple(scaled((v,), float(MIB)) for v in values[4:6]), Unit.RATE),
        ("rate", (last, whole), tuple(scaled((v,), 1.0) for v in values[6:8]), Unit.FREQUENCY),
    ):
        yield FoundTable(
            name, table, labels, (label,), axes, unit, key, f"{name} {key}", size, _WHY, positions
        )


def _by_rates(rate: float | None, messages: float | None) -> int:
    """The size of a message, in bytes, if it is a power of two; 0 if the rates are too coarse to tell."""
    if not rate or not messages or messages < _PRECISE:
        return 0
    size = rate * MIB / messages
    nearest = 2 ** max(round(math.log2(size)), 0)
    return nearest if abs(size / nearest - 1) < 1 / _PRECISE else 0


#: How these logs are read.
UCX_PERFTEST = Tool(_START, _read)
