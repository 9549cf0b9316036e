"""Text of the language with its origin, for errors that show line, column and a caret.

The parsed form of the language, before the names of a machine are known.

From Transfers to text that is parsed into the same again.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from decimal import Decimal
from difflib import get_close_matches
from itertools import groupby
from pathlib import Path

from ...errors import UsageError
from ...files import LARGEST_WRITTEN, read
from ...hardware.devices import is_host, kind_of
from ...hardware.topology import Machine
from ...model import Engine, Memory, MemoryKind, Operation, Role, Transfer
from ...terminal import error_line, one_line
from ...units import GB, MB, parse_duration, parse_rate, some

#: Characters of a line that an error shows on each side of its place.
_SHOWN = 50
#: Number of valid names that an error lists.
_NAMED = 12


class LanguageError(UsageError):
    """Invalid text; the message has the line, the column and the reason.

    Attributes:
        message: The reason, in one line.
        place: Two lines below it: the part of the text, and where it is wrong.
    """

    def __init__(self, message: str, place: str = "") -> None:
        super().__init__(message, place)

    def __str__(self) -> str:
        message, place = self.args
        return "\n".join(filter(None, (error_line(message), place)))


@dataclass(frozen=True)
class Source:
    """Text, and where it comes from.

    Attributes:
        text: The text.
        name: Name of its file; empty for a command line.
        line, column: Position of its first character in the file, from 1.
    """

    text: str
    name: str = ""
    line: int = 1
    column: int = 1

    def error(self, message: str, start: int, end: int | None = None) -> LanguageError:
        """An error at a part of the text.

        Args:
            message: What is wrong, and what to do.
            start, end: Begin and end of the part; without an end, one character.
        """
        before = self.text.rfind("\n", 0, start) + 1
        after = self.text.find("\n", start)
        content = self.text[before : len(self.text) if after < 0 else after]
        at = start - before
        line = self.line + self.text.count("\n", 0, start)
        column = at + (self.column if line == self.line else 1)
        low, high = max(0, at - _SHOWN), at + _SHOWN
        shown = one_line(content[low:high])
        carets = "^" * max(1, min((end or start + 1) - start, len(shown) - (at - low)))
        where = f"{self.name}, " if self.name else ""
        place = f"  {shown}\n  {' ' * (at - low)}{carets}" if shown else ""
        return LanguageError(f"{where}line {line}, column {column}: {message}", place)


def nearest(name: str, valid: Collection[str]) -> str:
    """A hint to the valid name that is nearest to a wrong one, or to all of them."""
    if near := get_close_matches(name, valid, 1):
        return f"did you mean {near[0]}?"
    return f"choose from {some([*valid], _NAMED)}" if valid else "there is none"


def contents(path: str | Path) -> str:
    """The text of a file.

    Raises:
        UsageError: If it cannot be read.
    """
    try:
        return read(path, LARGEST_WRITTEN).decode()
    except OSError as error:
        raise UsageError(f"cannot read {path}: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise UsageError(f"{path} is not text in UTF-8: {error.reason} at byte {error.start}") from error


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
        depth: Calls of a file at a time.
        random: Whether blocks of a file are in random order.
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
    depth: int | None = None
    random: bool = False


class InText:
    """A statement with its place in a text."""

    source: Source
    span: Span

    def wrong(self, message: str) -> LanguageError:
        """An error at the statement."""
        return self.source.error(message, *self.span)


@dataclass(frozen=True)
class Statement(InText):
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
class CollectiveStatement(InText):
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


_UNITS = ((2**40, "TiB"), (2**30, "GiB"), (2**20, "MiB"), (2**10, "KiB"))


def exact_size(size: int) -> str:
    """A size in the largest unit that divides it."""
    return next((f"{size // scale}{unit}" for scale, unit in _UNITS if size % scale == 0), f"{size}B")


#: Units of rates and times, in the order in which they are tried.
_RATES, _TIMES = ((GB, "GB/s"), (MB, "MB/s"), (1, "B/s")), ((1e-3, "ms"), (1e-6, "us"), (1.0, "s"))


def _exact(value: float, units: Iterable[tuple[float, str]], parse: Callable[[str], float]) -> str:
    """The first short text that is parsed into a value; else all its digits in the last unit."""
    for scale, unit in units:
        text = f"{value / scale:.12g}{unit}"
        if value >= scale and "e" not in text and parse(text) == value:
            return text
    return f"{Decimal(repr(value)):f}{unit}"


def numbers(values: Sequence[int]) -> str:
    """Numbers as ranges in brackets: ``[0-3,8]``."""
    parts = []
    for _, run in groupby(enumerate(values), key=lambda pair: pair[1] - pair[0]):
        consecutive = [value for _, value in run]
        parts.append(f"{consecutive[0]}-{consecutive[-1]}" if len(consecutive) > 1 else f"{consecutive[0]}")
    return f"[{','.join(parts)}]"


def written(transfers: Sequence[Transfer], machine: Machine) -> list[str]:
    """Transfers that start together in the language.

    Raises:
        UsageError: If the language has no words for it.
    """
    nodes = Counter(str(transfer.executor) for transfer in transfers if transfer.engine is Engine.CPU)
    return [_written(transfer, machine, alone=nodes[str(transfer.executor)] == 1) for transfer in transfers]


def _written(transfer: Transfer, machine: Machine, *, alone: bool) -> str:
    """One transfer; ``alone``: whether no other uses the cores of its node."""
    if transfer.calls:
        return _of_file(transfer, machine)
    of_cpus = transfer.engine is Engine.CPU
    source, *destinations = (_name(end, of_cpus) for end in transfer.ends)
    destination = ", ".join(destinations)
    executor = transfer.executor.device if transfer.executor.rank is None else f"rank{transfer.executor.rank}"
    at_source = executor == source.removeprefix("pageable(").removesuffix(")")
    if transfer.operation is Operation.CHASE:
        text = f"latency {executor} <- {source}"
    elif transfer.operation in (Operation.READ, Operation.WRITE):
        remote = transfer.source if transfer.operation is Operation.READ else transfer.destination
        at_executor = transfer.destination if transfer.operation is Operation.READ else transfer.source
        if (at_executor.device, at_executor.rank) != (transfer.executor.device, transfer.executor.rank):
            raise UsageError(f"the language has no words for {transfer}")
        name = _name(remote, of_cpus)
        text = f"{name} -> void" if transfer.operation is Operation.READ else f"void -> {name}"
        text += "" if name == executor else f" by {executor}"
    elif at_source:
        text = f"{source} -> {destination}"
    elif executor == destination:
        of_host = is_host(transfer.source.device) and not of_cpus  # the device executes in any case
        text = f"{source} -> {destination}" if of_host else f"{destination} <- {source}"
    else:
        text = f"{source} -> {destination} by {executor}"
    usual = (
        Engine.CPU if of_cpus
        else kind_of(transfer.executor.device).engines[0]
        if transfer.operation is Operation.COPY and not transfer.also
        else Engine.SM
    )  # fmt: skip
    words = [text]
    if transfer.operation not in (Operation.COPY, Operation.CHASE, Operation.READ, Operation.WRITE):
        words.append(str(transfer.operation))
    words += ["broadcast"] if transfer.also else []
    words += [str(transfer.engine)] if transfer.engine is not usual else []
    words += [exact_size(transfer.bytes), *_shape(transfer, machine, alone=alone)]
    words += [f"counted={transfer.counted}"] if transfer.counted != 1 else []
    words += [f"rate={transfer.pace!r}"] if transfer.pace != 1 else []
    words += [f"rate={_exact(transfer.rate, _RATES, parse_rate)}"] if transfer.is_paced else []
    words += [f"start={_exact(transfer.start, _TIMES, parse_duration)}"] if transfer.start else []
    return ("load " if transfer.role is Role.LOAD else "") + " ".join(words)


def _of_file(transfer: Transfer, machine: Machine) -> str:
    """A transfer with storage."""
    assert transfer.calls is not None
    node = next((node for node in machine.numa if node.name == transfer.executor.device), None)
    if transfer.also or node is None or node.cpus != transfer.executor.cpus:
        raise UsageError(f"the language has no words for {transfer}")
    words = [transfer.way.replace("->", " -> "), *(["random"] if transfer.calls.random else [])]
    words += [str(transfer.engine)] if transfer.engine is not Engine.IO else []
    words += [exact_size(transfer.calls.block), f"depth={transfer.calls.depth}"]
    return ("load " if transfer.role is Role.LOAD else "") + " ".join(words)


def _name(memory: Memory, of_cpus: bool) -> str:
    if memory.rank is not None:
        return f"rank{memory.rank}"
    return (
        f"pageable({memory.device})" if memory.kind is MemoryKind.PAGEABLE and not of_cpus else memory.device
    )


def _shape(transfer: Transfer, machine: Machine, *, alone: bool) -> list[str]:
    """The words for the shape of a kernel, or for CPUs that are not all cores."""
    executor = transfer.executor
    if transfer.engine is not Engine.CPU:
        shape = (("blocks", executor.blocks), ("threads", executor.threads))
        return [f"{name}={count}" for name, count in shape if count]
    if executor.rank is not None:
        cores = machine.ranks[executor.rank].cpus
    else:
        cores = next((node.cores for node in machine.numa if node.name == executor.device), ())
    usual = cores[:1] if transfer.operation is Operation.CHASE else cores
    if alone and executor.cpus == usual:
        return []
    if alone and executor.cpus == cores[: len(executor.cpus)]:
        return [f"threads={len(executor.cpus)}"]
    return [f"cpus={numbers(executor.cpus)}"]


def line_of(transfers: Iterable[Transfer], machine: Machine) -> str:
    """Transfers that start together as one line.

    Raises:
        UsageError: If the language has no words for one of them.
    """
    return "; ".join(written(list(transfers), machine))


def section(title: str, /, **values: object) -> list[str]:
    """The lines of a section of TOML; values that are None have none.

    Each text of a list has a line, and each of several tables.
    """
    lines = [f"[[{title}]]"]
    for key, value in values.items():
        shown = _toml(value)
        if isinstance(value, list) and (len(value) > 1 or isinstance(value[0], str)):
            shown = "[\n" + "".join(f"  {_toml(item)},\n" for item in value) + "]"
        lines += [] if value is None else [f"{key} = {shown}"]
    return lines


def _toml(value: object) -> str:
    """A value in TOML, in one line; of a table, without what is None."""
    if isinstance(value, dict):
        pairs = (f"{key} = {_toml(item)}" for key, item in value.items() if item is not None)
        return f"{{ {', '.join(pairs)} }}"
    if isinstance(value, (list, tuple)):
        return f"[{', '.join(map(_toml, value))}]"
    return quoted(value) if isinstance(value, str) else str(value).lower()


def quoted(text: str) -> str:
    """A string of TOML, whose escapes are those of JSON; it forbids DEL and lone surrogates, too."""
    shown = json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")
    return shown.encode("utf-8", "replace").decode()
