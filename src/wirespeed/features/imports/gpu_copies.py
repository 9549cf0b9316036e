"""Logs of tools that copy to, from and between GPUs: bandwidthTest, p2pBandwidthLatencyTest, simpleP2P.
Formats and units: ``Samples/1_Utilities/bandwidthTest/bandwidthTest.cu`` of NVIDIA/cuda-samples.
``MB/s`` of older versions are MiB/s; copies within a GPU count what is read and what is written.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from ...hardware.facts import Fact
from ...measurement import Unit
from ...units import GB, GIB, MIB, MICRO, many
from . import scan
from .commands import binding
from .log import HOST_COPIES, FoundLog, FoundTable, Tool
from .log_parts import curve, each, runs

_BEGIN_BANDWIDTH = re.compile(r"\s*\[?CUDA Bandwidth Test\]")
_DIRECTION = re.compile(
    r"\s*(Host to Device|Device to Host|Device to Device) Bandwidth, (\d{1,4}) Device\(s\)(?:, (\w+) memory)?"
)
_CSV = re.compile(
    r".*?\bbandwidthTest-(H2D|D2H|D2D)(-Paged|-Pinned)?(-WriteCombined)?, Bandwidth = ([\d.]+) ([MG]B)/s, "
    r"Time = \S+ s, Size = (\d{1,18}) bytes(?:, NumDevsUsed = (\d{1,4}))?"
)
#: Lines with which a log of this tool begins.
_START_BANDWIDTH = re.compile(rf"{_BEGIN_BANDWIDTH.pattern}|{_DIRECTION.pattern}|{_CSV.pattern}")
_DEVICE_BANDWIDTH = re.compile(r"\s*Device (\d{1,4}): (.+)")
_MEMORY = re.compile(r"\s*(PINNED|PAGEABLE) Memory Transfers")
_HEAD = re.compile(r".*Transfer Size \(Bytes\)\s+Bandwidth\(([MG]B)/s\)")
_ROW = re.compile(r"\s*(\d{1,18})\s+([\d.]+)\s*$")
_CUT = re.compile(r"\s*\d{4,18}\s*$")
_UNITS = {"MB": float(MIB), "GB": float(GB)}
_SHORT = {"Host to Device": "H2D", "Device to Host": "D2H", "Device to Device": "D2D"}
_LONG = {short: long.lower() for long, short in _SHORT.items()}
#: Direction -> testcase of pinned memory.
_CASES = dict(zip(("H2D", "D2H", "D2D"), (*HOST_COPIES, "device_local_copy"), strict=True))
_RESULT, _LAST = re.compile(r"\s*Result = (\w+)"), "Result = PASS"
_WRITE_COMBINED = "Write-Combined Memory Writes are Enabled"
_KNOWN_BANDWIDTH = re.compile(
    r"Running on|(Quick|Range|Shmoo) Mode|NOTE: |\.+$|[$#>] |\[CUDA|\*+|Write-Combined|!!"
)
_TOOL_BANDWIDTH = "bandwidthTest"


@dataclass(frozen=True)
class _Series:
    """What is copied: direction, kind of host memory, and number of GPUs whose rates are added."""

    direction: str
    memory: str
    gpus: int

    @property
    def why_not(self) -> str:
        """Why no testcase measures the same; empty if one does."""
        if self.gpus > 1:
            return f"the sum of {self.gpus} GPUs, one after the other"
        if self.direction != "D2D" and self.memory != "pinned":
            return f"no testcase copies {self.memory} memory by default"
        return ""

    @property
    def title(self) -> str:
        """Its name in words."""
        kind = "" if self.direction == "D2D" else f", {self.memory}"
        return f"{_LONG[self.direction]}{kind}" + (f", {many(self.gpus, 'GPU')}" if self.gpus > 1 else "")


@dataclass
class _Run:
    """A run on one GPU, or on several together: series -> size in bytes -> rate in B/s."""

    log: FoundLog
    devices: dict[int, str] = field(default_factory=dict)
    found: dict[_Series, dict[int, float | None]] = field(default_factory=dict)


def _read_of_bandwidth(lines: Sequence[str]) -> Iterator[FoundLog]:
    """Yield the runs of the tool that some lines contain; runs on different GPUs are one log."""
    together: list[_Run] = []
    before: Sequence[str] = ()
    for part in _parts(lines):
        run = _run_of_bandwidth(part)
        begun = (i for i, line in enumerate(part) if _START_BANDWIDTH.match(line))
        # The command of a run precedes its first line; it follows what the run before printed.
        run.log.settings = binding([*before, *part[: next(begun, 0)]])
        before = part
        if together and not _fits(together, run):
            yield _log(together)
            together = []
        together.append(run)
    yield _log(together)


def _parts(lines: Sequence[str]) -> Iterator[Sequence[str]]:
    """Split lines into runs: at a first line, and where an excerpt repeats a device or what is copied."""
    start, filled, seen = 0, False, set[str]()
    for i, line in enumerate(lines):
        match, device = _CSV.match(line), bool(_DEVICE_BANDWIDTH.match(line))
        if match or device or _BEGIN_BANDWIDTH.match(line) or _DIRECTION.match(line):
            what = f"{match[1]}{match[2]}{match[3]} {match[6]}" if match else line.strip()
            if what in seen or (device and filled):
                yield lines[start:i]
                start, filled, seen = i, False, set()
            seen.add(what)
        filled |= bool(match or _ROW.match(line))
    yield lines[start:]


def _fits(together: Sequence[_Run], run: _Run) -> bool:
    """Whether a run measures another GPU of the same machine in the same way."""
    others = {device for other in together for device in other.devices}
    of_one = len(run.devices) == len(together[0].devices) == 1
    return of_one and not others & run.devices.keys() and run.found.keys() == together[0].found.keys()


def _run_of_bandwidth(lines: Sequence[str]) -> _Run:
    run = _Run(FoundLog(_TOOL_BANDWIDTH, lines=len(lines), partial=True))
    log, unit, series, ended = run.log, 0.0, None, False
    for line in lines:
        if match := _CSV.match(line):
            kind = {"-Paged": "pageable", "-Pinned": "pinned"}.get(match[2] or "", "pinned")
            kind = "write-combined" if match[3] else kind
            at = run.found.setdefault(_Series(match[1], kind, int(match[7] or 1)), {})
            at[int(match[6])] = scan.in_base(match[4], _UNITS[match[5]])
        elif match := _DIRECTION.match(line):
            old = {"paged": "pageable"}.get((match[3] or "").lower(), (match[3] or "pinned").lower())
            series, unit = _Series(_SHORT[match[1]], old, max(int(match[2]), 1)), 0.0
        elif series and (match := _MEMORY.match(line)):
            series = replace(series, memory=match[1].lower())
        elif series and (match := _HEAD.match(line)):
            series = replace(series, memory="write-combined") if _WRITE_COMBINED in line else series
            unit = _UNITS[match[1]]
        elif series and unit and (match := _ROW.match(line)):
            run.found.setdefault(series, {})[int(match[1])] = scan.in_base(match[2], unit)
        elif series and unit and _CUT.match(line):
            log.doubt(f"a row is cut: {line.strip()}")
        elif match := _DEVICE_BANDWIDTH.match(line):
            run.devices[int(match[1]) % scan.MOST_DEVICES] = scan.text(match[2])
        elif match := _RESULT.match(line):
            ended = log.closed = match[1] == "PASS"
            if not "PASS".startswith(match[1]):
                log.failures.append(scan.text(line))
        else:
            log.other(line.strip(), _KNOWN_BANDWIDTH)
    if not (ended or log.failures) and any(map(_BEGIN_BANDWIDTH.match, lines)):
        log.doubt(f"it lacks '{_LAST}'")
    return run


def _log(together: Sequence[_Run]) -> FoundLog:
    """One log of runs on different GPUs."""
    first = together[0].log
    for run in together[1:]:
        first.lines += run.log.lines
        first.settings = first.settings if run.log.settings == first.settings else ()
        for name in ("unknown", "failures", "warnings"):
            getattr(first, name).extend(getattr(run.log, name))
    devices = {device: model for run in together for device, model in run.devices.items()} or {0: ""}
    last = max(devices)
    if any(devices.values()):
        first.gpus = [(devices.get(i, ""), "") for i in range(last + 1)]
    for series in dict.fromkeys(series for run in together for series in run.found):
        first.tables += _tables(series, {
            next(iter(run.devices), 0): run.found[series] for run in together if series in run.found
        }, last)  # fmt: skip
    return first


def _tables(
    series: _Series, found: Mapping[int, Mapping[int, float | None]], last: int
) -> Iterator[FoundTable]:
    """Yield the table of the largest size, and the curve over all sizes if there are several.

    Args:
        series: What is copied.
        found: Index of the GPU -> size in bytes -> rate in B/s.
        last: Largest index of a GPU in the log.
    """
    why, title = series.why_not, series.title
    size = max(size for values in found.values() for size in values)
    counted = 2 if series.direction == "D2D" else 1
    gpus = tuple(f"gpu{i}" for i in range(last + 1)) if not why else ("sum" if series.gpus > 1 else "gpu0",)
    first = next(iter(found.values()))
    largest = [first.get(size)] if why else [found.get(i, {}).get(size) for i in range(len(gpus))]
    values = tuple(value and value / counted for value in largest)
    row = "local" if series.direction == "D2D" else "host"
    axis = "GPU" if series.direction == "D2D" else "CPU"
    name = f"{_TOOL_BANDWIDTH} {title}" if why else _CASES[series.direction]
    yield FoundTable(
        name, (values,), (row,), gpus, (axis, "GPU"), Unit.RATE, "", f"{_TOOL_BANDWIDTH} {title}", size, why
    )
    for device, by_size in found.items():
        if len(by_size) > 1:
            called = f"{_TOOL_BANDWIDTH} {title} over sizes" + (f", gpu{device}" if len(found) > 1 else "")
            rates = {at: value and value / counted for at, value in by_size.items()}
            yield curve(called, "", called, {"rate": rates}, Unit.RATE, "value",
                        "a curve; its largest size is compared")  # fmt: skip


#: How these logs are read.
BANDWIDTH_TEST = Tool(_START_BANDWIDTH, _read_of_bandwidth, commands=True)
#: Lines with which a log of this tool begins; an excerpt begins with a matrix.
_START_P2P = re.compile(
    r"\[P2P \(Peer-to-Peer\) GPU Bandwidth Latency Test\]|P2P Connectivity Matrix|"
    r"(Uni|Bi)directional P2P=(En|Dis)abled Bandwidth|P2P=(En|Dis)abled Latency|"
    r"Device: \d+, .+, pciBusID: "
)
_BEGIN_P2P = re.compile(r"\[P2P \(Peer-to-Peer\)")
_TOOL_P2P = "p2pBandwidthLatencyTest"
_DEVICE_P2P = re.compile(
    r"Device: (\d+), (.+), pciBusID: (\w{1,2}), pciDeviceID: (\w{1,2}), pciDomainID: ?(\w{1,8})"
)
_ACCESS = re.compile(r"Device=(\d+) (CAN|CANNOT) Access Peer Device=(\d+)")
_BANDWIDTH = re.compile(
    r"(Uni|Bi)directional P2P=(Enabled|Disabled) Bandwidth(?: \(P2P (Writes|Reads)\))? Matrix \(GB/s\)"
)
_LATENCY = re.compile(r"P2P=(Enabled|Disabled) Latency(?: \(P2P (Writes|Reads)\))? Matrix \(us\)")
#: Reading of a GPU that cannot access the memory of others: which.
_NO_ACCESS = "no peer access to"
_CONNECTIVITY = "P2P Connectivity Matrix"
#: The last line, which a log with the matrix of connectivity should have: other logs are excerpts.
_CLOSING = "NOTE: The CUDA Samples are not meant"
_KNOWN_P2P = re.compile(
    r"\[P2P|P2P Connectivity Matrix|\*\*\*NOTE|NOTE: |So you can see lesser|Result = PASS"
)
#: Bytes of a buffer: 40 million integers.
_BYTES = 160_000_000


def _run_of_p2p(lines: Sequence[str]) -> FoundLog:
    log = FoundLog(_TOOL_P2P, lines=len(lines))
    refused: set[tuple[int, int]] = set()
    latency = ""  # title of the matrices of GPU and CPU, which the second one lacks
    at = 0
    while at < len(lines):
        line = lines[at].strip()
        at += 1
        if match := _DEVICE_P2P.fullmatch(line):
            bus = f"{match[5].rjust(8, '0')}:{match[3].rjust(2, '0')}:{match[4].rjust(2, '0')}"
            if int(match[1]) == len(log.gpus):  # a second list belongs to another run
                log.gpus.append((scan.text(match[2]), bus))
        elif match := _ACCESS.fullmatch(line):
            if match[2] == "CANNOT":
                refused.add((int(match[1]), int(match[3])))
        elif match := _BANDWIDTH.fullmatch(line):
            columns, rows, at = scan.grid(lines, at)
            values = [scan.scaled(row, float(GB)) for row in scan.by_label(rows, len(columns))]
            if values and columns:
                log.tables += _bandwidths(match, line, values, len(columns), refused)
            _note_missing(log, line, len(columns), len(rows))
        elif _LATENCY.fullmatch(line) or line.startswith(("GPU ", "CPU ")):
            start = at if _LATENCY.fullmatch(line) else at - 1
            latency = line if start == at else latency
            columns, rows, at = scan.grid(lines, start)
            values = [scan.scaled(row, MICRO) for row in scan.by_label(rows, len(columns))]
            if values and columns:
                kind = lines[start].split()[0]
                log.tables.append(_kept(f"latency, {kind}", latency, values, Unit.TIME))
            _note_missing(log, latency or line, len(columns), len(rows))
            at = max(at, start + 1)
        elif line.startswith("D\\D"):
            columns, rows, end = scan.grid(lines, at - 1)
            refused |= {
                (i, j)
                for i, (_, row) in enumerate(rows)
                for j, value in enumerate(row)
                if value == 0 and i != j
            }
            at = max(end, at)
        else:
            log.closed |= line.startswith(_CLOSING)
            log.other(line, _KNOWN_P2P)
    for i in sorted({i for i, _ in refused}):
        lacking = ", ".join(f"gpu{j}" for j in sorted(j for a, j in refused if a == i))
        log.facts.append(Fact(_NO_ACCESS, scan.text(lacking), device=f"gpu{i}"))
    if not log.tables:
        log.doubt("it has no values")
    elif any(line.startswith(_CONNECTIVITY) for line in lines) and not log.closed:
        log.doubt("it lacks its last line")
    return log


def _note_missing(log: FoundLog, title: str, columns: int, rows: int) -> None:
    """Note rows that a matrix lacks."""
    if not columns or rows < columns:
        log.doubt(f"{rows} of {columns or 'its'} rows of {scan.text(title)!r}")


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
            "total" if both else "", scan.text(title), _BYTES,
        )  # fmt: skip
    if _has_value(hosted := having(lambda i, j: i != j and (i, j) in refused)):
        yield _kept("through the host", title, hosted, Unit.RATE)
    own = [row[i] for i, row in enumerate(values)]  # which count what is read and what is written
    if not both and len(values) == columns and match[3] != "Reads":
        local = tuple(None if value is None else value / 2 for value in own)
        yield FoundTable(
            "device_local_copy", (local,), ("local",), names, axes, Unit.RATE, "", scan.text(title), _BYTES,
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
    return FoundTable(f"{_TOOL_P2P} {name}", tuple(values), names[: len(values)], names, ("GPU", "GPU"), unit,
                      key, scan.text(title), why_not=why)  # fmt: skip


#: How these logs are read.
P2P_SAMPLE = Tool(_START_P2P, each(_run_of_p2p, runs, _BEGIN_P2P))

#: The first line of simpleP2P; what it says of the GPUs, and of the pair that it copies between, in GiB/s.
_START_SIMPLE = re.compile(r"\s*\[\S*simpleP2P\S*\] - Starting")
_ABLE = re.compile(r"> Peer access from (.+) \(GPU(\d{1,4})\) -> .+ \(GPU(\d{1,4})\) ?: (Yes|No)")
_COPY = re.compile(r"cudaMemcpyPeer / cudaMemcpy between GPU(\d{1,3}) and GPU(\d{1,3}): ([\d.]+) ?GB/s")
_PASSED = "Test passed"
_KNOWN_SIMPLE = re.compile(
    r"Checking |CUDA-capable device count|(En|Dis)abling peer access|Allocating |Creating event|"
    r"Preparing host|Run kernel on|Copy data back|Shutting down|Two or more GPUs|Waiving|\[|---> "
)


def _run_of_simple(lines: Sequence[str]) -> FoundLog:
    """The run of simpleP2P: whether what a GPU wrote into another's memory is what it read back."""
    log = FoundLog("simpleP2P", lines=len(lines))
    names: dict[int, str] = {}
    wrong = ""
    for line in map(str.strip, lines):
        if match := _ABLE.match(line):
            names[int(match[2])] = scan.text(match[1])
            if match[4] == "No":
                log.facts.append(Fact(_NO_ACCESS, f"gpu{int(match[3])}", device=f"gpu{int(match[2])}"))
        elif match := _COPY.match(line):
            rate = scan.in_base(match[3], float(GIB))
            ends = (f"gpu{int(match[1])}",), (f"gpu{int(match[2])}",)
            why = "its copies alternate between both directions"
            name = "simpleP2P copies"
            log.tables.append(FoundTable(name, ((rate,),), *ends, ("GPU", "GPU"), Unit.RATE, why_not=why))
        elif line.startswith(("Verification error", "Test failed")):
            wrong = wrong or line
        else:
            log.closed |= line.startswith(_PASSED)
            log.other(line.removeprefix(_PASSED), _KNOWN_SIMPLE)
    log.gpus = [(names.get(i, ""), "") for i in range(max(names, default=-1) + 1)]
    if wrong:
        log.failures.append(scan.reason_of(wrong))
    elif log.tables and not log.closed:
        log.doubt(f"it lacks {_PASSED!r}")
    elif not log.tables:
        log.doubt("it copied nothing")
    return log


#: How these logs are read.
SIMPLE_P2P = Tool(_START_SIMPLE, each(_run_of_simple, runs, _START_SIMPLE))
