"""The backend of messages and of shared buffers: the first and the last rank measure, all take part.

Every step ends in an exchange, so that what fails at one end fails in all processes. Where a message is under
way that is not possible: the other end may wait for ever, so that the job ends.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

from ...document import State
from ...errors import BackendError, Unreachable, WirespeedError
from ...model import Engine, Measurement, MemoryKind, Message, Sharing
from ...topology import Machine
from ..base import BackendOptions, Prepared
from ..distributed.exchange import Exchange
from .base import Ends, PairMemory, Wire
from .message_patterns import PreparedMessages
from .sharing_phases import PreparedSharing


class PairsBackend:
    """Runs messages and the phases of sharing a buffer between two ranks of a job.

    Parameters
    ----------
    exchange
        With the other processes of the job.
    machine, local
        The machine of all ranks, and as this process sees its host.

    Attributes
    ----------
    tried
        Mechanisms of sharing that are known to work, and for which memory.
    """

    name = "pairs"
    sample_seconds = 5e-3  #: rounds are averaged over as long
    setup_s = 0.0
    can_cancel = False  # a message under way cannot be called back

    def __init__(self, exchange: Exchange, machine: Machine, local: Machine, options: BackendOptions) -> None:
        self.warnings: list[str] = []
        self.exchange, self.ends = exchange, Ends.of(exchange.world)
        self.tried: set[tuple[str, MemoryKind]] = set()
        self._machine, self._local, self._options = machine, local, options
        self._places: dict[MemoryKind, PairMemory] = {}
        self._opened: set[MemoryKind] = set()
        self._wires: dict[tuple[Engine, MemoryKind], Wire | None] = {}
        self._refused: dict[tuple[Engine, MemoryKind], str] = {}

    def refuses(self, measurement: Measurement) -> str | None:
        """Return None for messages and shared buffers; other backends run the rest."""
        return None if all(isinstance(work, Message | Sharing) for work in measurement.works) else ""

    def prepare(self, measurement: Measurement, options: BackendOptions) -> Prepared:
        """Find what carries the messages, and allocate what is used more than once.

        Raises
        ------
        Unreachable
            If nothing does, or the mechanism of sharing is refused.
        BackendError
            If something else fails, in any process.
        BackendLost
            If a process is gone.
        """
        del options  # those of the job
        self.exchange.check()
        work = measurement.works[0]
        kind = work.source.kind if isinstance(work, Message) else cast(Sharing, work).memory.kind
        if kind not in self._opened:
            self.exchange.together(lambda: self._open(kind), f"opening {kind} memory of both ends")
            self._opened.add(kind)
        if isinstance(work, Message):
            return PreparedMessages(self, measurement, work)
        return PreparedSharing(self, measurement, cast(tuple[Sharing, ...], measurement.works))

    @property
    def measures(self) -> bool:
        """Whether this process is one of the two ends."""
        return self.ends.first or self.ends.last

    def _open(self, kind: MemoryKind) -> None:
        if self.measures:
            self.place(kind)

    def place(self, kind: MemoryKind) -> PairMemory:
        """Return memory of this process."""
        if kind not in self._places:
            if kind is MemoryKind.DEVICE:
                from ..cuda.gpu_buffers import GpuBuffers

                device = self._machine.ranks[self.ends.rank].device
                gpu = next(gpu for gpu in self._local.gpus if gpu.name == device)
                self._places[kind] = GpuBuffers(gpu, self._options.timeout)
            else:
                from ..host.host_buffers import HostBuffers

                self._places[kind] = HostBuffers(self._options.timeout)
        return self._places[kind]

    def wire(self, engine: Engine, kind: MemoryKind) -> Wire | None:
        """Return what carries messages from a kind of memory; None on ranks between the ends.

        Raises
        ------
        Unreachable
            If nothing does, with the reason of the first process that has one.
        """
        key = engine, kind
        if key not in self._refused:
            answers = self.exchange.together(lambda: self._ask(engine, kind), f"asking for {engine}")
            reasons = zip(self.exchange.world.members, answers, strict=True)
            self._refused[key] = next(
                (f"{member}: {reason}" for member, (reason, _) in reasons if reason), ""
            )
            if not self._refused[key]:
                self.moving(lambda: self._connect(engine, kind, answers[0][1]), f"connecting {engine}")
        if self._refused[key]:
            raise Unreachable(self._refused[key])
        return self._wires.get(key)

    def _ask(self, engine: Engine, kind: MemoryKind) -> tuple[str, bytes]:
        """Return why this process cannot send, and what the other end needs to know to connect."""
        measures = self.measures
        if engine is Engine.NCCL:
            from ..nccl.channel import refuses

            return refuses(self.ends.rank) if measures else ("", b"")
        reason = self._refused_by_mpi()
        if not reason and measures and kind is MemoryKind.DEVICE:
            from ..cuda.mpi_aware import unaware

            reason = unaware(self.place(kind).where.ordinal, self._options.timeout)
        return reason, b""

    def _refused_by_mpi(self) -> str:
        from ...worlds import by_mpi
        from ...worlds.mpi import library
        from ...worlds.mpirun import mpirun

        start = f"start it with {mpirun('wirespeed ...', 2)}, or srun"
        if not by_mpi():
            return f"the processes were not started by MPI; {start}"
        try:
            size = library().COMM_WORLD.Get_size()
        except WirespeedError as error:
            return str(error)
        return f"MPI has {size} ranks, this job {self.ends.size}; {start}" if size != self.ends.size else ""

    def _connect(self, engine: Engine, kind: MemoryKind, identifier: bytes) -> None:
        if not self.measures:
            return
        wire: Wire
        if engine is Engine.MPI:
            from ...worlds.mpi import library
            from .mpi import MpiWire

            wire = MpiWire(library(), self.ends)
        else:
            from ..native import loaded
            from ..nccl.channel import NcclMessages
            from .nccl import NcclWire

            place = self.place(kind)
            place.where.use()
            messages = NcclMessages(2, 0 if self.ends.first else 1, identifier)
            wire = NcclWire(messages, loaded(), self.ends.first, cast(Any, place))
        self._wires[engine, kind] = wire

    def moving(self, call: Callable[[], object], doing: str) -> list[Any]:
        """Do what needs the other end, and return what all have.

        Raises
        ------
        BackendLost
            If it fails: the other end may wait for ever.
        """
        try:
            mine = call()
        except BackendError as error:
            self.exchange.world.fail(f"{self.exchange.world.me} failed while {doing}: {error}")
            raise self.exchange.lose(error) from error
        return self.exchange.gather(mine, doing, self._options.grace)

    def now(self) -> float:
        """Rank 0's clock as of the last exchange: the same in all processes."""
        return self.exchange.now

    def state(self) -> State:
        """Nothing is read."""
        return ()

    def libraries(self) -> dict[str, str]:
        """Return what carries the messages."""
        return {k: v for wire in self._wires.values() if wire for k, v in wire.libraries().items()}

    def cancel(self) -> None:
        """Nothing can be cancelled."""

    def interrupted(self) -> str:
        """After Ctrl-C: return which process is gone, if a launcher ended this one because of that."""
        return self.exchange.interrupted()

    def late(self, stage: str, seconds: float) -> WirespeedError:
        """Find out which process is late; the job ends."""
        error = self.exchange.world.late(stage, seconds)
        self.exchange.lose(error)
        return error

    def close(self) -> None:
        """Give everything back; not where a message may still be under way."""
        self.exchange.close()
        if not self.exchange.lost:
            for wire in self._wires.values():
                if wire is not None:
                    wire.close()
            for place in self._places.values():
                place.close()
