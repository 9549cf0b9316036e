"""The parsed form of the language, before the names of a machine are known."""

from __future__ import annotations

from dataclasses import dataclass

from ..model import Engine, Operation, Role
from .source import Source

#: Begin and end of a part of the text.
Span = tuple[int, int]


@dataclass(frozen=True)
class Devices:
    """Names of memories or executors: one device, several of one kind, or those of ranks.

    Attributes:
        kind: ``gpu``, ``numa``, ``rank``, ``void`` (no memory) or ``$`` (the device of an axis).
        indices: Numbers of the devices; None for all.
        wrappers: Functions around the name, the outermost first: ``near``, ``pageable``, ``other``.
        owned: The device of a rank, if it is named.
        span: Its place in the text.
    """

    kind: str
    indices: tuple[int, ...] | None
    wrappers: tuple[str, ...]
    owned: Devices | None
    span: Span


@dataclass(frozen=True)
class Rate:
    """A rate to which a transfer is held.

    Attributes:
        value: The rate in B/s, or a fraction.
        fraction: Whether it is a fraction of the limit of the transfer, or of the full speed of a load by
            CPUs.
    """

    value: float
    fraction: bool


@dataclass(frozen=True)
class Words:
    """The words behind the memories of a transfer; None where a word is not given.

    Attributes:
        engine: What moves the bytes.
        operation: What is computed.
        size: Bytes of one buffer.
        blocks, threads: Shape of a kernel; for CPUs, the number of threads.
        cpus: Logical CPUs to use.
        counted: How often each byte of the buffer counts.
        rate: Rate that it does not exceed.
        start: Time from the common start until it begins, in s.
        broadcast: Whether one transfer writes to all destinations.
    """

    engine: Engine | None = None
    operation: Operation | None = None
    size: int | None = None
    blocks: int | None = None
    threads: int | None = None
    cpus: tuple[int, ...] | None = None
    counted: int | None = None
    rate: Rate | None = None
    start: float | None = None
    broadcast: bool = False


@dataclass(frozen=True)
class Statement:
    """One or several transfers with the same words.

    Attributes:
        sources, destinations: The memories.
        pulls: Whether the destination executes; the source otherwise.
        executors: A third device that executes; empty if one of the two sides does.
        role: Whether the transfers are measured.
        latency: Whether the time of one dependent load is measured.
        label: Label of the result; empty for one made of the names.
        words: Engine, size and the rest.
        places: Places of the words in the text, for errors.
        source: The text.
        span: Place of the statement in the text.
    """

    sources: tuple[Devices, ...]
    destinations: tuple[Devices, ...]
    pulls: bool
    executors: tuple[Devices, ...]
    role: Role
    latency: bool
    label: str
    words: Words
    places: dict[str, Span]
    source: Source
    span: Span


@dataclass(frozen=True)
class CollectiveStatement:
    """A collective of all GPUs.

    Attributes:
        operation: Its name.
        size: Bytes of the array.
        role: Whether it is measured.
        label: Label of the result; empty for the name.
        source: The text.
        span: Place of the statement in the text.
    """

    operation: str
    size: int | None
    role: Role
    label: str
    source: Source
    span: Span


@dataclass(frozen=True)
class RunSetting:
    """A setting of the whole run that a statement contains.

    Attributes:
        name: Option of the run: ``copies``, ``samples`` or ``share``.
        value: Its value.
        span: Its place in the text.
    """

    name: str
    value: int | str
    span: Span


@dataclass(frozen=True)
class Line:
    """Transfers that start together.

    Attributes:
        source: The text; of several, the first one.
        statements: The transfers.
        settings: Settings of the run.
    """

    source: Source
    statements: tuple[Statement | CollectiveStatement, ...]
    settings: tuple[RunSetting, ...] = ()

    @property
    def texts(self) -> tuple[str, ...]:
        """The texts of the statements, each once."""
        return tuple(dict.fromkeys(statement.source.text for statement in self.statements))
