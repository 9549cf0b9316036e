"""``wirespeed history``: what changed on a machine, and since when; and the runs that add themselves."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from ..errors import ExitCode, StorageError, UsageError
from ..terminal import error_line, visible
from .common import TakesOptions, add_verbose, load_run_or_log, saved_files, style, typed
from .parser import Parser

if TYPE_CHECKING:
    import argparse

    from ..document import Document
    from ..judging.judged import Criteria, Judged
    from ..results.history import Past


def main(name: str, argv: Sequence[str]) -> int:
    from ..judging.history import judged
    from ..results.output import DOCUMENT, Output, holds

    options = parser(name).parse_args(argv)
    if options.output and holds(options.output, DOCUMENT):
        raise UsageError(
            f"{options.output} is a saved run, and a page must not replace it; choose another name"
        )
    past, code = _past(options)
    history = judged(past)
    if options.output:
        from ..reports.html.history import page

        output = Output(options.output, replace=True)
        output.write(page(history).encode("utf-8", "replace"))
        print(visible(f"saved to {output.path}"), file=sys.stderr)
    else:
        from ..screens.history import FORMATS

        sys.stdout.write(FORMATS[options.format](history, style(options)))
    return code


def _past(options: argparse.Namespace) -> tuple[Past, ExitCode]:
    """The runs of the machine that the options mean."""
    from ..results.compare import read_many
    from ..results.history import History, default_file

    since, code = _started(options.since), ExitCode.PASS
    if options.files:
        if options.history:
            raise UsageError("give saved runs or --history FILE, not both")
        files = list(dict.fromkeys(saved_files(options.files)))
        history = History(None)
        read = read_many(files, _kept, load_run_or_log)
        for error in read.unreadable:
            print(error_line(f"wirespeed: error: {error}"), file=sys.stderr)
            code = ExitCode.USAGE
        for document in read.found:
            history.add(document)
    else:
        history = History(options.history or default_file(), create=False)
    with closing(history):
        return history.past(_machine(history.machines(), options.host), since), code


def _kept(_: str, document: Document) -> Document:
    return document


def _machine(known: Sequence[str], host: str | None) -> str:
    """The identity of a machine by the name of its host; without one this host, or the only one.

    Raises:
        UsageError: If there is no such machine, or several.
    """
    import json
    import platform

    names = {identity: str(json.loads(identity)[0]) for identity in known}
    if not known:
        raise UsageError(
            "the history is empty: `wirespeed check` and `wirespeed run` of real hardware add to it"
        )
    wanted = host if host is not None else platform.node()
    chosen = [identity for identity in known if names[identity] == wanted]
    if not chosen and host is None:
        chosen = list(known)
    if not chosen or (len(chosen) > 1 and host is None):
        listed = ", ".join(dict.fromkeys(names.values()))
        raise UsageError(f"choose a machine with --host: the history has {listed}")
    return chosen[0]


def parser(name: str) -> Parser:
    from ..screens.history import FORMATS
    from ..units import parse_age

    arguments = Parser(
        name,
        "Show what changed on this machine, and since when: a line for each kind of path, then each change\n"
        "with the values that changed together, the device or link that explains it, and what else changed.\n"
        "Every `check` and `run` of real hardware adds itself to the history (--no-history).",
    )
    arguments.add_argument(
        "files", metavar="RUN.json", nargs="*", help="saved runs, or folders of them, in place of the history"
    )
    arguments.add_argument("--host", metavar="NAME", help="the machine with this name (default: this one)")
    arguments.add_argument(
        "--since", type=typed(parse_age), metavar="AGE", help="only runs of this time, such as 30d"
    )
    add_file(arguments)
    arguments.add_argument("-o", "--output", type=Path, metavar="FILE.html", help="write a page instead")
    arguments.add_argument("--format", default="text", choices=FORMATS, help="format (default: text)")
    add_verbose(arguments)
    return arguments


def add_file(to: TakesOptions) -> None:
    """Add ``--history``."""
    to.add_argument(
        "--history",
        type=Path,
        metavar="FILE",
        help="file of the history (default: wirespeed/history.sqlite in the user's data folder)",
    )


def add_remembering(to: TakesOptions) -> None:
    """Add the options of commands whose runs are added to the history."""
    add_file(to)
    to.add_argument("--no-history", action="store_true", help="do not add the run to the history")


def remember(judged: Judged, options: argparse.Namespace) -> None:
    """Add a run of real hardware to the history; say on standard error why it cannot be."""
    document = judged.document
    if options.no_history or document.simulated or document.imported:
        return
    from ..results.history import add

    try:
        add(options.history, document, judged.check.verdict)
    except StorageError as error:
        print(error_line(f"wirespeed: warning: this run is not in the history: {error}"), file=sys.stderr)


def refuse_without_past(options: argparse.Namespace) -> None:
    """Refuse ``--since`` before anything is measured if there is no history."""
    from ..results.history import History, default_file

    if options.baseline:
        raise UsageError("--since judges by this machine's own past, --baseline by good machines: give one")
    History(options.history or default_file(), create=False).close()


def with_past(by: Criteria, document: Document, options: argparse.Namespace) -> Criteria:
    """Criteria that also have the past of the machine of a run, for ``check --since``."""
    from ..results.history import History, baseline_of, default_file, identity_of

    with closing(History(options.history or default_file(), create=False)) as history:
        past = history.past(identity_of(document), _started(options.since), before=document.started)
    return replace(by, baseline=baseline_of(past, document))


def _started(age: float | None) -> str:
    """The time of an age ago as ISO 8601 text; empty for None."""
    from datetime import UTC, datetime, timedelta

    return (datetime.now(UTC) - timedelta(seconds=age)).isoformat(timespec="seconds") if age else ""
