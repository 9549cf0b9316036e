"""Capabilities of standard output, and text that is safe to show there."""

from __future__ import annotations

import codecs
import os
import re
import shutil
import sys

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
_IN_JSON = {code: f"\\u{code:04x}" for code in _HIDDEN}
#: Name of the error handler that replaces characters that an encoding lacks.
PLAIN = "wirespeed.plain"
#: Replacements of the same width, so that tables remain aligned.
_PLAIN = str.maketrans("↔→←·…×−–—µ±≤≥─━●✔✖✓▲‼◷■═│║╺╸▏▕’“”„", '-><-.x---u~<>-=|+xv!!o#=||--||\'"""')
_COLOR = re.compile(r"(\x1b\[[0-9;]*m)")
_ONE_LINE = _HIDDEN | {ord("\n"): " ", ord("\t"): " "}


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
    """Whether standard output is a terminal that supports colour, and colour is not disabled.

    Open MPI's mpirun gives each rank its own terminal and forwards its output, possibly to a file.
    """
    return sys.stdout.isatty() and not os.environ.get("NO_COLOR") and "OMPI_COMM_WORLD_RANK" not in os.environ


def columns() -> int:
    """The width of the terminal, from 40 to 1000; 80 if there is no terminal."""
    return min(max(_MIN_COLUMNS, shutil.get_terminal_size().columns), _MAX_COLUMNS)


def visible(text: str, *, colored: bool = False) -> str:
    """Neutralise control characters except line ends, tabs and, if ``colored``, sequences of colours."""
    parts = _COLOR.split(text) if colored else [text]
    return "".join(part if i % 2 else part.translate(_HIDDEN) for i, part in enumerate(parts))


def escaped(json: str) -> str:
    """Neutralise control characters in JSON, whose readers get the same texts."""
    return json.translate(_IN_JSON)


def brief(text: str) -> str:
    """The ``repr`` of an object for people: one line in angle brackets of at most 100 characters."""
    line = one_line(text)
    return f"<{line}>" if len(line) <= _BRIEF - 2 else f"<{line[: _BRIEF - 3]}…>"


def one_line(text: str) -> str:
    """Neutralise control characters and join the text to one line."""
    return text.translate(_ONE_LINE)
