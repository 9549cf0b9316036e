"""Text from a file made harmless for those who look at it: it shows what it is and changes nothing else."""

from __future__ import annotations

#: Control characters (escape sequences for a terminal begin with one) become pictures of themselves;
#: those that change the direction of what follows, and lone surrogates, become a replacement sign.
_HIDDEN = {code: 0x2400 + code for code in range(0x20) if chr(code) not in "\n\t"}
_HIDDEN |= {0x7F: 0x2421} | dict.fromkeys(range(0x80, 0xA0), 0xFFFD)
_HIDDEN |= dict.fromkeys((0x61C, 0x200E, 0x200F, *range(0x202A, 0x202F), *range(0x2066, 0x206A)), 0xFFFD)
_HIDDEN |= dict.fromkeys((0x2028, 0x2029, 0xFEFF), 0xFFFD) | dict.fromkeys(range(0xD800, 0xE000), 0xFFFD)
_ONE_LINE = _HIDDEN | {ord("\n"): " ", ord("\t"): " "}


def visible(text: str) -> str:
    """Return a text in which no character acts, but line ends and tabs."""
    return text.translate(_HIDDEN)


def one_line(text: str) -> str:
    """Return the same on one line."""
    return text.translate(_ONE_LINE)
