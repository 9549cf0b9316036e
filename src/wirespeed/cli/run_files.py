"""Files of a command line: the runs that a user names, where a run is saved, and what is said of both."""

from __future__ import annotations

import argparse
import os
import shlex
import shutil
import sys
from collections.abc import Callable, Collection, Sequence
from contextlib import AbstractContextManager, nullcontext, redirect_stdout
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from ..errors import ExitCode, StorageError, UsageError
from ..terminal import error_line, visible
from .option_groups import output_path

if TYPE_CHECKING:
    from ..document import Document
    from ..results.output import Output
    from ..results.read_many import Unreadable
    from ..units import Nics


def named_files(names: Sequence[str]) -> list[str]:
    """The files that a user names, with those of folders; print what of the folders is left out.

    ``open_run`` opens each: a saved run, or the log of another tool.
    """
    from ..results.opening import is_log
    from ..results.store import files_in
    from .parser import meant_by

    for name in names:
        if not Path(name).exists() and (hint := meant_by([name])):
            raise UsageError(f"cannot read {name}: there is no such file{hint}")
    files, left_out = files_in(names, is_log)
    for text in left_out:
        print(visible(f"wirespeed: {text}"), file=sys.stderr)
    return files


def return_files(options: argparse.Namespace, files: list[str]) -> None:
    """Add to files those that ``-t`` and ``-p`` took, which take all words behind them."""
    for words in (options.testcase, options.prefix):
        taken = [word for word in words if Path(word).exists()]
        files += taken
        words[:] = [word for word in words if word not in taken]


def loading(options: argparse.Namespace) -> Callable[[str], Document]:
    """What opens a file that a user names, with what the command line says of its machine."""
    machine = options.machine if "machine" in options.given else None
    nics = getattr(options, "nics", None)
    return partial(_opened, machine=machine, host_memory=options.host_memory, nics=nics)


def _opened(file: str, machine: str | None, host_memory: float | None, nics: Nics | None) -> Document:
    from ..judging.replanned import with_host_memory
    from ..results.imported_limits import with_nics
    from ..results.opening import open_run

    document = open_run(file, machine)
    document = document if host_memory is None else with_host_memory(document, host_memory)
    return document if nics is None else with_nics(document, nics)


def tell_unreadable(unreadable: Sequence[Unreadable]) -> ExitCode:
    """Print why files cannot be read on standard error; return the exit code."""
    if not unreadable:
        return ExitCode.PASS
    from ..reports.checked_runs import errors_of

    for error in errors_of(unreadable):
        print(error_line(f"wirespeed: error: {error}"), file=sys.stderr)
    return ExitCode.USAGE


def saving(options: argparse.Namespace) -> Output | None:
    """Where the options of ``add_saving`` save the Document; None for nowhere.

    Raises:
        UsageError: If the options contradict each other.
        StorageError: If no file is given, and the current folder cannot be written.
    """
    if options.output and "no_save" in options.given:
        raise UsageError("-o saves the run, --no-save does not: give one of them")
    if options.no_save or options.output:
        output: Output | None = options.output
        return output
    if not os.access(Path.cwd(), os.W_OK):
        raise StorageError("cannot write to the current folder; pass -o FOLDER/, or --no-save")
    return output_path("./")


def tell_saved(output: Output | None, more: str = "") -> None:
    """Print on standard error where the Document was saved, and the commands that show it.

    Args:
        output: The file.
        more: What a report shows that the screen did not show; empty for nothing.
    """
    if output and output.written and not output.is_stream:
        file = str(output.path)
        lines = [f"saved to {file}", *([f"{more}: {_report_of([file])}"] if more else []), page_hint([file])]
        print(visible("\n".join(lines)), file=sys.stderr)


def page_hint(names: Sequence[str]) -> str:
    """The line that says how to make a page of saved runs."""
    page = str(Path(names[0]).with_suffix(".html")) if len(names) == 1 else "runs.html"
    page = f"./{page}" if page.startswith("-") else page
    return f"HTML page: {_report_of(names)} -o {shlex.quote(page)}"


def _report_of(names: Sequence[str]) -> str:
    """The command that prints saved runs."""
    return (
        f"{_program()} report {shlex.join(f'./{name}' if name.startswith('-') else name for name in names)}"
    )


def _program() -> str:
    """How to call this program: by its path if the shell would not find it."""
    called = Path(sys.argv[0])
    on_path = called.name != "wirespeed" or shutil.which("wirespeed")
    return "wirespeed" if on_path else shlex.quote(sys.argv[0])


def form_of(options: argparse.Namespace, names: Collection[str]) -> str:
    """The format of a report: that of ``--format``, else that of the suffix of ``-o``.

    Raises:
        UsageError: If the suffix is that of none of the formats with these names.
    """
    from ..reports import format_of_suffix

    if not options.output or "format" in options.given:
        return str(options.format)
    form = format_of_suffix(options.output.suffix.lower())
    form = "text" if form == "table" and "text" in names else form
    if form not in names:
        raise UsageError(f"cannot infer the format from {str(options.output)!r}; pass --format")
    return form


def report_output(file: Path, *, force: bool) -> Output:
    """The file of a report, which replaces other reports, and never a saved run.

    Raises:
        UsageError: If it would replace something else, and ``force`` is not given.
    """
    from ..results.output import DOCUMENT, Output, holds, is_report

    if not force and holds(file, DOCUMENT):
        raise UsageError(f"{file} is a saved run, and a report must not replace it; choose another name")
    output = Output(file, replace=is_report(file))
    output.check(force)
    return output


def deliver(text: str, options: argparse.Namespace) -> None:
    """Print a report, or write it to ``-o``."""
    if options.output:
        output = report_output(options.output, force=options.force)
        output.write(text.encode("utf-8", "replace"))
        print(visible(f"saved to {output.path}"), file=sys.stderr)
    elif not getattr(options, "quiet", False):
        sys.stdout.write(text)


def texts_aside(output: Output | None) -> AbstractContextManager[object]:
    """Redirect printed text to standard error if the Document goes to standard output."""
    from ..results.output import descriptor

    return redirect_stdout(sys.stderr) if output and descriptor(output.path) == 1 else nullcontext()
