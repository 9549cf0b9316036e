"""Logs of tests of messages: perftest, the Intel MPI Benchmarks and the OSU micro-benchmarks. Formats and
units: ``src/perftest_parameters.h`` and ``.c`` of linux-rdma/perftest (``ib_write_bw``, ``ib_read_lat`` and
others), where ``MB/sec`` are MiB/s, as newer versions say, and ``Gb/sec`` are 1e9 bit/s;
``src_c/IMB_output.c`` of intel/mpi- benchmarks. ``Mbytes/sec`` of IMB-MPI1 are MB/s since IMB 2018 and MiB/s
before; each row says which, because its rate follows from its size and time, or its messages.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping, Sequence

from ...measurement import Unit
from ...model import MESSAGE_BANDWIDTH, MESSAGE_LATENCY, MESSAGE_RATE
from ...results.imported_limits import ONE_NIC, ONE_NIC_BOTH_WAYS
from ...units import GB, MB, MIB, MICRO, many
from . import scan
from .log import Columns, FoundLog, FoundTable, Tool
from .log_parts import curve, each, parts, runs

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
#: Settings that a reader of the numbers needs -> how they are shown.
_SHOWN = {"Device": "device {}", "Number of qps": "queue pairs: {}", "Connection type": "{}", "Mtu": "MTU {}",
          "Link type": "link layer {}"}  # fmt: skip
_SETTING = re.compile(rf"({'|'.join(_SHOWN)})\s*: (\S+)")
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
_TOOL = "perftest"


def _run_of_perftest(lines: Sequence[str]) -> FoundLog:
    log = FoundLog(_TOOL, lines=len(lines), partial=True)
    title, columns = "", list[str]()
    settings: dict[str, str] = {}
    again = False  # --run_infinitely repeats a row
    found = Columns()
    for line in lines:
        for setting in _SETTING.finditer(line):
            settings.setdefault(setting[1], setting[2])
        if match := _TITLE.match(line):
            title = scan.text(f"{match[1]} {match[2]}")
        elif _HEAD.match(line):
            columns = _COLUMN.findall(line)
        elif columns and _ROW.match(line) and (values := scan.numbers(line)):
            if len(values) == len(columns) + 1 and "MsgRate[Mpps]" not in columns:
                columns = [*columns, "MsgRate[Mpps]"]
            size = scan.size_of(values[0])
            if size is None or len(values) < len(columns):
                log.doubt(f"a row is cut: {line.strip()}")
                continue
            row = dict(zip(columns[1:], values[1:], strict=False))
            again = again or any(size in by_size for by_size in found.values())
            average = next((column for column in row if column.startswith(_AVERAGE)), "")
            before = found.get(average, {}).get(size)
            if not (again and (row.get(average) or 0.0) > (before or math.inf)):
                for column, value in row.items():
                    found.setdefault(column, {})[size] = value
        elif _FAILED.match(line):
            log.failures.append(scan.text(line))
        else:
            log.other(line.strip(), _KNOWN)
    if any((value or 0.0) < 0 for values in found.values() for value in values.values()):
        log.warnings.append("values below 0 are impossible, and left out")
    if not found and (columns or title):
        log.doubt(f"it has no results of {title or 'a test'}")
    log.tables += (table for table in _tables(title, found) if table.columns)
    shown = [_SHOWN[name].format(scan.text(value).removesuffix("[B]")) for name, value in settings.items()]
    if again:
        log.notes.append("of the rows of a size, the slowest counts")
    if found and shown:
        log.notes.append(f"{title or _TOOL}: {', '.join(shown)}")
    return log


def _tables(title: str, found: Columns) -> Iterator[FoundTable]:
    """Yield the tables of rates, of times, and of messages or transactions; some may have no columns."""
    name = f"{_TOOL} {title}".strip()
    rates, times, counts = Columns(), Columns(), Columns()
    for column, values in found.items():
        if (match := _RATE.match(column)) and match[2] in _UNITS:
            if any(values.values()):  # the peak is 0 if it was not measured
                rates[match[1]] = scan.in_units(values, _UNITS[match[2]])
        elif (match := _TIME.match(column)) and match[1] in _STATISTICS:
            times[_STATISTICS[match[1]]] = scan.in_units(values, MICRO)
        elif column == _PER_SECOND:
            counts["transactions"] = scan.in_units(values, 1.0)
        elif column.startswith("MsgRate"):
            counts[column.partition("[")[0].replace("MsgRate", "messages")] = scan.in_units(values, 1e6)
    both = "Bidirectional" in title
    about = f"{title or 'RDMA'}{', the sum of both directions' if both else ''}"
    yield curve(name, ONE_NIC_BOTH_WAYS if both else ONE_NIC, about, rates, Unit.RATE, "rate", _GIVE)
    yield curve(name, "latency", title or "latency", times, Unit.TIME, "time", _WHY)
    yield curve(name, "rate", f"{title} rate".strip(), counts, Unit.FREQUENCY, "count", _WHY)


#: How these logs are read.
PERFTEST = Tool(_START, each(_run_of_perftest, parts, _START, _ROW))
_BLOCK = re.compile(r"\s*#\s*Benchmarking (\S+)")
_HEAD_IMB = re.compile(r"\s*(?:Group +)?#(bytes +#)?repetitions\s")
#: Lines with which a log of this tool begins.
_START_IMB = re.compile(rf"\s*#\s+(?:Intel ?\(R\)|PALLAS) MPI Benchmark|{_BLOCK.pattern}|{_HEAD_IMB.pattern}")
_SUITE = re.compile(
    r"\s*#\s+(?:Intel ?\(R\)|PALLAS) MPI Benchmark(?:s| Suite) V?([\w. ]+?)(?: Update \d+)?, *([\w-]*)"
)
#: The part whose benchmarks are our testcases, and the program that sends from GPUs.
_MPI1, _OF_GPUS = "MPI-1", re.compile(r"IMB-\w+-GPU\b")
_PROCESSES = re.compile(r"\s*# ?#processes = (\d{1,7})")
_ROW_IMB = re.compile(r"\s*\d+\s+\d+\s+\S|\s*\d+\s+\d+\.\d+\s")
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
_KNOWN_IMB = re.compile(r"#|$|[~=-]{5,}|[$>] |\[?\d+ additional processes")
_MESSAGES_IMB = "message_mpi_host"
_TOOL_IMB = "IMB"


def _read_of_imb(lines: Sequence[str]) -> Iterator[FoundLog]:
    """Yield the runs of the tool that some lines contain, one for each table."""
    for run in runs(lines, _SUITE):
        suite = next((match for line in run if (match := _SUITE.match(line))), None)
        version, part = (scan.text(suite[1]), suite[2]) if suite else ("", _MPI1)
        alike = part == _MPI1 and not any(_OF_GPUS.search(line) for line in run)
        logs = [_of_table(table, version, alike) for table in parts(run, _START_IMB, _ROW_IMB)]
        if suite and not any(_END in line for line in run):
            logs[-1].doubt(f"it lacks its last line, '{_END}'")
        yield from logs


def _of_table(lines: Sequence[str], version: str, alike: bool) -> FoundLog:
    """Read a table; ``alike`` says whether its benchmarks may be testcases."""
    log = FoundLog(_TOOL_IMB, version, lines=len(lines), partial=True)
    name, processes, columns = "", 0, list[str]()
    groups: dict[float, Columns] = {}
    for line in lines:
        if match := _BLOCK.match(line):
            name = scan.text(match[1])
        elif match := _PROCESSES.match(line):
            processes = int(match[1])
        elif _HEAD_IMB.match(line):
            columns = line.replace("overlap[%]", "").split()
        elif _LIMIT.match(line):
            log.warnings.append(f"not measured: {scan.text(line)}")
        elif columns and _ROW_IMB.match(line) and (values := scan.numbers(line)):
            row = dict(zip(columns, values, strict=False))
            size = scan.size_of(row.get("#bytes", 0.0))
            if size is None or len(values) < len(columns):
                log.doubt(f"a row is cut: {line.strip()}")
                continue
            if row.get("defects"):
                log.failures.append(f"validation failed at {size} B: {row['defects']:g} defects")
            found = groups.setdefault(row.get("Group") or 0.0, Columns())
            for column, value in row.items():
                found.setdefault(column, {})[size] = value
        else:
            log.other(line.strip(), _KNOWN_IMB)
    if not groups and (name or columns):
        log.doubt(f"it has no results of {name or 'a benchmark'}")
    for group, found in groups.items():
        called = f"{name} of group {group:g}".strip() if len(groups) > 1 else name
        tables = _tables_of_imb(called, processes, found, alike)
        log.tables += (table for table in tables if table.columns)
    return log


def _tables_of_imb(name: str, processes: int, found: Columns, alike: bool) -> Iterator[FoundTable]:
    """Yield the tables of times, of rates and of messages; some may have no columns."""
    bare = name.removeprefix("Multi-")
    times = {
        _LABELS.get(column.partition("[")[0], column): scan.in_units(values, MICRO)
        for column, values in found.items()
        if column.endswith("[usec]")
    }
    rates = scan.in_units(found.get("Mbytes/sec", {}), _unit(found))
    counts = scan.in_units(found.get("Msg/sec", {}), 1.0)
    of_two = alike and processes in (0, 2) and name == bare
    called = f"{_TOOL_IMB} {name}".strip()
    called += f", {many(processes, 'process', 'processes')}" if processes else ""
    why = "no testcase measures the same"
    if bare == "PingPong" and of_two and "time" in times:
        yield _message(_MESSAGES_IMB, called, MESSAGE_LATENCY, 0, times.pop("time"))
        why = "one message at a time; message_mpi_host measures the rate of concurrent ones"
    yield curve(called, "latency", called, times, Unit.TIME, "time", why)
    if bare in _WINDOWED and of_two and rates:
        yield _message(_MESSAGES_IMB, called, MESSAGE_BANDWIDTH, _WINDOWED[bare], rates)
        if not _WINDOWED[bare]:
            yield _message(_MESSAGES_IMB, called, MESSAGE_RATE, 0, counts)
    else:
        yield curve(called, "bandwidth", called, {"rate": rates}, Unit.RATE, "value", why)
        yield curve(called, "rate", called, {"messages": counts}, Unit.FREQUENCY, "value", why)


#: Labels of the rows of our testcases: the buffers of a latency, the ways of a rate.
_BUFFERS, _WAYS = ("reused buffer",), ("one way", "both ways, sum")


def _message(case: str, title: str, key: str, row: int, values: Mapping[int, float | None]) -> FoundTable:
    """A curve over the size of a message, of values in base units, as a testcase has it."""
    labels, axis = (_BUFFERS, "buffer") if key == MESSAGE_LATENCY else (_WAYS[: row + 1], "ways")
    rows = {label: values if i == row else {} for i, label in enumerate(labels)}
    return curve(case, key, title, rows, _UNITS_OSU[key][0], axis)


def _unit(found: Columns) -> float:
    """The bytes of an ``Mbyte``, which follow from the rows: 1e6 or 2**20."""
    rates, counts = found.get("Mbytes/sec", {}), found.get("Msg/sec", {})
    times = found.get("t[usec]") or found.get("t_max[usec]") or {}
    for size in sorted(rates, reverse=True):
        rate, time, messages = rates[size], times.get(size), counts.get(size)
        if not rate or rate < 1 or not (time or messages):
            continue
        exact = size * messages if messages else size / ((time or 0.0) * MICRO)
        ratio = exact / rate
        return min(_MEGABYTES, key=lambda unit: min(abs(ratio * n / unit - 1) for n in _COUNTED))
    return float(MB)


#: How these logs are read.
IMB = Tool(_START_IMB, _read_of_imb)
#: Lines with which a log of this tool begins; an excerpt begins with the heading of its table.
_START_OSU = re.compile(
    r"# ?OSU (MPI|OpenSHMEM|NCCL|RCCL|UPC|Xccl|MPI[-_]\w+).* Test|# Size +(Bandwidth|Latency|Avg|MB/s)\b"
)
_BEGIN = re.compile(r"# ?OSU (.+?) Test(?: v(\S+))?")
#: Where the buffers of the two ranks are.
_BUFFERS_IN = re.compile(r"# Send Buffer on (\w+).* Receive Buffer on (\w+)")
#: The columns of a table.
_HEAD_OSU = re.compile(r"# Size +(.+)")
_COLUMN_OSU = re.compile(
    r"((?:Avg |Min |Max )?(?:Latency|Bandwidth|Lat|MB/s|Messages/s)) ?(?:\(([\w/]+)\))?", re.IGNORECASE
)
#: Benchmarks whose two ranks send messages to each other, over MPI or NCCL.
_MESSAGES_OSU = re.compile(r"(MPI|NCCL|RCCL|Xccl)(-\w+)? ")
_PAIRS = re.compile(r"# \[ pairs: (\d{1,6}) \]")
#: Where a buffer is, in words.
_MEMORIES = {"DEVICE": "GPU memory", "HOST": "host memory", "MANAGED": "managed memory"}
#: Key of a table -> unit of its values, and of the numbers in the log.
_UNITS_OSU = {
    MESSAGE_LATENCY: (Unit.TIME, 1e-6),
    MESSAGE_BANDWIDTH: (Unit.RATE, float(MB)),
    MESSAGE_RATE: (Unit.FREQUENCY, 1.0),
}


def _run_of_osu(lines: Sequence[str]) -> FoundLog:
    match = next((match for line in lines if (match := _BEGIN.match(line))), None)
    kind = scan.text(match[1]) if match else ""
    log = FoundLog("OSU", scan.text(match[2] or "") if match else "", lines=len(lines), partial=True)
    buffers, pairs, columns, width = ("", ""), 1, [""], 1
    found: dict[int, dict[int, float | None]] = {}  # number of a column -> size -> number
    for line in map(str.strip, lines):
        if line.startswith("#"):
            if several := _PAIRS.match(line):
                pairs = int(several[1])
            elif on := _BUFFERS_IN.match(line):
                buffers = (on[1], on[2])
            elif head := _HEAD_OSU.match(line):
                columns = [scan.text(name) for name, _ in _COLUMN_OSU.findall(head[1])] or [""]
            elif scan.says_failure(line):
                log.failures.append(scan.text(line))
            continue
        words = line.split()
        verified = words.pop() if words[-1:] in (["Pass"], ["Fail"]) else ""
        try:
            size, values = scan.whole(words[0]), [scan.number(word) for word in words[1 : 1 + len(columns)]]
        except (ValueError, IndexError):
            log.other(line)
            continue
        if verified == "Fail":
            log.failures.append(f"validation failed at {size} B")
        if len(values) < width:
            log.doubt(f"no value at {size} B")
            continue
        width = width if found else len(values)
        for column, value in enumerate(values):
            found.setdefault(column, {})[size] = value
    names = [*columns, *[""] * len(found)]
    log.tables += _tables_of_osu(kind, buffers, pairs, [*zip(names, found.values(), strict=False)])
    if not found:
        log.doubt("it has no values")
    return log


def _tables_of_osu(
    kind: str, buffers: tuple[str, str], pairs: int, found: Sequence[tuple[str, dict[int, float | None]]]
) -> Iterator[FoundTable]:
    """Yield the tables of a benchmark."""
    library = "nccl" if kind.startswith(("NCCL", "RCCL")) else "mpi"
    on_gpus = set(buffers) == {"DEVICE"} or library == "nccl"
    case = f"message_{library}_{'gpu' if on_gpus else 'host'}"
    benchmark = kind.split(" ", 1)[-1]
    of_point = {
        "Latency": MESSAGE_LATENCY,
        "Bandwidth": MESSAGE_BANDWIDTH,
        "Bi-Directional Bandwidth": MESSAGE_BANDWIDTH,
    }
    several = benchmark.startswith("Multiple Bandwidth")
    between = buffers[0] != buffers[1]
    # Benchmarks for GPUs say where the buffers are, except in posts and in some versions.
    is_anywhere = kind.startswith("MPI-") and not any(buffers)
    if several and pairs == 1 and not between and not is_anywhere:
        for key, (_, values) in zip((MESSAGE_BANDWIDTH, MESSAGE_RATE), found, strict=False):
            yield _message(case, kind, key, 0, scan.in_units(values, _UNITS_OSU[key][1]))
    elif benchmark in of_point and _MESSAGES_OSU.match(kind) and not (between or is_anywhere):
        key, row = of_point[benchmark], int(benchmark.startswith("Bi-"))
        for _, values in found[:1]:
            yield _message(case, kind, key, row, scan.in_units(values, _UNITS_OSU[key][1]))
    else:
        why = (
            f"from {' to '.join(_MEMORIES.get(place, place) for place in buffers)}" if between
            else "the log does not say whether the buffers are in GPU memory" if is_anywhere
            else "several pairs of ranks" if several
            else "no testcase measures the same" if kind
            else "the log does not name the benchmark"
        )  # fmt: skip
        by_key: dict[str, Columns] = {}
        usual = "Latency" if "Latency" in kind else "Bandwidth"
        for name, values in found:
            lower = (name or usual).lower()
            key = (
                MESSAGE_RATE
                if "messages" in lower
                else MESSAGE_LATENCY
                if "lat" in lower
                else MESSAGE_BANDWIDTH
            )
            by_key.setdefault(key, {})[name or usual] = scan.in_units(values, _UNITS_OSU[key][1])
        title = kind or f"OSU {found[0][0] or usual}" if found else ""
        for key, rows in by_key.items():
            yield curve(f"OSU {kind}".strip(), key, title, rows, _UNITS_OSU[key][0], "value", why)


#: How these logs are read.
OSU = Tool(_START_OSU, each(_run_of_osu, runs, _BEGIN))
