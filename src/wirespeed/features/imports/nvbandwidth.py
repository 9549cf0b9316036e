"""Logs of nvbandwidth 0.2 to 0.11 and of sailbandwidth: text and JSON."""

from __future__ import annotations

import math
import re
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Any

from ...document import RankInfo, Status
from ...measurement import Unit
from ...testcases.table import TABLE
from ...units import GB, GIB, MIB, NANO
from . import scan
from .commands import binding
from .log import FoundLog, FoundTable, Tool
from .log_parts import gpus_of

#: Lines with which a log of this tool can begin; an excerpt begins with the title of a table.
_START = re.compile(
    r"(nv|sail)bandwidth Version: |Running (benchmark )?\w+\.\s*$|"
    r"Device \d+: .+ \([0-9a-fA-F]{8}:[0-9a-fA-F]{2}:|"
    r"memcpy (CE|SM|TMA|local) .*\(column\).* bandwidth \(GB/s\)\s*$"
)
_VERSION = re.compile(r"((?:nv|sail)bandwidth) Version: v?(\S+)")
_DEVICE = re.compile(r"(?:Device )?(\d+): (.+?)(?: \(([0-9a-fA-F:.]+)\))?(?:: \((.*)\))?")
_PROCESS = re.compile(r"Process +(\d+) \((.+?)\): device (\d+)(?:: (.+?)(?: \(([0-9a-fA-F:.]+)\))?)?")
_RUNNING = re.compile(r"Running (?:benchmark )?(\w+)\.")
#: Testcases that it waives if no GPU can access the memory of another, and that reason.
_OF_PEERS = ("device_to_device_", "all_to_one_", "one_to_all_")
_NO_PEER = "waived in the log: no GPU has peer access to another"
_WAIVED = re.compile(r"(?:Waived:|Waiving)\s*(\w*)(?::\s*(.*)|\.)?")
_MISSING = re.compile(r"ERROR: (Testcase (?:index )?(\S+) (?:not found|out of bound)!)")
#: How nvbandwidth reports errors; other lines that say so are from other programs.
_ERROR = re.compile(r"\[?(CUDA_|NVML_)?ERROR|Error: |ASSERT|Assertion")
_TITLE = re.compile(r"\w.*\((GB/s|ns|%)\)|Bisect .*")
#: The note on a small buffer, also of earlier versions of wirespeed.
_SMALLER = re.compile(r"NOTE: (?:You have chosen a buffer size that|The buffer size) is smaller")
_SUM = re.compile(r"(?:SUM|&&&& PERF) (\w+) (\S+)")
_TITLE_PART = re.compile(r" (Read1|Read2|Write1|Write2|Total) ")
#: Keys of the tables of a bidirectional testcase, in order; 0.2 has only one table.
_PARTS = {"read": ("read1", "read2", "total"), "write": ("write1", "write2", "total")}
#: Begin of the closing note, which 0.6 and later print.
_CLOSING, _CLOSING_SINCE = "NOTE: The reported results", (0, 6)
#: Lines without values that every log may have.
_KNOWN = re.compile(
    r"Built from Git version:|NOTE: |COEFFICIENT_OF_VARIATION |Performance can vary |WARNING: |"
    r"Additional system-specific tuning |"
    r"Process +\d+ \(.*\): device gpu\d+$|It is suggested to use the default buffer size|"
    r"\s*Sample \d+: |(CUDA|HGGC|Driver) |Warning: |"
    r"(testcase|transport|src|dst|reported by|first bad \w+|total values|bad values|flipped bits|"
    r"source content|transfer|found|note|dumped file) +: |"
    r"MPI version|Git |\s*(Bandwidth|Latency).*: (min|max|avg)|"
    r"(min|max|average|Min|Max|Avg|MIN|MAX|AVG)\b.*[\d.]+$"
)
_NAMES = frozenset(case.name for case in TABLE)
#: Testcases of nvbandwidth whose tables have a row and a column for each device.
_PAIRS = frozenset(
    case.name for case in TABLE if case.index is not None and "device_to_device_" in case.name
    and "all_" not in case.name
)  # fmt: skip
#: Title of a square matrix -> its testcase, and the part of a bidirectional one.
_BY_TITLE = {
    case.title.format(part=part.capitalize()): f"{case.name}_{part}" if "{part}" in case.title else case.name
    for case in TABLE if case.name in _PAIRS and not case.name.startswith("multinode")
    for part in ("read1", "read2", "write1", "write2", "total")
    if part == "total" or part.startswith("read" if "_read_" in case.name else "write")
}  # fmt: skip
#: Title of a table of one GPU -> its testcase: that of several GPUs, ``host_to_all``, copies the same.
_OF_ONE = {
    case.title: case.name for case in TABLE
    if case.index is not None and case.name.startswith(("host_to_device_memcpy", "device_to_host_memcpy"))
}  # fmt: skip
#: Status in the JSON, without case -> status; every other one is an error.
_STATUS = {
    "passed": Status.PASSED, "waived": Status.WAIVED, "not found": Status.NOT_FOUND, "error": Status.ERROR,
}  # fmt: skip
#: What nvbandwidth says of an unknown testcase.
_UNKNOWN_NAME = "ERROR"
#: In one process, the column's GPU makes nvbandwidth's first write, and the row's GPU ours.
_OTHER_WRITE = {"write1": "write2", "write2": "write1"}
#: Keys of tables; other names that begin like one of a testcase belong to other testcases.
_KEYS = frozenset(_OTHER_WRITE) | {
    "read1", "read2", "total", "size", "threads", "latency", "bandwidth", "time", "algbw", "busbw",
}  # fmt: skip
#: Bytes of a buffer where the log has no note: 64 MiB until 0.2.
_OLD, _OLD_BYTES, _BYTES = (0, 2), 64 * MIB, 512 * MIB
#: Bytes from which kernels copy to and from host memory ever slower, on machines without a defect: an A100
#: 25.1 GB/s at 1 GiB, 18.1 at 10 GiB and 16.5 at 20 GiB, a GH200 less than half (NVIDIA/nvbandwidth issues
#: 41, 42). No reference is of such sizes; copy engines do not slow down.
_LARGE, _LARGE_WHY = 10 * GIB, "kernels are slower with buffers of 10 GiB or more: measure with 512 MiB"
#: A command that runs the tool, and the option with the size of its buffers, in MiB.
_COMMAND = re.compile(r"(?:^|[\s/])(?:nv|sail)bandwidth(?: (?!Version)(.*))?$")
_SIZE_OPTION = re.compile(r"(?:^| )(?:-b ?|--bufferSize[ =])(\d{1,7})(?: |$)")
#: Maximum difference of a sum of values with two decimals from the sum in the log, for each value.
_ROUNDING = 0.006


def _read(lines: Sequence[str]) -> Iterator[FoundLog]:
    """Yield the runs of the tool that some lines contain."""
    starts = [i for i, line in enumerate(lines) if _VERSION.match(line)]
    first = [0] if not starts or starts[0] else []
    if first and starts and not any(_RUNNING.match(line) for line in lines[: starts[0]]):
        starts[0], first = 0, []
    bounds = [*first, *starts, len(lines)]
    before = 0
    for begin, end in pairwise(bounds):
        # The command of a run follows what the run before printed.
        printed = (i for i in range(begin, end) if _VERSION.match(lines[i]) or _RUNNING.match(lines[i]))
        output = next(printed, begin)
        log = _TextOfRun(lines[begin:end]).log(_size_of(lines[before:output]))
        log.settings = binding(lines[before:output])
        yield log
        before = output


def _size_of(lines: Sequence[str]) -> int:
    """Bytes of the buffers of the last command in some lines; 0 if it does not say."""
    commands = [match[1] or "" for line in lines if (match := _COMMAND.search(line.strip()))]
    size = _SIZE_OPTION.search(commands[-1]) if commands else None
    return int(size[1]) * MIB if size else 0


class _TextOfRun:
    """Reads the text of one run."""

    def __init__(self, lines: Sequence[str]) -> None:
        self.lines = lines
        self.found = FoundLog("nvbandwidth", lines=len(lines), independent=True)
        self._small = False
        self._running = ""
        self._measured = False
        self._parts: set[str] = set()
        self._whole = self._ratios = False
        self._summed: set[str] = set()

    def log(self, size: int) -> FoundLog:
        """The log that the lines contain; ``size`` is what the command says of buffers, in bytes, or 0."""
        at = 0
        while at < len(self.lines):
            at = self._line(at)
        self._ends()
        self._closes()
        rates = dict.fromkeys(table.testcase for table in self.found.tables if table.unit is Unit.RATE)
        for name in rates if self._whole and self._summed else ():
            if name not in self._summed:
                self.found.doubt(f"no sum of {name}")
        _finish(self.found, small=self._small, asked=size)
        return self.found

    def _closes(self) -> None:
        """Note that the closing note is missing: testcases may be, too.

        Excerpts lack lines of the beginning, such as the name of the host.
        """
        log, version = self.found, _release(self.found)
        expected = log.tool == "sailbandwidth" or (version is not None and version >= _CLOSING_SINCE)
        if log.closed or not expected:
            return
        if self._whole:
            log.doubt("it lacks its closing note")
        else:
            log.notes.append("an excerpt: testcases may be missing")

    def _line(self, at: int) -> int:
        """Read a line, or a table that begins with it; return the index of the next line."""
        line, log = self.lines[at].strip(), self.found
        if match := _VERSION.match(line):
            log.tool, log.version = match[1], scan.text(f"v{match[2]}")
        elif match := _RUNNING.fullmatch(line):
            self._ends()
            self._running, self._measured, self._parts = match[1], False, set()
        elif match := _WAIVED.match(line):  # 0.8 leaves out the name
            if name := match[1]:
                why = _NO_PEER if name.startswith(_OF_PEERS) else "waived in the log"
                log.outcomes[name] = (Status.WAIVED, scan.text(match[2] or why))
                self._measured = True
        elif match := _MISSING.fullmatch(line):
            log.outcomes[match[2]] = (Status.NOT_FOUND, scan.text(match[1]))
        elif line.startswith(_CLOSING):
            self._ends()
            self._running, log.closed = "", True
        elif match := re.fullmatch(r"Driver Version: (\S+)", line):
            log.driver = scan.text(match[1])
        elif match := re.match(r"(?:CUDA|HGGC) Runtime Version: .*?(\d{4,6})\)?$", line):
            log.cuda = int(match[1])
        elif line.startswith("Device ") and (match := _DEVICE.fullmatch(line)):
            log.gpus.append((scan.text(match[2]), scan.text(match[3] or "")))
            before = self.lines[at - 1].strip() if at else ""
            if len(log.gpus) == 1 and re.fullmatch(r"[\w.-]{1,64}", before):
                log.host, self._whole = before, True
                log.unknown[:] = [unknown for unknown in log.unknown if unknown.strip() != before]
        elif match := _PROCESS.fullmatch(line):
            _add_process(log, match)
        elif _TITLE.fullmatch(line):
            return self._table(at)
        elif match := _SUM.match(line):
            self._check_sum(match[1], match[2])
        elif _SMALLER.match(line):
            self._small = True
        elif self._running and (_ERROR.match(line) or scan.says_failure(line)):
            log.fail(self._running, line)
            self._measured = True
        else:
            log.other(line, _KNOWN)
        if line.startswith("NOTE: SIMULATED"):
            log.simulated = True
        return at + 1

    def _table(self, at: int) -> int:
        """Read a title and its table; return the index of the next line."""
        title = self.lines[at].strip()
        columns, rows, end = scan.grid(self.lines, at + 1)
        if not columns or not rows:
            self.found.unknown.append(title)
            return at + 1
        self._ratios = "utilization" in title
        if not self._ratios:
            titles = _OF_ONE if len(columns) == len(rows) == 1 else {}
            titles = _BY_TITLE if 1 < len(rows) <= len(columns) else titles
            name = self._running or self._named(title, end, titles)
            is_pairs = _split(name)[0] in _PAIRS
            twice = [label for label, count in Counter(label for label, _ in rows).items() if count > 1]
            if twice:
                self.found.doubt(f"{_split(name)[0]}, of which row {twice[0]} occurs twice")
            whole = scan.by_label(rows, len(columns)) if is_pairs else [values for _, values in rows]
            table = _matrix(name, title, whole, len(columns))
            self.found.tables.append(table)
            if match := _TITLE_PART.search(title):
                self._parts.add(match[1].lower())
            if table.testcase in _PAIRS and len(rows) < len(columns):
                missing = f"{len(rows)} of {len(columns)} rows"
                self.found.doubt(f"{missing} of {table.testcase}")
        self._measured = True
        return end

    def _named(self, title: str, end: int, titles: Mapping[str, str]) -> str:
        """The testcase of a table in an excerpt: by the sum below it, or by a title that is of one only."""
        named = next((match[1] for line in self.lines[end : end + 3] if (match := _SUM.match(line))), "")
        return named or titles.get(title.removesuffix(" (GB/s)"), "")

    def _check_sum(self, key: str, total: str) -> None:
        """Compare the sum of the last table with the sum in the log."""
        table = self.found.tables[-1] if self.found.tables else None
        if table is None or self._ratios:  # the sum of ratios has the key of the values
            return
        case, part = _split(key)
        self._summed.add(case)
        if case != table.testcase:
            return
        if part and not table.key:
            table = self.found.tables[-1] = replace(table, key=part)
        scale = _scale(table.unit)
        values = [value / scale for row in table.values for value in row if value is not None]
        expected, added = scan.in_base(total), math.fsum(values)
        if expected is not None and abs(added - expected) > _ROUNDING * (len(values) + 1):
            self.found.warnings.append(
                f"the values of {key} add up to {added:.2f}, not to the sum in the log, {expected:g}"
            )

    def _ends(self) -> None:
        """Note a testcase that began and has no result, or not all of its tables."""
        if self._running and not self._measured:
            self.found.doubt(f"no result of {scan.text(self._running)}")
        wanted = next((set(keys) for keys in _PARTS.values() if self._parts & set(keys[:2])), set())
        if missing := sorted(wanted - self._parts):
            tables = f"{' and '.join(missing)} of {scan.text(self._running)}"
            self.found.doubt(f"no table {tables}")


def _add_process(log: FoundLog, match: re.Match[str]) -> None:
    """Note the GPU of a process of a job of several processes."""
    if match[4]:
        host, bus, model = (scan.text(match[i] or "") for i in (2, 5, 4))
        log.ranks.append(RankInfo(int(match[1]), 0, 0, host, int(match[3]), bus, model))


#: Program -> its names of the versions of the runtime and the driver, and of the devices.
_TOOLS = {
    "nvbandwidth": ("CUDA Runtime Version", "Driver Version", "GPU Device list"),
    "sailbandwidth": ("HGGC Runtime Version", "HGGC Driver Version", "PPU Device list"),
}


def _of_json(content: dict[str, Any]) -> FoundLog | None:
    """The run that a JSON object describes; None if it is not of this tool."""
    tool = next((name for name in _TOOLS if isinstance(content.get(name), dict)), None)
    if tool is None:
        return None
    body, (runtime, driver, devices) = content[tool], _TOOLS[tool]
    log = FoundLog(tool, scan.text(str(body.get("version", ""))), independent=True)
    log.driver = scan.text(str(body.get(driver, "")))
    cuda = re.search(r"(\d{4,6})\)?$", str(body.get(runtime, "")))
    log.cuda = int(cuda[1]) if cuda else 0
    log.simulated = body.get("simulated") is True
    for device in scan.items_of(body.get(devices)):
        if match := _PROCESS.fullmatch(str(device).strip()):
            _add_process(log, match)
        elif match := _DEVICE.fullmatch(str(device).strip()):
            log.gpus.append((scan.text(match[2]), scan.text(match[3] or "")))
            log.host = log.host or scan.text(match[4] or "")
    present: set[tuple[str, str]] = set()
    for entry in scan.items_of(body.get("testcases")):
        if not isinstance(entry, dict) or not isinstance(entry.get("name"), str):
            log.failures.append(scan.text(f"not a testcase: {entry}"))
            continue
        tables = _entry(log, entry)
        log.tables += [table for table in tables if (table.testcase, table.key) not in present]
        present |= {(table.testcase, table.key) for table in tables if table.key}
    if (note := body.get("error")) and str(note).strip():
        log.failures.append(scan.text(str(note)))
    small = bool(_SMALLER.search(str(body.get("warning", ""))))
    _finish(log, small=small)
    return log


def _entry(log: FoundLog, entry: dict[str, Any]) -> list[FoundTable]:
    """The tables of a testcase of the JSON; its status, if not passed, goes to the log."""
    name, title = scan.text(entry["name"]), scan.text(str(entry.get("bandwidth_description", "")))
    outcome, case = entry.get("status"), _split(name)[0]
    status = _STATUS.get(str(outcome).strip().lower(), Status.ERROR)
    if outcome == _UNKNOWN_NAME:
        status = Status.NOT_FOUND
    reason = str(entry.get("reason") or entry.get("error") or f"status {outcome!r} in the log")
    if not status.good:
        log.outcomes.setdefault(case, (status, scan.text(reason)))
    elif entry.get("error"):
        log.fail(case, reason)
    elif status is Status.WAIVED:
        log.outcomes[case] = (status, scan.text(reason))
    try:
        rows = [
            [scan.number(str(word)) for word in scan.items_of(row)[: scan.MOST_DEVICES]]
            for row in scan.items_of(entry.get("bandwidth_matrix"))[: scan.MOST_DEVICES]
        ]
    except ValueError as error:
        log.fail(case, f"its matrix is not of numbers: {error}")
        return []
    columns = len(rows[0]) if rows else 0
    whole = len(rows) in (columns, 3 * columns) if name in _PAIRS else bool(rows)
    if not columns or not whole or any(len(row) != columns for row in rows):
        if status is Status.PASSED:
            log.fail(case, "no complete matrix in the log")
        return []
    if name in _PAIRS and len(rows) == 3 * columns:  # the rows of all tables of a bidirectional testcase
        parts = _PARTS["read" if "_read_" in name else "write"]
        return [
            replace(_matrix(name, title, rows[i * columns : (i + 1) * columns], columns), key=key)
            for i, key in enumerate(parts)
        ]
    return [_matrix(name, title, rows, columns)]


def _scale(unit: Unit) -> float:
    return NANO if unit is Unit.TIME else float(GB)


def _matrix(name: str, title: str, rows: list[list[float | None]], columns: int) -> FoundTable:
    """A table; ``name`` may end with the part of a bidirectional testcase."""
    case, key = _split(name)
    if not key and (part := _TITLE_PART.search(title)):
        key = part[1].lower()
    if not key and "device_to_device_bidirectional" in case:
        # 0.2 has one table: the measured direction of copy engines, the sum of kernels
        key = "total" if case.endswith("_sm") else "read1" if "_read_" in case else "write1"
    is_time = "latency" in case if not title.endswith(")") else title.endswith("(ns)")
    unit = Unit.TIME if is_time else Unit.RATE
    row_labels, column_labels, axes = _labels(case, columns)
    if row_labels == column_labels and all(row[i] == 0 for i, row in enumerate(rows[:columns])):
        rows = [[value or None for value in row] for row in rows]  # versions that print 0.00 for no value
    if len(rows) > len(row_labels):
        row_labels = tuple(str(i) for i in range(len(rows)))
    values = tuple(scan.scaled(row, _scale(unit)) for row in rows)
    return FoundTable(
        case or "unnamed", values, row_labels, column_labels, axes, unit, key, scan.text(title),
        why_not="" if case else "the log does not name the testcase",
    )  # fmt: skip


def _split(name: str) -> tuple[str, str]:
    """The testcase and the key of the table that a name stands for: ``..._read_ce_total``."""
    if name in _NAMES:
        return name, ""
    starts = [case for case in _NAMES if name.startswith(f"{case}_")]
    case = max(starts, key=len, default=name)
    key = name[len(case) + 1 :]
    return (case, key) if key in _KEYS else (name, "")


def _labels(case: str, columns: int) -> tuple[tuple[str, ...], tuple[str, ...], tuple[str, str]]:
    """The labels of rows and columns of a testcase with this number of columns, and the names of the axes."""
    if case.startswith("multinode"):
        ranks = tuple(str(i) for i in range(columns))
        single_row = "all_to_one" in case or "all_from_one" in case
        return (("all",) if single_row else ranks), ranks, ("rank", "rank")
    gpus = tuple(f"gpu{i}" for i in range(columns))
    rows: tuple[str, ...] = ("host",)
    if case.startswith("device_to_device"):
        rows = gpus
    elif case.startswith(("all_to_one", "one_to_all")):
        rows = ("all",)
    elif case.startswith(("device_local", "device_stream", "device_saxpy")):
        rows = ("local",)
    return rows, gpus, ("CPU" if "host" in case and rows != gpus else "GPU", "GPU")


def _finish(log: FoundLog, small: bool, asked: int = 0) -> None:
    """Set the size of the buffers and the GPUs, and recognise a simulated machine.

    Args:
        log: The log.
        small: Whether it notes that the buffers are smaller than usual.
        asked: Size of the buffers as the command says, in bytes; 0 if it does not.
    """
    version = _release(log)
    usual = _OLD_BYTES if version is not None and version <= _OLD else _BYTES
    # Of a smaller buffer, the time that a copy takes to start is not known: as if its size was not.
    size = 0 if small or 0 < asked < usual else asked or usual
    keys: defaultdict[str, set[str]] = defaultdict(set)
    for table in log.tables:
        keys[table.testcase].add(table.key)
        if not table.cells:
            log.fail(table.testcase, "its table has no value")
    for i, table in enumerate(log.tables):
        one_table = keys[table.testcase] == {table.key} and not _TITLE_PART.search(table.title)
        is_ours = one_table or table.testcase.startswith("multinode")  # 0.2 has one, of the row's writes
        key = table.key if is_ours else _OTHER_WRITE.get(table.key, table.key)
        is_large = size >= _LARGE and "host" in table.testcase and table.testcase.endswith("memcpy_sm")
        why = table.why_not or (_LARGE_WHY if is_large and table.unit is Unit.RATE else "")
        log.tables[i] = replace(table, key=key, bytes=0 if table.unit is Unit.TIME else size, why_not=why)
    if any(table.why_not == _LARGE_WHY for table in log.tables):
        log.notes.append(_LARGE_WHY)
    if log.ranks and not log.gpus:
        log.gpus = gpus_of(log.ranks)
        log.host = log.host or log.ranks[0].host
    if any(model.endswith(" SIMULATED") for model, _ in log.gpus):
        log.simulated = True
        log.gpus = [(model.removesuffix(" SIMULATED"), bus) for model, bus in log.gpus]
    del log.gpus[scan.MOST_DEVICES :]


def _release(log: FoundLog) -> tuple[int, int] | None:
    """The version of nvbandwidth; None if it is unknown, or of another tool."""
    version = re.match(r"v?(\d+)\.(\d+)", log.version)
    return (int(version[1]), int(version[2])) if version and log.tool == "nvbandwidth" else None


#: How these logs are read.
NVBANDWIDTH = Tool(_START, _read, _of_json, commands=True)
