"""nccl-tests' JSON (version 3), for programs that read it, and for those that search its text.

It is written as by ``src/util.cu`` of nccl-tests: without blanks, numbers with six decimals, slashes escaped.

What the times of single iterations of collectives show: spread, slow first ones, stragglers and spikes.

It answers the questions of nccl-tests' ``analyze_perf_json.py``, with the statistics of nccl-tests' text.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from math import fsum

from ...collectives.options import OPTIONS
from ...document import UNFINISHED, RankInfo, Status, TestcaseResult
from ...judging.judged import Judged
from ...reports.findings import aligned
from ...reports.records import picked
from ...reports.style import Style
from ...statistics import grouped
from ...tables import LATE, Half, Table
from ...terminal import one_line
from ...units import GB, MICRO, format_size, many, some
from .view import Given, Spread, View, has_collectives, short, short_bus, spread

_VERSION = 3


def render(judged: Judged, style: Style) -> str:
    """One object; additional information is under ``wirespeed``."""
    document = judged.document
    own: dict[str, object] = {
        "version": document.version,
        "simulated": document.simulated,
        "testcases": [
            picked(result, "name status reason warnings", status=str(result.status))
            for result in document.testcases
        ],
    }
    content: dict[str, object] = {"version": _VERSION, "start_time": _time(document.started)}
    if has_collectives(document) or "operation" in document.options:
        view = View(document)
        options, wrong = view.given, view.wrong_rows
        own |= picked(options, "ranks processes hosts launcher transport timeout")
        content |= {
            "args": options.arguments,
            "env": options.environment,
            "nccl_version": view.nccl_version,
            "config": _config(view),
            "results": list(_results(view)),
        }
        if view.is_complete:
            content |= {
                "out_of_bounds": {"count": wrong, "okay": _text(wrong == 0)},
                "average_bus_bandwidth": _mean(view),
            }
    errors = [
        *(
            f"{result.name}: {result.reason}"
            for result in document.testcases
            if result.status not in (Status.PASSED, Status.WAIVED)
        ),
        *([document.interrupted] if document.interrupted else []),
    ]
    content["errors"] = errors or [""]  # the last error of NCCL, which is empty without one
    if document.interrupted != UNFINISHED:
        content["end_time"] = _time(document.ended)
    content["wirespeed"] = own
    return _written(content) + "\n"


def _written(value: object) -> str:
    """A value as nccl-tests writes it."""
    if isinstance(value, Mapping):
        return f"{{{','.join(f'{_written(key)}:{_written(one)}' for key, one in value.items())}}}"
    if isinstance(value, str):
        return json.dumps(value).replace("/", "\\/")
    if isinstance(value, Sequence):
        return f"[{','.join(map(_written, value))}]"
    if isinstance(value, float):
        return f"{value:f}" if math.isfinite(value) else '"nan"'
    return json.dumps(value)


def _text(value: bool) -> str:
    return "true" if value else "false"


def _time(text: str) -> str:
    """Local time, as nccl-tests writes it; a text that is not a time is unchanged."""
    try:
        return datetime.fromisoformat(text).astimezone().strftime("%Y-%m-%d %H:%M:%S")
    except (ValueError, OverflowError):
        return text


def _config(view: View) -> dict[str, object]:
    options = view.given
    unused = "step" if options.factor > 1 else "factor"
    values = {
        about.json: getattr(options, name) for name, about in OPTIONS.items() if about.json and name != unused
    }
    values["blocking_collectives"] = bool(options.blocking)
    return {
        **{name: _text(value) if isinstance(value, bool) else value for name, value in values.items()},
        "devices": [_device(rank) for rank in first_of_processes(view.document.ranks)],
    }


def first_of_processes(ranks: Sequence[RankInfo]) -> list[RankInfo]:
    """The first rank of each process, which are those that nccl-tests lists."""
    return [first for first, *_ in grouped(((rank.host, rank.pid), rank) for rank in ranks).values()]


def _device(rank: RankInfo) -> dict[str, object]:
    return picked(
        rank, "rank group pid hostname device device_hex device_info",
        hostname=short(rank.host), device_hex=short_bus(rank.bus_id), device_info=rank.model,
    )  # fmt: skip


def _results(view: View) -> Iterator[dict[str, object]]:
    """Yield an entry for each size that was measured."""
    options = view.given
    for result, rows in view.rows:
        tables = {table.key: table for table in result.tables}
        for j, row in enumerate(rows):
            if row.halves[0] is None:
                continue
            named = {"redop": row.operator, "root": f"{row.root:6d}"}
            entry: dict[str, object] = picked(row, "size count type redop root", **named)
            for place, key, half in zip(("out_of_place", "in_place"), LATE, row.halves, strict=True):
                if half is None:
                    continue
                entry[place] = {
                    "cpu_time" if options.cpu_time else "time": half.seconds / MICRO,
                    "alg_bw": half.algorithm / GB,
                    "bus_bw": half.bus / GB,
                    "nwrong": None if half.wrong is None else float(half.wrong),
                }
                if options.per_iteration:
                    processes = _processes(tables.get(key), j)
                    entry[f"{place}_per_iter"] = _iterations(half, processes, options)
            yield entry | {"actual_iterations": options.iterations, "experiment_name": ""}


def _iterations(half: Half, processes: list[tuple[float, ...]], options: Given) -> dict[str, object]:
    """The statistics of the iteration times, in µs."""
    s = spread(options.steady(half.iterations))
    times = {"min": s.min, "max": s.max, "avg": s.mean, "p50": s.p50, "p95": s.p95, "p99": s.p99}
    statistics: dict[str, object] = {
        "skipped_iterations": options.skip,
        **{f"{name}_us": time / MICRO for name, time in (times | {"stdev": s.deviation}).items()},
        "cv_pct": s.cv,
        "times_us": [time / MICRO for time in half.iterations],
    }
    if processes:
        statistics["per_process_max_times_us"] = [[time / MICRO for time in times] for times in processes]
    return statistics


def _mean(view: View) -> dict[str, object]:
    """The mean bus bandwidth, in GB/s, and whether it suffices."""
    passed = view.fast_enough
    return {
        "bandwidth": "nan" if view.average is None else view.average / GB,
        "okay": "unchecked" if passed is None else _text(passed),
    }


#: An iteration is a spike if a process needs more than this multiple of the mean.
SPIKE = 1.5
#: Largest difference of equal times, in s.
_ROUNDED_S = 1e-9
#: Maximum number of spikes of a table, and of processes of a spike that are named; ``verbose`` shows all.
_SPIKES, _NAMED = 20, 8
_PLACES = ("out of place", "in place")


@dataclass(frozen=True)
class _Size:
    """The iterations of a collective at one size.

    Attributes:
        bytes: The size.
        times: Time of each iteration, in s.
        steady: The same without the leading iterations that statistics leave out.
        processes: Time of each iteration in each process, in s; empty if they are not known.
        spreads: The statistics of each process, without leading iterations.
    """

    bytes: int
    times: tuple[float, ...]
    steady: tuple[float, ...]
    processes: list[tuple[float, ...]] = field(default_factory=list)
    spreads: list[Spread] = field(default_factory=list)

    @property
    def name(self) -> str:
        return format_size(self.bytes)

    @property
    def consistent(self) -> bool:
        """Whether the time of each iteration is that of its slowest process."""
        slowest = map(max, zip(*self.processes, strict=False))
        return all(
            abs(time - most) < _ROUNDED_S for time, most in zip(self.times, slowest, strict=False)
        ) and all(len(times) == len(self.times) for times in self.processes)


def render_iterations(judged: Judged, style: Style) -> str:
    """The analysis of each collective of a run; a run without times of iterations is listed by testcase."""
    document = judged.document
    parts: list[str] = []
    if has_collectives(document) or "operation" in document.options:
        view = View(document)
        first = enumerate(first_of_processes(document.ranks))
        hosts = grouped((one_line(rank.host), number) for number, rank in first)
        collectives = [result for result in document.testcases if result.collective]
        analysed = (
            (result, place, list(_sizes(view, result, place))) for result in collectives for place in (0, 1)
        )
        parts += [
            _analysis(result, place, sizes, view.given.skip, hosts, style)
            for result, place, sizes in analysed if sizes
        ]  # fmt: skip
    if not parts:
        names = "".join(f"  {one_line(result.name)}\n" for result in document.testcases)
        parts = [
            f"no times of single iterations, which -I 1 of all_reduce_perf and its siblings takes:\n{names}"
        ]
    marks = f"{document.origin}, not measured by wirespeed\n" if document.imported else ""
    marks += "SIMULATED: no hardware was measured\n" if document.simulated else ""
    return marks + "\n".join(parts)


def _sizes(view: View, result: TestcaseResult, place: int) -> Iterator[_Size]:
    """Yield what is known of each size."""
    options, tables = view.given, {table.key: table for table in result.tables}
    time, late = tables.get("time"), tables.get(LATE[place])
    if time is None or not options.per_iteration or not time.is_curve:
        return
    for cell in sorted(time.cells, key=lambda cell: cell.column):
        kept = options.steady(cell.samples) if cell.samples else ()
        if cell.row != place or cell.value is None or not kept:
            continue
        processes = _processes(late, cell.column)
        spreads = [spread(times) for times in map(options.steady, processes) if times]
        known = processes if len(spreads) == len(processes) else []
        yield _Size(
            round(time.columns.values[cell.column]), cell.samples, kept, known, spreads if known else []
        )


def _processes(late: Table | None, column: int) -> list[tuple[float, ...]]:
    cells = [cell for cell in late.cells if cell.column == column] if late else []
    return [cell.samples for cell in sorted(cells, key=lambda cell: cell.row)]


def _analysis(
    result: TestcaseResult, place: int, sizes: Sequence[_Size], skip: int, hosts: dict[str, list[int]],
    style: Style,
) -> str:  # fmt: skip
    """All that is known of a collective, out of place or in place."""
    count = max(len(size.processes) for size in sizes)
    named = f"{one_line(result.name)} {_PLACES[place]}: {many(len(sizes[0].times), 'iteration')}"
    named += f", the first {skip} left out of statistics" if skip else ""
    named += f", {count} process{'es' if count != 1 else ''}" if count else ""
    heads = ("mean µs", "min µs", "max µs", "p99 µs", "cv %", "max/mean")
    lines = [
        named,
        *_aligned(heads, map(_spread_row, sizes)),
        "the first iteration and the others",
        *_aligned(("first µs", "others µs", "ratio", "cv % with it", "cv % without"),
            (_first_row(size) for size in sizes if len(size.times) > 1),
        ),
    ]  # fmt: skip
    if not count:
        return "\n".join([*lines, "no times of each process", ""])
    with_processes = [size for size in sizes if size.processes]
    lines += [
        "processes by their mean time (in brackets: number of the process)",
        *_aligned(("fastest µs", "slowest µs", "spread µs", "spread %", "noisiest cv %", "longest µs"),
            map(_process_row, with_processes),
        ),
    ]  # fmt: skip
    if sum(map(len, hosts.values())) == count and len(hosts) > 1:
        rows = [_host_row(size, host, numbers) for size in with_processes for host, numbers in hosts.items()]
        lines += [
            "hosts",
            *_aligned(("host", "processes", "mean µs", "lowest µs", "highest µs", "longest µs",
                               "noisiest cv %"), rows),
        ]  # fmt: skip
    spikes = [text for size in with_processes for text in _spikes(size)]
    shown = spikes if style.verbose else spikes[:_SPIKES]
    lines += [f"iterations in which a process needs more than {SPIKE:g} times the mean", *shown]
    if not spikes:
        lines.append("  none")
    elif len(spikes) > len(shown):
        lines.append(f"  and {len(spikes) - len(shown)} more; -v shows all")
    wrong = sum(not size.consistent for size in with_processes)
    told = f"no, at {many(wrong, 'size')}" if wrong else "yes"
    return "\n".join([*lines, f"each time is that of the slowest process: {told}", ""])


def _us(seconds: float) -> str:
    return f"{seconds / MICRO:.1f}"


def _spread_row(size: _Size) -> tuple[str, ...]:
    s = spread(size.steady)
    ratio = s.max / s.mean if s.mean else 0.0
    return size.name, _us(s.mean), _us(s.min), _us(s.max), _us(s.p99), f"{s.cv:.1f}", f"{ratio:.2f}"


def _first_row(size: _Size) -> tuple[str, ...]:
    whole, others = spread(size.times), spread(size.times[1:])
    ratio = size.times[0] / others.mean if others.mean else 0.0
    return (
        size.name, _us(size.times[0]), _us(others.mean), f"{ratio:.2f}", f"{whole.cv:.1f}", f"{others.cv:.1f}"
    )  # fmt: skip


def _process_row(size: _Size) -> tuple[str, ...]:
    by_mean = sorted(range(len(size.spreads)), key=lambda i: size.spreads[i].mean)
    fastest, slowest = by_mean[0], by_mean[-1]
    low, high = size.spreads[fastest].mean, size.spreads[slowest].mean
    noisiest = max(by_mean, key=lambda i: size.spreads[i].cv)
    longest = max(by_mean, key=lambda i: size.spreads[i].max)
    return (
        size.name, f"{_us(low)} [{fastest}]", f"{_us(high)} [{slowest}]", _us(high - low),
        f"{100 * (high - low) / low if low else 0.0:.1f}", f"{size.spreads[noisiest].cv:.1f} [{noisiest}]",
        f"{_us(size.spreads[longest].max)} [{longest}]",
    )  # fmt: skip


def _host_row(size: _Size, host: str, numbers: Sequence[int]) -> tuple[str, ...]:
    own = {i: size.spreads[i] for i in numbers if i < len(size.spreads)}
    if not own:
        return (size.name, host, *("",) * 6)
    means = [of_process.mean for of_process in own.values()]
    noisiest = max(own, key=lambda i: own[i].cv)
    first, last = min(own), max(own)
    return (
        size.name, host, f"{first}" if first == last else f"{first} to {last}", _us(fsum(means) / len(means)),
        _us(min(means)), _us(max(means)), _us(max(of_process.max for of_process in own.values())),
        f"{own[noisiest].cv:.1f} [{noisiest}]",
    )  # fmt: skip


def _spikes(size: _Size) -> Iterator[str]:
    """A line for each iteration in which some processes need much longer than the mean."""
    limit = SPIKE * spread(size.steady).mean
    for i, times in enumerate(zip(*size.processes, strict=False)):
        slow = [number for number, time in enumerate(times) if time > limit]
        if not slow:
            continue
        if len(slow) == len(times) > 1:
            who = f"all {len(times)} processes"
        elif len(slow) == 1:
            who = f"only process {slow[0]}"
        else:
            who = f"processes {some(list(map(str, slow)), _NAMED)} of {len(times)}"
        yield f"  {size.name}, iteration {i}: {who}, {_us(max(times))} µs"


def _aligned(heads: Sequence[str], rows: Iterable[tuple[str, ...]]) -> list[str]:
    """Lines of a table whose rows are sizes."""
    return [f"  {line}" for line in aligned([("size", *heads), *rows])]
