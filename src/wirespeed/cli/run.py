"""``wirespeed run``: measure, print, save."""

from __future__ import annotations

import platform
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from ..results.document import Document
from .common import add_measuring, add_report, check_format, measuring, parser, print_report
from .job import add_job, lead


def main(name: str, argv: Sequence[str]) -> int:
    """Run the command and return its exit code."""
    from ..api import run
    from ..jobs import join
    from .progress import listener

    arguments = parser(name, "Measure, print the results and save them as a Document.")
    add_measuring(arguments)
    add_job(arguments.add_argument_group("several processes (also under mpirun, srun or torchrun)"))
    out = arguments.add_argument_group("output")
    out.add_argument(
        "-o",
        "--output",
        type=Path,
        metavar="FILE.json",
        help="where the Document is saved (default: wirespeed-HOST-TIME.json here)",
    )
    add_report(out)
    options = arguments.parse_args(argv)
    check_format(options.format)
    output = options.output or _default_path()
    world = join(options.processes, [name, *argv], options.timeout)

    def show(document: Document) -> None:
        print_report(document, options)
        print(f"saved to {output} (`wirespeed show {output}` prints it again)", file=sys.stderr)

    return lead(
        world, lambda: run(**measuring(options), output=output, listeners=listener(), world=world), show
    )


def _default_path() -> Path:
    return Path(f"wirespeed-{platform.node() or 'host'}-{time.strftime('%Y%m%d-%H%M%S')}.json")
