"""Verdicts and outcomes as all views show them: a sign, a colour, a CSS class; never a colour only.

How measured values are written: the one place that rounds them for people.

Texts of the key figures of a run.

Conditions that may explain low values, collected over a whole Document; reports show them once, on top.

Marks of values, gates of a checked run, and files that cannot be read.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from ..document import Document, Status, TestcaseResult, courses
from ..judging.gates import GateComparison, GateResult, GateVerdict
from ..judging.inventory import Missing, missing
from ..judging.judge import Check
from ..judging.key_figures import KeyFigure
from ..judging.omissions import doubts, is_verified
from ..judging.overview import users
from ..judging.suspects import Culprit
from ..judging.verdict import Judgement, Verdict, share
from ..measurement import Unit
from ..peer_access import PeerVerdict
from ..results.compare import Outcome
from ..results.read_many import Unreadable
from ..statistics import grouped
from ..tables import IDLE, RETRAINED, THROTTLED, Cell
from ..testcases.base import DEFAULT_SIZE
from ..testcases.table import TABLE
from ..units import displayed, fitting, format_size, format_time, many, some


@dataclass(frozen=True)
class Look:
    """How to show a verdict.

    Attributes:
        mark: One character.
        style: Style of rich.
        css: Class in pages.
        text: What pages show next to the mark.
    """

    mark: str
    style: str
    css: str
    text: str = ""


#: Each verdict on a value or a threshold, and each outcome of a comparison, by its text.
SIGNS: dict[str, Look] = {
    Verdict.IMPLAUSIBLE: Look("‼", "bold red", "implausible"),
    Verdict.FAIL: Look("✖", "bold red", "fail"),
    Verdict.WARN: Look("▲", "bold yellow", "warn"),
    Verdict.BUSY: Look("◷", "bold yellow", "busy"),
    Verdict.INTERRUPTED: Look("■", "bold yellow", "warn"),
    Verdict.UNKNOWN: Look("?", "bold cyan", "unknown"),
    Verdict.PASS: Look("✓", "bold green", "pass"),
    Verdict.WAIVED: Look("–", "dim", "waived"),
    GateVerdict.IMPOSSIBLE: Look("?", "magenta", "unknown"),
    GateVerdict.UNCLEAR: Look("?", "cyan", "unknown"),
    Outcome.LOST: Look("✖", "red", "fail"),
    Outcome.WORSE: Look("✖", "red", "fail"),
    Outcome.BETTER: Look("✓", "green", "pass"),
    Outcome.UNKNOWN: Look("?", "bold yellow", "unknown"),
}
#: Verdicts by the word that stands for them in tables of runs.
VERDICTS = {verdict.word.upper(): verdict for verdict in Verdict}


def shown(verdict: Verdict | GateVerdict, text: str = "") -> Look:
    """A verdict as pages show it; ``text`` replaces its word."""
    word = verdict.word if isinstance(verdict, Verdict) else verdict
    return replace(SIGNS[verdict], text=text or word)


def css_of(word: str) -> str:
    """The CSS class of a verdict or an outcome; empty for other texts."""
    return SIGNS[word].css if word in SIGNS else ""


def marked(word: str) -> str:
    """A verdict or an outcome with its sign; other texts without one."""
    return f"{SIGNS[word].mark} {word}" if word in SIGNS else word


#: What is known of data of which some is wrong.
WRONG_DATA = "wrong data"


def counted(verdicts: Iterable[Verdict]) -> str:
    """How often each verdict occurs, what was not judged last; empty for none."""
    counts = Counter(verdicts)
    ordered = sorted(Verdict, key=lambda verdict: not verdict.is_judged)
    return ", ".join(f"{counts[verdict]} {verdict.word}" for verdict in ordered if counts[verdict])


def data_word(document: Document, result: TestcaseResult) -> str:
    """What is known of the data of a testcase: verified, or why there is none."""
    if result.status is not Status.PASSED:
        return WRONG_DATA if result.status is Status.FAILED else str(result.status)
    return _verification(document, result)


def verification(document: Document) -> str:
    """Whether the data of a run is right; empty for a log of another tool that does not say."""
    wrong = any(result.status is Status.FAILED for result in document.testcases)
    wrong |= document.peers is not None and PeerVerdict.WRONG in document.peers.verdicts.values()
    return WRONG_DATA if wrong else _verification(document)


def _verification(document: Document, result: TestcaseResult | None = None) -> str:
    """Whether the data of a run or testcase was verified; empty if another tool does not say."""
    words = {True: "data verified", False: "data not verified", None: ""}
    measured = any(table.cells for one in document.testcases for table in one.tables if table.values())
    return words[is_verified(document, result)] if measured else ""


def buffers(document: Document, result: TestcaseResult) -> str:
    """The size of the buffers of a testcase if it is not the default: ``1 MiB buffers``; else empty.

    Of another tool's log, if all of its values are of one size. Curves over the size say it themselves.
    """
    if any(table.is_curve for table in result.tables):
        return ""
    case = next((case for case in TABLE if case.name == result.name), None)
    if document.imported:
        sizes = {cell.bytes for table in result.tables for cell in table.cells if cell.value is not None}
        size = sizes.pop() if len(sizes) == 1 else 0
        default = case.size if case and isinstance(case.size, int) else DEFAULT_SIZE
    else:
        asked = document.options.get("size")
        size = asked if isinstance(asked, int) and case and not case.fixed_size else 0
        default = DEFAULT_SIZE
    return f"{format_size(size)} buffers" if size and size != default else ""


def closing(document: Document, check: Check) -> str:
    """The verdict on a run, how many testcases have each, and whether the data was verified."""
    verdicts = [check.testcases[result.name] for result in document.testcases]
    counts = f"{many(len(verdicts), 'testcase')}: {counted(verdicts)}" if verdicts else "nothing was run"
    data = verification(document)
    ending = document.origin or f"in {format_time(document.seconds)}"
    return f"{check.verdict.word.upper()}  {counts}" + (f" · {data}" if data else "") + f" · {ending}"


#: Significant digits of values in tables, and where values are seen at a glance: overviews, plots, pages.
EXACT, GLANCE = 6, 3
#: Values from this on have no decimals, others at most ``_DECIMALS``.
_NO_DECIMALS, _DECIMALS = 10_000, 2


def number(value: float, scale: float = 1.0, digits: int = EXACT) -> str:
    """Format a value: ``12346``, ``396.18``, ``1.74``, ``0.396``; with ``GLANCE`` digits ``396``.

    Args:
        value: The value, in base units.
        scale: Base units per display unit.
        digits: Significant digits; at most two of them are decimals, and of values below 1 there are three.
            Digits before the point are never dropped.

    Returns:
        The number without its unit.
    """
    shown = value / scale
    size = abs(shown)
    if size < 1:
        return f"{shown:.{GLANCE}g}"
    decimals = 0 if size >= _NO_DECIMALS else min(_DECIMALS, max(0, digits - len(str(int(size)))))
    return f"{shown:.{decimals}f}"


def quantity(value: float, unit: Unit) -> str:
    """A value with a fitting unit, to be seen at a glance: ``396 GB/s``."""
    scale, name = fitting(unit, [value])
    return f"{number(value, scale, GLANCE)} {name}"


def rate(judgement: Judgement) -> str:
    """The value with its unit."""
    return quantity(judgement.value or 0.0, judgement.unit)


def leading(figure: KeyFigure) -> str:
    """The value that stands for a kind of path, with its unit; that there is none if a path failed."""
    return "failed" if figure.failed else rate(figure.lead)


def extent(figure: KeyFigure) -> str:
    """The share of the leading value, with its place and the typical value if it is bad."""
    if figure.failed:
        return f"{lead_share(figure)}; others {share(figure.lead) or 'not judged'}"
    if figure.worst is None:
        return lead_share(figure)
    scale, _ = fitting(figure.lead.unit, [figure.lead.value or 0.0])
    place = f": {figure.place}" if figure.place else ""
    slow, typical = (number(one.value or 0.0, scale, GLANCE) for one in (figure.lead, figure.typical))
    return f"{lead_share(figure)}{place}" + (f"; typical {typical}" if typical != slow else "")


def lead_share(figure: KeyFigure) -> str:
    """The share of the leading value, with what it is a share of; of a kind that failed, where."""
    if figure.failed:
        return some(figure.failed, 1)
    lead, portion = figure.lead, share(figure.lead)
    scale, unit = fitting(lead.unit, [lead.value or 0.0])
    if portion is None:
        return f"expected ≥ {number(lead.least, scale, GLANCE)} {unit}" if lead.least else "no limit known"
    return f"{portion} {number(portion.whole, scale, GLANCE)} {unit}"


def of_limit(figure: KeyFigure, judgement: Judgement) -> float:
    """A value of a figure as a fraction of its limit, which is the end of a bar."""
    return (judgement.value or 0.0) / (judgement.limit or figure.typical.limit or 1.0)


def explanations(
    document: Document, *, busy: bool = True, lacking: Iterable[Missing] | None = None
) -> list[str]:
    """What is missing or was not verified or measured, busy devices, warnings, and errors.

    Args:
        document: The run.
        busy: Whether to name busy devices.
        lacking: What a check found to be missing; None for what is missing without expectations.
    """
    lacking = missing(document) if lacking is None else lacking
    gpus = {gpu.name for gpu in document.machine.gpus}
    testcases = grouped(
        (text, result.name)
        for result in document.testcases
        for text in (*result.warnings, *_throttled(result, gpus))
    )
    said = {f"{log.file}: {doubt}" for log in document.imported for doubt in log.doubts}
    noted = [warning for warning in document.warnings if warning not in said]
    of_run = list(dict.fromkeys((*map(str, lacking), *doubts(document), *noted)))
    for device, (how, cases) in users(document).items() if busy else ():
        of_run.append(f"{device} was {how} ({_where(cases, 'during')})")
    known = set(of_run)
    of_testcases = [f"{text} ({_where(cases)})" for text, cases in testcases.items() if text not in known]
    return [*of_run, *of_testcases, *_counted(document, gpus)]


def _where(cases: list[str], preposition: str = "in") -> str:
    return f"{preposition} {cases[0] if len(cases) == 1 else many(len(cases), 'testcase')}"


def _throttled(result: TestcaseResult, gpus: set[str]) -> Iterator[str]:
    """The throttle reasons of each GPU in a testcase."""
    for readings in courses([result], {THROTTLED}):
        if readings[0].device in gpus:
            values = [reading.value for reading in readings if isinstance(reading.value, tuple)]
            reasons = dict.fromkeys(reason for value in values for reason in value if reason != IDLE)
            if reasons:
                yield f"{readings[0].label}: {', '.join(reasons)}"


def _counted(document: Document, gpus: set[str]) -> Iterator[str]:
    """The increase of each GPU error counter from the first to the last reading of a run."""
    for readings in courses(document.testcases):
        values = [reading.value for reading in readings if isinstance(reading.value, (int, float))]
        first = readings[0]
        errors = first.counter and not first.unit and first.name != RETRAINED
        if errors and first.device in gpus and values and values[-1] > values[0]:
            yield f"{first.label}: {values[-1] - values[0]:g} during the run"


def culprit_text(culprit: Culprit) -> str:
    """A slow device, link or path, how slow it is, and how many values show it."""
    return f"{culprit} at {culprit.share} ({many(len(culprit.cells), 'value')})"


def applicable(compared: GateComparison) -> list[GateResult]:
    """The gates that apply to the machine, the worst first."""
    order = list(GateVerdict)
    results = [result for result in compared.results if result.verdict is not GateVerdict.NOT_APPLICABLE]
    return sorted(results, key=lambda result: order.index(result.verdict))


def gate_text(result: GateResult) -> str:
    """What was measured for a gate, and why it has its verdict."""
    return "; ".join(gate_parts(result))


def gate_parts(result: GateResult) -> Iterator[str]:
    """The lowest value and its cell, and the reason of the verdict."""
    if lowest := result.lowest:
        scale, unit = displayed(lowest.unit)
        value = "no value" if lowest.value is None else f"lowest {number(lowest.value, scale)} {unit}"
        range_ = ""
        if result.expected:
            least, normal = result.expected
            range_ = f"; expected {number(least, scale)} to {number(normal, scale)}"
        yield f"{lowest.key.testcase} {lowest.key.place}: {value}{range_}"
    yield from filter(None, (result.why, result.remark))


#: Mark of a slow cell (`driver.slow_rows.SLOW`), and of one with wrong elements -> its footnote.
FOOTNOTES = {
    "*": "* at least 1.5 times the fastest time of the phase, in every sample",
    "!": "! wrong elements in the result",
}


def mark(cell: Cell) -> str:
    """A key of ``FOOTNOTES``; empty for most cells."""
    return "*" if cell.is_slow else "!" if cell.value is not None and cell.wrong else ""


def footnotes(cells: Iterable[Cell]) -> list[str]:
    """The explanations of the marks of some cells, each with its mark."""
    marks = set(map(mark, cells))
    return [note for sign, note in FOOTNOTES.items() if sign in marks]


def aligned(rows: Sequence[Sequence[str]]) -> list[str]:
    """Rows of texts as lines: the first column flush left, the others flush right, 2 blanks apart."""
    first, *others = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return [
        label.ljust(first) + "".join(f"  {text:>{width}}" for text, width in zip(texts, others, strict=True))
        for label, *texts in rows
    ]


#: Maximum number of names of files with the same error, and of errors.
_NAMED_FILES, _MOST_ERRORS = 3, 8


def errors_of(unreadable: Sequence[Unreadable]) -> list[str]:
    """A text for each file that cannot be read; for many with the same error, their number and some names."""
    texts = list[str]()
    for kind, files in grouped((file.kind, file) for file in unreadable).items():
        if len(files) <= _NAMED_FILES:
            texts += map(str, files)
        else:
            names = some([file.file for file in files], _NAMED_FILES)
            texts.append(f"{len(files)} files ({names}): {kind}")
    if (more := len(texts) - _MOST_ERRORS) > 0:
        return [*texts[:_MOST_ERRORS], f"and {many(more, 'more error')}"]
    return texts
