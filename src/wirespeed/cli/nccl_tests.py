"""``wirespeed all_reduce_perf`` and its siblings, with the command lines of nccl-tests."""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING

from ..collectives.options import ALL_ROOTS, MPI, NCCL, SIMULATED
from ..driver.listener import Filled, Listener
from ..errors import StorageError, UsageError
from ..exit_codes import ExitCode
from ..terminal import colored, columns, visible
from ..units import GIB
from .common import check_format, texts_aside
from .job import lead
from .nccl_tests_options import (
    AUTO,
    FORMAT,
    Asked,
    check_kernels,
    chosen,
    given,
    parsed,
    parser,
    refuse,
    room_for,
    sizes,
)

if TYPE_CHECKING:
    from ..backends.collective_backend import Make
    from ..backends.provider import Group, Provider
    from ..document import CollectiveInfo, Document
    from ..reports.nccl_tests import Given, Row
    from ..results.output import Output
    from ..tables import Cell
    from ..testcases import Testcase
    from ..topology import Machine
    from ..worlds.base import World

#: Time-out that stands for no limit, in s.
_NO_LIMIT_S = 1e9
#: Time that an exchange may take beyond the time-out of a stage, in s, so that the error names the stage.
_EXCHANGE_GRACE_S = 10.0
#: The largest size that fits is a multiple of this number of bytes, which all types and alignments divide.
_ALIGNED = 2**20


def main(program: str, argv: Sequence[str]) -> int:
    """Run a command of nccl-tests and return its exit code."""
    arguments = parser(program)
    options = parsed(arguments, argv)
    check_format(options.format)
    machine = _simulated(options)
    provider = SIMULATED if machine else MPI if options.mpi or not _gpus() else NCCL
    called = [program, *argv]
    try:
        collectives = given(program, options, called)
        refuse(collectives, options, provider)
        check_kernels(program, collectives)
        operation = chosen(collectives)
    except UsageError as error:
        arguments.error(str(error))
    from ..backends.collective_backend import SETUP_S
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
    world = join(timeout, mpi=provider == MPI, spawn=processes, arguments=called)
    world.timeout = max(timeout, SETUP_S) + _EXCHANGE_GRACE_S
    with texts_aside(options.output):
        code = _in(world, options, wanted, machine)
    if provider == MPI and world.size == 1 and code == ExitCode.PASS:
        from ..worlds.mpirun import mpirun

        start = mpirun(f"wirespeed {program} --mpi ...")
        print(f"wirespeed: note: one rank moves no data; start several ranks with {start}", file=sys.stderr)
    return code


def _in(world: World, options: argparse.Namespace, wanted: Asked, machine: Machine | None) -> int:
    """Run in a World, and leave it at the end."""
    from ..reports.nccl_tests import View

    lines = _Lines(wanted, options.format == FORMAT)
    files: list[Output] = []

    def measure() -> Document:
        if world.rank == 0:
            try:
                files.extend(_reserve(options))
            except (StorageError, UsageError) as error:
                world.fail(str(error))
                raise
        return _measure(world, options, wanted, machine, lines)

    def show(document: Document) -> None:
        _finish(document, options, lines, files)

    def code(document: Document) -> int:
        view = View(document)
        is_good = document.good and view.average is not None and view.fast_enough is not False
        return ExitCode.PASS if is_good else ExitCode.FAIL

    try:
        return lead(world if world.size > 1 else None, measure, show, code, broken=ExitCode.FAIL)
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

    Raises
    ------
    UsageError
        If the ranks have different options, or none of the requested settings can run here.
    """
    from ..backends.collective_backend import CollectiveBackend
    from ..backends.rank_groups import colors_of, group_of, settings, smallest
    from ..driver.session import Session
    from ..driver.session_options import SessionOptions
    from ..options import RunOptions
    from ..results.store import Saver
    from ..testcases.collectives import collective, names
    from ..worlds.agreement import agree_on

    agree_on(world, wanted.comparable())
    simulated = None
    if machine:
        from ..backends.simulated.simulated_collectives import SimulatedProvider

        simulated = SimulatedProvider(machine, wanted.per_process, colors=colors_of(wanted.per_process))
    group = simulated.group if simulated else group_of(world, wanted.per_process)
    # All groups run the same settings, with roots that also the smallest group has.
    fewest = simulated.smallest if simulated else wanted.per_process * smallest(world)
    asked, provider = wanted.options, wanted.provider
    root = None if asked.root == ALL_ROOTS else asked.root if wanted.operation.rooted else 0
    run = settings(wanted.operation, asked.types, asked.operators, root, fewest)
    if reason := wanted.operation.why_not(group.ranks):
        raise UsageError(reason)
    first = world.rank == 0
    machine = machine or (_here() if first else _elsewhere())
    if provider != MPI:
        least = min((gpu.memory_bytes for gpu in machine.gpus), default=0)
        wanted = lines.wanted = _fitting(wanted, world.broadcast(least, "agreeing on the largest size"))
    room_for(wanted.operation, wanted.sizes[-1], group.ranks)
    make = _maker(wanted, simulated)
    backend = CollectiveBackend(provider, world, group, make, options=asked, virtual=simulated is not None)
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
        command=" ".join(["wirespeed", *asked.arguments]),
        described=wanted.described,
    )  # fmt: skip
    try:
        document = Session(machine, [backend], asked_for, listeners).run()
    finally:
        backend.close()
    refusals = [backend.refusal(setting) for setting in run]
    if all(refusals):
        raise UsageError(f"{run[0]}: {refusals[0]}")
    return document


def _fitting(wanted: Asked, memory: int) -> Asked:
    """A run without the sizes that do not fit the memory of a GPU, in bytes, by nccl-tests' rule.

    If none fits, it has the largest that does.
    """
    most = (memory - GIB) // (3 if wanted.options.checks else 2) // _ALIGNED * _ALIGNED
    if wanted.sizes[-1] <= most or most <= 0:
        return wanted
    fitting = tuple(size for size in wanted.sizes if size <= most) or (most,)
    return replace(wanted, sizes=fitting, reduced_to=most)


class _Lines(Listener):
    """Listener that prints each line when its size has been measured."""

    def __init__(self, wanted: Asked, live: bool) -> None:
        self.wanted, self.live = wanted, live
        self.begun = False
        self._given: Given | None = None
        self._halves: dict[int, dict[str, Cell]] = {}
        self._case = -1
        self._info: CollectiveInfo | None = None
        self._held: list[Row] = []

    def testcase_started(self, case: Testcase, measurements: int) -> None:
        self._case += 1
        self._info = None

    def measured(self, case: Testcase, cells: Sequence[Filled], known: Callable[[], Document]) -> None:
        """Print the header before the first line, and a line when both halves of a size are measured."""
        from ..reports import nccl_tests

        first = cells[0][1]
        self._halves[first.row] = dict(cells)
        if first.row == 0:
            return
        j, stamp = first.column, ""
        if self.wanted.timestamps is not None:
            stamp = time.strftime("%Y-%m-%d %H:%M:%S")
            self.wanted.timestamps[self._case * len(self.wanted.sizes) + j :] = [stamp]
        if not self.live:
            return
        if self._info is None or self._given is None:
            document = known()
            self._info, self._given = document.testcases[-1].collective, nccl_tests.View(document).given
        assert self._info is not None
        halves = [[self._halves[place][key] for key in nccl_tests.KEYS] for place in (0, 1)]
        size = self.wanted.sizes[j]
        self._held.append(nccl_tests.row_of(case.name, self._info, size, halves, self._given, stamp))
        if any(row.halves[0] for row in self._held):
            self.print(known)

    def print(self, known: Callable[[], Document]) -> None:
        """Print the waiting lines. Lines wait until one has a value, because all settings may be refused."""
        from ..reports import nccl_tests

        if not self.begun:
            self.begun = True
            print(visible(nccl_tests.header(nccl_tests.View(known()))), end="", flush=True)
        for row in self._held:
            assert self._given is not None
            print(visible(nccl_tests.line(row, self._given)), end="", flush=True)
        self._held.clear()


def _finish(document: Document, options: argparse.Namespace, lines: _Lines, files: Sequence[Output]) -> None:
    """Write the JSON, and print the remaining lines or the requested format."""
    from ..driver.session import BY_USER
    from ..reports import Style, nccl_tests, nccl_tests_json, render

    style = Style(columns(), colored(), False)
    try:
        for file in files:
            announced = file.path
            file.write(nccl_tests_json.render(document, style).encode())
            if file.path != announced:  # another process has taken the name
                _announce(file, options)
    finally:
        if options.format != FORMAT:
            print(render(document, options.format, style), end="", flush=True)
        elif document.testcases:
            lines.print(lambda: document)
            print(visible(nccl_tests.footer(nccl_tests.View(document))), end="", flush=True)
    if document.interrupted and document.interrupted != BY_USER:
        print(visible(f"wirespeed: error: {document.interrupted}"), file=sys.stderr, flush=True)


def _maker(wanted: Asked, simulated: Provider | None) -> Make:
    """The function that creates the provider; the thread that measures calls it."""
    if simulated is not None:
        return lambda world, group: simulated
    o = wanted.options

    def make(world: World, group: Group) -> Provider:
        if wanted.provider == MPI:
            from ..backends.mpi.provider import MpiProvider

            return MpiProvider(world, group, o.unalign)
        from ..backends.nccl.nccl_options import NcclOptions
        from ..backends.nccl.provider import NcclProvider

        threads, gpus = (o.threads, o.gpus) if wanted.per_process > 1 else (1, 1)
        how = NcclOptions(
            threads, gpus, o.first, o.unalign, o.registration, o.policy, o.null_stream, o.parallel_init,
            p2p_peers=2 if wanted.operation.name == "sendrecv" else 0,
            implementation=o.device_implementation, blocks=o.device_blocks,
        )  # fmt: skip
        return NcclProvider(world, group, how)

    return make


def _simulated(options: argparse.Namespace) -> Machine | None:
    """The simulated machine of ``--machine``; None if the option is not given.

    Raises
    ------
    UsageError
        If it is not simulated: the launcher places real ranks.
    """
    if options.machine is None:
        return None
    from ..backends import SIMULATED, describe

    if not options.machine.startswith(SIMULATED):
        raise UsageError(f"--machine must be {SIMULATED}NAME here; the launcher places real ranks")
    return describe(options.machine)


def _gpus() -> int:
    """The number of GPUs that this process may use.

    Raises
    ------
    UsageError
        If an NVIDIA driver is loaded but the packages that use it are missing.
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
    from ..topology import Machine

    return Machine("")


def _reserve(options: argparse.Namespace) -> list[Output]:
    """Check, before anything is measured, that the files can be written; return that of the JSON.

    Like nccl-tests, an existing file is not replaced: ``.0``, ``.1``... is appended to the name.

    Raises
    ------
    UsageError
        If the file of the Document exists.
    StorageError
        If a file cannot be written.
    """
    from ..results.output import Output

    if options.output:
        options.output.check(options.force)
    path: Path | None = options.output_file
    if path is None:
        return []
    file = Output(path, names=(path.with_name(f"{path.name}.{i}") for i in count()))
    file.check()
    _announce(file, options)
    return [file]


def _announce(file: Output, options: argparse.Namespace) -> None:
    if options.format == FORMAT:
        print(visible(f"# Writing JSON output to {file.path}"), flush=True)
