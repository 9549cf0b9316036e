"""GitHub-flavoured Markdown: one table per testcase, for issues, pull requests and wikis."""

from __future__ import annotations

import re
from collections.abc import Container, Iterable, Iterator, Sequence

from ..document import Document, Status, TestcaseResult
from ..judging.check import Check
from ..judging.judged import Judged
from ..results.read_many import Unreadable
from ..tables import Table
from ..terminal import one_line
from ..units import many
from .additions import report_of
from .check_texts import applicable, gate_text
from .checked_runs import ERROR, PASS, CheckedRun, counted_words
from .explanations import explanations
from .grid import Grid, digest, is_large
from .machine_texts import components
from .style import SIMULATED, Style
from .testcase_texts import closing, counted, data_word
from .values import footnotes

#: What Markdown, or HTML within it, interprets: anywhere, next to a word, at the start of a line,
#: as a link.
_SPECIAL = re.compile(
    r"[\\`*{}\[\]#|~$]|(?<![^\W_])_|_(?![^\W_])|^[-+=]|(?:(?<=^\d)|(?<=^\d\d)|(?<=^\d{3}))[.)](?=\s|$)"
    r"|:(?=//)|(?<=www)[.]"
)
#: Maximum number of testcases whose tables are not folded: they would hide what follows in an issue.
_OPEN = 1
_ENTITIES = str.maketrans({"<": "&lt;", ">": "&gt;", "&": "&amp;", "@": "&#64;"})


def escaped(text: str) -> str:
    """Escape a text so that Markdown shows it literally, on one line."""
    return _SPECIAL.sub(r"\\\g<0>", one_line(text).strip()).translate(_ENTITIES)


def render(judged: Judged, style: Style) -> str:
    """Verdict and cause, then the tables, folded; ``verbose`` includes large tables and skipped testcases."""
    return "\n".join(_lines(judged, style)) + "\n"


def part(judged: Judged, style: Style) -> str:
    """The report of a run if ``verbose`` adds it to that of several."""
    return render(judged, style) if style.verbose else ""


def joined(runs: Sequence[CheckedRun], unreadable: Sequence[Unreadable], style: Style) -> str:
    """A table of several runs, the worst first; ``verbose`` adds those that pass, and the reports."""
    ordered = sorted(runs, key=lambda run: run.node.order)
    nodes = [run.node for run in ordered]
    rows = [(ERROR, file.file, "", str(file), "") for file in unreadable]
    for run in ordered:
        if style.verbose or run.node.word != PASS:
            wrong = "; ".join((run.node.sentence, *run.remarks))
            rows.append((run.node.word, run.node.host, run.node.file, wrong, run.node.step))
    count = many(len(runs) + len(unreadable), "run")
    lines = [f"# wirespeed: {count}", "", f"**{counted_words(nodes, unreadable)}**"]
    if any(node.simulated for node in nodes):
        lines += ["", f"**{SIMULATED}**"]
    if rows:
        lines += ["", *table_lines(["verdict", "host", "file", "what is wrong", "what to do"], rows)]
    reports = [f"\n{run.part}" for run in ordered if style.verbose]
    return "\n".join(lines) + "\n" + "".join(reports)


def _lines(judged: Judged, style: Style) -> Iterator[str]:
    document, check, machine = judged.document, judged.check, judged.document.machine
    own = report_of(document)
    yield f"# wirespeed: {escaped(document.hostname)}"
    yield ""
    if document.simulated:
        yield f"**{SIMULATED}** (machine {escaped(machine.name)})"
        yield ""
    if document.imported:
        yield f"**{escaped(document.origin)}**, not measured by wirespeed"
        yield ""
    if own is None:
        counts = counted(judgement.verdict for judgement in check.judgements if judgement.key.column)
        yield f"**{judged.overview.word}**: {escaped(judged.overview.sentence)}"
        yield from ("", counts or "no values")
        yield from _judged(judged)
        yield ""
    yield " · ".join(escaped(part) for part in (components(machine), document.started) if part)
    if warnings := explanations(document, lacking=check.missing):
        yield ""
        yield from (f"- **warning**: {escaped(text)}" for text in warnings)
    if own is not None:
        *found, verdict = own.lines
        word, _, rest = verdict.partition(":")
        yield from ("", f"**{word}**: {escaped(rest)}", "")
        yield from (f"- {escaped(line)}" for line in found)
        return
    yield from tables(document, check, style, _OPEN)
    yield from _closing(document, check, style)


def tables(document: Document, check: Check, style: Style, most_open: int = 0) -> Iterator[str]:
    """The tables of all testcases, folded if more testcases than these have any."""
    shown = [
        result for result in document.testcases
        if result.status is not Status.WAIVED and any(table.cells for table in result.tables)
    ]  # fmt: skip
    if folded := len(shown) > most_open:
        count = many(sum(len(result.tables) for result in shown), "table")
        yield from ("", f"<details><summary>{count} of {many(len(shown), 'testcase')}</summary>")
    for result in shown:
        words = filter(None, (check.testcases[result.name].word, data_word(document, result)))
        yield from ("", f"## {escaped(result.name)}: {', '.join(words)}", "")
        counts = f"; counts {result.counts}" if result.counts else ""
        yield escaped(result.description + counts + (f": {result.reason}" if result.reason else ""))
        for table in result.tables:
            yield from _table(result, table, style)
    if folded:
        yield from ("", "</details>")


def _judged(judged: Judged) -> Iterator[str]:
    """The likely causes, criteria that could not be used, and the gates that apply."""
    yield from (f"- {escaped(finding.line)}" for finding in judged.diagnosis.findings)
    yield from (f"- {escaped(text)}" for text in judged.by.lacking)
    for compared in filter(applicable, judged.check.gates):
        heads = [f"published thresholds of {compared.gates.name}", "at least", "verdict", "measured"]
        rows = ([result.gate.measures, result.gate.at_least, result.word, gate_text(result)]
                for result in applicable(compared))  # fmt: skip
        yield from ("", *table_lines(heads, rows, right=(1,)))


def _table(result: TestcaseResult, table: Table, style: Style) -> Iterator[str]:
    yield ""
    if len(result.tables) > 1:
        yield f"{escaped(table.title)}"
        yield ""
    if is_large(table) and not style.verbose:
        yield digest(table)
        return
    grid = Grid.of(table, beside=result.tables)
    heads = [grid.unit, *grid.columns.labels]
    rows = ([name, *(str(entry) if entry.cell else "" for entry in entries)]
            for name, entries in zip(grid.rows.labels, grid.entries, strict=True))  # fmt: skip
    yield from table_lines(heads, rows, right=range(1, len(heads)))
    for note in footnotes(table.cells):
        yield from ("", escaped(note))


def table_lines(
    heads: Sequence[str], rows: Iterable[Sequence[str]], right: Container[int] = ()
) -> Iterator[str]:
    """Yield a table, whose texts are shown literally; ``right``: indices of columns of numbers."""
    head, *others = ("| " + " | ".join(map(escaped, texts)) + " |" for texts in (heads, *rows))
    yield from (head, "|" + "".join("---:|" if i in right else "---|" for i in range(len(heads))), *others)


def _closing(document: Document, check: Check, style: Style) -> Iterator[str]:
    """Failures, waived testcases and the counts."""
    bad = [result for result in document.testcases if not result.status.good]
    if bad or document.interrupted:
        yield ""
    for result in bad:
        words = f"{check.testcases[result.name].word}, {data_word(document, result)}"
        yield f"- **{escaped(result.name)}: {words}**: {escaped(result.reason)}"
    if document.interrupted:
        yield f"- **run interrupted**: {escaped(document.interrupted)}"
    waived = [result for result in document.testcases if result.status is Status.WAIVED]
    if waived and style.verbose:
        yield from ("", "Skipped:", "")
        yield from (f"- {escaped(result.name)}: {escaped(result.reason)}" for result in waived)
    yield from ("", closing(document, check))
