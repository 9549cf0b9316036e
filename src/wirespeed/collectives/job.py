"""One run of a collective: from what was asked for to a Document, in every process of a World."""

from __future__ import annotations

import dataclasses
import os
import platform
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime

from ..errors import UsageError, WirespeedError
from ..results.document import SCHEMA, UNFINISHED, Document, RankInfo, Status
from ..topology import Machine
from ..version import __version__
from ..worlds.base import RankLost, World
from ..worlds.watch import SETUP_S, Watch, agree_on
from .base import Group, Provider, Setting, Timing
from .links import limit, normal
from .operations import Operation
from .record import Frame, names, result
from .runner import Options, Runner
from .types import DataType

#: What of the environment goes into a Document.
_KEPT = ("NCCL_", "UCX_", "OMPI_MCA_", "CUDA_VISIBLE_DEVICES", "CUDA_DEVICE_ORDER")
_SPLIT, _MASK = "NCCL_TESTS_SPLIT", "NCCL_TESTS_SPLIT_MASK"
BY_USER = "by the user"


@dataclass(frozen=True)
class Request:
    """What was asked for; the same on all ranks.

    Parameters
    ----------
    provider
        ``nccl``, ``mpi`` or ``simulated``.
    types, operators
        Names.
    root
        None: each rank in turn.
    threads, gpus
        As given; ``each`` is how many ranks of the collective a process has.
    timeout
        Seconds that one stage may take; 0: any time.
    """

    operation: Operation
    provider: str
    types: tuple[DataType, ...]
    operators: tuple[str, ...]
    root: int | None
    sizes: tuple[int, ...]
    timing: Timing
    threads: int = 1
    gpus: int = 1
    each: int = 1
    first_size: int = 0
    last_size: int = 0
    step: int = 2**20
    factor: int = 1
    warmup: int = 1
    cycles: int = 1
    checks: int = 1
    average: int = 1
    skip: int = 0
    unalign: int = 0
    cpu_time: bool = False
    timestamps: bool = False
    memory: bool = False
    parallel_init: bool = False
    timeout: float = 300.0
    provided: Mapping[str, int] = field(default_factory=dict)

    def comparable(self) -> dict[str, object]:
        """Return what must be the same on all ranks, by name."""
        plain = {f.name: getattr(self, f.name) for f in dataclasses.fields(self)}
        return {
            **{name: value for name, value in plain.items() if isinstance(value, (int, float, str, bool))},
            "operation": self.operation.name,
            "types": [type.name for type in self.types],
            "operators": list(self.operators),
            "sizes": [min(self.sizes), max(self.sizes), len(self.sizes)],
            **dataclasses.asdict(self.timing),
            **self.provided,
            **{name: os.environ.get(name, "") for name in (_SPLIT, _MASK)},
        }


def settings(request: Request, ranks: int) -> tuple[Setting, ...]:
    """Return what is measured, in nccl-tests' order: types, operators, roots.

    Raises
    ------
    UsageError
        If there is no such root.
    """
    operation = request.operation
    operators = request.operators if operation.operator is None else ("",)
    roots: Sequence[int] = (-1,)
    if operation.rooted:
        roots = range(ranks) if request.root is None else (request.root,)
        if roots[-1] >= ranks:
            raise UsageError(f"there is no root {roots[-1]}: the ranks are 0 to {ranks - 1}")
    return tuple(Setting(operation, t, o, r) for t in request.types for o in operators for r in roots)


def group_of(world: World, each: int, environment: Mapping[str, str] = os.environ) -> Group:
    """Return the group of this process: all, or as ``NCCL_TESTS_SPLIT`` divides them.

    Raises
    ------
    UsageError
        If the variable is not understood.
    """
    colors = _colors(world.size, environment)
    mine = colors[world.rank]
    return Group(mine, tuple(rank for rank, color in enumerate(colors) if color == mine), each)


def _colors(size: int, environment: Mapping[str, str] = os.environ) -> list[int]:
    """Return the group of each process."""
    text = environment.get(_SPLIT, "")
    if _MASK in environment:
        try:
            text = f"&{int(environment[_MASK], 16)}"
        except ValueError as error:
            raise UsageError(f"{_MASK}={environment[_MASK]!r} is not a hexadecimal number") from error
    return [_color(text, rank) for rank in range(size)]


def _color(text: str, rank: int) -> int:
    if not text.strip():
        return 0
    calculations: dict[str, Callable[[int, int], int]] = {
        "AND": lambda a, b: a & b, "&": lambda a, b: a & b, "OR": lambda a, b: a | b, "|": lambda a, b: a | b,
        "MOD": lambda a, b: a % b, "%": lambda a, b: a % b,
        "DIV": lambda a, b: a // b, "/": lambda a, b: a // b,
    }  # fmt: skip
    for word, calculate in calculations.items():
        if text.strip().upper().startswith(word):
            try:
                return calculate(rank, int(text.strip()[len(word) :].strip(), 0))
            except (ValueError, ZeroDivisionError):
                break
    raise UsageError(
        f"{_SPLIT}={text!r} is not understood; write it like 'MOD 8', 'DIV 8', 'AND 0x7' or 'OR 0x7'"
    )


Make = Callable[[World, Group], Provider]
#: Called on rank 0 with what is known so far, the index of a setting, and of a size (-1: it begins).
Listener = Callable[["Job", int, int], None]


class Job:
    """A run in one process; on rank 0 it also makes the Document.

    Attributes
    ----------
    stuck
        Whether something did not come back, so that this process cannot end in order.
    """

    def __init__(
        self,
        request: Request,
        world: World,
        machine: Machine,
        make: Make,
        listener: Listener,
        arguments: Sequence[str],
    ) -> None:
        self.request = request
        self.world = world
        self.machine = machine
        self.arguments = list(arguments)
        self.interrupted = ""
        self.ended = ""
        self._make = make
        self._listener = listener
        self._watch = Watch(world, request.timeout)
        self._started = time.monotonic()
        self._start = _now()
        self._runner: Runner | None = None
        self._provider: Provider | None = None
        self._ranks: tuple[RankInfo, ...] = ()
        self._stamps: list[str] = []
        self._memory: dict[str, int] = {}
        self._failure: tuple[Status, str] | None = None
        self._complete = False

    @property
    def stuck(self) -> bool:
        """Whether a thread did not come back."""
        return self._watch.stuck

    def run(self) -> None:
        """Measure.

        Raises
        ------
        WirespeedError
            If it cannot be done, or fails; ``document`` has what was measured until then.
        KeyboardInterrupt
            On Ctrl-C, or if the launcher ends the job and no rank is known to have failed.
        """
        try:
            self._run()
        except KeyboardInterrupt:
            try:
                self.world.check(0.05)
            except RankLost as error:  # the launcher ended us because of that one
                self._fails(error)
                raise error from None
            self.interrupted = BY_USER
            self._failure = (Status.INTERRUPTED, f"{BY_USER} while {self._watch.stage}")
            self.world.fail(f"interrupted {BY_USER}")
            raise
        except WirespeedError as error:
            self._fails(error)
            raise
        finally:
            self.ended = _now()

    def _fails(self, error: WirespeedError) -> None:
        from ..errors import MeasurementTimeout

        timed_out = isinstance(error, MeasurementTimeout) or "timed out" in str(error)
        self._failure = (Status.TIMED_OUT if timed_out else Status.ERROR, str(error))
        self.interrupted = str(error)

    def _run(self) -> None:
        agree_on(self.world, self.request.comparable())
        request = self.request
        group = group_of(self.world, request.each)
        # All groups run the same settings, with roots that the smallest of them has too.
        chosen = settings(request, request.each * min(Counter(_colors(self.world.size)).values()))
        self._watch.at("setting up the ranks", at_least=SETUP_S)
        provider = self._watch.run(lambda: self._make(self.world, group))
        self._provider = provider
        options = Options(
            chosen, request.sizes, request.timing, request.warmup, request.cycles, request.checks,
            request.average, request.skip, request.unalign,
        )  # fmt: skip
        self._runner = Runner(self._watch, provider, options, self._progress)
        self._watch.at("gathering devices")
        self._ranks = self._watch.run(lambda: self._gather_ranks(provider, group))
        self._runner.run()
        if request.memory:
            self._watch.at("gathering memory")
            taken = self._watch.run(lambda: self.world.allgather(provider.memory(), "gathering memory"))
            self._memory = _memory(taken)
        self._complete = True
        provider.close()

    def _gather_ranks(self, provider: Provider, group: Group) -> tuple[RankInfo, ...]:
        mine = [[group.color, d.index, d.bus_id, d.name] for d in provider.devices]
        every = self.world.allgather(mine, "gathering devices")
        return tuple(
            RankInfo(member.rank * len(devices) + i, color, member.pid, member.host, index, bus_id, model)
            for member, devices in zip(self.world.members, every, strict=True)
            for i, (color, index, bus_id, model) in enumerate(devices)
        )

    def _progress(self, i: int, j: int) -> None:
        if self.world.rank == 0:
            at = i * len(self.request.sizes) + j
            if self.request.timestamps and j >= 0:
                self._stamps[at:] = [time.strftime("%Y-%m-%d %H:%M:%S")]
            self._listener(self, i, j)

    def document(self, only: tuple[int, int] | None = None) -> Document:
        """Return what is known.

        Parameters
        ----------
        only
            Of this setting and size alone, what the last cycle found.
        """
        request, provider, runner = self.request, self._provider, self._runner
        outcomes = list(enumerate(runner.outcomes if runner else ()))
        titles = names([outcome.setting for _, outcome in outcomes])
        sizes = request.sizes
        if only is not None:
            i, j = only
            outcomes, sizes = [(i, outcomes[i][1].at(j))], sizes[j : j + 1]
        ranks = provider.group.ranks if provider else self.world.size * request.each
        allowed = self._allowed()
        testcases = []
        unfinished = None if self._complete else (Status.INTERRUPTED, UNFINISHED)
        for i, outcome in outcomes:
            frame = Frame(
                titles[i], request.provider, sizes, ranks, *allowed, request.timing.operations,
                request.cpu_time, request.skip,
            )  # fmt: skip
            failure = (self._failure or unfinished) if runner and i >= runner.current else None
            testcases.append(result(outcome, frame, self._start, failure))
        stamps = self._stamps[only[0] * len(request.sizes) + only[1] :] if only else self._stamps
        return Document(
            schema=SCHEMA,
            version=__version__,
            command=" ".join(["wirespeed", *self.arguments]),
            host=platform.node(),
            python=platform.python_version(),
            libraries=provider.libraries() if provider else {},
            simulated=self.machine.simulated,
            machine=self.machine,
            options=self._options(ranks, stamps),
            started=self._start,
            ended=self.ended or _now(),
            seconds=time.monotonic() - self._started,
            interrupted=self.interrupted or (UNFINISHED if unfinished else ""),
            testcases=tuple(testcases),
            ranks=self._ranks,
            device_memory=self._memory,
        )

    def _allowed(self) -> tuple[float | None, tuple[float, float] | None]:
        """Return what the slowest link allows, and what is normal."""
        if self._provider is None or self.request.provider == "mpi" or len(self.world.hosts) > 1:
            return None, None
        if self.machine.ranks:
            ends = [f"{rank.index}/{rank.device}" for rank in self.machine.ranks]
        else:
            ends = [gpu.name for gpu in self.machine.gpus]
        ends = ends[: self._provider.group.ranks]
        return limit(self.machine, ends), normal(self.machine, ends)

    def _options(
        self, ranks: int, stamps: list[str]
    ) -> dict[str, str | int | float | bool | list[str] | None]:
        request, timing = self.request, self.request.timing
        return {
            "operation": request.operation.name,
            "ranks": ranks,
            "processes": self.world.size,
            "hosts": len(self.world.hosts),
            "launcher": self.world.launcher,
            "transport": self._provider.transport() if self._provider else "",
            "threads": request.threads,
            "gpus": request.gpus,
            "first_size": request.first_size,
            "last_size": request.last_size,
            "step": request.step,
            "factor": request.factor,
            "warmup": request.warmup,
            "iterations": timing.iterations,
            "aggregate": timing.aggregate,
            "cycles": request.cycles,
            "checks": request.checks,
            "blocking": timing.blocking,
            "graphs": timing.graphs,
            "per_iteration": timing.per_iteration,
            "skip": request.skip,
            "average": request.average,
            "unalign": request.unalign,
            "cpu_time": request.cpu_time,
            "parallel_init": request.parallel_init,
            "timeout": request.timeout,
            "timestamps": stamps if request.timestamps else None,
            "minimum_bandwidth": minimum(),
            "arguments": self.arguments,
            "environment": [f"{k}={v}" for k, v in sorted(os.environ.items()) if k.startswith(_KEPT)],
            **dict(request.provided),
        }


def minimum() -> float | None:
    """The mean bus bandwidth that ``NCCL_TESTS_MIN_BW`` asks for (GB/s there), in B/s."""
    text = os.environ.get("NCCL_TESTS_MIN_BW")
    try:
        return float(text) * 1e9 if text else None
    except ValueError as error:
        raise UsageError(f"NCCL_TESTS_MIN_BW={text!r} is not a number of GB/s") from error


def _memory(taken: Sequence[Mapping[str, int]]) -> dict[str, int]:
    keys = dict.fromkeys(key for one in taken for key in one)
    return {key: max(one.get(key, 0) for one in taken) for key in keys}


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds").replace("+00:00", "Z")
