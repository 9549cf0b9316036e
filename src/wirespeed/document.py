"""Document: the complete record of one run, of which every report is a view. Values are in base units: bytes,
seconds, bytes per second. ``SCHEMA`` increases whenever a reader of the older schema would misread the newer
one.
"""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Container, Iterable
from difflib import get_close_matches
from enum import StrEnum

import msgspec
from msgspec.structs import force_setattr

from .errors import UsageError
from .hardware.facts import Fact
from .hardware.topology import Machine
from .peer_access import PeerAccess
from .qualification import Qualification
from .tables import Amount, Integer, Number, Quantity, Reading, State, Table, Whole
from .terminal import Tabular, brief
from .units import many

SCHEMA = 2
#: ``interrupted`` of a Document until its run ends; it remains if the process is killed.
UNFINISHED = "the process ended before the run was complete"
#: Option of a Document: the testcases that the user asked for, by name, or by a prefix and ``*``.
REQUESTED = "requested"
#: Option that has the indices of the GPUs that were used, if only some were.
DEVICES = "devices"


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
        """Its word in texts: a value that was measured has passed no judgement."""
        return "measured" if self is Status.PASSED else self.value

    @property
    def good(self) -> bool:
        """Whether the testcase passed or was waived."""
        return self in (Status.PASSED, Status.WAIVED)

    @property
    def is_failure(self) -> bool:
        """Whether data were wrong, or the hardware, a library or the selection of testcases failed."""
        return not self.good and self not in (Status.INTERRUPTED, Status.NO_MEMORY)


class RankInfo(msgspec.Struct, frozen=True):
    """One rank of a collective.

    Attributes:
        rank: Number among all ranks.
        group: Group that the rank belongs to.
        pid: ID of its process.
        host: Name of its host.
        device: Index of its device on the host.
        bus_id: PCI bus ID of the device.
        model: Name of the device.
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

    Attributes:
        operation: Name of the operation, e.g. ``all_reduce``.
        type: Data type, e.g. ``float``.
        ranks: Number of ranks that take part; 0 if a log does not say.
        operator: Reduction operator; empty if the operation has none.
        root: Root rank; -1 if the operation has none.
        traffic: How unequal parts are divided (``alltoallv``); empty for the default.
        members: Indices of the GPUs that take part, if they are some of the machine's; empty otherwise.
    """

    operation: str
    type: str
    ranks: Whole
    operator: str = ""
    root: Integer = -1
    traffic: str = ""
    members: tuple[Whole, ...] = ()


class TestcaseResult(msgspec.Struct, frozen=True, omit_defaults=True):
    """Result of one testcase.

    Attributes:
        name: Name of the testcase.
        status: Whether it passed; with a cell of wrong data it is never good.
        description: What it measures.
        reason: Why it did not pass.
        index: Number of the testcase in nvbandwidth; None if it has none.
        engine: Engine that moves the bytes.
        counts: Which bytes a rate counts.
        tables: The measured values.
        started: Start, as ISO 8601 text.
        seconds: Duration in s.
        warnings: Conditions that may explain low values.
        state_before, state_after: State of the hardware before and after.
        readings: State of the hardware during a long testcase.
        busy: Devices that another process used meanwhile -> how, to be read after "is".
        collective: The collective, if the testcase measures one.
        left_out: Number of values for which the time limit of the run left no time.
        settings: Settings of an imported run, of which those of one file may differ: of NCCL, ``NAME=value``,
            and what binds its CPUs and memory.
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
    settings: tuple[str, ...] = ()

    def __repr__(self) -> str:
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
        """The name of one of its tables among all tables of the Document."""
        return f"{self.name}_{table.key}" if table.key else self.name


def courses(
    results: Iterable[TestcaseResult], names: Container[str] | None = None
) -> Iterable[list[Quantity]]:
    """The values of each quantity during some testcases, in order of time; None for all names."""
    by_key: dict[tuple[str, str, str], list[Quantity]] = {}
    for result in results:  # `history` and `key` written out: large runs have millions of quantities
        readings = [reading.state for reading in result.readings]
        for state in (result.state_before, *readings, result.state_after):
            for quantity in state:
                if names is not None and quantity.name not in names:
                    continue
                key = (quantity.host, quantity.device, quantity.name)
                if (course := by_key.get(key)) is None:
                    by_key[key] = [quantity]
                else:
                    course.append(quantity)
    return by_key.values()


class ImportedLog(msgspec.Struct, frozen=True, omit_defaults=True):
    """The log of another tool that values come from.

    Attributes:
        tool, version: Name and version of the tool; the version is empty if the log lacks it.
        file: Name of the file.
        lines, unknown: Number of lines, and of those that were not understood.
        doubts: Why the log may lack values, or its values may be wrong: where it ends, sums that do not fit.
        judged_with: Options of an import with which more of its values would be judged: each was tried.
    """

    tool: str
    version: str
    file: str
    lines: Whole
    unknown: Whole
    doubts: tuple[str, ...] = ()
    judged_with: tuple[str, ...] = ()


class Document(Tabular, msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One run.

    Attributes:
        schema: Version of the schema (``wirespeed_schema`` in JSON).
        version: Version of wirespeed.
        command: Command line.
        host: Name of the host.
        python: Version of Python.
        libraries: Library -> version.
        simulated: Whether the machine is simulated; always equal to ``machine.simulated``.
        machine: The measured machine.
        options: Options of the run: name -> value.
        started, ended: Start and end, as ISO 8601 text.
        seconds: Duration in s.
        interrupted: Why the run did not finish; empty if it did.
        testcases: Results, in the order of measurement.
        warnings: Conditions of the whole run that may explain low values.
        ranks: Ranks of collectives.
        facts: What was read of the machine when the run started, and of links and transports while they were
            used.
        device_memory: Device memory that collectives used, by purpose, in bytes, of the device that used most
            for it.
        imported: Logs of other tools that the values come from; empty if wirespeed measured them.
        qualification: Which nodes of a cluster are slow, of ``wirespeed qualify``.
        peers: Whether peer access between GPUs works, of ``wirespeed p2p`` and ``check``.
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
    qualification: Qualification | None = None
    peers: PeerAccess | None = None

    def __post_init__(self) -> None:
        """Mark Document and machine as simulated if one of them is, whatever was removed from a file."""
        if self.simulated != self.machine.simulated:
            force_setattr(self, "simulated", True)
            force_setattr(self, "machine", dataclasses.replace(self.machine, simulated=True))

    def __repr__(self) -> str:
        """One line, for the prompt; ``wirespeed.render`` shows everything."""
        counts = Counter(result.status.word for result in self.testcases)
        outcomes = ", ".join(f"{count} {status}" for status, count in counts.items()) or "no testcases"
        kind = "simulated " if self.simulated else ""
        source = f"{kind}{self.machine.name or self.host}, {self.started or self.origin}"
        peers = f"peer access {self.peers.counted}; " if self.peers and self.peers.attempts else ""
        return brief(f"Document of {source}: {peers}{outcomes}")

    def only(self, *testcases: str) -> Document:
        """The Document with only these testcases, so that a table or a figure shows them.

        Args:
            *testcases: Names of testcases of the Document.

        Raises:
            UsageError: If the Document has no such testcase.

        Examples:
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
        """The tools that the values were imported from, in words; empty if wirespeed measured them."""
        tools = dict.fromkeys(" ".join(filter(None, (log.tool, log.version))) for log in self.imported)
        return f"imported from {', '.join(tools)}" if tools else ""

    @property
    def good(self) -> bool:
        """Whether every testcase passed or was waived, and the run was not interrupted."""
        return not self.interrupted and all(result.status.good for result in self.testcases)
