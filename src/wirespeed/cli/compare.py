"""``wirespeed compare``: changes from one run or several to others, beyond what chance explains."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

from ..errors import DocumentError, UsageError
from ..exit_codes import EXIT_CODES, ExitCode
from .common import add_verbose, load_run_or_log, saved_files, style, typed
from .parser import Parser

if TYPE_CHECKING:
    import argparse

    from ..document import Document
    from ..results.many_files import ReadRuns


def main(name: str, argv: Sequence[str]) -> int:
    options = parser(name).parse_args(argv)
    if not options.after and len(options.before) != 2:
        raise UsageError(
            "compare two runs (or folders of runs), or several: "
            "wirespeed compare BEFORE.json ... --to AFTER.json ..."
        )
    sides = (options.before, options.after) if options.after else [[path] for path in options.before]
    files = [list(dict.fromkeys(saved_files(side))) for side in sides]
    return _compared(files[0], files[1], options)


def _compared(before: Sequence[str], after: Sequence[str], options: argparse.Namespace) -> int:
    """Compare the runs of some files, print the report and return the exit code."""
    from ..results.compare import compare
    from ..screens.compare import FORMATS

    first, second = map(_read, (before, after))
    comparison = compare(first.found, second.found, options.least, ignore_busy=options.ignore_busy)
    unreadable = [*first.unreadable, *second.unreadable]
    sys.stdout.write(FORMATS[options.format](comparison, style(options), unreadable))
    if comparison.regressed:
        return ExitCode.FAIL
    if unreadable:
        return ExitCode.RUN
    return ExitCode.PASS if comparison.compared else ExitCode.NOT_JUDGED


def _read(files: Sequence[str]) -> ReadRuns[Document]:
    """Read the runs of a side.

    Raises
    ------
    DocumentError
        If none of the files can be read.
    """
    from ..results.many_files import read_many

    read = read_many(files, _kept, load_run_or_log)
    if not read.found:
        more = f"; nor can {len(files) - 1} more" if len(files) > 1 else ""
        raise DocumentError(f"{read.unreadable[0]}{more}")
    return read


def _kept(_: str, document: Document) -> Document:
    return document


def parser(name: str) -> Parser:
    from ..screens.compare import FORMATS
    from ..units import parse_fraction

    arguments = Parser(
        name,
        "Show the changes between runs before and after, the worst first, and what else differs.\n"
        "It fails if a value got worse or was lost, and judges nothing if another process used the devices.",
        EXIT_CODES,
    )
    arguments.add_argument(
        "before", nargs="+", metavar="RUN.json",
        help="saved runs before, logs of other tools, or folders; without --to exactly two: before and after",
    )  # fmt: skip
    arguments.add_argument(
        "--to", dest="after", nargs="+", action="extend", metavar="RUN.json",
        help="saved runs after, or folders of them; a host with runs on both sides is compared with itself",
    )  # fmt: skip
    arguments.add_argument(
        "--least",
        type=typed(parse_fraction),
        default=0.02,
        metavar="PERCENT",
        help="ignore changes smaller than this (default: 2%%)",
    )
    arguments.add_argument(
        "--ignore-busy", action="store_true", help="also compare devices that another process used"
    )
    arguments.add_argument(
        "--format", default="text", choices=FORMATS, help="format of the changes (default: text)"
    )
    add_verbose(arguments)
    return arguments
