"""``wirespeed help``: the documentation in the terminal."""

from __future__ import annotations

import os
import shutil
import sys
import textwrap
from collections.abc import Sequence
from difflib import get_close_matches
from itertools import chain

from ..errors import ExitCode, UsageError
from ..terminal import colored, columns
from .commands import COMMANDS, SHOWN, programs
from .parser import Parser


def main(name: str, argv: Sequence[str]) -> int:
    """Run the command and return its exit code; the options of other commands are not its business."""
    from ..reports import Style
    from ..reports.topics import causes, search, topic, topics
    from ..screens.documentation import found, overview, render_topic

    wanted = " ".join(parser(name).parse_args(argv).topic)
    style = Style(columns(), colored())
    if not wanted:
        _show(overview(style))
    elif page := topic(wanted):
        row = COMMANDS.get(wanted)
        command = row.former.split()[0] if row and row.former else wanted
        _show(render_topic(page, style) + (f"\nOptions: wirespeed {command} --help\n" if row else ""))
    elif sections := search(wanted):
        _show(found(sections, style))
    else:
        known = [*SHOWN, *programs(), *topics(), *causes()]
        close = "".join(f" (did you mean {match!r}?)" for match in get_close_matches(wanted, known, 1))
        raise UsageError(f"no page, cause or command {wanted!r}{close}; `wirespeed help` lists them")
    return ExitCode.PASS


def _show(text: str) -> None:
    """Print a text; if it is longer than the terminal, with the pager, as man does."""
    if not sys.stdout.isatty() or text.count("\n") < shutil.get_terminal_size().lines:
        print(text, end="", flush=True)
        return
    import pydoc

    os.environ.setdefault("LESS", "FRX")  # colours, and no pager for less than a screen
    os.environ.setdefault("LESSCHARSET", "utf-8")
    pydoc.pager(text)


def parser(name: str) -> Parser:
    from ..reports.topics import causes, topics

    listed = {"pages": topics(), "causes": causes()}
    filled = textwrap.TextWrapper(78, initial_indent="  ", subsequent_indent="  ", break_on_hyphens=False)
    arguments = Parser(
        name,
        "Show the documentation: a page, PAGE#SECTION, a cause, the options of a command, or the\n"
        "sections about a word, such as slurm, nagios, prometheus or busbw. Without a word, list the pages.",
        "\n".join(f"{kind}:\n{filled.fill(', '.join(names))}" for kind, names in listed.items()),
        examples={
            "help slow": "a page",
            "help pcie-width": "a cause",
            "help slurm": "the sections about a word",
        },
    )
    arguments.add(
        "topic PAGE|CAUSE|COMMAND|WORD", "what to show", nargs="*", default=[],
        completer=lambda **_: [*chain(*listed.values())],
    )  # fmt: skip
    return arguments
