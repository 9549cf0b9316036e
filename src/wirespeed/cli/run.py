"""``wirespeed run``: measure, print, save."""

from __future__ import annotations

import platform
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from ..errors import RunInterrupted
from .common import FAILED, OK, add_measuring, add_report, check_format, measuring, parser, print_report


def main(name: str, argv: Sequence[str]) -> int:
    """Run the command and return its exit code."""
    from ..api import run
    from .progress import listener

    arguments = parser(name, "Measure, print the results and save them as a Document.")
    add_measuring(arguments)
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
    interrupted = None
    try:
        document = run(**measuring(options), output=output, listeners=listener())
    except RunInterrupted as error:
        document, interrupted = error.document, error
    print_report(document, options)
    print(f"saved to {output} (`wirespeed show {output}` prints it again)", file=sys.stderr)
    if interrupted:
        raise interrupted
    return OK if document.good else FAILED


def _default_path() -> Path:
    return Path(f"wirespeed-{platform.node() or 'host'}-{time.strftime('%Y%m%d-%H%M%S')}.json")
