"""``wirespeed report``: saved runs as a page, or as a file in another format."""

from __future__ import annotations

import sys
import webbrowser
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING

from ..errors import DocumentError, ExitCode, UsageError, WirespeedError
from ..terminal import error_line, one_line, visible
from .common import add_all_cells, add_judging, add_verbose, check_format, criteria, saved_files
from .parser import Parser

if TYPE_CHECKING:
    from ..document import Document
    from ..judging.judged import Criteria
    from ..reports import Style
    from ..results.compare import Unreadable
    from ..results.output import Output

#: Maximum number of runs that are compared with each other; more make a page with one row per node.
_MOST_COMPARED, _LARGEST_COMPARISON = 10, 50


def main(name: str, argv: Sequence[str]) -> int:
    from ..reports import format_of_suffix

    options = parser(name).parse_args(argv)
    options.files = saved_files(options.files)
    most = _LARGEST_COMPARISON if options.compare else _MOST_COMPARED
    if options.compare and len(options.files) > most:
        raise UsageError(f"a comparison is of at most {most} runs; without --compare there is a row for each")
    is_fleet = options.fleet or len(options.files) > most
    kind = "-fleet" if is_fleet else "-compared" if len(options.files) > 1 else ""
    file = options.output or _beside(options.files[0], kind, options.format or "html")
    form = options.format or format_of_suffix(file.suffix.lower())
    if not form:
        raise UsageError(f"cannot infer the format from {str(file)!r}; pass --format")
    check_format(form)
    if len(options.files) > 1 and form != "html":
        raise UsageError(f"only HTML reports can contain several runs; {form} contains one")
    if options.fleet and form != "html":
        raise UsageError(f"--fleet is an HTML page, not {form}; choose a name that ends with .html")
    if options.open and form != "html":
        raise UsageError(f"--open shows HTML, not {form}")
    from ..results.output import DOCUMENT, Output, holds

    if options.output and holds(file, DOCUMENT):
        raise UsageError(f"{file} is a saved run, and a report must not replace it; choose another name")
    output = Output(file, replace=True) if options.output else Output.numbered(file)
    output.check()
    from ..reports import Style

    by, code = criteria(options), ExitCode.PASS
    if is_fleet:
        code = _fleet(options.files, output, by)
    else:
        shown = Style(verbose=options.verbose, all_cells=options.all_cells)
        code = _report(options.files, output, form, by, shown)
    if options.open and not webbrowser.open(output.path.resolve().as_uri()):
        raise WirespeedError(f"no browser was found; open {output.path} in one")
    return code


def parser(name: str) -> Parser:
    from ..reports import FORMATS

    arguments = Parser(
        name,
        "Write saved runs as one HTML file that works offline; several runs are compared with the first.\n"
        "More than 10 runs make a page with one row per node: verdict, cause, key figures and outliers.\n"
        "A single run can be written in any other format, given by the file name or --format.",
    )
    arguments.add_argument("files", metavar="RUN.json", nargs="+", help="saved runs, or folders of them")
    arguments.add_argument(
        "-o", "--output", type=Path, metavar="FILE.html",
        help="file to write (default: RUN.html, RUN-compared.html or RUN-fleet.html, next to the first run)",
    )  # fmt: skip
    arguments.add_argument("--open", action="store_true", help="open the page in the browser")
    arguments.add_argument(
        "--format",
        metavar="FORMAT",
        help="format (default: by the suffix: "
        + ", ".join(f"{row.suffixes[0]} for {row.name}" for row in FORMATS if row.suffixes)
        + ")",
    )
    kinds = arguments.add_mutually_exclusive_group()
    kinds.add_argument(
        "--fleet", action="store_true", help="one row per node, as with more than 10 runs; without the values"
    )
    kinds.add_argument("--compare", action="store_true", help="compare more than 10 runs, up to 50")
    add_judging(arguments.add_argument_group("criteria of HTML, JUnit and Prometheus"))
    add_all_cells(arguments)
    add_verbose(arguments)
    return arguments


def _report(files: Sequence[str], output: Output, form: str, by: Criteria, style: Style) -> ExitCode:
    """Write one run in any format, or several as a page; report files that cannot be read."""
    from ..judging.judged import Judged
    from ..results.compare import read_many
    from ..results.store import load

    if len(files) == 1:
        named, unreadable = [(files[0], load(files[0]))], []
    else:
        read = read_many(files, _named)
        named, unreadable = read.found, read.unreadable
    with _progress(f"writing {output.path}"):
        if form == "html":
            text, broken = _page(named, by)
            unreadable += broken
        else:
            from ..reports import render

            text = render(Judged(named[0][1], by), form, style)
        for error in unreadable:
            print(error_line(f"wirespeed: error: {error}"), file=sys.stderr)
        if not text:
            raise DocumentError("none of the runs can be shown")
        output.write(text.encode("utf-8", "replace"))
    shown = f" ({len(files) - len(unreadable)} of {len(files)} runs)" if unreadable else ""
    print(visible(f"saved to {output.path}{shown}"), file=sys.stderr)
    return ExitCode.USAGE if unreadable else ExitCode.PASS


def _named(file: str, document: Document) -> tuple[str, Document]:
    return file, document


def _page(named: Sequence[tuple[str, Document]], by: Criteria) -> tuple[str, list[Unreadable]]:
    """The page of runs, without those of which none can be made; empty if that are all."""
    from ..judging.judged import Judged
    from ..reports.html.page import page
    from ..reports.html.tables import unique_names
    from ..results.compare import defective

    def of_all(runs: Sequence[tuple[str, Document]]) -> str:
        judged = [Judged(document, by) for _, document in runs]
        return page(judged, labels=unique_names([file for file, _ in runs])) if runs else ""

    try:
        return of_all(named), []
    except WirespeedError:
        raise
    except Exception:
        broken = defective(named, lambda document: page([Judged(document, by)])) if len(named) > 1 else []
        if not broken:
            raise
    out = {error.file for error in broken}
    return of_all([run for run in named if run[0] not in out]), broken


def _fleet(files: Sequence[str], output: Output, by: Criteria) -> ExitCode:
    """Write a page of many nodes; report each file that cannot be read. Return the exit code."""
    from ..reports.html.fleet import fleet_page, read_nodes

    files = list(dict.fromkeys(files))
    with _progress(f"reading {len(files)} runs"):
        read = read_nodes(files, by)
    nodes, failures = read.found, [str(error) for error in read.unreadable]
    for line in failures:
        print(error_line(f"wirespeed: error: {line}"), file=sys.stderr)
    if not nodes:
        raise DocumentError("none of the runs can be shown")
    with _progress(f"writing {output.path}"):
        output.write(fleet_page(nodes, failures).encode("utf-8", "replace"))
    shown = f" ({len(nodes)} of {len(files)} runs)" if failures else ""
    print(visible(f"saved to {output.path}{shown}"), file=sys.stderr)
    return ExitCode.USAGE if failures else ExitCode.PASS


def _beside(file: str, kind: str, form: str) -> Path:
    """The default file to write: next to a run, in the format's suffix."""
    from ..reports import find

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
