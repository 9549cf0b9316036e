"""``wirespeed compare``: changes from one run or several to others, beyond what chance explains."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

from ..errors import EXIT_CODES, DocumentError, ExitCode, UsageError, WirespeedError
from .common import add_simulated, add_verbose, named_files, open_run, style, typed
from .parser import Parser

if TYPE_CHECKING:
    import argparse

    from ..document import Document
    from ..results.compare import Comparison, ReadRuns

    #: A file, and the run in it.
    _Named = tuple[str, Document]


def main(name: str, argv: Sequence[str]) -> int:
    options = parser(name).parse_args(argv)
    if not options.after and len(options.before) != 2:
        raise UsageError(
            "compare two runs (or folders of runs), or several: "
            "wirespeed compare BEFORE.json ... --to AFTER.json ..."
        )
    sides = (options.before, options.after) if options.after else [[path] for path in options.before]
    files = [list(dict.fromkeys(named_files(side))) for side in sides]
    return _compared(files[0], files[1], options)


def _compared(before: Sequence[str], after: Sequence[str], options: argparse.Namespace) -> int:
    """Compare the runs of some files, print the report and return the exit code."""
    from ..results.compare import compare, defective
    from ..screens.compare import FORMATS

    first, second = map(_read, (before, after))
    unreadable = [*first.unreadable, *second.unreadable]

    def compared(a: Sequence[_Named], b: Sequence[_Named]) -> tuple[Comparison, str]:
        runs = [[document for _, document in side] for side in (a, b)]
        found = compare(runs[0], runs[1], options.least, ignore_busy=options.ignore_busy)
        return found, FORMATS[options.format](found, style(options), unreadable)

    try:
        comparison, text = compared(first.found, second.found)
    except WirespeedError:
        raise
    except Exception:
        broken = defective([*first.found, *second.found], lambda run: compared([("", run)], [("", run)]))
        out = {error.file for error in broken}
        sides = [[run for run in side.found if run[0] not in out] for side in (first, second)]
        if not broken or not all(sides):
            raise
        unreadable += broken
        comparison, text = compared(sides[0], sides[1])
    sys.stdout.write(text)
    if comparison.regressed:
        return ExitCode.FAIL
    if unreadable:
        return ExitCode.RUN
    return ExitCode.PASS if comparison.compared else ExitCode.NOT_JUDGED


def _read(files: Sequence[str]) -> ReadRuns[_Named]:
    """Read the runs of a side.

    Raises:
        DocumentError: If none of the files can be read.
    """
    from ..results.compare import read_many

    read = read_many(files, _kept, open_run)
    if not read.found:
        more = f"; nor can {len(files) - 1} more" if len(files) > 1 else ""
        raise DocumentError(f"{read.unreadable[0]}{more}")
    return read


def _kept(file: str, document: Document) -> _Named:
    return file, document


def parser(name: str) -> Parser:
    from ..screens.compare import FORMATS
    from ..units import parse_fraction

    arguments = Parser(
        name,
        "Show the changes between runs before and after, the worst first, and what else differs.\n"
        "The comparison fails if a value got worse or was lost. Values of devices that another process used\n"
        "are not compared.",
        EXIT_CODES,
    )
    arguments.add_argument(
        "before", nargs="+", metavar="FILE",
        help="saved runs before, logs of other tools, or folders; without --to exactly two: before and after",
    )  # fmt: skip
    arguments.add_argument(
        "--to", dest="after", nargs="+", action="extend", metavar="FILE",
        help="saved runs after, in the same forms; a host with runs on both sides is compared with itself",
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
    add_simulated(arguments, needed=False)
    add_verbose(arguments)
    return arguments
