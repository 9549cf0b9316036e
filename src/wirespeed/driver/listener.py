"""What follows the course of a run: progress, printing, saving."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ..document import Cell, Document, TestcaseResult
from ..testcases import Testcase

#: Key of a table, and a cell of it.
Filled = tuple[str, Cell]


class Listener:
    """Base class: override what is of interest. All calls come from the thread that runs the Session."""

    def run_started(self, document: Document, testcases: Sequence[Testcase]) -> None:
        """Nothing has been measured yet."""

    def testcase_started(self, case: Testcase, measurements: int) -> None:
        """Called before the first of a testcase's measurements; not if all of it is waived."""

    def measuring(self, case: Testcase, done: int, stage: str) -> None:
        """Called several times a second while a testcase runs."""

    def measured(self, case: Testcase, cells: Sequence[Filled], known: Callable[[], Document]) -> None:
        """Called after each measurement.

        Parameters
        ----------
        cells
            Those that it filled, from its own samples.
        known
            Returns the Document of all that is known by then.
        """

    def testcase_ended(self, document: Document, result: TestcaseResult) -> None:
        """Called with each result, those of waived testcases included."""

    def run_ended(self, document: Document) -> None:
        """Called once, however the run ended."""
