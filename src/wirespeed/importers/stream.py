"""Logs of STREAM and BabelStream."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from ..measurement import Unit
from ..units import MB, MIB, many
from .log import INCOMPLETE, FoundLog, FoundTable, Tool, in_base, runs, scaled, text

#: Lines with which a log of one of these tools begins.
_START = re.compile(
    r"\s*(STREAM version|BabelStream$|Function\s+(Best Rate MB/s|\w+/sec|\w+/s\b|Rate \(MB/s\))|"
    r"(Copy|Scale|Add|Triad):(\s+[\d.]+){4}\s*$)",
    re.IGNORECASE,
)
_BEGIN = re.compile(r"\s*(STREAM version|BabelStream$)", re.IGNORECASE)
#: The heading of the rates, and their unit.
_HEAD = re.compile(r"Function\s+(?:Best Rate |Rate \()?([KMGT]i?B)(?:ytes)?/s(?:ec)?\b", re.IGNORECASE)
#: Function -> kernel in our names.
_KERNELS = {
    "Copy": "copy", "Scale": "scale", "Mul": "scale", "Add": "add", "Triad": "triad", "Read": "read",
    "Write": "write",
}  # fmt: skip
#: The kernels that each tool runs unless it says that it runs one, the last one last.
_ALL_OF_STREAM, _ALL_OF_BABEL = ("Copy", "Scale", "Add", "Triad"), ("Copy", "Mul", "Add", "Triad", "Dot")
#: A rate and three times.
_ROW = re.compile(r"(Copy|Scale|Mul|Add|Triad|Dot|Nstream|Read|Write):?\s+(\S+)\s+(\S+)\s+(\S+)\s+(\S+)")
#: What BabelStream says if it runs only one kernel.
_ONE_KERNEL = re.compile(r"Running +(?:Running +)?(triad|nstream|Copy|Mul|Add|Triad|Dot|Nstream)\b")
#: What it prints then: the mean rate of all iterations.
_MEAN = re.compile(r"Bandwidth \((Gi?B)/s\): +(\S+)")
#: The last line of STREAM, after it has verified the arrays.
_VALID = re.compile(r"Solution Validates")
_SIZE = re.compile(r"Array size: (\S+) ([KMG])(i?)B")
_ELEMENTS = re.compile(r"Array size = *(\d{1,18})")
_DEVICE = re.compile(r'Using (?:CUDA|HIP|OpenCL|SYCL|alpaka|\w+) device (.+)|CUDA Device \d+: "(.+?)"')
#: Largest error of a size with one decimal, in its unit.
_ROUNDING = 0.0501
_PREFIXES = {"K": 1, "M": 2, "G": 3, "T": 4}
_KNOWN = re.compile(
    r"-{5,}|BabelStream|Version|Implementation|Running|Precision|Array size|Total size|Memory|Driver|CUDA D|"
    r"Function|Runtime|Each|This system|Number of|Your clock|\(=|Increase|you are|WARNING|For best|precision|"
    r"Total memory|\*{5} *WARNING|It appears that you set the preprocessor|This version of the code uses|"
    r"Note that|The \*best\*|will be|Offset|Reduction|Grid|Using|Parallel for|(Init|Read): +\S+ s \("
)


def _read(lines: Sequence[str]) -> Iterator[FoundLog]:
    """Yield the runs of the tool that some lines contain."""
    return (_run(part) for part in runs(lines, _BEGIN))


def _run(lines: Sequence[str]) -> FoundLog:
    began = next((line for line in lines if _BEGIN.match(line)), "")
    babel = began.strip().startswith("BabelStream")
    log = FoundLog("BabelStream" if babel else "STREAM", lines=len(lines), partial=True)
    size = threads = width = 0
    device, unit = "", 0.0 if began else float(MB)  # as STREAM prints it, if an excerpt lacks the heading
    rates: dict[str, float | None] = {}
    kernels: Sequence[str] = _ALL_OF_BABEL if babel else _ALL_OF_STREAM
    valid = False
    for line in map(str.strip, lines):
        if match := re.match(r"STREAM version (?:\$Revision: )?([\w.]+)|Version: (\S+)", line, re.IGNORECASE):
            log.version = text(match[1] or match[2])
        elif match := _SIZE.match(line):
            size = _bytes(match)
        elif match := _ELEMENTS.match(line):
            size = int(match[1]) * (width or 8)
        elif match := re.match(r"This system uses (\d{1,2}) bytes per array element", line):
            width = int(match[1])
        elif match := re.match(r"Number of Threads (?:counted )?= *(\d{1,6})", line):
            threads = int(match[1])
        elif match := _DEVICE.match(line):
            device = text(match[1] or match[2])
        elif match := _HEAD.match(line):
            unit = _scale(match[1])
        elif unit and (match := _ROW.fullmatch(line)) and (value := _rate(match, unit)) is not None:
            rates[match[1]] = value
        elif match := _MEAN.match(line):
            rates["Triad"] = in_base(match[2], _scale(match[1]))
        elif _VALID.match(line):
            valid = True
        else:
            if match := _ONE_KERNEL.match(line):
                kernels = (match[1].capitalize(),)
            log.other(line, _KNOWN)
    missing = [name for name in kernels if name not in rates]
    if began and (missing or not (babel or valid)):
        where = f"no {', '.join(missing)}" if missing else "it does not say that the data was verified"
        log.warnings.append(f"{INCOMPLETE}: {where}")
    if device:
        log.gpus.append((device, ""))
    prefix, place = ("device", "gpu0") if device else ("host", "numa0")
    kind = "GPU" if device else "NUMA node"
    for name, rate in rates.items():
        kernel = _KERNELS.get(name)
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
    value = in_base(match[1]) or 0.0
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
    rate, *times = (in_base(word) for word in match.groups()[1:])
    return None if rate is None or None in times else scaled([rate], scale)[0]


#: How these logs are read.
STREAM = Tool(_START, _read)
