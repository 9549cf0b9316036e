"""``wirespeed help``: the documentation in the terminal."""

from __future__ import annotations

import sys
import textwrap
from collections.abc import Sequence
from difflib import get_close_matches
from itertools import chain

from ..errors import ExitCode, UsageError
from ..terminal import colored, columns
from .commands import COMMANDS, programs
from .parser import Parser


def main(name: str, argv: Sequence[str]) -> int:
    """Run the command and return its exit code; the options of other commands are not its business."""
    from ..reports import Style
    from ..reports.style import causes, topic, topics
    from ..screens.help import render

    wanted: str = parser(name).parse_args(argv).topic
    page = topic(wanted)
    if page is None:
        known = [*COMMANDS, *programs(), *topics(), *causes()]
        close = "".join(f" (did you mean {match!r}?)" for match in get_close_matches(wanted, known, 1))
        raise UsageError(f"no command, page or cause {wanted!r}{close}; `wirespeed help help` lists them")
    sys.stdout.write(render(page, Style(columns(), colored())))
    sys.stdout.flush()
    return ExitCode.PASS


def parser(name: str) -> Parser:
    from ..reports.style import causes, topics

    listed = {"pages": topics(), "causes of doctor": causes()}
    filled = textwrap.TextWrapper(78, initial_indent="  ", subsequent_indent="  ", break_on_hyphens=False)
    arguments = Parser(
        name,
        "Show the documentation: the options of a command, a page, PAGE#SECTION, or a cause of doctor.",
        "\n".join(f"{kind}:\n{filled.fill(', '.join(names))}" for kind, names in listed.items()),
    )
    argument = arguments.add_argument("topic", metavar="COMMAND|PAGE|CAUSE", help="what to show")
    argument.completer = lambda **_: [*chain(*listed.values())]  # type: ignore[attr-defined]
    return arguments
