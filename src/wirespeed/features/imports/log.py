"""What importers read from the log of another tool, in base units, before it becomes a Document."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from ...document import CollectiveInfo, RankInfo, Status
from ...hardware.facts import Fact
from ...measurement import Unit
from ...tables import Half
from . import scan
from .commands import command_of

#: Maximum number of unknown lines that are kept.
KEPT_LINES = 5
#: Said of a log that may lack lines.
_INCOMPLETE = "the log may be incomplete"
#: Begin of the names of testcases between processes.
OF_PROCESSES = "multinode_"
#: Testcases that copy between the host and one GPU in one direction.
HOST_COPIES = ("host_to_device_memcpy_ce", "device_to_host_memcpy_ce")
#: What stands between the lines of any tool and says nothing of its values.
_NOISE = re.compile(
    r"(export |declare -x )?[A-Z_][A-Z0-9_]*=\S*$|"  # a setting
    r"[-:| ]{3,}$|"  # the line below the heading of a table
    r"[`~]{3,}\s*\w*$|</?(details|summary|pre|code|br)\b.*>|"  # marks of a post
    # Open MPI: bindings, maps of a job; HCOLL and UCX
    r"(\[\S+\] )?(MCW )?[Rr]ank \d+(:| is not bound| bound to| is bound)|=+ +(ALLOCATED|JOB) |"
    r"\s*(Data for (JOB|node)|Process (OMPI jobid|jobid)|App: \d|Mapper requested|Mapping policy)\b|"
    r".*\[LOG_CAT_\w+\]|.*\bUCX +(INFO|WARN|DIAG|DEBUG|TRACE)\b|"
    # RCCL and its tests
    r"(RCCL|HIP|ROCm|Hostname|Librccl|librccl) ?(version|path)?\s*:\s|rccl-tests: |RCCL version \S+$"
)
#: How tools, and the kernel of their GPU, report what failed, also after their last line.
_OWN = re.compile(
    r"\W*(\[?CUDA_ERROR_|Invalid value when checking|ASSERT in|Error: |Failed Validation|CUDA failure)|"
    rf".*{scan.LOST_GPU.pattern}",
    re.IGNORECASE,
)


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
    def cells(self) -> list[tuple[int, int, float]]:
        """Row, column and value of each cell that has one."""
        rows = enumerate(self.values)
        return [(i, j, value) for i, row in rows for j, value in enumerate(row) if value is not None]


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
        origin: Where the rate comes from, in words.
        count: Number of NICs; 0 if unknown.
    """

    rate: float | None
    origin: str
    count: int = 0


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
        runs_on: Indices of the machine's GPUs that the run used, if the log names more; empty: not known.
        of_other_vendor: Whether the file names GPUs of another vendor than NVIDIA, or their libraries.
        settings: Settings of the run: of NCCL, ``NAME=value``, of its command and as NCCL prints them; what
            binds its CPUs and memory.
        closed: Whether the tool has printed its last line, so that what fails then is another program.
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
    runs_on: list[int] = field(default_factory=list)
    of_other_vendor: bool = False
    settings: tuple[str, ...] = ()
    closed: bool = False

    @property
    def is_empty(self) -> bool:
        """Whether it has no result."""
        found = self.tables or self.collectives or self.outcomes or self.facts
        return not (found or self.failures or self.warnings)

    def fail(self, testcase: str, reason: str) -> None:
        """Note why a testcase did not pass; the first reason counts."""
        before = self.outcomes.get(testcase)
        if before is None or before[0].good:
            self.outcomes[testcase] = scan.status_of(reason), scan.reason_of(reason)

    def other(self, line: str, known: re.Pattern[str] | None = None, *, outside: bool = False) -> None:
        """Read a line without a value: it is known or unknown, and may say that the run failed.

        Args:
            line: The line.
            known: What the tool prints.
            outside: Whether the run has ended already, as in ``says_failure``; so it has after a last line.
        """
        outside = outside or (self.closed and not _OWN.match(line))
        if scan.says_failure(line, outside=outside):
            self.failures.append(scan.reason_of(line))
        elif line and not (_NOISE.match(line) or command_of(line)) and not (known and known.match(line)):
            self.unknown.append(line)

    def doubt(self, what: str, quoted: str = "") -> None:
        """Note that the log may lack something, which is no failure; ``quoted`` shows where."""
        shown = f": {scan.text(quoted)!r}" if quoted else ""
        self.warnings.append(f"{_INCOMPLETE}: {scan.text(what)}{shown}")


class Tool(NamedTuple):
    """How the logs of a tool are read.

    Attributes:
        start: Lines with which a log begins.
        read: Reads the lines of one or several runs.
        of_json: Reads an object of JSON; None if it is of another tool, or if the tool writes no JSON.
        commands: Whether commands before other tools in the text matter, such as ``export``.
    """

    start: re.Pattern[str]
    read: Callable[[Sequence[str]], Iterable[FoundLog]]
    of_json: Callable[[dict[str, Any]], FoundLog | None] | None = None
    commands: bool = False
