"""The one way to run: the command lines and Python callers both come through here."""

from __future__ import annotations

import dataclasses
import os
import platform
import time
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from . import backends as _backends
from .backends.base import Backend, RunOptions, Watching
from .backends.ranks.means import check_share
from .errors import MeasurementTimeout, UsageError
from .jobs import gather_machine
from .model import Engine, Operation, Unit
from .results.document import Document
from .sampling import Fixed, Precise, Rule
from .testcases import PlanOptions, Testcase, Tier, select
from .testcases.sweep import parse_sizes, sweep
from .topology import Machine
from .units import parse_duration, parse_fraction, parse_size

if TYPE_CHECKING:
    from .listener import Listener
    from .session import Options
    from .worlds.base import World

#: Precision and time budget (s) where neither is given.
DEFAULTS = {Tier.QUICK: Precise(0.01, 0.3, 1.0, 3), Tier.STANDARD: Precise(), Tier.FULL: Precise(0.005, 10.0)}
SAMPLES, COPIES = 3, 16
TIMEOUT = 60.0
#: What the processes of a job have beyond the time-out of a stage, to find out which is late, in s.
_PATIENCE = 10.0
#: How often a machine is looked at that is waited for, in s.
_LOOK = 1.0


def rule_for(
    tier: Tier,
    samples: int | None = None,
    copies: int | None = None,
    precision: float | None = None,
    time_budget: float | None = None,
) -> Rule:
    """Return the stop rule: fixed where samples or copies are given, else precise.

    Raises
    ------
    UsageError
        If both kinds are asked for, or a value is out of range.
    """
    fixed = samples is not None or copies is not None
    if fixed and (precision is not None or time_budget is not None):
        raise UsageError(
            "samples and copies are fixed counts, precision and time budget stop by themselves: "
            "give one kind or the other"
        )
    if fixed:
        return Fixed(SAMPLES if samples is None else samples, COPIES if copies is None else copies)
    default = DEFAULTS[tier]
    if precision is None and time_budget is None:
        return default
    return Precise(
        default.precision if precision is None else precision,
        default.time_budget if time_budget is None else time_budget,
    )


def run(
    testcases: Iterable[str | Testcase] = (),
    prefixes: Iterable[str] = (),
    *,
    machine: str | Machine | None = None,
    size: int | str | None = None,
    tier: str = Tier.STANDARD,
    samples: int | None = None,
    copies: int | None = None,
    precision: float | str | None = None,
    time_budget: float | str | None = None,
    timeout: float | str = TIMEOUT,
    seed: int = 0,
    verify: bool = True,
    affinity: bool = True,
    use_mean: bool = False,
    sizes: str | Sequence[int | str] | None = None,
    devices: Collection[int] | None = None,
    local_copy: bool = False,
    pageable: bool = False,
    bulk: bool = False,
    blocks: int = 0,
    threads: int = 0,
    all_engines: bool = False,
    virtual_memory: bool = False,
    output: str | Path | None = None,
    backends: Sequence[Backend] | None = None,
    world: World | None = None,
    share: str | None = None,
    parallel_pairs: bool = False,
    sample_peers: int = 0,
    listeners: Iterable[Listener] = (),
    command: str = "",
    cycles: int = 1,
    described: Mapping[str, Any] | None = None,
) -> Document:
    """Measure, and return the Document.

    Parameters
    ----------
    testcases
        Names, nvbandwidth indices, or Testcases of your own. With no prefixes either: all that
        belong to the tier.
    prefixes
        All testcases whose names start with one of these.
    machine
        None for this machine, ``"simulated:NAME"``, a machine file, or a Machine.
    size
        Bytes of a buffer, or a text such as ``"64MiB"``; each testcase's own default otherwise.
    tier
        ``quick``, ``standard`` or ``full``.
    samples, copies
        Fixed counts; otherwise sampling stops by itself.
    precision, time_budget
        Stop when the 95 % interval of the median is within this fraction of it, or after so many
        seconds for one cell; texts such as ``"0.5%"`` and ``"5s"`` too.
    timeout
        Seconds that one stage (preparing, measuring, verifying one cell) may take, or such a text.
    sizes
        Sweep over sizes of a buffer: ``"4KiB:1GiB:x4"``, or bytes; every cell becomes a curve.
    devices
        Indices of the GPUs to use; all of them otherwise.
    local_copy
        Fill the diagonal of tables of pairs of GPUs with local copies.
    pageable
        Use pageable host memory, in place of pinned, in copies between host and GPU.
    bulk
        Copy by kernels of bulk asynchronous copies where SM kernels copy; needs compute
        capability 9.0, otherwise ordinary kernels are used and a warning says so.
    blocks, threads
        Shape of the copy kernels; 0: chosen by the program.
    all_engines
        Spread copies over all copy engines of a GPU where that is faster.
    virtual_memory
        Allocate device memory by virtual-memory management.
    world
        The processes of a job (``jobs.join``), which all call this with the same arguments. Each
        executes its own transfers; rank 0's Document is saved, and its listeners are told.
    share
        By what means alone processes share memory (``fabric``, ``vmm-fd``, ``ipc``, ``shm``,
        ``nccl``, ``mpi``); otherwise by the best that works for each pair.
    parallel_pairs
        Let pairs that have no device in common run at the same time.
    sample_peers
        Measure each row of a table of pairs with so many columns only; 0: with all.
    output
        Where the Document is saved, after every testcase.
    backends
        What to measure with; those that fit the machine otherwise.
    cycles
        How often all Measurements of a testcase are repeated; 0: until interrupted.
    described
        More options for the Document.

    Raises
    ------
    UsageError
        For a wrong argument, before anything is measured.
    StorageError
        If the Document cannot be written.
    RunInterrupted
        On Ctrl-C; it carries the Document.

    Examples
    --------
    >>> import wirespeed
    >>> document = wirespeed.run(["device_local_copy"], machine="simulated:hgx-h200-2")
    >>> document.simulated, document.testcases[0].status.value
    (True, 'passed')
    """
    from .session import Options, Session

    level = _tier(tier)
    timeout = parse_duration(timeout) if isinstance(timeout, str) else timeout
    rule = rule_for(
        level,
        samples,
        copies,
        parse_fraction(precision) if isinstance(precision, str) else precision,
        parse_duration(time_budget) if isinstance(time_budget, str) else time_budget,
    )
    chosen = choose(testcases, prefixes, level)
    if sizes is not None:
        over = (
            parse_sizes(sizes) if isinstance(sizes, str) else tuple(size for x in sizes if (size := _size(x)))
        )
        if not over:
            raise UsageError("sizes is empty; give some, or leave it out")
        chosen = tuple(sweep(case, over) for case in chosen)
    if machine is None:
        _backends.warm_up()
    where = machine if isinstance(machine, Machine) else _backends.describe(machine)
    if devices is not None:
        where = where.only(devices)
    check_share(share)
    local = where
    if world is not None:
        if where.simulated:
            raise UsageError("a simulated machine has ranks of its own: run it without a launcher")
        where = gather_machine(world, local)
    warnings = _restricted(local)
    if bulk:
        chosen, notes = _with_bulk(chosen, where)
        warnings += notes
    if min(blocks, threads) < 0 or threads > 1024:
        raise UsageError("blocks must be 0 or more, threads from 0 to 1024")
    if sample_peers < 0:
        raise UsageError(f"the number of sampled peers must be 0 (all) or more, not {sample_peers}")
    if not timeout > 0:
        raise UsageError(f"the time-out must be more than 0 s, not {timeout:g}")
    options = Options(
        chosen,
        PlanOptions(_size(size), level, blocks, threads, local_copy, pageable, parallel_pairs, sample_peers),
        rule,
        RunOptions(seed, timeout, affinity, virtual_memory, all_engines, 0.0 if world is None else _PATIENCE),
        verify,
        use_mean,
        command,
        warnings,
        "" if world is None else world.launcher,
        share,
        cycles,
        dict(described or {}),
    )
    first = world is None or world.rank == 0  # the others measure and say nothing
    watching = list(listeners) if first else []
    if output is not None and first:
        from .results.store import Saver

        watching.insert(0, Saver(Path(output)))
    own: list[Backend] = _backends.connect(local) if backends is None else []
    if world is not None:
        from .backends.pairs.backend import PairsBackend
        from .backends.ranks.backend import RanksBackend
        from .worlds.watch import agree_on

        agree_on(world, _agreed(options))
        ranks = RanksBackend(world, where, own or backends or (), share, options.run)
        own = [ranks, PairsBackend(ranks.exchange, where, local, options.run)]
    used = own if backends is None or world is not None else backends
    try:
        return Session(where, used, options, watching).run()
    finally:
        for backend in reversed(own):  # the first closes the backends of this process
            backend.close()


def _agreed(options: Options) -> dict[str, object]:
    """What must be the same in all processes of a job."""
    plain = dataclasses.asdict(
        dataclasses.replace(options, testcases=(), command="", launcher="", described={})
    )
    return {
        **{name: str(value) for name, value in _flat(plain).items()},
        **options.described,
        "testcases": [case.name for case in options.testcases],
    }


def _flat(values: dict[str, Any]) -> dict[str, object]:
    found: dict[str, object] = {}
    for name, value in values.items():
        found |= _flat(value) if isinstance(value, dict) else {name: value}
    return found


def wait_idle(machine: Machine, seconds: float) -> None:
    """Wait until nothing else uses a machine, as far as its backends can tell.

    Raises
    ------
    MeasurementTimeout
        If something still does after this many seconds; it says what.
    """
    connected = _backends.connect(machine)
    end = time.monotonic() + seconds
    try:
        watching = [backend for backend in connected if isinstance(backend, Watching)]
        while busy := "; ".join(f"{device} is {how}" for b in watching for device, how in b.busy().items()):
            left = end - time.monotonic()
            if left <= 0:
                raise MeasurementTimeout(f"waiting for an idle machine: {busy}", seconds)
            time.sleep(min(_LOOK, left))
    finally:
        for backend in connected:
            backend.close()


def choose(testcases: Iterable[str | Testcase], prefixes: Iterable[str], tier: Tier) -> tuple[Testcase, ...]:
    """Return the testcases that are named; with no name and no prefix all that belong to the tier."""
    wanted = (testcases,) if isinstance(testcases, str) else tuple(testcases)  # one name is a name
    prefixes = (prefixes,) if isinstance(prefixes, str) else tuple(prefixes)
    if not wanted and not prefixes:
        return tuple(case for case in select() if tier.includes(case.tier))
    found: list[Testcase] = []
    for one in wanted:
        found += [one] if isinstance(one, Testcase) else select([one])
    found += select(prefixes=prefixes) if prefixes else ()
    return tuple(dict.fromkeys(found))


def _with_bulk(cases: tuple[Testcase, ...], machine: Machine) -> tuple[tuple[Testcase, ...], tuple[str, ...]]:
    """Return the testcases with bulk copies in place of ordinary kernels, where all GPUs have them."""
    lacking = [gpu.name for gpu in machine.gpus if not gpu.has_bulk_copy]
    if lacking:
        note = f"{lacking[0]} has no bulk copies (compute capability 9.0): ordinary copy kernels are used"
        return cases, (note,)
    return tuple(
        replace(case, engine=Engine.SM_BULK)
        if case.engine is Engine.SM and case.unit is Unit.RATE and case.operation is Operation.COPY
        else case
        for case in cases
    ), ()


def _restricted(machine: Machine) -> tuple[str, ...]:
    """Return a warning if this process may use only some of the host's CPUs."""
    cpus, all_cpus = sum(len(node.cpus) for node in machine.numa), os.cpu_count() or 0
    if machine.simulated or machine.host != platform.node() or not 0 < cpus < all_cpus:
        return ()
    return (f"this process may use {cpus} of the host's {all_cpus} CPUs (affinity or cpuset)",)


def _tier(name: str) -> Tier:
    if name not in list(Tier):
        raise UsageError(f"there is no tier {name!r}; there are {', '.join(Tier)}")
    return Tier(name)


def _size(size: int | str | None) -> int | None:
    return parse_size(size) if isinstance(size, str) else None if size is None else _checked_size(int(size))


def _checked_size(size: int) -> int:
    if not 1 <= size <= 2**60:
        raise UsageError(f"size {size} is out of range; it must be from 1 B to 1 EiB")
    return size
