"""Progress on standard error, only where that is a terminal."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from ..results.document import Document, TestcaseResult
from ..session import Listener
from ..testcases import Testcase


def listener() -> list[Listener]:
    """Return what shows progress; nothing where nobody would see it."""
    return [Bars()] if sys.stderr.isatty() else []


class Bars:
    """Two bars, for the testcases and for the cells of one, and the stage under way."""

    def __init__(self) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

        self.progress = Progress(
            TextColumn("{task.description}"), BarColumn(bar_width=24), MofNCompleteColumn(),
            TimeElapsedColumn(), console=Console(stderr=True), transient=True,
        )  # fmt: skip
        self.all = self.progress.add_task("testcases")
        self.cells = self.progress.add_task("starting", visible=False)

    def run_started(self, document: Document, testcases: Sequence[Testcase]) -> None:
        """Show how many testcases there are."""
        self.progress.update(self.all, total=len(testcases))
        self.progress.start()

    def testcase_started(self, case: Testcase, measurements: int) -> None:
        """Show how many cells it has."""
        self.progress.reset(self.cells, total=measurements, description=case.name, visible=True)

    def measuring(self, case: Testcase, done: int, stage: str) -> None:
        """Show the cell and the stage."""
        text = f"{case.name}: {stage}"
        room = max(20, self.progress.console.width - 50)
        text = text if len(text) <= room else text[: room - 1] + "…"
        self.progress.update(self.cells, completed=done, description=text)

    def testcase_ended(self, document: Document, result: TestcaseResult) -> None:
        """One less to do."""
        self.progress.update(self.cells, visible=False)
        self.progress.advance(self.all)

    def run_ended(self, document: Document) -> None:
        """Clear the screen for the report."""
        self.progress.stop()
