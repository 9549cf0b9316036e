"""Files of the wrong values that sailbandwidth finds, in the folder that SAILBW_DUMP_PATH names."""

from __future__ import annotations

import os
import re
import sys
import time
from itertools import count
from pathlib import Path

from ...document import Document
from ...driver.listener import Listener
from ...errors import MOST_LISTED, VerificationError
from ...terminal import visible
from ...testcases.table import Testcase
from . import dialects

#: Variables with the folder of the files, and with the number of values that are listed: a number or ``ALL``.
FOLDER, SIZE = "SAILBW_DUMP_PATH", "SAILBW_DUMP_SIZE"
_DEFAULT_SIZE = 100


class Dumps(Listener):
    """Keeps what was found of wrong data, and writes a file of the values for each path.

    Attributes:
        note: What explains wrong data; empty if nothing is known.
    """

    def __init__(self, note: str = "") -> None:
        self.note = note
        #: Path of the data -> labels and values of its report, in addition to what the testcase has.
        self.details: dict[str, dict[str, str]] = {}
        self._document: Document | None = None

    def run_started(self, document: Document, testcases: object) -> None:
        self._document = document

    def testcase_started(self, case: Testcase, measurements: int) -> None:
        self.details.clear()

    def data_wrong(self, case: Testcase, error: VerificationError) -> None:
        """Write the file, if there is a folder for it and the values are known."""
        assert self._document is not None
        if error.found is None or error.way in self.details:
            return
        self.details[error.way] = details = dialects.details(error)
        folder = os.environ.get(FOLDER)
        if not folder:
            return
        text = dialects.dump(self._document, case.name, error, listed())
        try:
            details["dumped file"] = str(_written(Path(folder).absolute(), dialects.dump_name(error), text))
        except OSError as failure:
            message = f"WARNING: data-verification dump: cannot create a file in {folder}: {failure.strerror}"
            print(visible(message), file=sys.stderr, flush=True)


def _written(folder: Path, name: str, text: str) -> Path:
    """Write a new file; a file that exists is not replaced."""
    stem = f"{name}_{time.strftime('%Y%m%d_%H%M%S')}"
    for i in count():
        path = folder / f"{stem}{f'_{i}' if i else ''}.txt"
        try:
            with path.open("x", encoding="utf-8") as file:
                file.write(text)
        except FileExistsError:
            continue
        return path
    raise AssertionError


def listed() -> int:
    """The number of values that are listed; all that are known for ``ALL``."""
    text = os.environ.get(SIZE, "").strip()
    if text.upper() == "ALL":
        return MOST_LISTED
    number = re.match(r"\+?(\d{1,9})", text)
    return min(MOST_LISTED, int(number[1]) if number and int(number[1]) else _DEFAULT_SIZE)
