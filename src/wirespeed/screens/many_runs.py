"""Text of ``wirespeed check --from`` with several runs: the worst first, on one screen.

The reason for a verdict in one sentence, for programs that show a single line.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from ..document import Document
from ..judging.cause import Weight
from ..judging.fleet import WORDS, FleetFigure, FleetNode
from ..judging.judged import Judged
from ..judging.path_kinds import path_kinds
from ..judging.verdict import Verdict
from ..reports import SIMULATED, Style
from ..reports.console import printed
from ..reports.findings import GLANCE, SIGNS, VERDICTS, number, views
from ..reports.records import ERROR, PASS, CheckedRun, counted_words
from ..results.compare import Unreadable
from ..units import GB, many

#: Indentation of the cause below its runs.
_INDENT = 2
#: Lines of a screen, without the prompt, and rows of the table that are shown at least.
_SCREEN, _ROWS = 23, 4
#: Maximum number of characters of a cause or a remedy where there is no room for all.
_LONGEST = 150


@dataclass(frozen=True, eq=False)
class _Line:
    """A run or a file.

    Attributes:
        word: Its verdict.
        label: Its host or file.
        figures: Its key figures.
        alike: Equal for rows with the same finding.
        sentence, topic, extent, step: The finding, without its numbers, how much it concerns, and what to do.
        remarks: Remarks on gates and the baseline.
    """

    word: str
    label: str
    figures: tuple[FleetFigure, ...]
    alike: tuple[str, ...]
    sentence: str = ""
    topic: str = ""
    extent: str = ""
    step: str = ""
    remarks: tuple[str, ...] = ()


def render(runs: Sequence[CheckedRun], style: Style, unreadable: Sequence[Unreadable] = ()) -> str:
    """Render a table of runs, what is wrong with them, and how many there are of each verdict.

    If this does not fit a screen, runs that pass are only counted, and runs with the same finding too, unless
    ``style.verbose``.

    Args:
        runs: The runs; their parts are not used.
        style: Width, colour and detail.
        unreadable: Files that cannot be read or judged.
    """
    rows, nodes = _rows(runs, unreadable), [run.node for run in runs]
    groups: dict[tuple[str, ...], list[_Line]] = {}
    for row in rows:
        if row.word != PASS or row.remarks:
            groups.setdefault(row.alike, []).append(row)
    more = "" if style.verbose else "; -v shows the screen of each"
    footer = [counted_words(nodes, unreadable) + more]
    if any(figure.bad for row in rows for figure in row.figures):
        footer.append("✖ lowest value of a path with values that are not as expected")
    end = printed(style, *(Text(text, style="dim") for text in footer))
    if any(node.simulated for node in nodes):
        end += printed(style, Text(SIMULATED, style="bold magenta"))
    whole = [_finding(members, style, short=False) for members in groups.values()]
    text = printed(style, _table(rows, rows), "") + "".join(whole) + end
    if style.verbose or text.count("\n") <= _SCREEN:
        return text
    return _screen(rows, list(groups.values()), style, _SCREEN - end.count("\n")) + end


def _rows(runs: Sequence[CheckedRun], unreadable: Sequence[Unreadable]) -> list[_Line]:
    """A row for each run and file: failures, then files that cannot be read, then the others."""
    ordered = sorted(runs, key=lambda run: run.node.order)
    labels = _labels([run.node for run in ordered])
    rows = [
        _Line(node.word, label, node.figures, (node.word, node.topic or node.sentence, node.step, *remarks),
             node.sentence, node.topic, node.extent, node.step, tuple(remarks))
        for label, node, remarks in zip(
            labels, (run.node for run in ordered), (run.remarks for run in ordered), strict=True
        )
    ]  # fmt: skip
    failed = sum(row.word == WORDS[0] for row in rows)
    files = [
        _Line(ERROR, Path(file.file).name or file.file, (), (ERROR, file.kind), file.why, file.kind)
        for file in unreadable
    ]
    return [*rows[:failed], *files, *rows[failed:]]


def _screen(rows: Sequence[_Line], groups: Sequence[list[_Line]], style: Style, room: int) -> str:
    """What fits a number of lines: rows of each finding, then findings, the worst first."""
    bad = [row for row in rows if row.word != PASS]
    if not bad:
        return ""
    shown = ""
    table, findings = _lines(style, rows, _chosen(groups, bad, _ROWS)), ""
    for i, members in enumerate(groups):
        text = findings + _finding(members, style, short=True)
        left = len(groups) - 1 - i
        note = f"and {many(left, 'more finding')}; -v shows all"
        whole = text + (printed(style, Text(note, style="dim")) if left else "")
        if table.count("\n") + whole.count("\n") > room:
            break
        findings, shown = text, whole
    for count in range(min(len(bad), room), _ROWS, -1):
        larger = _lines(style, rows, _chosen(groups, bad, count))
        if larger.count("\n") + shown.count("\n") <= room:
            return larger + shown
    return table + shown


def _chosen(groups: Sequence[list[_Line]], bad: Sequence[_Line], count: int) -> list[_Line]:
    """Some of the rows that do not pass: one of each finding, then the worst."""
    ordered = [*(members[0] for members in groups if members[0].word != PASS), *bad]
    taken = [id(row) for row in dict.fromkeys(ordered)][:count]
    return [row for row in bad if id(row) in taken]


def _lines(style: Style, rows: Sequence[_Line], shown: Sequence[_Line]) -> str:
    """A table of some rows, one line each, and how many others do not pass."""
    others = sum(row.word != PASS for row in rows) - len(shown)
    more = [Text(f"and {others} more that do not pass", style="dim")] if others else []
    return printed(style, _table(rows, shown, folded=False), *more, "")


def _table(rows: Sequence[_Line], shown: Sequence[_Line], *, folded: bool = True) -> Table:
    kinds = [str(kind) for kind in path_kinds()]  # the titles of collectives are none of them, and come last
    titles = sorted(
        dict.fromkeys(figure.title for row in rows for figure in row.figures),
        key=lambda title: kinds.index(title) if title in kinds else len(kinds),
    )
    table = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False, header_style="dim")
    table.add_column("", no_wrap=True)
    table.add_column("GB/s", overflow="fold" if folded else "ellipsis", no_wrap=not folded)
    for title in titles:
        table.add_column("\n".join(title.rsplit(" ", 1)), justify="right", no_wrap=True)
    for row in shown:
        figures = {figure.title: figure for figure in row.figures}
        table.add_row(
            Text(row.word, style=SIGNS[VERDICTS.get(row.word, Verdict.FAIL)].style),
            Text(row.label),
            *(_figure(figures.get(title)) for title in titles),
        )
    return table


def _figure(figure: FleetFigure | None) -> Text:
    """A typical value; of a path with bad values, the lowest with a mark."""
    if figure is None:
        return Text("-", style="dim")
    if figure.bad:
        return Text(f"✖ {number(figure.lowest, GB, GLANCE)}", style="bold red")
    return Text(number(figure.typical, GB, GLANCE))


def _finding(members: Sequence[_Line], style: Style, *, short: bool) -> str:
    """The runs with a finding, what it is, and what to do; if ``short``, in a few lines."""
    first = members[0]
    sentence = first.sentence if len({row.sentence for row in members}) == 1 else first.topic
    if not short and first.extent and len({row.extent for row in members}) == 1:
        sentence += f"; {first.extent}"
    texts = [] if first.word == PASS else [sentence]
    texts += [f"what to do: {first.step}"] if first.step else []
    texts += first.remarks
    if short:
        texts = [text if len(text) <= _LONGEST else f"{text[: _LONGEST - 1]}…" for text in texts]
    names = Text(f"{_named([row.label for row in members], style.width if short else None)}:", style="bold")
    return printed(style, names, *(Padding(Text(text), (0, 0, 0, _INDENT)) for text in texts))


def _named(labels: Sequence[str], width: int | None) -> str:
    """The names of runs, and the number of those that do not fit a line."""
    for count in range(len(labels), 0, -1):
        more = f" and {len(labels) - count} more" if count < len(labels) else ""
        text = ", ".join(labels[:count]) + more
        if width is None or len(text) < width:
            return text
    return f"{labels[0][: (width or 0) // 2]}… and {len(labels) - 1} more"


def _labels(nodes: Sequence[FleetNode]) -> list[str]:
    """The hosts; the names of the files if a host has several runs."""
    hosts, names = [node.host for node in nodes], [Path(node.file).stem for node in nodes]
    files = [node.file for node in nodes]
    return next((labels for labels in (hosts, names) if len(set(labels)) == len(nodes)), files)


def reason_of_nodes(nodes: Sequence[FleetNode]) -> str:
    """How many of several runs have the worst verdict, and why the first of them has it."""
    if not nodes:
        return "no run could be read"
    worst = min(nodes, key=lambda node: node.order)
    count = sum(node.word == worst.word for node in nodes)
    return f"{count} of {many(len(nodes), 'run')}; {worst.host}: {worst.sentence}"


def host_of_run(document: Document) -> str:
    """The host that was measured; the name of the machine if the host is unknown."""
    return document.hostname or document.machine.name


def reason_of_diagnosis(judged: Judged) -> str:
    """The first sentence about a machine that was diagnosed, measured or not."""
    check, known = judged.check, views(judged.diagnosis)
    defects = [view for view in known if view.finding.weight is Weight.DEFECT] or known
    if check.verdict.is_failure or (judged.document.testcases and not defects):
        return judged.overview.sentence
    named = [str(absence) for absence in check.missing if absence.verdict.is_bad]
    named += [view.title for view in defects]
    return "; ".join(named) or "the system reports no defect; nothing was measured"
