"""Words and lines of a log, which anybody may have written: texts, numbers, rows of tables, and whether a
line says that a run failed.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from ...document import Status
from ...tables import LARGEST
from ...terminal import one_line

#: How the kernel reports a GPU that needs a reset: uncorrectable errors (48, 95), fallen off the bus (79).
LOST_GPU = re.compile(r"NVRM: Xid \([^)]{1,40}\): (48|79|95)\b")
#: What says that a process ended early, and what says that something failed. Anything else that a tool
#: reports is an unknown line.
_ENDED = re.compile(
    r"abort|\bkilled\b|terminate|segmentation|segfault|core dumped|bus error|received signal|on signal|"
    r"timed out|test timeout|time ?limit|timeout: |cancell?ed|exception|traceback|out[ -]of[ -]memory|"
    r"oom.kill|non-?zero|exit(ed)? (with )?(code|status)[ :=]*[1-9]|ended early|interrupted",
    re.IGNORECASE,
)
_FAILURE = re.compile(
    rf"{_ENDED.pattern}|fail|error|fatal|assert|corrupt|mismatch|invalid|not (enough|have enough) |"
    rf"does not validate|{LOST_GPU.pattern}",
    re.IGNORECASE,
)
#: Lines with such words that say something else: warnings, settings, commands, counts of zero, and notices of
#: components of Open MPI, HCOLL and hwloc, which go on: what really ends a run is said again, by the tool or
#: the launcher.
_HARMLESS = re.compile(
    r"^\W*(warn(ing)?|note|info|debug|trace|hint)\b|^\S+: (warning|note|info)\b|"
    r"NCCL (INFO|WARN|TRACE|DEBUG)\b|"
    r"\bUCX\s+(WARN|INFO|DIAG|DEBUG|TRACE)\b|\[LOG_CAT_\w+\]|"
    r"^(export\s+)?[A-Z]\w*=|^[+$] |^(mpirun|mpiexec|prterun|srun|prun)[.\w]*\s+-|"
    r"\S+@\S+[$#] |"
    r"more process(es)? ha(s|ve) sent help message|to see all help / error messages|PMIX ERROR: |"
    r"\b(coll|btl|mtl|pml|osc|common|mca)_\w+\.c:\d+|failed an OFI Libfabric library call|"
    r"could result in memory corruption|\byour job may \w+|^data corruption\.  The use of fork|"
    r"^\*+ .*\bhwloc\b|^\W*Error occurred in topology\.c|"
    r"\b(0|no|zero|without)\s+(\w+\s+)?(errors?|fail\w*|mismatch\w*|corrupt\w*)|"
    r"(errors?|failed|failures?|mismatches)\s*[:=]\s*0\b",
    re.IGNORECASE,
)
#: What compilers and other tools that build a program say, which measures nothing then.
_BUILD = re.compile(
    r"^(configure|g?make(\[\d+\])?|cmake|ninja|nvcc|gcc|g\+\+|cc1plus|collect2|(/\S*/)?ld)( \w+)* *:|"
    r"^CMake Error\b|^\S+\.(c|cc|cpp|cu|h|hpp)(:\d+:\d+|\(\d+\)): (fatal )?error: ",
    re.IGNORECASE,
)
#: What MPI reports of a call that failed. A tool that had printed its last line did not make it.
_OF_MPI = re.compile(r"^\[\S+:\d+\] \*\*\* +(An error occurred in|reported by process|on \w|MPI_ERR|and )")
_WRONG_DATA = re.compile(
    r"validat|verification error|corrupt|mismatch|wrong|out of bounds|invalid value", re.IGNORECASE
)


def status_of(reason: str) -> Status:
    """The status of a run that failed for this reason: wrong data, or another error."""
    return Status.FAILED if _WRONG_DATA.search(reason) else Status.ERROR


def says_failure(line: str, *, outside: bool = False) -> bool:
    """Whether a line of a log says that the run failed: in words of the tool, of MPI or of a shell.

    Args:
        line: The line.
        outside: Whether the run had not begun, or had ended already as it should: then only the early end of
            a process counts. What else failed, such as an entry of ssh, did not fail the run.
    """
    if outside and _OF_MPI.match(line):
        return False
    found = _ENDED if outside else _FAILURE
    return bool(found.search(line)) and not (_HARMLESS.search(line) or _BUILD.match(line))


#: A code block of Markdown begins or ends.
_FENCE = re.compile(r"\s*(```|~~~)")


def prose(lines: Sequence[str]) -> frozenset[int]:
    """The indices of sentences outside of the code blocks of a Markdown text, whose author wrote them."""
    fences = [i for i, line in enumerate(lines) if _FENCE.match(line)]
    if not fences or len(fences) % 2:
        return frozenset()
    inside = {i for first, last in zip(fences[::2], fences[1::2], strict=True) for i in range(first, last)}
    return frozenset(i for i, line in enumerate(lines) if i not in inside and _is_sentence(line))


def _is_sentence(line: str) -> bool:
    """Whether a line has some words and ends as sentences do, and no program or place before them."""
    words = line.split()
    is_long = len(words) > 4 and not words[0].startswith("[") and not words[0].endswith(":")
    return is_long and words[-1].rstrip("*_`)]\"'").endswith((".", ":", "!", "?", "|"))


#: Maximum number of characters of a text from a log, and of what it says of a failure.
_LONGEST_TEXT, _LONGEST_REASON = 120, 300
#: Maximum number of devices that a log may have, of columns and of rows.
MOST_DEVICES = 1024
#: Smallest value above 0 that is possible, in base units: quotients of such values remain finite.
_SMALLEST = 1 / LARGEST
_NUMBER = re.compile(r"[-+]?(\d+(\.\d*)?|\.\d+)([eE][-+]?\d{1,3})?")
#: Number of a row, or of two ranks.
_LABEL = re.compile(r"\d{1,6}(->\d{1,6})?")
#: A row of a table that lacks some of its columns.
_PART_OF_ROW = re.compile(r"\d{1,6}(->\d{1,6})?(\s+([-+\d.eE]+|N/A))+")
#: Texts of cells without a value.
_NONE = ("N/A", "n/a", "-", "nan", "-nan")


def text(raw: str) -> str:
    """A text of a log, short and without control characters."""
    return one_line(raw).strip()[:_LONGEST_TEXT]


def reason_of(line: str) -> str:
    """What a line says of a failure, without control characters."""
    return one_line(line).strip()[:_LONGEST_REASON]


def number(word: str) -> float | None:
    """The number that a word is; None for words that stand for no value.

    Raises:
        ValueError: If it is neither, or out of range.
    """
    if word in _NONE:
        return None
    if not _NUMBER.fullmatch(word):
        raise ValueError(f"{word!r} is not a number")
    value = float(word)
    if not math.isfinite(value) or abs(value) > LARGEST:
        raise ValueError(f"{word!r} is out of range")
    return value


def whole(word: str) -> int:
    """The whole number that a word is, -1 or larger.

    Raises:
        ValueError: If it is not one.
    """
    if not re.fullmatch(r"-1|\d{1,18}", word):
        raise ValueError(f"{word!r} is not a whole number")
    return int(word)


def scaled(values: Iterable[float | None], scale: float) -> tuple[float | None, ...]:
    """Values in base units; those that are negative or out of range become None."""
    return tuple(
        v * scale if v is not None and (v == 0 or _SMALLEST <= v * scale <= LARGEST) else None for v in values
    )


def in_base(word: str | None, scale: float = 1.0) -> float | None:
    """The value that a word is, in base units; None if it is none, or out of range."""
    try:
        return scaled([number(word or "")], scale)[0]
    except ValueError:
        return None


def grid(lines: Sequence[str], start: int) -> tuple[list[str], list[tuple[str, list[float | None]]], int]:
    """Read a table of numbers: a line of column numbers, and lines of a row number and values.

    Args:
        lines: The lines of a log.
        start: Index of the line of column numbers.

    Returns:
        columns: The column numbers; empty if there is no table.
        rows: Row number and values of each row.
        end: Index of the first line behind the table.
    """
    if start >= len(lines):
        return [], [], start
    columns = lines[start].replace("D\\D", "").split()
    if columns[:1] in (["GPU"], ["CPU"]):
        columns = columns[1:]
    if not columns or len(columns) > MOST_DEVICES or not all(re.fullmatch(r"\d{1,6}", c) for c in columns):
        return [], [], start
    rows: list[tuple[str, list[float | None]]] = []
    at = start + 1
    while at < len(lines) and len(rows) < MOST_DEVICES:
        row = _row(lines[at], len(columns))
        if row:
            rows.append(row)
        elif not _PART_OF_ROW.fullmatch(lines[at].strip()):
            break
        at += 1
    return columns, rows, at


def by_label(rows: Sequence[tuple[str, list[float | None]]], columns: int) -> list[list[float | None]]:
    """The rows of a square matrix up to the last one, with empty ones for those that the log lacks."""
    if not all(label.isdigit() and int(label) < columns for label, _ in rows):
        return [values for _, values in rows]
    found = {int(label): values for label, values in rows}
    return [found.get(i, [None] * columns) for i in range(max(found, default=-1) + 1)]


def _row(line: str, columns: int) -> tuple[str, list[float | None]] | None:
    """Label and values of a row; None if it is not one. Wide values may touch their neighbours."""
    label, *words = line.split() or [""]
    if len(words) != columns:
        width = 10
        cut = len(line.rstrip()) - width * columns
        label, tail = line[: max(cut, 0)].strip(), line[max(cut, 0) :].rstrip()
        words = [tail[i * width : (i + 1) * width].strip() for i in range(columns)] if cut > 0 else []
    if len(words) != columns or not _LABEL.fullmatch(label):
        return None
    try:
        return label, [number(word) for word in words]
    except ValueError:
        return None


def numbers(line: str) -> list[float | None] | None:
    """The numbers with which a line begins; None if there are none. A remark may follow; stars are bold."""
    found: list[float | None] = []
    for word in line.split():
        try:
            found.append(number(word.strip("*")))
        except ValueError:
            break
    return found or None


def size_of(value: float | None) -> int | None:
    """A number as a size in bytes; None if it is none."""
    return int(value) if value is not None and value == int(value) and 0 <= value < 2**60 else None


def in_units(values: Mapping[int, float | None], scale: float) -> dict[int, float | None]:
    """The values of each size in base units."""
    return dict(zip(values, scaled(values.values(), scale), strict=True))


def items_of(value: object) -> list[Any]:
    """The items of a list of JSON; none if the value is no list."""
    return value if isinstance(value, list) else []


def fields_of(value: object) -> dict[str, Any]:
    """The fields of an object of JSON; none if the value is no object."""
    return value if isinstance(value, dict) else {}


def without_cut_line(lines: list[str]) -> str:
    """Remove the last line of a text without a line end, if it is part of a row; return it, else nothing.

    The columns of a table are aligned, so that a row that ends before the row above it is cut: the number of
    decimals says nothing, because large numbers have fewer.
    """
    above, last = (line.split() for line in ["", "", *lines][-2:])
    if not above or not last or not _is_value(above[-1]):
        return ""
    is_row = _is_value(last[0]) if _is_value(above[0]) else _is_value(last[-1])
    return lines.pop() if is_row and len(lines[-1].rstrip()) < len(lines[-2].rstrip()) else ""


def _is_value(word: str) -> bool:
    return bool(_NUMBER.fullmatch(word)) or word in _NONE
