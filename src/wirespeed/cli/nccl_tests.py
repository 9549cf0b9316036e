"""``wirespeed all_reduce_perf`` and its siblings, with the command lines of nccl-tests."""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from ..collectives.options import ALL_ROOTS, MPI, NCCL, SIMULATED
from ..driver.jobs import Filled, Listener
from ..errors import ExitCode, MachineError, StorageError, UsageError, WirespeedError
from ..terminal import colored, columns, error_line, visible
from ..units import GIB
from .commands import called_as
from .common import check_format, texts_aside
from .dry_run import lead
from .nccl_tests_options import (
    AUTO,
    FORMAT,
    Asked,
    NotPossible,
    TooFewGpus,
    announce,
    check_kernels,
    chosen,
    given,
    header_without_devices,
    parsed,
    parser,
    refuse,
    reserve,
    room_for,
    sizes,
)

if TYPE_CHECKING:
    from ..backends.base import Backend
    from ..backends.collective_backend import Make
    from ..backends.provider import Group, Provider
    from ..document import Document
    from ..hardware.topology import Machine
    from ..judging.judged import Judged
    from ..reports.nccl_tests_view import Row, View
    from ..results.output import Output
    from ..tables import Cell
    from ..testcases import Testcase
    from ..worlds.base import World
    from .parser import Parser

#: Time-out that stands for no limit, in s.
_NO_LIMIT_S = 1e9
#: Time that an exchange may take beyond the time-out of a stage, in s, so that the error names the stage.
_EXCHANGE_GRACE_S = 10.0
#: Memory of a GPU, in bytes, of which nccl-tests reserves 1 GiB, and the most that it reserves.
_RESERVING, _MOST_RESERVED = 16 * GIB, 4 * GIB


def main(name: str, argv: Sequence[str]) -> int:
    """Run a command of nccl-tests, called by this name, and return its exit code."""
    program = called_as(name.rpartition("/")[2]) or name
    arguments = parser(program)
    options = parsed(arguments, program, argv)
    check_format(options.format)
    with texts_aside(options.output):
        return _run(program, [name, *argv], arguments, options)


def _run(program: str, called: Sequence[str], arguments: Parser, options: argparse.Namespace) -> int:
    """Join the job and run; say on standard output that a run failed, as nccl-tests says it."""
    machine = _simulated(options)
    gpus = 0 if machine or options.mpi else _gpus()
    provider = SIMULATED if machine else NCCL if gpus else MPI
    try:
        collectives = given(program, options, called)
        refuse(collectives, options, provider)
        check_kernels(program, collectives)
        operation = chosen(collectives)
    except UsageError as error:
        arguments.error(str(error))
    from ..backends.collective_backend import SETUP_S
    from ..testcases.collectives import members
    from ..worlds import join, launched
    from ..worlds.launchers import STARTED

    ranks, alone, processes = collectives.threads * collectives.gpus, not launched(), 1
    if machine and not alone:
        raise UsageError("a simulated machine runs all ranks in one process: start it without a launcher")
    by_process = options.launch == "processes" or (options.launch == AUTO and options.threads is None)
    if provider == NCCL and alone and by_process:
        processes = ranks
    per_process = 1 if processes > 1 or STARTED in os.environ else ranks
    timeout = collectives.timeout or _NO_LIMIT_S
    stamps: list[str] | None = [] if collectives.stamped else None
    wanted = Asked(collectives, operation, provider, per_process, sizes(collectives), stamps)
    try:
        needed, present = max(0, collectives.first) + ranks, len(members(machine)) if machine else gpus
        if provider != MPI and alone and needed > present:
            raise TooFewGpus(needed, present)
        world = join(timeout, mpi=provider == MPI, spawn=processes, arguments=[program, *called[1:]])
        world.timeout = max(timeout, SETUP_S) + _EXCHANGE_GRACE_S
        code = _in(world, options, wanted, machine)
    except WirespeedError as error:
        from ..reports.nccl_tests_view import Result, stopped
        from ..worlds.base import hostname

        live = options.format == FORMAT
        if isinstance(error, TooFewGpus):
            if live:
                _print(header_without_devices(wanted, ranks, machine))
            for line in error.lines:
                print(line, file=sys.stderr)
        if live and not isinstance(error, UsageError):
            print(visible(stopped(hostname(), os.getpid())), flush=True)
        if not isinstance(error, NotPossible):
            raise
        if not isinstance(error, TooFewGpus):
            print(error_line(f"wirespeed: error: {error}"), file=sys.stderr)
        return Result.NOT_IMPLEMENTED
    if provider == MPI and world.size == 1 and code == ExitCode.PASS:
        from ..worlds.launchers import mpirun

        start = mpirun(f"wirespeed {program} --mpi ...")
        print(f"wirespeed: note: one rank moves no data; start several ranks with {start}", file=sys.stderr)
    return code


def _in(world: World, options: argparse.Namespace, wanted: Asked, machine: Machine | None) -> int:
    """Run in a World, and leave it at the end."""
    from ..reports.nccl_tests_view import View, result_of

    lines = _Lines(wanted, options.format == FORMAT)
    files: list[Output] = []

    def measure() -> Document:
        if world.rank == 0:
            try:
                files.extend(reserve(options))
            except (StorageError, UsageError) as error:
                world.fail(str(error))
                raise
        return _measure(world, options, wanted, machine, lines)

    def show(judged: Judged) -> None:
        _finish(judged, options, lines, files)

    def code(judged: Judged) -> int:
        return result_of(View(judged.document))

    try:
        return lead(
            world if world.size > 1 else None, measure, show, code, broken=ExitCode.FAIL, broken_off=code
        )  # fmt: skip
    except OSError as error:  # the reader of the output has ended, or the disk is full
        sys.stdout = open(os.devnull, "w")  # noqa: SIM115, PTH123
        world.fail(f"{error}")
        if world.size > 1:
            world.leave(ExitCode.FAIL)
        raise


def _measure(
    world: World, options: argparse.Namespace, wanted: Asked, machine: Machine | None, lines: _Lines
) -> Document:  # fmt: skip
    """Run the collectives in all processes.

    Raises:
        UsageError: If the ranks have different options.
        NotPossible: If there are fewer GPUs than ranks, or none of the requested settings can run here.
    """
    from ..backends.collective_backend import CollectiveBackend
    from ..backends.provider import colors_of, group_of, settings, smallest
    from ..driver.jobs import SessionOptions
    from ..driver.session import Session
    from ..options import RunOptions
    from ..results.store import Saver
    from ..testcases.collectives import collective, names
    from ..worlds.base import agree_on

    agree_on(world, wanted.comparable())
    asked, provider = wanted.options, wanted.provider
    simulated = None
    if machine:
        from ..backends.simulated.backend import SimulatedProvider

        try:
            simulated = SimulatedProvider(
                machine, wanted.per_process, colors=colors_of(wanted.per_process), first=max(0, asked.first)
            )
        except MachineError as error:
            raise NotPossible(str(error)) from error
    group = simulated.group if simulated else group_of(world, wanted.per_process)
    # All groups run the same settings, with roots that also the smallest group has.
    fewest = simulated.smallest if simulated else wanted.per_process * smallest(world)
    root = None if asked.root == ALL_ROOTS else asked.root if wanted.operation.rooted else 0
    run = settings(wanted.operation, asked.types, asked.operators, root, fewest)
    if not wanted.operation.power_of_two and (reason := wanted.operation.why_not(group.ranks)):
        raise UsageError(reason)
    first = world.rank == 0
    machine = machine or (_here() if first else _elsewhere())
    least = _room(world, provider, machine, asked.checks)
    wanted = lines.wanted = _fitting(wanted, world.broadcast(least, "agreeing on the largest size"))
    room_for(wanted.operation, wanted.sizes[-1], group.ranks)
    make = _maker(wanted, simulated)
    backend = CollectiveBackend(provider, world, group, make, options=asked, virtual=simulated is not None)
    lines.backend = backend
    cases = []
    for name, setting in zip(names(run), run, strict=True):
        case = collective(
            setting, name, ranks=group.ranks, cpu_time=asked.cpu_time,
            lateness=world.size if asked.per_iteration and world.size > 1 else 0,
            judged=provider != MPI and len(world.hosts) == 1,
        )  # fmt: skip
        assert case.swept is not None
        cases.append(replace(case, pattern=case.swept(wanted.sizes)))
    listeners: list[Listener] = [lines] if first else []
    if first and options.output:
        listeners.insert(0, Saver(options.output, options.force))
    asked_for = SessionOptions(
        tuple(cases),
        RunOptions(
            samples=1, copies=asked.iterations, rounds=asked.cycles, verify=bool(asked.checks),
            timeout=asked.timeout or _NO_LIMIT_S,
        ),
        skip=asked.skip,
        command=" ".join(["wirespeed", asked.arguments[0].rpartition("/")[2], *asked.arguments[1:]]),
        described=wanted.described,
    )  # fmt: skip
    try:
        document = Session(machine, [backend], asked_for, listeners).run()
    finally:
        backend.close()
    refusals = [backend.refusal(setting) for setting in run]
    if all(refusals) and wanted.operation.why_not(group.ranks) is None:
        if first and document.ranks:
            lines.begin(document)
        raise NotPossible(f"{run[0]}: {refusals[0]}")
    return document


def _room(world: World, provider: str, machine: Machine, checks: int) -> int:
    """The largest size of which the buffers fit into memory, in bytes; 0 if it is not known.

    On GPUs by the rule of nccl-tests, which keeps a part of the memory, and verifies with a third buffer.
    """
    if provider == MPI:
        from ..backends.mpi.provider import largest_buffer

        sizes: list[int] = world.allgather(largest_buffer(world), "agreeing on the largest size")
        return min(sizes)
    memory = min((gpu.memory_bytes for gpu in machine.gpus), default=0)
    reserved = min(-(-memory // _RESERVING) * GIB, _MOST_RESERVED)
    return max(0, (memory - reserved - GIB) // (3 if checks else 2))


def _fitting(wanted: Asked, most: int) -> Asked:
    """A run without the sizes of more than ``most`` bytes; if all are, with this size."""
    if wanted.sizes[-1] <= most or most <= 0:
        return wanted
    fitting = tuple(size for size in wanted.sizes if size <= most) or (most,)
    return replace(wanted, sizes=fitting, reduced_to=most)


class _Lines(Listener):
    """Listener that prints the header when the devices are known, and each result when it is measured."""

    def __init__(self, wanted: Asked, live: bool) -> None:
        self.wanted, self.live = wanted, live
        #: What measures; its ranks are known before they are connected.
        self.backend: Backend | None = None
        self._document: Document | None = None
        self._begun = self._headed = False
        #: Whether a line has its first result.
        self._open = False
        self._view: View | None = None
        self._halves: dict[int, dict[str, Cell]] = {}
        self._case = -1
        self._held: list[Row] = []

    def run_started(self, document: Document, testcases: Sequence[Testcase]) -> None:
        self._document = document

    def testcase_started(self, case: Testcase, measurements: int) -> None:
        self._case += 1
        self._view = None

    def measuring(self, case: Testcase, done: int, stage: str) -> None:
        """Print the header while the ranks connect, which may take long."""
        if not self.live or self._begun or self.backend is None or self._document is None:
            return
        details = self.backend.describe()
        if details.ranks:
            from msgspec.structs import replace

            options = {**self._document.options, **details.options}
            libraries = self.backend.libraries()
            self.begin(replace(self._document, ranks=details.ranks, options=options, libraries=libraries))

    def measured(self, case: Testcase, cells: Sequence[Filled], known: Callable[[], Document]) -> None:
        """Print the first part of a line, and the rest when its size is measured in place too."""
        from ..reports import nccl_tests, nccl_tests_view

        first = cells[0][1]
        j, in_place, stamp = first.column, first.row == 1, ""
        self._halves[first.row] = dict(cells)
        if in_place and self.wanted.timestamps is not None:
            stamp = time.strftime("%Y-%m-%d %H:%M:%S")
            self.wanted.timestamps[self._case * len(self.wanted.sizes) + j :] = [stamp]
        if not self.live:
            return
        if self._view is None:
            self._view = nccl_tests_view.View(known())
        info, options = self._view.document.testcases[-1].collective, self._view.given
        assert info is not None
        if not in_place:
            self._halves.pop(1, None)
        halves = [[self._halves.get(place, {}).get(key) for key in nccl_tests_view.KEYS] for place in (0, 1)]
        row = nccl_tests_view.row_of(case.name, info, self.wanted.sizes[j], halves, options, stamp)
        if self._open:
            self._open = False
            _print(nccl_tests.closing(row, options))
        elif row.halves[0]:
            self.head(self._view)
            self._open = True
            _print(nccl_tests.opening(row, options))
        elif in_place:
            self._held.append(row)
            if self._headed:
                self.head(self._view)

    def begin(self, document: Document) -> None:
        """Print the options and the devices, once."""
        from ..reports import nccl_tests
        from ..reports.nccl_tests_view import View

        if self.live and not self._begun:
            self._begun = True
            _print(nccl_tests.header(View(document)))

    def head(self, view: View) -> None:
        """Print the headings, once, and the waiting lines; they wait because all settings may be refused."""
        from ..reports import nccl_tests

        self.begin(view.document)
        if not self._headed:
            self._headed = True
            _print(nccl_tests.heads(view.given))
        if self._held or view.is_skipped:
            _print(nccl_tests.lines(view, self._held))
        self._held.clear()

    def end(self, document: Document) -> None:
        """Print what is left, and the lines after the last size."""
        from ..reports.nccl_tests_view import View, footer

        view = View(document)
        if self._open:
            _print("\n")
        self.head(view)
        _print(footer(view))


def _print(text: str) -> None:
    print(visible(text), end="", flush=True)


def _finish(judged: Judged, options: argparse.Namespace, lines: _Lines, files: Sequence[Output]) -> None:
    """Write the JSON, and print the remaining lines or the requested format."""
    from ..driver.session import BY_USER
    from ..reports import Style, nccl_tests_json, render

    document, style = judged.document, Style(columns(), colored(), False)
    try:
        for file in files:
            announced = file.path
            file.write(nccl_tests_json.render(judged, style).encode())
            if file.path != announced:  # another process has taken the name
                announce(file, options)
    finally:
        if options.format != FORMAT:
            print(render(judged, options.format, style), end="", flush=True)
        else:
            lines.end(document)
    if document.interrupted and document.interrupted != BY_USER:
        print(error_line(f"wirespeed: error: {document.interrupted}"), file=sys.stderr, flush=True)


def _maker(wanted: Asked, simulated: Provider | None) -> Make:
    """The function that creates the provider; the thread that measures calls it."""
    if simulated is not None:
        return lambda world, group: simulated
    o = wanted.options

    def make(world: World, group: Group) -> Provider:
        if wanted.provider == MPI:
            from ..backends.mpi.provider import MpiProvider

            return MpiProvider(world, group, o.unalign)
        from ..backends.nccl.provider import NcclProvider

        how = o
        if wanted.per_process < o.threads * o.gpus:  # a process in place of each GPU
            how = replace(o, threads=1, gpus=1, first=o.first + (world.local_rank if o.first >= 0 else 0))
        return NcclProvider(world, group, how)

    return make


def _simulated(options: argparse.Namespace) -> Machine | None:
    """The simulated machine of ``--machine``; None if the option is not given.

    Raises:
        UsageError: If it is not simulated: the launcher places real ranks.
    """
    if options.machine is None:
        return None
    from ..backends import SIMULATED, describe

    if not options.machine.startswith(SIMULATED):
        raise UsageError(f"--machine must be {SIMULATED}NAME here; the launcher places real ranks")
    return describe(options.machine)


def _gpus() -> int:
    """The number of GPUs that this process may use.

    Raises:
        UsageError: If an NVIDIA driver is loaded but the packages that use it are missing.
    """
    from importlib.util import find_spec

    if not any(Path(sign).exists() for sign in ("/proc/driver/nvidia/version", "/dev/nvidiactl", "/dev/dxg")):
        return 0
    if not all(find_spec(package) for package in ("cuda", "nccl")) or not find_spec("cuda.bindings"):
        raise UsageError(
            "an NVIDIA driver is loaded, but cuda-bindings or nccl4py is missing: "
            "pip install 'wirespeed[cuda]', or pass --mpi to measure host memory"
        )
    from ..backends.nccl.provider import count_gpus

    return count_gpus()


def _here() -> Machine:
    from ..backends import discover

    return discover()


def _elsewhere() -> Machine:
    """An empty Machine, for ranks that make no Document."""
    from ..hardware.topology import Machine

    return Machine("")
