"""``wirespeed compare``: changes between two runs, beyond the noise of both."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from .common import FAILED, OK, WARNED, add_verbose, parser, style, typed


def main(name: str, argv: Sequence[str]) -> int:
    """Run the command and return its exit code."""
    from ..units import parse_fraction

    arguments = parser(
        name,
        "Show the changes from run A to run B, the worst first, and what differs between the runs.\n"
        "Exit codes: 0 no cell got worse, 1 a cell got worse or was lost, 2 invalid usage,\n"
        "3 nothing could be compared, because another process used the devices.",
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
    return FAILED if comparison.regressed else OK if comparison.compared else WARNED
