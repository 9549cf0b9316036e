"""``wirespeed report``: saved runs as a page, or as a file in another format."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING

from ..errors import DocumentError, UsageError
from ..terminal import one_line, visible
from .common import FAILED, OK, add_judging, add_verbose, check_format, criteria, parser

if TYPE_CHECKING:
    from ..reports import Criteria

#: Format by file name suffix.
_FORMATS = {
    ".html": "html", ".htm": "html", ".md": "markdown", ".csv": "csv", ".prom": "prometheus", ".xml": "junit",
    ".txt": "table", ".json": "json",
}  # fmt: skip

#: Maximum number of runs that are compared with each other; more make a page with one row per node.
_MOST_COMPARED = 10


def main(name: str, argv: Sequence[str]) -> int:
    """Run the command and return its exit code."""
    arguments = parser(
        name,
        "Write saved runs as one HTML file that works offline; several runs are compared with the first.\n"
        "More than 10 runs make a page with one row per node: verdict, cause, key figures and outliers.\n"
        "A single run can be written in any other format, given by the file name or --format.",
    )
    arguments.add_argument("files", metavar="RUN.json", nargs="+", help="saved runs")
    arguments.add_argument(
        "-o", "--output", type=Path, required=True, metavar="FILE.html", help="file to write"
    )
    arguments.add_argument(
        "--format",
        metavar="FORMAT",
        help="format (default: by the suffix: .html, .md, .csv, .prom for Prometheus, .xml for JUnit, .txt)",
    )
    arguments.add_argument(
        "--fleet", action="store_true", help="one row per node, as with more than 10 runs; without the values"
    )
    add_judging(arguments.add_argument_group("criteria of HTML, JUnit and Prometheus"))
    add_verbose(arguments)
    options = arguments.parse_args(argv)
    form = options.format or _FORMATS.get(options.output.suffix.lower())
    if form is None:
        raise UsageError(f"cannot infer the format from {str(options.output)!r}; pass --format")
    check_format(form)
    if len(options.files) > 1 and form != "html":
        raise UsageError(f"only HTML reports can contain several runs; {form} contains one")
    if options.fleet and form != "html":
        raise UsageError(f"--fleet is an HTML page, not {form}; choose a name that ends with .html")
    from ..results.store import DOCUMENT, holds, load, write

    if holds(options.output, DOCUMENT):
        raise UsageError(
            f"{options.output} is a saved run, and a report must not replace it; choose another name"
        )
    if options.fleet or len(options.files) > _MOST_COMPARED:
        return _fleet(options.files, options.output, criteria(options))
    documents = [load(file) for file in options.files]
    by = criteria(options)
    with _progress(f"writing {options.output}"):
        if form == "html":
            from ..reports.html.page import page

            text = page(documents, by=by)
        else:
            from ..reports import Style, render

            text = render(documents[0], form, Style(verbose=options.verbose, criteria=by))
        write(options.output, text.encode("utf-8", "replace"))
    print(visible(f"saved to {options.output}"), file=sys.stderr)
    return OK


def _fleet(files: Sequence[str], output: Path, by: Criteria) -> int:
    """Write a page of many nodes; report each file that cannot be read. Return the exit code."""
    from ..reports.html.fleet import fleet_page
    from ..reports.html.fleet_files import read_nodes
    from ..results.store import write

    files = list(dict.fromkeys(files))
    with _progress(f"reading {len(files)} runs"):
        nodes, failures = read_nodes(files, by)
    for line in failures:
        print(one_line(f"wirespeed: error: {line}"), file=sys.stderr)
    if not nodes:
        raise DocumentError("none of the runs can be shown")
    with _progress(f"writing {output}"):
        write(output, fleet_page(nodes, failures).encode("utf-8", "replace"))
    shown = f" ({len(nodes)} of {len(files)} runs)" if failures else ""
    print(visible(f"saved to {output}{shown}"), file=sys.stderr)
    return FAILED if failures else OK


def _progress(text: str) -> AbstractContextManager[object]:
    """Show progress on a terminal: large runs take some seconds."""
    if not sys.stderr.isatty():
        return nullcontext()
    from rich.console import Console
    from rich.text import Text

    return Console(stderr=True).status(Text(one_line(text)))
