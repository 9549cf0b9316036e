"""Text output of the over-allocation reproducer."""

from __future__ import annotations

import textwrap

from ...document import Document, Status, TestcaseResult
from ...judging.judged import Judged
from ...reports.style import Style
from .sharing import WITH, WITHOUT


def render(judged: Judged, style: Style) -> str:
    """The lines of the reproducer for each testcase, and why a testcase did not pass."""
    document = judged.document
    lines: list[str] = []
    for result in document.testcases:
        if any(table.key == WITH for table in result.tables):
            lines += reproduced(document, result)
        elif result.status is Status.PASSED:
            lines += [f"{result.name}: not of the reproducer; see --format table"]
        if result.status is not Status.PASSED:
            reason = f"{result.name}: {result.status}, {result.reason}"
            lines += [*textwrap.wrap(reason, style.width, break_on_hyphens=False), ""]
    if document.interrupted:
        lines += textwrap.wrap(f"the run ended early: {document.interrupted}", style.width)
    return "\n".join(lines).rstrip("\n") + "\n"


def reproduced(document: Document, result: TestcaseResult) -> list[str]:
    """The reproducer's lines of what was measured so far; more follow as more is measured."""
    if not any(table.values() for table in result.tables):
        return []
    options = document.options
    lines = [f"{name}: {options.get(name)}" for name in ("p2p_size", "buffer_size", "overalloc_size")]
    last = int(str(options.get("ranks", 2))) - 1
    for table in result.tables:
        if table.key in (WITH, WITHOUT) and table.values():
            sent = options.get("p2p_size")
            if table.key == WITHOUT:  # an exact buffer may be smaller
                sent = min(sent, options.get("buffer_size"), key=lambda size: int(str(size)))
            lines.append(
                f"Doing MPI_Send/Recv from rank 0 to rank {last}, of {sent} bytes from {table.title}."
            )
        for cell in (cell for cell in table.cells if cell.value is not None):
            place = f"{cell.row}:{cell.column}" if table.key in (WITH, WITHOUT) else table.rows.labels[0]
            lines.append(f"[{place}] time: {cell.value:.6g}")
    return lines
