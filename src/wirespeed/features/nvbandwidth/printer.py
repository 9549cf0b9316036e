"""Printing the text of nvbandwidth and its relatives while they measure."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from ...document import Document, TestcaseResult
from ...driver.listener import Listener
from ...reports import Style
from ...terminal import visible
from ...testcases.table import Testcase
from . import dialects
from . import text as nvbandwidth
from .dumps import Dumps


class Printer(Listener):
    """Prints every testcase as soon as it has ended."""

    def __init__(self, style: Style, dumps: Dumps | None = None) -> None:
        self.style = style
        self.dumps = dumps or Dumps()  #: what was found of wrong data, and what may explain it

    def run_started(self, document: Document, testcases: Sequence[Testcase]) -> None:
        """Print versions, host and devices."""
        print(visible(nvbandwidth.header(document, self.style)), end="", flush=True)

    def testcase_ended(self, document: Document, result: TestcaseResult) -> None:
        print(visible(nvbandwidth.testcase(document, result, self.style)), end="", flush=True)
        dialect = dialects.DIALECTS[self.style.dialect]
        reports = dialect.wrong_data(document, result, self.dumps.note, self.dumps.details)
        print(visible(reports), end="", file=sys.stderr, flush=True)
        for warning in result.warnings:
            print(visible(f"WARNING: {result.name}: {warning}"), file=sys.stderr, flush=True)

    def run_ended(self, document: Document) -> None:
        print(visible(nvbandwidth.footer(document, self.style)), end="", flush=True)
