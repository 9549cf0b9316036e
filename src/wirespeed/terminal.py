"""What a program shows at a terminal: the capabilities of standard output, text that is safe to show there,
the correction of misspelt names, and what results offer at a prompt.
"""

from __future__ import annotations

import codecs
import os
import re
import shutil
import sys
from collections.abc import Collection, Iterator
from difflib import get_close_matches
from importlib import import_module
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    import pandas

#: Range of widths: lines are padded to the width, which the environment may set to any number.
_MIN_COLUMNS, _MAX_COLUMNS = 40, 1000
#: Maximum length of the ``repr`` of a result.
_BRIEF = 100
#: Control characters (escape sequences for a terminal begin with one) become visible pictures;
#: characters that change the text direction, lone surrogates, and what XML forbids, a replacement character.
_HIDDEN = {code: 0x2400 + code for code in range(0x20) if chr(code) not in "\n\t"}
_HIDDEN |= {0x7F: 0x2421} | dict.fromkeys(range(0x80, 0xA0), 0xFFFD)
_HIDDEN |= dict.fromkeys((0x61C, 0x200E, 0x200F, *range(0x202A, 0x202F), *range(0x2066, 0x206A)), 0xFFFD)
_HIDDEN |= dict.fromkeys((0x2028, 0x2029, 0xFEFF, 0xFFFE, 0xFFFF, *range(0xD800, 0xE000)), 0xFFFD)
_ANY_HIDDEN = re.compile(f"[{re.escape(''.join(map(chr, _HIDDEN)))}]")
_IN_JSON = {code: f"\\u{code:04x}" for code in _HIDDEN}
#: Name of the error handler that replaces characters that an encoding lacks.
PLAIN = "wirespeed.plain"
#: Replacements of the same width, so that tables remain aligned.
_PLAIN = str.maketrans("↔→←·…×−–—µ±≤≥─━●✔✖✓▲‼◷■═│║╺╸▏▕’“”„", '-><-.x---u~<>-=|+xv!!o#=||--||\'"""')
_COLOR = re.compile(r"(\x1b\[[0-9;]*m)")
_ONE_LINE = _HIDDEN | {ord("\n"): " ", ord("\t"): " "}
#: Maximum length of a line of an error or a screen, and of an error without what is printed before it.
LONGEST_LINE, _LONGEST_ERROR = 500, 450
#: What JSON writes for characters that `one_line` replaces, escaped or in UTF-8; and an escaped backslash,
#: which begins no escape. Half a surrogate pair is no text, and refused by the decoder.
_HIDDEN_CODES = [code for code in _ONE_LINE if not 0xD800 <= code < 0xE000]
_HIDDEN_IN_JSON = re.compile(
    rb"\\(?:\\|([nrtbf])|u(%b))|%b"
    % (
        "|".join(f"(?i:{code:04x})" for code in _HIDDEN_CODES).encode(),
        b"|".join(chr(code).encode() for code in _HIDDEN_CODES if code >= 0x7F),
    )
)
_ESCAPES = {b"n": "\n", b"t": "\t", b"r": "\r", b"b": "\b", b"f": "\f"}


def shows_unicode() -> bool:
    """Whether the locale is anything but C: Python uses UTF-8 then, but the terminal may not."""
    return (os.environ.get("LC_ALL") or os.environ.get("LANG")) not in ("C", "POSIX")


def _plain(error: UnicodeError) -> tuple[str, int]:
    """Similar characters, or ``?``, for those that an encoding lacks."""
    if not isinstance(error, UnicodeEncodeError):
        raise error
    text = error.object[error.start : error.end].translate(_PLAIN)
    return text.encode("ascii", "replace").decode(), error.end


codecs.register_error(PLAIN, _plain)


def colored() -> bool:
    """Whether standard output is a terminal that supports colour (not ``dumb``), and it is not disabled.

    Open MPI's mpirun gives each rank its own terminal and forwards its output, possibly to a file.
    """
    if os.environ.get("NO_COLOR") or os.environ.get("TERM") == "dumb":
        return False
    return sys.stdout.isatty() and "OMPI_COMM_WORLD_RANK" not in os.environ


def columns() -> int:
    """The width of the terminal, from 40 to 1000; 80 if there is no terminal."""
    return min(max(_MIN_COLUMNS, shutil.get_terminal_size().columns), _MAX_COLUMNS)


def visible(text: str, *, colored: bool = False) -> str:
    """Neutralise control characters except line ends, tabs and, if ``colored``, sequences of colours."""
    if not _ANY_HIDDEN.search(text):  # the translation of a large report takes ten times as long
        return text
    parts = _COLOR.split(text) if colored else [text]
    return "".join(part if i % 2 else part.translate(_HIDDEN) for i, part in enumerate(parts))


def escaped(json: str) -> str:
    """Neutralise control characters in JSON, whose readers get the same texts."""
    return json.translate(_IN_JSON)


def brief(text: str) -> str:
    """The ``repr`` of an object: one line in angle brackets of at most 100 characters."""
    line = one_line(text)
    return f"<{line}>" if len(line) <= _BRIEF - 2 else f"<{line[: _BRIEF - 3]}…>"


def one_line(text: str) -> str:
    """Neutralise control characters, join the text to one line, and omit the middle of a very long one."""
    return shortened(flat(text), LONGEST_LINE)


def flat(text: str) -> str:
    """Neutralise control characters and join the text to one line of any length."""
    return text.translate(_ONE_LINE)


def neutral_json(data: bytes) -> bytes:
    """Neutralise control characters in the texts of JSON, each of which becomes one line.

    It is applied to a file before its texts become part of anything that is shown: then no text of the file
    can make a line of a screen.
    """
    if data.isascii() and b"\\" not in data and b"\x7f" not in data:  # most of the large ones
        return data
    return _HIDDEN_IN_JSON.sub(_neutral_json, data)


def _neutral_json(found: re.Match[bytes]) -> bytes:
    letter, code = found.groups()
    if letter is not None:
        return flat(_ESCAPES[letter]).encode()
    if code is not None:
        return flat(chr(int(code, 16))).encode()
    return found[0] if found[0].startswith(b"\\") else flat(found[0].decode()).encode()


def neutral(value: Any, but: str = "") -> Any:
    """Neutralise control characters in the texts of plain data, such as TOML's; not below one name."""
    if isinstance(value, str):
        return flat(value)
    if isinstance(value, dict):
        return {flat(name): part if name == but else neutral(part, but) for name, part in value.items()}
    return [neutral(part, but) for part in value] if isinstance(value, list) else value


def shortened(text: str, most: int) -> str:
    """A text without its middle if it is longer than this: begin and end say the most."""
    if len(text) <= most:
        return text
    end = most // 3
    return f"{text[: most - end - 1]}…{text[-end:]}"


def first_clause(text: str) -> str:
    """The beginning of the description of an option, which names it."""
    for end in ("; ", ": ", " (", ", such as"):
        text = text.partition(end)[0]
    return text


def short_lines(text: str) -> str:
    """A text without the middle of its long lines, except those that are mostly numbers: rows of tables."""
    if len(text) <= LONGEST_LINE:
        return text
    lines = text.split("\n")
    for i, line in enumerate(lines):
        if len(line) > LONGEST_LINE and sum(map(str.isalpha, line)) > len(line) // 4:
            lines[i] = shortened(line, LONGEST_LINE)
    return "\n".join(lines)


def error_line(text: str) -> str:
    """An error in one line, whatever the names and contents of files in it are."""
    return shortened(flat(text), _LONGEST_ERROR)


#: Maximum number of known names that a message lists.
_LISTED = 12
#: Maximum length of a name for which a similar one is searched, in characters: the search is quadratic.
_LONGEST = 100


def meant(name: str, known: Collection[str]) -> str:
    """`` (did you mean 'link'?)``: the known name that is nearest to a wrong one; empty if none is near.

    Upper case, dashes and underscores make no difference.
    """
    if len(name) > _LONGEST:
        return ""
    folded = {_folded(other): other for other in known}
    near = get_close_matches(_folded(name), folded, 1)
    return f" (did you mean {str(folded[near[0]])!r}?)" if near else ""


class UnknownName(NamedTuple):
    """A name that a type does not have.

    Attributes:
        place: Where it is in the file: ``override[0]``; empty at the top.
        name: The name.
        hint: The name that was probably meant, or those that are known.
    """

    place: str
    name: str
    hint: str

    def __str__(self) -> str:
        return f"unknown name {self.name!r}{f' in {self.place}' if self.place else ''}{self.hint}"


def unknown_name(value: object, kind: Any) -> UnknownName | None:
    """The first name in decoded TOML or JSON that its type does not have; None if there is none.

    Args:
        value: Plain data.
        kind: The type to which it is to be converted: a dataclass or a Struct, possibly of others.
    """
    from msgspec import inspect

    for place, name, known in _unknown(value, inspect.type_info(kind), ""):
        listed = f"; use {', '.join(known)}" if len(known) <= _LISTED else ""
        return UnknownName(place, name, meant(name, known) or listed)
    return None


def _unknown(value: object, kind: Any, place: str) -> Iterator[tuple[str, str, list[str]]]:
    """Yield the unknown names: their place, the name, and the names that are known there."""
    from msgspec import inspect

    if isinstance(kind, inspect.UnionType):
        for one in kind.types:
            yield from _unknown(value, one, place)
    elif isinstance(value, dict):
        if isinstance(kind, inspect.StructType | inspect.DataclassType):
            fields = {field.encode_name: field.type for field in kind.fields}
            for name, part in value.items():
                if name not in fields:
                    yield place, str(name), list(fields)
                elif isinstance(part, dict | list):
                    yield from _unknown(part, fields[name], f"{place}.{name}" if place else name)
        elif isinstance(kind, inspect.DictType):
            for name, part in value.items():
                yield from _unknown(part, kind.value_type, f"{place}.{name}" if place else str(name))
    elif isinstance(value, list) and isinstance(kind, inspect.VarTupleType | inspect.ListType):
        for i, part in enumerate(value):
            yield from _unknown(part, kind.item_type, f"{place}[{i}]")


def _folded(name: str) -> str:
    return name.lower().replace("_", "-")


class Tabular:
    """Base of results: what each offers at a prompt and in notebooks.

    ``reports`` knows their forms, and is imported when you ask for one.
    """

    __slots__ = ()

    if TYPE_CHECKING:

        @property
        def simulated(self) -> bool:
            """Whether no hardware was measured."""

    def _section(self) -> object:
        """What ``reports`` shows: the result itself, or a table of it with a name."""
        return self

    def _repr_html_(self) -> str:
        """The result for a notebook: tables without scripts, for light and dark themes."""
        return str(report("html.notebook").notebook_html(self._section()))

    def to_pandas(self) -> pandas.DataFrame:
        """A data frame with one row per cell. Values are in base units: B/s, s, 1/s and bytes.

        Raises:
            MissingPackage: If pandas is not installed.
        """
        return report("records").to_pandas(self._section())

    def _drew(self) -> bool:
        """Show the result with its chart or heat map if this is a notebook; return whether it is."""
        running = getattr(sys.modules.get("IPython"), "get_ipython", lambda: None)()
        if not hasattr(running, "kernel"):
            return False
        import_module("IPython.display").display(self)
        return True


def report(name: str) -> Any:
    """A module of ``reports``, which stands above all results and imports them."""
    return import_module(f"{__package__}.reports.{name}")


def screen(name: str) -> Any:
    """A module of ``screens``, which stands above all results, too."""
    return import_module(f"{__package__}.screens.{name}")
