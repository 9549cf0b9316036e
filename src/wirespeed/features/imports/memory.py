"""Logs of tools that measure host memory: STREAM, BabelStream, Intel's Memory Latency Checker."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from ...measurement import Unit
from ...units import MB, MIB, NANO, many
from . import scan
from .log import FoundLog, FoundTable, Tool
from .log_parts import each, parts, runs

#: Lines with which a log of one of these tools begins.
_START_STREAM = re.compile(
    r"\s*(STREAM version|BabelStream$|Function\s+(Best Rate MB/s|\w+/sec|\w+/s\b|Rate \(MB/s\))|"
    r"(Copy|Scale|Add|Triad):(\s+[\d.]+){4}\s*$)",
    re.IGNORECASE,
)
_BEGIN_STREAM = re.compile(r"\s*(STREAM version|BabelStream$)", re.IGNORECASE)
#: The heading of the rates, and their unit.
_HEAD_STREAM = re.compile(r"Function\s+(?:Best Rate |Rate \()?([KMGT]i?B)(?:ytes)?/s(?:ec)?\b", re.IGNORECASE)
#: Function -> kernel in our names.
_KERNELS_STREAM = {
    "Copy": "copy", "Scale": "scale", "Mul": "scale", "Add": "add", "Triad": "triad", "Read": "read",
    "Write": "write",
}  # fmt: skip
#: The kernels that each tool runs unless it says that it runs one, the last one last.
_ALL_OF_STREAM, _ALL_OF_BABEL = ("Copy", "Scale", "Add", "Triad"), ("Copy", "Mul", "Add", "Triad", "Dot")
#: A rate and three times.
_ROW = re.compile(r"(Copy|Scale|Mul|Add|Triad|Dot|Nstream|Read|Write):?\s+(\S+)\s+(\S+)\s+(\S+)\s+(\S+)")
#: How a row with a rate and a time begins; BabelStream's "Read: 0.0007 s" before the heading is none.
_KERNEL_RATE = r"[A-Z]\w+:?\s+[\d.]+\s+[\d.]+\s"
#: What BabelStream says if it runs only one kernel.
_ONE_KERNEL = re.compile(r"Running +(?:Running +)?(triad|nstream|Copy|Mul|Add|Triad|Dot|Nstream)\b")
#: What it prints then: the mean rate of all iterations.
_MEAN = re.compile(r"Bandwidth \((Gi?B)/s\): +(\S+)")
#: The last line of STREAM, after it has verified the arrays.
_VALID = re.compile(r"Solution Validates")
_SIZE_STREAM = re.compile(r"Array size: (\S+) ([KMG])(i?)B")
_ELEMENTS = re.compile(r"Array size = *(\d{1,18})")
_DEVICE = re.compile(r'Using (?:CUDA|HIP|OpenCL|SYCL|alpaka|\w+) device (.+)|CUDA Device \d+: "(.+?)"')
#: Largest error of a size with one decimal, in its unit.
_ROUNDING = 0.0501
_PREFIXES = {"K": 1, "M": 2, "G": 3, "T": 4}
_KNOWN_STREAM = re.compile(
    r"-{5,}|BabelStream|Version|Implementation|Running|Precision|Array size|Total size|Memory|Driver|CUDA D|"
    r"Function|Runtime|Each|This system|Number of|Your clock|\(=|Increase|you are|WARNING|For best|precision|"
    r"Total memory|\*{5} *WARNING|It appears that you set the preprocessor|This version of the code uses|"
    r"Note that|The \*best\*|will be|Offset|Reduction|Grid|Using|Parallel for|(Init|Read): +\S+ s \("
)


def _tables_of_stream(lines: Sequence[str]) -> Iterator[Sequence[str]]:
    """Split lines into runs: at a first line, and where an excerpt repeats the heading of the rates."""
    head, row = re.compile(rf"\s*{_HEAD_STREAM.pattern}", re.IGNORECASE), re.compile(rf"\s*{_KERNEL_RATE}")
    return (part for run in runs(lines, _BEGIN_STREAM) for part in parts(run, head, row))


def _run_of_stream(lines: Sequence[str]) -> FoundLog:
    began = next((line for line in lines if _BEGIN_STREAM.match(line)), "")
    babel = began.strip().startswith("BabelStream")
    log = FoundLog("BabelStream" if babel else "STREAM", lines=len(lines), partial=True)
    size = threads = width = 0
    device, unit = "", 0.0 if began else float(MB)  # as STREAM prints it, if an excerpt lacks the heading
    rates: dict[str, float | None] = {}
    kernels: Sequence[str] = _ALL_OF_BABEL if babel else _ALL_OF_STREAM
    for line in map(str.strip, lines):
        if match := re.match(r"STREAM version (?:\$Revision: )?([\w.]+)|Version: (\S+)", line, re.IGNORECASE):
            log.version = scan.text(match[1] or match[2])
        elif match := _SIZE_STREAM.match(line):
            size = _bytes(match)
        elif match := _ELEMENTS.match(line):
            size = int(match[1]) * (width or 8)
        elif match := re.match(r"This system uses (\d{1,2}) bytes per array element", line):
            width = int(match[1])
        elif match := re.match(r"Number of Threads (?:counted )?= *(\d{1,6})", line):
            threads = int(match[1])
        elif match := _DEVICE.match(line):
            device = scan.text(match[1] or match[2])
        elif match := _HEAD_STREAM.match(line):
            unit = _scale(match[1])
        elif unit and (match := _ROW.fullmatch(line)) and (value := _rate(match, unit)) is not None:
            rates[match[1]] = value
        elif match := _MEAN.match(line):
            rates["Triad"] = scan.in_base(match[2], _scale(match[1]))
        elif _VALID.match(line):
            log.closed = True
        else:
            if match := _ONE_KERNEL.match(line):
                kernels = (match[1].capitalize(),)
            log.other(line, _KNOWN_STREAM)
    missing = [name for name in kernels if name not in rates]
    if began and (missing or not (babel or log.closed)):
        where = f"no {', '.join(missing)}" if missing else "it does not say that the data was verified"
        log.doubt(where)
    if device:
        log.gpus.append((device, ""))
    prefix, place = ("device", "gpu0") if device else ("host", "numa0")
    kind = "GPU" if device else "NUMA node"
    for name, rate in rates.items():
        kernel = _KERNELS_STREAM.get(name)
        why = "" if kernel else f"no testcase measures {name}"
        log.tables.append(
            FoundTable(
                f"{prefix}_stream_{kernel}" if kernel else f"{log.tool} {name}", ((rate,),), ("local",),
                (place,), (kind, kind), Unit.RATE, "", f"{log.tool} {name}", size, why,
            )
        )  # fmt: skip
    if threads:
        log.notes.append(f"{log.tool} with {many(threads, 'thread')}")
    if rates and not device:
        log.notes.append("numa0 stands for all memory of the host")
    return log


def _bytes(match: re.Match[str]) -> int:
    """The size of an array in bytes."""
    value = scan.in_base(match[1]) or 0.0
    unit = _scale(match[2] + match[3] + "B")
    size = value * unit
    nearest = round(size / MIB) * MIB  # 268.4 MB is 256 MiB
    size = nearest if abs(nearest - size) <= _ROUNDING * unit else size
    return int(size) if 0 < size < 2**60 else 0


def _scale(unit: str) -> float:
    """The bytes of a unit: MB, MiB, GB."""
    return float((1024 if "i" in unit.lower()[:2] else 1000) ** _PREFIXES[unit[0].upper()])


def _rate(match: re.Match[str], scale: float) -> float | None:
    """The rate of a row in B/s; None if its columns are not numbers."""
    rate, *times = (scan.in_base(word) for word in match.groups()[1:])
    return None if rate is None or None in times else scan.scaled([rate], scale)[0]


#: How these logs are read.
STREAM = Tool(_START_STREAM, each(_run_of_stream, _tables_of_stream))
#: Lines with which a log of this tool begins; an excerpt begins with a section.
_START_MLC = re.compile(
    r"Intel\(R\) Memory Latency Checker|Measuring (idle latencies|Peak Injection|Memory Bandwidths|"
    r"Maximum Memory|Loaded Latencies|cache-to-cache)|Inject\s+Latency\s+Bandwidth"
)
_BEGIN_MLC = re.compile(r"Intel\(R\) Memory Latency Checker")
_VERSION = re.compile(r"Intel\(R\) Memory Latency Checker - v(\S+)")
_HEAD_MLC = re.compile(r"Numa node\s+((\d+\s*)+)$")
_PEAK = re.compile(r"(ALL Reads|\d:\d Reads-Writes|Stream-triad like)\s*:\s*(\S+)")
_LAST_PEAK = "Stream-triad like"
#: First and last section of a run without parameters.
_FIRST, _LAST, _PARAMETERS = "idle latencies", "cache-to-cache", "Command line parameters"
#: The last delay between requests, unless the command line chooses others.
_LAST_DELAY, _DELAYS = "20000", re.compile(r"Command line parameters:.* -[dg]")
#: A delay, a latency and a rate; people quote rows that they speak of.
_LOADED = re.compile(r'"?(\d{5})\s+([\d.]+)\s+([\d.]+)(?:"?(?:\s.*)?)?')
#: A latency between caches, in ns, which no testcase measures.
_CACHES = re.compile(r".*L2->L2 HITM?\s+latency\s+(\S+)|\s*\d+\s+(-|[\d.]+)(\s+(-|[\d.]+))*$")
_KNOWN_MLC = re.compile(
    r"Command line|\*?Unable to modify prefetchers|Using|Measuring|"
    r"Bandwidths are|Numa node$|=+|Inject|Delay|\*\*\*|Local|Remote|-+$|Note"
)
_TOOL_MLC = "mlc"


def _run_of_mlc(lines: Sequence[str]) -> FoundLog:
    log = FoundLog("Intel MLC", lines=len(lines), partial=True)
    measured, complete = "", True
    chosen_delays = any(_DELAYS.match(line.strip()) for line in lines)
    peaks: dict[str, float | None] = {}
    loaded: dict[str, tuple[float | None, float | None]] = {}
    at = 0
    while at < len(lines):
        line = lines[at].strip()
        at += 1
        if match := _VERSION.match(line):
            log.version = scan.text(f"v{match[1]}")
        elif line.startswith("Measuring"):
            if measured and not complete:
                log.doubt(f"no complete result of {scan.text(measured)!r}")
            measured, complete = line, False
        elif match := _HEAD_MLC.match(line):
            columns, rows, used = scan.grid([match[1], *lines[at : at + scan.MOST_DEVICES]], 0)
            at += max(used - 1, 0)
            if rows:
                log.tables += _matrix(measured, [values for _, values in rows])
            complete = 0 < len(columns) <= len(rows)
        elif match := _PEAK.match(line):
            peaks[match[1]] = scan.in_base(match[2], float(MB))
            complete = match[1] == _LAST_PEAK and peaks[match[1]] is not None
        elif match := _LOADED.fullmatch(line):
            loaded[match[1]] = (scan.in_base(match[2], NANO), scan.in_base(match[3], float(MB)))
            last = match[1] == _LAST_DELAY or chosen_delays
            complete = last and None not in loaded[match[1]]
        elif "cache-to-cache" in measured and _CACHES.match(line):
            complete = True
        else:
            log.other(line, _KNOWN_MLC)
    sections = [line for line in lines if line.strip().startswith("Measuring")]
    if not any(_PARAMETERS in line for line in lines) and sections and _FIRST in sections[0]:
        complete &= _LAST in sections[-1]
    if not complete and any(_BEGIN_MLC.match(line) for line in lines):  # others are excerpts
        log.doubt(f"it ends in {scan.text(measured)!r}" if measured else "it has no values")
    if peaks:
        log.tables.append(
            _kept("peak bandwidth", (tuple(peaks.values()),), ("all nodes",), tuple(peaks), Unit.RATE,
                  "no testcase has this mix of reads and writes of all nodes")
        )  # fmt: skip
    for name, unit, column in (("latency", Unit.TIME, 0), ("bandwidth", Unit.RATE, 1)) if loaded else ():
        values = tuple(pair[column] for pair in loaded.values())
        log.tables.append(
            _kept(f"loaded {name}", (values,), ("all nodes",), tuple(loaded), unit,
                  "the load of host_loaded_latency differs")
        )  # fmt: skip
    return log


def _matrix(measured: str, rows: list[list[float | None]]) -> Iterator[FoundTable]:
    """Yield the tables of a matrix of nodes."""
    nodes = tuple(f"numa{i}" for i in range(max(map(len, rows))))
    axes = ("NUMA node", "NUMA node")
    unit, scale = (Unit.TIME, NANO) if "latenc" in measured.lower() else (Unit.RATE, float(MB))
    values = tuple(scan.scaled(row, scale) for row in rows)
    if "idle latencies" in measured.lower():
        yield FoundTable("host_latency", values, nodes[: len(rows)], nodes, axes, unit, "", measured)
    elif "Bandwidths between nodes" in measured:
        if len(rows) == len(nodes):
            own = tuple(row[i] for i, row in enumerate(values))
            yield FoundTable("host_stream_read", (own,), ("local",), nodes, axes, Unit.RATE, "", measured)
        far = tuple(tuple(None if i == j else v for j, v in enumerate(row)) for i, row in enumerate(values))
        if len(nodes) > 1:
            yield _kept("bandwidth between nodes", far, nodes[: len(rows)], nodes, Unit.RATE,
                        "no testcase only reads the memory of another node")  # fmt: skip
    else:
        yield _kept("matrix", values, nodes[: len(rows)], nodes, unit, "no testcase measures the same")


def _kept(
    name: str, values: tuple[tuple[float | None, ...], ...], rows: tuple[str, ...], columns: tuple[str, ...],
    unit: Unit, why: str,
) -> FoundTable:  # fmt: skip
    """A table that no testcase measures."""
    return FoundTable(
        f"{_TOOL_MLC} {name}", values, rows, columns, ("NUMA node", ""), unit, "", name, why_not=why
    )


#: How these logs are read.
MLC = Tool(_START_MLC, each(_run_of_mlc, runs, _BEGIN_MLC))
