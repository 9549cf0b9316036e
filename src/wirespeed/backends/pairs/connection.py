"""The two ends of a job with what connects them: their memory, and the messages between them.

Every step ends with an exchange among all processes, so that a failure at one end is a failure in all of
them. If a message fails, the other end may wait forever, so the job ends.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

from ...errors import BackendError, Unreachable, WirespeedError
from ...hardware.topology import Machine
from ...model import Engine, MemoryKind
from ...options import RunOptions
from ..distributed.exchange import Exchange
from ..provider import NO_CPU, current_cpu, sharing
from .base import Ends, PairMemory, Wire


class Connection:
    """What this process has of the two ends.

    Attributes:
        exchange, machine, local, options, grace: As in ``PairsBackend``.
        warn: Receives warnings.

    Attributes:
        ends: The two ranks that measure.
        tried: Mechanisms of sharing that are known to work, with the kind of memory.
    """

    def __init__(
        self, exchange: Exchange, machine: Machine, local: Machine, options: RunOptions, grace: float,
        warn: Callable[[str], None],
    ) -> None:  # fmt: skip
        self.exchange, self.ends = exchange, Ends.of(exchange.world)
        self.tried: set[tuple[str, MemoryKind]] = set()
        self._machine, self._local, self._options, self._grace = machine, local, options, grace
        self._warn = warn
        self._places: dict[MemoryKind, PairMemory] = {}
        self._opened: set[MemoryKind] = set()
        self._wires: dict[tuple[Engine, MemoryKind], Wire | None] = {}
        self._refused: dict[tuple[Engine, MemoryKind], str | None] = {}

    @property
    def measures(self) -> bool:
        """Whether this process is one of the two ends."""
        return self.ends.first or self.ends.last

    def open(self, kind: MemoryKind) -> None:
        """Open the memory of a kind at both ends; all processes do it together."""
        if kind not in self._opened:
            self.exchange.together(lambda: self._open(kind), f"opening {kind} memory of both ends")
            self._opened.add(kind)

    def _open(self, kind: MemoryKind) -> None:
        if self.measures:
            self.place(kind)

    def place(self, kind: MemoryKind) -> PairMemory:
        """The memory of a kind in this process; the first call opens it."""
        if kind not in self._places:
            if kind is MemoryKind.DEVICE:
                from ..gpu.memory import GpuBuffers

                device = self._machine.ranks[self.ends.rank].device
                gpu = next(gpu for gpu in self._local.gpus if gpu.name == device)
                self._places[kind] = GpuBuffers(gpu, self._options.timeout)
            else:
                from ..host.backend import HostBuffers

                self._places[kind] = HostBuffers(self._options.timeout)
        return self._places[kind]

    def wire(self, engine: Engine, kind: MemoryKind) -> Wire | None:
        """The connection of the two ends; None on ranks between them.

        Args:
            engine: MPI or NCCL.
            kind: Kind of the memory of the messages.

        Raises:
            Unreachable: If a process cannot send; the message has the reason of the first one.
        """
        key = engine, kind
        if key not in self._refused:
            answers = self.exchange.together(lambda: self._ask(engine, kind), f"checking {engine}")
            reasons = zip(self.exchange.world.members, answers, strict=True)
            self._refused[key] = next(
                (f"{member}: {reason}" for member, (reason, _) in reasons if reason), None
            )
            if not self._refused[key]:
                self.moving(lambda: self._connect(engine, kind, answers[0][1]), f"connecting {engine}")
        if reason := self._refused[key]:
            raise Unreachable(reason)
        return self._wires.get(key)

    def _ask(self, engine: Engine, kind: MemoryKind) -> tuple[str, bytes]:
        """Why this process cannot send (empty if it can), and the identifier for the other end."""
        measures = self.measures
        if engine is Engine.NCCL:
            from ..nccl.channel import refuses

            return refuses(self.ends.rank) if measures else ("", b"")
        reason = self._refused_by_mpi() or ""
        if not reason and measures and kind is MemoryKind.DEVICE:
            from ..gpu.device import unaware

            reason = unaware(self.place(kind).where.gpu, self._options.timeout)
        return reason, b""

    def _refused_by_mpi(self) -> str | None:
        """Why MPI cannot carry the messages of this job; None if it can."""
        from ...worlds import by_mpi
        from ...worlds.launchers import mpirun
        from ...worlds.mpi import library

        start = f"start the job with {mpirun('wirespeed ...', 2)}, or srun"
        if not by_mpi():
            return f"the processes were not started by MPI; {start}"
        try:
            size = library().COMM_WORLD.Get_size()
        except WirespeedError as error:
            return str(error)
        if size != self.ends.size:
            return f"MPI has {size} ranks, but this job has {self.ends.size}; {start}"
        return None

    def _connect(self, engine: Engine, kind: MemoryKind, identifier: bytes) -> None:
        if not self.measures:
            return
        wire: Wire
        if engine is Engine.MPI:
            from ...worlds.mpi import library
            from .libraries import MpiWire

            wire = MpiWire(library(), self.ends)
        else:
            from ..nccl.channel import NcclMessages, functions
            from .libraries import NcclWire

            place = self.place(kind)
            place.where.use()
            messages = NcclMessages(2, 0 if self.ends.first else 1, identifier)
            wire = NcclWire(messages, functions(place.where.driver), self.ends.first, cast(Any, place))
        self._wires[engine, kind] = wire

    def moving(self, call: Callable[[], object], doing: str, engine: Engine = Engine.NCCL) -> list[Any]:
        """Run a step that needs the other end, and return the results of all processes.

        Args:
            call: The step in this process.
            doing: The activity and its object, to be read after "while".
            engine: The engine of messages that are timed; MPI keeps a CPU busy, which ends should not share.

        Raises:
            BackendLost: If it fails, because the other end may wait forever.
        """
        try:
            mine = call()
        except BackendError as error:
            self.exchange.world.fail(f"{self.exchange.world.me} failed while {doing}: {error}")
            raise self.exchange.lose(error) from error
        cpu = current_cpu() if engine is Engine.MPI and self.measures else NO_CPU
        everyone = self.exchange.gather([mine, cpu], doing, self._grace)
        for text in sharing(self.exchange.world.members, [[cpu] for _, cpu in everyone]):
            self._warn(text)
        return [value for value, _ in everyone]

    def libraries(self) -> dict[str, str]:
        """The versions of the libraries that carry the messages."""
        return {k: v for wire in self._wires.values() if wire for k, v in wire.libraries().items()}

    def close(self) -> None:
        """Close the connections, and free all memory."""
        for wire in self._wires.values():
            if wire is not None:
                wire.close()
        for place in self._places.values():
            place.close()
