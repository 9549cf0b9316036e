"""Cells from samples: values, statistics, and the bytes that count.

Slow rows of tables whose rows should have equal times.

The results of a testcase while it runs, and their conversion to tables.
"""

from __future__ import annotations

import itertools
import math
import queue
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from msgspec.structs import replace

from ..document import Status
from ..errors import VerificationError
from ..hardware.limits import Allowance, by_transport
from ..measurement import UNSEEN, Measurement, Place, Reduce, kind_of, value_of
from ..model import Engine, Role, Transfer
from ..statistics import interval, median, nearest_rank, summarise
from ..tables import Calls, Cell, Reading, Table
from ..testcases import Layout
from ..testcases.patterns import ALONE
from ..units import format_time, many
from .sampling import Rounds, Taken, counting, medians, values_of


def cell_of(
    measurement: Measurement,
    place: Place,
    by_links: Allowance,
    rounds: Sequence[Taken],
    *,
    skip: int,
    use_mean: bool,
) -> Cell:
    """A cell from the samples of its Measurement.

    Its value is the median of the medians of the rounds.

    Args:
        by_links: What the links allow.
        rounds: What was taken in each round.
        skip: Number of leading iterations that statistics leave out.
        use_mean: Whether the value is the mean of the samples; the median otherwise.
    """
    taken = [sample for each in rounds for sample in each.samples]
    wrong = sum(counts) if (counts := [each.wrong for each in rounds if each.wrong is not None]) else None
    samples = counting(taken, place, skip)
    of_rounds = values_of(rounds, measurement, place, skip)
    values = tuple(itertools.chain.from_iterable(of_rounds))
    if place.reduce is Reduce.LATENESS:
        parts = [[lap.by_process[place.transfers[0]] for lap in s.iterations] for s in taken]
    else:
        parts = [[value_of(place, measurement, lap) for lap in s.iterations] for s in samples]
    summary = summarise(values)
    middles = medians(of_rounds)
    value = summary.mean if use_mean else median(sorted(middles))
    if any(parts):  # each iteration was timed: their statistics say more than those of a few runs
        values = tuple(itertools.chain.from_iterable(parts))
        summary = summarise(tuple(itertools.chain.from_iterable(laps[skip:] for laps in parts)))
    first, copies, works = samples[0], rounds[-1].copies, measurement.works
    if measurement.collective:
        moved, copies = float(measurement.collective.counted), round(first.amounts[0])
        wrong = wrong if place.table == "time" else None
    elif place.reduce.is_time:
        moved = 0.0
    else:
        moved = math.fsum(first.amounts[i] * works[i].counted for i in place.transfers) / copies
    means = tuple(dict.fromkeys(first.means[i] for i in place.transfers)) if first.means else ()
    by_links = by_transport(by_links, measurement, place, means)
    paced = any(t.role is Role.LOAD for i, t in enumerate(measurement.transfers) if i in place.transfers)
    return Cell(
        place.row,
        place.column,
        value,
        **vars(by_links),
        reason=many(wrong, "wrong element") if wrong else "",
        bytes=0 if paced or place.reduce.is_time else round(moved),
        copies=copies,
        means=means,
        wrong=wrong,
        statistics=summary,
        samples=values,
        rounds=middles if len(middles) > 1 else (),
        interval=None if use_mean else interval(middles, UNSEEN[kind_of(measurement, place)]),
        expect=place.expect,
        calls=_calls(rounds) if measurement.moves_lists and not place.reduce.is_time else None,
    )


def _calls(rounds: Sequence[Taken]) -> Calls | None:
    """The times of single calls with a block list in all rounds; None if no call was timed."""
    ordered = sorted(itertools.chain.from_iterable(each.calls for each in rounds))
    if not ordered:
        return None
    first = sorted(each.first for each in rounds if each.first is not None)
    p50, p99 = (nearest_rank(ordered, fraction) for fraction in (0.5, 0.99))
    return Calls(len(ordered), p50, p99, median(first) if first else None)


#: A cell is slow if its median is at least this multiple of the fastest median of its column, and all its
#: samples are above all samples of the fastest.
SLOW = 1.5


def slow(samples: Sequence[Sequence[float]]) -> list[str]:
    """For each row of a column the reason why it is slow (see `SLOW`); empty if it is not.

    Args:
        samples: Times of each row, in s.
    """
    medians = [summarise(times).median if times else float("inf") for times in samples]
    best = min(range(len(medians)), key=lambda i: medians[i], default=0)
    reasons = []
    for times, middle in zip(samples, medians, strict=True):
        is_slow = bool(times) and middle >= SLOW * medians[best] and min(times) > max(samples[best])
        reasons.append(f"{middle / medians[best]:.3g} times the fastest of this phase" if is_slow else "")
    return reasons


def marked(cells: Iterable[Cell]) -> tuple[Cell, ...]:
    """The cells; slow ones with the reason."""
    rows = list(cells)
    for column in {cell.column for cell in rows}:
        own = [i for i, cell in enumerate(rows) if cell.column == column and cell.value is not None]
        for i, why in zip(own, slow([rows[i].samples for i in own]), strict=True):
            rows[i] = replace(rows[i], reason=why)
    return tuple(rows)


def slow_rows(name: str, table: Table) -> list[str]:
    """A warning for each column with slow cells."""
    lines = []
    for j, phase in enumerate(table.columns.labels):
        cells = [cell for cell in table.cells if cell.column == j and cell.value is not None]
        slowest = [cell for cell in cells if cell.is_slow]
        if slowest:
            fastest = min(cell.value or 0 for cell in cells)
            over = ", ".join(table.rows.labels[cell.row] for cell in slowest)
            most = max(cell.value or 0 for cell in slowest)
            lines.append(
                f"{name}: {phase} takes up to {format_time(most)} in place of {format_time(fastest)} "
                f"with {over} over"
            )
    return lines


#: Returns the cells that a Measurement fills, from its rounds.
ToCells = Callable[[Sequence[Taken]], Sequence[tuple[str, Cell]]]


@dataclass
class PartialResult:
    """Results of a testcase so far. The worker writes them, the watching thread reads them.

    Attributes:
        cells: Cells by table, row and column.
        status: Status so far.
        reason: Reason of the first failure.
        done: Number of Measurements that are done.
        stage: Current stage, for progress and errors.
        running: Transfers that are being sampled; empty otherwise.
        since: Start of the stage on the monotonic clock, in s.
        lost: Why the run cannot continue; empty if it can.
        unreachable: The first reason why a Measurement could not run.
        crash: Exception of the worker, which the watching thread raises.
        cancelled: Whether the worker should stop.
        out_of_time: Whether a measurement was cancelled because the time of the run was over.
        left_out: Those for which no time was left.
        readings: Hardware state under load.
        warnings: Warnings of the session; those of backends are separate.
        filled: For each finished Measurement what returns its cells, for the watching thread.
        wrong: Errors of wrong data, for the watching thread.
        rounds: What was taken of each Measurement.
        stale: Those of which there are more samples than are in the cells, and what makes their cells.
    """

    cells: dict[str, dict[tuple[int, int], Cell]]
    status: Status = Status.PASSED
    reason: str = ""
    done: int = 0
    stage: str = "starting"
    running: tuple[Transfer, ...] = ()
    since: float = 0.0
    lost: str = ""
    unreachable: str = ""
    crash: BaseException | None = None
    cancelled: bool = False
    out_of_time: bool = False
    left_out: list[Measurement] = field(default_factory=list)
    readings: list[Reading] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)
    filled: queue.SimpleQueue[Callable[[], Sequence[tuple[str, Cell]]]] = field(
        default_factory=queue.SimpleQueue
    )
    wrong: queue.SimpleQueue[VerificationError] = field(default_factory=queue.SimpleQueue)
    rounds: dict[Measurement, Rounds] = field(default_factory=dict)
    stale: dict[Measurement, ToCells] = field(default_factory=dict)

    lock: threading.Lock = field(default_factory=threading.Lock)

    def put(self, table: str, cell: Cell) -> None:
        with self.lock:
            self.cells[table][cell.row, cell.column] = cell

    def of(self, measurement: Measurement) -> Rounds:
        """The rounds of a Measurement so far."""
        return self.rounds.setdefault(measurement, Rounds(measurement))

    def add(self, measurement: Measurement, taken: Taken, cells: ToCells) -> None:
        """Add a round. Cells are made when they are read: each is made of all rounds."""
        with self.lock:
            self.of(measurement).taken.append(taken)
            self.stale[measurement] = cells

    def settle(self) -> None:
        """Bring the cells up to date with the samples of all rounds."""
        with self.lock:
            for measurement, cells in self.stale.items():
                for table, cell in cells(self.rounds[measurement].taken):
                    self.cells[table][cell.row, cell.column] = cell
            self.stale.clear()

    def fails(self, status: Status, reason: str) -> None:
        """Record a failure; the first failure determines status and reason."""
        if self.status is Status.PASSED:
            self.status, self.reason = status, reason

    def leaves(self, measurement: Measurement, reason: str, corrupted: str = "") -> None:
        """Leave the cells of a Measurement without a value."""
        cells = [
            (p.table, Cell(p.row, p.column, reason=reason, corrupted=corrupted)) for p in measurement.places
        ]
        with self.lock:
            self.of(measurement).ended = True
            self.stale.pop(measurement, None)
        for table, cell in cells:
            self.put(table, cell)
        self.filled.put(lambda: cells)

    def leaves_out(self, measurement: Measurement, reason: str) -> None:
        """Leave a Measurement out for lack of time, unless its cells have values of an earlier one."""
        self.settle()
        cells = (self.cells[p.table].get((p.row, p.column)) for p in measurement.places)
        if all(cell is None or (not cell.reason and cell.value is None) for cell in cells):
            self.left_out.append(measurement)
            self.leaves(measurement, reason)

    def complete(self, measurements: Iterable[Measurement]) -> None:
        """Fill all missing cells with the reason of the failure."""
        for measurement in measurements:
            for place in measurement.places:
                if (place.row, place.column) not in self.cells[place.table]:
                    reason = f"not measured: {self.reason}"
                    self.put(place.table, Cell(place.row, place.column, reason=reason))

    def keeps(self, measurement: Measurement, reason: str) -> bool:
        """End the rounds of a Measurement, with a warning; return False if there is no value to keep."""
        rounds = self.of(measurement)
        if not rounds.taken or rounds.ended:
            return False
        rounds.ended = True
        self.warnings.append(f"{measurement} has {many(len(rounds.taken), 'round')}: {reason}")
        return True

    def repeats(self, measurement: Measurement) -> bool:
        """Whether pairs of a Measurement with low values are measured again separately.

        Not if the plan already measures some pairs separately, to detect blocking.
        """
        return measurement.independent and ALONE not in self.cells

    def tables(self, layouts: Sequence[Layout]) -> tuple[Table, ...]:
        """The cells as tables."""
        self.settle()
        with self.lock:  # the worker may be filling cells
            known = {key: dict(cells) for key, cells in self.cells.items()}
        return tuple(_table(layout, known[layout.key]) for layout in layouts)


def _table(layout: Layout, cells: Mapping[tuple[int, int], Cell]) -> Table:
    ordered = tuple(cell for _, cell in sorted(cells.items()))
    if layout.rows_alike:
        ordered = marked(ordered)
    return Table(layout.key, _title(layout, ordered), layout.unit, layout.rows, layout.columns, ordered)


def _title(layout: Layout, cells: Sequence[Cell]) -> str:
    """The title of a table; it names NCCL or MPI if messages moved the bytes."""
    if layout.engine is None:
        return layout.title
    measured = {means for cell in cells if cell.value is not None for means in cell.means or ("",)}
    messages = [engine for engine in (Engine.NCCL, Engine.MPI) if engine in measured]
    others = not messages or len(measured) > len(messages)
    return layout.title.format(engine="+".join([layout.engine] * others + messages).upper())
