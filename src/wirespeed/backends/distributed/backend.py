"""The backend of a job: all processes prepare, start and verify the same Measurement together. Every step
ends in an exchange of its outcome, so all processes decide from the same values, even when to stop.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress

import msgspec
from msgspec.structs import replace

from ...errors import BackendError, BackendLost, OutOfMemory, Unreachable, WirespeedError
from ...hardware.devices import GPU, kind_of
from ...hardware.topology import Machine
from ...measurement import Measurement
from ...model import Engine, Memory, Operation, Role, Transfer
from ...options import RunOptions
from ...tables import State
from ...worlds.base import World
from ...worlds.descriptors import Descriptors
from ...worlds.mpi import in_use
from ..base import Backend, BackendDetails
from .exchange import Exchange, JobBackend
from .job_process import TWO_SIDED, Endpoint, JobContext
from .prepared import DistributedPrepared, Running
from .shared_pool import SharedBufferPool
from .synchronised_start import SynchronisedStart, share_page
from .transport_selection import TransportSelector

#: Interval at which the state of the other hosts is read.
_STATE_INTERVAL_S = 5.0


class DistributedBackend(JobBackend):
    """Backend for transfers between the processes of a World.

    Attributes:
        world: The processes.
        machine: The machine of all ranks, the same in every process.
        local: The backends of this process.
        options: Options, the same in every process.
        grace: Time in which the processes find out which one is late, in s.
    """

    name = "ranks"
    sample_seconds: float  #: long compared with the clock of this hardware and with the start skew

    def __init__(
        self,
        world: World,
        machine: Machine,
        local: Sequence[Backend],
        options: RunOptions,
        grace: float = 0.0,
    ) -> None:
        super().__init__()
        self.world, self.processes = world, world.size
        self.rank = world.rank
        self.hosts = [member.host for member in world.members]
        self._speaks = self.hosts.index(self.hosts[self.rank]) == self.rank
        self.exchange = Exchange(world, self.cancel)
        self._machine, self._options = machine, options
        self._local = tuple(local)
        device = machine.ranks[self.rank].device
        self._own = next((backend for backend in local if backend.holds(device)), None)
        self.sample_seconds = self._own.sample_seconds if self._own else 0.0
        self._running: Running | None = None
        self._side: Endpoint | None = None
        self._warned: set[str] = set()
        self._looked = -_STATE_INTERVAL_S
        self._elsewhere: State = ()
        world.timeout = options.timeout + grace / 2

    @property
    def running(self) -> Running:
        """Resources of this process; they exist once a Measurement was prepared."""
        assert self._running is not None
        return self._running

    def refuses(self, measurement: Measurement) -> str | None:
        """Why the Measurement cannot run in this job, None if it can; the same in all processes."""
        if not measurement.transfers:
            return ""  # other backends run what is no transfer
        for transfer in measurement.transfers:
            ends = (transfer.source, transfer.destination, transfer.executor)
            if any(end.rank is None for end in ends):
                return (
                    f"this is a job of {self.world.size} processes: only testcases between processes run "
                    "in it; start one process for the others"
                )
            if transfer.operation is not Operation.COPY or transfer.pace < 1:
                return f"{transfer}: between processes, only copies to one memory are possible"
            gpu = kind_of(transfer.executor.device) is GPU
            engines = (Engine.CE, Engine.SM, Engine.SM_BULK) if gpu else (Engine.CPU,)
            if transfer.engine not in engines:
                return f"{transfer}: this engine does not work between processes"
        return None

    def prepare(self, measurement: Measurement, options: RunOptions) -> DistributedPrepared:
        """Share the buffers by the best transports that work, and bind each process' part."""
        del options  # those of the job
        self.exchange.check()
        if self._running is None:
            try:
                self._running = self._come_together()
            except WirespeedError as error:
                raise self.exchange.lose(error) from error
        self._look_elsewhere()
        again = True
        while True:
            means = tuple(self.running.choice.of(transfer) for transfer in measurement.transfers)
            for transfer, by in zip(measurement.transfers, means, strict=True):
                if by in TWO_SIDED and transfer.role is Role.LOAD:
                    raise Unreachable(
                        f"{transfer}: messages by {by} are no load; copies through shared memory can be"
                    )
            prepared = DistributedPrepared(self.exchange, self.running, measurement, means)
            try:
                failures = prepared.set_up()
            except OutOfMemory:
                prepared.__exit__()
                if not again:
                    raise
                again = False
                self._free_buffers()
                continue
            except BaseException:
                prepared.__exit__()
                raise
            if not failures:
                return prepared
            prepared.__exit__()
            for index, reason in failures:
                self.running.choice.fails(measurement.transfers[index], means[index], reason)

    def state(self) -> State:
        """The state of this host, the last known state of the others, and the start skew."""
        skew = self._running.start.state() if self._running else ()
        return *self._here(), *self._elsewhere, *skew

    def _here(self) -> State:
        return tuple(quantity for backend in self._local for quantity in backend.state())

    def observe(self, transfers: Sequence[Transfer]) -> None:
        """Look at the links of this host while data moves."""
        mine = self.hosts[self.rank]
        here = [t for t in transfers if {self._host(t.source), self._host(t.destination)} == {mine}]
        for backend in self._local:
            backend.observe(here)

    def _host(self, end: Memory) -> str:
        return self.hosts[end.rank or 0]

    def counters(self) -> State:
        """The slow counters of this host, which its first process reports."""
        if not self._speaks:
            return ()
        return tuple(quantity for backend in self._local for quantity in backend.counters())

    def describe(self) -> BackendDetails:
        """The facts that the backends of this process found while they measured."""
        return BackendDetails(facts=tuple(f for backend in self._local for f in backend.describe().facts))

    def _look_elsewhere(self) -> None:
        """Read the state of the other hosts, every few seconds; all processes do it together."""
        if len(set(self.hosts)) == 1 or self.exchange.now < self._looked + _STATE_INTERVAL_S:
            return
        here = self._here() if self._speaks else ()
        everyone = self.exchange.gather(here, "reading the state of all hosts")
        self._elsewhere = tuple(
            replace(quantity, host=host)
            for host, state in zip(self.hosts, everyone, strict=True) if host != self.hosts[self.rank]
            for quantity in msgspec.convert(state, State)
        )  # fmt: skip
        self._looked = self.exchange.now

    def libraries(self) -> dict[str, str]:
        return in_use() | {k: v for backend in self._local for k, v in backend.libraries().items()}

    def cancel(self) -> None:
        """Release everything that waits in this process; the Measurement then fails in all processes."""
        if self._side is not None:
            self._side.cancel()

    def close(self) -> None:
        """Release all resources; buffers in order, while all processes still exist."""
        self.exchange.close()
        if self._running is not None:
            if not self.exchange.lost:
                with suppress(BackendLost):  # then no process uses the memory of another
                    self._free_buffers()
                    self.running.side.close()
            self.running.descriptors.close()
        for backend in self._local:
            backend.close()

    def drain_warnings(self) -> tuple[str, ...]:
        """The warnings since the last call, with the worst start skew since then."""
        return *super().drain_warnings(), *(self._running.start.drain_warnings() if self._running else ())

    def _say(self, text: str) -> None:
        """Add a warning, once in the job."""
        if text not in self._warned:
            self._warned.add(text)
            self.warn(text)

    def _come_together(self) -> Running:
        """Share the page of the gate, open the hardware, compare clocks and measure the skew."""
        descriptors = Descriptors()
        try:
            return self._joined(descriptors)
        except BaseException:
            descriptors.close()
            raise

    def _joined(self, descriptors: Descriptors) -> Running:
        page = share_page(self.exchange, descriptors, self._options.timeout)
        mine = self._machine.ranks[self.rank]
        here = [rank for rank, host in enumerate(self.hosts) if host == self.hosts[self.rank]]

        def open_side() -> list[str]:
            if self._own is None:
                raise BackendError(f"no backend of this process moves the memory of {mine.device}")
            place = (here.index(self.rank), len(here))
            job = JobContext(self.world, descriptors, page, place, mine.device, mine.cpus, self._options)
            self._side = self._own.side(job)
            return list(self._own.drain_warnings())

        by_rank = self.exchange.together(open_side, "opening the devices of all ranks")
        for member, warnings in zip(self.world.members, by_rank, strict=True):
            for text in warnings:
                self._say(f"rank {member.rank} on {member.host}: {text}")
        if self._options.all_engines or self._options.virtual_memory:
            self._say("between processes a copy uses one copy engine, and its memory is that of --transport")
        assert self._side is not None
        start = SynchronisedStart(self.exchange, self._side)
        self.sample_seconds = max(self.sample_seconds, start.sample_seconds)
        choice = TransportSelector(self.exchange, self._side, self._options.share, self._say)
        return Running(self._side, SharedBufferPool(self._side), start, choice, descriptors)

    def _free_buffers(self) -> None:
        """Free all buffers in all processes, after all have closed the buffers of others."""
        self.exchange.together(self.running.pool.close_opened, "closing buffers")
        self.exchange.together(self.running.pool.free, "freeing buffers")
