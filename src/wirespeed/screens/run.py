"""Text of ``wirespeed`` without a choice of testcases: a table of the key figures of each device and pair for
each kind of path, with a sign at each value that is not as expected, then what a check says. The format
``table`` has all tables.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from msgspec.structs import replace as changed
from rich.console import RenderableType
from rich.table import Column
from rich.text import Text

from ..document import Document, Status, TestcaseResult
from ..judging.check import Check
from ..judging.judged import Judged
from ..judging.path_kinds import COLLECTIVES, GPU_GPU, PathKind, path_kind, path_kinds
from ..judging.verdict import Verdict
from ..measurement import Axis
from ..reports import Style
from ..reports.console import heading, pieces, printed
from ..reports.explanations import explanations
from ..reports.grid import Grid, GridCell, digest, is_large
from ..reports.looks import SIGNS
from ..reports.table import notes
from ..reports.table import render as every_table
from ..reports.testcase_texts import buffers
from ..reports.values import GLANCE
from ..results.cells import key_of
from ..statistics import grouped
from ..tables import BUSBW, Table
from ..units import many
from . import check as check_screen

#: Testcases that the table of a kind of path shows besides its key figures, by the name of the kind.
_MORE = {
    "host_gpu": ("host_to_all_memcpy_ce", "all_to_host_memcpy_ce", "host_device_latency_sm"),
    "gpu_memory": ("device_stream_copy", "device_local_copy"),
    "host_memory": ("host_stream_copy", "host_stream_read", "host_stream_write",
                    "numa_to_numa_memcpy_read_cpu", "host_latency"),
}  # fmt: skip
#: Maximum number of testcases that are shown of a kind of path of which no key figure was measured.
_OTHERS = 4
#: Maximum number of pieces into which a table is split by its columns.
_PIECES = 2
#: What is signed in tables, and the words of the legend.
_SIGNED = {
    Verdict.FAIL: "fail", Verdict.WARN: "warn", Verdict.IMPLAUSIBLE: "above the limit",
    Verdict.BUSY: "not judged: device in use",
}  # fmt: skip

#: Testcase, table, row and column of a value.
_Place = tuple[str, str, str, str]


def render(judged: Judged, style: Style) -> str:
    """Render the key figures of each kind of path as tables, then verdict, cause and remedy.

    ``style.verbose`` shows all tables instead of the key figures.
    """
    document, briefly = judged.document, replace(style, verbose=False)
    if style.verbose:
        return every_table(judged, style) + printed(style, "", *check_screen.parts(judged, briefly))
    parts: list[RenderableType] = [heading(document), *notes(document, explanations(document))]
    if not document.qualification:
        parts += Tables(document, judged.check, style.width).all()
        skipped = sum(result.status is Status.WAIVED for result in document.testcases)
        more = f"{many(skipped, 'testcase')} skipped (wirespeed list says why); " if skipped else ""
        parts += ["", Text(f"{more}-v shows every table", style="dim")]
    return printed(style, *parts, "", *check_screen.parts(judged, briefly))


class Tables:
    """The tables of all kinds of paths of a run.

    Attributes:
        signed: The verdicts whose sign a table shows.
    """

    def __init__(self, document: Document, check: Check, width: int) -> None:
        self._document, self._check, self._width = document, check, width
        self._verdicts = {judgement.key[:4]: judgement.verdict for judgement in check.judgements}
        self.signed: set[Verdict] = set()

    def all(self) -> Iterator[RenderableType]:
        """The tables, each with an empty line before it, and the meaning of the signs."""
        by_kind: dict[str, dict[str, TestcaseResult]] = {}
        sizes: dict[str, None] = {}
        for result in self._document.testcases:
            if any(table.values() for table in result.tables):
                kind = path_kind(result.name, collective=result.collective is not None)
                by_kind.setdefault(kind.name, {})[result.name] = result
                sizes |= dict.fromkeys(filter(None, [buffers(self._document, result)]))
        if sizes:
            yield from ("", Text(", ".join(sizes), style="bold"))
        for kind in path_kinds():
            if results := by_kind.get(kind.name):
                yield ""
                yield from self._of_kind(kind, results)
        if self.signed:
            words = (f"{SIGNS[one].mark} {word}" for one, word in _SIGNED.items() if one in self.signed)
            yield Text("  ".join(words), style="dim")

    def _of_kind(self, kind: PathKind, results: Mapping[str, TestcaseResult]) -> Iterator[RenderableType]:
        """Testcases with the same unit and columns as rows of one table, and matrices after them."""
        if kind == COLLECTIVES:
            yield from self._collectives(results.values())
            return
        groups = ([results[name] for name in names if name in results] for names in kind.key_figures)
        key = next(filter(None, groups), [])
        if key and kind == GPU_GPU:  # the worst direction; of the other one the range is enough
            key.sort(key=lambda result: self._check.testcases[result.name].rank)
            yield from self._matrix(key[0], kind.title)
            yield from map(self._digest, key[1:])
            return
        names = dict.fromkeys((*(result.name for result in key), *_MORE.get(kind.name, ())))
        chosen = [results[name] for name in names if name in results] or [*results.values()][:_OTHERS]
        tables = [(result, result.tables[-1]) for result in chosen]
        matrices = [result for result, table in tables if len(table.rows.labels) > 1 and not table.is_curve]
        flat = (one for one in tables if len(one[1].rows.labels) <= 1 or one[1].is_curve)
        vectors = (_Vector.of(result, table) for result, table in flat if table.values())
        rows = grouped(((vector.table.unit, vector.table.columns.labels), vector) for vector in vectors)
        for together in rows.values():
            yield from self._vectors(together, kind.title)
        for result in matrices:
            yield from self._matrix(result, result.name if rows else kind.title)

    def _collectives(self, results: Iterable[TestcaseResult]) -> Iterator[RenderableType]:
        """The bus bandwidth of each collective at its largest size."""
        vectors = (
            _Vector.of(result, table)
            for result in results for table in result.tables if table.key == BUSBW and table.values()
        )  # fmt: skip
        rows = grouped(((vector.at, *vector.table.columns.labels), vector) for vector in vectors)
        for (size, *_), together in rows.items():
            yield from self._vectors(together, f"collectives at {size}, bus bandwidth")

    def _vectors(self, rows: Sequence[_Vector], title: str) -> Iterator[RenderableType]:
        """A table with a row for each testcase."""
        cells = tuple(changed(cell, row=i) for i, row in enumerate(rows) for cell in row.table.cells)
        axis = Axis("testcase", tuple(row.result.name for row in rows))
        keys = [[(row.result.name, row.table.key, *place) for place in row.places] for row in rows]
        table = changed(rows[0].table, rows=axis, cells=cells)
        shown = self._shown(title, table, keys)
        yield from shown or map(self._digest, (row.result for row in rows))

    def _matrix(self, result: TestcaseResult, title: str) -> Iterator[RenderableType]:
        """A matrix, and a line that says what it shows."""
        table = result.tables[-1]
        keys = [[(result.name, table.key, row, column) for column in table.columns.labels]
                for row in table.rows.labels]  # fmt: skip
        if shown := [] if is_large(table) else self._shown(title, table, keys):
            yield from shown
            if title != result.name:
                yield Text(f"{result.name}: {result.description}", style="dim")
        else:
            yield self._digest(result)

    def _shown(self, title: str, table: Table, keys: Sequence[Sequence[_Place]]) -> list[Text]:
        """A table with signs, in two pieces if it is too wide for one; empty if these are not enough.

        Args:
            title: What the table shows.
            table: The table.
            keys: The place of each value in the judgement.
        """
        grid = Grid.of(table, GLANCE)
        verdicts = [[self._verdicts.get(key) for key in row] for row in keys]
        rows: list[list[Text | str]] = [
            [label, *map(_text, entries, row)]
            for label, entries, row in zip(grid.rows.labels, grid.entries, verdicts, strict=True)
        ]
        tables = pieces(Column(f"{title}, {grid.unit}"), grid.columns.labels, rows, self._width)
        if len(tables) > _PIECES:
            return []
        self.signed.update(verdict for row in verdicts for verdict in row if verdict in _SIGNED)
        return tables

    def _digest(self, result: TestcaseResult) -> Text:
        """The range of the values of a testcase in a line, and how many are not as expected."""
        table = result.tables[-1]
        known = [self._verdicts.get(key_of(result, table, cell)[:4]) for cell in table.cells]
        counts = (f"{SIGNS[verdict].mark} {known.count(verdict)} {word}"
                  for verdict, word in _SIGNED.items() if verdict in known)  # fmt: skip
        shown = _Vector.of(result, table).table if table.is_curve else table
        return Text("; ".join((f"{result.name}: {digest(shown, GLANCE)}", *counts)), style="dim")


@dataclass(frozen=True)
class _Vector:
    """A table with one row; of curves, their values at the largest size.

    Attributes:
        result: The testcase.
        table: The table.
        places: Row and column of each value in the table of the testcase.
        at: The size; empty if the table has no curves.
    """

    result: TestcaseResult
    table: Table
    places: tuple[tuple[str, str], ...]
    at: str = ""

    @classmethod
    def of(cls, result: TestcaseResult, table: Table) -> _Vector:
        """A table with one row or curves as a row."""
        rows, columns = table.rows, table.columns
        if not table.is_curve:
            return cls(result, table, tuple((rows.labels[0], column) for column in columns.labels))
        largest = max(cell.column for cell in table.cells if cell.value is not None)
        at = columns.labels[largest]
        cells = tuple(changed(cell, row=0, column=cell.row) for cell in table.cells if cell.column == largest)
        row = changed(
            table, rows=Axis(columns.name, (at,)), columns=Axis(rows.name, rows.labels), cells=cells
        )
        return cls(result, row, tuple((label, at) for label in rows.labels), at)


def _text(entry: GridCell, verdict: Verdict | None) -> Text:
    """A value after the sign of its verdict, if it is not as expected."""
    if entry.cell is None or entry.cell.value is None:
        return Text(entry.text, style="yellow" if entry.cell else "dim")
    if verdict in _SIGNED:
        return Text(f"{SIGNS[verdict].mark}{entry.text}", style=SIGNS[verdict].style)
    return Text(entry.mark + entry.text)
