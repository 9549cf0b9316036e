"""Logs of nccl-tests: text of all versions, and JSON."""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from msgspec.structs import replace as struct_replace

from ...collectives.operations import OPERATIONS
from ...collectives.options import OPTIONS, CollectiveOptions
from ...document import CollectiveInfo, RankInfo
from ...statistics import of_slowest
from ...tables import Half
from ...units import MICRO, many
from . import nccl_ranks, nccl_table, scan
from .commands import Commands
from .host_facts import NcclLines
from .log import FoundCollective, FoundLog, Halves, Tool
from .log_parts import gpus_of

#: Lines with which a log of this tool can begin; some logs have only the lines that say why the run failed.
_START = re.compile(
    r"#? ?(nccl-tests version \d|Collective test starting: \w|nThread \d+ nGpus)|"
    r"# Using devices\s*$|#\s+Rank +\d+ .*\bdevice +\d+ \[|"
    rf"{nccl_table.HEAD.pattern}|{nccl_table.ROW.pattern}|(\S{{1,64}}: )?Test (CUDA|NCCL) failure \S+:\d"
)
_TOOL = "nccl-tests"
#: Said of jobs whose lines are mixed.
_UNCONNECTED = "every process is rank 0: the launcher did not connect them (nccl-tests built without MPI=1?)"
_VERSION = re.compile(r"# nccl-tests version (\S+)(?:.*nccl-library=(\d+))?")
_PROGRAM = re.compile(r"#? ?Collective test (starting|concluded): (\w+)_perf")
_OPTIONS = re.compile(
    r"#? ?nThread (\d{1,6}) nGpus (\d{1,6}) minBytes (\d{1,18}) maxBytes (\d{1,18}) "
    r"step: (\d{1,18})\((\w+)\)(.*)"
)
_MORE = re.compile(r"(warmup iters|agg iters|iters|validation|graph): (\d{1,9})\b")
_RANK = re.compile(
    r"#?\s*Rank\s+(\d{1,7})(?:\s+Group\s+(\d{1,7}))?(?:\s+Pid\s+(\d{1,9}))?(?: on\s+(\S+))?\s+"
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
_INTO_ROW = re.compile(
    r"\s*\d+\s+\d+\s+[a-z]\w*(?!\s+[a-z]+[-\d.\sN/A]*$)\s+(?:[a-z]+\s+)?(?:[-\d.]+\s+)*(.*[A-Za-z]{3}.*)"
)
#: Fields of a Document's options from the names in the log.
_NAMES = {
    "warmup iters": "warmup", "iters": "iterations", "agg iters": "aggregate", "validation": "checks",
    "graph": "graphs",
}  # fmt: skip
#: Largest difference of the ratio of bus to algorithm bandwidth from the ratio of an operation.
_FACTOR_TOLERANCE = 0.02
#: Operations that are not thought of if the log does not name one.
_RARE = ("alltoallv", "hypercube")
#: Maximum number of runs whose number of ranks is looked for; there is one for each type and operator.
_MOST_RUNS = 128

#: Results of the JSON that say whether they are good.
_JUDGED = {"out_of_bounds": "Out of bounds values", "average_bus_bandwidth": "Avg bus bandwidth"}


class _Results(dict[nccl_table.Key, dict[int, Halves]]):
    """Data type, operator and root of some lines -> size -> results out of place and in place."""

    repeated = 0
    #: Whether the table has a column of the wrong elements in place.
    checked_in_place = True

    def add(self, row: nccl_table.TableRow) -> None:
        """Add the results of a size; the last ones count."""
        points = self.setdefault(row.key, {})
        self.repeated += row.size in points
        points[row.size] = row.halves


def _read(lines: Sequence[str]) -> Iterator[FoundLog]:
    """Yield the runs of the tool that some lines contain.

    Processes that the launcher did not connect are jobs of one rank each, whose lines are mixed.
    """
    jobs: list[_LinesOfRun] = []
    shell = Commands()
    for line in lines:
        stripped = line.strip()
        begins = bool(_VERSION.match(stripped) or _OPTIONS.match(stripped))
        if nccl_table.HEAD.match(stripped):  # an excerpt may have only the tables of several runs
            begins = all(job.went_on for job in jobs)
        begins |= bool(nccl_table.ROW.match(stripped))  # or only the rows and the last lines
        if begins and jobs and all(job.has(stripped) for job in jobs):
            before, following = jobs, _LinesOfRun(shell, jobs[-1].of_command)
            if any(job.went_on for job in before):
                jobs = []
                yield from map(_LinesOfRun.log, before)
            jobs.append(following)
        jobs = jobs or [_LinesOfRun(shell)]
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

    def __init__(self, shell: Commands, before: int = 0) -> None:
        self.found = FoundLog(_TOOL, partial=True)
        self._shell, self._program = shell, ""
        self._called, self._settings = shell.program, shell.settings
        #: The command of this run, not of the one before, and its number.
        self._command_line = shell.command if shell.number != before else ""
        self.of_command = shell.number
        self._head: list[str] = []
        self._runs = _Results()
        self._begun = self._ended = False
        self._only_in_place = False
        self._in_comm = 0
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
        if _END.match(line) or nccl_table.HEAD.match(line):
            return self._ended or (bool(self._head) and not _END.match(line))
        return self._ended

    def line(self, line: str) -> None:
        log = self.found
        log.lines += 1
        over = self._ended and not _OWN.search(line)
        if match := _VERSION.match(line):
            log.version = scan.text(match[1])
        elif match := _PROGRAM.match(line):
            self._program = match[2] if match[1] == "starting" or self.went_on else self._program
        elif match := _OPTIONS.match(line):
            self._begun = True
            self._options(match)
        elif match := _RANK.match(line):
            rank, group, pid, device = (int(match[i] or 0) for i in (1, 2, 3, 5))
            host, bus, model = (scan.text(match[i] or "") for i in (4, 6, 7))
            log.ranks.append(RankInfo(rank, group, pid, host, device, bus, model))
        elif nccl_table.HEAD.match(line):
            self._head = line.lstrip("# ").split()
        elif nccl_table.ONLY_IN_PLACE.match(line):
            self._only_in_place = True
        elif _COMMENT.match(line):
            self._ended |= bool(_END.match(line))
            if scan.says_failure(line):
                log.failures.append(scan.text(line.lstrip("# ")))
        elif line.startswith("# SIMULATED"):
            log.simulated = True
        elif _TABLE_LINE.match(line) and (self._head or nccl_table.ROW.match(line)):
            words = line.split()
            self._head = self._head or nccl_table.head_of(words)
            if row := nccl_table.row_of(self._head, words, only_in_place=self._only_in_place):
                self._runs.add(row)
                self._runs.checked_in_place = self._head[-1] != "busbw"
            else:
                failures = len(log.failures)
                if said := _INTO_ROW.match(line):
                    self.line(said[1])
                if len(log.failures) == failures:
                    self._broken.append(line)
        elif _SKIPPED.match(line):
            log.failures.append(f"nothing was measured: {scan.text(line)}")
        elif self._nccl.line(line):
            self._in_comm = max(self._in_comm, nccl_ranks.of_comm(line))
            match = _WARN.search(line)
            if match and not (self._warned and _FOLLOWS.search(line)):
                where = f"{match[1]}: " if match[1] else ""
                self._warned = f"NCCL WARN {where}{scan.reason_of(match[2])}"
        elif line.startswith("#"):
            self._command(line)
        elif scan.says_failure(line, outside=over):
            cause = f" ({self._warned})" if self._warned and not log.failures else ""
            log.failures.append(f"{scan.reason_of(line)}{cause}")
        elif not (self._command(line) or _UNITS.match(line)):
            log.other(line, outside=over)

    def _command(self, line: str) -> bool:
        """Note a command, which belongs to the next run if this one has results; return whether it is one."""
        if found := self._shell.line(line):
            if not self.went_on:
                self._called, self._command_line = self._shell.program, self._shell.command
                self.of_command = self._shell.number
            if not (self.went_on or self._begun or self._head or self.found.ranks):
                self._settings = self._shell.settings
        return found

    def _options(self, match: re.Match[str]) -> None:
        threads, gpus, first, last, step = (int(match[i]) for i in range(1, 6))
        self.found.options |= {
            "threads": threads, "gpus": gpus, "first_size": first, "last_size": last,
            "step" if match[6] == "bytes" else "factor": step,
            **{_NAMES[name]: int(value) for name, value in _MORE.findall(match[7])},
        }  # fmt: skip

    def log(self) -> FoundLog:
        """The log that the lines contain."""
        log = self.found
        for row in (
            [] if self._runs else nccl_table.rows_without(self._head, [line.split() for line in self._broken])
        ):
            self._runs.add(row)
            self._broken = []
        if self._broken:
            rows = f"{many(len(self._broken), 'row')} of the table"
            log.doubt(f"parts of {rows}", self._broken[0])
        hosts = dict.fromkeys(rank.host for rank in log.ranks)
        log.settings = self._nccl.settings(self._settings, hosts)
        log.facts += self._nccl.facts(hosts)
        log.nics = self._nccl.found(log.ranks[0].model if log.ranks else "")
        ended = self._ended or not self._begun  # an excerpt without the first lines may lack the last ones
        by_command = nccl_ranks.of_command(self._command_line)
        return _finished(log, self._program or self._called, self._runs, ended, self._in_comm, by_command)


def _finished(
    log: FoundLog, operation: str, runs: _Results, ended: bool, in_comm: int = 0, by_command: int = 0
) -> FoundLog:
    """Complete a log: the collectives, the GPUs of the first host, and the options of the run.

    Args:
        log: The log.
        operation: Name of the operation; empty if it is unknown.
        runs: The results.
        ended: Whether it has its last lines.
        in_comm, by_command: Numbers of ranks, as in ``nccl_ranks.named``.
    """
    if runs.repeated:
        log.notes.append(f"{many(runs.repeated, 'repeated size')}; the last values count")
    hosts = dict.fromkeys(rank.host for rank in log.ranks)
    log.gpus = gpus_of(log.ranks)
    log.host = next(iter(hosts), "")
    processes = len({(rank.host, rank.pid) for rank in log.ranks})
    of_process = _product(log.options)
    named = list(nccl_ranks.named(log.ranks, of_process, in_comm, by_command))
    found = []
    for (kind, operator, root), points in runs.items():
        names = [operation] if operation and _agrees(operation, points, operator, root) else []
        count = 0
        if len(runs) <= _MOST_RUNS:
            guesses = (
                _guessed(points, operator, root, ranks, in_place=runs.checked_in_place)
                for ranks in (*named[:1], 0)
            )
            names = names or next(filter(None, guesses), [])
            count = nccl_ranks.number(points, names, named, of_process, log.ranks)
        if not count and nccl_ranks.is_whole(log.ranks, of_process):
            count = named[0]
        found.append((CollectiveInfo(" or ".join(names), kind, count, operator, root), points))
    count = next((info.ranks for info, _ in found if info.ranks), 0)
    for info, points in found:
        info = struct_replace(info, ranks=info.ranks or count)
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
    """The number of ranks of one process; 0 if the log does not say."""
    threads, gpus = (int(options.get(name) or 0) for name in ("threads", "gpus"))
    return min(1024, threads * gpus)


def _agrees(name: str, points: dict[int, Halves], operator: str, root: int) -> bool:
    """Whether an operation that the text names has these columns, with any number of ranks."""
    operation, measured = OPERATIONS.get(name), nccl_ranks.ratio(points)
    if operation is None:
        return True
    if operation.rooted != (root >= 0) or (
        not operation.names_operators and (operation.operator is None) != bool(operator)
    ):
        return False
    if measured is None:
        return True
    factors = map(operation.factor, range(1, nccl_ranks.MOST_RANKS + 1))
    return any(abs(factor - measured[0]) < _FACTOR_TOLERANCE for factor in factors)


def _guessed(
    points: dict[int, Halves], operator: str, root: int, ranks: int, *, in_place: bool = True
) -> list[str]:
    """The operations that fit the columns; none if nothing identifies them.

    Older versions print neither the operation nor the program. Where the result in place is undefined, it is
    not verified, although the other one is.

    Args:
        points: The results of each size.
        operator, root: As the columns say.
        ranks: Number of ranks; 0 if it is unknown.
        in_place: Whether the table says what is verified in place.
    """
    if ranks == 1:
        return []
    measured = nccl_ranks.ratio(points)
    pairs = [(out, inside) for out, inside in points.values() if out and inside]
    verified = {inside.wrong is not None for out, inside in pairs if in_place and out.wrong is not None}
    return [
        operation.name for operation in OPERATIONS.values()
        if (
            measured is None
            or (abs(operation.factor(ranks) - measured[0]) < _FACTOR_TOLERANCE if ranks
                else nccl_ranks.counts(operation.name, measured, range(1, nccl_ranks.MOST_RANKS + 1)))
        )
        and operation.rooted == (root >= 0)
        and (operation.operator is None or operation.names_operators) == bool(operator)
        and verified <= {operation.checks_in_place} and operation.name not in _RARE
    ]  # fmt: skip


def _of_json(content: dict[str, Any]) -> FoundLog | None:
    """The run that a JSON object describes; None if it is not of this tool."""
    results, config = content.get("results"), content.get("config")
    if not isinstance(results, list) or not isinstance(config, dict) or "nccl_version" not in content:
        return None
    log = FoundLog(_TOOL, scan.text(f"JSON {content.get('version', '')}"))
    shell, nccl = Commands(), NcclLines()
    shell.note(" ".join(str(word) for name in ("env", "args") for word in scan.items_of(content.get(name))))
    log.settings = nccl.settings(shell.settings, ())
    log.facts += nccl.facts(())
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
            runs.add(found)
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
    return _finished(log, shell.program, runs, ended)


def _whole(value: object) -> int:
    """A number of the JSON; 0 if it is not one."""
    return value if isinstance(value, int) and 0 <= value < 2**63 else 0


def _entry(entry: object) -> nccl_table.TableRow | None:
    """Arguments, size and results of one size of the JSON; None if it is not understood."""
    if not isinstance(entry, dict):
        return None
    try:
        size, root = (
            scan.whole(str(entry["size"])),
            scan.whole(str(entry.get("root", nccl_table.NO_ROOT)).strip()),
        )
        kind, operator = scan.text(str(entry["type"])), scan.text(str(entry.get("redop", "")))
        halves = []
        for place in ("out_of_place", "in_place"):
            values = scan.fields_of(entry.get(place))
            time = values.get("time", values.get("cpu_time"))
            words = (time, *map(values.get, ("alg_bw", "bus_bw", "nwrong")))
            texts = ["N/A" if word is None else str(word) for word in words]
            result = nccl_table.half_of(dict(zip(nccl_table.HALF, texts, strict=True)), kind)
            halves.append(result and _with_iterations(result, entry.get(f"{place}_per_iter")))
    except (KeyError, ValueError):
        return None
    key = (nccl_table.TYPES.get(kind, kind), "" if operator == "none" else operator, root)
    return nccl_table.TableRow(key, size, (halves[0], halves[1]))


def _with_iterations(half: Half, report: object) -> Half:
    """A result with the times of its iterations, of all processes together and of each, if there are any."""
    if not isinstance(report, dict):
        return half
    by_process = tuple(map(_times, scan.items_of(report.get("per_process_max_times_us"))))
    return struct_replace(half, iterations=_times(report.get("times_us")), by_process=by_process)


def _times(numbers: object) -> tuple[float, ...]:
    """Times in s from the JSON's, in us; none if one of them is none."""
    times = scan.scaled([scan.number(str(value)) for value in scan.items_of(numbers)], MICRO)
    return tuple(time for time in times if time is not None) if None not in times else ()


def _note_iterations(log: FoundLog, halves: Sequence[Half]) -> None:
    """Note whether iterations were timed, and times that contradict the times of the processes."""
    skip = _whole(log.options.get("skip"))
    log.options["per_iteration"] = bool(halves) and all(len(half.iterations) > skip for half in halves)
    if differing := sum(not of_slowest(half.iterations, half.by_process) for half in halves):
        log.warnings.append(
            f"of {many(differing, 'result')} the times of iterations are not those of the slowest process"
        )


#: How these logs are read.
NCCL_TESTS = Tool(_START, _read, _of_json, commands=True)
