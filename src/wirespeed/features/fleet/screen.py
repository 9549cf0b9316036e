"""Text of ``wirespeed check`` with several runs: the worst first, on one screen."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from ...judging.path_kinds import path_kinds
from ...judging.run_summary import RunSummary, SummaryFigure, labels
from ...judging.verdict import Verdict
from ...reports import SIMULATED, Style
from ...reports.checked_runs import CheckedRun, counted_words
from ...reports.console import printed
from ...reports.looks import SIGNS
from ...reports.values import GLANCE, number
from ...results.read_many import Unreadable
from ...statistics import grouped
from ...terminal import one_line
from ...units import GB, many

#: Indentation of the cause below its runs.
_INDENT = 2
#: Lines of a screen, without the prompt, and rows of the table that are shown at least.
_SCREEN, _ROWS = 23, 4
#: Blanks between columns, and characters of a run's name for which columns are left out.
_GAP, _HOST = 2, 16
#: Maximum number of characters of a cause or a remedy where there is no room for all.
_LONGEST = 150


def joined(runs: Sequence[CheckedRun], unreadable: Sequence[Unreadable], style: Style) -> str:
    """Render a table of several runs; ``verbose`` adds the screen of each."""
    screens = [f"\n{one_line(run.node.file)}:\n{run.part}" for run in runs if style.verbose]
    settings = [f"settings: {one_line('; '.join(style.settings))}\n"] if style.settings else []
    return "".join((*screens, *settings, render(runs, style, unreadable)))


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
    groups = grouped((_alike(row), row) for row in rows if not row.node.passes or row.remarks)
    more = "" if style.verbose else "; -v shows the screen of each"
    footer = [counted_words(nodes, unreadable) + more]
    if any(figure.bad for row in rows for figure in row.node.figures):
        footer.append("✖ = path with values worse than expected (worst shown)")
    end = printed(style, *(Text(text, style="dim") for text in footer))
    if any(node.simulated for node in nodes):
        end += printed(style, Text(SIMULATED, style="bold magenta"))
    whole = [_finding(members, style, short=False) for members in groups.values()]
    text = printed(style, _table(rows, rows, style), "") + "".join(whole) + end
    if style.verbose or text.count("\n") <= _SCREEN:
        return text
    return _screen(rows, list(groups.values()), style, _SCREEN - end.count("\n")) + end


def _rows(runs: Sequence[CheckedRun], unreadable: Sequence[Unreadable]) -> list[CheckedRun]:
    """The runs by what people call their hosts: failures, then files that cannot be read, then the others."""
    ordered = sorted(runs, key=lambda run: run.node.order)
    names = labels([run.node for run in ordered])
    rows = [
        CheckedRun(replace(run.node, host=label), run.remarks)
        for label, run in zip(names, ordered, strict=True)
    ]
    failed = sum(row.node.verdict.is_failure for row in rows)
    files = [
        RunSummary(
            file.file, Path(file.file).name or file.file, "", "", Verdict.FAIL, file.why, "", topic=file.kind,
            unreadable=True,
        )
        for file in unreadable
    ]  # fmt: skip
    return [*rows[:failed], *(CheckedRun(file, ()) for file in files), *rows[failed:]]


def _alike(run: CheckedRun) -> tuple[str, ...]:
    """Equal for runs with the same finding."""
    node = run.node
    return node.word, node.topic or node.sentence, node.step, *run.remarks


def _screen(rows: Sequence[CheckedRun], groups: Sequence[list[CheckedRun]], style: Style, room: int) -> str:
    """What fits a number of lines: rows of each finding, then findings, the worst first."""
    bad = [row for row in rows if not row.node.passes]
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


def _chosen(groups: Sequence[list[CheckedRun]], bad: Sequence[CheckedRun], count: int) -> list[CheckedRun]:
    """Some of the rows that do not pass: one of each finding, then the worst."""
    ordered = [*(members[0] for members in groups if not members[0].node.passes), *bad]
    taken = [*dict.fromkeys(map(id, ordered))][:count]
    return [row for row in bad if id(row) in taken]


def _lines(style: Style, rows: Sequence[CheckedRun], shown: Sequence[CheckedRun]) -> str:
    """A table of some rows, one line each, and how many others do not pass."""
    others = sum(not row.node.passes for row in rows) - len(shown)
    more = [Text(f"and {others} more that do not pass", style="dim")] if others else []
    return printed(style, _table(rows, shown, style, folded=False), *more, "")


def _table(
    rows: Sequence[CheckedRun], shown: Sequence[CheckedRun], style: Style, *, folded: bool = True
) -> Table:
    """A row for each run; the last columns are left out if their numbers would be cut."""
    kinds = [str(kind) for kind in path_kinds()]  # the titles of collectives are none of them, and come last
    titles = sorted(
        dict.fromkeys(figure.title for row in rows for figure in row.node.figures),
        key=lambda title: kinds.index(title) if title in kinds else len(kinds),
    )
    table = Table(box=None, padding=(0, _GAP, 0, 0), pad_edge=False, header_style="dim")
    cells = [
        [_figure({figure.title: figure for figure in row.node.figures}.get(title)) for title in titles]
        for row in shown
    ]
    words = [Text(row.node.word, SIGNS[row.node.verdict].style) for row in shown]
    longest = max((len(word) for word in words), default=0)
    left, widths = style.width - longest - 2 * _GAP, list[int]()
    for i, title in enumerate(titles):
        width = max(*map(len, title.rsplit(" ", 1)), *(len(row[i]) for row in cells), 0)
        if left - width - _GAP < _HOST:
            break
        widths.append(width)
        left -= width + _GAP
    table.add_column("", no_wrap=True, min_width=longest)
    table.add_column(
        "GB/s", overflow="fold" if folded else "ellipsis", no_wrap=not folded, max_width=max(left, _HOST)
    )
    for title, width in zip(titles, widths, strict=False):
        table.add_column("\n".join(title.rsplit(" ", 1)), justify="right", no_wrap=True, min_width=width)
    for row, word, own in zip(shown, words, cells, strict=True):
        table.add_row(word, Text(row.node.host), *own[: len(widths)])
    return table


def _figure(figure: SummaryFigure | None) -> Text:
    """The lowest value; of a path with bad values, the worst with a mark."""
    if figure is None:
        return Text("-", style="dim")
    if figure.bad:
        value = "failed" if figure.worst is None else number(figure.worst, GB, GLANCE)
        return Text(f"✖ {value}", style="bold red")
    return Text(number(figure.lowest, GB, GLANCE))


def _finding(members: Sequence[CheckedRun], style: Style, *, short: bool) -> str:
    """The runs with a finding, what it is, and what to do; if ``short``, in a few lines."""
    first = members[0].node
    sentence = first.sentence if len({row.node.sentence for row in members}) == 1 else first.topic
    if not short and first.extent and len({row.node.extent for row in members}) == 1:
        sentence += f"; {first.extent}"
    texts = [] if first.passes else [sentence]
    texts += [f"remedy: {first.step}"] if first.step else []
    texts += members[0].remarks
    if short:
        texts = [text if len(text) <= _LONGEST else f"{text[: _LONGEST - 1]}…" for text in texts]
    names = Text(
        f"{_named([row.node.host for row in members], style.width if short else None)}:", style="bold"
    )
    return printed(style, names, *(Padding(Text(text), (0, 0, 0, _INDENT)) for text in texts))


def _named(labels: Sequence[str], width: int | None) -> str:
    """The names of runs, and the number of those that do not fit a line."""
    for count in range(len(labels), 0, -1):
        more = f" and {len(labels) - count} more" if count < len(labels) else ""
        text = ", ".join(labels[:count]) + more
        if width is None or len(text) < width:
            return text
    return f"{labels[0][: (width or 0) // 2]}… and {len(labels) - 1} more"
