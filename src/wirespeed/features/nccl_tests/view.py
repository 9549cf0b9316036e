"""A run of collectives in the terms of nccl-tests, for its text and its JSON."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import msgspec

from ...collectives.data_types import BY_NAME
from ...collectives.operations import OPERATIONS, CollectiveOp, Setting, division_of, operation_of
from ...collectives.options import CollectiveOptions
from ...document import CollectiveInfo, Document, Status, TestcaseResult
from ...errors import DocumentError, UsageError
from ...statistics import nearest_rank
from ...tables import Cell, Half, Table, Whole
from ...terminal import one_line
from ...thresholds.values import ACCEPTED

_MOST_RANKS = 10**6


@dataclass(frozen=True, kw_only=True)
class TestRun(CollectiveOptions):
    """What a run of collectives was given, and where it ran.

    Attributes:
        ranks, processes, hosts: Number of ranks of the collective, of processes and of hosts.
        launcher, transport: What started the processes, and what moves the bytes.
        environment: Environment variables of the libraries.
        timestamps: Time at which each line was measured; None if not requested.
        reduced_to: Largest size that fits the memory of the GPUs, in bytes, if larger ones were requested;
            else 0.
    """

    ranks: Whole
    processes: Whole
    hosts: Whole
    launcher: str
    transport: str
    environment: tuple[str, ...]
    timestamps: tuple[str, ...] | None = None
    reduced_to: Whole = 0

    @property
    def program(self) -> str:
        """The name of the program, as it was called."""
        name = f"{self.operation}_perf"
        called = "".join(self.arguments[:1]).rpartition("/")[2]
        return one_line(called if called.startswith(name) else name)

    def steady(self, times: Sequence[float]) -> tuple[float, ...]:
        """Times of iterations without those at the start of each cycle that statistics leave out."""
        cycle = self.iterations or len(times)
        return tuple(time for i, time in enumerate(times) if i % cycle >= self.skip)


#: Options of which a Document of ``run``, or of an imported log, knows nothing.
_UNKNOWN = {"first_size": 0, "last_size": 0, "step": 0, "iterations": 0, "timeout": 0}


@dataclass(frozen=True)
class Spread:
    """Statistics of iteration times.

    Attributes:
        min, max, mean: Range and mean, in s.
        p50, p95, p99: Percentiles, in s.
        deviation: Standard deviation, in s.
        cv: Standard deviation over mean, in percent.
    """

    min: float
    max: float
    mean: float
    p50: float
    p95: float
    p99: float
    deviation: float
    cv: float


def spread(times: Sequence[float]) -> Spread:
    """The statistics that nccl-tests shows, of at least one time in s; percentiles by nearest rank."""
    ordered = sorted(times)
    n = len(ordered)
    mean = math.fsum(ordered) / n
    deviation = math.sqrt(math.fsum((time - mean) ** 2 for time in ordered) / n)
    p95, p99 = (nearest_rank(ordered, fraction) for fraction in (0.95, 0.99))
    cv = 100 * deviation / mean if mean else 0.0
    return Spread(ordered[0], ordered[-1], mean, ordered[n // 2], p95, p99, deviation, cv)


@dataclass(frozen=True)
class Row:
    """One line of the table.

    Attributes:
        size: Size in bytes.
        count: Number of elements.
        type, operator: Data type and reduction operator.
        root: Root rank; -1 if there is none.
        halves: Results out of place and in place; None if nothing was measured.
        reason: Why nothing was measured.
        timestamp: When it was measured; empty if not requested.
        division: How the array is divided into unequal parts, in the words of nccl-tests.
        parts: Bytes that each rank sends and receives; empty if not requested.
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

    Attributes:
        document: A run of collectives.

    Raises:
        DocumentError: Raised by any property if the Document lacks the required data.
    """

    document: Document

    @cached_property
    def given(self) -> TestRun:
        """The requested settings."""
        try:
            options = msgspec.convert(_UNKNOWN | self.document.options, TestRun)
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
            (result, list(self._rows(i, result, result.collective)))
            for i, result in enumerate(self.document.testcases)
            if result.tables and result.collective
        ]

    def _rows(self, i: int, result: TestcaseResult, info: CollectiveInfo) -> Iterator[Row]:
        tables = {table.key: table for table in result.tables}
        if not tables.keys() >= set(KEYS):
            raise _refused(f"{result.name} has no tables of time, algorithm and bus bandwidth")
        sizes = tables["time"].columns.values
        stamps = self.given.timestamps or ()
        for j, size in enumerate(sizes):
            at = i * len(sizes) + j
            cells = [[_at(tables[key], place, j) for key in KEYS] for place in (0, 1)]
            stamp = stamps[at] if at < len(stamps) else ""
            yield row_of(result.name, info, size, cells, self.given, stamp)

    @cached_property
    def average(self) -> float | None:
        """Mean bus bandwidth over all sizes and cycles, out of place and in place, in B/s."""
        halves = [half for _, rows in self.rows for row in rows for half in row.halves if half]
        values = [bus for half in halves for bus in half.cycles or (half.bus,)]
        return math.fsum(values) / len(values) if values else None

    @cached_property
    def wrong_rows(self) -> int:
        """Number of results with wrong elements."""
        return sum(bool(half and half.wrong) for _, rows in self.rows for row in rows for half in row.halves)

    @property
    def is_skipped(self) -> bool:
        """Whether nccl-tests skips the run: the operation is not defined for the number of ranks."""
        operation = OPERATIONS.get(self.given.operation)
        return operation is not None and operation.power_of_two and bool(operation.why_not(self.given.ranks))

    @property
    def is_complete(self) -> bool:
        """Whether all that can be measured was measured, right or wrong, or nccl-tests skips the run."""
        ended = (Status.PASSED, Status.WAIVED, Status.FAILED)
        has_all = self.average is not None or self.is_skipped
        done = all(result.status in ended for result in self.document.testcases)
        return not self.document.interrupted and has_all and done

    @property
    def fast_enough(self) -> bool | None:
        """Whether the mean reaches the requested bandwidth; None if none was requested."""
        least = self.given.minimum_bandwidth
        if least is None:
            return None
        return self.average is not None and self.average >= least * ACCEPTED

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
    name: str, info: CollectiveInfo, size: float, cells: Sequence[Cells], options: TestRun, stamp: str = ""
) -> Row:
    """A line from its cells out of place and in place.

    Args:
        name: Name of the testcase.
        info: The collective.
        size: Size, in bytes.
        cells: Time, algorithm and bus bandwidth, out of place and in place.
        options: The options of the run.
        stamp: When it was measured; empty if not requested.

    Raises:
        DocumentError: If they do not describe a collective.
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


def _division(operation: CollectiveOp, total: int, ranks: int, options: TestRun) -> str:
    """How the array is divided, as nccl-tests' summary says it; ``total`` in bytes."""
    division = division_of(operation.traffic)
    if division.matrix:
        return f"mode=matrix nranks={ranks} matrix_dim={len(division.matrix)} scale={options.scale:.3f}"
    return f"mode=generated nranks={ranks} total_bytes={total} spread={division.spread:.3f}"


def _half(name: str, cells: Cells, options: TestRun) -> Half | None:
    """The result out of place or in place; None if nothing was measured."""
    time, algorithm, bus = cells
    if not (time and algorithm and bus) or time.value is None:
        return None
    iterations = time.samples if options.per_iteration else ()
    if options.per_iteration and not options.steady(iterations):
        raise _refused(f"{name} has no times of iterations")
    cycles = () if options.cycles == 1 or options.per_iteration else bus.samples
    return Half(time.value, algorithm.value or 0.0, bus.value or 0.0, time.wrong, iterations, cycles=cycles)


def short_bus(bus_id: str) -> str:
    """The bus ID of a GPU with four digits of the domain, as nccl-tests prints it."""
    domain, colon, slot = bus_id.partition(":")
    return domain[-4:] + colon + slot if colon else bus_id


def has_collectives(document: Document) -> bool:
    """Whether any testcase is a collective."""
    return any(result.collective for result in document.testcases)


def _refused(why: str) -> DocumentError:
    """The error for a Document that this form cannot show."""
    return DocumentError(one_line(f"the form of nccl-tests cannot show this run: {why}; use --format table"))


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
