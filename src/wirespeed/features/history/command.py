"""``wirespeed history``: what changed on a machine, and since when."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING

from ...cli.parsed import style
from ...cli.parser import Parser
from ...cli.run_files import named_files, tell_unreadable
from ...errors import ExitCode, UsageError
from ...results.opening import named, open_run
from ...terminal import visible
from ...units import parse_age

if TYPE_CHECKING:
    import argparse

    from .store import Past


def main(name: str, argv: Sequence[str]) -> int:
    from ...results.output import DOCUMENT, Output, holds
    from .events import judged

    options = parser(name).parse_args(argv)
    if options.output and holds(options.output, DOCUMENT):
        raise UsageError(
            f"{options.output} is a saved run, and a page must not replace it; choose another name"
        )
    past, code = _past(options)
    history = judged(past)
    if options.output:
        from .page import history_page

        output = Output(options.output, replace=True)
        output.write(history_page(history).encode("utf-8", "replace"))
        print(visible(f"saved to {output.path}"), file=sys.stderr)
    else:
        from .text import FORMATS

        sys.stdout.write(FORMATS[options.format](history, style(options)))
    return code


def _past(options: argparse.Namespace) -> tuple[Past, ExitCode]:
    """The runs of the machine that the options mean."""
    from ...results.read_many import read_many
    from .file import age_ago, default_file, identity_named
    from .store import History

    since, code = age_ago(options.since), ExitCode.PASS
    if options.files:
        if options.history:
            raise UsageError("give saved runs or --history FILE, not both")
        files = list(dict.fromkeys(named_files(options.files)))
        history = History(None)
        read = read_many(files, named, open_run)
        code = tell_unreadable(read.unreadable)
        if not read.found:
            raise UsageError("none of the runs can be read")
        for _, document in read.found:
            history.add(document)
    elif options.history is False:
        raise UsageError("--history none is no history to show: give --history FILE, or saved runs")
    else:
        history = History(options.history or default_file(), create=False)
    with closing(history):
        return history.past(identity_named(history.machines(), options.host), since), code


def parser(name: str) -> Parser:
    from .text import FORMATS

    arguments = Parser(
        name,
        "Show what changed on this machine, and since when: a line for each kind of path, then each change\n"
        "with the values that changed together, the device or link that explains it, and what else changed.\n"
        "Every `check` and `run` of real hardware adds itself to the history (--no-history).",
    )
    arguments.add("files RUN.json*", "saved runs, or folders of them, in place of the history")
    arguments.add("--host NAME", "the machine with this name (default: this one)")
    arguments.add("--since AGE", "only runs of this time, such as 30d", parse_age)
    arguments.add_history()
    arguments.add("-o --output FILE.html", "write a page instead", Path)
    arguments.add("--format", "format (default: text)", default="text", choices=FORMATS, by_project=True)
    arguments.add_verbose()
    return arguments
