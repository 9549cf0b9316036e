"""Logs of Intel's Memory Latency Checker."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from ..measurement import Unit
from ..units import MB, NANO
from .log import INCOMPLETE, MOST_DEVICES, FoundLog, FoundTable, Tool, grid, in_base, runs, scaled, text

#: Lines with which a log of this tool begins; an excerpt begins with a section.
_START = re.compile(
    r"Intel\(R\) Memory Latency Checker|Measuring (idle latencies|Peak Injection|Memory Bandwidths|"
    r"Maximum Memory|Loaded Latencies|cache-to-cache)|Inject\s+Latency\s+Bandwidth"
)
_BEGIN = re.compile(r"Intel\(R\) Memory Latency Checker")
_VERSION = re.compile(r"Intel\(R\) Memory Latency Checker - v(\S+)")
_HEAD = re.compile(r"Numa node\s+((\d+\s*)+)$")
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
_KNOWN = re.compile(
    r"Command line|\*?Unable to modify prefetchers|Using|Measuring|"
    r"Bandwidths are|Numa node$|=+|Inject|Delay|\*\*\*|Local|Remote|-+$|Note"
)
_TOOL = "mlc"


def _read(lines: Sequence[str]) -> Iterator[FoundLog]:
    """Yield the runs of the tool that some lines contain."""
    return (_run(part) for part in runs(lines, _BEGIN))


def _run(lines: Sequence[str]) -> FoundLog:
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
            log.version = text(f"v{match[1]}")
        elif line.startswith("Measuring"):
            if measured and not complete:
                log.warnings.append(f"{INCOMPLETE}: no complete result of {text(measured)!r}")
            measured, complete = line, False
        elif match := _HEAD.match(line):
            columns, rows, used = grid([match[1], *lines[at : at + MOST_DEVICES]], 0)
            at += max(used - 1, 0)
            if rows:
                log.tables += _matrix(measured, [values for _, values in rows])
            complete = 0 < len(columns) <= len(rows)
        elif match := _PEAK.match(line):
            peaks[match[1]] = in_base(match[2], float(MB))
            complete = match[1] == _LAST_PEAK and peaks[match[1]] is not None
        elif match := _LOADED.fullmatch(line):
            loaded[match[1]] = (in_base(match[2], NANO), in_base(match[3], float(MB)))
            last = match[1] == _LAST_DELAY or chosen_delays
            complete = last and None not in loaded[match[1]]
        elif "cache-to-cache" in measured and _CACHES.match(line):
            complete = True
        else:
            log.other(line, _KNOWN)
    sections = [line for line in lines if line.strip().startswith("Measuring")]
    if not any(_PARAMETERS in line for line in lines) and sections and _FIRST in sections[0]:
        complete &= _LAST in sections[-1]
    if not complete and any(_BEGIN.match(line) for line in lines):  # others are excerpts
        log.warnings.append(
            f"{INCOMPLETE}: it ends in {text(measured)!r}" if measured else f"{INCOMPLETE}: it has no values"
        )
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
    if "idle latencies" in measured.lower():
        values = tuple(scaled(row, NANO) for row in rows)
        yield FoundTable("host_latency", values, nodes[: len(rows)], nodes, axes, Unit.TIME, "", measured)
    elif "Bandwidths between nodes" in measured:
        values = tuple(scaled(row, float(MB)) for row in rows)
        if len(rows) == len(nodes):
            own = tuple(row[i] for i, row in enumerate(values))
            yield FoundTable("host_stream_read", (own,), ("local",), nodes, axes, Unit.RATE, "", measured)
        far = tuple(tuple(None if i == j else v for j, v in enumerate(row)) for i, row in enumerate(values))
        if len(nodes) > 1:
            yield _kept("bandwidth between nodes", far, nodes[: len(rows)], nodes, Unit.RATE,
                        "no testcase only reads the memory of another node")  # fmt: skip
    else:
        unit, scale = (Unit.TIME, NANO) if "latenc" in measured.lower() else (Unit.RATE, float(MB))
        kept = tuple(scaled(row, scale) for row in rows)
        yield _kept("matrix", kept, nodes[: len(rows)], nodes, unit, "no testcase measures the same")


def _kept(
    name: str, values: tuple[tuple[float | None, ...], ...], rows: tuple[str, ...], columns: tuple[str, ...],
    unit: Unit, why: str,
) -> FoundTable:  # fmt: skip
    """A table that no testcase measures."""
    return FoundTable(
        f"{_TOOL} {name}", values, rows, columns, ("NUMA node", ""), unit, "", name, why_not=why
    )


#: How these logs are read.
MLC = Tool(_START, _read)
