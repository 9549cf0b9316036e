"""What the times of single iterations of collectives show, with the statistics of nccl-tests: spread, slow
first ones, stragglers and spikes, which answers the questions of its analyze_perf_json.py.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from math import fsum

from ...document import RankInfo, TestcaseResult
from ...judging.judged import Judged
from ...reports.style import Style
from ...reports.values import aligned
from ...statistics import grouped, of_slowest
from ...tables import LATE, Table
from ...terminal import one_line
from ...thresholds.values import SPIKE
from ...units import MICRO, format_size, many, some
from .view import Spread, View, has_collectives, spread

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
        processes = processes_of(late, cell.column)
        spreads = [spread(times) for times in map(options.steady, processes) if times]
        known = processes if len(spreads) == len(processes) else []
        yield _Size(
            round(time.columns.values[cell.column]), cell.samples, kept, known, spreads if known else []
        )


def first_of_processes(ranks: Sequence[RankInfo]) -> list[RankInfo]:
    """The first rank of each process, which are those that nccl-tests lists."""
    return [first for first, *_ in grouped(((rank.host, rank.pid), rank) for rank in ranks).values()]


def processes_of(late: Table | None, column: int) -> list[tuple[float, ...]]:
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
    wrong = sum(not of_slowest(size.times, size.processes) for size in with_processes)
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
