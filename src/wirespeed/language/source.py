"""Text of the language with its origin, for errors that show line, column and a caret."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path

from ..errors import UsageError
from ..files import LARGEST_WRITTEN, read
from ..terminal import error_line, one_line

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
        place = f"  {shown}\n  {' ' * (at - low)}{carets}"
        return LanguageError(f"{where}line {line}, column {column}: {message}", place)


def nearest(name: str, valid: Collection[str]) -> str:
    """A hint to the valid name that is nearest to a wrong one, or to all of them."""
    if near := get_close_matches(name, valid, 1):
        return f"did you mean {near[0]}?"
    names = list(valid)
    more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
    return f"choose from {', '.join(names[:_NAMED])}{more}" if names else "there is none"


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
