"""The backend of a job: all processes prepare, start and verify the same Measurement together.

Every step ends in an exchange in which each process says how it went, so that all go on in the same
way: whatever is decided, by the stop rule too, is decided from values that all have.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any, TypeVar

from ...errors import BackendError, BackendLost, MeasurementTimeout, Unreachable, WirespeedError
from ...model import Engine, Measurement, Operation, Role, Transfer
from ...results.document import SKEW
from ...statistics import summarise
from ...topology import Machine
from ...worlds.base import RankLost, World, WorldError
from ...worlds.clocks import Clocks, compare
from ...worlds.descriptors import Descriptors, SharedMemory, fetch
from ..base import Backend, RunOptions
from .base import Job, Joining, Side
from .means import FAR, MPI, NCCL, TWO_SIDED
from .messages import OutOfMemory, heard, told
from .pool import SharedPool
from .prepared import RanksPrepared

_PAGE = 4096
_LOOK = 0.1
#: Rounds in which the skew of the gate is measured.
_ROUNDS = 9
#: A skew is small against a sample that lasts so many times as long.
_SMALL = 100
#: A skew beyond this part of a sample is told.
_TOO_FAR = 0.05

T = TypeVar("T")


class RanksBackend:
    """Runs transfers between the processes of a World.

    Parameters
    ----------
    machine
        The machine of all ranks, the same in every process.
    local
        The backends of this process.
    share
        By what means alone memory is shared; None: the best that works for each pair.
    """

    name = "ranks"
    sample_seconds: float  #: for the clock of this hardware, and so that the skew is small against it

    def __init__(
        self, world: World, machine: Machine, local: Sequence[Backend], share: str | None, options: RunOptions
    ) -> None:
        self.warnings: list[str] = []
        self.world = world
        self.machine = machine
        self.options = options
        self.rank = world.rank
        self.hosts = [member.host for member in world.members]
        self.leader = self.rank == self.hosts.index(self.hosts[self.rank])
        self.clocks = Clocks((0,) * world.size, (0,) * world.size)
        self.skews: list[float] = []
        self._share = share
        self._local = tuple(local)
        device = machine.ranks[self.rank].device
        found = [b for b in local if isinstance(b, Joining) and b.holds(device)]
        self._own: Any = found[0] if found else None
        self.sample_seconds = found[0].sample_seconds if found else 0.0
        self._job: Job | None = None
        self._side: Side | None = None
        self._pool: SharedPool | None = None
        self._failed: dict[tuple[int, int, str], str] = {}
        self._messages: dict[str, str] = {}
        self._said: set[str] = set()
        self._states: list[dict[str, float | str]] = []
        self._now = 0.0
        self._lost = ""
        self._apart, self._worst = "", 0.0
        self._closed = threading.Event()
        world.timeout = options.timeout + options.grace / 2

    # What it is.

    @property
    def side(self) -> Side:
        """This process' hardware."""
        assert self._side is not None
        return self._side

    @property
    def pool(self) -> SharedPool:
        """The buffers of this process, and those that it has opened."""
        assert self._pool is not None
        return self._pool

    def refuses(self, measurement: Measurement) -> str | None:
        """Return why the Measurement cannot run in this job, None if it can; the same in all processes."""
        for transfer in measurement.transfers:
            ends = (transfer.source, transfer.destination, transfer.executor)
            if any(end.rank is None for end in ends):
                return (
                    f"this is a job of {self.world.size} processes: only testcases between processes run "
                    "in it; start one process for the others"
                )
            if transfer.operation is not Operation.COPY or transfer.role is not Role.MEASURED:
                return f"{transfer}: between processes there are copies that are measured, and nothing else"
            gpu = transfer.executor.device.startswith("gpu")
            engines = (Engine.CE, Engine.SM, Engine.SM_BULK) if gpu else (Engine.CPU,)
            if transfer.engine not in engines:
                return (
                    f"{transfer}: {transfer.executor.device} has no engine {transfer.engine} for other ranks"
                )
        return None

    def now(self) -> float:
        """Rank 0's clock as of the last exchange: the same in all processes."""
        return self._now

    def state(self) -> dict[str, float | str]:
        """Return the state of this process' hardware, and how far apart the processes start."""
        state = {name: value for backend in self._local for name, value in backend.state().items()}
        if self.skews:
            skew = summarise(self.skews)
            state |= {SKEW: skew.median, "skew of the gate, largest [s]": skew.max}
        return state

    def libraries(self) -> dict[str, str]:
        """Return the versions of what this process measures with."""
        return {k: v for backend in self._local for k, v in backend.libraries().items()}

    # What it does.

    def prepare(self, measurement: Measurement, options: RunOptions) -> RanksPrepared:
        """Share the buffers of a Measurement by the best means that works, and bind what each enqueues.

        Raises
        ------
        BackendError
            If no means works for a pair, or something else fails, in any process.
        BackendLost
            If a process is gone.
        """
        if self._lost:
            raise BackendLost(self._lost)
        if self._job is None:
            self._start()
        again = True
        while True:
            means = tuple(self._means(transfer) for transfer in measurement.transfers)
            prepared = RanksPrepared(self, measurement, means)
            try:
                failures = prepared.set_up()
            except OutOfMemory:
                prepared.close()
                if not again:
                    raise
                again = False
                self.free_buffers()
                continue
            except BaseException:
                prepared.close()
                raise
            if not failures:
                return prepared
            prepared.close()
            for index, reason in failures:
                self._fails(measurement.transfers[index], means[index], reason)

    def cancel(self) -> None:
        """Let what waits in this process go; all processes then fail the Measurement."""
        if self._side is not None:
            self._side.cancel()

    def close(self) -> None:
        """Give everything back, in order where all processes are still there."""
        self._closed.set()
        if self._side is not None and not self._lost:
            with suppress(BackendLost):  # then nobody uses anybody's memory any more
                self.free_buffers()
                self._side.close()
        if self._job is not None:
            self._job.descriptors.close()
        for backend in self._local:
            backend.close()

    def gather(self, value: object, doing: str) -> list[Any]:
        """Give all processes the values of all.

        Raises
        ------
        BackendLost
            If one is gone, does not come, or does something else.
        """
        if self._lost:
            raise BackendLost(self._lost)
        try:
            everyone = self.world.allgather([time.monotonic(), value], doing)
        except (RankLost, WorldError, MeasurementTimeout) as error:
            self._lost = self._lost or str(error)
            raise BackendLost(self._lost) from error
        self._now = everyone[0][0]
        return [value for _, value in everyone]

    def together(self, call: Callable[[], object], doing: str) -> list[Any]:
        """Do something in this process and return what all have; an error in one is raised in all."""
        mine: list[Any]
        try:
            mine = [None, call()]
        except WirespeedError as error:
            mine = [told(error), None]
        everyone = self.gather(mine, doing)
        for member, (found, _) in zip(self.world.members, everyone, strict=True):
            if found:
                if found[0] == "lost":
                    self._lost = f"{member}: {found[1]}"
                raise heard(str(member), found)
        return [value for _, value in everyone]

    def free_buffers(self) -> None:
        """Let all buffers go, in all processes: first what was opened, then what it belongs to."""
        self.together(self.pool.close_opened, "closing buffers")
        self.together(self.pool.free, "freeing buffers")

    def arriving(self, transfers: Sequence[Transfer]) -> int:
        """Return how many arrive at this host's gate."""
        here = {rank for rank, host in enumerate(self.hosts) if host == self.hosts[self.rank]}
        by_messages = [t for t in transfers if t.engine in TWO_SIDED]
        messengers = here & {rank for t in by_messages for rank in (t.source.rank, t.destination.rank)}
        executed = [t for t in transfers if t not in by_messages and t.executor.rank in here]
        return self.side.threads(executed, len(messengers))

    def open_gate(self, armed: Sequence[int], arriving: int) -> int:
        """Open this host's gate when all are ready; return how late that was, in ns.

        Parameters
        ----------
        armed
            When each process was ready, by rank 0's clock, in ns.
        """
        if not self.leader:
            return 0
        if len(self.world.hosts) == 1:
            self.side.release(arriving)
            return 0
        moment = max(armed) + self.clocks.lead + self.clocks.offsets[self.rank]
        while (left := moment - time.monotonic_ns()) > 0:
            if left > 2_000_000:
                time.sleep(left / 2e9)
        self.side.release(arriving)
        return time.monotonic_ns() - moment

    def clock(self) -> int:
        """Return rank 0's clock, as well as it is known here, in ns."""
        return time.monotonic_ns() - self.clocks.offsets[self.rank]

    def apart(self, skew: float, wall: float) -> None:
        """Say once for each testcase, of its worst Measurement, that hosts started too far apart."""
        if skew <= _TOO_FAR * wall or (skew / wall <= self._worst and self._apart in self.warnings):
            return
        if self._apart in self.warnings:
            self.warnings.remove(self._apart)
        self._worst = skew / wall
        self._apart = (
            f"hosts started {skew * 1e6:.0f} µs apart in samples of {wall * 1e3:.2g} ms: what should run at "
            "the same time did not quite"
        )
        self.warnings.append(self._apart)

    def warn(self, text: str) -> None:
        """Say something once."""
        if text not in self._said:
            self._said.add(text)
            self.warnings.append(text)

    # Setting up.

    def _start(self) -> None:
        """Share the page of the gate, open the hardware, compare clocks, measure the skew."""
        descriptors = Descriptors()
        page = SharedMemory.create(_PAGE) if self.leader else None
        offer = [descriptors.address, descriptors.offer(os.dup(page.descriptor))] if page else None
        offers = self.gather(offer, "sharing the page of the gate")
        first = self.hosts.index(self.hosts[self.rank])
        mine = [rank for rank, host in enumerate(self.hosts) if host == self.hosts[self.rank]]

        def begin() -> None:
            nonlocal page
            if page is None:
                page = SharedMemory(fetch(offers[first][0], offers[first][1], self.options.timeout), _PAGE)
            if self._own is None:
                device = self.machine.ranks[self.rank].device
                raise BackendError(f"no backend of this process moves the memory of {device}")
            place = (mine.index(self.rank), len(mine))
            mine_ = self.machine.ranks[self.rank]
            self._job = Job(self.world, descriptors, page, place, mine_.device, mine_.cpus, self.options)
            self._side = self._own.side(self._job)
            self._pool = SharedPool(self._side)

        threading.Thread(target=self._watch, name="watch ranks", daemon=True).start()
        self.together(begin, "opening the devices of all ranks")
        self._hear_warnings()
        try:
            self.clocks = compare(self.world)
        except WirespeedError as error:
            self._lost = str(error)
            raise BackendLost(self._lost) from error
        for _ in range(_ROUNDS + 1):
            self._measure_skew(len(mine))
        del self.skews[:1]  # the first round loads what is needed for it
        self.sample_seconds = max(self.sample_seconds, _SMALL * summarise(self.skews).median)

    def _hear_warnings(self) -> None:
        """Say what the hardware of any process warns of, and what of the options does not apply."""
        said = self.together(lambda: list(self._own.warnings), "gathering warnings")
        for member, warnings in zip(self.world.members, said, strict=True):
            for text in warnings:
                self.warn(f"rank {member.rank} on {member.host}: {text}")
        if self.options.all_engines or self.options.virtual_memory:
            self.warn(
                "between processes a copy uses one copy engine, and memory as its means has it (--share)"
            )

    def _measure_skew(self, here: int) -> None:
        """Let all processes wait at their gate for nothing, and compare when they were let go."""

        def armed() -> int:
            self.side.begin()
            self.side.arrive()
            return self.clock()

        times = self.together(armed, "measuring the skew of the gate")

        def arrived() -> int:
            self.open_gate(times, here)
            return self.side.arrived() - self.clocks.offsets[self.rank]

        moments = self.together(arrived, "gathering the skew of the gate")
        self.skews.append((max(moments) - min(moments)) * 1e-9 + self.clocks.error)

    def _watch(self) -> None:
        """Let what waits in this process go as soon as another one is gone."""
        while not self._closed.wait(_LOOK):
            try:
                self.world.check()
            except RankLost as error:
                self._lost = self._lost or str(error)
                self.cancel()
                return

    def _means(self, transfer: Transfer) -> str:
        """Return the best means for a transfer that has not failed; the same in all processes.

        Raises
        ------
        Unreachable, BackendError
            If there is none left; with what became of each. It is an error where the user chose.
        """
        source, destination = transfer.source.rank, transfer.destination.rank
        assert source is not None and destination is not None
        if source == destination:
            return self.side.plain
        near = self.hosts[source] == self.hosts[destination]
        reasons = []
        for means in self._candidates(transfer):
            if means in TWO_SIDED:
                reason = self._can_send(means)
            elif means not in self.side.means:
                reason = "this hardware has no such thing"
            elif not near and means not in FAR:
                reason = "it does not reach another host"
            else:
                reason = self._failed.get((source, destination, means), "")
            if not reason:
                return means
            reasons.append(f"{means}: {reason}")
        where = "within a host" if near else "with another host"
        text = f"memory cannot be shared {where}: {'; '.join(reasons)}"
        raise Unreachable(text) if self._share is None else BackendError(text)

    def _candidates(self, transfer: Transfer) -> tuple[str, ...]:
        if self._share is not None:
            return (self._share,)
        gpu = transfer.executor.device.startswith("gpu")
        return (*self.side.means, *((NCCL, MPI) if gpu else (MPI,)))

    def _can_send(self, means: str) -> str:
        """Return why messages cannot be sent by a means; found out once, by all."""
        if means not in self._messages:
            everyone = self.together(lambda: self.side.can_send(means), f"asking for {means}")
            found = [
                f"{member}: {reason}"
                for member, (reason, _) in zip(self.world.members, everyone, strict=True)
                if reason
            ]
            self._messages[means] = found[0] if found else ""
            if not found:
                try:
                    self.together(
                        lambda: self.side.connect(means, [told for _, told in everyone]),
                        f"connecting {means}",
                    )
                except BackendLost:
                    raise
                except WirespeedError as error:
                    self._messages[means] = str(error)
        return self._messages[means]

    def _fails(self, transfer: Transfer, means: str, reason: str) -> None:
        """Note that a means does not work for a pair; what was opened one way is tried the other way too."""
        source, destination = transfer.source.rank, transfer.destination.rank
        assert source is not None and destination is not None
        self._failed[source, destination, means] = reason
        if self._share is None:
            self.warn(f"{means} does not work between ranks {source} and {destination}, the next means is "
                      f"used: {reason}")  # fmt: skip
