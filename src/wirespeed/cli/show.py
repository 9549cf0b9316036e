"""``wirespeed show``: saved runs in any format."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING

from ..errors import ExitCode, UsageError
from ..judging.judged import Judged
from ..reports import find, render
from ..results.opening import open_run
from ..terminal import meant, one_line
from ..units import many
from . import parsed, run_files
from .option_groups import testcase_names
from .parser import Parser

if TYPE_CHECKING:
    import argparse

    from ..document import Document, TestcaseResult
    from ..reports.checked_runs import CheckedRun


def main(name: str, argv: Sequence[str]) -> int:
    from ..results.read_many import Unreadable, no_collections, read_many

    arguments = parser(name)
    options = arguments.parse_args(argv)
    run_files.return_files(options, options.files)
    if options.format != "prometheus":
        arguments.refuse_unused(options, "without --format prometheus", "all_cells")
    if not options.files:
        raise UsageError("a file is required: a saved run, a log of another tool, or a folder of them")
    parsed.check_format(options.format)
    options.files = run_files.named_files(options.files)
    if len(options.files) == 1:
        with no_collections():
            document = _chosen(open_run(options.files[0]), options)
            parsed.print_report(Judged(document, parsed.criteria(options)), options)
        return ExitCode.PASS
    form = find(options.format)
    if form.form == "text" and form.checked:  # a page and a file of metrics have all runs
        read = read_many(options.files, partial(_part, options=options), open_run)
        code = run_files.tell_unreadable(read.unreadable)
        print(form.joined(read.found, read.unreadable, parsed.style(options)), end="", flush=True)
        return code
    unreadable, begun = list[Unreadable](), False
    for file in options.files:
        shown = read_many([file], partial(_shown, options=options), open_run)
        unreadable += shown.unreadable
        if shown.found and form.form == "terminal":
            print(f"{chr(10) if begun else ''}{one_line(file)}:")
        begun = begun or bool(shown.found)
        print("".join(shown.found), end="", flush=True)
    return run_files.tell_unreadable(unreadable)


def _shown(_: str, document: Document, options: argparse.Namespace) -> str:

    judged = Judged(_chosen(document, options), parsed.criteria(options))
    return render(judged, options.format, parsed.style(options))


def _part(file: str, document: Document, options: argparse.Namespace) -> CheckedRun:
    """What a run adds to the report of several."""
    from ..reports.checked_runs import CheckedRun

    judged = Judged(_chosen(document, options), parsed.criteria(options), file)
    return CheckedRun.of(judged, find(options.format).part(judged, parsed.style(options)))


def parser(name: str) -> Parser:
    arguments = Parser(name, "Print saved runs, or logs of other tools, in any format.")
    arguments.add("files FILE*", "saved runs, logs of other tools, and folders of them (- is standard input)")
    for spelled, does in (
        ("-t --testcase NAME+", "only these testcases"),
        ("-p --prefix PREFIX+", "only testcases whose names start with PREFIX"),
    ):
        arguments.add(spelled, does, completer=testcase_names)
    arguments.add_report()
    arguments.add_argument_group("judgement").add_judging()
    arguments.add_simulated(needed=False)
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
