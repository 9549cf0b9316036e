"""``wirespeed history``: what changed on a machine, and since when."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing
from typing import TYPE_CHECKING

from ...cli.option_values import style
from ...cli.parser import Parser
from ...cli.run_files import deliver, form_of, named_files, tell_unreadable
from ...errors import ExitCode, UsageError
from ...results.opening import named, open_run
from ...units import parse_age

if TYPE_CHECKING:
    import argparse

    from .history_file import Past


def main(name: str, argv: Sequence[str]) -> int:
    from .events import judged
    from .text import FORMATS

    options = parser(name).parse_args(argv)
    form = options.format = form_of(options, (*FORMATS, "html"))
    past, code = _past(options)
    history = judged(past)
    if form == "html":
        from .page import history_page

        text = history_page(history)
    else:
        text = FORMATS[form](history, style(options))
    deliver(text, options)
    return code


def _past(options: argparse.Namespace) -> tuple[Past, ExitCode]:
    """The runs of the machine that the options mean."""
    from ...results.read_many import read_many
    from .history_file import History
    from .location import age_ago, default_file, identity_named

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
        examples={
            "history": "this machine",
            "history --since 30d -o history.html": "a page of 30 days",
            "history runs/": "saved runs",
        },
        often="--host --since -o --format -v",
    )
    arguments.add("files FILE*", "saved runs, or folders of them, in place of the history")
    arguments.add("--host NAME", "the machine with this name (default: this one)")
    arguments.add("--since AGE", "only runs of this time, such as 30d", parse_age)
    arguments.add_history()
    arguments.add_output_as(".html, .json, .txt")
    arguments.add_format((*FORMATS, "html"), "text")
    arguments.add_verbose()
    return arguments
