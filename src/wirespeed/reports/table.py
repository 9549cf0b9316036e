"""Tables for a terminal."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from itertools import groupby

from msgspec.structs import replace
from rich.console import Group, RenderableType
from rich.table import Column
from rich.text import Text

from ..document import Document, Status, TestcaseResult
from ..judging.check import Check
from ..judging.judged import Judged
from ..judging.verdict import Verdict
from ..measurement import Axis, Unit
from ..statistics import grouped
from ..tables import SKEW, Cell, Table
from ..units import fitting, format_time, many
from .additions import report_of
from .console import heading, pieces, printed, warnings
from .explanations import explanations
from .grid import Grid, GridCell, digest, is_large, place_of
from .looks import SIGNS
from .style import Style
from .testcase_texts import buffers, closing, data_word
from .values import footnotes, number

#: A value is marked as uncertain if its relative confidence interval is wider than this.
_UNCERTAIN = 0.05
#: Maximum number of cells listed that used a rarer transport.
_NAMED = 6
#: Maximum number of points of a curve that are shown, and minimum if only powers of two are.
_MOST_POINTS, _FEWEST_POINTS = 48, 8
_ONCE = "every copied byte once"


def render(judged: Judged, style: Style) -> str:
    """Render the Document as tables; ``verbose`` shows large matrices and all waived testcases in full."""
    document = judged.document
    if own := report_of(document):
        return printed(style, heading(document), "", *own.body(style), "", *own.ending(style))
    check = judged.check
    texts = explanations(document, lacking=check.missing)
    parts: list[RenderableType] = [
        heading(document, style.settings),
        *warnings(texts, style),
        *notes(document, texts),
    ]
    tried = (result for result in document.testcases if result.status is not Status.WAIVED)
    measured = [
        result for result in tried
        if any(one.values() if result.status is Status.INTERRUPTED else one.cells for one in result.tables)
    ]  # fmt: skip
    for block in _blocks(measured, style.width):
        parts += ["", _rows(block, judged, style) if len(block) > 1 else _single(block[0], judged, style)]
    return printed(style, *parts, _closing(document, check, style))


def notes(document: Document, said: Sequence[str]) -> list[Text]:
    """The notes on the machine that no other text says."""
    new = (note for note in document.machine.notes if not any(note in text for text in said))
    return [Text(f"note: {note}", style="dim") for note in new]


def _blocks(results: list[TestcaseResult], width: int) -> Iterator[list[TestcaseResult]]:
    """Group neighbouring one-row testcases with equal columns into one table, if it fits the width."""

    def shape(result: TestcaseResult) -> object:
        table = result.tables[0]
        if len(result.tables) > 1 or len(table.rows.labels) > 1 or table.is_curve:
            return id(result)  # alone: no other result has it
        return table.unit, table.columns

    for _, group in groupby(results, key=shape):
        block = list(group)
        several = len(block) > 1 and len(block[0].tables[0].columns.labels) > 1
        if several and len(_together(block, width)) > 1:
            yield from ([result] for result in block)
        else:
            yield block


def _together(block: list[TestcaseResult], width: int, check: Check | None = None) -> list[Text]:
    """Several one-row testcases as one table, each with its verdict unless it passes."""
    tables = [result.tables[0] for result in block]
    several = len(tables[0].columns.labels) > 1
    cells = tuple(replace(cell, row=i) for i, table in enumerate(tables) for cell in table.cells)
    axis = Axis("testcase", tuple(result.name for result in block))
    grid = Grid.of(replace(tables[0], rows=axis, cells=cells))
    rows: list[list[Text | str]] = []
    for result, entries in zip(block, grid.entries, strict=True):
        name = Text(result.name)
        verdict = check.testcases[result.name] if check else Verdict.PASS
        if verdict is not Verdict.PASS:
            name.append(f"  {verdict.word}", style=SIGNS[verdict].style)
        known = [entry.cell for entry in entries if entry.cell]
        used = [cell.value / cell.limit for cell in known if cell.value and cell.limit]
        least = f"{min(used):.0%}" if used else ""
        rows.append([name, *map(_text, entries), *([least] if several else _details(entries[0], grid))])
    details = _DETAILS[-1:] if several else _DETAILS
    return pieces(Column(grid.unit), grid.columns.labels, rows, width, details)


def _rows(block: list[TestcaseResult], judged: Judged, style: Style) -> RenderableType:
    """Several one-row testcases as one table, and which bytes their values count."""
    document = judged.document
    sizes = dict.fromkeys(filter(None, (buffers(document, result) for result in block)))
    by_counts = grouped((result.counts, result.name) for result in block if result.counts != _ONCE)
    counts = [Text(f"counts {text}: {', '.join(names)}", style="dim") for text, names in by_counts.items()]
    means = list(dict.fromkeys(text.plain for result in block for text in shared(result)))
    counts = [Text(", ".join(sizes), style="dim"), *counts] if sizes else counts
    return Group(
        *_together(block, style.width, judged.check), *counts, *(Text(text, style="dim") for text in means)
    )


def _single(result: TestcaseResult, judged: Judged, style: Style) -> RenderableType:
    """One testcase with its tables, under a heading."""
    about = result.description + (f"; counts {result.counts}" if result.counts not in ("", _ONCE) else "")
    parts: list[RenderableType] = [headed(result, judged), Text(about, style="dim")]
    for table in result.tables:
        if len(result.tables) > 1:
            parts.append(Text(table.title, style="italic"))
        if table.is_curve:
            parts += _curve(table, style)
        elif is_large(table) and not style.verbose:
            parts.append(Text(digest(table)))
        else:
            parts += _matrix(table, style, result.tables)
        if table.is_curve or len(table.columns.labels) > 1:
            parts += _intervals(table)
    return Group(*parts, *shared(result))


def headed(result: TestcaseResult, judged: Judged) -> Text:
    """The name of a testcase, its verdict, and what is known of its data."""
    document, verdict = judged.document, judged.check.testcases[result.name]
    line = Text(result.name, style="bold")
    line.append(f"  {verdict.word}", style=SIGNS[verdict].style)
    if (data := data_word(document, result)) and data != verdict.word:
        line.append(f" · {data}", style="not bold dim")
    if size := buffers(document, result):
        line.append(f" · {size}", style="not bold dim")
    return line


def shared(result: TestcaseResult) -> list[Text]:
    """The transport to the memory of other ranks, and the cells that used a rarer one."""
    table = result.tables[0]
    cells = grouped((cell.means, place_of(table, cell)) for cell in table.cells if cell.means)
    if not cells:
        return []
    most = max(cells, key=lambda means: len(cells[means]))
    text = f"transport between ranks: {', '.join(most)}"
    for means, where in cells.items():
        if means != most:
            more = f" and {len(where) - _NAMED} more" if len(where) > _NAMED else ""
            text += f"; {', '.join(means)}: {' · '.join(where[:_NAMED])}{more}"
    skew = next((quantity.value for quantity in result.state_after if quantity.name == SKEW), None)
    if isinstance(skew, float):
        text += f"; start skew {format_time(skew)}"
    return [Text(text, style="dim")]


#: Additional columns of tables with one column of values; of those with several, only the last.
_DETAILS = [Column(name, justify="right", style="dim") for name in ("±", "min", "max", "n", "of limit")]


def _text(entry: GridCell) -> Text:
    """A cell with its marks; ``~`` marks an uncertain value."""
    if entry.cell is None or entry.cell.value is None:
        return Text(entry.text, style="yellow" if entry.cell else "dim")
    return Text(entry.mark + "~" * _is_uncertain(entry.cell) + entry.text)


def _details(entry: GridCell, grid: Grid) -> list[str]:
    """Interval, range, numbers of samples and rounds, and fraction of the limit of a cell."""
    cell = entry.cell
    if cell is None or cell.statistics is None:
        return [""] * len(_DETAILS)
    statistics, width = cell.statistics, _half(cell)
    shown = "" if width is None else f"{width:.1%}"
    used = f"{cell.value / cell.limit:.0%}" if cell.value and cell.limit else ""
    low, high = (number(value, grid.scale) for value in (statistics.min, statistics.max))
    rounds = f" in {len(cell.rounds)}" if cell.rounds else ""
    return [shown, low, high, f"{statistics.n}{rounds}", used]


def _matrix(table: Table, style: Style, beside: Sequence[Table]) -> list[RenderableType]:
    """A matrix; its columns are split into several pieces if the terminal is too narrow."""
    grid = Grid.of(table, beside=beside)
    single = len(table.columns.labels) == 1
    rows = [
        [Text(name, style="dim"), *map(_text, entries), *(_details(entries[0], grid) if single else ())]
        for name, entries in zip(grid.rows.labels, grid.entries, strict=True)
    ]
    heading = Column(grid.unit)
    tables = pieces(heading, grid.columns.labels, rows, style.width, _DETAILS if single else ())
    return [*tables, *_use(table)]


def _use(table: Table) -> list[RenderableType]:
    """The fractions of the limit that the cells of a matrix reach, if two or more have a limit."""
    uses = [(cell.value / cell.limit, cell) for cell in table.cells if cell.value and cell.limit]
    if len(uses) < 2:
        return []
    scale, unit = fitting(table.unit, table.values())
    (low, worst), (high, _) = min(uses, key=lambda use: use[0]), max(uses, key=lambda use: use[0])
    limits = sorted({number(cell.limit, scale) for _, cell in uses if cell.limit}, key=float)
    of = limits[0] if len(limits) == 1 else f"{limits[0]} to {limits[-1]}"
    share = f"{low:.1%}"
    if share != f"{high:.1%}":
        share += f" ({place_of(table, worst)}) to {high:.1%}"
    return [Text(f"{share} of the limit, {of} {unit}", style="dim")]


def _intervals(table: Table) -> list[Text]:
    """How wide the intervals of a table are that has no column for them; empty without any."""
    halves = sorted(half for cell in table.cells if (half := _half(cell)) is not None)
    if not halves:
        return []
    low, high = (f"{half:.1%}" for half in (halves[0], halves[-1]))
    rounds = sorted({len(cell.rounds) for cell in table.cells if cell.rounds})
    many_rounds = f"{rounds[0]}" if len(rounds) == 1 else f"{rounds[0]} to {rounds[-1]}"
    return [Text(f"±{low}{f' to ±{high}' if low != high else ''} in {many_rounds} rounds", style="dim")]


def _curve(table: Table, style: Style) -> list[RenderableType]:
    """Curves as columns, in several pieces if there are too many; a single curve gets bars.

    Of curves with very many points, some are shown; ``verbose`` shows all.
    """
    grid = Grid.of(table)
    shown = range(len(grid.rows.labels)) if style.verbose else _chosen(table.columns.values)
    columns = [f"{label} {grid.unit}" for label in grid.columns.labels]
    label_width = max(len(label) for label in (grid.rows.name, *grid.rows.labels)) + 2
    values = [cell.value for (entry, *_) in grid.entries if (cell := entry.cell) and cell.value]
    room = style.width - label_width - len(columns[0]) - 2
    rows: list[list[Text | str]] = [
        [label, *map(_text, entries), _bar(entries[0].cell, values, min(room, 40), table.unit)]
        for label, entries in ((grid.rows.labels[i], grid.entries[i]) for i in shown)
        if any(entry.cell for entry in entries)
    ]
    bars = len(columns) == 1 and len(values) > 1 and room >= 12
    details = [Column("logarithmic" if table.unit is Unit.TIME else "", style="cyan")]
    heading = Column(grid.rows.name, justify="right")
    tables = pieces(heading, columns, rows, style.width, details if bars else ())
    if len(shown) == len(grid.rows.labels):
        return [*tables]
    points = f"{len(shown)} of {len(grid.rows.labels)} points of each curve are shown; -v shows all"
    return [*tables, Text(points, style="dim")]


def _chosen(points: Sequence[float]) -> Sequence[int]:
    """The points of curves that people read: all; of very many, the first of each power of two, and the last.

    If these are too many, too, some at equal distances.
    """
    if len(points) <= _MOST_POINTS:
        return range(len(points))
    first: dict[int, int] = {}
    for i, point in enumerate(points):
        first.setdefault(math.frexp(point)[1] if point > 0 else 0, i)
    chosen = sorted({*first.values(), len(points) - 1})
    if len(chosen) > _MOST_POINTS or len(chosen) < _FEWEST_POINTS:
        step = (len(points) - 1) / (_MOST_POINTS - 1)
        chosen = sorted({round(i * step) for i in range(_MOST_POINTS)})
    return chosen


def _bar(cell: Cell | None, values: list[float], width: int, unit: Unit) -> str:
    """A bar for a value; its length is logarithmic for times."""
    if cell is None or not cell.value:
        return ""
    share: float
    if unit is Unit.TIME:  # start one step below the smallest value, so that its bar is visible
        lowest = math.log(min(values) / 1.5)
        share = (math.log(cell.value) - lowest) / (math.log(max(values)) - lowest)
    else:
        share = cell.value / max(values)
    eighths = round(share * width * 8)
    return "█" * (eighths // 8) + " ▏▎▍▌▋▊▉"[eighths % 8].strip()


def _closing(document: Document, check: Check, style: Style) -> RenderableType:
    """Failures, waived testcases and the counts."""
    lines: list[RenderableType] = []
    for result in document.testcases:
        if not result.status.good:
            lines.append(Text(f"{result.name}: {result.status}: {result.reason}", style="red"))
        if result.status is Status.PASSED:
            cells = (cell for table in result.tables for cell in table.cells if cell.value is None)
            reasons = sorted({cell.reason for cell in cells if cell.reason})
            lines += [Text(f"{result.name}: n/a: {reason}", style="yellow") for reason in reasons]
    is_said = any(result.status is Status.INTERRUPTED and result.reason for result in document.testcases)
    if document.interrupted and not is_said:
        lines.append(Text(f"run interrupted: {document.interrupted}", style="bold red"))
    measured = [cell for result in document.testcases for table in result.tables for cell in table.cells]
    lines += [Text(note, style="dim") for note in footnotes(measured)]
    if any(map(_is_uncertain, measured)):
        lines.append(Text(f"~ 95% confidence interval wider than ±{_UNCERTAIN:.0%}", style="dim"))
    lines += _waived(document, style)
    return Group("", *lines, Text(closing(document, check), style=SIGNS[check.verdict].style))


def _is_uncertain(cell: Cell) -> bool:
    width = _half(cell)
    return width is not None and width > _UNCERTAIN


def _half(cell: Cell) -> float | None:
    """Half the interval of a value, relative to it; None if it has none."""
    if cell.interval is None or not cell.value:
        return None
    low, high = cell.interval
    return (high - low) / 2 / cell.value


def _waived(document: Document, style: Style) -> Iterator[RenderableType]:
    """Yield the waived testcases by reason."""
    waived = (result for result in document.testcases if result.status is Status.WAIVED)
    for reason, names in grouped((result.reason, result.name) for result in waived).items():
        shown = ", ".join(names) if style.verbose or len(names) < 3 else many(len(names), "testcase")
        yield Text(f"skipped: {shown}: {reason}", style="dim")
