"""Tables for a terminal."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import groupby

from rich.console import Console, Group, RenderableType
from rich.measure import Measurement
from rich.table import Table as Grid
from rich.text import Text

from ..document import SKEW, Cell, Document, Status, Table, TestcaseResult
from ..driver.phases import FOOTNOTE
from ..model import Unit
from ..summary import half_width, summarise
from ..units import fitting, format_time, many
from . import Style
from ._console import SIMULATED, heading, number, printed, warnings

#: Matrices with more rows or columns are summarised unless ``verbose``.
_LARGE = 16
_WIDE = 10_000  #: characters: wider than any table
#: A value is marked as uncertain if its relative confidence interval is wider than this.
_UNCERTAIN = 0.05
_COLORS = {
    Status.PASSED: "green", Status.WAIVED: "dim", Status.FAILED: "bold red", Status.ERROR: "bold red",
    Status.TIMED_OUT: "bold red", Status.NOT_FOUND: "bold red", Status.INTERRUPTED: "yellow",
}  # fmt: skip
#: Maximum number of cells listed that used a rarer transport.
_NAMED = 6
_ONCE = "every copied byte once"


def render(document: Document, style: Style) -> str:
    """Render the Document as tables; ``verbose`` shows large matrices and all waived testcases in full."""
    notes = [Text(f"note: {note}", style="dim") for note in document.machine.notes]
    parts: list[RenderableType] = [heading(document), *warnings(document), *notes]
    measured = [result for result in document.testcases if result.tables and _has_cells(result)]
    for block in _blocks(measured, style.width):
        parts += ["", _rows(block) if len(block) > 1 else _single(block[0], style)]
    return printed(style, *parts, _closing(document, style))


def _has_cells(result: TestcaseResult) -> bool:
    return result.status is not Status.WAIVED and any(table.cells for table in result.tables)


def _blocks(results: list[TestcaseResult], width: int) -> Iterator[list[TestcaseResult]]:
    """Group neighbouring one-row testcases with equal columns into one table, if it fits the width."""

    def shape(result: TestcaseResult) -> object:
        table = result.tables[0]
        if len(result.tables) > 1 or len(table.rows.labels) > 1 or table.is_curve:
            return result.name
        return table.unit, table.columns

    for _, group in groupby(results, key=shape):
        block = list(group)
        if len(block) > 1 and len(block[0].tables[0].columns.labels) > 1 and _width(block) > width:
            yield from ([result] for result in block)
        else:
            yield block


def _width(block: list[TestcaseResult]) -> int:
    """Return the width of a block's table in characters."""
    console = Console(width=_WIDE)
    return Measurement.get(console, console.options, _together(block)).maximum


def _together(block: list[TestcaseResult]) -> Grid:
    """Return several one-row testcases as one table."""
    first = block[0].tables[0]
    scale, unit = fitting(first.unit, [v for result in block for v in result.tables[0].values()])
    several = len(first.columns.labels) > 1
    rows: list[list[Text | str]] = []
    for result in block:
        table = result.tables[0]
        cells = table.grid()[0]
        name = Text(result.name)
        if result.status is not Status.PASSED:
            name.append(f" {result.status}", style=_COLORS[result.status])
        used = [cell.value / cell.limit for cell in cells if cell and cell.value and cell.limit]
        least = [f"{min(used):.0%}" if used else ""] if several else []
        rows.append([name, *(_value(cell, scale) for cell in cells), *_details(cells, scale), *least])
    return _grid(unit, first.columns.labels, rows, _USED if several else _DETAILS)


def _rows(block: list[TestcaseResult]) -> RenderableType:
    """Return several one-row testcases as one table, and which bytes their values count."""
    counts = [Text(f"counts {text}: {', '.join(result.name for result in results)}", style="dim")
              for text, results in _by_counts(block)]  # fmt: skip
    means = list(dict.fromkeys(text.plain for result in block for text in shared(result)))
    return Group(_together(block), *counts, *(Text(text, style="dim") for text in means))


def _by_counts(block: list[TestcaseResult]) -> list[tuple[str, list[TestcaseResult]]]:
    """Group testcases by the bytes they count, without those that count every copied byte once."""
    found: dict[str, list[TestcaseResult]] = {}
    for result in block:
        if result.counts != _ONCE:
            found.setdefault(result.counts, []).append(result)
    return list(found.items())


def _single(result: TestcaseResult, style: Style) -> RenderableType:
    """Return one testcase with its tables, under a heading."""
    heading = Text(result.name, style="bold")
    heading.append(f"  {result.status}", style=_COLORS[result.status])
    parts: list[RenderableType] = [heading, Text(_does(result), style="dim")]
    for table in result.tables:
        if len(result.tables) > 1:
            parts.append(Text(table.title, style="italic"))
        if table.is_curve:
            parts += _curve(table, style)
        elif max(len(table.rows.labels), len(table.columns.labels)) > _LARGE and not style.verbose:
            parts.append(_summary(table))
        else:
            parts += _matrix(table, style)
    return Group(*parts, *shared(result))


def shared(result: TestcaseResult) -> list[Text]:
    """Return the transport to the memory of other ranks, and the cells that used a rarer one."""
    cells: dict[tuple[str, ...], list[str]] = {}
    for cell in result.tables[0].cells:
        if cell.means:
            cells.setdefault(cell.means, []).append(_where(result.tables[0], cell))
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


def _does(result: TestcaseResult) -> str:
    return result.description + (f"; counts {result.counts}" if result.counts not in ("", _ONCE) else "")


#: Additional columns: for tables with one value column, and with several.
_DETAILS, _USED = ("±", "min", "max", "n", "of limit"), ("of limit",)


def _grid(
    unit: str, columns: Sequence[str], rows: Sequence[Sequence[Text | str]], details: Sequence[str] = ()
) -> Grid:
    """Return a table; details that are empty in all rows are omitted."""
    grid = Grid(box=None, padding=(0, 2, 0, 0), pad_edge=False, header_style="dim")
    grid.add_column(unit, no_wrap=True)
    for label in columns:
        grid.add_column(label, justify="right", no_wrap=True)
    values = 1 + len(columns)
    kept = [i for i in range(len(details)) if any(row[values + i] for row in rows)]
    for i in kept:
        grid.add_column(details[i], justify="right", no_wrap=True, style="dim")
    for row in rows:
        grid.add_row(*row[:values], *(row[values + i] for i in kept))
    return grid


def _value(cell: Cell | None, scale: float) -> Text:
    """Return a value, with its marks; a dash if there is no cell, ``n/a`` if the cell has no value."""
    if cell is None:
        return Text("-", style="dim")
    if cell.value is None:
        return Text("n/a", style="yellow")
    marks = "*" * cell.is_slow + "~" * _is_uncertain(cell)
    return Text(marks + number(cell.value, scale))


def _details(cells: list[Cell | None], scale: float) -> list[str]:
    """Return interval, range, number of samples and fraction of the limit, if the row has one cell."""
    if len(cells) != 1:
        return []
    cell = cells[0]
    if cell is None or cell.statistics is None:
        return [""] * 5
    statistics, width = cell.statistics, half_width(cell.statistics)
    shown = f"{width:.1%}" if width < math.inf else ""
    used = f"{cell.value / cell.limit:.0%}" if cell.value and cell.limit else ""
    return [shown, number(statistics.min, scale), number(statistics.max, scale), str(statistics.n), used]


def _matrix(table: Table, style: Style) -> list[RenderableType]:
    """Return a matrix; its columns are split into several pieces if the terminal is too narrow."""
    scale, unit = fitting(table.unit, table.values())
    cells = table.grid()
    widest = max(
        [4, *(len(_value(cell, scale)) for row in cells for cell in row)],
    )
    widest = max([widest, *(len(label) for label in table.columns.labels)]) + 2
    label = max([len(unit), *(len(label) for label in table.rows.labels)]) + 2
    at_once = max(1, (style.width - label) // widest)
    pieces: list[RenderableType] = []
    for start in range(0, len(table.columns.labels), at_once):
        chosen = slice(start, start + at_once)
        lines: list[list[Text | str]] = [
            [Text(name, style="dim"), *(_value(c, scale) for c in row[chosen]), *_details(row, scale)]
            for name, row in zip(table.rows.labels, cells, strict=True)
        ]
        details = _DETAILS if len(table.columns.labels) == 1 else ()
        pieces.append(_grid(unit, table.columns.labels[chosen], lines, details))
    return pieces + _use(table)


def _use(table: Table) -> list[RenderableType]:
    """Return the fractions of the limit that the cells of a matrix reach, if two or more have a limit."""
    known = [(cell.value / cell.limit, cell) for cell in table.cells if cell.value and cell.limit]
    if len(known) < 2:
        return []
    scale, unit = fitting(table.unit, table.values())
    (low, worst), (high, _) = min(known, key=lambda k: k[0]), max(known, key=lambda k: k[0])
    limits = sorted({number(cell.limit, scale) for _, cell in known if cell.limit}, key=float)
    of = limits[0] if len(limits) == 1 else f"{limits[0]} to {limits[-1]}"
    share = f"{low:.1%}"
    if share != f"{high:.1%}":
        share += f" ({_where(table, worst)}) to {high:.1%}"
    return [Text(f"{share} of the limit, {of} {unit}", style="dim")]


def _where(table: Table, cell: Cell) -> str:
    """Return the labels of a cell; only the column if the table has one row."""
    column = table.columns.labels[cell.column]
    return column if len(table.rows.labels) == 1 else f"{table.rows.labels[cell.row]}, {column}"


def _summary(table: Table) -> RenderableType:
    """Return the median and range of a matrix that is too large to read."""
    scale, unit = fitting(table.unit, table.values())
    measured = [cell for cell in table.cells if cell.value is not None]
    if not measured:
        return Text("no cell was measured")

    def where(cell: Cell) -> str:
        return f"row {table.rows.labels[cell.row]}, column {table.columns.labels[cell.column]}"

    def value_of(cell: Cell) -> float:
        return cell.value or 0.0

    low, high = min(measured, key=value_of), max(measured, key=value_of)
    grid = Grid(box=None, padding=(0, 2, 0, 0), pad_edge=False, header_style="dim")
    grid.add_column(unit, no_wrap=True)
    grid.add_column("", justify="right")
    grid.add_column("")
    middle = number(summarise([value_of(c) for c in measured]).median, scale)
    grid.add_row(
        "median",
        middle,
        f"of {many(len(measured), 'cell')}; {len(table.cells) - len(measured)} without a value",
    )
    grid.add_row("lowest", number(value_of(low), scale), where(low))
    grid.add_row("highest", number(value_of(high), scale), where(high))
    return grid


def _curve(table: Table, style: Style) -> list[RenderableType]:
    """Return curves as columns, in several pieces if there are too many; a single curve gets bars."""
    scale, unit = fitting(table.unit, table.values())
    rows = table.grid()
    labels = [f"{label} {unit}" for label in table.rows.labels]
    first = max(len(label) for label in (table.columns.name, *table.columns.labels)) + 2
    at_once = max(1, (style.width - first) // (max(map(len, labels)) + 2))
    values = [cell.value for cell in rows[0] if cell and cell.value]
    room = style.width - first - len(labels[0]) - 2
    bars = len(rows) == 1 and len(values) > 1 and room >= 12
    pieces: list[RenderableType] = []
    for start in range(0, len(rows), at_once):
        chosen = slice(start, start + at_once)
        grid = Grid(box=None, padding=(0, 2, 0, 0), pad_edge=False, header_style="dim")
        grid.add_column(table.columns.name, no_wrap=True, justify="right")
        for label in labels[chosen]:
            grid.add_column(label, justify="right", no_wrap=True)
        if bars:
            grid.add_column("logarithmic" if table.unit is Unit.TIME else "", no_wrap=True, style="cyan")
        for j, label in enumerate(table.columns.labels):
            cells = [row[j] for row in rows[chosen]]
            if all(cell is None for cell in cells):
                continue
            bar = [_bar(cells[0], values, min(room, 40), table.unit)] if bars else []
            grid.add_row(label, *(_value(cell, scale) for cell in cells), *bar)
        pieces.append(grid)
    return pieces


def _bar(cell: Cell | None, values: list[float], width: int, unit: Unit) -> str:
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


def _closing(document: Document, style: Style) -> RenderableType:
    """Return failures, waived testcases and the counts."""
    lines: list[RenderableType] = []
    for result in document.testcases:
        if not result.status.good:
            lines.append(Text(f"{result.name}: {result.status}: {result.reason}", style="red"))
        if result.status is Status.PASSED:
            cells = (cell for table in result.tables for cell in table.cells if cell.value is None)
            reasons = sorted({cell.reason for cell in cells if cell.reason})
            lines += [Text(f"{result.name}: n/a: {reason}", style="yellow") for reason in reasons]
    if document.interrupted:
        lines.append(Text(f"run interrupted: {document.interrupted}", style="bold red"))
    measured = [cell for result in document.testcases for table in result.tables for cell in table.cells]
    if any(cell.is_slow for cell in measured):
        lines.append(Text(FOOTNOTE, style="dim"))
    if any(map(_is_uncertain, measured)):
        lines.append(Text(f"~ 95 % confidence interval wider than ±{_UNCERTAIN:.0%}", style="dim"))
    lines += _waived(document, style)
    counts = Counter(result.status for result in document.testcases)
    count = ", ".join(f"{counts[s]} {s}" for s in Status if counts[s]) or "nothing was run"
    line = Text(f"{count} in {format_time(document.seconds)}", style="bold")
    if document.simulated:
        line.append(f" · {SIMULATED}", style="bold magenta")
    return Group("", *lines, line)


def _is_uncertain(cell: Cell) -> bool:
    return cell.statistics is not None and _UNCERTAIN < half_width(cell.statistics) < math.inf


def _waived(document: Document, style: Style) -> list[RenderableType]:
    by_reason: dict[str, list[str]] = {}
    for result in document.testcases:
        if result.status is Status.WAIVED:
            by_reason.setdefault(result.reason, []).append(result.name)
    lines: list[RenderableType] = []
    for reason, names in by_reason.items():
        shown = ", ".join(names) if style.verbose or len(names) < 3 else many(len(names), "testcase")
        lines.append(Text(f"waived: {shown}: {reason}", style="dim"))
    return lines
