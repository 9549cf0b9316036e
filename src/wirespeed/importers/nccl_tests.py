"""Logs of nccl-tests: text of all versions, and JSON."""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from msgspec.structs import replace as struct_replace

from ..collectives.data_types import BY_NAME
from ..collectives.operations import OPERATIONS
from ..collectives.options import OPTIONS, CollectiveOptions
from ..document import CollectiveInfo, RankInfo
from ..tables import Half
from ..units import GB, many
from . import scan
from .host_facts import NcclLines
from .log import FoundCollective, FoundLog, Halves, Tool, gpus_of

#: Names of data types in NCCL's newer versions -> ours.
_TYPES = {"fp8_e4m3": "f8e4m3", "fp8_e5m2": "f8e5m2"}
#: Heading of the table: in versions before NCCL 2, and in modified ones, with other names or without ``#``.
_HEAD = re.compile(r"(#\s*)?(size|bytes)\s+(count|N)\s+type\b")
#: A row of the table, which an excerpt may begin with: size, count, type, operator, root, times and rates.
_ROW = re.compile(
    rf"\d+\s+\d+\s+({'|'.join(map(re.escape, (*BY_NAME, *_TYPES)))})\s+([a-z]+\s+)?(-?\d+\s+)?"
    r"([\d.]+\s+){3}(\S+\s+)([\d.]+\s+){2}[\d.]+\s+\S+\s*$"
)
#: The columns before the results, in excerpts without a heading.
_FIRST = ("size", "count", "type", "redop", "root")
#: Lines with which a log of this tool can begin; some logs have only the lines that say why the run failed.
_START = re.compile(
    r"#? ?(nccl-tests version \d|Collective test starting: \w|nThread \d+ nGpus)|"
    r"# Using devices\s*$|#\s+Rank +\d+ .*\bdevice +\d+ \[|"
    rf"{_HEAD.pattern}|{_ROW.pattern}|(\S{{1,64}}: )?Test (CUDA|NCCL) failure \S+:\d"
)
_TOOL = "nccl-tests"
_MICRO, _MILLI = 1e-6, 1e-3
#: Said of jobs whose lines are mixed.
_UNCONNECTED = "every process is rank 0: the launcher did not connect them (nccl-tests built without MPI=1?)"
_VERSION = re.compile(r"# nccl-tests version (\S+)(?:.*nccl-library=(\d+))?")
_PROGRAM = re.compile(r"# Collective test starting: (\w+)_perf")
_MENTIONED = re.compile(r"\b([a-z_]+)_perf\b")
_OPTIONS = re.compile(
    r"#? ?nThread (\d{1,6}) nGpus (\d{1,6}) minBytes (\d{1,18}) maxBytes (\d{1,18}) "
    r"step: (\d{1,18})\((\w+)\)(.*)"
)
_MORE = re.compile(r"(warmup iters|agg iters|iters|validation|graph): (\d{1,9})\b")
_RANK = re.compile(
    r"#?\s*Rank\s+(\d{1,7})(?:\s+Group\s+(\d{1,7}))?(?:\s+Pid\s+(\d{1,9}))? on\s+(\S+)\s+"
    r"device\s+(\d{1,4})\s+\[([\w:.]+)\]\s*(.*)"
)
#: The last line of all versions: newer ones print "concluded" after it.
_END = re.compile(r"#? ?Avg bus bandwidth\s*: \S")
#: Comments that say that the run failed; others describe it.
_COMMENT = re.compile(
    r"#? ?(Out of bounds values|Avg bus bandwidth)\s*:|# (error:|the run ended early|"
    r"\w+: (failed|error|timed out|interrupted): )"
)
#: What the tool itself says of a failure, also after its last line.
_OWN = re.compile(r"\bTest (\w+ )?(failure|timeout)\b")
#: Other lines that every version prints without ``#``.
_UNITS = re.compile(
    r"\(B\)\s+\(elements\)|out-of-place\s+in-place$|NCCL version \S+$|Using devices$|Blocking Enabled: "
)
#: A warning of NCCL, behind the file of its source, which may be all that names the cause.
_WARN = re.compile(r"(?:(?<=/)(\w+\.cc):\d+ )?NCCL WARN (.+)")
#: Warnings that follow another one: what was queued on a connection that broke is flushed.
_FOLLOWS = re.compile(r"completion .*\b(error |status=)5\b")
#: Says that an operation was not measured.
_SKIPPED = re.compile(r"nRanks \d+ is not a power of 2, skipping$")
_TABLE_LINE = re.compile(r"\s*\d+\s+\d+\s+[a-z]\w*(\s|$)")
#: What another thread or process printed into a row.
_INTO_ROW = re.compile(r"\s*\d+\s+\d+\s+[a-z]\w*\s+(?:[a-z]+\s+)?(?:[-\d.]+\s+)*(.*[A-Za-z]{3}.*)")
#: Columns that begin the results out of place and in place, with their names in all versions.
_TIMES = ("time", "cputime")
#: The first column of versions that print times in ms.
_OLDEST = "bytes"
_NO_ROOT = -1
#: Fields of a Document's options from the names in the log.
_NAMES = {
    "warmup iters": "warmup", "iters": "iterations", "agg iters": "aggregate", "validation": "checks",
    "graph": "graphs",
}  # fmt: skip
#: Largest difference of equal times of the JSON, in s.
_ROUNDED_S = 1e-9
#: Largest difference of the ratio of bus to algorithm bandwidth from that of an operation.
_FACTOR_TOLERANCE = 0.02
#: Operations that are not thought of if the log does not name one.
_RARE = ("alltoallv", "hypercube")

#: Largest error of a bandwidth with two decimals, in B/s, and number of ranks up to which they determine it.
_PRINTED, _MOST_RANKS = 0.0051 * GB, 4096
#: Maximum number of runs whose number of ranks is looked for; there is one for each type and operator.
_MOST_RUNS = 128

#: Results of the JSON that say whether they are good.
_JUDGED = {"out_of_bounds": "Out of bounds values", "average_bus_bandwidth": "Avg bus bandwidth"}

#: The column of versions up to 2.12 with the largest error of an element, which must not exceed this, by data
#: type; of the others, it must be 0. For half, versions allow 1e-2 or 5e-2 (``DeltaMaxValue`` of nccl-tests).
_ERROR, _ALLOWED = "error", {"float": 1e-5, "double": 1e-12, "half": 5e-2, "bfloat16": 5e-2}
#: Data type, operator and root of some lines.
_Key = tuple[str, str, int]


class _Results(dict[_Key, dict[int, Halves]]):
    """Data type, operator and root of some lines -> size -> results out of place and in place."""

    repeated = 0

    def add(self, key: _Key, size: int, halves: Halves) -> None:
        """Add the results of a size; the last ones count."""
        points = self.setdefault(key, {})
        self.repeated += size in points
        points[size] = halves


def _read(lines: Sequence[str]) -> Iterator[FoundLog]:
    """Yield the runs of the tool that some lines contain.

    Processes that the launcher did not connect are jobs of one rank each, whose lines are mixed.
    """
    jobs: list[_LinesOfRun] = []
    for line in lines:
        stripped = line.strip()
        begins = bool(_VERSION.match(stripped) or _OPTIONS.match(stripped))
        if _HEAD.match(stripped):  # an excerpt may have only the tables of several runs
            begins = all(job.went_on for job in jobs)
        if begins and jobs and all(job.has(stripped) for job in jobs):
            before, following = jobs, _LinesOfRun(jobs[-1].mentioned)
            if any(job.went_on for job in before):
                jobs = []
                yield from map(_LinesOfRun.log, before)
            jobs.append(following)
        jobs = jobs or [_LinesOfRun("")]
        next((job for job in jobs if not job.has(stripped)), jobs[-1]).line(stripped)
    yield from map(_LinesOfRun.log, jobs)


def note_unconnected(logs: Sequence[FoundLog]) -> None:
    """Note that processes which began at the same time are all rank 0, in mixed lines or with a label each.

    Args:
        logs: The runs of a file.
    """
    jobs = [log for log in logs if log.tool == _TOOL and [rank.rank for rank in log.ranks] == [0]]
    for log in jobs if len({(log.ranks[0].host, log.ranks[0].pid) for log in jobs}) > 1 else ():
        log.warnings.append(_UNCONNECTED)


class _LinesOfRun:
    """Reads the text of one run."""

    def __init__(self, mentioned: str) -> None:
        self.found = FoundLog(_TOOL)
        self.mentioned = mentioned
        self._program = ""
        self._head: list[str] = []
        self._runs = _Results()
        self._begun = self._ended = False
        self._broken: list[str] = []
        self._warned = ""
        self._nccl = NcclLines()

    @property
    def went_on(self) -> bool:
        """Whether the run has results or failed, so that what begins now comes after it."""
        return bool(self._runs or self._ended or self.found.failures)

    def has(self, line: str) -> bool:
        """Whether the run has the line already, of those that it prints once."""
        if _VERSION.match(line):
            return bool(self.found.version or self._begun)
        if _OPTIONS.match(line):
            return self._begun
        if match := _RANK.match(line):
            return int(match[1]) in {rank.rank for rank in self.found.ranks}
        if _END.match(line) or _HEAD.match(line):
            return self._ended or (bool(self._head) and not _END.match(line))
        return self._ended

    def line(self, line: str) -> None:
        log = self.found
        log.lines += 1
        over = self._ended and not _OWN.search(line)
        if match := _VERSION.match(line):
            log.version = scan.text(match[1])
        elif match := _PROGRAM.match(line):
            self._program = match[1]
        elif match := _OPTIONS.match(line):
            self._begun = True
            self._options(match)
        elif match := _RANK.match(line):
            rank, group, pid, device = (int(match[i] or 0) for i in (1, 2, 3, 5))
            host, bus, model = (scan.text(match[i]) for i in (4, 6, 7))
            log.ranks.append(RankInfo(rank, group, pid, host, device, bus, model))
        elif _HEAD.match(line):
            self._head = line.lstrip("# ").split()
        elif _COMMENT.match(line):
            self._ended |= bool(_END.match(line))
            if scan.says_failure(line):
                log.failures.append(scan.text(line.lstrip("# ")))
        elif line.startswith("# SIMULATED"):
            log.simulated = True
        elif _TABLE_LINE.match(line) and (self._head or _ROW.match(line)):
            self._head = self._head or _head_of(line.split())
            if not self._row(line.split()):
                failures = len(log.failures)
                if said := _INTO_ROW.match(line):
                    self.line(said[1])
                if len(log.failures) == failures:
                    self._broken.append(line)
        elif _SKIPPED.match(line):
            log.failures.append(f"nothing was measured: {scan.text(line)}")
        elif self._nccl.line(line):
            match = _WARN.search(line)
            if match and not (self._warned and _FOLLOWS.search(line)):
                where = f"{match[1]}: " if match[1] else ""
                self._warned = f"NCCL WARN {where}{scan.reason_of(match[2])}"
        elif line.startswith("#"):
            self._mention(line)
        elif scan.says_failure(line, outside=over):
            cause = f" ({self._warned})" if self._warned and not log.failures else ""
            log.failures.append(f"{scan.reason_of(line)}{cause}")
        elif not (self._mention(line) or _UNITS.match(line)):
            log.other(line, outside=over)

    def _mention(self, line: str) -> bool:
        """Note the program that a line names, such as the command; return whether it names one."""
        match = _MENTIONED.search(line)
        self.mentioned = match[1] if match else self.mentioned
        return match is not None

    def _options(self, match: re.Match[str]) -> None:
        threads, gpus, first, last, step = (int(match[i]) for i in range(1, 6))
        self.found.options |= {
            "threads": threads, "gpus": gpus, "first_size": first, "last_size": last,
            "step" if match[6] == "bytes" else "factor": step,
            **{_NAMES[name]: int(value) for name, value in _MORE.findall(match[7])},
        }  # fmt: skip

    def _row(self, words: list[str]) -> bool:
        """Read a line of the table; return whether it is one."""
        left = next((i for i, name in enumerate(self._head) if name in _TIMES), 0)
        width = (len(self._head) - left - ("timestamp" in self._head)) // 2
        scale = _MILLI if self._head[0] == _OLDEST else _MICRO
        stamp = 2 if "timestamp" in self._head else 0
        values = words[len(words) - stamp - 2 * width : len(words) - stamp]
        first = words[: len(words) - stamp - 2 * width]
        if not left or width < 4 or len(first) < 3 or len(values) != 2 * width:
            return False
        try:
            size, rest = scan.whole(first[0]), first[3:]
            root = scan.whole(rest.pop()) if rest and re.fullmatch(r"-?\d+", rest[-1]) else _NO_ROOT
            numbers = [scan.number(word) for at in (0, width) for word in values[at : at + 4]]
            is_error = _ERROR in self._head or any("e" in values[at] for at in (3, width + 3))
            allowed = _ALLOWED.get(first[2], 0.0) if is_error else None
            halves = (_result(numbers[:4], scale, allowed), _result(numbers[4:], scale, allowed))
        except ValueError:
            return False
        operator = rest[0] if rest and rest[0] != "none" else ""
        self._runs.add((_TYPES.get(first[2], scan.text(first[2])), scan.text(operator), root), size, halves)
        return True

    def log(self) -> FoundLog:
        """What the lines contain."""
        log = self.found
        if self._broken:
            rows = f"{many(len(self._broken), 'row')} of the table"
            log.doubt(f"parts of {rows}", self._broken[0])
        log.facts += self._nccl.facts(dict.fromkeys(rank.host for rank in log.ranks))
        log.nics = self._nccl.found(log.ranks[0].model if log.ranks else "")
        ended = self._ended or not self._begun  # an excerpt without the first lines may lack the last ones
        return _finished(log, self._program or self.mentioned, self._runs, ended)


def _head_of(row: Sequence[str]) -> list[str]:
    """The columns of a row without a heading, all of which precede two times, rates and results."""
    first = [*_FIRST[:3]]
    first += ["redop"] if re.fullmatch(r"[a-z]+", row[3]) else []
    first += ["root"] if re.fullmatch(r"-?\d+", row[len(row) - 9]) else []
    return [*first, *("time", "algbw", "busbw", "#wrong") * 2]


def _result(
    values: Sequence[float | None], scale: float = _MICRO, allowed: float | None = None
) -> Half | None:
    """A result from time, algorithm and bus bandwidth, and wrong elements; None if it has no value.

    Args:
        values: The numbers.
        scale: Unit of the time, in s.
        allowed: Largest error that is allowed, if the last number is the largest error of an element.
    """
    time, algorithm, bus, wrong = values
    (seconds,), rates = scan.scaled([time], scale), scan.scaled([algorithm, bus], float(GB))
    if seconds is None or rates[0] is None or rates[1] is None:
        return None
    if wrong is not None and allowed is not None:
        is_wrong = not wrong <= allowed
        return Half(seconds, rates[0], rates[1], int(is_wrong), error=wrong if is_wrong else 0.0)
    return Half(seconds, rates[0], rates[1], int(wrong) if wrong is not None and wrong >= 0 else None)


def _finished(log: FoundLog, operation: str, runs: _Results, ended: bool) -> FoundLog:
    """Complete a log: the collectives, the GPUs of the first host, and the options of the run."""
    if runs.repeated:
        log.notes.append(f"{many(runs.repeated, 'repeated size')}; the last values count")
    hosts = dict.fromkeys(rank.host for rank in log.ranks)
    log.gpus = gpus_of(log.ranks)
    log.host = next(iter(hosts), "")
    processes = len({(rank.host, rank.pid) for rank in log.ranks})
    listed = max((rank.rank + 1 for rank in log.ranks), default=0)  # an excerpt may lack some
    count = listed or _product(log.options)
    for (kind, operator, root), points in runs.items():
        names = [operation] if operation else []
        if len(runs) <= _MOST_RUNS:
            names = names or _guessed(points, operator, root, listed)
            count = listed or _ranks_by(points, names, count)
        info = CollectiveInfo(" or ".join(names), kind, count, operator, root)
        log.collectives.append(FoundCollective(info, dict(sorted(points.items()))))
    for points in runs.values():
        for before, after, count in _gaps(sorted(points), log.options):
            log.doubt(f"{many(count, 'row')} between {before} and {after} B")
    sizes = [size for points in runs.values() for size in points]
    if not ended or (log.options and not sizes and not log.failures):
        last = int(log.options.get("last_size") or 0)  # type: ignore[arg-type]
        where = f"ends after {max(sizes)} B of {last} B" if sizes else "ends before the first size"
        if not log.failures:
            log.doubt("it lacks its last lines" if sizes and max(sizes) >= last else f"it {where}")
    if runs:
        log.options |= {
            "operation": log.collectives[0].info.operation, "ranks": count, "processes": processes or 1,
            "hosts": len(hosts) or 1, "launcher": "unknown (imported)", "transport": "unknown (imported)",
            "environment": [],
        }  # fmt: skip
    return log


def _gaps(sizes: Sequence[int], options: Mapping[str, Any]) -> Iterator[tuple[int, int, int]]:
    """Yield where rows are missing between others: the sizes before and after, and the number of rows.

    Sizes are rounded to multiples of what all ranks take, so that half a step is no gap.
    """
    factor, step = (float(options.get(name) or 0) for name in ("factor", "step"))
    for before, after in itertools.pairwise(size for size in sizes if size > 0):
        if factor > 1:
            count = round(math.log(after / before, factor)) - 1
            missing = after > before * factor**1.5
        else:
            count = round((after - before) / step) - 1 if step else 0
            missing = bool(step) and after - before > 1.5 * step
        if missing and count > 0:
            yield before, after, count


def _product(options: dict[str, Any]) -> int:
    """The number of ranks of one process."""
    return min(1024, max(1, int(options.get("threads") or 1)) * max(1, int(options.get("gpus") or 1)))


def _ratio(points: dict[int, Any]) -> tuple[float, float] | None:
    """Bus over algorithm bandwidth, and its largest error; None if no bandwidth is precise enough."""
    halves = [half for pair in points.values() for half in pair if half and half.algorithm > GB]
    if not halves:
        return None
    best = max(halves, key=lambda half: half.algorithm)
    ratio = best.bus / best.algorithm
    return ratio, _PRINTED * (1 + ratio) / best.algorithm


def _counts(operation: str, points: dict[int, Any], least: int) -> list[int]:
    """The numbers of ranks that explain the bus bandwidth of an operation, multiples of the least one."""
    if operation not in OPERATIONS or (measured := _ratio(points)) is None:
        return []
    ratio, error = measured
    return [
        count for count in range(least, _MOST_RANKS + 1, least)
        if count > 1 and abs(OPERATIONS[operation].factor(count) - ratio) <= error
    ]  # fmt: skip


def _ranks_by(points: dict[int, Any], operations: Sequence[str], least: int) -> int:
    """The number of ranks by the bus bandwidth, where the log does not list them.

    Args:
        points: The results of each size.
        operations: Names of the operations that it may be.
        least: Number of GPUs of a process, which the number of ranks is a multiple of.
    """
    fitting = {count for operation in operations for count in _counts(operation, points, least)}
    return fitting.pop() if len(fitting) == 1 else least


def _guessed(points: dict[int, Halves], operator: str, root: int, ranks: int) -> list[str]:
    """The operations that fit the columns; none if nothing identifies them.

    Older versions print neither the operation nor the program. Where the result in place is undefined, it is
    not verified, although the other one is.

    Args:
        points: The results of each size.
        operator, root: As the columns say.
        ranks: Number of ranks; 0 if it is unknown.
    """
    if ranks == 1:
        return []
    measured = _ratio(points)
    pairs = [(out, inside) for out, inside in points.values() if out and inside]
    in_place = {inside.wrong is not None for out, inside in pairs if out.wrong is not None}
    return [
        operation.name for operation in OPERATIONS.values()
        if (
            measured is None
            or (abs(operation.factor(ranks) - measured[0]) < _FACTOR_TOLERANCE if ranks
                else _counts(operation.name, points, 1))
        )
        and operation.rooted == (root >= 0)
        and (operation.operator is None or operation.names_operators) == bool(operator)
        and in_place <= {operation.checks_in_place} and operation.name not in _RARE
    ]  # fmt: skip


def _of_json(content: dict[str, Any]) -> FoundLog | None:
    """The run that a JSON object describes; None if it is not of this tool."""
    results, config = content.get("results"), content.get("config")
    if not isinstance(results, list) or not isinstance(config, dict) or "nccl_version" not in content:
        return None
    log = FoundLog(_TOOL, scan.text(f"JSON {content.get('version', '')}"))
    mentioned = _MENTIONED.search(" ".join(map(str, scan.items_of(content.get("args")))))
    log.simulated = scan.fields_of(content.get("wirespeed")).get("simulated") is True
    absent = ("factor" if "step_bytes" in config else "step", "blocking")  # or not a number
    log.options |= {
        name: _whole(config.get(about.json))
        for name, about in OPTIONS.items()
        if about.json and name not in absent and not isinstance(getattr(CollectiveOptions, name), bool)
    }
    for of in scan.items_of(config.get("devices")):
        if isinstance(of, dict):
            rank, group, pid, device = (_whole(of.get(key)) for key in ("rank", "group", "pid", "device"))
            host, bus, model = (
                scan.text(str(of.get(key, ""))) for key in ("hostname", "device_hex", "device_info")
            )
            log.ranks.append(RankInfo(rank, group, pid, host, device, bus, model))
    expected = _product(log.options)
    if expected > 1 and all(rank.rank == i * expected for i, rank in enumerate(log.ranks)):
        log.ranks = [  # 2.19 lists only the first device of each process
            struct_replace(rank, rank=rank.rank + i, device=rank.device + i, bus_id="")
            for rank in log.ranks
            for i in range(expected)
        ]
    runs = _Results()
    for entry in results:
        if found := _entry(entry):
            runs.add(*found)
        else:
            log.failures.append(scan.text(f"not a result: {entry}"))
    halves = [half for points in runs.values() for pair in points.values() for half in pair if half]
    _note_iterations(log, halves)
    ended = "average_bus_bandwidth" in content
    for part, check in _JUDGED.items():
        judged = content.get(part, {"okay": "true"})
        okay = str(judged.get("okay")).lower() if isinstance(judged, dict) else ""
        if okay not in ("true", "unchecked"):
            log.failures.append(f"{check}: {'FAILED' if okay == 'false' else f'unknown status {okay}'}")
    log.failures += [scan.text(str(error)) for error in scan.items_of(content.get("errors")) if error]
    return _finished(log, mentioned[1] if mentioned else "", runs, ended)


def _whole(value: object) -> int:
    """A number of the JSON; 0 if it is not one."""
    return value if isinstance(value, int) and 0 <= value < 2**63 else 0


def _entry(entry: object) -> tuple[_Key, int, Halves] | None:
    """Arguments, size and results of one size of the JSON; None if it is not understood."""
    if not isinstance(entry, dict):
        return None
    try:
        size, root = scan.whole(str(entry["size"])), scan.whole(str(entry.get("root", _NO_ROOT)).strip())
        kind, operator = scan.text(str(entry["type"])), scan.text(str(entry.get("redop", "")))
        halves = []
        for place in ("out_of_place", "in_place"):
            values = scan.fields_of(entry.get(place))
            time = values.get("time", values.get("cpu_time"))
            words = (time, *map(values.get, ("alg_bw", "bus_bw", "nwrong")))
            result = _result([None if word is None else scan.number(str(word)) for word in words])
            halves.append(result and _with_iterations(result, entry.get(f"{place}_per_iter")))
    except (KeyError, ValueError):
        return None
    key = (_TYPES.get(kind, kind), "" if operator == "none" else operator, root)
    return key, size, (halves[0], halves[1])


def _with_iterations(half: Half, report: object) -> Half:
    """A result with the times of its iterations, of all processes together and of each, if there are any."""
    if not isinstance(report, dict):
        return half
    by_process = tuple(map(_times, scan.items_of(report.get("per_process_max_times_us"))))
    return struct_replace(half, iterations=_times(report.get("times_us")), by_process=by_process)


def _times(numbers: object) -> tuple[float, ...]:
    """Times in s from those of the JSON, in us; none if one of them is none."""
    times = scan.scaled([scan.number(str(value)) for value in scan.items_of(numbers)], _MICRO)
    return tuple(time for time in times if time is not None) if None not in times else ()


def _note_iterations(log: FoundLog, halves: Sequence[Half]) -> None:
    """Note whether iterations were timed, and times that contradict those of the processes."""
    skip = _whole(log.options.get("skip"))
    log.options["per_iteration"] = bool(halves) and all(len(half.iterations) > skip for half in halves)
    differing = 0
    for half in (half for half in halves if half.by_process):
        slowest = tuple(map(max, zip(*half.by_process, strict=False)))
        same_length = all(len(row) == len(half.iterations) for row in half.by_process)
        differing += not same_length or any(
            abs(a - b) >= _ROUNDED_S for a, b in zip(half.iterations, slowest, strict=True)
        )
    if differing:
        log.warnings.append(
            f"of {many(differing, 'result')} the times of iterations are not those of the slowest process"
        )


#: How these logs are read.
NCCL_TESTS = Tool(_START, _read, _of_json)
