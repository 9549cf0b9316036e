"""``wirespeed report``, ``show`` and ``import``: saved runs in any format.

``import`` makes saved runs of the logs of other tools.
"""

from __future__ import annotations

import sys
import textwrap
import webbrowser
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from ..errors import DocumentError, ExitCode, UsageError, WirespeedError
from ..judging.criteria import Criteria
from ..judging.judged import Judged
from ..reports import FORMATS, Style, find, format_of_suffix, render
from ..terminal import meant, one_line, visible
from ..units import many, parse_nics
from . import common
from .option_groups import machine_names, testcase_names
from .parser import Parser

if TYPE_CHECKING:
    import argparse

    from ..document import Document, TestcaseResult
    from ..reports.checked_runs import CheckedRun
    from ..results.output import Output
    from ..results.read_many import Unreadable

#: Maximum number of runs that are compared with each other; more make a page with one row per node.
_MOST_COMPARED, _LARGEST_COMPARISON = 10, 50


def main(name: str, argv: Sequence[str]) -> int:

    arguments = parser(name)
    options = arguments.parse_args(argv)
    options.files = common.named_files(options.files)
    most = _LARGEST_COMPARISON if options.compare else _MOST_COMPARED
    if options.compare and len(options.files) > most:
        raise UsageError(
            f"at most {most} runs can be compared; without --compare, the page has one row per run"
        )
    is_fleet = options.fleet or len(options.files) > most
    kind = "-fleet" if is_fleet else "-compared" if len(options.files) > 1 else ""
    file = options.output or _beside(options.files[0], kind, options.format or "html")
    form = options.format or format_of_suffix(file.suffix.lower())
    if not form:
        raise UsageError(f"cannot infer the format from {str(file)!r}; pass --format")
    common.check_format(form)
    if len(options.files) > 1 and form != "html":
        raise UsageError(f"only HTML reports can contain several runs; {form} contains one")
    if options.fleet and form != "html":
        raise UsageError(f"--fleet is an HTML page, not {form}; choose a name that ends with .html")
    if options.open and form != "html":
        raise UsageError(f"--open shows HTML, not {form}")
    if form != "prometheus":
        arguments.refuse_unused(options, "unless the format is prometheus", "all_cells")
    from ..results.output import DOCUMENT, Output, holds, is_report

    if options.output and not options.force and holds(file, DOCUMENT):
        raise UsageError(f"{file} is a saved run, and a report must not replace it; choose another name")
    output = Output(file, replace=is_report(file)) if options.output else Output.numbered(file)
    output.check(options.force)

    by, code = common.criteria(options), ExitCode.PASS
    if is_fleet:
        code = _fleet(options.files, output, by)
    else:
        shown = Style(verbose=options.verbose, all_cells=options.all_cells)
        code = _report(options.files, output, form, by, shown)
    if options.open and not webbrowser.open(output.path.resolve().as_uri()):
        raise WirespeedError(f"no browser was found; open {output.path} in one")
    return code


def parser(name: str) -> Parser:

    arguments = Parser(
        name,
        "Write saved runs as one HTML file that works offline. Several runs are compared with the first.\n"
        "More than 10 runs make a page with one row per node: verdict, cause, key figures and outliers.\n"
        "A single run can be written in any other format, given by the file name or --format.",
    )
    arguments.add("files FILE+", "saved runs, logs of other tools, and folders of them")
    arguments.add(
        "-o --output FILE.html",
        "file to write (default: RUN.html, RUN-compared.html or RUN-fleet.html, next to the first run)", Path,
    )  # fmt: skip
    arguments.add_force("is not a report of wirespeed")
    arguments.add("--open", "open the page in the browser")
    arguments.add(
        "--format FORMAT", "format (default: by the suffix: "
        + ", ".join(f"{row.suffixes[0]} for {row.name}" for row in FORMATS if row.suffixes) + ")",
        by_project=True,
    )  # fmt: skip
    kinds = arguments.add_mutually_exclusive_group()
    kinds.add("--fleet", "one row per node, without single values (default for more than 10 runs)")
    kinds.add("--compare", "compare more than 10 runs, up to 50")
    arguments.add_argument_group("judgement").add_judging()
    arguments.add_all_cells()
    arguments.add_simulated(needed=False)
    arguments.add_verbose()
    return arguments


def _report(files: Sequence[str], output: Output, form: str, by: Criteria, style: Style) -> ExitCode:
    """Write one run in any format, or several as a page; report files that cannot be read."""
    from ..results.read_many import read_many

    if len(files) == 1:
        runs, unreadable = [(files[0], common.open_run(files[0]))], []
    else:
        read = read_many(files, common.named, common.open_run)
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
    code = common.tell_unreadable(unreadable)
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


def _fleet(files: Sequence[str], output: Output, by: Criteria) -> ExitCode:
    """Write a page of many nodes; report each file that cannot be read. Return the exit code."""
    from ..features.fleet.page import fleet_page, read_nodes

    files = list(dict.fromkeys(files))
    with _progress(f"reading {len(files)} runs"):
        read = read_nodes(files, by, common.open_run)
    with _progress(f"writing {output.path}"):
        text = fleet_page(read.found, [*map(str, read.unreadable)]) if read.found else ""
    return _saved(text, len(files), read.unreadable, output)


def _beside(file: str, kind: str, form: str) -> Path:
    """The default file to write: next to a run, in the format's suffix."""
    suffixes, run = find(form).suffixes, Path(file)
    if not suffixes or not run.name:
        raise UsageError(f"pass -o FILE: no default name for {form} of {file!r}")
    return run.with_name(f"{run.stem}{kind}{suffixes[0]}")


def _progress(text: str) -> AbstractContextManager[object]:
    """Show progress on a terminal: large runs take some seconds."""
    if not sys.stderr.isatty():
        return nullcontext()
    from rich.console import Console
    from rich.text import Text

    return Console(stderr=True).status(Text(one_line(text)))


def main_of_show(name: str, argv: Sequence[str]) -> int:
    from ..results.read_many import Unreadable, no_collections, read_many

    arguments = parser_of_show(name)
    options = arguments.parse_args(argv)
    common.return_files(options, options.files)
    if options.format != "prometheus":
        arguments.refuse_unused(options, "without --format prometheus", "all_cells")
    if not options.files:
        raise UsageError("a file is required: a saved run, a log of another tool, or a folder of them")
    common.check_format(options.format)
    options.files = common.named_files(options.files)
    if len(options.files) == 1:
        with no_collections():
            document = _chosen(common.open_run(options.files[0]), options)
            common.print_report(Judged(document, common.criteria(options)), options)
        return ExitCode.PASS
    form = find(options.format)
    if form.form == "text" and form.checked:  # a page and a file of metrics have all runs
        read = read_many(options.files, partial(_part, options=options), common.open_run)
        code = common.tell_unreadable(read.unreadable)
        print(form.joined(read.found, read.unreadable, common.style(options)), end="", flush=True)
        return code
    unreadable, begun = list[Unreadable](), False
    for file in options.files:
        shown = read_many([file], partial(_shown, options=options), common.open_run)
        unreadable += shown.unreadable
        if shown.found and form.form == "terminal":
            print(f"{chr(10) if begun else ''}{one_line(file)}:")
        begun = begun or bool(shown.found)
        print("".join(shown.found), end="", flush=True)
    return common.tell_unreadable(unreadable)


def _shown(_: str, document: Document, options: argparse.Namespace) -> str:

    judged = Judged(_chosen(document, options), common.criteria(options))
    return render(judged, options.format, common.style(options))


def _part(file: str, document: Document, options: argparse.Namespace) -> CheckedRun:
    """What a run adds to the report of several."""
    from ..reports.checked_runs import CheckedRun

    judged = Judged(_chosen(document, options), common.criteria(options), file)
    return CheckedRun.of(judged, find(options.format).part(judged, common.style(options)))


def parser_of_show(name: str) -> Parser:
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


def main_of_import(name: str, argv: Sequence[str]) -> int:
    from ..features.imports import load_log
    from ..results.store import encode

    options = parser_of_import(name).parse_args(argv)
    common.check_format(options.format)
    output: Output | None = options.output
    if output:
        output.check(options.force)
    document = load_log(options.files, options.machine, options.nics)
    if output:
        output.write(encode(document))
    judged = Judged(document)
    with common.texts_aside(output):
        common.print_report(judged, options)
    return common.measured_code(judged)


def parser_of_import(name: str) -> Parser:
    from ..features.imports import UNDERSTOOD

    names = ", ".join(UNDERSTOOD)
    understood = textwrap.fill(f"Understood: {names}.", 98, break_on_hyphens=False)
    arguments = Parser(
        name,
        "Convert logs of other tools to a saved run, for check, doctor, compare, report and baseline.\n"
        "check, doctor, compare, show and report also read logs directly.\n"
        f"{understood}\n"
        "Exit codes: 0 values were imported, 1 the logs say that the run failed, or a value fails,\n"
        "2 invalid usage, 4 the logs have no values.",
    )
    arguments.add("files LOG+", "files of one machine; - is standard input")
    arguments.add(
        "--machine NAME-N|FILE|simulated:NAME",
        "machine of the logs: N GPUs such as hgx-h100-8, a machine file, or a simulated machine "
        "(default: derived from the names and the number of GPUs in the logs)", completer=machine_names,
    )  # fmt: skip
    arguments.add(
        "--nics NUMBERxRATE", "NICs of each host, such as 8x400G, for collectives, RDMA and messages "
        "between hosts (default: as the log says)", _nics,
    )  # fmt: skip
    arguments.add_output("save the run")
    arguments.add_report()
    return arguments


def _nics(text: str) -> str:
    """The number and rate of NICs if they are valid."""
    parse_nics(text)
    return text
