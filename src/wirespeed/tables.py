"""Tables of measured values and readings of the hardware's state, as a Document holds them, with the ranges
of the numbers that it may hold.
"""

from __future__ import annotations

from typing import Annotated

import msgspec

from .measurement import Axis, Unit
from .terminal import brief
from .units import many

#: Names of quantities: start skew between the processes of a job; throttle reasons, PCIe generation, and the
#: number of the P-state of a GPU.
SKEW, THROTTLED, GENERATION = "start skew, median", "throttle reasons", "PCIe generation"
P_STATE = "P-state"
#: Counter of a GPU: how often its PCIe link was trained again, as it is when an idle link wakes up.
RETRAINED = "PCIe recoveries from L0"
#: Prefix of the names of counters of throttled time, in s; the reason follows.
THROTTLED_BY = "throttled by "
#: The throttle reason of a GPU that is not throttled.
IDLE = "idle"

_MOST = 2**63 - 1
#: Smallest measured number above 0, and the largest: sums, squares and ratios of such numbers remain finite.
SMALLEST, LARGEST = 1e-18, 1e18

#: An integer that JSON readers of other languages can represent, and a non-negative one.
Integer = Annotated[int, msgspec.Meta(ge=-_MOST, le=_MOST)]
Whole = Annotated[int, msgspec.Meta(ge=0, le=_MOST)]
#: A measured number, a non-negative one, and a positive one.
Number = Annotated[float, msgspec.Meta(ge=-LARGEST, le=LARGEST)]
Amount = Annotated[float, msgspec.Meta(ge=0, le=LARGEST)]
Positive = Annotated[float, msgspec.Meta(ge=SMALLEST, le=LARGEST)]


class Quantity(msgspec.Struct, frozen=True, omit_defaults=True):
    """A quantity of the state of the hardware, and its value at one time.

    Attributes:
        device: Name of the device; empty for a host or the whole job.
        name: Name of the quantity.
        value: The value; several texts, or none, for throttle reasons.
        unit: Unit of the value; empty for texts, counters and other numbers without one.
        host: Name of its host; empty for the host of the first process.
        counter: Whether it only increases: it counts errors, or a time in s.
    """

    device: str
    name: str
    value: Number | str | tuple[str, ...]
    unit: str = ""
    host: str = ""
    counter: bool = False

    @property
    def key(self) -> tuple[str, str, str]:
        """Host, device and name, which identify the quantity at all times."""
        return self.host, self.device, self.name

    @property
    def where(self) -> str:
        """Host and device as text."""
        return ": ".join(filter(None, (self.host, self.device)))

    @property
    def label(self) -> str:
        """Host, device and name as text: ``gpu0 throttle reasons``."""
        return f"{self.where}{' ' if self.device else ': ' if self.host else ''}{self.name}"

    @property
    def shown(self) -> str:
        """The value as text, without its unit."""
        if isinstance(self.value, tuple):
            return ", ".join(self.value) or "none"
        return self.value if isinstance(self.value, str) else f"{self.value:g}"


State = tuple[Quantity, ...]


class Reading(msgspec.Struct, frozen=True):
    """State of the hardware during a testcase.

    Attributes:
        seconds: Time since the start of the testcase, in s.
        state: The quantities that the backends reported.
    """

    seconds: Amount
    state: State


#: Key of the table of a collective whose values are judged.
BUSBW = "busbw"
#: Keys of the tables of how late each process comes to a collective: out of place, in place.
LATE = ("late-out-of-place", "late-in-place")


class Statistics(msgspec.Struct, frozen=True):
    """Statistics of the samples of a cell, in the unit of its table.

    Attributes:
        n: Number of samples.
        median, mean, min, max: Median, mean and range of the samples.
        cv: Coefficient of variation: sample standard deviation over mean.
    """

    n: Whole
    median: Amount
    mean: Amount
    min: Amount
    max: Amount
    cv: Amount


class Calls(msgspec.Struct, frozen=True, omit_defaults=True):
    """The times of single calls, such as those that move a block list, in s.

    Attributes:
        n: Number of calls that were timed.
        p50, p99: The time that 50 and 99% of the calls do not exceed. With fewer than 100 calls, ``p99`` is
            the longest.
        first: Time of the first call with newly filled buffers, the median of all rounds; None if unknown.
    """

    n: Whole
    p50: Amount
    p99: Amount
    first: Amount | None = None


class Cell(msgspec.Struct, frozen=True, omit_defaults=True):
    """One cell: a measured value, or the ``reason`` why there is none.

    Attributes:
        row, column: Indices into the labels of the table's axes.
        value: Median in base units (B/s, s, 1/s); None if nothing was measured.
        limit: What the links allow at line rate, all transfers of the measurement considered, in B/s.
        peak: Limit without the other transfers of the measurement, in B/s, where it differs.
        expected: Lower end of the expected range and typical value, in B/s; None if unknown.
        links: Links that the cell uses: index in the machine's links, fraction of the capacity that all
            transfers typically use, and how far the value depends on the link (0 to 1).
        shared: Memories of unknown capacity that several transfers share: index of the memory's link, and
            bytes that it carries per byte of the value; 0 if transfers pass its host without touching the
            memory. ``expected`` holds only if they do not limit.
        reason: Why there is no value, or a remark on the value.
        corrupted: Path that delivered wrong data, source and destination (``gpu0->gpu1``); empty if none did.
        bytes: Counted bytes of one copy.
        copies: Number of copies per sample.
        means: Transports to the memory of other processes (``vmm-fd``, ``ipc``, ``nccl``).
        wrong: Number of wrong elements after a collective, in the cell of its time; None if not verified.
        statistics: Statistics of the samples.
        samples: All samples, in order, in the unit of the value.
        rounds: The median of each round, in order, in the unit of the value; empty if there was one round.
        interval: 95% confidence interval of the value, which holds for the next run too: from its rounds.
            None with fewer than three.
        calls: The times of single calls with a block list.
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
    calls: Calls | None = None

    def __repr__(self) -> str:
        """One line; the table has the unit of the value."""
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

    Attributes:
        key: Name of the table within its testcase; empty if it is the only one.
        title: Title in reports.
        unit: Unit of all values.
        rows, columns: Names and labels of the rows and columns.
        cells: The cells, in any order.
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


class Half(msgspec.Struct, frozen=True):
    """Result of a collective at one size, out of place or in place: half of a line of nccl-tests.

    Attributes:
        seconds: Time of an operation, in s.
        algorithm, bus: Algorithm and bus bandwidth, in B/s.
        wrong: Number of wrong elements; None if the data was not verified.
        iterations: Time of each iteration, in s; empty if not timed.
        by_process: The same in each process, if known.
        cycles: Bus bandwidth in each cycle, in B/s; empty for one cycle, or if iterations are timed.
        error: Largest error of an element, if a log has it in place of a number and it is too large; else 0.
    """

    seconds: float
    algorithm: float
    bus: float
    wrong: int | None
    iterations: tuple[float, ...] = ()
    by_process: tuple[tuple[float, ...], ...] = ()
    cycles: tuple[float, ...] = ()
    error: float = 0.0
