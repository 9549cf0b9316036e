"""The options of sailbandwidth, which ``wirespeed nvbandwidth`` takes too.

Files of the wrong values that sailbandwidth finds, in the folder that ``SAILBW_DUMP_PATH`` names.

Printing the text of nvbandwidth and its relatives while they measure.
"""

from __future__ import annotations

import argparse
import os
import re
import sys
import time
from collections.abc import Callable, Sequence
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any

from ..document import Document, TestcaseResult
from ..driver.jobs import Listener
from ..errors import VerificationError
from ..faults import MOST_LISTED
from ..reports import Style, dialects, nvbandwidth
from ..terminal import visible
from ..testcases import Testcase
from .common import option
from .parser import Parser


def positive(text: str) -> int:
    """Parse a whole number of 1 or more."""
    try:
        value = int(text)
    except ValueError:
        value = 0
    if not 1 <= value <= 2**40:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number of 1 or more")
    return value


def _shape(text: str) -> int:
    return 0 if text == "-1" else positive(text)


def add_sail_options(
    parser: Parser, *, default: bool, note: str = "", blocks: Callable[[str], int] = _shape
) -> None:
    """Add the options.

    Args:
        parser: The parser of a program.
        default: Whether the program has the defaults of sailbandwidth.
        note: Added to the description.
        blocks: Parses the number of blocks, and of threads; 0 stands for -1.
    """
    group = parser.add_argument_group(
        "options of sailbandwidth",
        "The defaults of sailbandwidth are bulk copies by SMs, all copy engines and virtual-memory "
        f"allocations; those of nvbandwidth are ordinary copies, one engine and plain allocations.{note}",
    )
    add = partial(option, group)
    off: dict[str, Any] = {"action": "store_false", "default": default}
    add("--useNormalCopy", "ordinary copies by SMs, not bulk copies", dest="bulk", **off)
    add("--nBlocks N", "blocks of the copy kernel (-1: automatic)", blocks, dest="blocks", default=0)
    add("--nThreads N", "threads per block (-1: automatic)", blocks, dest="threads", default=0)
    add("--isSingleDie", "copies by one copy engine", dest="all_engines", **off)
    add("--testLocalCopy", "local copies on the diagonal of device-to-device tables", dest="local_copy")
    add("--displayUR", "also print the fraction of the limit, in %%")
    add("--disableVm", "plain allocations", dest="virtual_memory", **off)


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
        #: Path of the data -> labels and values of its report, in addition to those of the testcase.
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


def listed() -> int:
    """The number of values that are listed; all that are known for ``ALL``."""
    text = os.environ.get(SIZE, "").strip()
    if text.upper() == "ALL":
        return MOST_LISTED
    number = re.match(r"\+?(\d{1,9})", text)
    return min(MOST_LISTED, int(number[1]) if number and int(number[1]) else _DEFAULT_SIZE)


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
