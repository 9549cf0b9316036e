"""``wirespeed show``: print any report of saved Documents."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING

from ..errors import ExitCode, UsageError
from ..terminal import error_line, one_line
from .common import (
    add_judging,
    add_report,
    check_format,
    criteria,
    load_run_or_log,
    print_report,
    style,
    testcase_names,
)
from .parser import Parser

if TYPE_CHECKING:
    import argparse

    from ..document import Document


def main(name: str, argv: Sequence[str]) -> int:
    from ..judging.judged import Judged
    from ..reports import find
    from ..results.compare import no_collections, read_many

    options = parser(name).parse_args(argv)
    check_format(options.format)
    if len(options.files) == 1:
        with no_collections():
            document = _chosen(load_run_or_log(options.files[0]), options)
            print_report(Judged(document, criteria(options)), options)
        return ExitCode.PASS
    code, with_names = ExitCode.PASS, find(options.format).form == "terminal"
    for i, file in enumerate(options.files):
        read = read_many([file], partial(_shown, options=options), load_run_or_log)
        if with_names:
            print(f"{chr(10) if i else ''}{one_line(file)}:")
        sys.stdout.write("".join(read.found))
        sys.stdout.flush()
        for error in read.unreadable:
            print(error_line(f"wirespeed: error: {error}"), file=sys.stderr)
            code = ExitCode.USAGE
    return code


def _shown(_: str, document: Document, options: argparse.Namespace) -> str:
    from ..judging.judged import Judged
    from ..reports import render

    judged = Judged(_chosen(document, options), criteria(options))
    return render(judged, options.format, style(options))


def parser(name: str) -> Parser:
    arguments = Parser(name, "Print any report of saved runs.")
    arguments.add_argument(
        "files",
        nargs="+",
        metavar="FILE.json",
        help="saved runs or logs of other tools; - for a run on standard input",
    )
    for short, long, metavar, does in (
        ("-t", "--testcase", "NAME", "only these testcases"),
        ("-p", "--prefix", "PREFIX", "only testcases whose names start with PREFIX"),
    ):
        arguments.add_argument(
            short, long, nargs="+", action="extend", default=[], metavar=metavar, help=does
        ).completer = testcase_names  # type: ignore[attr-defined]
    add_report(arguments)
    add_judging(arguments.add_argument_group("criteria of HTML, JUnit and Prometheus"))
    return arguments


def _chosen(document: Document, options: argparse.Namespace) -> Document:
    """A Document with the requested testcases.

    Raises:
        UsageError: If the Document has none of them.
    """
    from msgspec.structs import replace

    if not options.testcase and not options.prefix:
        return document
    chosen = tuple(
        result
        for result in document.testcases
        if result.name in options.testcase
        or str(result.index) in options.testcase
        or (options.prefix and result.name.startswith(tuple(options.prefix)))
    )
    if not chosen:
        wanted = ", ".join([*options.testcase, *options.prefix])
        raise UsageError(f"the run has no testcase {wanted}; it has {len(document.testcases)} others")
    return replace(document, testcases=chosen)
