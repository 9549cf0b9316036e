"""Code that commands share: common options, files, printing a report, ``--dry-run``, and the end of a run.
In a job of several processes, rank 0 prints, and all processes end together.
"""

from __future__ import annotations

import argparse
import os
import shlex
import shutil
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext, redirect_stdout
from functools import cache, partial
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from ..errors import ExitCode, StorageError, UsageError, WirespeedError
from ..run_errors import SIGNALLED, RunInterrupted, Undisturbed
from ..terminal import colored, columns, error_line, visible
from ..units import format_time, many
from .option_groups import output_path

if TYPE_CHECKING:
    from ..document import Document
    from ..driver.run_plan import PlannedTestcase
    from ..hardware.topology import Machine
    from ..judging.criteria import Criteria
    from ..judging.judged import Judged
    from ..judging.verdict import Verdict
    from ..options import RunOptions
    from ..reports import Style
    from ..results.inventory import Inventory
    from ..results.output import Output
    from ..results.read_many import Unreadable
    from ..testcases.table import Testcase
    from ..units import Nics
    from ..worlds.base import World

#: What the help of commands that measure says of the options that the help of `run` describes.
OF_RUN = "also all options of `wirespeed run`, such as -t, --machine, --devices, --tier and --within"


def run_options(options: argparse.Namespace, **changes: Any) -> RunOptions:
    """The parsed options of a run, with changes."""
    from ..options import RunOptions, declared

    names = [field.name for field, _ in declared(RunOptions) if hasattr(options, field.name)]
    return RunOptions(**{name: getattr(options, name) for name in names} | changes)


def criteria(options: argparse.Namespace) -> Criteria:
    """The criteria of judgement; reads the files."""
    from ..judging.criteria import Criteria, MaxAge
    from ..results import baseline, overrides

    oldest = getattr(options, "max_age", None)
    if "tolerance" in options.given and not options.baseline:
        raise UsageError("--tolerance has no effect without --baseline")
    accepted = overrides.load(options.overrides) if options.overrides else ()
    good = baseline.load(options.baseline) if options.baseline else None
    age = MaxAge(oldest, time.time()) if oldest else None
    return Criteria(
        accepted, good, options.tolerance, options.ignore_busy, expected(options), age,
        allow_simulated=getattr(options, "allow_simulated", False),
    )  # fmt: skip


def expected(options: argparse.Namespace) -> Inventory | None:
    """What each host should have; None if nothing is expected."""
    from ..results.inventory import strictest

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

    ``open_run`` opens each: a saved run, or the log of another tool.
    """
    from ..results.opening import is_log
    from ..results.store import files_in, left_out
    from .parser import meant_by

    for name in names:
        if not Path(name).exists() and (hint := meant_by([name])):
            raise UsageError(f"cannot read {name}: there is no such file{hint}")
    known = cache(is_log)
    files = files_in(names, known)
    for text in left_out(names, known):
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
    from ..reports.checked_runs import errors_of

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
    return verdict.exit_code


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

    given = vars(options)
    all_cells, settings = given.get("all_cells", False), given.get("in_force", ())
    return Style(columns(), colored(), given.get("verbose", False), all_cells=all_cells, settings=settings)


def measured_code(judged: Judged) -> ExitCode:
    """The exit code of a command that measures: whether anything failed, or nothing has a value."""
    if judged.check.verdict.is_failure:
        return ExitCode.FAIL
    values = any(table.values() for result in judged.document.testcases for table in result.tables)
    return ExitCode.PASS if values else ExitCode.NOT_JUDGED


def dry_run(arguments: dict[str, Any], options: argparse.Namespace) -> int:
    """Print the plan of a run; return the exit code.

    Args:
        arguments: Those of ``wirespeed.run``, as ``measuring`` returns them.
        options: Options of the command.
    """
    from ..api import as_changed, choose, part_of
    from ..backends import describe
    from ..driver.run_plan import run_plan

    chosen = arguments["options"]
    machine = part_of(describe(options.machine), chosen)
    cases = as_changed(choose(arguments["testcases"], arguments["prefixes"], chosen), chosen)
    print(visible(_text(run_plan(cases, machine, chosen), machine, chosen.within)))
    return ExitCode.PASS


def _text(planned: Sequence[PlannedTestcase], machine: Machine, within: float | None) -> str:
    """The plan as a table."""
    from ..hardware.durations import end_seconds

    where = f"{machine.name or machine.host}{' (SIMULATED)' if machine.simulated else ''}"
    lines = [f"dry run on {where}; nothing is measured", "", "  begins    takes  values  testcase"]
    possible = [entry for entry in planned if not entry.reason]
    for entry in possible:
        begins = format_time(entry.begins) if entry.in_time else "left out"
        lines.append(f"{begins:>8} {format_time(entry.seconds):>8} {entry.values:>7}  {entry.case.name}")
    measured = [entry for entry in possible if entry.in_time]
    ends = max((entry.begins + entry.seconds for entry in measured), default=0.0) + end_seconds(machine)
    values = many(sum(entry.values for entry in measured), "value")
    lines += ["", f"about {format_time(ends)} for {values} of {many(len(measured), 'testcase')}"]
    if within is not None and len(measured) < len(possible):
        left = many(len(possible) - len(measured), "testcase")
        lines.append(f"within {format_time(within)}, there may be no time for {left}")
    if refused := len(planned) - len(possible):
        lines.append(f"{many(refused, 'testcase')} not possible here; `wirespeed list` says why")
    return "\n".join(lines)


def measured(given: argparse.Namespace, testcases: Iterable[str | Testcase] = (), **more: Any) -> Document:
    """Measure with the output and the progress of a command.

    Args:
        given: Options of the command.
        testcases, more: Arguments of ``wirespeed.run``.
    """
    from ..api import run
    from ..progress import Announcement, listener

    usual = {"output": given.output, "force": given.force, "listeners": listener(),
             "command": " ".join(["wirespeed", *sys.argv[1:]])}  # fmt: skip
    arguments = usual | more
    if "options" in arguments:
        arguments["listeners"] = [Announcement(arguments["options"]), *arguments["listeners"]]
    return run(testcases=testcases, **arguments)


def lead(
    world: World | None,
    measure: Callable[[], Document],
    show: Callable[[Judged], None],
    code: Callable[[Judged], int] = measured_code,
    broken: int = ExitCode.RUN,
    broken_off: Callable[[Judged], int] | None = None,
    judging: Callable[[Document], Judged] | None = None,
    *,
    says: bool = False,
    ending: str = "",
) -> int:
    """Measure, show the Document on rank 0, and return the exit code.

    Args:
        world: The processes of the job; None for a single process.
        measure: Runs the measurements; called on all ranks.
        show: Prints the run; called on rank 0.
        code: Returns the exit code of a run; called on rank 0.
        broken: The exit code if the job broke off, for a reason other than the user's.
        broken_off: Returns the exit code of a run of such a job; None for ``broken``.
        judging: Returns what judges a Document; None to judge it by its limits.
        says: Whether ``show`` tells a person that the run was interrupted.
        ending: Line that a process prints on standard output if it reports in place of rank 0.

    Raises:
        RunInterrupted: On Ctrl-C, after showing the Document.
        WirespeedError: If nothing could be measured; only on rank 0.
    """
    first = world is None or world.rank == 0
    interrupted = None
    try:
        document = measure()
    except RunInterrupted as error:
        document, interrupted = error.document, error
    except KeyboardInterrupt:  # before anything was measured
        SIGNALLED.heard()
        if world is not None:
            world.fail(f"interrupted on {world.me}", interrupted=True)
        raise
    except WirespeedError as error:  # the same on all ranks
        if world is not None:
            if not first:
                speak_for_leader(world, str(error), ending)
            world.close()
            if not first:
                return ExitCode.USAGE if isinstance(error, UsageError) else broken
        raise

    from ..judging.judged import Judged

    judged = judging(document) if judging else Judged(document)
    if first:
        with Undisturbed() as late:
            show(judged)
        if late.signals and interrupted is None:
            interrupted = RunInterrupted(document)
    if world is not None and document.interrupted:
        speak_for_leader(world, document.interrupted, ending)
        world.fail(document.interrupted, interrupted=interrupted is not None)
        ended = broken_off(judged) if broken_off else broken
        world.leave(ExitCode.INTERRUPTED if interrupted else ended)
    if world is not None:
        world.close()
    if interrupted:
        interrupted.is_shown = says and first
        raise interrupted
    return code(judged) if first else ExitCode.PASS


def speak_for_leader(world: World, reason: str, ending: str = "") -> None:
    """Print the reason on one rank of each host, and rank 1, if rank 0 has ended or does not answer.

    ``ending`` is a further line, for standard output.
    """
    if world.leaderless and (world.rank == 1 or world.local_rank == 0):
        if ending:
            print(visible(ending), flush=True)
        print(error_line(f"wirespeed: error: {reason}"), file=sys.stderr, flush=True)


def measuring(options: argparse.Namespace) -> dict[str, Any]:
    """The arguments of ``wirespeed.run`` from the options of ``add_measuring``."""
    about = {"prefixes": options.prefix, "machine": options.machine, "testcases": [*options.testcase]}
    return about | timed(run_options(options))


def timed(options: RunOptions) -> dict[str, Any]:
    """The options of a run and the start of its time limit, as arguments of ``wirespeed.run``."""
    return {"options": options, "since": None if options.within is None else process_started()}


def process_started() -> float:
    """When this process started, in s of the monotonic clock; now if the system does not say."""
    now = time.monotonic()
    try:
        # The fields after the name, which is in parentheses and may contain anything.
        ticks = int(Path("/proc/self/stat").read_text().rpartition(")")[2].split()[19])
    except (OSError, ValueError, IndexError):
        return now
    age = time.clock_gettime(time.CLOCK_BOOTTIME) - ticks / os.sysconf("SC_CLK_TCK")
    return now - max(0.0, age)
