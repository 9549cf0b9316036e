"""The parsed form of a line of transfers, before the names of a machine are known. Its parts have places, for
errors that show line, column and a caret.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from difflib import get_close_matches

from ...errors import UsageError
from ...model import Engine, Role
from ...terminal import error_line, one_line
from ...units import some

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
    """The text of a line.

    Attributes:
        text: The text.
    """

    text: str

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
        line = 1 + self.text.count("\n", 0, start)
        low, high = max(0, at - _SHOWN), at + _SHOWN
        shown = one_line(content[low:high])
        carets = "^" * max(1, min((end or start + 1) - start, len(shown) - (at - low)))
        place = f"  {shown}\n  {' ' * (at - low)}{carets}" if shown else ""
        return LanguageError(f"line {line}, column {at + 1}: {message}", place)


def nearest(name: str, valid: Collection[str]) -> str:
    """A hint to the valid name that is nearest to a wrong one, or to all of them."""
    if near := get_close_matches(name, valid, 1):
        return f"did you mean {near[0]}?"
    return f"choose from {some([*valid], _NAMED)}" if valid else "there is none"


#: Begin and end of a part of the text.
Span = tuple[int, int]


@dataclass(frozen=True)
class Devices:
    """Names of memories or executors: one device, several of one kind, or devices of ranks.

    Attributes:
        kind: ``gpu``, ``numa`` or ``rank``.
        indices: Numbers of the devices; None for all.
        wrappers: Functions around the name, the outermost first: ``near``, ``pageable``.
        owned: The device of a rank, if it is named.
        span: Its place in the text.
    """

    kind: str
    indices: tuple[int, ...] | None
    wrappers: tuple[str, ...]
    owned: Devices | None
    span: Span


@dataclass(frozen=True)
class Words:
    """The words behind the memories of a transfer; None where a word is not given.

    Attributes:
        engine: What moves the bytes.
        size: Bytes of one buffer.
        blocks, threads: Shape of a kernel; for CPUs, the number of threads.
    """

    engine: Engine | None = None
    size: int | None = None
    blocks: int | None = None
    threads: int | None = None


@dataclass(frozen=True)
class Statement:
    """One or several transfers with the same words.

    Attributes:
        sources, destinations: The memories.
        pulls: Whether the destination executes; the source otherwise.
        executors: A third device that executes; empty if one of the two sides does.
        role: Whether the transfers are measured.
        latency: Whether the time of one dependent load is measured.
        words: Engine, size and the rest.
        places: Places of the words in the text, for errors.
        span: Place of the statement in the text.
    """

    sources: tuple[Devices, ...]
    destinations: tuple[Devices, ...]
    pulls: bool
    executors: tuple[Devices, ...]
    role: Role
    latency: bool
    words: Words
    places: dict[str, Span]
    span: Span


@dataclass(frozen=True)
class RunSetting:
    """A setting of the whole run that a statement contains.

    Attributes:
        name: Option of the run: ``copies`` or ``samples``.
        value: Its value.
        span: Its place in the text.
    """

    name: str
    value: int
    span: Span


@dataclass(frozen=True)
class Line:
    """Transfers that start together.

    Attributes:
        source: The text.
        statements: The transfers.
        settings: Settings of the run.
    """

    source: Source
    statements: tuple[Statement, ...]
    settings: tuple[RunSetting, ...] = ()
