"""Progress bars on standard error, if it is a terminal."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from .document import Document, Status, TestcaseResult
from .driver.listener import Listener
from .terminal import one_line
from .testcases import Testcase

#: Period from which the remaining time is estimated, in s.
_ESTIMATE_S = 300.0


def listener() -> list[Listener]:
    """Return listeners that show progress; empty if standard error is not a terminal."""
    return [Bars()] if sys.stderr.isatty() else []


class Bars(Listener):
    """Two bars, one for all testcases and one for the cells of the current testcase."""

    def __init__(self) -> None:
        from rich.console import Console
        from rich.progress import (
            BarColumn,
            MofNCompleteColumn,
            Progress,
            TextColumn,
            TimeElapsedColumn,
            TimeRemainingColumn,
        )

        self.progress = Progress(
            TextColumn("{task.description}", markup=False), BarColumn(bar_width=24), MofNCompleteColumn(),
            TimeElapsedColumn(), TextColumn("left"), TimeRemainingColumn(),
            console=Console(stderr=True), transient=True, speed_estimate_period=_ESTIMATE_S,
        )  # fmt: skip
        self.all = self.progress.add_task("testcases")
        self.cells = self.progress.add_task("starting", visible=False)
        self._total = self._ended = self._measurements = 0

    def run_started(self, document: Document, testcases: Sequence[Testcase]) -> None:
        """Show the number of testcases."""
        self._total = len(testcases)
        self.progress.update(self.all, total=self._total)
        self.progress.start()

    def run_extended(self, testcases: Sequence[Testcase]) -> None:
        """Add to the number of testcases."""
        self._total += len(testcases)
        self.progress.update(self.all, total=self._total)

    def testcase_started(self, case: Testcase, measurements: int) -> None:
        """Show the number of cells."""
        self._measurements = measurements
        self.progress.reset(self.cells, total=measurements, description=case.name, visible=True)

    def measuring(self, case: Testcase, done: int, stage: str) -> None:
        """Show the cell and the stage."""
        text = one_line(f"{case.name}: {stage}")
        room = max(20, self.progress.console.width - 64)
        text = text if len(text) <= room else text[: room - 1] + "…"
        self.progress.update(self.cells, completed=done, description=text)
        self.progress.update(self.all, completed=self._ended + done / self._measurements)

    def testcase_ended(self, document: Document, result: TestcaseResult) -> None:
        """Advance the bar; do not count waived testcases."""
        self.progress.update(self.cells, visible=False)
        if result.status is Status.WAIVED:
            self._total -= 1
        else:
            self._ended += 1
        self.progress.update(self.all, completed=self._ended, total=self._total)

    def run_ended(self, document: Document) -> None:
        """Clear the screen for the report."""
        self.progress.stop()
