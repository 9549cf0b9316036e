"""``wirespeed compare``: what changed beyond chance."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from ..errors import DocumentError, ExitCode, UsageError, WirespeedError
from ..results.opening import named, open_run
from ..units import parse_fraction
from . import run_files
from .option_values import style
from .parser import Parser

if TYPE_CHECKING:
    from ..document import Document
    from ..results.compare import Comparison
    from ..results.read_many import ReadRuns

    _Named = tuple[str, Document]


def main(name: str, argv: Sequence[str]) -> int:
    from ..reports.comparisons import FORMATS, verdict_on
    from ..results.compare import compare
    from ..results.read_many import defective

    options = parser(name).parse_args(argv)
    options.format = run_files.form_of(options, FORMATS)
    if not options.after and len(options.before) != 2:
        raise UsageError(
            "compare two runs (or folders of runs), or several: "
            "wirespeed compare BEFORE.json ... --to AFTER.json ..."
        )
    sides = (options.before, options.after) if options.after else [[path] for path in options.before]
    files = [list(dict.fromkeys(run_files.named_files(side))) for side in sides]
    first, second = map(_read, files)
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
    run_files.deliver(text, options)
    code = verdict_on(comparison).exit_code
    return ExitCode.RUN if unreadable and code != ExitCode.FAIL else code


def _read(files: Sequence[str]) -> ReadRuns[_Named]:
    """Read the runs of a side.

    Raises:
        DocumentError: If none of the files can be read.
    """
    from ..reports.checked_runs import errors_of
    from ..results.read_many import read_many

    read = read_many(files, named, open_run)
    if not read.found:
        raise DocumentError("; ".join(errors_of(read.unreadable)))
    return read


def parser(name: str) -> Parser:
    from ..reports.comparisons import FORMATS

    arguments = Parser(
        name,
        "Show the changes between runs before and after, the worst first, and what else differs.\n"
        "The comparison fails if a value got worse or was lost, and ends with 3 if values vary too much to\n"
        "decide this. Values of devices that another process used are not compared.",
        examples={
            "compare monday.json today.json": "two runs",
            "compare old/ new/": "two folders of runs",
            "compare a.json b.json --to c.json d.json": "several on each side",
        },
        often="--to --least -o --format -v",
    )
    arguments.add(
        "before FILE+",
        "saved runs before, logs of other tools, or folders; without --to exactly two: before and after",
    )  # fmt: skip
    arguments.add(
        "--to FILE+",
        "saved runs after, in the same forms; a host with runs on both sides is compared with itself",
        dest="after",
    )  # fmt: skip
    arguments.add(
        "--least PERCENT", "ignore changes smaller than this (default: 2%%)", parse_fraction, default=0.02
    )
    arguments.add("--ignore-busy", "also compare devices that another process used")
    arguments.add_output_as(".html, .md, .json, .xml for JUnit")
    arguments.add_format(FORMATS, "text")
    arguments.add_quiet()
    arguments.add_simulated(needed=False)
    arguments.add_verbose()
    return arguments
