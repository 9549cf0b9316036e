"""``wirespeed sailbandwidth``: the command line of that program."""

from __future__ import annotations

from collections.abc import Sequence

from .nvbandwidth import PeerProgram, main_of, parser_of
from .parser import Parser
from .sailbandwidth_options import add_sail_options


def _add(parser: Parser) -> None:
    """Add the options of sailbandwidth; set those of nvbandwidth that it lacks."""
    parser.set_defaults(
        perf=False, huge_pages=False, wants_huge_pages=False, pairs=-1, pair=None, version=False
    )
    add_sail_options(parser, default=True)


SAILBANDWIDTH = PeerProgram("sailbandwidth", _add, lambda _: "sailbandwidth-2.1")


def parser(name: str) -> Parser:
    """The parser of the command."""
    return parser_of(SAILBANDWIDTH)


def main(name: str, argv: Sequence[str]) -> int:
    """Run the command line and return its exit code."""
    return main_of(SAILBANDWIDTH, argv)
