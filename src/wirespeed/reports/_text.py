"""Neutralise text from a file: show it as it is, without side effects on the terminal or page."""

from __future__ import annotations

#: Control characters (escape sequences for a terminal begin with one) become visible pictures;
#: characters that change the text direction, and lone surrogates, become a replacement character.
_HIDDEN = {code: 0x2400 + code for code in range(0x20) if chr(code) not in "\n\t"}
_HIDDEN |= {0x7F: 0x2421} | dict.fromkeys(range(0x80, 0xA0), 0xFFFD)
_HIDDEN |= dict.fromkeys((0x61C, 0x200E, 0x200F, *range(0x202A, 0x202F), *range(0x2066, 0x206A)), 0xFFFD)
_HIDDEN |= dict.fromkeys((0x2028, 0x2029, 0xFEFF), 0xFFFD) | dict.fromkeys(range(0xD800, 0xE000), 0xFFFD)
_ONE_LINE = _HIDDEN | {ord("\n"): " ", ord("\t"): " "}


def visible(text: str) -> str:
    """Neutralise control characters, except line ends and tabs."""
    return text.translate(_HIDDEN)


def one_line(text: str) -> str:
    """Neutralise control characters and join the text to one line."""
    return text.translate(_ONE_LINE)
