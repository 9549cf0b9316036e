"""Text output of the over-allocation reproducer; for a sweep, its phases with the slow ones marked."""

from __future__ import annotations

import textwrap

from ..document import Document, Status, Table, TestcaseResult
from ..driver.phases import FOOTNOTE
from ..testcases.sharing import WITH, WITHOUT
from ..units import format_time
from . import Style


def render(document: Document, style: Style) -> str:
    """Render the reproducer or the sweep as text."""
    lines: list[str] = []
    for result in document.testcases:
        if any(table.key == WITH for table in result.tables):
            lines += reproduced(document, result)
        else:
            lines += [*swept, ""] if (swept := _sweep(result)) else []
        if result.status is not Status.PASSED:
            reason = f"{result.name}: {result.status}, {result.reason}"
            lines += [*textwrap.wrap(reason, style.width, break_on_hyphens=False), ""]
    if any(cell.is_slow for r in document.testcases for t in r.tables for cell in t.cells):
        lines.append(FOOTNOTE)
    if document.interrupted:
        lines += textwrap.wrap(f"the run ended early: {document.interrupted}", style.width)
    return "\n".join(lines).rstrip("\n") + "\n"


def reproduced(document: Document, result: TestcaseResult) -> list[str]:
    """Return the reproducer's lines of what was measured; more follow as more is."""
    if not any(table.values() for table in result.tables):
        return []
    options = document.options
    lines = [f"{name}: {options.get(name)}" for name in ("p2p_size", "buffer_size", "overalloc_size")]
    last = int(str(options.get("ranks", 2))) - 1
    for table in result.tables:
        if table.key in (WITH, WITHOUT) and table.values():
            lines.append(
                f"Doing MPI_Send/Recv from rank 0 to rank {last}, of {options.get('p2p_size')} bytes from "
                f"{table.title}."
            )
        for cell in (cell for cell in table.cells if cell.value is not None):
            place = f"{cell.row}:{cell.column}" if table.key in (WITH, WITHOUT) else table.rows.labels[0]
            lines.append(f"[{place}] time: {cell.value:.6g}")
    return lines


def _sweep(result: TestcaseResult) -> list[str]:
    if not any(table.values() for table in result.tables):
        return []
    table = result.tables[0]
    lines = [f"{result.name}: {result.counts}, median of {_samples(table)}"]
    first = ["over", *table.rows.labels]
    columns = [first]
    for j, phase in enumerate(table.columns.labels):
        column = [phase]
        for i in range(len(table.rows.labels)):
            cell = next((c for c in table.cells if (c.row, c.column) == (i, j)), None)
            shown = "-" if cell is None or cell.value is None else format_time(cell.value)
            column.append(f"{'*' if cell and cell.is_slow else ''}{shown}")
        columns.append(column)
    widths = [max(map(len, column)) for column in columns]
    for i in range(len(first)):
        cells = [column[i].rjust(width) for column, width in zip(columns, widths, strict=True)]
        lines.append("  ".join([first[i].ljust(widths[0]), *cells[1:]]).rstrip())
    return lines


def _samples(table: Table) -> int:
    return max((cell.statistics.n for cell in table.cells if cell.statistics), default=0)
