"""``wirespeed report``: saved runs as text, as a page or in any other format; many as one row per node."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from typing import TYPE_CHECKING

from ..errors import DocumentError, ExitCode, UsageError, WirespeedError
from ..judging.criteria import Criteria
from ..judging.judged import Judged
from ..reports import FORMATS, Style, find, format_of_suffix, render
from ..results.opening import named, open_run
from ..terminal import meant, one_line, visible
from ..units import many
from . import option_values, run_files
from .option_groups import testcase_names
from .parser import Parser

if TYPE_CHECKING:
    import argparse

    from ..document import Document, TestcaseResult
    from ..reports.checked_runs import CheckedRun
    from ..results.output import Output
    from ..results.read_many import Unreadable

    _Load = Callable[[str], Document]

#: Maximum number of runs that are compared with each other; more make a page with one row per node.
_MOST_COMPARED = 8


def main(name: str, argv: Sequence[str]) -> int:
    arguments = parser(name)
    options = arguments.parse_args(argv)
    run_files.return_files(options, options.files)
    if not options.files:
        raise UsageError("a file is required: a saved run, a log of another tool, or a folder of them")
    if options.fleet and not options.output:
        raise UsageError("--fleet is a page: pass -o FILE.html")
    suffix = options.output.suffix.lower() if options.output else ""
    form = options.format or (format_of_suffix(suffix) if suffix else "" if options.output else "table")
    if not form:
        raise UsageError(f"cannot infer the format from {str(options.output)!r}; pass --format")
    option_values.check_format(form)
    if form != "prometheus":
        arguments.refuse_unused(options, "unless the format is prometheus", "all_cells")
    given, options.format = options.files, form
    options.files = run_files.named_files(given)
    return _write(options) if options.output else _print(options, given)


def parser(name: str) -> Parser:
    suffixes = ", ".join(f"{row.suffixes[0]} for {row.name}" for row in FORMATS if row.suffixes)
    arguments = Parser(
        name,
        "Print saved runs or logs of other tools, or write them with -o as an HTML page that works offline,\n"
        "or in another format. A page of several runs compares them with the first; a page of more than\n"
        f"{_MOST_COMPARED} runs has one row per node: verdict, cause, key figures and outliers.",
        examples={
            "report run.json": "as text",
            "report run.json -o run.html": "as a page",
            "report run.json --for github": "for an issue",
        },
        often="-o --format --for --fleet -t -v",
    )
    arguments.add("files FILE*", "saved runs, logs of other tools, or folders of them; - is standard input")
    arguments.add("-t --testcase NAME+", "only these testcases", completer=testcase_names)
    arguments.add(
        "-p --prefix PREFIX+", "only testcases whose names start with PREFIX", completer=testcase_names
    )
    out = arguments.add_argument_group("output")
    out.add_output_as(suffixes)
    out.add("--fleet", "a page with one row per node, without single values")
    out.add_report()
    out.add(
        "--for", "twenty lines to paste into an issue; the same as --format markdown",
        choices=("github",), dest="format",
    )  # fmt: skip
    arguments.set_defaults(format=None)
    arguments.add_argument_group("judgement").add_judging()
    arguments.add_simulated(needed=False)
    return arguments


def _print(options: argparse.Namespace, given: Sequence[str]) -> ExitCode:
    """Print the runs of the given files and folders; report files that cannot be read."""
    from ..results.read_many import Unreadable, no_collections, read_many

    form, load = find(options.format), partial(_chosen, options=options)
    unreadable, begun = list[Unreadable](), False
    if len(options.files) == 1:
        with no_collections():
            document = load(options.files[0])
            option_values.print_report(Judged(document, option_values.criteria(options)), options)
    elif form.form == "text" and form.checked:  # a page and a file of metrics have all runs
        read = read_many(options.files, partial(_part, options=options), load)
        unreadable += read.unreadable
        print(form.joined(read.found, unreadable, option_values.style(options)), end="", flush=True)
    else:
        for file in options.files:
            shown = read_many([file], partial(_shown, options=options), load)
            unreadable += shown.unreadable
            if shown.found and form.form == "terminal":
                print(f"{chr(10) if begun else ''}{one_line(file)}:")
            begun = begun or bool(shown.found)
            print("".join(shown.found), end="", flush=True)
    code = run_files.tell_unreadable(unreadable)
    if sys.stdout.isatty() and options.format == "table" and "-" not in given:
        print(visible(run_files.page_hint(given)), file=sys.stderr)
    return code


def _shown(_: str, document: Document, options: argparse.Namespace) -> str:
    return render(
        Judged(document, option_values.criteria(options)), options.format, option_values.style(options)
    )


def _part(file: str, document: Document, options: argparse.Namespace) -> CheckedRun:
    """What a run adds to the report of several."""
    from ..reports.checked_runs import CheckedRun

    judged = Judged(document, option_values.criteria(options), file)
    return CheckedRun.of(judged, find(options.format).part(judged, option_values.style(options)))


def _write(options: argparse.Namespace) -> ExitCode:
    """Write one run in any format, or several as a page."""
    files, form = options.files, options.format
    is_fleet = options.fleet or len(files) > _MOST_COMPARED
    if len(files) > 1 and form != "html":
        raise UsageError(f"only HTML reports can contain several runs; {form} contains one")
    if options.fleet and form != "html":
        raise UsageError(f"--fleet is an HTML page, not {form}; choose a name that ends with .html")
    output = run_files.report_output(options.output, force=options.force)
    if is_fleet:
        return _fleet(files, output, options)
    shown = Style(verbose=options.verbose, all_cells=options.all_cells)
    by, load = option_values.criteria(options), partial(_chosen, options=options)
    return _report(files, output, form, by, shown, load)


def _report(
    files: Sequence[str],
    output: Output,
    form: str,
    by: Criteria,
    style: Style,
    load: Callable[[str], Document],
) -> ExitCode:
    """Write one run in any format, or several as a page; report files that cannot be read."""
    from ..results.read_many import read_many

    if len(files) == 1:
        runs, unreadable = [(files[0], load(files[0]))], []
    else:
        read = read_many(files, named, load)
        runs, unreadable = read.found, read.unreadable
    with _progress(f"writing {output.path}"):
        if form == "html":
            text, broken = _page(runs, by)
            unreadable += broken
        else:
            text = render(Judged(runs[0][1], by), form, style)
    return _saved(text, len(files), unreadable, output)


def _saved(text: str, runs: int, unreadable: Sequence[Unreadable], output: Output) -> ExitCode:
    """Write the page or report of some runs, and report the files that cannot be read."""
    code = run_files.tell_unreadable(unreadable)
    if not text:
        raise DocumentError("none of the runs can be shown")
    output.write(text.encode("utf-8", "replace"))
    shown = f" ({runs - len(unreadable)} of {runs} runs)" if unreadable else ""
    print(visible(f"saved to {output.path}{shown}"), file=sys.stderr)
    return code


def _page(runs: Sequence[tuple[str, Document]], by: Criteria) -> tuple[str, list[Unreadable]]:
    """The page of runs, without those of which none can be made; empty if that are all."""
    from ..reports.checked_runs import unique_names
    from ..reports.html.page import page
    from ..results.read_many import defective

    def of_all(some: Sequence[tuple[str, Document]]) -> str:
        judged = [Judged(document, by) for _, document in some]
        return page(judged, labels=unique_names([file for file, _ in some])) if some else ""

    try:
        return of_all(runs), []
    except WirespeedError:
        raise
    except Exception:
        broken = defective(runs, lambda document: page([Judged(document, by)])) if len(runs) > 1 else []
        if not broken:
            raise
    out = {error.file for error in broken}
    return of_all([run for run in runs if run[0] not in out]), broken


def _fleet(files: Sequence[str], output: Output, options: argparse.Namespace) -> ExitCode:
    """Write a page of many nodes; report each file that cannot be read. Return the exit code."""
    from ..results.read_many import read_many

    files = list(dict.fromkeys(files))
    with _progress(f"reading {len(files)} runs"):
        read = read_many(files, partial(_part, options=options), partial(_chosen, options=options))
    with _progress(f"writing {output.path}"):
        text = find("html").joined(read.found, read.unreadable, Style()) if read.found else ""
    return _saved(text, len(files), read.unreadable, output)


def _progress(text: str) -> AbstractContextManager[object]:
    """Show progress on a terminal: large runs take some seconds."""
    if not sys.stderr.isatty():
        return nullcontext()
    from rich.console import Console
    from rich.text import Text

    return Console(stderr=True).status(Text(one_line(text)))


def _chosen(file: str, options: argparse.Namespace) -> Document:
    """The Document of a file with the requested testcases.

    Raises:
        UsageError: If the Document lacks one of them.
    """
    from msgspec import structs

    document = open_run(file)
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
