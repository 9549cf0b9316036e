"""The table of nccl-tests, read by the words of its heading: people post tables without the half in place,
the last column, or the heading. A row that lacks words is none.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from ...collectives.data_types import BY_NAME
from ...tables import Half
from ...units import GB, MICRO
from . import scan
from .log import Halves

#: Names of data types in NCCL's newer versions -> ours.
TYPES = {"fp8_e4m3": "f8e4m3", "fp8_e5m2": "f8e5m2"}
#: Heading of the table: in versions before NCCL 2, and in modified ones, with other names or without ``#``.
HEAD = re.compile(r"(#\s*)?(size|bytes)\s+(count|N)\s+type\b")
#: Columns of results.
HALF = ("time", "algbw", "busbw", "#wrong")
_RESULTS = r"([\d.]+\s+){2}[\d.]+(\s+([\d.]+(e[-+]\d+)?|N/A))?"
#: A row of the table, which an excerpt may begin with: size, count, type, operator, root, times and rates.
ROW = re.compile(
    rf"\d+\s+\d+\s+({'|'.join(map(re.escape, (*BY_NAME, *TYPES)))})\s+([a-z]+\s+)?(-?\d+\s+)?"
    rf"{_RESULTS}(\s+{_RESULTS})?\s*$"
)
#: Above a heading with one half, which half it is.
ONLY_IN_PLACE = re.compile(r"#?\s*in-place$")
#: The columns before the results, in excerpts without a heading.
_FIRST = ("size", "count", "type", "redop", "root")
#: Columns that begin the results out of place and in place, with their names in all versions.
_TIMES = ("time", "cputime")
#: The first column of versions that print times in ms.
_OLDEST = "bytes"
#: A column of two words at the end of a row: date and time.
_STAMP = "timestamp"
#: A root: times of as few digits have decimals.
_ROOT = re.compile(r"-?\d{1,4}")
NO_ROOT = -1
_MILLI = 1e-3
#: The column of versions up to 2.12 with the largest error of an element, which must not exceed this, by data
#: type; of the others, it must be 0. For half, versions allow 1e-2 or 5e-2 (``DeltaMaxValue`` of nccl-tests).
_ERROR, _ALLOWED = "error", {"float": 1e-5, "double": 1e-12, "half": 5e-2, "bfloat16": 5e-2}
#: Largest difference of size and time × algorithm bandwidth, which have three digits or more.
_ROUNDED = 0.02
#: Largest error of a bandwidth with two decimals, in B/s.
PRINTED = 0.0051 * GB
#: Data type, operator and root of some lines.
Key = tuple[str, str, int]


class TableRow(NamedTuple):
    """A row: data type, operator and root, the size in bytes, and the results out of place and in place."""

    key: Key
    size: int
    halves: Halves


def head_of(row: Sequence[str]) -> list[str]:
    """The columns of a row without a heading, which it may lack at the end."""
    first = [*_FIRST[:3]]
    first += ["redop"] if re.fullmatch(r"[a-z]+", row[3]) else []
    first += ["root"] if _ROOT.fullmatch(row[len(first)]) else []
    return [*first, *(HALF * 2)[: len(row) - len(first)]]


def row_of(head: Sequence[str], words: Sequence[str], *, only_in_place: bool = False) -> TableRow | None:
    """Read a row by the words of its heading; None if it is not one, or lacks words."""
    columns = [name for name in head if name != _STAMP]
    words = words[: len(words) - 2 * (len(head) - len(columns))]
    starts = [i for i, name in enumerate(columns) if name in _TIMES]
    if not starts or len(words) < len(_FIRST):
        return None
    operator = words[3] if re.fullmatch(r"[a-z]+", words[3]) else ""
    rest, root, width = list(words[3 + bool(operator) :]), NO_ROOT, len(columns) - starts[0]
    if rest and _ROOT.fullmatch(rest[0]) and ("root" in columns or len(rest) > width):
        root = int(rest.pop(0))
    if len(rest) != width:
        return None
    scale = _MILLI if head[0] == _OLDEST else MICRO
    try:
        named = list(zip(columns[starts[0] :], rest, strict=True))
        halves = [
            half_of(dict(named[a - starts[0] : b - starts[0]]), words[2], scale)
            for a, b in zip(starts, [*starts[1:], len(columns)], strict=True)
        ]
        size = scan.whole(words[0])
    except (KeyError, ValueError):
        return None
    both = [None, *halves] if only_in_place else [*halves, None]
    key = TYPES.get(words[2], scan.text(words[2])), scan.text("" if operator == "none" else operator), root
    return TableRow(key, size, (both[0], both[1]))


def rows_without(head: Sequence[str], rows: Sequence[Sequence[str]]) -> list[TableRow]:
    """The rows of a table all of which lack the same last columns; none if the values contradict that.

    In a row that lacks another column, such as one in the middle, times and rates do not agree.
    """
    found = [row for words in rows if (row := row_of(head[: len(words)], words))]
    halves = [(row.size, half) for row in found for half in row.halves if half]
    agree = all(
        abs(half.seconds * half.algorithm - size) <= _ROUNDED * size + PRINTED * half.seconds
        for size, half in halves
    )
    agree &= len(rows) > 1  # one may have been cut within a word
    return found if agree and len(found) == len(rows) and len({len(words) for words in rows}) == 1 else []


def half_of(words: Mapping[str, str], kind: str, scale: float = MICRO) -> Half | None:
    """A result; None if it has no value.

    Args:
        words: Column -> word; after the bus bandwidth the number of wrong elements, or an error.
        kind: Data type.
        scale: Unit of the time, in s.

    Raises:
        KeyError: If it has no time or bandwidth.
        ValueError: If a word is not a number.
    """
    names = list(words)
    checked = names[names.index("busbw") + 1 :][:1]
    word = words[checked[0]] if checked else "N/A"
    wrong = scan.number(word)
    (seconds,) = scan.scaled([scan.number(words[names[0]])], scale)
    algorithm, bus = scan.scaled([scan.number(words[name]) for name in ("algbw", "busbw")], float(GB))
    if seconds is None or algorithm is None or bus is None:
        return None
    if wrong is not None and (checked == [_ERROR] or "e" in word):
        is_wrong = not wrong <= _ALLOWED.get(kind, 0.0)
        return Half(seconds, algorithm, bus, int(is_wrong), error=wrong if is_wrong else 0.0)
    if wrong is not None and wrong != int(wrong):
        raise ValueError(f"{word!r} is not a number of elements")
    return Half(seconds, algorithm, bus, int(wrong) if wrong is not None and wrong >= 0 else None)
