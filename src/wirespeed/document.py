"""Document: the complete record of one run. Every report is a view of it.

The schema is versioned: ``SCHEMA`` increases whenever a reader of the older schema would misread the
newer one. Values are in base units: bytes, seconds, bytes per second.
"""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Iterable
from difflib import get_close_matches
from enum import StrEnum
from typing import Annotated

import msgspec
from msgspec.structs import force_setattr

from .errors import UsageError
from .facts import Fact
from .model import Axis, Expectation, Unit
from .tabular import Tabular
from .terminal import brief
from .topology import Machine
from .units import many

SCHEMA = 2
#: ``interrupted`` of a Document until its run ends; it remains if the process is killed.
UNFINISHED = "the process ended before the run was complete"
#: Option of a Document: the testcases that the user asked for, by name, or by a prefix and ``*``.
REQUESTED = "requested"
#: Option that has the indices of the GPUs that were used, if only some were.
DEVICES = "devices"
#: Names of quantities: start skew between the processes of a job; throttle reasons, PCIe generation of a GPU.
SKEW, THROTTLED, GENERATION = "start skew, median", "throttle reasons", "PCIe generation"
#: Counter of a GPU: how often its PCIe link was trained again, as it is when an idle link wakes up.
RETRAINED = "PCIe recoveries from L0"
#: Prefix of the names of counters of throttled time, in s; the reason follows.
THROTTLED_BY = "throttled by "
#: The throttle reason of a GPU that is not throttled.
IDLE = "idle"

#: Key of the table of a collective whose values are judged.
BUSBW = "busbw"
#: Keys of the tables of how late each process comes to a collective: out of place, in place.
LATE = ("late-out-of-place", "late-in-place")

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


class Status(StrEnum):
    """Status of a testcase."""

    PASSED = "passed"
    FAILED = "failed"  #: wrong data at a destination
    ERROR = "error"  #: the hardware or a library reported an error
    TIMED_OUT = "timed out"
    WAIVED = "waived"  #: not possible on this machine
    NOT_FOUND = "not found"  #: no testcase has this name
    INTERRUPTED = "interrupted"  #: by the user, after a part was measured
    NO_MEMORY = "out of memory"  #: not enough free memory for its buffers, which says nothing of the hardware

    @property
    def word(self) -> str:
        """What people read: a value that was measured has passed no judgement."""
        return "measured" if self is Status.PASSED else self.value

    @property
    def good(self) -> bool:
        """Whether the testcase passed or was waived."""
        return self in (Status.PASSED, Status.WAIVED)

    @property
    def is_failure(self) -> bool:
        """Whether data were wrong, or the hardware, a library or the selection of testcases failed."""
        return not self.good and self not in (Status.INTERRUPTED, Status.NO_MEMORY)


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
        """Return one line; the unit of the value is that of the table."""
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
        """Return one line."""
        shape = f"{len(self.rows.labels)} × {len(self.columns.labels)}"
        return brief(
            f"Table {self.key or self.title}: {shape}, {many(len(self.cells), 'cell')} in {self.unit}"
        )

    @property
    def is_curve(self) -> bool:
        """Whether the columns are values of a quantity."""
        return bool(self.columns.values)

    def grid(self) -> list[list[Cell | None]]:
        """Return the cells as rows x columns; None for absent cells."""
        grid: list[list[Cell | None]] = [[None] * len(self.columns.labels) for _ in self.rows.labels]
        for cell in self.cells:
            grid[cell.row][cell.column] = cell
        return grid

    def values(self) -> list[float]:
        """Return the values of all measured cells, row by row."""
        return [cell.value for row in self.grid() for cell in row if cell and cell.value is not None]


class Quantity(msgspec.Struct, frozen=True, omit_defaults=True):
    """A quantity of the state of the hardware, and its value at one time.

    Parameters
    ----------
    device : str
        Name of the device; empty for a host or the whole job.
    name : str
        Name of the quantity.
    value : float, str or tuple[str, ...]
        The value; several texts, or none, for throttle reasons.
    unit : str
        Unit of the value; empty for texts, counters and other numbers without one.
    host : str
        Name of its host; empty for the host of the first process.
    counter : bool
        Whether it only increases: it counts errors, or a time in s.
    """

    device: str
    name: str
    value: Number | str | tuple[str, ...]
    unit: str = ""
    host: str = ""
    counter: bool = False

    @property
    def key(self) -> tuple[str, str, str]:
        """What identifies the quantity at all times."""
        return self.host, self.device, self.name

    @property
    def where(self) -> str:
        """Host and device, for people."""
        return ": ".join(filter(None, (self.host, self.device)))

    @property
    def label(self) -> str:
        """Host, device and name, for people: ``gpu0 throttle reasons``."""
        return f"{self.where}{' ' if self.device else ': ' if self.host else ''}{self.name}"

    @property
    def shown(self) -> str:
        """The value, for people, without its unit."""
        if isinstance(self.value, tuple):
            return ", ".join(self.value) or "none"
        return self.value if isinstance(self.value, str) else f"{self.value:g}"


State = tuple[Quantity, ...]


class Reading(msgspec.Struct, frozen=True):
    """State of the hardware during a testcase.

    Parameters
    ----------
    seconds : float
        Time since the start of the testcase, in s.
    state : tuple[Quantity, ...]
        The quantities that the backends reported.
    """

    seconds: Amount
    state: State


class RankInfo(msgspec.Struct, frozen=True):
    """One rank of a collective.

    Parameters
    ----------
    rank : int
        Number among all ranks.
    group : int
        Group that the rank belongs to.
    pid : int
        ID of its process.
    host : str
        Name of its host.
    device : int
        Index of its device on the host.
    bus_id : str
        PCI bus ID of the device.
    model : str
        Name of the device.
    """

    rank: Whole
    group: Integer
    pid: Whole
    host: str
    device: Integer
    bus_id: str
    model: str


class CollectiveInfo(msgspec.Struct, frozen=True, omit_defaults=True):
    """The collective that a testcase measures, in nccl-tests' terms.

    Parameters
    ----------
    operation : str
        Name of the operation, e.g. ``all_reduce``.
    type : str
        Data type, e.g. ``float``.
    ranks : int
        Number of ranks that take part.
    operator : str
        Reduction operator; empty if the operation has none.
    root : int
        Root rank; -1 if the operation has none.
    traffic : str
        How unequal parts are divided (``alltoallv``); empty for the default.
    """

    operation: str
    type: str
    ranks: Whole
    operator: str = ""
    root: Integer = -1
    traffic: str = ""


class TestcaseResult(msgspec.Struct, frozen=True, omit_defaults=True):
    """Result of one testcase.

    Parameters
    ----------
    name : str
        Name of the testcase.
    status : Status
        Whether it passed; with a cell of wrong data it is never good.
    description : str
        What it measures.
    reason : str
        Why it did not pass.
    index : int or None
        Number of the testcase in nvbandwidth; None if it has none.
    engine : str
        Engine that moves the bytes.
    counts : str
        Which bytes a rate counts.
    tables : tuple[Table, ...]
        The measured values.
    started : str
        Start, as ISO 8601 text.
    seconds : float
        Duration in s.
    warnings : tuple[str, ...]
        Conditions that may explain low values.
    state_before, state_after : tuple[Quantity, ...]
        State of the hardware before and after.
    readings : tuple[Reading, ...]
        State of the hardware during a long testcase.
    busy : dict[str, str]
        Devices that another process used meanwhile -> how, to be read after "is".
    collective : CollectiveInfo or None
        The collective, if the testcase measures one.
    left_out : int
        Number of values for which the time limit of the run left no time.
    """

    __test__ = False

    name: str
    status: Status
    description: str = ""
    reason: str = ""
    index: Integer | None = None
    engine: str = ""
    counts: str = ""
    tables: tuple[Table, ...] = ()
    started: str = ""
    seconds: Amount = 0
    warnings: tuple[str, ...] = ()
    state_before: State = ()
    state_after: State = ()
    readings: tuple[Reading, ...] = ()
    busy: dict[str, str] = {}
    collective: CollectiveInfo | None = None
    left_out: Integer = 0

    def __repr__(self) -> str:
        """Return one line."""
        cells = many(sum(len(table.cells) for table in self.tables), "cell")
        tables = f", {many(len(self.tables), 'table')} with {cells}" if self.tables else ""
        why = f": {self.reason}" if self.reason else ""
        return brief(f"TestcaseResult {self.name}: {self.status.word}{why}{tables}")

    def __post_init__(self) -> None:
        """Fail a result with wrong data, whatever its status in a file says."""
        wrong = (cell for table in self.tables for cell in table.cells if cell.is_wrong)
        if self.status.good and (cell := next(wrong, None)):
            force_setattr(self, "status", Status.FAILED)
            force_setattr(self, "reason", self.reason or cell.reason or "wrong data")

    @property
    def history(self) -> tuple[Reading, ...]:
        """The state of the hardware from before to after the testcase."""
        return Reading(0.0, self.state_before), *self.readings, Reading(self.seconds, self.state_after)

    def key(self, table: Table) -> str:
        """Return the name of one of its tables among all tables of the Document."""
        return f"{self.name}_{table.key}" if table.key else self.name


def courses(results: Iterable[TestcaseResult]) -> Iterable[list[Quantity]]:
    """Return the values of each quantity during some testcases, in order of time."""
    found: dict[tuple[str, str, str], list[Quantity]] = {}
    for result in results:
        for reading in result.history:
            for quantity in reading.state:
                found.setdefault(quantity.key, []).append(quantity)
    return found.values()


class ImportedLog(msgspec.Struct, frozen=True):
    """The log of another tool that values come from.

    Parameters
    ----------
    tool, version : str
        Name and version of the tool; the version is empty if the log lacks it.
    file : str
        Name of the file.
    lines, unknown : int
        Number of lines, and of those that were not understood.
    """

    tool: str
    version: str
    file: str
    lines: Whole
    unknown: Whole


class Document(Tabular, msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One run.

    Parameters
    ----------
    schema : int
        Version of the schema (``wirespeed_schema`` in JSON).
    version : str
        Version of wirespeed.
    command : str
        Command line.
    host : str
        Name of the host.
    python : str
        Version of Python.
    libraries : dict[str, str]
        Library -> version.
    simulated : bool
        Whether the machine is simulated; always equal to ``machine.simulated``.
    machine : Machine
        The measured machine.
    options : dict
        Options of the run: name -> value.
    started, ended : str
        Start and end, as ISO 8601 text.
    seconds : float
        Duration in s.
    interrupted : str
        Why the run did not finish; empty if it did.
    testcases : tuple[TestcaseResult, ...]
        Results, in the order of measurement.
    warnings : tuple[str, ...]
        Conditions of the whole run that may explain low values.
    ranks : tuple[RankInfo, ...]
        Ranks of collectives.
    facts : tuple[Fact, ...]
        What was read of the machine when the run started, and of links and transports while they were used.
    device_memory : dict[str, int]
        Device memory that collectives used, by purpose, in bytes, of the device with the least free memory.
    imported : tuple[ImportedLog, ...]
        Logs of other tools that the values come from; empty if wirespeed measured them.
    """

    schema: int = msgspec.field(name="wirespeed_schema")
    version: str
    command: str = ""
    host: str = ""
    python: str = ""
    libraries: dict[str, str] = {}
    simulated: bool = False
    machine: Machine
    options: dict[str, str | Integer | Number | bool | list[str] | None] = {}
    started: str
    ended: str = ""
    seconds: Amount = 0
    interrupted: str = ""
    testcases: tuple[TestcaseResult, ...] = ()
    warnings: tuple[str, ...] = ()
    ranks: tuple[RankInfo, ...] = ()
    facts: tuple[Fact, ...] = ()
    device_memory: dict[str, Integer] = {}
    imported: tuple[ImportedLog, ...] = ()

    def __post_init__(self) -> None:
        """Mark Document and machine as simulated if one of them is, whatever was removed from a file."""
        if self.simulated != self.machine.simulated:
            force_setattr(self, "simulated", True)
            force_setattr(self, "machine", dataclasses.replace(self.machine, simulated=True))

    def __repr__(self) -> str:
        """Return one line, for the prompt; ``wirespeed.render`` shows everything."""
        counts = Counter(result.status.word for result in self.testcases)
        found = ", ".join(f"{count} {status}" for status, count in counts.items()) or "no testcases"
        kind = "simulated " if self.simulated else ""
        what = f"{kind}{self.machine.name or self.host}, {self.started or self.origin}"
        return brief(f"Document of {what}: {found}")

    def only(self, *testcases: str) -> Document:
        """Return the Document with only these testcases, so that a table or a figure shows them.

        Parameters
        ----------
        *testcases : str
            Names of testcases of the Document.

        Raises
        ------
        UsageError
            If the Document has no such testcase.

        Examples
        --------
        >>> import wirespeed
        >>> document = wirespeed.run(["0", "1"], machine="simulated:hgx-h200-2")
        >>> [result.name for result in document.only("host_to_device_memcpy_ce").testcases]
        ['host_to_device_memcpy_ce']
        """
        there = [result.name for result in self.testcases]
        for name in testcases:
            if name not in there:
                near = get_close_matches(name, there, 1)
                hint = f"; did you mean {near[0]!r}?" if near else ""
                raise UsageError(f"the Document has no testcase {name!r}{hint}")
        kept = tuple(result for result in self.testcases if result.name in testcases)
        return msgspec.structs.replace(self, testcases=kept)

    @property
    def hostname(self) -> str:
        """Name of the measured host; empty if it is unknown."""
        return self.machine.host or self.host

    @property
    def origin(self) -> str:
        """The tools that the values were imported from, for people; empty if wirespeed measured them."""
        tools = dict.fromkeys(" ".join(filter(None, (log.tool, log.version))) for log in self.imported)
        return f"imported from {', '.join(tools)}" if tools else ""

    @property
    def good(self) -> bool:
        """Whether every testcase passed or was waived, and the run was not interrupted."""
        return not self.interrupted and all(result.status.good for result in self.testcases)
