"""Logs of p2pBandwidthLatencyTest, a sample of the CUDA toolkit."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from ..measurement import Unit
from ..units import GB
from .log import FoundLog, FoundTable, grid, is_cut, runs, scaled, text

#: Lines with which a log of this tool begins.
START = re.compile(r"\[P2P \(Peer-to-Peer\) GPU Bandwidth Latency Test\]")
_TOOL = "p2pBandwidthLatencyTest"
#: Name of the result of copies through the host, and keys of its tables, which judge those between GPUs.
BY_HOST = f"{_TOOL} through the host"
ONE_WAY_BY_HOST, BOTH_WAYS_BY_HOST = (f"{way}directional-p2p-disabled-bandwidth" for way in ("uni", "bi"))
_DEVICE = re.compile(
    r"Device: (\d+), (.+), pciBusID: (\w{1,2}), pciDeviceID: (\w{1,2}), pciDomainID: ?(\w{1,8})"
)
_ACCESS = re.compile(r"Device=(\d+) (CAN|CANNOT) Access Peer Device=(\d+)")
_BANDWIDTH = re.compile(
    r"(Uni|Bi)directional P2P=(Enabled|Disabled) Bandwidth(?: \(P2P (Writes|Reads)\))? Matrix \(GB/s\)"
)
_LATENCY = re.compile(r"P2P=(Enabled|Disabled) Latency(?: \(P2P (Writes|Reads)\))? Matrix \(us\)")
_CONNECTIVITY = "P2P Connectivity Matrix"
#: The last line; a log with the matrix of connectivity is no excerpt, and must have it.
_CLOSING = "NOTE: The CUDA Samples are not meant"
_KNOWN = re.compile(r"\[P2P|P2P Connectivity Matrix|\*\*\*NOTE|NOTE: |So you can see lesser|Result = PASS")
#: Bytes of a buffer: 40 million integers.
_BYTES = 160_000_000
_MICRO = 1e-6


def read(lines: Sequence[str]) -> Iterator[FoundLog]:
    """Yield the runs of the tool that some lines contain."""
    return (_run(part) for part in runs(lines, START))


def _run(lines: Sequence[str]) -> FoundLog:
    log = FoundLog(_TOOL, lines=len(lines))
    refused: set[tuple[int, int]] = set()
    at = 0
    while at < len(lines):
        line = lines[at].strip()
        at += 1
        if match := _DEVICE.fullmatch(line):
            bus = f"{match[5].rjust(8, '0')}:{match[3].rjust(2, '0')}:{match[4].rjust(2, '0')}"
            log.gpus.append((text(match[2]), bus))
        elif match := _ACCESS.fullmatch(line):
            if match[2] == "CANNOT":
                refused.add((int(match[1]), int(match[3])))
        elif match := _BANDWIDTH.fullmatch(line):
            columns, rows, at = grid(lines, at)
            values = [scaled(row, float(GB)) for _, row in rows]
            if values and columns:
                log.tables += _bandwidths(match, line, values, len(columns), refused)
            if not columns or len(values) < len(columns) or is_cut(lines, at - 1):
                log.failures.append(f"the log ends early: {line}")
        elif _LATENCY.fullmatch(line) or line.startswith(("GPU ", "CPU ")):
            start = at if _LATENCY.fullmatch(line) else at - 1
            columns, rows, at = grid(lines, start)
            values = [scaled(row, _MICRO) for _, row in rows]
            if values and columns:
                kind = lines[start].split()[0]
                log.tables.append(_kept(f"latency, {kind}", line, values, Unit.TIME))
            if not columns or len(values) < len(columns) or is_cut(lines, at - 1):
                log.failures.append(f"the log ends early: {line}")
            at = max(at, start + 1)
        elif line.startswith("D\\D") or re.fullmatch(r"\d+(\s+[01])+", line):
            pass  # the matrix of connectivity, which says what the lines of devices said
        else:
            log.other(line, _KNOWN)
    if not log.tables:
        log.failures.append("the log ends early: it has no values")
    elif any(line.startswith(_CONNECTIVITY) for line in lines) and not any(
        line.startswith(_CLOSING) for line in lines
    ):
        log.failures.append("the log ends early: it lacks its last line")
    return log


#: Rows of values, in base units.
_Values = list[tuple[float | None, ...]]


def _bandwidths(
    match: re.Match[str], title: str, values: _Values, columns: int, refused: set[tuple[int, int]]
) -> Iterator[FoundTable]:
    """Yield the tables of copies between GPUs, and of copies within each."""
    if match[2] == "Disabled":
        yield _kept("through the host", title, values, Unit.RATE)
        return
    names = tuple(f"gpu{i}" for i in range(columns))
    pairs = tuple(
        tuple(None if i == j or (i, j) in refused else value for j, value in enumerate(row))
        for i, row in enumerate(values)
    )
    access = "read" if match[3] == "Reads" else "write"
    both = "bidirectional_" if match[1] == "Bi" else ""
    if columns > 1 and any(value is not None for row in pairs for value in row):
        yield FoundTable(
            f"device_to_device_{both}memcpy_{access}_ce", pairs, names, names, ("GPU", "GPU"), Unit.RATE,
            "total" if both else "", text(title), _BYTES,
        )  # fmt: skip
    if not both and len(values) == columns and match[3] != "Reads":
        own = (row[i] for i, row in enumerate(values))  # which count what is read and what is written
        local = tuple(None if value is None else value / 2 for value in own)
        yield FoundTable(
            "device_local_copy",
            (local,),
            ("local",),
            names,
            ("GPU", "GPU"),
            Unit.RATE,
            "",
            text(title),
            _BYTES,
        )


def _kept(name: str, title: str, values: _Values, unit: Unit) -> FoundTable:
    """A table that no testcase measures."""
    names = tuple(f"gpu{i}" for i in range(max(map(len, values))))
    why = "no testcase measures " + ("copies through the host" if unit is Unit.RATE else "empty copies")
    key = re.sub(r"\W+", "-", title.partition("Matrix")[0].lower()).strip("-")
    return FoundTable(f"{_TOOL} {name}", tuple(values), names[: len(values)], names, ("GPU", "GPU"), unit,
                      key, text(title), why_not=why)  # fmt: skip
