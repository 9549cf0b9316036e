"""Tables of measured values, as a Document holds them."""

from __future__ import annotations

import msgspec

from .measurement import Axis, Expectation, Unit
from .quantities import Amount, Positive, Whole
from .terminal import brief
from .units import many

#: Key of the table of a collective whose values are judged.
BUSBW = "busbw"
#: Keys of the tables of how late each process comes to a collective: out of place, in place.
LATE = ("late-out-of-place", "late-in-place")


class Statistics(msgspec.Struct, frozen=True):
    """Statistics of the samples of a cell, in the unit of its table.

    Parameters
    ----------
    n : int
        Number of samples.
    median, mean, min, max : float
        Median, mean and range of the samples.
    cv : float
        Coefficient of variation: sample standard deviation over mean.
    """

    n: Whole
    median: Amount
    mean: Amount
    min: Amount
    max: Amount
    cv: Amount


class Cell(msgspec.Struct, frozen=True, omit_defaults=True):
    """One cell: a measured value, or the ``reason`` why there is none.

    Parameters
    ----------
    row, column : int
        Indices into the labels of the table's axes.
    value : float or None
        Median in base units (B/s, s, 1/s); None if nothing was measured.
    limit : float or None
        What the links allow at line rate, all transfers of the measurement considered, in B/s.
    peak : float or None
        Limit without the other transfers of the measurement, in B/s, where it differs.
    expected : tuple[float, float] or None
        Lower end of the expected range and typical value, in B/s; None if unknown.
    links : tuple[tuple[int, float, float], ...]
        Links that the cell uses: index in the machine's links, fraction of the capacity that all transfers
        typically use, and how far the value depends on the link (0 to 1).
    shared : tuple[tuple[int, float], ...]
        Memories of unknown capacity that several transfers share: index of the memory's link, and bytes that
        it carries per byte of the value; 0 if transfers pass its host without touching the memory.
        ``expected`` holds only if they do not limit.
    reason : str
        Why there is no value, or a remark on the value.
    corrupted : str
        Path that delivered wrong data, source and destination (``gpu0->gpu1``); empty if none did.
    bytes : int
        Counted bytes of one copy.
    copies : int
        Number of copies per sample.
    means : tuple[str, ...]
        Transports to the memory of other processes (``vmm-fd``, ``ipc``, ``nccl``).
    wrong : int or None
        Number of wrong elements after a collective, in the cell of its time; None if not verified.
    statistics : Statistics or None
        Statistics of the samples.
    samples : tuple[float, ...]
        All samples, in order, in the unit of the value.
    rounds : tuple[float, ...]
        The median of each round, in order, in the unit of the value; empty if there was one round.
    interval : tuple[float, float] or None
        95 % confidence interval of the value, which holds for the next run too: from its rounds. None with
        fewer than three.
    expect : Expectation or None
        What the user expected of the value, by which ``check`` judges it.
    """

    row: int
    column: int
    value: Amount | None = None
    limit: Positive | None = None
    peak: Positive | None = None
    expected: tuple[Positive, Positive] | None = None
    links: tuple[tuple[int, Amount, Amount], ...] = ()
    shared: tuple[tuple[int, Amount], ...] = ()
    reason: str = ""
    corrupted: str = ""
    bytes: Whole = 0
    copies: Whole = 0
    means: tuple[str, ...] = ()
    wrong: Whole | None = None
    statistics: Statistics | None = None
    samples: tuple[Amount, ...] = ()
    rounds: tuple[Amount, ...] = ()
    interval: tuple[Amount, Amount] | None = None
    expect: Expectation | None = None

    def __repr__(self) -> str:
        """One line; the unit of the value is that of the table."""
        value = "no value" if self.value is None else f"{self.value:.4g}"
        share = f", {self.value / self.limit:.0%} of the limit" if self.value and self.limit else ""
        why = f", {self.reason}" if self.reason else ""
        return brief(f"Cell [{self.row}, {self.column}]: {value}{share}{why}")

    @property
    def is_wrong(self) -> bool:
        """Whether wrong data arrived."""
        return bool(self.corrupted or self.wrong)

    @property
    def is_slow(self) -> bool:
        """Whether the value is marked as slow for its column; the reason says how slow."""
        return self.value is not None and bool(self.reason) and not self.wrong


class Table(msgspec.Struct, frozen=True, omit_defaults=True):
    """A table of cells; curves if the column axis is a quantity. Absent cells do not exist.

    Parameters
    ----------
    key : str
        Name of the table within its testcase; empty if it is the only one.
    title : str
        Title for people.
    unit : Unit
        Unit of all values.
    rows, columns : Axis
        Names and labels of the rows and columns.
    cells : tuple[Cell, ...]
        The cells, in any order.
    """

    key: str
    title: str
    unit: Unit
    rows: Axis
    columns: Axis
    cells: tuple[Cell, ...] = ()

    def __repr__(self) -> str:
        shape = f"{len(self.rows.labels)} × {len(self.columns.labels)}"
        return brief(
            f"Table {self.key or self.title}: {shape}, {many(len(self.cells), 'cell')} in {self.unit}"
        )

    @property
    def is_curve(self) -> bool:
        """Whether the columns are values of a quantity."""
        return bool(self.columns.values)

    def grid(self) -> list[list[Cell | None]]:
        """The cells as rows x columns; None for absent cells."""
        grid: list[list[Cell | None]] = [[None] * len(self.columns.labels) for _ in self.rows.labels]
        for cell in self.cells:
            grid[cell.row][cell.column] = cell
        return grid

    def values(self) -> list[float]:
        """The values of all measured cells, row by row."""
        return [cell.value for row in self.grid() for cell in row if cell and cell.value is not None]
