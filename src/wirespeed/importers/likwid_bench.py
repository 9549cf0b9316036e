"""Logs of likwid-bench.

Formats: ``bench/likwid-bench.c`` of RRZE-HPC/likwid. ``MByte/s`` are 1e6 B/s of what a kernel moves.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from ..measurement import Unit
from ..units import MB, MIB, many
from .log import FoundLog, FoundTable, Tool, doubt, in_base, parts, text, whole

_BEGIN = re.compile(r"\s*LIKWID MICRO BENCHMARK")
#: Lines with which a log of this tool begins.
_START = re.compile(rf"{_BEGIN.pattern}|\s*MByte/s:\s+[\d.]+\s*$")
_TEST, _RATE = re.compile(r"\s*Test: (\S+)"), re.compile(r"\s*MByte/s:\s+(\S+)\s*$")
_SIZE = re.compile(r"\s*Size(?: \(Byte\))?:\s+(\d{1,18})\s*$")
_THREADS = re.compile(r"\s*Using (\d{1,6}) (threads|work groups)")
_DOMAIN = re.compile(r"\s*Allocate: .*\(Domain (\w+)\)")
#: Lines with which another run begins after a rate, also in an excerpt.
_AGAIN = re.compile(rf"{_START.pattern}|\s*Cycles:|{_SIZE.pattern}")
#: Kernel -> kernel in our names, and its arrays. Variants have a suffix: ``copy_avx512``, ``stream_mem``.
_KERNELS = {"load": ("read", 1), "store": ("write", 1), "copy": ("copy", 2), "stream": ("triad", 3)}
#: Less, in bytes of all arrays, fits into the caches of some CPUs.
_LEAST_BYTES = 256 * MIB
#: Other lines, among them the last one.
_KNOWN = re.compile(
    r"$|-{5,}|Warning: |Allocate: |Initialization: |Running without Marker|Group: |Using |LIKWID|Test: |\.+$|"
    r"likwid-|[$>] |\+|\||(CPU|Cycle) Clock:|(MFlops/s|Time|Cycles|Iterations|Vectorlength|Inner loop|"
    r"Number of|Data volume|Loads per|Stores per|Load bytes|Store bytes|Load/store|Instructions|UOPs|"
    r"Size per|CPU name|CPU type|CPU clock)\b"
)
_TOOL = "likwid-bench"


def _read(lines: Sequence[str]) -> Iterator[FoundLog]:
    """Yield the runs of the tool that some lines contain."""
    return (_run(part) for part in parts(lines, _AGAIN, _RATE))


def _run(lines: Sequence[str]) -> FoundLog:
    log = FoundLog(_TOOL, lines=len(lines), partial=True)
    name, size, threads = "", 0, 0
    domains: set[str] = set()
    rate: float | None = None
    for line in lines:
        if match := _TEST.match(line):
            name = text(match[1])
        elif match := _RATE.match(line):
            rate = in_base(match[1], float(MB))
        elif match := _SIZE.match(line):
            size = whole(match[1])
        else:
            if (match := _THREADS.match(line)) and match[2] == "threads":
                threads = int(match[1])
            elif match := _DOMAIN.match(line):
                domains.add(match[1])
            log.other(line.strip(), _KNOWN)
    if rate is None:
        doubt(log, f"it has no rate of {name or 'a kernel'}")
        return log
    log.tables.append(_table(name, size, rate))
    where = f" in the domains {', '.join(sorted(domains))}" if len(domains) > 1 else ""
    log.notes.append(f"{name} with {many(threads, 'thread')}{where}" if threads else name)
    log.notes.append("numa0 stands for all memory of the host")
    return log


def _table(name: str, size: int, rate: float) -> FoundTable:
    """The table of a rate: of a testcase if it has the same kernel, and the arrays are large."""
    kernel, arrays = _KERNELS.get(name.partition("_")[0], ("", 1))
    why = "" if kernel else f"no testcase has the kernel {name}".strip()
    if not rate:
        why = "it moves no data"
    elif kernel and size < _LEAST_BYTES:
        why = f"arrays of {size} bytes may fit into caches" if size else "the size is not in the log"
    case = f"{_TOOL} {name}".strip() if why else f"host_stream_{kernel}"
    return FoundTable(case, ((rate,),), ("local",), ("numa0",), ("NUMA node", "NUMA node"), Unit.RATE, "",
                      f"{_TOOL} {name}", size // arrays, why)  # fmt: skip


#: How these logs are read.
LIKWID_BENCH = Tool(_START, _read)
