"""Texts that would make a line of a screen, or an immense one, if something showed them as they are."""

from __future__ import annotations

from typing import Any

#: Characters that end a line somewhere. The line behind each has two blanks in front, unlike a wrapped one.
_ENDS = ("\n", "\r", "\r\n", "\x0b", "\x0c", "\x1c", "\x85", "\u2028", "\u2029")
FORGED = "".join(f"{end}  FORGED" for end in _ENDS)
LONG = " and on" * 200 + "x" * 2_000
#: Texts without which a run would not be one, or would have nothing to show.
_KEPT = {
    "status", "kind", "access", "link", "unit", "engine", "operation", "type", "operator", "key", "options",
    "links", "numa", "caches", "peers", "device", "source", "destination", "started", "ended",
}  # fmt: skip


def forging(value: Any, end: str, key: str = "") -> Any:
    """Plain data of a run with a text at the end of every other text."""
    if isinstance(value, str):
        return value if key in _KEPT else value + end
    if isinstance(value, dict):
        return {name: value[name] if name in _KEPT else forging(value[name], end, name) for name in value}
    return [forging(part, end, key) for part in value] if isinstance(value, list | tuple) else value


def forged(text: str) -> list[str]:
    """The lines that a forged text makes."""
    return [line for line in text.splitlines() if line.startswith("  FORGED")]
