"""``wirespeed show``: print any report of a saved Document."""

from __future__ import annotations

from collections.abc import Sequence

from .common import OK, add_judging, add_report, check_format, parser, print_report


def main(name: str, argv: Sequence[str]) -> int:
    """Run the command and return its exit code."""
    from ..results.store import load

    arguments = parser(name, "Print any report of a saved Document.")
    arguments.add_argument("file", metavar="FILE.json", help="saved run")
    add_report(arguments)
    add_judging(arguments.add_argument_group("criteria of HTML, JUnit and Prometheus"))
    options = arguments.parse_args(argv)
    check_format(options.format)
    print_report(load(options.file), options)
    return OK
