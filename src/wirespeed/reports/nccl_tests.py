"""nccl-tests' text output: the columns at their positions, for scripts that parse them.

Additional information is on further lines that begin with ``#``.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import msgspec

from ..collectives.data_types import BY_NAME
from ..collectives.operations import OPERATIONS, CollectiveOp, Setting, division_of, operation_of
from ..collectives.options import CollectiveOptions
from ..document import CollectiveInfo, Document, Status, TestcaseResult
from ..errors import DocumentError, UsageError
from ..quantities import Whole
from ..tables import Cell, Table
from ..terminal import one_line
from ..units import GB, format_size, format_time
from .iteration_times import spread, steady
from .style import Style

#: The nccl-tests version whose format this is.
COMPATIBLE = "2.19.6"
_MICRO = 1e-6
#: A run passes if it reaches this fraction of the requested bandwidth.
_ACCEPTED = 0.9
_ITERATION_HEADS = ("i_min", "i_max", "i_p99", "i_cv%")
_MOST_RANKS = 10**6


@dataclass(frozen=True, kw_only=True)
class Given(CollectiveOptions):
    """What a run of collectives was given, and where it ran.

    Parameters
    ----------
    ranks, processes, hosts : int
        Number of ranks of the collective, of processes and of hosts.
    launcher, transport : str
        What started the processes, and what moves the bytes.
    environment : tuple[str, ...]
        Environment variables of the libraries.
    timestamps : tuple[str, ...] or None
        Time at which each line was measured; None if not requested.
    reduced_to : int
        Largest size that fits the memory of the GPUs, in bytes, if larger ones were requested; else 0.
    """

    ranks: Whole
    processes: Whole
    hosts: Whole
    launcher: str
    transport: str
    environment: tuple[str, ...]
    timestamps: tuple[str, ...] | None = None
    reduced_to: Whole = 0


#: Options of which a Document of ``run``, or of an imported log, knows nothing.
_UNKNOWN = {"first_size": 0, "last_size": 0, "step": 0, "iterations": 0, "timeout": 0}


@dataclass(frozen=True)
class Half:
    """An out-of-place or in-place result.

    Parameters
    ----------
    seconds : float
        Time of an operation, in s.
    algorithm, bus : float
        Algorithm and bus bandwidth, in B/s.
    wrong : int or None
        Number of wrong elements; None if the data was not verified.
    iterations : tuple[float, ...]
        Time of each iteration, in s; empty if not timed.
    """

    seconds: float
    algorithm: float
    bus: float
    wrong: int | None
    iterations: tuple[float, ...] = ()


@dataclass(frozen=True)
class Row:
    """One line of the table.

    Parameters
    ----------
    size : int
        Size in bytes.
    count : int
        Number of elements.
    type, operator : str
        Data type and reduction operator.
    root : int
        Root rank; -1 if there is none.
    halves : tuple[Half or None, Half or None]
        Results out of place and in place; None if nothing was measured.
    reason : str
        Why nothing was measured.
    timestamp : str
        When it was measured; empty if not requested.
    division : str
        How the array is divided into unequal parts, in the words of nccl-tests.
    parts : tuple[tuple[int, int], ...]
        Bytes that each rank sends and receives; empty if not requested.
    """

    size: int
    count: int
    type: str
    operator: str
    root: int
    halves: tuple[Half | None, Half | None]
    reason: str = ""
    timestamp: str = ""
    division: str = ""
    parts: tuple[tuple[int, int], ...] = ()


@dataclass(frozen=True)
class View:
    """A Document in nccl-tests' form.

    Parameters
    ----------
    document : Document
        A run of collectives.

    Raises
    ------
    DocumentError
        Raised by any property if the Document lacks the required data.
    """

    document: Document

    @cached_property
    def given(self) -> Given:
        """The requested settings."""
        try:
            options = msgspec.convert(_UNKNOWN | self.document.options, Given)
        except msgspec.ValidationError as error:
            raise _refused(f"its options do not describe a run of collectives: {error}") from error
        if options.operation:
            return options
        infos = [result.collective for result in self.document.testcases if result.collective]
        return replace(options, threads=1, operation=infos[0].operation if infos else "")

    @cached_property
    def rows(self) -> list[tuple[TestcaseResult, list[Row]]]:
        """All lines, by testcase."""
        return [
            (result, self._rows(i, result, result.collective))
            for i, result in enumerate(self.document.testcases)
            if result.tables and result.collective
        ]

    def _rows(self, i: int, result: TestcaseResult, info: CollectiveInfo) -> list[Row]:
        tables = {table.key: table for table in result.tables}
        if not tables.keys() >= set(KEYS):
            raise _refused(f"{result.name} has no tables of time, algorithm and bus bandwidth")
        sizes = tables["time"].columns.values
        stamps = self.given.timestamps or ()
        rows = []
        for j, size in enumerate(sizes):
            at = i * len(sizes) + j
            cells = [[_at(tables[key], place, j) for key in KEYS] for place in (0, 1)]
            stamp = stamps[at] if at < len(stamps) else ""
            rows.append(row_of(result.name, info, size, cells, self.given, stamp))
        return rows

    @cached_property
    def average(self) -> float | None:
        """Mean bus bandwidth over all sizes, out of place and in place, in B/s."""
        values = [half.bus for _, rows in self.rows for row in rows for half in row.halves if half]
        return math.fsum(values) / len(values) if values else None

    @cached_property
    def wrong_rows(self) -> int:
        """Number of results with wrong elements."""
        return sum(bool(half and half.wrong) for _, rows in self.rows for row in rows for half in row.halves)

    @property
    def fast_enough(self) -> bool | None:
        """Whether the mean reaches the requested bandwidth; None if none was requested."""
        least = self.given.minimum_bandwidth
        if least is None:
            return None
        return self.average is not None and self.average >= least * _ACCEPTED

    @property
    def nccl_version(self) -> int:
        """NCCL's version number in its own encoding; 0 if NCCL was not used."""
        match = re.fullmatch(r"(\d{1,4})\.(\d{1,2})(?:\.(\d{1,2}))?", self.document.libraries.get("nccl", ""))
        major, minor, patch = (int(part or 0) for part in match.groups()) if match else (0, 0, 0)
        return major * 10000 + minor * 100 + patch


#: Keys of the tables that a line is made of.
KEYS = ("time", "algbw", "busbw")
#: A cell of each of these tables.
Cells = Sequence[Cell | None]


def row_of(
    name: str, info: CollectiveInfo, size: float, cells: Sequence[Cells], options: Given, stamp: str = ""
) -> Row:
    """A line from its cells out of place and in place.

    Parameters
    ----------
    name : str
        Name of the testcase.
    info : CollectiveInfo
        The collective.
    size : float
        Size, in bytes.
    cells : Sequence of Sequence of Cell or None
        Time, algorithm and bus bandwidth, out of place and in place.
    options : Given
        The options of the run.
    stamp : str
        When it was measured; empty if not requested.

    Raises
    ------
    DocumentError
        If they are not those of a collective.
    """
    setting = _setting(name, info)
    width = setting.type.bytes
    counts = setting.operation.counts(int(size) // width, width, info.ranks)
    first, parts = cells[0][0], setting.operation.parts
    of_ranks = [
        tuple(sum(sizes) * width for sizes in parts(counts, width, rank, info.ranks))
        for rank in range(info.ranks if options.summary and parts else 0)
        if parts
    ]
    return Row(
        setting.operation.size(counts, width),
        counts.each,
        setting.type.name,
        one_line(setting.label),
        setting.root,
        (_half(name, cells[0], options), _half(name, cells[1], options)),
        one_line(first.reason) if first and first.value is None else "",
        one_line(stamp),
        _division(setting.operation, counts.each * info.ranks * width, info.ranks, options),
        tuple((sent, received) for sent, received in of_ranks),
    )


def _division(operation: CollectiveOp, total: int, ranks: int, options: Given) -> str:
    """How the array is divided, as nccl-tests' summary says it; ``total`` in bytes."""
    division = division_of(operation.traffic)
    if division.matrix:
        return f"mode=matrix nranks={ranks} matrix_dim={len(division.matrix)} scale={options.scale:.3f}"
    return f"mode=generated nranks={ranks} total_bytes={total} spread={division.spread:.3f}"


def _half(name: str, cells: Cells, options: Given) -> Half | None:
    """The result out of place or in place; None if nothing was measured."""
    time, algorithm, bus = cells
    if not (time and algorithm and bus) or time.value is None:
        return None
    iterations = time.samples if options.per_iteration else ()
    if options.per_iteration and not steady(iterations, options.iterations, options.skip):
        raise _refused(f"{name} has no times of iterations")
    return Half(time.value, algorithm.value or 0.0, bus.value or 0.0, time.wrong, iterations)


def has_collectives(document: Document) -> bool:
    """Whether any testcase is a collective."""
    return any(result.collective for result in document.testcases)


def _refused(why: str) -> DocumentError:
    """The error for a Document that this form cannot show."""
    text = f"the form of nccl-tests cannot show this run: {why}; use --format table"
    return DocumentError(one_line(text))


def _setting(name: str, info: CollectiveInfo) -> Setting:
    """The collective of a testcase; refuses one that does not exist."""
    if info.operation not in OPERATIONS or info.type not in BY_NAME or not 0 < info.ranks <= _MOST_RANKS:
        raise _refused(
            f"{name} is {info.operation!r} of {info.type!r} over {info.ranks} ranks, which is "
            "not a collective"
        )
    try:
        operation = operation_of(info.operation, info.traffic)
    except UsageError as error:
        raise _refused(str(error)) from error
    return Setting(operation, BY_NAME[info.type], info.operator, info.root)


def _at(table: Table, i: int, j: int) -> Cell | None:
    """The cell of a row and column; None if it does not exist."""
    likely = i * len(table.columns.values) + j  # correct if no cell is missing; there can be very many cells
    if likely < len(table.cells) and (table.cells[likely].row, table.cells[likely].column) == (i, j):
        return table.cells[likely]
    return next((cell for cell in table.cells if (cell.row, cell.column) == (i, j)), None)


def fixed(value: float, width: int) -> str:
    """Format a number in a fixed width, with as many of two decimals as fit.

    Parameters
    ----------
    value : float
        The number.
    width : int
        Number of characters.

    Returns
    -------
    str
        The number, right-aligned; a power of ten if it is too wide.
    """
    for decimals in (2, 1, 0):
        text = f"{value:{width}.{decimals}f}"
        if len(text) <= width:
            return text
    return f"{value:{width}.{1 if width >= 7 else 0}e}"[:width]


def line(row: Row, options: Given) -> str:
    """The line for a size, or a comment if nothing was measured."""
    if row.halves[0] is None:
        return f"# {row.size:>10}  {row.count:>12}  {row.type:>8}  not measured: {row.reason}\n"
    text = f"{row.size:12d}  {row.count:12d}  {row.type:>8}  {row.operator:>6}  {row.root:6d}"
    for half in row.halves:
        if half is None:
            continue
        wrong = "   N/A" if half.wrong is None else f"{half.wrong:6g}"
        text += (
            f"  {fixed(half.seconds / _MICRO, 7)}  {fixed(half.algorithm / GB, 6)}  "
            f"{fixed(half.bus / GB, 6)}  {wrong}"
        )
        if options.per_iteration:
            s = spread(steady(half.iterations, options.iterations, options.skip))
            numbers = (s.min / _MICRO, s.max / _MICRO, s.p99 / _MICRO, s.cv)
            text += "".join(f"  {fixed(number, 7)}" for number in numbers)
    text += (f"{row.timestamp:>21}" if row.timestamp else "") + "\n"
    return text + "".join(_summary(row, half) for half in row.halves if half and row.parts)


def _summary(row: Row, half: Half) -> str:
    """Comments with the bytes and bandwidths of each rank of an all-to-all of unequal parts."""
    text = f"# NCCL_TESTS_ALLTOALLV_PRINT_SUMMARY: {row.division} time_usec={half.seconds / _MICRO:.2f}\n"
    for rank, (sent, received) in enumerate(row.parts):
        rate = max(sent, received) / half.seconds
        text += (
            f"#   rank={rank} send_bytes={sent} recv_bytes={received} alg_bw={rate / GB:.2f} "
            f"bus_bw={rate * (len(row.parts) - 1) / len(row.parts) / GB:.2f}\n"
        )
    return text


def header(view: View) -> str:
    """The lines before the first size."""
    document, options, version = view.document, view.given, view.nccl_version
    step, kind = (options.factor, "factor") if options.factor > 1 else (options.step, "bytes")
    lines = [
        f"# nccl-tests version {COMPATIBLE} nccl-headers={version} nccl-library={version}",
        f"# Collective test starting: {one_line(options.operation)}_perf",
        f"# nThread {options.threads} nGpus {options.gpus} minBytes {options.first_size} "
        f"maxBytes {options.last_size} step: {step}({kind}) warmup iters: {options.warmup} "
        f"iters: {options.iterations} agg iters: {options.aggregate} validation: {options.checks} "
        f"graph: {options.graphs} unalign: {options.unalign}",
    ]
    blocking = {
        1: "each operation is waited for, then all ranks meet",
        2: "each operation is waited for",
        3: "each iteration is waited for, then all ranks meet, which does not count",
    }.get(options.blocking)
    if blocking:
        lines.append(f"# Blocking Enabled: {blocking}")
    if options.per_iteration:
        report = "the slowest process of each iteration"
        lines.append(f"# Per-Iteration Report: {report}; skipped: {options.skip}")
    if options.parallel_init:
        lines.append("# Parallel Init Enabled: each thread initialises its own ranks")
    if document.simulated:
        lines.append(f"# SIMULATED: no hardware was measured (machine {one_line(document.machine.name)})")
    lines += [
        f"# wirespeed {one_line(document.version)}: {options.ranks} ranks of the collective in "
        f"{options.processes} process{'es' if options.processes != 1 else ''} on {options.hosts} "
        f"host{'s' if options.hosts != 1 else ''}, launched by: {one_line(options.launcher)}",
        f"# Transport: {one_line(options.transport)}",
        f"# Time-out: {format_time(options.timeout) if options.timeout else 'none'} for a stage (-T)",
        "#",
        "# Using devices",
    ]
    lines += [
        f"#  Rank {r.rank:2d} Group {r.group:2d} Pid {r.pid:6d} on {one_line(r.host):>10} "
        f"device {r.device:2d} [{one_line(r.bus_id)}] {one_line(r.model)}"
        for r in document.ranks
    ]
    if options.reduced_to:
        lines += ["#", f"# Reducing maxBytes to {options.reduced_to} due to memory limitation"]
    return "\n".join([*lines, "#", *heads(options)]) + "\n"


def heads(options: Given) -> list[str]:
    """The three heading lines above the columns."""
    time = "cputime" if options.cpu_time else "time"
    wide = 4 * 9 if options.per_iteration else 0
    named = f"# {'size':>10}  {'count':>12}  {'type':>8}  {'redop':>6}  {'root':>6}"
    units = f"# {'(B)':>10}  {'(elements)':>12}  {'':>8}  {'':>6}  {'':>6}"
    for _ in range(2):
        named += f"  {time:>7}  {'algbw':>6}  {'busbw':>6}  {'#wrong':>6}"
        units += f"  {'(us)':>7}  {'(GB/s)':>6}  {'(GB/s)':>6}  {'':>6}"
        if wide:
            named += "".join(f"  {head:>7}" for head in _ITERATION_HEADS)
            units += "".join(f"  {unit:>7}" for unit in ("(us)", "(us)", "(us)", "(%)"))
    stamp = options.timestamps is not None
    above = f"# {'':>10}  {'':>12}  {'':>8}  {'':>6}  {'':>6}"
    if wide:
        more = " (+ per-iteration)"
        above += f"{'':14}out-of-place{more}{'':32}in-place{more}"
    else:
        above += f"{'':11}out-of-place{'':23}in-place{'':10}"
    return [
        above,
        named + " " + (f"{'timestamp':>19}" if stamp else ""),
        units + " " + (f"{'%Y-%m-%d %H:%M:%S':>19}" if stamp else ""),
    ]


def footer(view: View) -> str:
    """The lines after the last size."""
    document, errors, passed = view.document, view.wrong_rows, view.fast_enough
    verdict = "" if passed is None else "OK" if passed else "FAILED"
    data = "FAILED" if errors else "OK" if view.average is not None else "not measured"
    lines = [
        f"# {'Out of bounds values':<20} : {errors} {data}",
        f"# {'Avg bus bandwidth':<20} : {(view.average or 0.0) / GB:g} {verdict}",
        "#",
    ]
    memory = document.device_memory
    if memory:
        parts = [f"{one_line(name)} {format_size(size)}" for name, size in memory.items()]
        total = f"Total {format_size(sum(memory.values()))}"
        lines.append(f"# {'GPU memory usage':<20} : {' | '.join([*parts, total])}")
    for result in document.testcases:
        name = one_line(result.name)
        lines += [f"# {name}: warning: {one_line(text)}" for text in result.warnings]
        if result.status is not Status.PASSED:
            lines.append(f"# {name}: {result.status}: {one_line(result.reason)}")
    if document.interrupted:
        lines.append(f"# the run ended early: {one_line(document.interrupted)}")
    if document.simulated:
        lines.append("# SIMULATED: no hardware was measured")
    lines += [f"# Collective test concluded: {one_line(view.given.operation)}_perf", "#"]
    return "\n".join(lines) + "\n"


def render(document: Document, style: Style) -> str:
    """The lines of a run of collectives; a run without any is listed by testcase."""
    del style
    if not has_collectives(document):
        names = "".join(f"# {one_line(result.name)}: not a collective\n" for result in document.testcases)
        mark = "# SIMULATED: no hardware was measured\n" if document.simulated else ""
        return f"# This run has no collectives; `--format table` shows it\n{mark}{names}"
    view = View(document)
    lines = [line(row, view.given) for _, rows in view.rows for row in rows]
    return header(view) + "".join(lines) + footer(view)
