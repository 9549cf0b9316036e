"""``wirespeed run``: measure, print, save."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

from ..document import Document, Status
from ..options import JOB
from ..terminal import visible
from .common import (
    FAILED,
    OK,
    WARNED,
    add_measuring,
    add_output,
    add_report,
    check_format,
    default_name,
    measuring,
    parser,
    print_report,
    texts_aside,
)
from .job import add_job, lead


def main(name: str, argv: Sequence[str]) -> int:
    """Run the command and return its exit code."""
    from ..api import run
    from ..driver.jobs import join
    from ..progress import listener
    from ..results.store import descriptor

    arguments = parser(name, "Measure, print the results and save them as a Document.")
    add_measuring(arguments)
    add_job(arguments.add_argument_group(JOB))
    out = arguments.add_argument_group("output")
    add_output(out, "file of the Document (default: wirespeed-HOST-TIME.json in the current folder)")
    add_report(out)
    options = arguments.parse_args(argv)
    check_format(options.format)
    output: Path = options.output or Path(default_name())
    world = join(options.processes, [name, *argv], options.timeout)

    def show(document: Document) -> None:
        print_report(document, options)
        if output.is_file() and descriptor(output) is None:
            print(visible(f"saved to {output} (`wirespeed show {output}` prints it again)"), file=sys.stderr)

    with texts_aside(output):
        return lead(
            world, lambda: run(
                **measuring(options), output=output, force=options.force, listeners=listener(), world=world
            ),
            show, _exit_code,
        )  # fmt: skip


def _exit_code(document: Document) -> int:
    """Return the exit code: 0, 1 on failure, 3 if nothing could be measured."""
    if not document.good:
        return FAILED
    return OK if any(result.status is Status.PASSED for result in document.testcases) else WARNED
