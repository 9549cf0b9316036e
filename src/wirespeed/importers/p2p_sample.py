"""Logs of p2pBandwidthLatencyTest, a sample of the CUDA toolkit."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence

from ..measurement import Unit
from ..units import GB
from .log import INCOMPLETE, FoundLog, FoundTable, Tool, by_label, grid, runs, scaled, text

#: Lines with which a log of this tool begins; an excerpt begins with a matrix.
_START = re.compile(
    r"\[P2P \(Peer-to-Peer\) GPU Bandwidth Latency Test\]|P2P Connectivity Matrix|"
    r"(Uni|Bi)directional P2P=(En|Dis)abled Bandwidth|P2P=(En|Dis)abled Latency"
)
_BEGIN = re.compile(r"\[P2P \(Peer-to-Peer\)")
_TOOL = "p2pBandwidthLatencyTest"
_DEVICE = re.compile(
    r"Device: (\d+), (.+), pciBusID: (\w{1,2}), pciDeviceID: (\w{1,2}), pciDomainID: ?(\w{1,8})"
)
_ACCESS = re.compile(r"Device=(\d+) (CAN|CANNOT) Access Peer Device=(\d+)")
_BANDWIDTH = re.compile(
    r"(Uni|Bi)directional P2P=(Enabled|Disabled) Bandwidth(?: \(P2P (Writes|Reads)\))? Matrix \(GB/s\)"
)
_LATENCY = re.compile(r"P2P=(Enabled|Disabled) Latency(?: \(P2P (Writes|Reads)\))? Matrix \(us\)")
_CONNECTIVITY = "P2P Connectivity Matrix"
#: The last line, which a log with the matrix of connectivity should have: other logs are excerpts.
_CLOSING = "NOTE: The CUDA Samples are not meant"
_KNOWN = re.compile(r"\[P2P|P2P Connectivity Matrix|\*\*\*NOTE|NOTE: |So you can see lesser|Result = PASS")
#: Bytes of a buffer: 40 million integers.
_BYTES = 160_000_000
_MICRO = 1e-6


def _read(lines: Sequence[str]) -> Iterator[FoundLog]:
    """Yield the runs of the tool that some lines contain."""
    return (_run(part) for part in runs(lines, _BEGIN))


def _run(lines: Sequence[str]) -> FoundLog:
    log = FoundLog(_TOOL, lines=len(lines))
    refused: set[tuple[int, int]] = set()
    latency = ""  # title of the matrices of GPU and CPU, which the second one lacks
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
            values = [scaled(row, float(GB)) for row in by_label(rows, len(columns))]
            if values and columns:
                log.tables += _bandwidths(match, line, values, len(columns), refused)
            _note_missing(log, line, len(columns), len(rows))
        elif _LATENCY.fullmatch(line) or line.startswith(("GPU ", "CPU ")):
            start = at if _LATENCY.fullmatch(line) else at - 1
            latency = line if start == at else latency
            columns, rows, at = grid(lines, start)
            values = [scaled(row, _MICRO) for row in by_label(rows, len(columns))]
            if values and columns:
                kind = lines[start].split()[0]
                log.tables.append(_kept(f"latency, {kind}", latency, values, Unit.TIME))
            _note_missing(log, latency or line, len(columns), len(rows))
            at = max(at, start + 1)
        elif line.startswith("D\\D"):
            columns, rows, end = grid(lines, at - 1)
            refused |= {
                (i, j) for i, (_, row) in enumerate(rows) for j, value in enumerate(row) if value == 0
            }
            at = max(end, at)
        else:
            log.other(line, _KNOWN)
    if not log.tables:
        log.warnings.append(f"{INCOMPLETE}: it has no values")
    elif any(line.startswith(_CONNECTIVITY) for line in lines) and not any(
        line.startswith(_CLOSING) for line in lines
    ):
        log.warnings.append(f"{INCOMPLETE}: it lacks its last line")
    return log


def _note_missing(log: FoundLog, title: str, columns: int, rows: int) -> None:
    """Note rows that a matrix lacks."""
    if not columns or rows < columns:
        log.warnings.append(f"{INCOMPLETE}: {rows} of {columns or 'its'} rows of {text(title)!r}")


#: Rows of values, in base units.
_Values = list[tuple[float | None, ...]]


def _bandwidths(
    match: re.Match[str], title: str, values: _Values, columns: int, refused: set[tuple[int, int]]
) -> Iterator[FoundTable]:
    """Yield the tables of copies between GPUs, of copies within each, and of those through the host."""
    if match[2] == "Disabled":
        yield _kept("through the host", title, values, Unit.RATE)
        return
    names, axes = tuple(f"gpu{i}" for i in range(columns)), ("GPU", "GPU")

    def having(wanted: Callable[[int, int], bool]) -> _Values:
        return [tuple(v if wanted(i, j) else None for j, v in enumerate(row)) for i, row in enumerate(values)]

    pairs = having(lambda i, j: i != j and (i, j) not in refused)
    access = "read" if match[3] == "Reads" else "write"
    both = "bidirectional_" if match[1] == "Bi" else ""
    if columns > 1 and _has_value(pairs):
        yield FoundTable(
            f"device_to_device_{both}memcpy_{access}_ce", tuple(pairs), names, names, axes, Unit.RATE,
            "total" if both else "", text(title), _BYTES,
        )  # fmt: skip
    if _has_value(hosted := having(lambda i, j: i != j and (i, j) in refused)):
        yield _kept("through the host", title, hosted, Unit.RATE)
    own = [row[i] for i, row in enumerate(values)]  # which count what is read and what is written
    if not both and len(values) == columns and match[3] != "Reads":
        local = tuple(None if value is None else value / 2 for value in own)
        yield FoundTable(
            "device_local_copy", (local,), ("local",), names, axes, Unit.RATE, "", text(title), _BYTES,
        )  # fmt: skip
    elif any(value is not None for value in own):
        yield _kept("within a GPU", title, having(lambda i, j: i == j), Unit.RATE)


def _has_value(values: _Values) -> bool:
    return any(value is not None for row in values for value in row)


def _kept(name: str, title: str, values: _Values, unit: Unit) -> FoundTable:
    """A table that no testcase measures."""
    names = tuple(f"gpu{i}" for i in range(max(map(len, values))))
    measured = f"copies {name}" if unit is Unit.RATE else "empty copies"
    why = f"no testcase measures {measured} in this way"
    key = re.sub(r"\W+", "-", title.partition("Matrix")[0].lower()).strip("-")
    return FoundTable(f"{_TOOL} {name}", tuple(values), names[: len(values)], names, ("GPU", "GPU"), unit,
                      key, text(title), why_not=why)  # fmt: skip


#: How these logs are read.
P2P_SAMPLE = Tool(_START, _read)
