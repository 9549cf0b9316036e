"""Words and lines of a log: texts, numbers, rows of tables, and whether a line says that a run failed.

It may have been written by anybody: the tool, MPI, Slurm or a shell.

What launchers and log collectors put before each line: labels, ranks, hosts, pods, times, also several. No
list of launchers is needed. Every tool prints some lines that are known; the text before such a line is a
prefix if the lines that follow share it. Its digits, times and names of months may differ from line to line.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

from ...document import Status
from ...tables import LARGEST
from ...terminal import one_line
from ...units import many

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
    r"does not validate",
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
_WRONG_DATA = re.compile(r"validat|corrupt|mismatch|wrong|out of bounds|invalid value", re.IGNORECASE)


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


#: Tags that mark the tables and blocks of a post.
_TAG = re.compile(
    r"</?(?:pre|code|br|table|thead|tbody|tr|td|th|b|strong)\b[^<>]{0,200}>",
    re.IGNORECASE,
)


def unmarked(line: str, known: Sequence[re.Pattern[str]]) -> str:
    """A line without the tags and bars of the table that it was put into; of cells, the one that is known.

    Args:
        line: The line.
        known: Lines that tools print, from their beginning on.
    """
    if "<" in line and _TAG.search(line):
        line = _TAG.sub(" ", line).strip()
    if line.lstrip().startswith("|") and line.count("|") > 1:
        cells = [cell.strip() for cell in line.split("|")]
        line = next(
            (cell for cell in cells if any(one.match(cell) for one in known)), " ".join(cells).strip()
        )
    return line


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


#: Number of lines behind a known line in which its prefix is looked for; at least half of them must have it.
_FOLLOWING = 20
#: Maximum number of different prefixes of a text, and of characters of a prefix.
_MOST_PREFIXES, _LONGEST = 64, 200
#: Number of digits from which a number in a prefix, such as a time in seconds, keeps its length.
_LONG_NUMBER = 9
#: Parts of a prefix that differ from line to line -> the pattern for all of them.
_VARYING = (
    (re.compile(r"\d{1,2}:\d\d:\d\d([.,]\d+)?"), r"\d{1,2}:\d\d:\d\d(?:[.,]\d+)?"),
    (re.compile(r"\b(Mon|Tue|Wed|Thu|Fri|Sat|Sun)\b"), r"(?:Mon|Tue|Wed|Thu|Fri|Sat|Sun)"),
    (
        re.compile(r"\b(Jan|Feb|Mar|Apr|May|Jun|Jul|Aug|Sep|Oct|Nov|Dec)\b"),
        r"(?:Jan|Feb|Mar|Apr|May|Jun|Jul|Aug|Sep|Oct|Nov|Dec)",
    ),
    (re.compile(r"std(out|err|diag)"), "std(?:out|err|diag)"),
    (re.compile(r"\s+"), r"\s*"),
)
_DIGITS = re.compile(r"\d+")
#: A date or a time, which says nothing of the process that printed a line.
_TIME = re.compile(
    r"\b(Mon|Tue|Wed|Thu|Fri|Sat|Sun)\b|\b(Jan|Feb|Mar|Apr|May|Jun|Jul|Aug|Sep|Oct|Nov|Dec)\b[ ]+\d{1,2}\b|"
    r"\d{4}-\d\d-\d\d|T?\d{1,2}:\d\d:\d\d([.,]\d+)?( ?[AP]M)?(Z|[+-]\d\d:?\d\d)?|"
    r"\b(19|20)\d\d(?!\d)|\d+\.\d{3,}|\d{9,}"
)
#: A prefix has a character that no number and no word has, or a long number.
_SIGN = re.compile(r"[^\w\s.]|\d{9}")
#: How a label ends that a launcher repeats within a line of which it got the parts one by one.
_REPEATED = ("]", ":", ">", "|", ")")
_ROW = re.compile(r"\s*\d")
#: Numbers of a line whose digits decide nothing: those of names, such as GPU0 and int8, do.
_NUMBERS = re.compile(r"(?<![A-Za-z_\d])\d+")


@dataclass
class Stream:
    """The lines of one job, without what was put before them.

    Attributes:
        lines: The lines.
        removed: The prefix of the first line that had one of its form -> number of lines from which it was
            removed.
    """

    lines: list[str] = field(default_factory=list)
    removed: dict[str, int] = field(default_factory=dict)

    @property
    def notes(self) -> list[str]:
        """What was removed, for people."""
        return [
            f"prefix {one_line(prefix)!r} removed from {many(count, 'line')}"
            for prefix, count in self.removed.items()
        ]


def without_prefixes(lines: Sequence[str], known: Sequence[re.Pattern[str]]) -> list[Stream]:
    """Remove the prefixes of lines; lines of several jobs, each with its label, become a stream for each.

    Args:
        lines: The lines of a text.
        known: Lines that tools print, from their beginning on.
    """
    labels: set[str] = set()
    seen: set[str] = set()
    forms: dict[str, str] = {}
    for at, start in _anchors(lines, known):
        prefix = lines[at][:start].rstrip()
        form = _form(prefix)
        is_repeated = form in seen or set(prefix) <= {">", " "}  # a quotation may have it once a paragraph
        seen.add(form)
        if form not in forms and not (is_repeated or _is_shared(form, lines[at + 1 :])):
            continue
        if form in forms or len(forms) < _MOST_PREFIXES:
            forms.setdefault(form, prefix.strip())
            labels.add(_label(prefix))
    if not forms:
        return [Stream(list(lines))]
    ordered = sorted(forms, key=len, reverse=True)
    pattern = re.compile("|".join(f"({form})" for form in ordered))
    streams: dict[str, Stream] = {}
    current = ""
    for line in lines:
        match = pattern.match(line)
        if match and match.lastindex:
            form = ordered[match.lastindex - 1]
            label = _label(match[0])
            current = label if len(labels) > 1 and label in labels else current
            line = _rest(line[match.end() :], match[0], form)
            stream = streams.setdefault(current, Stream())
            stream.removed[forms[form]] = stream.removed.get(forms[form], 0) + 1
        streams.setdefault(current, Stream()).lines.append(line)
    return list(streams.values())


def _anchors(lines: Sequence[str], known: Sequence[re.Pattern[str]]) -> Iterator[tuple[int, int]]:
    """Yield the index of each line that contains a known one behind some text, and where that begins."""
    places: dict[str, int] = {}  # line without its numbers -> where it is known; most lines repeat a form
    for at, line in enumerate(lines):
        head = line[: 2 * _LONGEST]
        shape = _NUMBERS.sub(_zeros, head)
        if shape not in places:
            begins = any(pattern.match(head.lstrip()) for pattern in known)
            starts = [] if begins else [m.start() for pattern in known if (m := pattern.search(head))]
            places[shape] = min(starts, default=0)
        if 0 < (start := places[shape]) <= _LONGEST and _SIGN.search(head[:start]):
            yield at, start


def _zeros(number: re.Match[str]) -> str:
    return "0" * len(number[0])


def _form(prefix: str) -> str:
    """The pattern of a prefix, of which digits, times, names of months and spaces may differ."""
    parts, at = [r"\s*"], len(prefix) - len(prefix.lstrip())
    while at < len(prefix):
        for varying, general in _VARYING:
            if match := varying.match(prefix, at):
                parts.append(general)
                break
        else:
            if match := _DIGITS.match(prefix, at):
                size = len(match[0])
                parts.append(rf"\d{{{size}}}" if size >= _LONG_NUMBER else r"\d+")
            else:
                parts.append(re.escape(prefix[at]))
        at = match.end() if match else at + 1
    return "".join((*parts, " ?"))


def _is_shared(form: str, following: Sequence[str]) -> bool:
    """Whether at least half of the next lines that are not empty have a prefix."""
    pattern = re.compile(form)
    having = [bool(pattern.match(line)) for line in islice(filter(str.strip, following), _FOLLOWING)]
    return sum(having) > 0 and 2 * sum(having) >= len(having)


def _label(prefix: str) -> str:
    """What a prefix says of who printed a line: the same at every time."""
    return "".join(_TIME.sub("", prefix).split())


def _rest(rest: str, prefix: str, form: str) -> str:
    """The rest of a line; without the labels that a launcher repeats within a row of numbers."""
    own = prefix.strip()
    if not own.endswith(_REPEATED) or not _ROW.match(rest):
        return rest
    inner = re.escape(own) if own[0].isdigit() else form.removeprefix(r"\s*").removesuffix(" ?")
    return re.sub(rf"{inner}(?=\s)", "", rest)
