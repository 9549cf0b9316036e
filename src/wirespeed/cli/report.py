"""``wirespeed report``: saved runs as one file, or many as a page with one row per node."""

from __future__ import annotations

import sys
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
from ..results.opening import named, open_run
from ..terminal import one_line, visible
from . import parsed, run_files
from .parser import Parser

if TYPE_CHECKING:
    from ..document import Document
    from ..reports.checked_runs import CheckedRun
    from ..results.output import Output
    from ..results.read_many import Unreadable

#: Maximum number of runs that are compared with each other; more make a page with one row per node.
_MOST_COMPARED, _LARGEST_COMPARISON = 10, 50


def main(name: str, argv: Sequence[str]) -> int:

    arguments = parser(name)
    options = arguments.parse_args(argv)
    options.files = run_files.named_files(options.files)
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
    parsed.check_format(form)
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

    by, code = parsed.criteria(options), ExitCode.PASS
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
        runs, unreadable = [(files[0], open_run(files[0]))], []
    else:
        read = read_many(files, named, open_run)
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


def _fleet(files: Sequence[str], output: Output, by: Criteria) -> ExitCode:
    """Write a page of many nodes; report each file that cannot be read. Return the exit code."""
    from ..results.read_many import read_many

    files = list(dict.fromkeys(files))
    with _progress(f"reading {len(files)} runs"):
        read = read_many(files, partial(_checked, by=by), open_run)
    with _progress(f"writing {output.path}"):
        text = find("html").joined(read.found, read.unreadable, Style()) if read.found else ""
    return _saved(text, len(files), read.unreadable, output)


def _checked(file: str, document: Document, by: Criteria) -> CheckedRun:
    """What the page of many runs needs of a run."""
    from ..reports.checked_runs import CheckedRun

    return CheckedRun.of(Judged(document, by, file), None)


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
