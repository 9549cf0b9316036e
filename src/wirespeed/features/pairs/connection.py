"""The two ends of a job with what connects them: their memory, and the messages between them. Every step ends
with an exchange among all processes, so that a failure at one end is a failure in all of them. If a message
fails, the other end may wait forever, so the job ends.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Protocol, cast

import numpy as np

from ...backends.cpu_sharing import NO_CPU, current_cpu, sharing
from ...backends.distributed.exchange import Exchange
from ...backends.distributed.job_process import Mechanism
from ...backends.test_data import key_of, words
from ...errors import BackendError, Unreachable, VerificationError, WirespeedError
from ...hardware.topology import Machine
from ...model import Engine, MemoryKind
from ...options import RunOptions
from ...worlds.base import World

#: Seed of the data that the two ends send.
_PATTERN_SEED = 20


@dataclass(frozen=True)
class Ends:
    """The two ranks that measure: the first one, which begins, and the last one.

    Attributes:
        rank: Rank of this process.
        size: Number of ranks of the job.
    """

    rank: int
    size: int

    @staticmethod
    def of(world: World) -> Ends:
        """The ends of a World."""
        return Ends(world.rank, world.size)

    @property
    def peer(self) -> int:
        """Rank of the other end."""
        return self.size - 1 if self.first else 0

    @property
    def first(self) -> bool:
        """Whether this process is the end that begins."""
        return self.rank == 0

    @property
    def last(self) -> bool:
        """Whether this process is the other end."""
        return self.rank == self.size - 1


class PairMemory(Protocol):
    """Host or GPU memory of one process.

    Attributes:
        where: Argument ``place`` of a ``Mechanism``: the GPU, or None for host memory.
    """

    where: Any

    def allocate(self, size: int) -> int:
        """Allocate ``size`` bytes and return their address.

        Raises:
            BackendError: If the memory is not available.
        """

    def free(self, address: int) -> None:
        """Free memory."""

    def write(self, address: int, data: Any) -> None:
        """Copy an array of bytes to an address, and wait for the copy."""

    def read(self, address: int, size: int) -> Any:
        """An array of ``size`` bytes from an address."""

    def copy(self, destination: int, source: int, size: int) -> None:
        """Copy ``size`` bytes between addresses of this memory, and wait for the copy."""

    def sharing(self, mechanism: str) -> Mechanism:
        """The mechanism with this name.

        Raises:
            BackendError: If this memory does not support it.
        """

    def close(self) -> None:
        """Free all memory."""


class Wire(Protocol):
    """A connection of the two ends; only they use it."""

    def libraries(self) -> dict[str, str]:
        """The versions of the libraries that carry the messages."""

    def one(self, address: int, size: int) -> float:
        """Send one message from the first to the last end, from a common start; return the time here, in s.

        At the last end, the time ends when the data has arrived.
        """

    def rounds(self, send: int, receive: int, size: int, count: int) -> float:
        """Make ``count`` round trips of a message; return the total time, in s.

        Each end sends from one buffer and receives in another, so that no cache holds what arrives.
        """

    def windows(self, send: int, receive: int, size: int, messages: int, both: bool, count: int) -> float:
        """Send windows of concurrent messages, each of which the last end answers unless it sends as well.

        Args:
            send, receive: Addresses of the buffers; all messages use the same ones.
            size: Size of a message, in bytes.
            messages: Number of messages in flight at the same time that the first end sends.
            both: Whether the last end sends as many.
            count: Number of windows.

        Returns:
            Total time, in s.
        """

    def close(self) -> None:
        """Close the connection."""


@lru_cache(maxsize=2)
def pattern(size: int, end: int) -> Any:
    """The array of bytes that an end sends; ``end`` is 0 for the first and 1 for the last."""
    data = words(key_of(_PATTERN_SEED, end), 0, -(-size // 8)).view(np.uint8)[:size]
    data.flags.writeable = False
    return data


def verify(place: PairMemory, address: int, size: int, end: int, work: str, way: str = "") -> None:
    """Compare received data with the data that an end sends.

    Args:
        place: Memory of the received data.
        address, size: Address and number of the received bytes.
        end: The end that sent: 0 for the first, 1 for the last.
        work, way: The work and its path, for the error.

    Raises:
        VerificationError: If a word differs.
    """
    wrong = np.unique(np.flatnonzero(place.read(address, size) != pattern(size, end)) // 8)
    if wrong.size:
        raise VerificationError(work, 8 * int(wrong[0]), int(wrong.size), -(-size // 8), way)


class Connection:
    """What this process has of the two ends.

    Args:
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
        self._refused: dict[tuple[Engine, MemoryKind], str] = {}

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
                from ...backends.gpu.sharing import GpuBuffers

                device = self._machine.ranks[self.ends.rank].device
                gpu = next(gpu for gpu in self._local.gpus if gpu.name == device)
                self._places[kind] = GpuBuffers(gpu, self._options.timeout)
            else:
                from ...backends.host.host_buffers import HostBuffers

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
            self._refused[key] = self.exchange.first(reason for reason, _ in answers)
            if not self._refused[key]:
                self.moving(lambda: self._connect(engine, kind, answers[0][1]), f"connecting {engine}")
        if reason := self._refused[key]:
            raise Unreachable(reason)
        return self._wires.get(key)

    def _ask(self, engine: Engine, kind: MemoryKind) -> tuple[str, bytes]:
        """Why this process cannot send (empty if it can), and the identifier for the other end."""
        measures = self.measures
        if engine is Engine.NCCL:
            from ...backends.nccl.library import refuses

            return refuses(self.ends.rank) if measures else ("", b"")
        reason = self._refused_by_mpi() or ""
        if not reason and measures and kind is MemoryKind.DEVICE:
            from ...backends.gpu.mpi_aware import unaware

            reason = unaware(self.place(kind).where.gpu, self._options.timeout)
        return reason, b""

    def _refused_by_mpi(self) -> str | None:
        """Why MPI cannot carry the messages of this job; None if it can."""
        from ...worlds.launchers import mpirun, started_by_mpi
        from ...worlds.mpi import library

        start = f"start the job with {mpirun('wirespeed ...', 2)}, or srun"
        if not started_by_mpi():
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

            wire = MpiWire(library(), self.ends.peer, self.ends.first)
        else:
            from ...backends.nccl.channel import NcclMessages
            from ...backends.nccl.library import functions
            from .libraries import NcclWire

            place = self.place(kind)
            place.where.use()
            messages = NcclMessages(2, 0 if self.ends.first else 1, identifier)
            native = functions(place.where.driver, messages.failed)
            wire = NcclWire(messages, native, self.ends.first, cast(Any, place))
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
