"""Listeners of a run: what shows its progress, prints or saves overrides the methods of `Listener`."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ..document import Document, TestcaseResult
from ..errors import VerificationError
from ..tables import Cell
from ..testcases.table import Testcase

#: Key of a table, and a cell of it.
Filled = tuple[str, Cell]


class Listener:
    """Base class of listeners: override any methods. The thread that runs the Session calls them."""

    def run_started(self, document: Document, testcases: Sequence[Testcase]) -> None:
        """Handle the start of a run, before the first measurement."""

    def run_extended(self, testcases: Sequence[Testcase]) -> None:
        """Handle further testcases, which the run measures next."""

    def testcase_started(self, case: Testcase, measurements: int) -> None:
        """Handle the start of a testcase with this number of measurements; not called if it is waived."""

    def measuring(self, case: Testcase, done: int, stage: str) -> None:
        """Handle progress; called about ten times a second while a testcase runs."""

    def measured(self, case: Testcase, cells: Sequence[Filled], known: Callable[[], Document]) -> None:
        """Handle the end of a measurement.

        Args:
            case: The running testcase.
            cells: Cells that the measurement filled, from its samples only.
            known: Returns the Document of all results so far.
        """

    def data_wrong(self, case: Testcase, error: VerificationError) -> None:
        """Handle wrong data of a measurement, before its testcase ends."""

    def testcase_ended(self, document: Document, result: TestcaseResult) -> None:
        """Handle the result of a testcase, also of a waived one."""

    def run_ended(self, document: Document) -> None:
        """Handle the end of the run; called exactly once, also after an error."""
