"""``wirespeed all_reduce_perf`` and its siblings: nccl-tests' command lines."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from ..errors import UsageError, WirespeedError
from ..terminal import colored, columns
from .common import FAILED, INTERRUPTED, OK, WRONG_USE, check_format, texts_aside
from .nccl_tests_options import FORMAT, MPI, NCCL, SIMULATED, SUFFIX, check, refuse, request
from .nccl_tests_options import parser as make_parser

if TYPE_CHECKING:
    from ..collectives.base import Group, Provider
    from ..collectives.job import Job, Request
    from ..topology import Machine
    from ..worlds.base import World

_FOREVER = 1e9


def main(program: str, argv: Sequence[str]) -> int:
    """Run a program of nccl-tests and return the exit code."""
    from ..collectives.job import minimum
    from ..collectives.operations import OPERATIONS

    parser = make_parser(program)
    options = parser.parse_args(argv)
    check_format(options.format)
    operation = OPERATIONS[program.removesuffix(SUFFIX)]
    machine = _simulated(options)
    provider = SIMULATED if machine else MPI if options.mpi or not _gpus() else NCCL
    try:
        check(options, operation)
        refuse(options, parser, provider)
        minimum()
    except UsageError as error:
        parser.error(str(error))
    from ..worlds import join, launched
    from ..worlds.local import STARTED

    threads, gpus, alone, processes = options.nthreads or 1, options.ngpus, not launched(), 1
    if machine and not alone:
        raise UsageError("a simulated machine has all ranks in one process: start it without a launcher")
    by_process = options.launch == "processes" or (options.launch == "auto" and options.nthreads is None)
    if provider == NCCL and alone and by_process:
        processes = threads * gpus
    each = 1 if processes > 1 or STARTED in os.environ else threads * gpus
    world = join(
        options.timeout or _FOREVER, mpi=provider == MPI, spawn=processes, arguments=[program, *argv]
    )
    with texts_aside(options.output):
        return _in(world, options, program, argv, provider, machine, each, threads, gpus)


def _in(
    world: World, options: argparse.Namespace, program: str, argv: Sequence[str], provider: str,
    machine: Machine | None, each: int, threads: int, gpus: int,
) -> int:  # fmt: skip
    """Run in a World, and leave it."""
    from ..collectives.job import Job
    from ..worlds.base import WorldError
    from ..worlds.mpirun import mpirun

    first = world.rank == 0
    output, show = None, _Show(options)
    job: Job | None = None
    try:
        asked = request(options, program, provider, each, threads, gpus)
        if first:
            output = _reserve(options)
        machine = machine or (_here() if first else _elsewhere())
        job = Job(asked, world, machine, _maker(asked, machine), show, [program, *argv])
        job.run()
    except (WirespeedError, KeyboardInterrupt) as error:
        if first and job is not None:
            _finish(job, show, output)
        if first or (world.rank == 1 and world.leaderless):
            print(f"wirespeed: error: {str(error) or 'interrupted'}", file=sys.stderr, flush=True)
        code = INTERRUPTED if isinstance(error, KeyboardInterrupt) else FAILED
        if isinstance(error, (UsageError, WorldError)):  # all ranks find the same, and end in order
            world.close()
            return WRONG_USE if isinstance(error, UsageError) else FAILED
        world.fail(str(error) or "interrupted")
        if world.size > 1 or (job is not None and job.stuck):
            world.leave(code)
        return code
    except OSError as error:  # the reader of the output has gone, or there is no room for it
        sys.stdout = open(os.devnull, "w")  # noqa: SIM115, PTH123
        if first and job is not None:
            _finish(job, show, output)
        world.fail(f"{error}")
        if world.size > 1:
            world.leave(FAILED)
        raise
    good = _finish(job, show, output) if first else True
    if provider == MPI and world.size == 1:
        start = mpirun(f"wirespeed {program} --mpi ...")
        print(f"wirespeed: note: one rank moves no data; start several with {start}", file=sys.stderr)
    world.close()
    return OK if good else FAILED


class _Show:
    """Prints every line as soon as it is known, and saves the Document."""

    def __init__(self, options: argparse.Namespace) -> None:
        from ..results.store import Draft

        self.options = options
        self.live = options.format == FORMAT
        self.begun = False
        self.draft = Draft(options.output)

    def __call__(self, job: Job, i: int, j: int) -> None:
        """Print the header before the first line; a line for each size."""
        from ..reports import nccl_tests

        if j >= 0:
            self.draft.save(job.document)
        if not self.live:
            return
        view = nccl_tests.View(job.document((i, max(j, 0))))
        if not self.begun:
            self.begun = True
            print(nccl_tests.header(view), end="", flush=True)
        for _, rows in view.rows if j >= 0 else ():
            print(nccl_tests.line(rows[0], view.given), end="", flush=True)


def _finish(job: Job, show: _Show, output: Path | None) -> bool:
    """Print and write what remains; return whether all is well."""
    from ..reports import Style, nccl_tests, nccl_tests_json, render
    from ..results.store import write

    options = show.options
    document = job.document()
    view = nccl_tests.View(document)
    style = Style(columns(), colored(), False)
    show.draft.last(document)  # first what is kept: a launcher that ends the job does not wait long
    try:
        if output:
            write(output, nccl_tests_json.render(document, style).encode())
    finally:
        if options.format != FORMAT:
            print(render(document, options.format, style), end="", flush=True)
        elif show.begun:
            print(nccl_tests.footer(view), end="", flush=True)
    return document.good and view.fast_enough is not False


def _maker(request: Request, machine: Machine) -> Callable[[World, Group], Provider]:
    """Return what makes the provider, in the thread that measures."""

    def make(world: World, group: Group) -> Provider:
        if request.provider == SIMULATED:
            from ..collectives.simulated import SimulatedProvider

            return SimulatedProvider(machine, request.each)
        if request.provider == MPI:
            from ..collectives.mpi import MpiProvider

            return MpiProvider(world, group, request.unalign)
        from ..collectives.nccl.provider import NcclOptions, NcclProvider

        threads, gpus = (request.threads, request.gpus) if request.each > 1 else (1, 1)
        given = request.provided
        options = NcclOptions(
            threads, gpus, given["first"], request.unalign, given["registration"], given["policy"],
            bool(given["null_stream"]), request.parallel_init,
        )  # fmt: skip
        return NcclProvider(world, group, options)

    return make


def _simulated(options: argparse.Namespace) -> Machine | None:
    """Return the machine that was asked for.

    Raises
    ------
    UsageError
        If it is not a simulated one: where ranks run is for the launcher to say.
    """
    if options.machine is None:
        return None
    from ..backends import SIMULATED, describe

    if not options.machine.startswith(SIMULATED):
        raise UsageError(f"--machine takes {SIMULATED}NAME here; real ranks are placed by their launcher")
    return describe(options.machine)


def _gpus() -> int:
    """How many GPUs this process may use.

    Raises
    ------
    UsageError
        If there are some, and the packages to use them are missing.
    """
    from importlib.util import find_spec

    if not any(Path(sign).exists() for sign in ("/proc/driver/nvidia/version", "/dev/nvidiactl", "/dev/dxg")):
        return 0
    if not all(find_spec(package) for package in ("cuda", "nccl")) or not find_spec("cuda.bindings"):
        raise UsageError(
            "an NVIDIA driver is loaded, but cuda-bindings or nccl4py is missing: "
            "pip install 'wirespeed[cuda]', or give --mpi to measure host memory"
        )
    from ..collectives.nccl.provider import count_gpus

    return count_gpus()


def _here() -> Machine:
    from ..backends import discover

    return discover()


def _elsewhere() -> Machine:
    """What ranks that make no Document know of their machine."""
    from ..topology import Machine

    return Machine("")


def _reserve(options: argparse.Namespace) -> Path | None:
    """Find out that the files can be written, before anything is measured; return where JSON goes.

    As with nccl-tests, a file that is there is left alone: ``.0``, ``.1``... is put behind the name.

    Raises
    ------
    StorageError
        If one cannot be written.
    """
    from ..errors import StorageError
    from ..results.store import check_writable

    if options.output:
        check_writable(options.output)
    wanted: Path | None = options.output_file
    if wanted is None:
        return None
    for name in (wanted, *(wanted.with_name(f"{wanted.name}.{i}") for i in range(1000))):
        try:
            name.touch(exist_ok=False)
        except FileExistsError:
            continue
        except OSError as error:
            raise StorageError(f"cannot write {name}: {error.strerror}; choose another file") from error
        if options.format == FORMAT:
            print(f"# Writing JSON output to {name}", flush=True)
        return name
    raise StorageError(
        f"cannot write {wanted}: it exists, and so do a thousand numbered ones; choose another file"
    )
