"""What is found of one testcase while it runs, and the tables that it becomes."""

from __future__ import annotations

import queue
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from ..document import Cell, Reading, Status, Table
from ..model import Engine, Measurement
from ..testcases import Layout
from ..testcases.pair_schedule import ALONE
from . import phases
from .sampling import Taken


@dataclass
class PartialResult:
    """What the worker has found of one testcase so far; the watching thread reads along.

    ``cells`` are by table, row and column; ``warnings`` are what it found itself, besides the backends.
    ``filled`` are the cells of each Measurement that is done, for the watching thread; ``taken`` the samples
    and the number of wrong elements of those that are repeated.
    """

    cells: dict[str, dict[tuple[int, int], Cell]]
    status: Status = Status.PASSED
    reason: str = ""
    done: int = 0
    stage: str = "starting"
    since: float = 0.0
    lost: str = ""
    unreachable: str = ""
    crash: BaseException | None = None
    cancelled: bool = False
    readings: list[Reading] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)
    filled: queue.SimpleQueue[Sequence[tuple[str, Cell]]] = field(default_factory=queue.SimpleQueue)
    taken: dict[Measurement, tuple[Taken, int | None]] = field(default_factory=dict)

    def put(self, table: str, cell: Cell) -> None:
        """Fill a cell, in place of what was there."""
        self.cells[table][cell.row, cell.column] = cell

    def fails(self, status: Status, reason: str) -> None:
        """Note a failure; the first one gives the reason."""
        if self.status is Status.PASSED:
            self.status, self.reason = status, reason

    def leaves(self, measurement: Measurement, reason: str, corrupted: str = "") -> None:
        """Leave the cells of a Measurement without a value."""
        cells = [
            (p.table, Cell(p.row, p.column, reason=reason, corrupted=corrupted)) for p in measurement.places
        ]
        for table, cell in cells:
            self.put(table, cell)
        self.filled.put(cells)

    def complete(self, measurements: Iterable[Measurement]) -> None:
        """Give the reason of every cell that was not reached."""
        for measurement in measurements:
            for place in measurement.places:
                if (place.row, place.column) not in self.cells[place.table]:
                    reason = f"not measured: {self.reason}"
                    self.put(place.table, Cell(place.row, place.column, reason=reason))

    def repeats(self, measurement: Measurement) -> bool:
        """Whether pairs of a Measurement that look low are measured again alone.

        Not where some are measured alone anyway, which shows whether pairs disturb each other.
        """
        return measurement.independent and ALONE not in self.cells

    def tables(self, layouts: Sequence[Layout]) -> tuple[Table, ...]:
        """Return the cells as tables."""
        return tuple(_table(layout, self.cells[layout.key]) for layout in layouts)


def _table(layout: Layout, cells: Mapping[tuple[int, int], Cell]) -> Table:
    ordered = tuple(cell for _, cell in sorted(cells.items()))
    if layout.rows_alike:
        ordered = phases.marked(ordered)
    return Table(layout.key, _title(layout, ordered), layout.unit, layout.rows, layout.columns, ordered)


def _title(layout: Layout, cells: Sequence[Cell]) -> str:
    """Return the title of a table; where messages moved the bytes it names their engine."""
    if layout.engine is None:
        return layout.title
    measured = {means for cell in cells if cell.value is not None for means in cell.means or ("",)}
    messages = [engine for engine in (Engine.NCCL, Engine.MPI) if engine in measured]
    others = not messages or len(measured) > len(messages)
    return layout.title.format(engine="+".join([layout.engine] * others + messages).upper())
