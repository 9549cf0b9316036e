"""Code that commands share: the parser, common options, and printing a report."""

from __future__ import annotations

import argparse
import os
import shlex
import shutil
import sys
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext, redirect_stdout
from functools import cache, partial, wraps
from glob import escape, glob
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, TypeVar

from ..errors import ExitCode, NotARun, StorageError, UsageError
from ..judging.judged import Criteria, Judged
from ..terminal import colored, columns, error_line, visible
from .consumers import CONSUMERS, OPTION

if TYPE_CHECKING:
    from ..document import Document
    from ..judging.verdict import Verdict
    from ..options import RunOptions
    from ..reports import Style
    from ..results.compare import Unreadable
    from ..results.output import Output
    from ..results.published_gates import Inventory
    from ..units import Nics

T = TypeVar("T")


#: What the help of commands that measure says of the options that the help of `run` describes.
OF_RUN = "also all options of `wirespeed run`, such as -t, --machine, --devices, --tier and --within"


#: A parser, or a group of one.
TakesOptions = argparse._ActionsContainer


def option(
    to: TakesOptions, spelled: str, help: str, parse: Callable[[str], object] | None = None,
    *, completer: Callable[..., list[str]] | None = None, **settings: Any,
) -> None:  # fmt: skip
    """Add an option or an argument.

    Args:
        to: A parser, or a group of one.
        spelled: The names, and the word for a value: ``-o --output FILE``. ``FILE+`` takes several, ``FILE*``
            any number. An option without such a word and without choices is a flag.
        help: What it does.
        parse: Converts the text of a value; its UsageErrors are those of the option.
        completer: Returns the words that complete a value.
        settings: Further settings of ``add_argument``.
    """
    *names, last = spelled.split()
    if names and not last.startswith("-"):
        settings["metavar"] = last.rstrip("+*")
        if last[-1] in "+*":
            settings |= {"nargs": last[-1]}
            if names[0].startswith("-"):
                settings |= {"action": "extend", "default": []}
    else:
        names.append(last)
        if last.startswith("-") and parse is None and "choices" not in settings:
            settings.setdefault("action", "store_true")
    if parse is not None:
        settings["type"] = typed(parse)
    to.add_argument(*names, help=help, **settings).completer = completer  # type: ignore[attr-defined]


def add_machine(to: TakesOptions, default: str | None = None) -> None:
    """Add ``--machine``."""
    option(
        to, "--machine FILE|simulated:NAME",
        "machine file, or simulated machine such as simulated:dgx-a100-8 (default: this machine)",
        default=default, completer=machine_names,
    )  # fmt: skip


def testcase_names(**_: object) -> list[str]:
    """The names of all testcases, for completion."""
    from ..testcases import TABLE

    return [case.name for case in TABLE]


def machine_names(prefix: str = "", **_: object) -> list[str]:
    """The simulated machines, and files that begin like a word, for completion."""
    from ..backends.simulated.machines import MACHINES

    paths = glob(f"{escape(prefix or '')}*")  # noqa: PTH207 - also of absolute paths
    files = [file + "/" * Path(file).is_dir() for file in paths]
    return [f"simulated:{name}" for name in MACHINES] + [
        file for file in files if file.endswith(("json", "/"))
    ]


def add_options(to: TakesOptions, group: str | None = None, names: Collection[str] = ()) -> None:
    """Add the options of a run of one group, and those with these names."""
    from ..options import JOB, RunOptions, declared

    for field, about in declared(RunOptions):
        if about.group != group and field.name not in names:
            continue
        flag, help, initial = field.name.replace("_", "-"), about.help.replace("%", "%%"), field.default
        if about.parse is None:
            flag, help = (f"no-{flag}", f"do not {help}") if initial else (flag, help)
            action = "store_false" if initial else "store_true"
            to.add_argument(f"--{flag}", action=action, dest=field.name, help=help)
            continue
        default = about.default.replace("%", "%%") or ("" if initial is None else "%(default)s")
        later = about.group == JOB  # only one rank reports errors of job options
        choices = None if later else about.choices or None
        to.add_argument(
            f"--{flag}", default=initial, choices=choices, metavar=about.metavar,
            type=str if later or choices else typed(about.parse),
            help=f"{help} (default: {default})" if default else help,
        )  # fmt: skip


def run_options(options: argparse.Namespace, **changes: Any) -> RunOptions:
    """The parsed options of a run, with changes."""
    from ..options import RunOptions, declared

    names = [field.name for field, _ in declared(RunOptions) if hasattr(options, field.name)]
    return RunOptions(**{name: getattr(options, name) for name in names} | changes)


def add_simulated(to: TakesOptions, *, needed: bool = True) -> None:
    """Add ``--allow-simulated``; commands whose exit code passes no machine accept it without needing it."""
    help = "let a simulated machine pass" if needed else argparse.SUPPRESS
    option(to, "--allow-simulated", help)


def add_judging(to: TakesOptions) -> None:
    """Add the options of judgement."""
    from ..judging.verdicts import TOLERANCE
    from ..units import parse_fraction

    option(to, "--overrides FILE.toml", "file of accepted deviations, with reasons")
    option(
        to, "--baseline FILE", "file from `wirespeed baseline make`: values of good machines of this model"
    )
    option(
        to, "--tolerance PERCENT", "fail values that are below the baseline by more than this (default: 5%%)",
        parse_fraction, default=TOLERANCE,
    )  # fmt: skip
    add_expect(to)
    option(to, "--ignore-busy", "also judge devices that another process used")


def add_expect(to: TakesOptions) -> None:
    """Add ``--expect``."""
    from ..results.published_gates import parse

    option(
        to, "--expect KEY=VALUE,...",
        "fail unless each host has this: gpus, nvlinks (active, of each GPU), memory (95%% of it), "
        "nics, gpu-memory, gpu-model, numa, cpus; such as gpus=8,nvlinks=18,memory=1TiB (repeatable)", parse,
        action="append", default=[],
    )  # fmt: skip


def criteria(options: argparse.Namespace) -> Criteria:
    """The criteria of judgement; reads the files."""
    from ..judging.verdicts import MaxAge
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
    from ..results.published_gates import strictest

    return strictest(options.expect) if options.expect else None


def add_output(to: TakesOptions, help: str = "also save the run") -> None:
    """Add ``-o``."""
    option(
        to, "-o --output FILE.json", f"{help}; a folder for a generated name, - for standard output",
        output_path,
    )  # fmt: skip
    add_force(to, "exists")


def add_saving(to: TakesOptions) -> None:
    """Add ``-o``, ``--force``, ``-q`` and ``--no-save`` of a command that saves its run by default."""
    add_output(to, "file of the saved run (default: wirespeed-HOST-TIME.json in the current folder)")
    option(to, "-q --quiet", "print no report")
    option(to, "--no-save", "do not save the run")


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


def add_force(to: TakesOptions, kind: str) -> None:
    """Add ``--force``."""
    option(to, "--force", f"replace the file even if it {kind}")


def output_path(text: str) -> Output:
    """The file of the Document; in a folder it gets a name of its own. ``-`` is standard output."""
    from ..results.output import Output

    path = Path(text)
    if text.endswith("/") or path.is_dir():
        return Output.numbered(path / default_name())
    return Output(path)


def default_name() -> str:
    """The default file name of the Document of a run that starts now."""
    import platform

    return f"wirespeed-{platform.node() or 'host'}-{time.strftime('%Y%m%d-%H%M%S')}.json"


def texts_aside(output: Output | None) -> AbstractContextManager[object]:
    """Redirect printed text to standard error if the Document goes to standard output."""
    from ..results.output import descriptor

    return redirect_stdout(sys.stderr) if output and descriptor(output.path) == 1 else nullcontext()


def add_report(to: TakesOptions) -> None:
    """Add ``--format`` and ``-v``."""
    from ..reports import FORMATS

    option(
        to, "--format FORMAT", f"{FORMATS[0].name} (default), {', '.join(row.name for row in FORMATS[1:])}",
        default="table",
    )  # fmt: skip
    add_all_cells(to)
    add_verbose(to)


def add_consumer(to: TakesOptions) -> None:
    """Add ``--for``."""
    option(
        to, f"{OPTION} CONSUMER",
        f"print only one line, and exit with the code that this program expects: {', '.join(CONSUMERS)} "
        "(wirespeed help operate)", dest="consumer", choices=tuple(CONSUMERS),
    )  # fmt: skip


def add_all_cells(to: TakesOptions) -> None:
    """Add ``--all-cells``."""
    option(to, "--all-cells", "export every value (only with --format prometheus)")


def add_verbose(to: TakesOptions) -> None:
    """Add ``-v``."""
    option(to, "-v --verbose", "show all samples, all values and full names")


def typed(parse: Callable[[str], T]) -> Callable[[str], T]:
    """A parser whose UsageErrors argparse reports."""

    @wraps(parse)  # argparse names it in errors
    def convert(text: str) -> T:
        try:
            return parse(text)
        except UsageError as error:
            raise argparse.ArgumentTypeError(str(error)) from error

    return convert


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
