"""Statistics of the times of single iterations, as nccl-tests shows them.

JSON as jsoncpp writes it by default, for programs that read it line by line.
"""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass

from ..tables import Cell


@dataclass(frozen=True)
class Spread:
    """Statistics of iteration times.

    Attributes:
        min, max, mean: Range and mean, in s.
        p50, p95, p99: Percentiles, in s.
        deviation: Standard deviation, in s.
        cv: Standard deviation over mean, in percent.
    """

    min: float
    max: float
    mean: float
    p50: float
    p95: float
    p99: float
    deviation: float
    cv: float


def steady(times: Sequence[float], of_cycle: int, skip: int) -> tuple[float, ...]:
    """Times without the first ``skip`` of each cycle of ``of_cycle`` iterations (0: of all)."""
    return tuple(time for i, time in enumerate(times) if i % (of_cycle or len(times)) >= skip)


def spread(times: Sequence[float]) -> Spread:
    """The statistics that nccl-tests shows, of at least one time in s; percentiles by nearest rank."""
    ordered = sorted(times)
    n = len(ordered)
    mean = math.fsum(ordered) / n
    deviation = math.sqrt(math.fsum((time - mean) ** 2 for time in ordered) / n)

    def rank(percent: int) -> float:
        return ordered[min(n - 1, -(-n * percent // 100) - 1)]

    return Spread(
        ordered[0], ordered[-1], mean, ordered[n // 2], rank(95), rank(99), deviation,
        100 * deviation / mean if mean else 0.0,
    )  # fmt: skip


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
