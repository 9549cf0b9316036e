"""Lines of a log that say that a run failed, whoever wrote them: the tool, MPI, Slurm or a shell.

What importers read from the log of another tool, in base units, before it becomes a Document.

Rows of numbers, as most tools print them, and the curves over the size of a message that they make.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, NamedTuple

from ..document import CollectiveInfo, RankInfo, Status
from ..hardware.facts import Fact
from ..measurement import Unit
from ..tables import LARGEST, Half
from ..terminal import one_line
from ..units import format_size

#: What says that a run failed. Anything else that a tool reports is an unknown line.
_FAILURE = re.compile(
    r"fail|error|fatal|abort|assert|\bkilled\b|terminate|segmentation|segfault|core dumped|bus error|"
    r"received signal|on signal|timed out|test timeout|time ?limit|timeout: |cancell?ed|corrupt|mismatch|"
    r"invalid|exception|traceback|"
    r"out[ -]of[ -]memory|oom.kill|non-?zero|exit(ed)? (with )?(code|status)[ :=]*[1-9]|"
    r"not (enough|have enough) |ended early|interrupted|does not validate",
    re.IGNORECASE,
)
#: Lines with such words that say something else: warnings, settings, commands, counts of zero, and notices of
#: Open MPI, which go on: what really ends a run is said again, by the tool or the launcher.
_HARMLESS = re.compile(
    r"^\W*(warn(ing)?|note|info|debug|trace|hint)\b|^\S+: (warning|note|info)\b|"
    r"NCCL (INFO|WARN|TRACE|DEBUG)\b|"
    r"\bUCX\s+(WARN|INFO|DIAG|DEBUG|TRACE)\b|"
    r"^(export\s+)?[A-Z]\w*=|^[+$] |^(mpirun|mpiexec|prterun|srun|prun)[.\w]*\s+-|"
    r"\S+@\S+[$#] |"
    r"more process(es)? ha(s|ve) sent help message|to see all help / error messages|PMIX ERROR: |"
    r"\b(0|no|zero|without)\s+(\w+\s+)?(errors?|fail\w*|mismatch\w*|corrupt\w*)|"
    r"(errors?|failed|failures?|mismatches)\s*[:=]\s*0\b",
    re.IGNORECASE,
)
_WRONG_DATA = re.compile(r"validat|corrupt|mismatch|wrong|out of bounds|invalid value", re.IGNORECASE)


def status_of(reason: str) -> Status:
    """The status of a run that failed for this reason: wrong data, or another error."""
    return Status.FAILED if _WRONG_DATA.search(reason) else Status.ERROR


def says_failure(line: str) -> bool:
    """Whether a line of a log says that the run failed: in words of the tool, of MPI or of a shell."""
    return bool(_FAILURE.search(line)) and not _HARMLESS.search(line)


#: Maximum number of unknown lines that are kept, and of characters of a text from a log.
KEPT_LINES, LONGEST_TEXT = 5, 120
#: Maximum number of characters of what a log says of a failure.
_LONGEST_REASON = 300
#: Said of a log that may lack lines.
_INCOMPLETE = "the log may be incomplete"
#: Maximum number of devices and of sizes of a curve that a log may have.
MOST_DEVICES = 1024
#: Testcases that copy between the host and one GPU in one direction.
HOST_COPIES = ("host_to_device_memcpy_ce", "device_to_host_memcpy_ce")
#: Smallest value above 0 that is possible, in base units: quotients of such values remain finite.
_SMALLEST = 1 / LARGEST
_NUMBER = re.compile(r"[-+]?(\d+(\.\d*)?|\.\d+)([eE][-+]?\d{1,3})?")
#: Number of a row, or of two ranks.
_LABEL = re.compile(r"\d{1,6}(->\d{1,6})?")
#: A row of a table that lacks some of its columns.
_PART_OF_ROW = re.compile(r"\d{1,6}(->\d{1,6})?(\s+([-+\d.eE]+|N/A))+")
#: The command that a log begins with, behind a prompt.
_COMMAND = re.compile(r"(\S+@\S+\s?)?\S*[$#%]\s?[\w./~]")
#: Texts of cells without a value.
_NONE = ("N/A", "n/a", "-", "nan", "-nan")


@dataclass(frozen=True)
class FoundTable:
    """A table of a log.

    Attributes:
        testcase: The testcase that measures the same; a name of the tool if none does.
        values: Rows of values, in base units; None without a value.
        rows, columns: Labels as the testcase has them: ``gpu0``, ``numa0``, ``host``.
        axes: Names of the axes of rows and columns.
        unit: Unit of the values.
        key: Key of the table in the testcase.
        title: Title in the log.
        bytes: Size of a buffer; 0 if the log does not contain it.
        why_not: Why no testcase measures the same; empty if one does.
        positions: Sizes of the messages that the columns stand for, in bytes; empty if the columns are no
            curve.
    """

    testcase: str
    values: tuple[tuple[float | None, ...], ...]
    rows: tuple[str, ...]
    columns: tuple[str, ...]
    axes: tuple[str, str]
    unit: Unit
    key: str = ""
    title: str = ""
    bytes: int = 0
    why_not: str = ""
    positions: tuple[float, ...] = ()

    @property
    def count(self) -> int:
        """Number of values."""
        return sum(value is not None for row in self.values for value in row)


#: The columns of a table over sizes: name -> size in bytes -> number.
Columns = dict[str, dict[int, float | None]]
#: The results of a collective at one size: out of place and in place; None if there is none.
Halves = tuple[Half | None, Half | None]


@dataclass(frozen=True)
class FoundCollective:
    """A collective with its arguments over sizes; of an unknown operation, ``A or B`` or nothing is its name.

    Attributes:
        info: The collective.
        points: Size in bytes -> its results.
    """

    info: CollectiveInfo
    points: dict[int, Halves]


@dataclass(frozen=True)
class FoundNics:
    """What the NICs of a host can do together.

    Attributes:
        rate: Rate in one direction, in B/s; None if the log names NICs but not their rates.
        origin: Where the rate comes from, for people.
    """

    rate: float | None
    origin: str


@dataclass
class FoundLog:
    """The output of one run of a tool.

    Attributes:
        tool, version, file: Name and version of the tool, and of the file that was read.
        lines: Number of lines.
        unknown: Lines that the importer does not know.
        host, driver: Name of the host, and version of the GPU driver.
        cuda: CUDA version, e.g. 13000.
        gpus: Name and PCI bus ID of each GPU.
        tables: The tables.
        collectives: The collectives.
        outcomes: Testcase -> status and reason, of those that did not pass.
        failures: Why the whole run failed, in the words of the log.
        ranks: Ranks of a job.
        nics: What the NICs of a host can do; None if the log does not name them.
        facts: What the log says of the hosts.
        options: Options of the run, as a Document has them.
        warnings: Why the log may lack values, or its values may be wrong: where it ends, sums that do not
            fit. Nothing passes with them, and nothing fails.
        notes: What else is known of the measurement and of the log.
        simulated: Whether the log is of a simulated machine.
        independent: Whether each testcase has its own status, so that a failure of the run does not change
            the others.
        partial: Whether the tool measures a part of the machine, so that the log may name fewer GPUs than
            there are.
    """

    tool: str
    version: str = ""
    file: str = ""
    lines: int = 0
    unknown: list[str] = field(default_factory=list)
    host: str = ""
    driver: str = ""
    cuda: int = 0
    gpus: list[tuple[str, str]] = field(default_factory=list)
    tables: list[FoundTable] = field(default_factory=list)
    collectives: list[FoundCollective] = field(default_factory=list)
    outcomes: dict[str, tuple[Status, str]] = field(default_factory=dict)
    failures: list[str] = field(default_factory=list)
    ranks: list[RankInfo] = field(default_factory=list)
    nics: FoundNics | None = None
    facts: list[Fact] = field(default_factory=list)
    options: dict[str, str | int | float | bool | list[str] | None] = field(default_factory=dict)
    warnings: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    simulated: bool = False
    independent: bool = False
    partial: bool = False

    @property
    def is_empty(self) -> bool:
        """Whether it has no result."""
        found = self.tables or self.collectives or self.outcomes or self.facts
        return not (found or self.failures or self.warnings)

    def fail(self, testcase: str, reason: str) -> None:
        """Note why a testcase did not pass; the first reason counts."""
        before = self.outcomes.get(testcase)
        if before is None or before[0].good:
            self.outcomes[testcase] = status_of(reason), reason_of(reason)

    def other(self, line: str, known: re.Pattern[str] | None = None) -> None:
        """Read a line without a value: it is known or unknown, and may say that the run failed."""
        if says_failure(line):
            self.failures.append(reason_of(line))
        elif line and not _COMMAND.match(line) and not (known and known.match(line)):
            self.unknown.append(line)

    def doubt(self, what: str, quoted: str = "") -> None:
        """Note that the log may lack something, which is no failure; ``quoted`` shows where."""
        shown = f": {text(quoted)!r}" if quoted else ""
        self.warnings.append(f"{_INCOMPLETE}: {text(what)}{shown}")

    @property
    def label(self) -> str:
        """Tool and version, for people."""
        return " ".join(filter(None, (self.tool, self.version)))


def runs(lines: Sequence[str], begin: re.Pattern[str]) -> Iterator[Sequence[str]]:
    """Split lines at those with which a run begins; what precedes the first one belongs to it."""
    starts = [i for i, line in enumerate(lines) if begin.match(line)] or [0]
    return (lines[a:b] for a, b in pairwise([0, *starts[1:], len(lines)]))


def without_cut_line(lines: list[str]) -> str:
    """Remove the last line of a text without a line end, if it is part of a row; return it, else nothing.

    The columns of a table are aligned, so that a row that ends before the row above it is cut: the number of
    decimals says nothing, because large numbers have fewer.
    """
    above, last = (line.split() for line in ["", "", *lines][-2:])
    if not above or not last or not _is_value(above[-1]):
        return ""
    is_row = _is_value(last[0]) if _is_value(above[0]) else _is_value(last[-1])
    return lines.pop() if is_row and len(lines[-1].rstrip()) < len(lines[-2].rstrip()) else ""


def _is_value(word: str) -> bool:
    return bool(_NUMBER.fullmatch(word)) or word in _NONE


def gpus_of(ranks: Sequence[RankInfo]) -> list[tuple[str, str]]:
    """Name and PCI bus ID of each GPU of the first host, in the order of their indices."""
    own = {rank.device: (rank.model, rank.bus_id) for rank in ranks if rank.host == ranks[0].host}
    return [own[device] for device in sorted(own)]


def text(raw: str) -> str:
    """A text of a log, short and without control characters."""
    return one_line(raw).strip()[:LONGEST_TEXT]


def reason_of(line: str) -> str:
    """What a line says of a failure, without control characters."""
    return one_line(line).strip()[:_LONGEST_REASON]


def number(word: str) -> float | None:
    """The number that a word is; None for words that stand for no value.

    Raises:
        ValueError: If it is neither, or out of range.
    """
    if word in _NONE:
        return None
    if not _NUMBER.fullmatch(word):
        raise ValueError(f"{word!r} is not a number")
    value = float(word)
    if not math.isfinite(value) or abs(value) > LARGEST:
        raise ValueError(f"{word!r} is out of range")
    return value


def whole(word: str) -> int:
    """The whole number that a word is, -1 or larger.

    Raises:
        ValueError: If it is not one.
    """
    if not re.fullmatch(r"-1|\d{1,18}", word):
        raise ValueError(f"{word!r} is not a whole number")
    return int(word)


def scaled(values: Iterable[float | None], scale: float) -> tuple[float | None, ...]:
    """Values in base units; those that are negative or out of range become None."""
    return tuple(
        v * scale if v is not None and (v == 0 or _SMALLEST <= v * scale <= LARGEST) else None for v in values
    )


def in_base(word: str | None, scale: float = 1.0) -> float | None:
    """The value that a word is, in base units; None if it is none, or out of range."""
    try:
        return scaled([number(word or "")], scale)[0]
    except ValueError:
        return None


def grid(lines: Sequence[str], start: int) -> tuple[list[str], list[tuple[str, list[float | None]]], int]:
    """Read a table of numbers: a line of column numbers, and lines of a row number and values.

    Args:
        lines: The lines of a log.
        start: Index of the line of column numbers.

    Returns:
        columns: The column numbers; empty if there is no table.
        rows: Row number and values of each row.
        end: Index of the first line behind the table.
    """
    if start >= len(lines):
        return [], [], start
    columns = lines[start].replace("D\\D", "").split()
    if columns[:1] in (["GPU"], ["CPU"]):
        columns = columns[1:]
    if not columns or len(columns) > MOST_DEVICES or not all(re.fullmatch(r"\d{1,6}", c) for c in columns):
        return [], [], start
    rows: list[tuple[str, list[float | None]]] = []
    at = start + 1
    while at < len(lines) and len(rows) < MOST_DEVICES:
        row = _row(lines[at], len(columns))
        if row:
            rows.append(row)
        elif not _PART_OF_ROW.fullmatch(lines[at].strip()):
            break
        at += 1
    return columns, rows, at


def by_label(rows: Sequence[tuple[str, list[float | None]]], columns: int) -> list[list[float | None]]:
    """The rows of a square matrix up to the last one, with empty ones for those that the log lacks."""
    if not all(label.isdigit() and int(label) < columns for label, _ in rows):
        return [values for _, values in rows]
    found = {int(label): values for label, values in rows}
    return [found.get(i, [None] * columns) for i in range(max(found, default=-1) + 1)]


def _row(line: str, columns: int) -> tuple[str, list[float | None]] | None:
    """Label and values of a row; None if it is not one. Wide values may touch their neighbours."""
    label, *words = line.split() or [""]
    if len(words) != columns:
        width = 10
        cut = len(line.rstrip()) - width * columns
        label, tail = line[: max(cut, 0)].strip(), line[max(cut, 0) :].rstrip()
        words = [tail[i * width : (i + 1) * width].strip() for i in range(columns)] if cut > 0 else []
    if len(words) != columns or not _LABEL.fullmatch(label):
        return None
    try:
        return label, [number(word) for word in words]
    except ValueError:
        return None


def numbers(line: str) -> list[float | None] | None:
    """The numbers with which a line begins; None if there are none. A remark may follow; stars are bold."""
    found: list[float | None] = []
    for word in line.split():
        try:
            found.append(number(word.strip("*")))
        except ValueError:
            break
    return found or None


def size_of(value: float | None) -> int | None:
    """A number as a size in bytes; None if it is none."""
    return int(value) if value is not None and value == int(value) and 0 <= value < 2**60 else None


def in_units(values: Mapping[int, float | None], scale: float) -> dict[int, float | None]:
    """The values of each size in base units."""
    return dict(zip(values, scaled(values.values(), scale), strict=True))


def items_of(value: object) -> list[Any]:
    """The items of a list of JSON; none if the value is no list."""
    return value if isinstance(value, list) else []


def fields_of(value: object) -> dict[str, Any]:
    """The fields of an object of JSON; none if the value is no object."""
    return value if isinstance(value, dict) else {}


def parts(lines: Sequence[str], begin: re.Pattern[str], row: re.Pattern[str]) -> Iterator[Sequence[str]]:
    """Split lines at those that begin a new table: the first one after a row.

    Titles and headings of one table follow each other; an excerpt may have only some of them.
    """
    start, filled = 0, False
    for i, line in enumerate(lines):
        if filled and begin.match(line):
            yield lines[start:i]
            start, filled = i, False
        filled = filled or bool(row.match(line))
    yield lines[start:]


def curve(
    testcase: str,
    key: str,
    title: str,
    rows: Mapping[str, Mapping[int, float | None]],
    unit: Unit,
    axis: str,
    why_not: str = "",
    of: str = "message",
) -> FoundTable:
    """A table over a size, by default of a message, one row for each quantity.

    Args:
        testcase, key, title, unit, why_not: As in ``FoundTable``.
        rows: Label -> size in bytes -> value in base units.
        axis: Name of the axis of the rows.
        of: Name of the axis of the columns: what has the size.
    """
    sizes = sorted({size for values in rows.values() for size in values})
    return FoundTable(
        testcase, tuple(tuple(values.get(size) for size in sizes) for values in rows.values()),
        tuple(rows), tuple(map(format_size, sizes)), (axis, of), unit, key, text(title),
        why_not=why_not, positions=tuple(map(float, sizes)),
    )  # fmt: skip


def each(
    read: Callable[[Sequence[str]], FoundLog], split: Callable[..., Iterator[Sequence[str]]], *marks: Any
) -> Callable[[Sequence[str]], Iterator[FoundLog]]:
    """What reads the runs of a tool, one after the other.

    Args:
        read: Reads the lines of one run.
        split: Splits lines into runs at marks: ``runs`` or ``parts``.
        *marks: The marks.
    """
    return lambda lines: map(read, split(lines, *marks))


class Tool(NamedTuple):
    """How the logs of a tool are read.

    Attributes:
        start: Lines with which a log begins.
        read: Reads the lines of one or several runs.
        of_json: Reads an object of JSON; None if it is of another tool, or if the tool writes no JSON.
    """

    start: re.Pattern[str]
    read: Callable[[Sequence[str]], Iterable[FoundLog]]
    of_json: Callable[[dict[str, Any]], FoundLog | None] | None = None
