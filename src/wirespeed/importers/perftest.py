"""Logs of perftest: ``ib_write_bw``, ``ib_read_lat`` and the other programs that measure RDMA.

Formats and units: ``src/perftest_parameters.h`` and ``.c`` of linux-rdma/perftest. ``MB/sec`` are MiB/s, as
newer versions say; ``Gb/sec`` are 1e9 bit/s.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping, Sequence

from ..measurement import Unit
from ..results.imported_limits import ONE_NIC, ONE_NIC_BOTH_WAYS
from ..units import GB, MIB
from .log import FoundLog, FoundTable, Tool, curve, doubt, in_units, numbers, parts, size_of, text

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


def _read(lines: Sequence[str]) -> Iterator[FoundLog]:
    """Yield the runs of the tools that some lines contain."""
    return (_run(part) for part in parts(lines, _START, _ROW))


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
                doubt(log, f"a row is cut: {line.strip()}")
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
        doubt(log, f"it has no results of {title or 'a test'}")
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
PERFTEST = Tool(_START, _read)
