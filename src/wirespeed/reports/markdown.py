"""GitHub-flavoured Markdown, also to paste into an issue: about twenty lines with the verdict, what to do, a
line for each kind of path and the environment; the tables follow, folded. Of the environment it shows what
helps others and identifies nobody: no host name, folders, addresses or serial numbers.
"""

from __future__ import annotations

import re
from collections.abc import Container, Iterable, Iterator, Sequence
from pathlib import PurePath

from ..document import Document, Status, TestcaseResult
from ..hardware.facts import ON, Facts, Known
from ..judging.check import Check
from ..judging.judged import Judged
from ..results.read_many import Unreadable
from ..statistics import grouped
from ..tables import Table
from ..terminal import one_line
from ..units import many
from .additions import report_of
from .check_texts import applicable, gate_text
from .checked_runs import ERROR, CheckedRun, counted_words
from .explanations import explanations
from .figure_texts import extent, leading
from .grid import Grid, digest, is_large
from .looks import shown
from .machine_texts import devices, hosts
from .style import SIMULATED, Style
from .testcase_texts import closing, data_word
from .values import footnotes

#: What Markdown, or HTML within it, interprets: anywhere, next to a word, at the start of a line,
#: as a link.
_SPECIAL = re.compile(
    r"[\\`*{}\[\]#|~$]|(?<![^\W_])_|_(?![^\W_])|^[-+=]|(?:(?<=^\d)|(?<=^\d\d)|(?<=^\d{3}))[.)](?=\s|$)"
    r"|:(?=//)|(?<=www)[.]"
)
#: Maximum number of testcases whose tables are not folded: they would hide what follows in an issue.
_OPEN = 1
#: Maximum number of warnings, and of lines of a qualification of nodes, that are not folded.
_WARNINGS, _LINES = 3, 10
#: Maximum number of characters of what is folded: GitHub takes comments of 65,536.
_LONGEST = 50_000
#: A word of a command that has a folder before its last part.
_FOLDER = re.compile(r"(?<![\w/.-])(?:~|\.{0,2})/[^\s'\"=,:]*")
_ENTITIES = str.maketrans({"<": "&lt;", ">": "&gt;", "&": "&amp;", "@": "&#64;"})


def escaped(text: str) -> str:
    """Escape a text so that Markdown shows it literally, on one line."""
    return _SPECIAL.sub(r"\\\g<0>", one_line(text).strip()).translate(_ENTITIES)


def render(judged: Judged, style: Style) -> str:
    """Verdict, remedy, paths and environment, then what is folded.

    With ``verbose``, also large tables and skipped testcases, and of any length.
    """
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
        if style.verbose or not run.node.passes:
            wrong = "; ".join((run.node.sentence, *run.remarks))
            rows.append((run.node.word, run.node.host, run.node.file, wrong, run.node.step))
    count = many(len(runs) + len(unreadable), "run")
    lines = [f"# wirespeed: {count}", "", f"**{counted_words(nodes, unreadable)}**"]
    if any(node.simulated for node in nodes):
        lines += ["", f"**{SIMULATED}**"]
    if rows:
        lines += ["", *table_lines(["verdict", "host", "file", "what is wrong", "what to do"], rows)]
    reports = [f"\n# {escaped(run.node.host)}\n\n{run.part}" for run in ordered if style.verbose]
    return "\n".join(lines) + "\n" + "".join(reports)


def _lines(judged: Judged, style: Style) -> Iterator[str]:
    document, summary = judged.document, judged.overview
    measured = devices(document.machine) or hosts(document.machine)
    yield from (f"# wirespeed: {escaped(', '.join(measured))}", "")
    if document.simulated:
        yield from (f"**{SIMULATED}** (machine {escaped(document.machine.name)})", "")
    own, folded = report_of(document), "tables of all testcases"
    if own is None:
        yield f"**{summary.verdict.heading}**: {escaped(summary.sentence)}"
        yield from ("", escaped(summary.extent)) if summary.extent else ()
        yield from _remedy(judged)
        yield from _judged(judged)
        results = _with_tables(document)
        below = [line for result in results for line in _testcase(document, result, judged.check, style)]
        below += _not_measured(document, judged.check, style)
        is_folded = len(results) > _OPEN
    else:
        *found, verdict = own.lines
        word, _, rest = verdict.partition(":")
        yield f"**{word}**: {escaped(rest)}"
        yield from ("", *(f"- {escaped(line)}" for line in found[-_LINES:]))
        below, folded = [f"- {escaped(line)}" for line in found[:-_LINES]], "further lines"
        is_folded = bool(below)
    warnings = explanations(document, lacking=judged.check.missing)
    lines = [f"- **warning**: {escaped(text)}" for text in warnings]
    if lines:
        yield from ("", *lines[:_WARNINGS])
    if more := lines[_WARNINGS:]:
        below, is_folded = [*more, *below], True
    yield from ("", *environment(document))
    if is_folded:
        yield from ("", f"<details><summary>{folded}</summary>", "")
        yield from (*(below if style.verbose else _shortened(below)), "", "</details>")
    else:
        yield from below
    if own is None:
        yield from ("", closing(document, judged.check))


def _shortened(lines: list[str]) -> Iterator[str]:
    """The lines that fit into a comment, and how many do not."""
    length = 0
    for i, line in enumerate(lines):
        length += len(line) + 1
        if length > _LONGEST:
            yield from ("", f"{many(len(lines) - i, 'further line')} would not fit; attach the saved run.")
            return
        yield line


def _remedy(judged: Judged) -> Iterator[str]:
    """What to do, and the command that confirms it."""
    advice = judged.overview.advice
    parts = [f"remedy: {escaped(advice.do)}"] if advice.do else []
    parts += [f"confirm: {_code(advice.command)}"] if advice.command else []
    if parts:
        yield from ("", "; ".join(parts))


def _judged(judged: Judged) -> Iterator[str]:
    """The slowest value of each kind of path, the likely causes, and what they were compared with."""
    if figures := judged.overview.figures:
        rows = ([f"{(look := shown(one.verdict)).mark} {look.text}", one.title, leading(one), extent(one)]
                for one in figures)  # fmt: skip
        yield from ("", *table_lines(["verdict", "path", "slowest", "share"], rows, right=(2,)))
    if notes := [*(finding.line for finding in judged.diagnosis.findings), *judged.by.lacking]:
        yield from ("", *(f"- {_without_owner(text)}" for text in notes))
    for compared in filter(applicable, judged.check.gates):
        heads = [f"published thresholds of {compared.gates.name}", "at least", "verdict", "measured"]
        rows = ([result.gate.measures, result.gate.at_least, result.word, gate_text(result)]
                for result in applicable(compared))  # fmt: skip
        yield from ("", *table_lines(heads, rows, right=(1,)))


def _with_tables(document: Document) -> list[TestcaseResult]:
    return [
        result for result in document.testcases
        if result.status is not Status.WAIVED and any(table.cells for table in result.tables)
    ]  # fmt: skip


def _testcase(document: Document, result: TestcaseResult, check: Check, style: Style) -> Iterator[str]:
    """The tables of a testcase below its verdict."""
    words = filter(None, (check.testcases[result.name].word, data_word(document, result)))
    yield from ("", f"## {escaped(result.name)}: {', '.join(words)}", "")
    counts = f"; counts {result.counts}" if result.counts else ""
    yield _without_owner(result.description + counts + (f": {result.reason}" if result.reason else ""))
    for table in result.tables:
        yield from _table(result, table, style)


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


def _not_measured(document: Document, check: Check, style: Style) -> Iterator[str]:
    """Failures, and skipped testcases."""
    bad = [result for result in document.testcases if not result.status.good]
    if bad or document.interrupted:
        yield ""
    for result in bad:
        words = f"{check.testcases[result.name].word}, {data_word(document, result)}"
        yield f"- **{escaped(result.name)}: {words}**: {_without_owner(result.reason)}"
    if document.interrupted:
        yield f"- **run interrupted**: {escaped(document.interrupted)}"
    waived = [result for result in document.testcases if result.status is Status.WAIVED]
    if waived and style.verbose:
        yield from ("", "Skipped:", "")
        yield from (f"- {escaped(result.name)}: {escaped(result.reason)}" for result in waived)


def environment(document: Document) -> Iterator[str]:
    """Versions, CPU, GPUs, NICs, settings of NCCL and the command, a line for each."""
    machine, facts = document.machine, Facts(document.facts)
    versions = {"wirespeed": document.version, "Python": document.python, "kernel": machine.kernel}
    versions |= {"NVIDIA driver": machine.driver} | document.libraries
    if machine.cuda:
        versions["its CUDA"] = f"{machine.cuda // 1000}.{machine.cuda % 1000 // 10}"
    around = {"virtual machine": Known.HYPERVISOR, "container": Known.CONTAINER}
    places = [name for name, fact in around.items() if facts.text(fact) == ON]
    logs = [f"{log.tool} {log.version}".strip() for log in document.imported]
    rows = {
        "versions": ", ".join(f"{name} {text}" for name, text in versions.items() if text),
        "host": " · ".join([*hosts(machine), *places]),
        "GPUs": ", ".join(devices(machine)) or "none",
        "NICs": ", ".join(_nics(facts)),
        "settings": ", ".join(facts.several(Known.NCCL_VARIABLES)),
        "logs of": ", ".join(dict.fromkeys(logs)),
        "begun": document.started,
    }
    yield from (f"- {name}: {_without_owner(text)}" for name, text in rows.items() if text)
    if document.command:
        yield f"- command: {_code(_without_folders(document.command))}"


def _nics(facts: Facts) -> Iterator[str]:
    """RDMA devices of one kind in one text, with rate, link layer and firmware."""
    kinds = grouped((_about(facts, nic), nic) for nic in facts.several(Known.NICS))
    for about, nics in kinds.items():
        yield f"{len(nics)} × {nics[0]}" + (f" ({about})" if about else "")


def _about(facts: Facts, nic: str) -> str:
    """Rate, link layer and firmware of a NIC."""
    rate, firmware = facts.number(Known.PORT_RATE, nic), facts.text(Known.NIC_FIRMWARE, nic)
    parts = (
        f"{rate:g} Gbit/s" if rate else "",
        facts.text(Known.PORT_LAYER, nic),
        firmware and f"firmware {firmware}",
    )
    return ", ".join(filter(None, parts))


def _without_owner(text: str) -> str:
    """A text to be shown literally, without folders."""
    return escaped(_without_folders(text))


def _without_folders(text: str) -> str:
    """A text whose paths are only the names of files: folders often have the name of a user."""
    return _FOLDER.sub(lambda match: PurePath(match[0]).name or "/", text)


def _code(text: str) -> str:
    """A command as code, whatever it contains."""
    return f"`` {one_line(text).replace('`', chr(39))} ``"
