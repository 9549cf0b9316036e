"""Logs of tests of RDMA: perftest (``ib_write_bw``, ``ib_read_lat`` and others) and ``ucx_perftest``.

Formats and units: ``src/perftest_parameters.h`` and ``.c`` of linux-rdma/perftest, where ``MB/sec`` are
MiB/s, as newer versions say, and ``Gb/sec`` are 1e9 bit/s; ``src/tools/perf/perftest_run.c`` of openucx/ucx,
where ``MB/s`` are MiB/s.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping, Sequence

from ..measurement import Unit
from ..results.imported_limits import ONE_NIC, ONE_NIC_BOTH_WAYS
from ..units import GB, MIB, format_size
from .log import (
    FoundLog,
    FoundTable,
    Tool,
    curve,
    each,
    in_base,
    in_units,
    numbers,
    parts,
    scaled,
    size_of,
    text,
)

_TITLE = re.compile(r"\s*((?:Send|RDMA_Write|RDMA_Read|Atomic)\w*(?: [A-Z_]{4,})?) ((?:[A-Z]\w+ )*)Test\s*$")
_HEAD = re.compile(r"\s*#?bytes\s+(#?sl\s+)?#?iterations\s")
#: Lines with which a log of this tool begins.
_START = re.compile(rf"{_TITLE.pattern}|{_HEAD.pattern}")
_ROW = re.compile(r"\s*\d+\s+\d+\s+\S")
_COLUMN = re.compile(
    r"#?\b(?:bytes|iterations|sl)\b|tps average|"
    r"(?:BW \w+|MsgRate(?: \w+)?|BW|t_\w+|CPU_Util|99(?:\.9)?% percentile)\[[^\]]+\]"
)
#: Units of a rate -> bytes.
_UNITS = {"MB/sec": float(MIB), "MiB/sec": float(MIB), "Gb/sec": GB / 8}
_RATE, _TIME, _PER_SECOND = re.compile(r"BW (\w+)\[(.+)\]"), re.compile(r"(\S+).*\[usec\]"), "tps average"
#: Names of the statistics of a latency.
_STATISTICS = {
    "t_min": "minimum", "t_max": "maximum", "t_typical": "typical", "t_avg": "average",
    "t_stdev": "standard deviation", "99%": "99%", "99.9%": "99.9%",
}  # fmt: skip
#: Settings that a reader of the numbers needs.
_SETTING = re.compile(
    r"(Device|Number of qps|Connection type|Mtu|Link type|Data ex\. method)\s*: (\S+)|Post List +: (\d+)"
)
_SHOWN = {"Device": "device {}", "Number of qps": "queue pairs: {}", "Connection type": "{}", "Mtu": "MTU {}",
          "Link type": "link layer {}"}  # fmt: skip
#: What it prints in place of results, without a word for failure.
_FAILED = re.compile(
    r"\s*(Couldn't|Unable to|Can't|Cannot) |.*Did not detect devices|.*IB device \S+ not found"
)
_KNOWN = re.compile(
    r"[-*]{3,}|\* Waiting for client|Conflicting CPU frequency|(local|remote) address|GID:|[\w.*\t -]{1,40}:|"
    r"initializing CUDA|Picking|cuda|Listing|There (is|are)|creating CUDA|making it|allocated|\[pid|ib_\w+ |"
    r"[$>] "
)
_WHY = "no testcase measures RDMA between hosts"
_GIVE = f"{_WHY}; to judge its rate, give the NIC: --nics 1x400G"
#: The column that counts if a row is repeated.
_AVERAGE = "BW average"
_MICRO = 1e-6
_TOOL = "perftest"


def _run(lines: Sequence[str]) -> FoundLog:
    log = FoundLog(_TOOL, lines=len(lines), partial=True)
    title, columns = "", list[str]()
    settings: dict[str, str] = {}
    again = False  # --run_infinitely repeats a row
    found: dict[str, dict[int, float | None]] = {}  # column -> size -> number
    for line in lines:
        for setting in _SETTING.finditer(line):
            settings.setdefault(setting[1] or "", setting[2] or "")
        if match := _TITLE.match(line):
            title = text(f"{match[1]} {match[2]}")
        elif _HEAD.match(line):
            columns = _COLUMN.findall(line)
        elif columns and _ROW.match(line) and (values := numbers(line)):
            if len(values) == len(columns) + 1 and "MsgRate[Mpps]" not in columns:
                columns = [*columns, "MsgRate[Mpps]"]
            size = size_of(values[0])
            if size is None or len(values) < len(columns):
                log.doubt(f"a row is cut: {line.strip()}")
                continue
            row = dict(zip(columns[1:], values[1:], strict=False))
            again = again or any(size in by_size for by_size in found.values())
            if again and _is_faster(row, found, size):
                continue
            for column, value in row.items():
                found.setdefault(column, {})[size] = value
        elif _FAILED.match(line):
            log.failures.append(text(line))
        else:
            log.other(line.strip(), _KNOWN)
    if any((value or 0.0) < 0 for values in found.values() for value in values.values()):
        log.warnings.append("values below 0 are impossible, and left out")
    if not found and (columns or title):
        log.doubt(f"it has no results of {title or 'a test'}")
    log.tables += _tables(title, found)
    shown = [
        _SHOWN[name].format(text(value).removesuffix("[B]"))
        for name, value in settings.items()
        if name in _SHOWN
    ]
    if again:
        log.notes.append("of the rows of a size, the slowest counts")
    if found and shown:
        log.notes.append(f"{title or _TOOL}: {', '.join(shown)}")
    return log


def _is_faster(
    row: Mapping[str, float | None], found: Mapping[str, Mapping[int, float | None]], size: int
) -> bool:
    """Whether the average rate of a row is above that of an earlier row of the same size."""
    average = next((column for column in row if column.startswith(_AVERAGE)), "")
    return (row.get(average) or 0.0) > (found.get(average, {}).get(size) or math.inf)


def _tables(title: str, found: dict[str, dict[int, float | None]]) -> Iterator[FoundTable]:
    """Yield the tables of rates, of times, and of messages or transactions."""
    name = f"{_TOOL} {title}".strip()
    rates: dict[str, dict[int, float | None]] = {}
    times: dict[str, dict[int, float | None]] = {}
    counts: dict[str, dict[int, float | None]] = {}
    for column, values in found.items():
        if (match := _RATE.match(column)) and match[2] in _UNITS:
            if any(values.values()):  # the peak is 0 if it was not measured
                rates[match[1]] = in_units(values, _UNITS[match[2]])
        elif (match := _TIME.match(column)) and match[1] in _STATISTICS:
            times[_STATISTICS[match[1]]] = in_units(values, _MICRO)
        elif column == _PER_SECOND:
            counts["transactions"] = in_units(values, 1.0)
        elif column.startswith("MsgRate"):
            counts[column.partition("[")[0].replace("MsgRate", "messages")] = in_units(values, 1e6)
    if rates:
        both = "Bidirectional" in title
        key = ONE_NIC_BOTH_WAYS if both else ONE_NIC
        about = f"{title or 'RDMA'}{', the sum of both directions' if both else ''}"
        yield curve(name, key, about, rates, Unit.RATE, "rate", _GIVE)
    if times:
        yield curve(name, "latency", title or "latency", times, Unit.TIME, "time", _WHY)
    if counts:
        yield curve(name, "rate", f"{title} rate".strip(), counts, Unit.FREQUENCY, "count", _WHY)


#: How these logs are read.
PERFTEST = Tool(_START, each(_run, parts, _START, _ROW))


_HEAD_UCX = re.compile(r"\s*\|\s+\|(\s+\|)? +(latency|overhead) \(usec\) +\| +bandwidth \(MB/s\)")
#: Lines with which a log of this tool begins; the last line of newer versions is enough.
_START_UCX = re.compile(rf"{_HEAD_UCX.pattern}|\s*\| API: +\S|\s*Final: +\d+( +[\d.]+){{5,7}}\s*$")
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
_KNOWN_UCX = re.compile(r"[+|]|$|Waiting for|Accepted connection|[+$#] |\[[\d.]+\] \[|=+")
_UCX_ERROR = re.compile(r".*UCX +(ERROR|FATAL) ")
#: A whole number of messages per second above this determines their size.
_PRECISE = 1000
_WHY_UCX = "no testcase measures UCX"
_TOOL_UCX = "ucx_perftest"


def _read_of_ucx(lines: Sequence[str]) -> Iterator[FoundLog]:
    """Yield the runs of the tool that some lines contain: a heading, or a new result, begins one."""
    start = last = 0
    for i, line in enumerate(lines):
        again = _STAGE.match(line) and "Final" in lines[last]
        if last and (_HEAD_UCX.match(line) or _NAME.match(line.strip()) or again):
            yield _run_of_ucx(lines[start:i])
            start, last = i, 0
        if _result(line):
            last = i
    yield _run_of_ucx(lines[start:])


def _result(line: str) -> list[float | None] | None:
    """The numbers of a result; None if the line is none."""
    match = _STAGE.match(line)
    values = numbers(match[2] if match else line)
    return values if values and (match or len(values) == len(line.split()) == _COLUMNS) else None


def _run_of_ucx(lines: Sequence[str]) -> FoundLog:
    log = FoundLog(_TOOL_UCX, lines=len(lines), partial=True)
    about: dict[str, str] = {}
    kind, percentile, staged, final = "", "typical", False, False
    values: list[float | None] = []
    for line in lines:
        if match := _HEAD_UCX.match(line):
            kind, staged = match[2], bool(match[1])
        elif match := _ABOUT.match(line):
            about[match[1]] = text(match[2])
        elif match := _NAME.match(line.strip()):
            about.setdefault("Test", text(match[1]))
        elif (row := _result(line)) is not None:
            if len(row) < _COLUMNS:
                log.doubt(f"a row is cut: {line.strip()}")
                continue
            values, final = row, final or "Final:" in line
        elif _UCX_ERROR.match(line):
            log.failures.append(text(line.partition("UCX")[2]))
        else:
            if match := _PERCENTILE.search(line):
                percentile = text(match[1])
            log.other(line.strip(), _KNOWN_UCX)
    if not values:
        if kind:
            log.doubt("it has no results")
        return log
    if staged and not final:
        log.doubt("it has no line 'Final:'; the values are those of the last line of progress")
    log.tables += _tables_of_ucx(about, kind or "overhead", percentile, values)
    told = [
        f"{name.lower()}: {value}" for name, value in about.items() if name in ("Send memory", "Recv memory")
    ]
    if told:
        log.notes.append(", ".join(told))
    return log


def _tables_of_ucx(
    about: dict[str, str], kind: str, percentile: str, values: Sequence[float | None]
) -> Iterator[FoundTable]:
    """Yield the tables of times, of rates and of messages: the averages of all iterations."""
    name = f"{_TOOL_UCX} {about.get('Test', '')}".strip()
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
            name, table, labels, (label,), axes, unit, key, f"{name} {key}", size, _WHY_UCX, positions
        )


def _by_rates(rate: float | None, messages: float | None) -> int:
    """The size of a message, in bytes, if it is a power of two; 0 if the rates are too coarse to tell."""
    if not rate or not messages or messages < _PRECISE:
        return 0
    size = rate * MIB / messages
    nearest = 2 ** max(round(math.log2(size)), 0)
    return nearest if abs(size / nearest - 1) < 1 / _PRECISE else 0


#: How these logs are read.
UCX_PERFTEST = Tool(_START_UCX, _read_of_ucx)
