"""``wirespeed compare``: changes between two runs, beyond the noise of both."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from ..exit_codes import EXIT_CODES, ExitCode
from .common import add_verbose, parser, style, typed


def main(name: str, argv: Sequence[str]) -> int:
    """Run the command and return its exit code."""
    from ..units import parse_fraction

    arguments = parser(
        name,
        "Show the changes from run A to run B, the worst first, and what differs between the runs.\n"
        "It fails if a value got worse or was lost, and judges nothing if another process used the devices.",
        EXIT_CODES,
    )
    arguments.add_argument("first", metavar="A.json", help="saved run to compare with")
    arguments.add_argument("second", metavar="B.json", help="saved run to compare")
    arguments.add_argument(
        "--least",
        type=typed(parse_fraction),
        default=0.02,
        metavar="PERCENT",
        help="ignore changes smaller than this (default: 2%%)",
    )
    arguments.add_argument(
        "--ignore-busy", action="store_true", help="also compare devices that another process used"
    )
    add_verbose(arguments)
    options = arguments.parse_args(argv)
    from ..reports._compare import render
    from ..results.compare import compare
    from ..results.store import load

    first, second = load(options.first), load(options.second)
    comparison = compare(first, second, options.least, ignore_busy=options.ignore_busy)
    sys.stdout.write(render(comparison, style(options)))
    if comparison.regressed:
        return ExitCode.FAIL
    return ExitCode.PASS if comparison.compared else ExitCode.NOT_JUDGED
