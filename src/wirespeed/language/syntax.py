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

    Parameters
    ----------
    kind : str
        ``gpu``, ``numa``, ``rank``, ``void`` (no memory) or ``$`` (the device of an axis).
    indices : tuple[int, ...] or None
        Numbers of the devices; None for all.
    wrappers : tuple[str, ...]
        Functions around the name, the outermost first: ``near``, ``pageable``, ``other``.
    owned : Devices or None
        The device of a rank, if it is named.
    span : tuple[int, int]
        Its place in the text.
    """

    kind: str
    indices: tuple[int, ...] | None
    wrappers: tuple[str, ...]
    owned: Devices | None
    span: Span


@dataclass(frozen=True)
class Rate:
    """A rate to which a transfer is held.

    Parameters
    ----------
    value : float
        The rate in B/s, or a fraction.
    fraction : bool
        Whether it is a fraction of the limit of the transfer, or of the full speed of a load by CPUs.
    """

    value: float
    fraction: bool


@dataclass(frozen=True)
class Words:
    """The words behind the memories of a transfer; None where a word is not given.

    Parameters
    ----------
    engine : Engine or None
        What moves the bytes.
    operation : Operation or None
        What is computed.
    size : int or None
        Bytes of one buffer.
    blocks, threads : int or None
        Shape of a kernel; for CPUs, the number of threads.
    cpus : tuple[int, ...] or None
        Logical CPUs to use.
    counted : int or None
        How often each byte of the buffer counts.
    rate : Rate or None
        Rate that it does not exceed.
    start : float or None
        Time from the common start until it begins, in s.
    broadcast : bool
        Whether one transfer writes to all destinations.
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

    Parameters
    ----------
    sources, destinations : tuple[Devices, ...]
        The memories.
    pulls : bool
        Whether the destination executes; the source otherwise.
    executors : tuple[Devices, ...]
        A third device that executes; empty if one of the two sides does.
    role : Role
        Whether the transfers are measured.
    latency : bool
        Whether the time of one dependent load is measured.
    label : str
        Label of the result; empty for one made of the names.
    words : Words
        Engine, size and the rest.
    places : dict[str, tuple[int, int]]
        Places of the words in the text, for errors.
    source : Source
        The text.
    span : tuple[int, int]
        Place of the statement in the text.
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

    Parameters
    ----------
    operation : str
        Its name.
    size : int or None
        Bytes of the array.
    role : Role
        Whether it is measured.
    label : str
        Label of the result; empty for the name.
    source : Source
        The text.
    span : tuple[int, int]
        Place of the statement in the text.
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

    Parameters
    ----------
    name : str
        Option of the run: ``copies``, ``samples`` or ``share``.
    value : int or str
        Its value.
    span : tuple[int, int]
        Its place in the text.
    """

    name: str
    value: int | str
    span: Span


@dataclass(frozen=True)
class Line:
    """Transfers that start together.

    Parameters
    ----------
    source : Source
        The text; of several, the first one.
    statements : tuple[Statement or CollectiveStatement, ...]
        The transfers.
    settings : tuple[RunSetting, ...]
        Settings of the run.
    """

    source: Source
    statements: tuple[Statement | CollectiveStatement, ...]
    settings: tuple[RunSetting, ...] = ()

    @property
    def texts(self) -> tuple[str, ...]:
        """The texts of the statements, each once."""
        return tuple(dict.fromkeys(statement.source.text for statement in self.statements))
