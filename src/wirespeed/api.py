"""Run testcases and return a Document: the entry point of Python callers and of all commands."""

from __future__ import annotations

import os
import platform
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from msgspec.structs import replace as replace_fields

from . import backends as _backends
from .backends.base import Backend
from .document import DEVICES, REQUESTED, Document
from .driver.jobs import begun, blank, gather_facts, gather_machine, gather_observed
from .errors import MachineError, NotIdle, UsageError
from .features import offered
from .files import refusal
from .hardware.topology import Machine
from .measurement import Unit
from .model import Engine, Operation
from .options import RunOptions, agreed, changed, includes, takes_options
from .run_errors import SIGNALLED, RunInterrupted
from .testcases.sweep import sweep
from .testcases.table import Testcase, find, select

if TYPE_CHECKING:
    from .driver.listener import Listener
    from .hardware.facts import Fact
    from .results.output import Output
    from .worlds.base import World

T = TypeVar("T")

#: Time beyond the time-out of a stage in which the processes of a job find out which one is late, in s.
LATE_RANK_GRACE_S = 10.0
#: Interval between checks whether a machine is idle, in s.
IDLE_POLL_INTERVAL_S = 1.0


@takes_options
def run(
    testcases: Iterable[str | Testcase] = (),
    prefixes: Iterable[str] = (),
    *,
    machine: str | Machine | None = None,
    options: RunOptions | None = None,
    output: str | Path | Output | None = None,
    force: bool = False,
    backends: Sequence[Backend] | None = None,
    world: World | None = None,
    listeners: Iterable[Listener] = (),
    command: str = "",
    described: Mapping[str, Any] | None = None,
    following: Callable[[Document], Iterable[Testcase]] | None = None,
    since: float | None = None,
    try_peers: bool = False,
    **changes: Any,
) -> Document:
    """Measure, and return the Document.

    Args:
        testcases: Names, nvbandwidth indices, or your own Testcases. Without testcases and prefixes: all
            testcases of the tier.
        prefixes: Testcases whose names start with one of these.
        machine: None for this machine, ``"simulated:NAME"``, a machine file, or a Machine.
        options: Options of the run; the keywords below override them.
        output: File to which the Document is saved after every measurement.
        force: Whether ``output`` may replace a file that exists.
        backends: Backends to measure with; None: those that fit the machine.
        world: Processes of a job (``jobs.join``), which all call this function with the same arguments. Each
            one executes its own transfers; only rank 0 saves the Document and calls its listeners.
        listeners: Called at every step of the run.
        command: Command line, for the Document.
        described: Additional options for the Document, the same on all ranks.
        following: Returns the testcases to measure next, for the Document of all that were measured, until
            there are none. With it, no testcases and no prefixes mean none at first. Not in a job
            (``world``).
        since: When the time of ``within`` began, in s of the monotonic clock; None for now.
        try_peers: Whether to try first if peer access works, in short. GPUs that cannot be used after that,
            and pairs that hang, are not measured; the others are. Not in a job.
        ...

    Raises:
        UsageError: If an argument is invalid; nothing has been measured.
        StorageError: If the Document cannot be written.
        RunInterrupted: On Ctrl-C; it carries the Document.

    Examples:
        >>> import wirespeed
        >>> document = wirespeed.run(["device_local_copy"], machine="simulated:hgx-h200-2")
        >>> document.simulated, document.testcases[0].status.value
        (True, 'passed')
    """
    from .driver.session import Session
    from .driver.time_limit import limit_of

    since = time.monotonic() if since is None else since
    if world is not None and following is not None:
        raise UsageError("a job needs the names of its testcases: omit following")
    options = changed(options or RunOptions(), changes, run)
    if world is not None and options.within is not None:
        raise UsageError("--within is for one process: omit it in a job, or limit the job itself")
    if world is not None and options.storage is not None:
        raise UsageError("--storage is for one process: omit it in a job")
    chosen, requested = _requested(testcases, prefixes, options, all_if_none=following is None)
    whole = machine_named(machine)
    local = part_of(whole, options)
    target = local if world is None else gather_machine(world, local)
    if options.huge_pages and target.transparent_huge_pages == "never":
        from .backends.host.memory import HUGE_REMEDY

        raise MachineError(f"huge pages are required, but switched off on {target.host}; {HUGE_REMEDY}")
    read = partial(_facts, whole, local)
    facts = read() if world is None else gather_facts(world, read)
    for case in chosen:
        if case.written:
            case.plan(target, options)
    tried = (attempt(target, facts) for attempt in offered("attempt")) if try_peers and world is None else ()
    peers = next(filter(None, tried), None)
    if peers is not None and peers.unusable:
        kept = [gpu.index for gpu in local.gpus if gpu.name not in peers.unusable]
        target = local = local.only(kept)
    lacking = _lacking_bulk(target) if options.bulk else ""
    prepared = partial(as_changed, options=options, bulk=options.bulk and not lacking)
    chosen = prepared(chosen)
    noted = (lacking, peers.left_out if peers else "")
    warnings = (*_restricted(local), *local.unusual_nodes(), *noted)
    document = begun(
        target, chosen, options,
        command=command,
        launcher="" if world is None else world.launcher,
        warnings=tuple(filter(None, warnings)),
        described=requested | dict(described or {}),
        facts=facts,
    )  # fmt: skip
    document = replace_fields(document, peers=peers)
    watching = [*_saving(output, force), *listeners] if world is None or world.rank == 0 else []
    own = _backends.connect(local) if backends is None else []
    used = own or list(backends or ())
    if world is not None:
        same = agreed(options) | dict(described or {}) | {"testcases": [case.name for case in chosen]}
        used = own = _of_job(world, target, local, used, options, same)
    session = Session(
        document, used, chosen, options, watching,
        grace=0.0 if world is None else LATE_RANK_GRACE_S,
        limit=limit_of(options, target, used, since),
        following=(lambda document: prepared(following(document))) if following else None,
        hanging=peers.hanging if peers else frozenset(),
        gather=None if world is None else partial(gather_observed, world),
    )  # fmt: skip
    try:
        document = session.run()
    finally:
        interrupted = _closed(own)
    if interrupted:
        raise RunInterrupted(document)
    return document


def _requested(
    testcases: Iterable[str | Testcase], prefixes: Iterable[str], options: RunOptions, *, all_if_none: bool
) -> tuple[tuple[Testcase, ...], dict[str, Any]]:
    """The testcases to measure, and the names, prefixes and devices as they were given, for the Document."""
    testcases, prefixes = _several(testcases), _several(prefixes)
    names = [(case if isinstance(case, Testcase) else find(case)).name for case in testcases]
    asked = [*names, *(f"{prefix}*" for prefix in prefixes)]
    requested = {REQUESTED: asked} if asked else {}
    if options.devices is not None:
        requested[DEVICES] = list(map(str, options.devices))
    return choose(testcases, prefixes, options) if asked or all_if_none else (), requested


def part_of(machine: Machine, options: RunOptions) -> Machine:
    """The part of a machine that a run uses."""
    if options.devices is not None:
        machine = machine.only(options.devices)
    for with_named in offered("with_named"):
        machine = with_named(machine, options)
    return machine if options.host_memory is None else machine.with_host_memory(options.host_memory)


def as_changed(cases: Iterable[Testcase], options: RunOptions, *, bulk: bool = False) -> tuple[Testcase, ...]:
    """Testcases as the options change them; with ``bulk``, they use bulk copies."""
    if options.sizes is not None:
        cases = (sweep(case, options.sizes) for case in cases)
    return tuple(_with_bulk(case) if bulk else case for case in cases)


def _of_job(
    world: World,
    target: Machine,
    local: Machine,
    backends: Sequence[Backend],
    options: RunOptions,
    same: dict[str, object],
) -> list[Backend]:
    """The backends of a job, of which the first closes the backends of this process.

    Raises:
        WorldError: If what must be the same in all processes is not.
    """
    from .backends.distributed.backend import DistributedBackend
    from .worlds.crew import agree_on

    agree_on(world, same)
    ranks = DistributedBackend(world, target, backends, options, LATE_RANK_GRACE_S)
    return [
        ranks,
        *(
            backend(ranks.exchange, target, local, options, LATE_RANK_GRACE_S)
            for backend in offered("of_job")
        ),
        _backends.join(world, target, local, ranks.exchange),
    ]


def _saving(output: str | Path | Output | None, force: bool) -> list[Listener]:
    """What saves the Document after every measurement, if it is to be saved."""
    if output is None:
        return []
    from .results.output import Output
    from .results.store import Saver

    return [Saver(Output.of(output), force)]


def machine_named(machine: str | Machine | None, *, measured: bool = True) -> Machine:
    """A Machine; this machine for None, whose devices are started in the background if it is measured."""
    if machine is None and measured:
        _backends.warm_up()
    return machine if isinstance(machine, Machine) else _backends.describe(machine)


def _closed(backends: Sequence[Backend]) -> bool:
    """Close backends; return whether a signal interrupted that, which must not lose what was measured."""
    interrupted = False
    for backend in reversed(backends):  # the first closes the backends of this process
        try:
            backend.close()
        except KeyboardInterrupt:
            SIGNALLED.heard()
            interrupted = True
    return interrupted


def described(machine: str | Machine | None = None, *, root: str | Path | None = None) -> Document:
    """A Document of a machine with its facts and without measurements.

    Args:
        machine: As for ``run``; with ``root``, a Machine or None for the recorded one.
        root: Folder that ``record`` wrote, or that has a copy of ``/sys`` and ``/proc``: the system to
            describe instead of this one.

    Raises:
        MachineError: If the machine does not exist, or the folder is not a system.
    """
    from .backends.recording import machine_in, opened
    from .backends.system_files import HERE

    tree = HERE if root is None else opened(root)
    if root is None or isinstance(machine, Machine):
        target = machine_named(machine, measured=False)
    elif machine is None:
        target = machine_in(tree)
    else:
        raise UsageError(f"the folder {root} describes its own machine: omit {machine!r}")
    host = platform.node() if root is None else target.host
    warnings, facts = tuple(target.unusual_nodes()), _backends.facts(target, tree)
    return blank(target, host=host, warnings=warnings, facts=facts)


def record(folder: str | Path) -> int:
    """Record what the system reports about this machine, for ``described`` on any machine.

    Only what readers of facts look at is recorded: parts of files in ``/sys`` and ``/proc``, answers of NVML,
    the variables ``NCCL_*`` and the description of the machine, which includes the name of the host.

    Args:
        folder: Folder to write to; it must not exist, or be empty.

    Returns:
        Number of files.

    Raises:
        UsageError: If the folder is not empty, or cannot be written.
    """
    from .backends.recording import record_in

    return record_in(folder)


def wait_idle(machine: Machine, seconds: float) -> float:
    """Wait until no other process uses the machine, as far as its backends can tell; return the time in s.

    Raises:
        NotIdle: If it is still in use after ``seconds``; the message says by what.
    """
    began = time.monotonic()
    connected = _backends.connect(machine)
    end = time.monotonic() + seconds
    try:
        while busy := "; ".join(f"{device} is {how}" for b in connected for device, how in b.busy().items()):
            left = end - time.monotonic()
            SIGNALLED.look()
            if left <= 0:
                raise NotIdle(f"waiting for an idle machine: {busy}", seconds)
            time.sleep(min(IDLE_POLL_INTERVAL_S, left))
    finally:
        for backend in connected:
            backend.close()
    return time.monotonic() - began


def choose(
    testcases: Iterable[str | Testcase], prefixes: Iterable[str], options: RunOptions
) -> tuple[Testcase, ...]:
    """The named testcases; without names and prefixes, all of the tier, and of a named folder."""
    wanted, prefixes = _several(testcases), _several(prefixes)
    if not wanted and not prefixes:
        return tuple(
            case
            for case in select()
            if includes(options.tier, case.tier) or any(asked(case, options) for asked in offered("asked"))
        )
    chosen: list[Testcase] = []
    for case in wanted:
        chosen += [case] if isinstance(case, Testcase) else select([case])
    chosen += select(prefixes=prefixes) if prefixes else ()
    return tuple(dict.fromkeys(chosen))


def _several(items: Iterable[T]) -> tuple[T, ...]:
    """A single name is one item, not an iterable of its characters."""
    return (items,) if isinstance(items, str) else tuple(items)  # type: ignore[return-value]


def _facts(whole: Machine, used: Machine) -> tuple[Fact, ...]:
    """The facts of a machine, without the GPUs that are left out."""
    left_out = {gpu.name for gpu in whole.gpus} - {gpu.name for gpu in used.gpus}
    return tuple(fact for fact in _backends.facts(whole) if fact.device not in left_out)


def _lacking_bulk(machine: Machine) -> str:
    """A warning if a GPU has no bulk copies, so that all use ordinary kernels."""
    lacking = [gpu.name for gpu in machine.gpus if not gpu.has_bulk_copy]
    if not lacking:
        return ""
    return f"{lacking[0]} has no bulk copies (compute capability 9.0 or later); using ordinary kernels"


def _with_bulk(case: Testcase) -> Testcase:
    """A testcase with bulk copies instead of ordinary kernels, if it copies by kernels."""
    copies = case.engine is Engine.SM and case.unit is Unit.RATE and case.operation is Operation.COPY
    return replace(case, engine=Engine.SM_BULK) if copies else case


def _restricted(machine: Machine) -> tuple[str, ...]:
    """Warnings if this process may use only some of the host's CPUs, or may not keep compiled code."""
    if machine.simulated or machine.host != platform.node():
        return ()
    cpus, all_cpus = sum(len(node.cpus) for node in machine.numa), os.cpu_count() or 0
    some = f"this process may use {cpus} of the host's {all_cpus} CPUs (affinity or cpuset)"
    return tuple(filter(None, [some if 0 < cpus < all_cpus else "", refusal()]))
