"""Document: everything that one run knows. Every report is a view of it.

The schema is versioned: ``SCHEMA`` grows whenever a reader of the older one would misread the
newer one. Values are in base units: bytes, seconds, bytes per second.
"""

from __future__ import annotations

from collections import Counter
from enum import StrEnum
from typing import Annotated

import msgspec

from ..model import Axis, Unit
from ..topology import Machine

SCHEMA = 1
#: What stands in the Document of a run until it ends; it stays there if the process is killed.
UNFINISHED = "the run did not come to its end"
#: What in the state of a testcase says how far apart the processes of a job were let go.
SKEW = "skew of the gate, median [s]"
#: What in the state of a testcase says, behind the name of a GPU, what keeps its clocks low.
THROTTLED = "clocks held back by"

#: Key of the table of a collective whose values are judged.
BUSBW = "busbw"

_MOST = 2**63 - 1
#: An integer as JSON readers of other languages have it, and one that is not negative.
Integer = Annotated[int, msgspec.Meta(ge=-_MOST, le=_MOST)]
Whole = Annotated[int, msgspec.Meta(ge=0, le=_MOST)]


class Status(StrEnum):
    """What became of a testcase."""

    PASSED = "passed"
    FAILED = "failed"  #: the data at a destination was wrong
    ERROR = "error"  #: the hardware or a library refused
    TIMED_OUT = "timed out"
    WAIVED = "waived"  #: not possible on this machine
    NOT_FOUND = "not found"  #: there is no such testcase
    INTERRUPTED = "interrupted"  #: by the user, after part of it was measured

    @property
    def good(self) -> bool:
        """Whether nothing went wrong."""
        return self in (Status.PASSED, Status.WAIVED)


class Statistics(msgspec.Struct, frozen=True):
    """Statistics of the samples of a cell, in the unit of its table.

    ``cv`` is the coefficient of variation (sample standard deviation over mean);
    ``low`` and ``high`` bound the median with ``confidence`` (distribution-free, from order
    statistics; with too few samples for that confidence they are the extremes).
    """

    n: int
    median: float
    mean: float
    min: float
    max: float
    cv: float
    low: float
    high: float
    confidence: float


class Cell(msgspec.Struct, frozen=True, omit_defaults=True):
    """One cell: either measured, or without a value for a ``reason``.

    ``bytes`` are those that count in one copy, ``copies`` how many one sample made. ``limit`` is
    what the links allow at their line rates, all transfers considered; ``peak`` the same if nothing
    else of the measurement ran, where that differs; ``expected`` the lowest normal and the typical
    value; None where it is unknown. ``links`` are those that it uses: index in the machine's links,
    fraction of the capacity that all transfers typically take, and how far the value depends on it.
    ``means`` is how memory of another process was reached (``vmm-fd``, ``ipc``, ``nccl``).
    ``shared`` are memories of unknown capacity which several transfers share, so that ``expected`` holds
    only where they do not limit: index of the memory's link, and the bytes that it carries for each byte
    of the value; 0 where transfers pass through its host without touching the memory. ``corrupted`` is the
    way that delivered wrong data, source and destination (``gpu0->gpu1``).
    ``wrong`` is the number of elements that a collective left wrong, where its time stands; None
    where they were not verified.
    """

    row: int
    column: int
    value: float | None = None
    limit: float | None = None
    peak: float | None = None
    expected: tuple[float, float] | None = None
    links: tuple[tuple[int, float, float], ...] = ()
    shared: tuple[tuple[int, float], ...] = ()
    reason: str = ""
    corrupted: str = ""
    bytes: int = 0
    copies: int = 0
    means: str = ""
    wrong: Whole | None = None
    statistics: Statistics | None = None
    samples: tuple[float, ...] = ()


class Table(msgspec.Struct, frozen=True, omit_defaults=True):
    """A table (or, where the column axis is a quantity, curves) of cells. Absent cells do not exist."""

    key: str
    title: str
    unit: Unit
    rows: Axis
    columns: Axis
    cells: tuple[Cell, ...] = ()

    @property
    def is_curve(self) -> bool:
        """Whether the columns are values of a quantity."""
        return bool(self.columns.values)

    def grid(self) -> list[list[Cell | None]]:
        """Return the cells as rows x columns, None where there is none."""
        grid: list[list[Cell | None]] = [[None] * len(self.columns.labels) for _ in self.rows.labels]
        for cell in self.cells:
            grid[cell.row][cell.column] = cell
        return grid

    def values(self) -> list[float]:
        """Return the values of all measured cells, row by row."""
        return [cell.value for row in self.grid() for cell in row if cell and cell.value is not None]


class Reading(msgspec.Struct, frozen=True):
    """The state of the hardware at a moment of a testcase, ``seconds`` after its start."""

    seconds: float
    state: dict[str, float | str]


class RankInfo(msgspec.Struct, frozen=True):
    """One rank of a collective: its number among all, its group, its process and its device.

    ``device`` is the index of the device on ``host``, ``model`` its name.
    """

    rank: Whole
    group: Integer
    pid: Whole
    host: str
    device: Integer
    bus_id: str
    model: str


class CollectiveInfo(msgspec.Struct, frozen=True, omit_defaults=True):
    """What a testcase runs that measures a collective, by nccl-tests' names.

    ``operator`` is empty and ``root`` -1 where the operation has none; ``ranks`` work together.
    """

    operation: str
    type: str
    ranks: Whole
    operator: str = ""
    root: Integer = -1


class TestcaseResult(msgspec.Struct, frozen=True, omit_defaults=True):
    """What became of one testcase; ``reason`` says why it is not passed.

    ``state_before`` and ``state_after`` are readings of the hardware, name with unit -> value;
    ``readings`` are taken while a long one measures. ``busy`` are the devices that something else used
    meanwhile: device -> how, to be read after "is". ``collective`` says what a collective runs.
    """

    __test__ = False

    name: str
    status: Status
    description: str = ""
    reason: str = ""
    index: int | None = None
    engine: str = ""
    counts: str = ""
    tables: tuple[Table, ...] = ()
    started: str = ""
    seconds: float = 0
    warnings: tuple[str, ...] = ()
    state_before: dict[str, float | str] = {}
    state_after: dict[str, float | str] = {}
    readings: tuple[Reading, ...] = ()
    busy: dict[str, str] = {}
    collective: CollectiveInfo | None = None

    def key(self, table: Table) -> str:
        """Return the name of one of its tables among all tables of the Document."""
        return f"{self.name}_{table.key}" if table.key else self.name


class Document(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One run. ``interrupted`` says why it did not reach its end; empty if it did.

    ``ranks`` are those of collectives; ``device_memory`` is what these took for what, in bytes, of
    the device that has the least left.
    """

    schema: int = msgspec.field(name="wirespeed_schema")
    version: str
    command: str = ""
    host: str = ""
    python: str = ""
    libraries: dict[str, str] = {}
    simulated: bool = False
    machine: Machine
    options: dict[str, str | int | float | bool | list[str] | None] = {}
    started: str
    ended: str = ""
    seconds: float = 0
    interrupted: str = ""
    testcases: tuple[TestcaseResult, ...] = ()
    warnings: tuple[str, ...] = ()
    ranks: tuple[RankInfo, ...] = ()
    device_memory: dict[str, Integer] = {}

    def __repr__(self) -> str:
        """One line: at a prompt nobody wants to see the whole; ``wirespeed.render`` shows it."""
        counts = Counter(result.status.value for result in self.testcases)
        found = ", ".join(f"{count} {status}" for status, count in counts.items()) or "no testcases"
        return f"<Document of {self.machine.name or self.host}, {self.started}: {found}>"

    @property
    def good(self) -> bool:
        """Whether every testcase passed or was waived, and the run reached its end."""
        return not self.interrupted and all(result.status.good for result in self.testcases)
