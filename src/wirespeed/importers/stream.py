"""Logs of STREAM and BabelStream."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from ..model import Unit
from ..units import MB, MIB, many
from .log import FoundLog, FoundTable, number, scaled, text

#: Lines with which a log of one of these tools begins.
START = re.compile(r"(STREAM version|BabelStream$|Function\s+(Best Rate MB/s|MBytes/sec|Rate \(MB/s\)))")
_BEGIN = re.compile(r"STREAM version|BabelStream$")
#: Function -> kernel in our names.
_KERNELS = {
    "Copy": "copy", "Scale": "scale", "Mul": "scale", "Add": "add", "Triad": "triad", "Read": "read",
    "Write": "write",
}  # fmt: skip
_ROW = re.compile(r"(Copy|Scale|Mul|Add|Triad|Dot|Nstream|Read|Write):?\s+(\S+)(\s+\S+){1,3}\s*")
_SIZE = re.compile(r"Array size: (\S+) ([KMG])(i?)B")
_ELEMENTS = re.compile(r"Array size = (\d{1,18})")
_DEVICE = re.compile(r"Using (CUDA|HIP|OpenCL|SYCL|alpaka|\w+) device (.+)")
_PREFIXES = {"K": 1, "M": 2, "G": 3}
_KNOWN = re.compile(
    r"-{5,}|BabelStream|Version|Implementation|Running|Precision|Array size|Total size|Memory|Driver|"
    r"Function|Each|This system|Number of|Your clock|\(=|Increase|you are|WARNING|For best|precision|"
    r"Solution|Total memory|The \*best\*|will be|Offset|Reduction|Grid|Using"
)


def read(lines: Sequence[str]) -> Iterator[FoundLog]:
    """Yield the runs of the tools that some lines contain."""
    starts = [i for i, line in enumerate(lines) if _BEGIN.match(line)] or [0]
    for begin, end in zip(starts, [*starts[1:], len(lines)], strict=True):
        yield _run(lines[begin:end])


def _run(lines: Sequence[str]) -> FoundLog:
    """Read one run."""
    babel = lines[0].startswith("BabelStream")
    found = FoundLog("BabelStream" if babel else "STREAM", lines=len(lines), partial=True)
    size = threads = width = 0
    device = ""
    rates: dict[str, float | None] = {}
    for line in map(str.strip, lines):
        if match := re.match(r"STREAM version (?:\$Revision: )?([\w.]+)|Version: (\S+)", line):
            found.version = text(match[1] or match[2])
        elif match := _SIZE.match(line):
            size = _bytes(match)
        elif match := _ELEMENTS.match(line):
            size = int(match[1]) * (width or 8)
        elif match := re.match(r"This system uses (\d{1,2}) bytes per array element", line):
            width = int(match[1])
        elif match := re.match(r"Number of Threads counted = (\d{1,6})", line):
            threads = int(match[1])
        elif match := _DEVICE.match(line):
            device = text(match[2])
        elif (match := _ROW.fullmatch(line)) and (value := _rate(match[2])) is not None:
            rates[match[1]] = value
        elif line and not _KNOWN.match(line):
            found.unknown.append(line)
    if device:
        found.gpus.append((device, ""))
    prefix, place = ("device", "gpu0") if device else ("host", "numa0")
    kind = "GPU" if device else "NUMA node"
    for name, rate in rates.items():
        kernel = _KERNELS.get(name)
        why = "" if kernel else f"no testcase measures {name}"
        found.tables.append(
            FoundTable(
                f"{prefix}_stream_{kernel}" if kernel else f"{found.tool} {name}", ((rate,),), ("local",),
                (place,), (kind, kind), Unit.RATE, "", f"{found.tool} {name}", size, why,
            )
        )  # fmt: skip
    if threads:
        found.notes.append(f"{found.tool} with {many(threads, 'thread')}")
    if rates and not device:
        found.notes.append("numa0 stands for all memory of the host")
    return found


def _bytes(match: re.Match[str]) -> int:
    """Return the size of an array in bytes."""
    try:
        value = number(match[1]) or 0.0
    except ValueError:
        return 0
    base = 1024 if match[3] else 1000
    size = value * base ** _PREFIXES[match[2]]
    nearest = round(size / MIB) * MIB  # 268.4 MB is 256 MiB
    size = nearest if nearest and abs(nearest / size - 1) < 1e-3 else size
    return int(size) if 0 < size < 2**60 else 0


def _rate(word: str) -> float | None:
    try:
        return scaled([number(word)], float(MB))[0]
    except ValueError:
        return None
