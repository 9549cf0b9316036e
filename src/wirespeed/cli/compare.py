"""``wirespeed compare``: changes between two runs, beyond the noise of both."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from .common import FAILED, OK, add_verbose, parser, style, typed


def main(name: str, argv: Sequence[str]) -> int:
    """Run the command and return its exit code."""
    from ..units import parse_fraction

    arguments = parser(
        name,
        "Show the changes from run A to run B, the worst first. Exit code 1 if a cell got worse or was lost.",
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
    add_verbose(arguments)
    options = arguments.parse_args(argv)
    from ..reports._compare import render
    from ..results.compare import compare
    from ..results.store import load

    comparison = compare(load(options.first), load(options.second), options.least)
    sys.stdout.write(render(comparison, style(options)))
    return FAILED if comparison.regressed else OK
