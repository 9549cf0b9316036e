"""``wirespeed all_reduce_perf`` and its siblings, with the command lines of nccl-tests."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from ...backends import SIMULATED as SIMULATED_MACHINE
from ...backends import describe, discover
from ...backends.nccl import usable_gpus
from ...backends.provider import Group, Provider
from ...backends.rank_groups import colors_of, group_of, largest_of_gpus, settings, smallest
from ...cli.commands import called_as
from ...cli.measuring import lead
from ...cli.option_values import check_format
from ...cli.run_files import texts_aside
from ...collectives.options import ALL_ROOTS, MPI, NCCL, SIMULATED
from ...errors import ExitCode, MachineError, StorageError, UsageError, WirespeedError
from ...hardware.topology import Machine
from ...judging.judged import Judged
from ...options import RunOptions
from ...run_errors import RunInterrupted
from ...terminal import colored, columns, error_line, visible
from ...worlds.base import World, hostname
from ...worlds.crew import agree_on
from . import options as request
from .not_possible import NoGpu, NotPossible, Request, TooFewGpus, document_before, header_without_devices
from .options import parser

if TYPE_CHECKING:
    from ...backends.collective_backend import Make
    from ...cli.parser import Parser
    from ...document import Document
    from ...driver.listener import Listener
    from .json_file import JsonFile
    from .text import PrintedLines

#: Time-out that stands for no limit, in s.
_NO_LIMIT_S = 1e9
#: Time that an exchange may take beyond the time-out of a stage, in s, so that the error names the stage.
_EXCHANGE_GRACE_S = 10.0


def main(name: str, argv: Sequence[str]) -> int:
    """Run a command of nccl-tests, called by this name, and return its exit code."""
    program = called_as(name.rpartition("/")[2]) or name
    arguments = parser(program)
    options = request.parsed(arguments, program, argv)
    check_format(options.format)
    with texts_aside(options.output):
        return _run(program, [name, *argv], arguments, options)


def _run(program: str, called: Sequence[str], arguments: Parser, options: argparse.Namespace) -> int:
    """Join the job and run; say on standard output that a run failed, as nccl-tests says it."""
    machine = None
    if options.machine is not None:
        if not options.machine.startswith(SIMULATED_MACHINE):
            real = "the launcher places real ranks"
            raise UsageError(f"--machine must be {SIMULATED_MACHINE}NAME here; {real}")
        machine = describe(options.machine)
    gpus = 0 if machine or options.mpi else usable_gpus()
    provider = SIMULATED if machine else MPI if options.mpi else NCCL
    try:
        collectives = request.given(program, options, called)
        request.refuse(collectives, options, provider)
        request.check_kernels(program, collectives)
        operation = request.chosen(collectives)
    except UsageError as error:
        arguments.error(str(error))
    from ...backends.collective_backend import SETUP_S
    from ...testcases.collectives import members
    from ...worlds.launchers import STARTED, join, launched, leads
    from .closing import stopped
    from .json_file import JsonFile

    ranks, alone, processes = collectives.threads * collectives.gpus, not launched(), 1
    if machine and not alone:
        raise UsageError("a simulated machine runs all ranks in one process: start it without a launcher")
    by_process = options.launch == "processes" or (options.launch == request.AUTO and options.threads is None)
    if provider == NCCL and alone and by_process:
        processes = ranks
    per_process = 1 if processes > 1 or STARTED in os.environ else ranks
    timeout = collectives.timeout or _NO_LIMIT_S
    stamps: list[str] | None = [] if collectives.stamped else None
    wanted = Request(collectives, operation, provider, per_process, request.sizes(collectives), stamps)
    before, file = document_before(wanted, ranks, machine), None
    try:
        if alone and options.output:
            options.output.check(options.force)
        if leads():
            file = JsonFile.of(options, before)
        if provider == NCCL and not gpus:
            raise NoGpu
        needed, present = max(0, collectives.first) + ranks, len(members(machine)) if machine else gpus
        if provider != MPI and alone and needed > present:
            raise TooFewGpus(needed, present)
        world = join(timeout, mpi=provider == MPI, processes=processes, arguments=[program, *called[1:]])
        world.timeout = max(timeout, SETUP_S) + _EXCHANGE_GRACE_S
        code = _in(world, options, wanted, machine, file)
    except WirespeedError as error:
        if file:
            file.fail(str(error))
        if not isinstance(error, NotPossible):
            if not isinstance(error, UsageError):
                _say(stopped(hostname(), os.getpid()), options)
            raise
        header = header_without_devices(before) if error.is_early and leads() else ""
        _say(f"{header}{error.line}{stopped(hostname(), os.getpid())}", options)
        print(error.text, file=sys.stderr)
        return error.code
    except RunInterrupted:  # it was shown
        raise
    except KeyboardInterrupt:
        _say(stopped(hostname(), os.getpid()), options)
        raise
    if provider == MPI and world.size == 1 and code == ExitCode.PASS:
        from ...worlds.launchers import mpirun

        start = mpirun(f"wirespeed {program} --mpi ...")
        print(f"wirespeed: note: one rank moves no data; start several ranks with {start}", file=sys.stderr)
    return code


def _say(text: str, options: argparse.Namespace) -> None:
    if options.format == request.FORMAT:
        print(visible(text), flush=True)


def _in(
    world: World, options: argparse.Namespace, wanted: Request, machine: Machine | None, file: JsonFile | None
) -> int:
    """Run in a World, and leave it at the end."""
    from .closing import result_of, stopped
    from .text import PrintedLines
    from .view import View

    lines = PrintedLines(wanted.sizes, wanted.timestamps, options.format == request.FORMAT)

    def measure() -> Document:
        if world.rank == 0 and options.output:
            try:
                options.output.check(options.force)
            except (StorageError, UsageError) as error:
                world.fail(str(error))
                raise
        return _measure(world, options, wanted, machine, lines, file)

    def show(judged: Judged) -> None:
        _finish(judged, options, lines, file)

    def code(judged: Judged) -> int:
        return result_of(View(judged.document))

    try:
        return lead(
            world if world.size > 1 else None, measure, show, code, broken=ExitCode.FAIL, broken_off=code,
            ending=stopped(hostname(), os.getpid()) if options.format == request.FORMAT else "",
        )  # fmt: skip
    except OSError as error:  # the reader of the output has ended, or the disk is full
        sys.stdout = open(os.devnull, "w")  # noqa: SIM115, PTH123
        world.fail(f"{error}")
        if world.size > 1:
            world.leave(ExitCode.FAIL)
        raise


def _measure(
    world: World, options: argparse.Namespace, wanted: Request, machine: Machine | None, lines: PrintedLines,
    file: JsonFile | None,
) -> Document:  # fmt: skip
    """Run the collectives in all processes.

    Raises:
        UsageError: If the ranks have different options.
        NotPossible: If there are fewer GPUs than ranks, or none of the requested settings can run here.
    """
    from ...backends.collective_backend import CollectiveBackend
    from ...driver.jobs import begun
    from ...driver.session import Session
    from ...results.store import Saver
    from ...testcases.collectives import collective, names
    from ...testcases.sweep import sweep

    agree_on(world, wanted.comparable())
    asked, provider = wanted.options, wanted.provider
    simulated = None
    if machine:
        from ...backends.simulated.collectives import SimulatedProvider

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
    machine = machine or (discover() if first else Machine(""))  # other ranks make no Document
    if provider == MPI:
        from ...backends.mpi.provider import largest_buffer

        most = min(world.allgather(largest_buffer(world), "agreeing on the largest size"))
    else:  # nccl-tests verifies with a third buffer
        most = largest_of_gpus(machine.gpus, 3 if asked.checks else 2)
    wanted = wanted.fitting(world.broadcast(most, "agreeing on the largest size"))
    lines.sizes = wanted.sizes
    request.room_for(wanted.operation, wanted.sizes[-1], group.ranks)
    make = _maker(wanted, simulated)
    backend = CollectiveBackend(provider, world, group, make, options=asked, virtual=simulated is not None)
    lines.backend = backend
    cases = tuple(
        sweep(
            collective(
                setting, name, ranks=group.ranks, cpu_time=asked.cpu_time,
                lateness=world.size if asked.per_iteration and world.size > 1 else 0,
                among=None if provider != MPI and len(world.hosts) == 1 else (),
            ),
            wanted.sizes,
        )
        for name, setting in zip(names(run), run, strict=True)
    )  # fmt: skip
    listeners: list[Listener] = [lines] if first else []
    if file:
        listeners.append(file)
    if first and options.output:
        listeners.insert(0, Saver(options.output, options.force))
    how = RunOptions(
        samples=1, copies=asked.iterations, rounds=asked.cycles, verify=bool(asked.checks),
        timeout=asked.timeout or _NO_LIMIT_S,
    )  # fmt: skip
    command = " ".join(["wirespeed", asked.arguments[0].rpartition("/")[2], *asked.arguments[1:]])
    document = begun(machine, cases, how, command=command, described=wanted.described)
    try:
        document = Session(document, [backend], cases, how, listeners, skip=asked.skip).run()
    finally:
        backend.close()
    refusals = [backend.refusal(setting) for setting in run]
    if all(refusals) and wanted.operation.why_not(group.ranks) is None:
        if first and document.ranks:
            lines.begin(document)
        raise NotPossible(f"{run[0]}: {refusals[0]}")
    return document


def _finish(judged: Judged, options: argparse.Namespace, lines: PrintedLines, file: JsonFile | None) -> None:
    """Write the JSON, and print the remaining lines or the requested format."""
    from ...driver.session import BY_USER
    from ...reports import Style, render

    document, style = judged.document, Style(columns(), colored(), False)
    try:
        if file:
            file.end(document)
    finally:
        if options.format != request.FORMAT:
            print(render(judged, options.format, style), end="", flush=True)
        else:
            lines.end(document)
    if document.interrupted and document.interrupted != BY_USER:
        print(error_line(f"wirespeed: error: {document.interrupted}"), file=sys.stderr, flush=True)


def _maker(wanted: Request, simulated: Provider | None) -> Make:
    """The function that creates the provider; the thread that measures calls it."""
    if simulated is not None:
        return lambda world, group: simulated
    o = wanted.options

    def make(world: World, group: Group) -> Provider:
        if wanted.provider == MPI:
            from ...backends.mpi.provider import MpiProvider

            return MpiProvider(world, group, o.unalign)
        from ...backends.nccl.provider import NcclProvider

        how = o
        if wanted.per_process < o.threads * o.gpus:  # a process in place of each GPU
            how = replace(o, threads=1, gpus=1, first=o.first + (world.local_rank if o.first >= 0 else 0))
        return NcclProvider(world, group, how)

    return make
