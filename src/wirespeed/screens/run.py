"""Text of ``wirespeed`` without a choice of testcases: a table for each kind of path, then what a check says.

All tables are in the format ``table``. Here a reader sees the key figures of each device and pair, with a
sign at each value that is not as expected.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from msgspec.structs import replace as changed
from rich.console import RenderableType
from rich.table import Column
from rich.text import Text

from ..document import Document, Status, TestcaseResult
from ..judging.path_kinds import (
    COLLECTIVES,
    GPU_GPU,
    GPU_MEMORY,
    HOST_GPU,
    HOST_MEMORY,
    path_kind,
    path_kinds,
)
from ..judging.verdict import Verdict
from ..judging.verdicts import Check
from ..measurement import Axis, Unit
from ..reports import Judged, Style
from ..reports.console import heading, pieces, printed, width_of
from ..reports.findings import GLANCE, SIGNS, buffers
from ..reports.grid import Grid, GridCell, digest
from ..reports.table import render as every_table
from ..results.cells import key_of
from ..tables import BUSBW, Table
from ..units import many
from . import check as check_screen

#: Testcases that the table of a kind of path shows besides its key figures, by the name of the kind.
_MORE = {
    HOST_GPU.name: ("host_to_all_memcpy_ce", "all_to_host_memcpy_ce", "host_device_latency_sm"),
    GPU_MEMORY.name: ("device_stream_copy", "device_local_copy"),
    HOST_MEMORY.name: ("host_stream_copy", "host_stream_read", "host_stream_write",
                       "numa_to_numa_memcpy_read_cpu", "host_latency"),
}  # fmt: skip
#: Maximum number of testcases that are shown of a kind of path of which no key figure was measured.
_OTHERS = 4
#: Width of a table that is never split.
_WIDE = 10_000
#: What is signed in tables, and the words of the legend.
_SIGNED = {
    Verdict.FAIL: "fail", Verdict.WARN: "warn", Verdict.IMPLAUSIBLE: "above the limit",
    Verdict.BUSY: "not judged: device in use",
}  # fmt: skip

#: Verdict on a value, by testcase, table, row and column.
_Verdicts = Mapping[tuple[str, str, str, str], Verdict]


@dataclass(frozen=True)
class _PathRow:
    """A row of a table of several testcases.

    Attributes:
        result: The testcase.
        table: A table with one row.
        verdicts: The verdict on each of its columns, where one is known.
    """

    result: TestcaseResult
    table: Table
    verdicts: tuple[Verdict | None, ...]


def render(document: Document, style: Style, file: str = "") -> str:
    """Render the key figures of each kind of path as tables, then verdict, cause and remedy.

    Args:
        document: The run.
        style: Width and colour; ``verbose`` shows all tables instead of the key figures.
        file: The file of the run; empty if it was not saved.
    """
    judged = style.judged or Judged.of(document, style.criteria, file=file)
    shown = replace(style, judged=judged, verbose=False)
    if style.verbose:
        every = every_table(document, replace(style, judged=judged))
        return every + printed(style, "", *check_screen.parts(document, shown))
    parts: list[RenderableType] = [heading(document)]
    parts += [Text(f"note: {note}", style="dim") for note in document.machine.notes]
    if not document.qualification:
        parts += tables(document, judged.check, style.width)
        skipped = sum(result.status is Status.WAIVED for result in document.testcases)
        more = f"{many(skipped, 'testcase')} skipped (wirespeed list says why); " if skipped else ""
        parts += ["", Text(f"{more}-v shows every table", style="dim")]
    return printed(style, *parts, "", *check_screen.parts(document, shown))


def tables(document: Document, check: Check, width: int) -> Iterator[RenderableType]:
    """The tables of all kinds of paths, each with an empty line before it, and the meaning of the signs."""
    verdicts = {judgement.key[:4]: judgement.verdict for judgement in check.judgements}
    by_kind: dict[str, list[TestcaseResult]] = {}
    sizes: dict[str, None] = {}
    for result in document.testcases:
        if any(table.values() for table in result.tables):
            kind = path_kind(result.name, collective=result.collective is not None)
            by_kind.setdefault(kind.name, []).append(result)
            sizes |= dict.fromkeys(filter(None, [buffers(document, result)]))
    if sizes:
        yield from ("", Text(", ".join(sizes), style="bold"))
    signed: set[Verdict] = set()
    for kind in path_kinds():
        results = by_kind.get(kind.name, [])
        if kind == COLLECTIVES:
            yield from _collectives(results, verdicts, signed, width)
            continue
        by_name = {result.name: result for result in results}
        groups = ([by_name[name] for name in names if name in by_name] for names in kind.key_figures)
        key = next(filter(None, groups), [])
        if key and kind == GPU_GPU:
            yield from _worst_matrix(key, kind.title, verdicts, signed, check, width)
            continue
        names = dict.fromkeys((*(result.name for result in key), *_MORE.get(kind.name, ())))
        chosen = [by_name[name] for name in names if name in by_name] or results[:_OTHERS]
        yield from _of_kind(chosen, kind.title, verdicts, signed, width)
    if signed:
        words = (f"{SIGNS[verdict].mark} {word}" for verdict, word in _SIGNED.items() if verdict in signed)
        yield Text("  ".join(words), style="dim")


def _of_kind(
    results: Sequence[TestcaseResult], title: str, verdicts: _Verdicts, signed: set[Verdict], width: int
) -> Iterator[RenderableType]:
    """Testcases with the same unit and columns as rows of one table, and the matrices after them."""
    rows: dict[tuple[Unit, tuple[str, ...]], list[_PathRow]] = {}
    matrices: list[TestcaseResult] = []
    for result in results:
        table = _at_largest(result.tables[-1])
        if len(table.rows.labels) > 1:
            matrices.append(result)
        elif any(cell.value is not None for cell in table.cells):
            rows.setdefault((table.unit, table.columns.labels), []).append(_row(result, table, verdicts))
    if rows or matrices:
        yield ""
    for together in rows.values():
        yield from _table(together, title, signed, width)
    for result in matrices:
        yield from _matrix(result, title, verdicts, signed, width)


def _worst_matrix(
    results: Sequence[TestcaseResult], title: str, verdicts: _Verdicts, signed: set[Verdict],
    check: Check, width: int,
) -> Iterator[RenderableType]:  # fmt: skip
    """The matrix of the testcase with the worst verdict, and the range of the values of the others."""
    first = min(results, key=lambda result: check.testcases[result.name].rank)
    yield ""
    yield from _matrix(first, title, verdicts, signed, width)
    for result in results:
        if result is not first:
            yield _digest(result)


def _matrix(
    result: TestcaseResult, title: str, verdicts: _Verdicts, signed: set[Verdict], width: int
) -> Iterator[RenderableType]:
    """A matrix with a line that says what it shows; the range of its values if it is too wide."""
    table = _at_largest(result.tables[-1])
    grid = Grid.of(table, GLANCE)
    rows: list[list[Text | str]] = []
    for label, entries in zip(table.rows.labels, grid.entries, strict=True):
        marks = [verdicts.get((result.name, table.key, label, column)) for column in table.columns.labels]
        rows.append([Text(label, style="dim"), *map(_text, entries, marks)])
    (shown,) = pieces(Column(f"{title}, {grid.unit}", no_wrap=True), table.columns.labels, rows, _WIDE)
    if width_of(shown) > width or len(table.rows.labels) > width // 2:
        yield _digest(result)
        return
    signed |= _signs(result, verdicts)
    yield from (shown, Text(f"{result.name}: {result.description}", style="dim"))


def _collectives(
    results: Sequence[TestcaseResult], verdicts: _Verdicts, signed: set[Verdict], width: int
) -> Iterator[RenderableType]:
    """The bus bandwidth of each collective at its largest size, by library or type if there are several."""
    rows: dict[tuple[str, ...], list[_PathRow]] = {}
    for result in results:
        for table in result.tables:
            if table.key == BUSBW and table.values():
                one = _at_largest(table)
                size = table.columns.labels[
                    max(cell.column for cell in table.cells if cell.value is not None)
                ]
                rows.setdefault((size, *one.columns.labels), []).append(_row(result, one, verdicts))
    if rows:
        yield ""
    for (size, *_), together in rows.items():
        yield from _table(together, f"collectives at {size}, bus bandwidth", signed, width)


def _row(result: TestcaseResult, table: Table, verdicts: _Verdicts) -> _PathRow:
    """A row with the verdicts on its values."""
    source = next(one for one in result.tables if one.key == table.key)
    if source is table:
        row = table.rows.labels[0]
        places = [(row, column) for column in table.columns.labels]
    else:  # the points of curves at one size: their rows are the columns here
        column = source.columns.labels[_largest(source)]
        places = [(row, column) for row in source.rows.labels]
    known = tuple(verdicts.get((result.name, table.key, *place)) for place in places)
    return _PathRow(result, table, known)


def _table(
    rows: Sequence[_PathRow], title: str, signed: set[Verdict], width: int
) -> Iterator[RenderableType]:
    """A table with a row for each testcase; the range of the values of each if it is too wide."""
    cells = tuple(changed(cell, row=i) for i, row in enumerate(rows) for cell in row.table.cells)
    axis = Axis("testcase", tuple(row.result.name for row in rows))
    grid = Grid.of(changed(rows[0].table, rows=axis, cells=cells), GLANCE)
    texts: list[list[Text | str]] = [
        [row.result.name, *map(_text, entries, row.verdicts)]
        for row, entries in zip(rows, grid.entries, strict=True)
    ]
    (shown,) = pieces(Column(f"{title}, {grid.unit}", no_wrap=True), grid.columns.labels, texts, _WIDE)
    if width_of(shown) > width:
        yield from (_digest(row.result, row.table) for row in rows)
        return
    signed.update(verdict for row in rows for verdict in row.verdicts if verdict in _SIGNED)
    yield shown


def _at_largest(table: Table) -> Table:
    """A table; of curves, the values at the largest measured size as its only row."""
    if not table.is_curve:
        return table
    largest = _largest(table)
    cells = tuple(changed(cell, row=0, column=cell.row) for cell in table.cells if cell.column == largest)
    row = Axis(table.columns.name, (table.columns.labels[largest],))
    return changed(table, rows=row, columns=Axis(table.rows.name, table.rows.labels), cells=cells)


def _largest(table: Table) -> int:
    """The last column of curves that has a value."""
    return max((cell.column for cell in table.cells if cell.value is not None), default=0)


def _digest(result: TestcaseResult, table: Table | None = None) -> Text:
    """The range of the values of a testcase in a line."""
    return Text(f"{result.name}: {digest(table or _at_largest(result.tables[-1]))}", style="dim")


def _signs(result: TestcaseResult, verdicts: _Verdicts) -> set[Verdict]:
    """The verdicts of a testcase that have a sign."""
    table = result.tables[-1]
    known = (verdicts.get(key_of(result, table, cell)[:4]) for cell in table.cells)
    return {verdict for verdict in known if verdict in _SIGNED}


def _text(entry: GridCell, verdict: Verdict | None) -> Text:
    """A value after the sign of its verdict, if it is not as expected."""
    if entry.cell is None or entry.cell.value is None:
        return Text(entry.text, style="yellow" if entry.cell else "dim")
    if verdict in _SIGNED:
        return Text(f"{SIGNS[verdict].mark} {entry.text}", style=SIGNS[verdict].style)
    return Text(entry.mark + entry.text)
