"""``wirespeed show``: print any report of saved Documents."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING

from ..errors import ExitCode, UsageError
from ..terminal import error_line, meant, one_line
from ..units import many
from .common import (
    add_judging,
    add_report,
    add_simulated,
    check_format,
    criteria,
    named_files,
    open_run,
    print_report,
    return_files,
    style,
    testcase_names,
)
from .parser import Parser

if TYPE_CHECKING:
    import argparse

    from ..document import Document, TestcaseResult
    from ..reports.records import CheckedRun


def main(name: str, argv: Sequence[str]) -> int:
    from ..judging.judged import Judged
    from ..reports import find
    from ..results.compare import no_collections, read_many

    arguments = parser(name)
    options = arguments.parse_args(argv)
    return_files(options, options.files)
    if options.format != "prometheus":
        arguments.refuse_unused(options, "without --format prometheus", "all_cells")
    if not options.files:
        raise UsageError("a file is required: a saved run, a log of another tool, or a folder of them")
    check_format(options.format)
    options.files = named_files(options.files)
    if len(options.files) == 1:
        with no_collections():
            document = _chosen(open_run(options.files[0]), options)
            print_report(Judged(document, criteria(options)), options)
        return ExitCode.PASS
    form = find(options.format)
    if form.form == "text" and form.checked:  # a page and a file of metrics have all runs
        read = read_many(options.files, partial(_part, options=options), open_run)
        for error in read.unreadable:
            print(error_line(f"wirespeed: error: {error}"), file=sys.stderr)
        sys.stdout.write(form.joined(read.found, read.unreadable, style(options)))
        sys.stdout.flush()
        return ExitCode.USAGE if read.unreadable else ExitCode.PASS
    code, with_names = ExitCode.PASS, form.form == "terminal"
    for i, file in enumerate(options.files):
        shown = read_many([file], partial(_shown, options=options), open_run)
        if with_names:
            print(f"{chr(10) if i else ''}{one_line(file)}:")
        sys.stdout.write("".join(shown.found))
        sys.stdout.flush()
        for error in shown.unreadable:
            print(error_line(f"wirespeed: error: {error}"), file=sys.stderr)
            code = ExitCode.USAGE
    return code


def _shown(_: str, document: Document, options: argparse.Namespace) -> str:
    from ..judging.judged import Judged
    from ..reports import render

    judged = Judged(_chosen(document, options), criteria(options))
    return render(judged, options.format, style(options))


def _part(file: str, document: Document, options: argparse.Namespace) -> CheckedRun:
    """What a run adds to the report of several."""
    from ..judging.judged import Judged
    from ..reports import find
    from ..reports.records import CheckedRun

    judged = Judged(_chosen(document, options), criteria(options), file)
    return CheckedRun.of(judged, find(options.format).part(judged, style(options)))


def parser(name: str) -> Parser:
    arguments = Parser(name, "Print saved runs, or logs of other tools, in any format.")
    arguments.add_argument(
        "files",
        nargs="*",
        metavar="FILE",
        help="saved runs, logs of other tools, and folders of them (- is standard input)",
    )
    for short, long, metavar, does in (
        ("-t", "--testcase", "NAME", "only these testcases"),
        ("-p", "--prefix", "PREFIX", "only testcases whose names start with PREFIX"),
    ):
        arguments.add_argument(
            short, long, nargs="+", action="extend", default=[], metavar=metavar, help=does
        ).completer = testcase_names  # type: ignore[attr-defined]
    add_report(arguments)
    add_judging(arguments.add_argument_group("judgement"))
    add_simulated(arguments, needed=False)
    return arguments


def _chosen(document: Document, options: argparse.Namespace) -> Document:
    """A Document with the requested testcases.

    Raises:
        UsageError: If the Document lacks one of them.
    """
    from msgspec import structs

    if not options.testcase and not options.prefix:
        return document
    results = document.testcases
    lacking = [word for word in options.testcase if not any(map(partial(_is_called, word), results))]
    lacking += [word for word in options.prefix if not any(each.name.startswith(word) for each in results)]
    if lacking:
        known = [result.name for result in results]
        names = ", ".join(f"{word!r}{meant(word, known)}" for word in lacking)
        raise UsageError(f"the run has no testcase {names}; it has {many(len(results), 'testcase')}")
    return structs.replace(
        document,
        testcases=tuple(
            result for result in results
            if any(_is_called(word, result) for word in options.testcase)
            or (options.prefix and result.name.startswith(tuple(options.prefix)))
        ),
    )  # fmt: skip


def _is_called(word: str, result: TestcaseResult) -> bool:
    return word in (result.name, str(result.index))
