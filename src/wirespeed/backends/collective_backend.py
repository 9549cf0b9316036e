"""The backend of collectives: the code that all libraries share, within a process and between processes."""

from __future__ import annotations

import math
import os
import re
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, TypeVar

from ..collectives.data_types import BY_NAME
from ..collectives.operations import Setting, operation_of
from ..collectives.options import CollectiveOptions
from ..document import RankInfo
from ..errors import BackendError, BackendLost, OutOfMemory, Unreachable, WirespeedError
from ..measurement import Measurement, Sample
from ..model import Collective
from ..options import RunOptions
from ..worlds.base import RankLost, World
from .base import BackendDetails, Prepared
from .cpu_sharing import sharing
from .distributed.exchange import Exchange, JobBackend
from .provider import Case, Elapsed, Group, Provider, Refused

#: Minimum time-out until the first operation has ended, in s: until then libraries are loaded, kernels
#: compiled and ranks connected.
SETUP_S = 30.0
#: Time to wait for news of a failed rank if an operation fails in this process, in s.
_FAILED_RANK_WAIT_S = 1.0
#: Loops that are expected to take longer than this, in s, have a longer time-out: in addition to that of a
#: stage, this multiple of the time that their operations take one by one.
_SHORT_LOOP_S, _LOOP_MARGIN = 1.0, 2.0
#: Prefixes of the environment variables that the Document contains.
_KEPT_VARIABLES = ("NCCL_", "UCX_", "OMPI_MCA_", "CUDA_VISIBLE_DEVICES", "CUDA_DEVICE_ORDER")
#: The file in memory to which wirespeed itself lets NCCL log (``nccl/debug.py``).
_OWN_LOG = re.compile(r"/proc/\d+/fd/\d+")

#: How the times of all threads are combined, by ``CollectiveOptions.average``.
_REDUCE: tuple[Callable[[Sequence[float]], float], ...] = (
    lambda times: times[0],
    lambda times: math.fsum(times) / len(times),
    min,
    max,
)
T = TypeVar("T")


def kept_variables() -> list[str]:
    """Variables of libraries as ``NAME=value``, without those of the log that only wirespeed asks of NCCL."""
    own = "NCCL_DEBUG" if _OWN_LOG.fullmatch(os.environ.get("NCCL_DEBUG_FILE", "")) else "\0"
    return [
        f"{name}={value}"
        for name, value in sorted(os.environ.items())
        if name.startswith(_KEPT_VARIABLES) and not name.startswith(own)
    ]


#: Creates the provider of a group; raises Refused if that is not possible.
Make = Callable[[World, Group], Provider]


class CollectiveBackend(JobBackend):
    """Runs collectives with one library.

    Args:
        name: ``nccl``, ``mpi`` or ``simulated``.
        world: The processes that take part; a World of one process for collectives among the GPUs of this
            process.
        group: The ranks that take part, as seen from this process.
        make: Creates the provider; called in the thread that measures.
        why_not: Returns why this process cannot run collectives, or None if it can; must not load the
            library.
        exchange: The exchange of the job; None to create one.
        options: How collectives are timed and verified; None for the defaults.
        virtual: Whether the clock advances only by measured time, as on a simulated machine.

    Attributes:
        provider: The provider; None until the first measurement.
        seed: Seed of the data that was verified last.
    """

    sample_seconds = 5e-3

    def __init__(
        self,
        name: str,
        world: World,
        group: Group,
        make: Make,
        why_not: Callable[[], str | None] = lambda: None,
        exchange: Exchange | None = None,
        *,
        options: CollectiveOptions | None = None,
        virtual: bool = False,
    ) -> None:
        super().__init__()
        self.name = name
        self.world, self.processes = world, world.size
        self.group = group
        self.exchange = exchange or Exchange(world, self.cancel)
        if exchange is not None:
            exchange.on_lost(self.cancel)
        self.setup_s = 0.0 if virtual else SETUP_S
        self.can_cancel = False
        self.provider: Provider | None = None
        self.seed = 0
        self._make, self._why_not, self._options = make, why_not, options or CollectiveOptions()
        self._agreed = False
        self._refused: str | None = None
        self._settings: dict[str, str | None] = {}
        self._room, self._full = -1, False
        self._ranks: tuple[RankInfo, ...] = ()
        self._memory: dict[str, int] = {}
        self.virtual, self._spent = virtual, 0.0
        self._doing = ""

    def refuses(self, measurement: Measurement) -> str | None:
        return None if measurement.collective else ""

    def prepare(self, measurement: Measurement, options: RunOptions) -> PreparedCollective:
        """Allocate buffers and bind the operation, in all processes together."""
        self.exchange.check()
        work = measurement.collective
        assert work is not None
        provider = self._open()
        operation = operation_of(work.operation, work.traffic)
        setting = Setting(operation, BY_NAME[work.type], work.operator, work.root)
        self._agree(setting, provider)
        prepared = PreparedCollective(self, provider, work, setting, self._options)
        self._make_room(provider, prepared, work, self._options.unalign * setting.type.bytes)
        prepared.set_up()
        return prepared

    def now(self) -> float:
        """The time of rank 0 at the last exchange, in s; virtual time if simulated."""
        if self.virtual:
            return self._spent
        return self.exchange.now if self.world.size > 1 else time.monotonic()

    def spend(self, seconds: float) -> None:
        """Advance the virtual clock by measured time, in s."""
        self._spent += seconds

    def libraries(self) -> dict[str, str]:
        return self.provider.libraries() if self.provider is not None else {}

    def describe(self) -> BackendDetails:
        """The ranks, the use of device memory, and the transport between the ranks."""
        options = {
            "ranks": self.group.ranks,
            "processes": self.world.size,
            "hosts": len(self.world.hosts),
            "launcher": self.world.launcher,
            "transport": self.provider.transport() if self.provider else "",
            "environment": kept_variables(),
        }
        facts = self.provider.facts() if self.provider else ()
        return BackendDetails(self._ranks, self._memory, options, facts)

    def cancel(self) -> None:
        if self.provider is not None and self.provider.can_cancel:
            self.provider.cancel()

    def late(self, stage: str, seconds: float) -> WirespeedError:
        """Identify the straggler after a time-out and end the job: the communicator is no longer usable."""
        error = self.world.late(self._doing or stage, seconds)
        self.exchange.lose(error)
        return error

    def close(self) -> None:
        """Release all resources, unless a process has ended."""
        self.exchange.close()
        if self.provider is not None and not self.exchange.lost:
            self.provider.close()

    @property
    def is_set_up(self) -> bool:
        """Whether the ranks are connected and have buffers: they warm up next."""
        return self._room >= 0

    def refusal(self, setting: Setting) -> str | None:
        """Why a setting was refused at every size; None if it was not."""
        return self._refused or self._settings.get(str(setting))

    # Setting up.

    def _open(self) -> Provider:
        """The provider; the first call creates it."""
        if not self._agreed:
            reasons = self.exchange.gather(self._why_not(), f"agreeing on {self.name}")
            self._refused = self.exchange.first(reasons) if self.world.size > 1 else reasons[0]
            self._agreed = True
        if self._refused:
            raise Unreachable(self._refused)
        if self.provider is None:
            provider = self.run(
                "finding the devices of the ranks", lambda: self._make(self.world, self.group)
            )
            self._ranks = self._gathered_ranks(provider)
            self.provider = provider  # from here on, `describe` has its ranks and libraries
            self.run("setting up the ranks", provider.connect)
            self.can_cancel = provider.can_cancel
        return self.provider

    def _gathered_ranks(self, provider: Provider) -> tuple[RankInfo, ...]:
        """The ranks of all processes with their devices."""
        own = self.group.color
        mine = [[own if d.color is None else d.color, d.index, d.bus_id, d.name] for d in provider.devices]
        everyone = self.exchange.gather(mine, "gathering devices")
        return tuple(
            RankInfo(member.rank * len(devices) + i, color, member.pid, member.host, index, bus_id, model)
            for member, devices in zip(self.world.members, everyone, strict=True)
            for i, (color, index, bus_id, model) in enumerate(devices)
        )

    def _agree(self, setting: Setting, provider: Provider) -> None:
        """Agree, once per setting, whether all processes can run it.

        Raises:
            Unreachable: If one of them cannot; with its reason.
        """
        key = str(setting)
        if key not in self._settings:
            mine = (
                f"{setting.operation.name} is not implemented over {provider.name}; choose one of "
                f"{', '.join(provider.operations)}"
                if setting.operation.name not in provider.operations
                else provider.refuses(setting)
            )
            reasons = self.exchange.gather(mine, f"agreeing on {setting}")
            self._settings[key] = next(filter(None, reasons), None)
        if reason := self._settings[key]:
            raise Unreachable(reason)

    def _make_room(
        self, provider: Provider, prepared: PreparedCollective, work: Collective, slack: int
    ) -> None:
        """Allocate buffers for the largest size of a sweep, or for this size if memory is short.

        Raises:
            Unreachable: If this size does not fit in one of the processes.
        """
        if reason := provider.exceeds(prepared.case(1, work.bytes)):
            raise Unreachable(reason)
        sizes = (work.bytes,) if self._full else (max(work.room, work.bytes), work.bytes)
        needed = [prepared.case(1, size).bytes + slack for size in sizes]
        if self._room >= needed[0]:
            return
        for size in dict.fromkeys(needed):
            try:
                self.exchange.together(partial(provider.allocate, size), f"allocating for {work}")
            except OutOfMemory as error:
                self._room, self._full = -1, True
                reason = f"out of memory: {error}"
                continue
            self.run(f"registering buffers for {work}", provider.register)
            self._room = size
            return
        raise Unreachable(reason)

    def run(self, doing: str, call: Callable[[], T]) -> T:
        """Run a step in which all ranks take part; a failure ends the job, as the others would wait forever.

        Raises:
            BackendLost: If the step fails in this process, or another rank has ended.
            Unreachable: If the step is refused in a job of one process.
        """
        self._doing = doing
        self.progressed = time.monotonic()
        try:
            return call()
        except Refused as error:
            if self.world.size == 1:
                self._refused = str(error)
                raise Unreachable(self._refused) from error
            raise self._lost(doing, error) from error
        except BackendError as error:
            raise self._lost(doing, error) from error

    def _lost(self, doing: str, error: BackendError) -> BackendLost:
        try:
            if not isinstance(error, BackendLost) or self.world.size > 1:
                self.world.check(
                    _FAILED_RANK_WAIT_S if self.world.size > 1 else 0.0
                )  # the failure of another rank is often the cause
        except RankLost as lost:
            return self.exchange.lose(lost)
        if self.world.size > 1:
            self.world.fail(f"{self.world.me} failed while {doing}: {error}")
        return self.exchange.lose(error)

    def gather(self, value: object, doing: str, patience: float = 0.0) -> list[Any]:
        """Exchange a value with all processes; return the values of all.

        ``patience`` is the additional time that another process may take, in s.
        """
        self._doing = doing
        return self.exchange.gather(value, doing, patience)

    def gathered(
        self, elapsed: list[Elapsed], memory: bool, doing: str, patience: float
    ) -> list[list[Elapsed]]:
        """Exchange the times of all threads of this process; return the times of all processes.

        If ``memory`` is true, the use of device memory is exchanged, too; ``patience`` as in ``gather``.
        """
        assert self.provider is not None
        everyone = self.gather([elapsed, self.provider.memory() if memory else {}], doing, patience)
        if memory:
            taken = [use for _, use in everyone]
            keys = dict.fromkeys(key for use in taken for key in use)
            self._memory = {key: max(use.get(key, 0) for use in taken) for key in keys}
        return [[Elapsed(*times) for times in row] for row, _ in everyone]


class PreparedCollective(Prepared):
    """A bound collective. All processes call each method at the same time."""

    def __init__(
        self,
        backend: CollectiveBackend,
        provider: Provider,
        work: Collective,
        setting: Setting,
        options: CollectiveOptions,
    ) -> None:
        self._backend, self._provider, self._work = backend, provider, work
        self._setting, self._options = setting, options
        self._bound: Case | None = None
        self._checked = False
        #: Time of one operation, in s; 0 if it is not known.
        self._pace = 0.0

    def case(self, iterations: int, size: int = 0) -> Case:
        """A loop of the operation; ``size`` replaces the size of the array, in bytes."""
        work, width = self._work, self._setting.type.bytes
        counts = self._setting.operation.counts((size or work.bytes) // width, width, work.ranks)
        options = replace(self._options, iterations=iterations)
        return Case(self._setting, work.ranks, counts, work.in_place, options)

    def set_up(self) -> None:
        """Bind, fill the buffers and warm up, so that the library sets up its resources for this size."""
        self._bind(self.case(1))
        if self._options.checks:
            self._run("filling the buffers of", lambda: self._provider.fill(0))
        for _ in range(self._options.warmup):
            self._run("warming up", self._provider.once)

    def warm_up(self) -> None:
        self._bind(self.case(1))
        began = time.monotonic()
        self._run("warming up", self._provider.once)
        took = time.monotonic() - began
        self._pace = max(self._backend.gather(took, f"comparing the time of {self._work}"))
        self._backend.setup_s = 0.0

    def sample(self, copies: int) -> Sample:
        """Run a loop of operations from a common start; return the combined times of all processes."""
        self._bind(self.case(copies))
        expected = self._pace * copies * self._options.aggregate * max(1, self._options.graphs)
        if expected > _SHORT_LOOP_S:
            self._backend.setup_s = max(
                self._backend.setup_s, self._options.timeout + _LOOP_MARGIN * expected
            )  # fmt: skip
        elapsed = self._run("timing", self._provider.loop)
        rows = self._backend.gathered(
            elapsed, self._options.memory, f"gathering times of {self._work}", _LOOP_MARGIN * expected
        )
        self._backend.setup_s = 0.0
        sample = self._sample(rows, copies)
        cpus = [[each.core for each in row] for row in rows]
        for text in sharing(self._backend.world.members, cpus):
            self._backend.warn(text)
        self._backend.spend(sample.wall)
        return sample

    def _sample(self, rows: list[list[Elapsed]], copies: int) -> Sample:
        reduce = _REDUCE[self._options.average]
        every = [elapsed for row in rows for elapsed in row]
        operations = float(copies * self._options.aggregate)
        seconds, cpu = reduce([e.seconds for e in every]), reduce([e.cpu for e in every])
        iterations = []
        by_process = (
            [max(times) for times in zip(*(e.iterations for e in row), strict=True)] for row in rows
        )
        for times in zip(*by_process, strict=True):
            slowest = max(times)
            iterations.append(Sample((slowest, slowest), (1.0, 1.0), slowest, by_process=tuple(times)))
        wall = seconds * operations
        return Sample((wall, cpu * operations), (operations, operations), wall, iterations=tuple(iterations))

    def verify(self) -> int | None:
        """Run on new data and compare the results, once per size; repeat until a check finds wrong elements.

        Like nccl-tests, this check gives the number of wrong elements.
        """
        is_defined = self._setting.operation.checks_in_place or not self._work.in_place
        if self._checked or not (self._options.checks and is_defined):
            return 0 if self._checked else None
        wrong = 0
        for _ in range(self._options.checks):
            self._backend.seed += 1
            seed = self._backend.seed
            self._run("filling the buffers of", partial(self._provider.fill, seed))
            self._run("running", self._provider.once)
            mine = self._run("verifying", partial(self._provider.wrong, seed))
            wrong = sum(self._backend.gather(mine, f"checking {self._work}"))
            if wrong:
                break
        self._checked = True
        return wrong

    def _bind(self, case: Case) -> None:
        if case != self._bound:
            self._bound = case
            self._backend.exchange.together(lambda: self._provider.bind(case), f"preparing {self._work}")

    def _run(self, doing: str, call: Callable[[], T]) -> T:
        return self._backend.run(f"{doing} {self._work}", call)
