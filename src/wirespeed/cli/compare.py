"""``wirespeed compare``, ``baseline make`` and ``history``: what changed beyond chance.

``baseline make`` combines runs of good machines. ``history`` shows what changed on a machine, and since
when; runs add themselves to it.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from ..errors import EXIT_CODES, DocumentError, ExitCode, StorageError, UsageError, WirespeedError
from ..judging.criteria import Criteria
from ..judging.judged import Judged
from ..terminal import error_line, one_line, visible
from ..units import many, parse_age, parse_fraction
from .common import named, named_files, open_run, style, tell_unreadable, texts_aside
from .parser import Parser

if TYPE_CHECKING:
    import argparse

    from ..document import Document
    from ..results.compare import Comparison
    from ..results.read_many import ReadRuns

    _Named = tuple[str, Document]
    from ..features.history.store import Past


def main(name: str, argv: Sequence[str]) -> int:
    from ..reports.comparisons import FORMATS
    from ..results.compare import Conclusion, compare
    from ..results.read_many import defective

    options = parser(name).parse_args(argv)
    if not options.after and len(options.before) != 2:
        raise UsageError(
            "compare two runs (or folders of runs), or several: "
            "wirespeed compare BEFORE.json ... --to AFTER.json ..."
        )
    sides = (options.before, options.after) if options.after else [[path] for path in options.before]
    files = [list(dict.fromkeys(named_files(side))) for side in sides]
    first, second = map(_read, files)
    unreadable = [*first.unreadable, *second.unreadable]

    def compared(a: Sequence[_Named], b: Sequence[_Named]) -> tuple[Comparison, str]:
        runs = [[document for _, document in side] for side in (a, b)]
        found = compare(runs[0], runs[1], options.least, ignore_busy=options.ignore_busy)
        return found, FORMATS[options.format](found, style(options), unreadable)

    try:
        comparison, text = compared(first.found, second.found)
    except WirespeedError:
        raise
    except Exception:
        broken = defective([*first.found, *second.found], lambda run: compared([("", run)], [("", run)]))
        out = {error.file for error in broken}
        sides = [[run for run in side.found if run[0] not in out] for side in (first, second)]
        if not broken or not all(sides):
            raise
        unreadable += broken
        comparison, text = compared(sides[0], sides[1])
    sys.stdout.write(text)
    code = {
        Conclusion.WORSE: ExitCode.FAIL,
        Conclusion.UNKNOWN: ExitCode.WARN,
        Conclusion.NOT_WORSE: ExitCode.PASS,
        Conclusion.NOTHING: ExitCode.NOT_JUDGED,
    }[comparison.conclusion]
    return ExitCode.RUN if unreadable and code != ExitCode.FAIL else code


def _read(files: Sequence[str]) -> ReadRuns[_Named]:
    """Read the runs of a side.

    Raises:
        DocumentError: If none of the files can be read.
    """
    from ..reports.checked_runs import errors_of
    from ..results.read_many import read_many

    read = read_many(files, named, open_run)
    if not read.found:
        raise DocumentError("; ".join(errors_of(read.unreadable)))
    return read


def parser(name: str) -> Parser:
    from ..reports.comparisons import FORMATS

    arguments = Parser(
        name,
        "Show the changes between runs before and after, the worst first, and what else differs.\n"
        "The comparison fails if a value got worse or was lost, and ends with 3 if values vary too much to\n"
        "decide this. Values of devices that another process used are not compared.",
        EXIT_CODES,
    )
    arguments.add(
        "before FILE+",
        "saved runs before, logs of other tools, or folders; without --to exactly two: before and after",
    )  # fmt: skip
    arguments.add(
        "--to FILE+",
        "saved runs after, in the same forms; a host with runs on both sides is compared with itself",
        dest="after",
    )  # fmt: skip
    arguments.add(
        "--least PERCENT", "ignore changes smaller than this (default: 2%%)", parse_fraction, default=0.02
    )
    arguments.add("--ignore-busy", "also compare devices that another process used")
    arguments.add(
        "--format", "format of the changes (default: text)", default="text", choices=FORMATS, by_project=True
    )
    arguments.add_simulated(needed=False)
    arguments.add_verbose()
    return arguments


def main_of_baseline(name: str, argv: Sequence[str]) -> int:
    options = parser_of_baseline(name).parse_args(argv)
    from ..results import baseline
    from ..results.output import BASELINE, Output, check_replaceable

    check_replaceable(options.output, BASELINE, options.force)
    files = named_files(options.runs)
    combined = baseline.make([open_run(path) for path in files], files)
    output = Output(options.output, replace=True)
    output.write(baseline.encode(combined))
    with texts_aside(output):
        for model, entries in combined.models.items():
            mark = "SIMULATED: " if combined.simulated else ""
            runs = max((entry.runs for entry in entries), default=0)
            print(f"{mark}{one_line(model)}: {many(len(entries), 'value')} of {many(runs, 'run')}")
    return ExitCode.PASS


def parser_of_baseline(name: str) -> Parser:
    arguments = Parser(
        name, "Create a baseline for `wirespeed check --baseline` from saved runs of good machines."
    )
    arguments.add("action", "make: create a baseline", choices=("make",))
    arguments.add("runs FILE+", "saved runs of good machines, and folders of them")
    arguments.add("-o --output FILE", "file of the baseline", Path, required=True)
    arguments.add_force("is not a baseline")
    return arguments


def main_of_history(name: str, argv: Sequence[str]) -> int:
    from ..features.history.events import judged
    from ..results.output import DOCUMENT, Output, holds

    options = parser_of_history(name).parse_args(argv)
    if options.output and holds(options.output, DOCUMENT):
        raise UsageError(
            f"{options.output} is a saved run, and a page must not replace it; choose another name"
        )
    past, code = _past(options)
    history = judged(past)
    if options.output:
        from ..features.history.page import history_page

        output = Output(options.output, replace=True)
        output.write(history_page(history).encode("utf-8", "replace"))
        print(visible(f"saved to {output.path}"), file=sys.stderr)
    else:
        from ..features.history.text import FORMATS

        sys.stdout.write(FORMATS[options.format](history, style(options)))
    return code


def _past(options: argparse.Namespace) -> tuple[Past, ExitCode]:
    """The runs of the machine that the options mean."""
    from ..features.history.file import age_ago, default_file, identity_named
    from ..features.history.store import History
    from ..results.read_many import read_many

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


def parser_of_history(name: str) -> Parser:
    from ..features.history.text import FORMATS

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


def remember(judged: Judged, options: argparse.Namespace) -> None:
    """Add a run of real hardware to the history; say on standard error why it cannot be."""
    document = judged.document
    if options.no_history or options.history is False or document.simulated or document.imported:
        return
    from ..features.history.file import DamagedHistory
    from ..features.history.store import add
    from ..judging.verdict import Verdict

    try:
        bad = {
            one.key: one.verdict.value for one in judged.check.judgements if one.verdict is not Verdict.PASS
        }
        add(options.history, document, judged.check.verdict, bad)
    except DamagedHistory as error:
        print(error_line(f"wirespeed: warning: {error}"), file=sys.stderr)
    except StorageError as error:
        print(error_line(f"wirespeed: warning: this run is not in the history: {error}"), file=sys.stderr)


def with_past(by: Criteria, document: Document, options: argparse.Namespace) -> Criteria:
    """Criteria that also have the past of the machine of a run, for ``check --since``.

    Without a past that judges, the run is judged by the other criteria, and the reason is one of them.
    """
    from ..features.history.file import age_ago, default_file
    from ..features.history.store import History, baseline_of, identity_of

    try:
        if options.history is False:
            raise UsageError("there is none (--history none)")
        with closing(History(options.history or default_file(), create=False)) as history:
            past = history.past(identity_of(document), age_ago(options.since), before=document.started)
            return replace(by, baseline=baseline_of(past, document))
    except (UsageError, StorageError) as error:
        return replace(by, lacking=(*by.lacking, f"not judged by the history: {error}"))
