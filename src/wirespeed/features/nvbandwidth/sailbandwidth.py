"""The options of sailbandwidth, which ``wirespeed nvbandwidth`` takes too.

Files of the wrong values that sailbandwidth finds, in the folder that ``SAILBW_DUMP_PATH`` names.

Printing the text of nvbandwidth and its relatives while they measure.

``wirespeed sailbandwidth``: the command line of that program.

Its version is 2.2.1 unless ``--compat`` is given.
"""

from __future__ import annotations

import argparse
import os
import re
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any

from ...cli.parser import Parser
from ...cli.program_variables import COMPAT, version
from ...document import Document, TestcaseResult
from ...driver.listener import Listener
from ...errors import MOST_LISTED, VerificationError
from ...hardware.devices import Fault, FaultKind
from ...hardware.topology import Machine
from ...reports import DialectName, Style
from ...terminal import visible
from ...testcases.table import Testcase
from . import dialects
from . import text as nvbandwidth
from .dialects import OF_SAILBANDWIDTH, VERSIONS

#: Largest absolute number.
_MOST = 2**40


def positive(text: str, least: int = 1, kind: str = "whole number of 1 or more") -> int:
    """Parse a whole number of 1 or more; of ``kind`` and of other least numbers if they are given."""
    try:
        value = int(text)
    except ValueError:
        value = least - 1
    if not least <= value <= _MOST:
        raise argparse.ArgumentTypeError(f"{text!r} is not a {kind}")
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
    add = group.add
    off: dict[str, Any] = {"action": "store_false", "default": default}
    add("--useNormalCopy", "ordinary copies by SMs, not bulk copies", dest="bulk", **off)
    add("--nBlocks N", "blocks of the copy kernel (-1: automatic)", blocks, dest="blocks", default=0)
    add("--nThreads N", "threads per block (-1: automatic)", blocks, dest="threads", default=0)
    add("--isSingleDie", "copies by one copy engine", dest="all_engines", **off)
    add("--testLocalCopy", "local copies on the diagonal of device-to-device tables", dest="local_copy")
    add("--displayUR", "also print the fraction of the limit, in %%")
    add("--disableVm", "plain allocations", dest="virtual_memory", **off)


@dataclass(frozen=True)
class PeerProgram:
    """A program with this command line.

    Attributes:
        add: Adds options that not all of these programs have; sets defaults of the others.
        version: Returns the version whose output to have, by the arguments: a value of ``Style.dialect``.
        whole: Parses the size of a buffer, and numbers of samples and copies.
        refusal: Returns why the program refuses its options, in its own words; empty if it does not.
        ignored: Returns notes on options that have no effect.
        faults: Returns the faults that a machine is to have, if it is simulated.
        dumps: Whether it writes files of wrong values.
    """

    add: Callable[[Parser], None]
    version: Callable[[Sequence[str]], DialectName]
    whole: Callable[[str], int] = positive
    refusal: Callable[[argparse.Namespace], str] = lambda _: ""
    ignored: Callable[[argparse.Namespace], tuple[str, ...]] = lambda _: ()
    faults: Callable[[Machine], tuple[Fault, ...]] = lambda _: ()
    dumps: bool = False


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


#: Variable that makes the data of one link wrong: the numbers of source and destination.
VERIFY = "SAILBW_VERIFY"
_NAME = "sailbandwidth"
_DEFAULT = "2.2.1"
_POSITIVE = "bufferSize, testSamples and loopCount must be greater than 0"
#: Options that need a PPU, each with whether it takes a number.
_OF_PPUS = {
    "enableSplitSizeReadOptimize": False, "enableVpipeIdReadOptimize": False,
    "useSingleLinkForIcnRead": False, "linkId": True, "vpipeIdForDie0": True, "vpipeIdForDie1": True,
}  # fmt: skip
#: Parses a whole number; whether the program takes it is another matter.
_whole = partial(positive, least=-_MOST, kind="whole number")


def _blocks(text: str) -> int:
    """Parse a number of blocks or threads: 0 for -1, and -1 for what the program refuses."""
    value = _whole(text)
    return 0 if value == -1 else max(value, 0) or -1


def _compat(text: str) -> str:
    name = text if text in OF_SAILBANDWIDTH else f"{_NAME}-{text}"  # the default is parsed, too
    if name not in OF_SAILBANDWIDTH:
        raise argparse.ArgumentTypeError(f"{text!r} is neither {' nor '.join(_versions())}")
    return name


def _versions() -> list[str]:
    return [name.removeprefix(f"{_NAME}-") for name in OF_SAILBANDWIDTH]


def _add(parser: Parser) -> None:
    """Add the options of sailbandwidth; set those of nvbandwidth that it lacks."""
    parser.set_defaults(huge_pages=False, wants_huge_pages=False, pairs=-1, pair=None, version=False)
    parser.add("--perfFormatter", "&&&& PERF lines in place of SUM lines", dest="perf")
    parser.add(
        f"--compat {'|'.join(_versions())}",
        f"version whose list of testcases and output to use (${COMPAT}, else {_DEFAULT})", _compat,
        dest="dialect",
    )  # fmt: skip
    add_sail_options(parser, default=True, blocks=_blocks)
    group = parser.add_argument_group("options of sailbandwidth that need a PPU, and are ignored")
    for name, takes_number in _OF_PPUS.items():
        group.add(f"--{name} N" if takes_number else f"--{name}", "", _whole if takes_number else None)


def _version(arguments: Sequence[str]) -> DialectName:
    wanted = version(arguments, _versions(), _DEFAULT, list(VERSIONS))
    return next(name for name in OF_SAILBANDWIDTH if name == f"{_NAME}-{wanted}")


def _refusal(options: argparse.Namespace) -> str:
    """Why the program refuses the numbers; empty if it does not."""
    if any(value is not None and value <= 0 for value in (options.size, options.samples, options.copies)):
        return _POSITIVE
    for name, value in (("nBlocks", options.blocks), ("nThreads", options.threads)):
        if value < 0:
            return f"{name} must be -1 (auto) or greater than 0"
    return ""


def _ignored(options: argparse.Namespace) -> tuple[str, ...]:
    """The note on options that need a PPU."""
    given = []
    for name, takes_number in _OF_PPUS.items():
        value = getattr(options, name)
        if value is not None and value is not False:
            given.append(f"--{name} {value}" if takes_number else f"--{name}")
    if not given:
        return ()
    return (f"NOTE: there is no PPU; ignoring the following command(s): {' '.join(given)}.",)


def _faults(machine: Machine) -> tuple[Fault, ...]:
    """Wrong data between the devices or ranks that the variable names; the host has the number 0, too."""
    source, _, destination = os.environ.get(VERIFY, "").partition(",")
    if not (source.strip().isdecimal() and destination.strip().isdecimal()):
        return ()
    start, end = int(source), int(destination)
    ways = [f"gpu{start}->gpu{end} "]
    ways += [f"{node.name}->gpu{end} " for node in machine.numa if start == 0]
    ways += [f"gpu{start}->{node.name} " for node in machine.numa if end == 0]
    if max(start, end) < len(machine.ranks):
        source_rank, end_rank = machine.ranks[start], machine.ranks[end]
        ways.append(f"{start}/{source_rank.device}->{end}/{end_rank.device} ")
    return tuple(Fault(FaultKind.CORRUPT, way) for way in ways)


SAILBANDWIDTH = PeerProgram(_add, _version, _whole, _refusal, _ignored, _faults, dumps=True)
