"""Code that commands share: the parser, common options, and printing a report."""

from __future__ import annotations

import argparse
import os
import shlex
import shutil
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext, redirect_stdout
from functools import cache, partial
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, TypeVar

from ..errors import ExitCode, NotARun, StorageError, UsageError
from ..terminal import colored, columns, error_line, visible
from .option_groups import output_path

if TYPE_CHECKING:
    from ..document import Document
    from ..judging.judged import Criteria, Judged
    from ..judging.verdict import Verdict
    from ..options import RunOptions
    from ..reports import Style
    from ..results.baseline import Inventory
    from ..results.compare import Unreadable
    from ..results.output import Output
    from ..units import Nics

T = TypeVar("T")


#: What the help of commands that measure says of the options that the help of `run` describes.
OF_RUN = "also all options of `wirespeed run`, such as -t, --machine, --devices, --tier and --within"


def run_options(options: argparse.Namespace, **changes: Any) -> RunOptions:
    """The parsed options of a run, with changes."""
    from ..options import RunOptions, declared

    names = [field.name for field, _ in declared(RunOptions) if hasattr(options, field.name)]
    return RunOptions(**{name: getattr(options, name) for name in names} | changes)


def criteria(options: argparse.Namespace) -> Criteria:
    """The criteria of judgement; reads the files."""
    from ..judging.judged import Criteria, MaxAge
    from ..results import baseline
    from ..results import cells as overrides

    oldest = getattr(options, "max_age", None)
    if "tolerance" in options.given and not options.baseline:
        raise UsageError("--tolerance has no effect without --baseline")
    return Criteria(
        overrides.load(options.overrides) if options.overrides else (),
        baseline.load(options.baseline) if options.baseline else None,
        options.tolerance,
        options.ignore_busy,
        expected(options),
        MaxAge(oldest, time.time()) if oldest else None,
    )


def expected(options: argparse.Namespace) -> Inventory | None:
    """What each host should have; None if nothing is expected."""
    from ..results.baseline import strictest

    return strictest(options.expect) if options.expect else None


def saving(options: argparse.Namespace) -> Output | None:
    """Where the options of ``add_saving`` save the Document; None for nowhere.

    Raises:
        UsageError: If the options contradict each other.
        StorageError: If no file is given, and the current folder cannot be written.
    """
    if options.no_save and options.output:
        raise UsageError("-o saves the run, --no-save does not: give one of them")
    if options.no_save or options.output:
        output: Output | None = options.output
        return output
    if not os.access(Path.cwd(), os.W_OK):
        raise StorageError("cannot write to the current folder; pass -o FOLDER/, or --no-save")
    return output_path("./")


def named_files(names: Sequence[str]) -> list[str]:
    """The files that a user names, with those of folders; print what of the folders is left out.

    ``importers.open_run`` opens each: a saved run, or the log of another tool.
    """
    from ..results.store import files_in, left_out
    from .parser import meant_by

    for name in names:
        if not Path(name).exists() and (hint := meant_by([name])):
            raise UsageError(f"cannot read {name}: there is no such file{hint}")
    known = cache(_is_log)
    files = files_in(names, known)
    for text in left_out(names, known):
        print(visible(f"wirespeed: {text}"), file=sys.stderr)
    return files


def _is_log(path: Path) -> bool:
    from ..importers import is_log

    return is_log(path)


def return_files(options: argparse.Namespace, files: list[str]) -> None:
    """Add to files those that ``-t`` and ``-p`` took, which take all words behind them."""
    for words in (options.testcase, options.prefix):
        taken = [word for word in words if Path(word).exists()]
        files += taken
        words[:] = [word for word in words if word not in taken]


def named(file: str, document: Document) -> tuple[str, Document]:
    """What is kept of a run by those who need it with its file."""
    return file, document


def open_run(file: str, machine: str | None = None) -> Document:
    """Open what a user names: a saved run, or the log of another tool; ``-`` is standard input.

    Args:
        file: The file.
        machine: The machine of a log, as for ``load_log``.

    Raises:
        UsageError: If the file cannot be read, or is neither; if a machine is given for a saved run.
    """
    from ..results.store import content, decode

    data = content(file)
    try:
        document = decode(data, file)
    except NotARun as error:
        from ..importers import of_content

        return of_content(file, data, machine, error)
    if machine is not None:
        raise UsageError(f"--machine is for logs of other tools: {file} is a saved run with its machine")
    return document


def loading(options: argparse.Namespace) -> Callable[[str], Document]:
    """What opens a file that a user names, with what the command line says of its machine."""
    machine = options.machine if "machine" in options.given else None
    nics = getattr(options, "nics", None)
    return partial(_opened, machine=machine, host_memory=options.host_memory, nics=nics)


def _opened(file: str, machine: str | None, host_memory: float | None, nics: Nics | None) -> Document:
    from ..judging.omissions import with_host_memory
    from ..results.imported_limits import with_nics

    document = open_run(file, machine)
    document = document if host_memory is None else with_host_memory(document, host_memory)
    return document if nics is None else with_nics(document, nics)


def tell_unreadable(unreadable: Sequence[Unreadable]) -> ExitCode:
    """Print why files cannot be read on standard error; return the exit code."""
    from ..reports.records import errors_of

    for error in errors_of(unreadable):
        print(error_line(f"wirespeed: error: {error}"), file=sys.stderr)
    return ExitCode.USAGE if unreadable else ExitCode.PASS


def tell_saved(output: Output | None, more: Mapping[str, str] = MappingProxyType({})) -> None:
    """Print on standard error where the Document was saved, and the commands that show it.

    Args:
        output: The file.
        more: Commands besides the one that makes a page: what for, and the command.
    """
    if output and output.written and not output.is_stream:
        path = str(output.path)
        name = shlex.quote(f"./{path}" if path.startswith("-") else path)
        commands = {**more, "for a page": "report"}
        lines = [f"{what}: {_program()} {command} {name}" for what, command in commands.items()]
        print(visible("\n".join([f"saved to {path}", *lines])), file=sys.stderr)


def _program() -> str:
    """How to call this program: by its path if the shell would not find it."""
    called = Path(sys.argv[0])
    on_path = called.name != "wirespeed" or shutil.which("wirespeed")
    return "wirespeed" if on_path else shlex.quote(sys.argv[0])


def texts_aside(output: Output | None) -> AbstractContextManager[object]:
    """Redirect printed text to standard error if the Document goes to standard output."""
    from ..results.output import descriptor

    return redirect_stdout(sys.stderr) if output and descriptor(output.path) == 1 else nullcontext()


def code_of(verdict: Verdict) -> ExitCode:
    """The exit code of a command that judges."""
    if verdict.is_failure:
        return ExitCode.FAIL
    if not verdict.is_judged:
        return ExitCode.NOT_JUDGED
    return ExitCode.WARN if verdict.is_bad else ExitCode.PASS


def check_format(name: str) -> None:
    """Refuse an unknown format before anything is measured.

    Raises:
        UsageError: If there is no such format; the message lists all.
    """
    from ..reports import find

    find(name)


def print_report(judged: Judged, options: argparse.Namespace) -> None:
    """Print a run in the requested format and detail."""
    from ..reports import render

    print(render(judged, options.format, style(options)), end="", flush=True)


def style(options: argparse.Namespace) -> Style:
    """The style for this terminal, with the requested detail."""
    from ..reports import Style

    return Style(
        columns(),
        colored(),
        getattr(options, "verbose", False),
        all_cells=getattr(options, "all_cells", False),
        settings=getattr(options, "in_force", ()),
    )
