"""What launchers and log collectors put before each line: labels, ranks, hosts, pods, times, also several. No
list of launchers is needed. Every tool prints some lines that are known; the text before such a line is a
prefix if the lines that follow share it. Its digits, times and names of months may differ from line to line.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice

from ...terminal import one_line
from ...units import many

#: Tags that mark the tables and blocks of a post.
_TAG = re.compile(r"</?(?:pre|code|br|table|thead|tbody|tr|td|th|b|strong)\b[^<>]{0,200}>", re.IGNORECASE)


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
#: Numbers of a line whose digits decide nothing: the digits of names, such as GPU0 and int8, do.
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
        """The removed parts of lines, in words."""
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
