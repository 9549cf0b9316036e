"""JSON as jsoncpp writes it by default, for programs that read it line by line."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence

from ..tables import Cell


def styled(value: object) -> str:
    """A value with a tab for each level, sorted keys, and ``[`` and ``{`` of a value on a line of their own.

    Args:
        value: Objects, arrays, texts, numbers, truth values and None. Numbers that are not integers have 17
            digits; those that are no number become null.
    """
    return "\n".join(_lines(value, "")) + "\n"


def row_of(cells: Sequence[Cell | None], scale: float) -> list[str]:
    """The texts of the cells of a row: six digits, or ``N/A``."""
    return ["N/A" if cell is None or cell.value is None else f"{cell.value / scale:.6g}" for cell in cells]


def _lines(value: object, indent: str) -> list[str]:
    if isinstance(value, dict) and value:
        parts = [_member(key, value[key], f"{indent}\t") for key in sorted(value)]
        brackets = "{}"
    elif isinstance(value, list | tuple) and value:
        parts = [_lines(element, f"{indent}\t") for element in value]
        brackets = "[]"
    else:
        return [indent + _scalar(value)]
    body = [line for part in parts[:-1] for line in [*part[:-1], f"{part[-1]},"]] + parts[-1]
    return [indent + brackets[0], *body, indent + brackets[1]]


def _member(key: str, value: object, indent: str) -> list[str]:
    """A key and its value, which follows in the same line if it has one line."""
    name, lines = f"{indent}{json.dumps(key)} : ", _lines(value, indent)
    return [name, *lines] if len(lines) > 1 else [name + lines[0].removeprefix(indent)]


def _scalar(value: object) -> str:
    if not isinstance(value, float):
        return json.dumps(value)
    if not math.isfinite(value):
        return "null"
    text = f"{value:.17g}"
    return text if "." in text or "e" in text else f"{text}.0"
