"""The results of a testcase while it runs: its cells are replaced after each round, and become tables at any
time. The worker thread writes them, the watching thread reads them.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from ..document import Status
from ..errors import VerificationError
from ..measurement import Measurement
from ..model import Engine, Transfer
from ..tables import Cell, Reading, Table
from ..testcases.patterns import ALONE
from ..testcases.table import Layout
from ..units import many
from .sampling import Rounds, Taken
from .slow_rows import marked

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
        warnings: Warnings of the session; warnings of backends are separate.
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
