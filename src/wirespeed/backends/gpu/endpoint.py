"""A GPU in a job of several processes: exported buffers, and a gate in shared memory."""

from __future__ import annotations

import ctypes
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

from ...errors import BackendError, MeasurementTimeout, starting_threads
from ...measurement import Measurement
from ...model import Engine, Memory, Transfer
from ...units import NANO
from ...worlds.mpi import Messages, MessagesRefused, Move
from ..distributed.endpoint import LINE, JobContext, LocalTransfer, TransferTiming
from ..distributed.exchange import MPI, NCCL, TWO_SIDED
from ..shared_memory import Mechanism
from ..test_data import keys_of
from .bound_copy import Binder, BoundCopy, Buffers
from .device import Device, Peers, TimedStream, unaware
from .gate import Gate, GateKind, SignalPage, Ticks
from .gpu_driver import FABRIC, IPC, VMM_FD
from .launch_config import unfit
from .memory import DescriptorSharing, FabricSharing, GpuBuffer, GpuBufferPool, IpcSharing
from .prepared import GpuPrepared, Signals
from .stream_ops import Contents

if TYPE_CHECKING:
    from ..nccl.channel import NcclMessages


class GpuEndpoint:
    """The GPU of one process."""

    #: On one host the first two are as fast as the third and need no permission. The first is also fast if a
    #: process does not see the other's GPU; copy engines were 6 % slower with the second.
    means: tuple[str, ...] = (IPC, VMM_FD, FABRIC)
    plain = IPC

    def __init__(
        self, job: JobContext, device: Device, contents: Contents, kind: GateKind, pool: GpuBufferPool
    ) -> None:
        self.device, self.contents, self.pool, self.options = device, contents, pool, job.options
        self.signals = Signals()
        self.gate = Gate(kind, device, job.options.timeout, job.page)
        self.messenger: Messages | None = None
        self.nccl: NcclMessages | None = None
        self._world = job.world
        self._sharings: dict[str, Mechanism] = {
            VMM_FD: DescriptorSharing(job.descriptors, job.options.timeout),
            IPC: IpcSharing(),
            FABRIC: FabricSharing(),
        }
        self._offset = LINE * (1 + job.place[0])
        self._seen = ctypes.c_uint32.from_address(job.page.address + self._offset)
        self._lane = TimedStream(device)
        self._rounds = 0
        self._kind = kind
        self._ticks: Ticks | None = None

    def ticks(self) -> Ticks:
        """The clock for start offsets and rates."""
        if self._ticks is None:
            self._ticks = Ticks(SignalPage(self._kind, self.device, self.options.timeout))
        return self._ticks

    def sharing(self, means: str) -> Mechanism:
        """A mechanism for sharing memory."""
        return self._sharings[means]

    def place(self, memory: Memory) -> Any:
        """The GPU: it holds or uses every buffer of this process."""
        del memory
        return self.device

    def can_send(self, means: str) -> tuple[str, bytes]:
        """Why NCCL or MPI cannot move memory of this GPU, and NCCL's identifier."""
        if means == NCCL:
            from ..nccl.channel import refuses

            return refuses(self._world.rank)
        try:
            self.messenger = Messages(self._world)
        except MessagesRefused as error:
            return str(error), b""
        return unaware(self.device.gpu, self.options.timeout), b""

    def connect(self, means: str, told: Sequence[bytes]) -> None:
        """Connect NCCL; MPI is connected when it starts."""
        if means == NCCL:
            from ..nccl.channel import NcclMessages

            self.device.use()
            self.nccl = NcclMessages(self._world.size, self._world.rank, told[0])

    def part(self, pieces: Sequence[LocalTransfer]) -> GpuPart:
        """Bind the pieces of a Measurement."""
        self.signals.cancelled.clear()
        return GpuPart(self, pieces)

    def begin(self) -> None:
        """Close the gate."""
        self.gate.close_all()

    def threads(self, transfers: Sequence[Transfer], messengers: int) -> int:
        """0: waiting streams are not counted."""
        del transfers, messengers
        return 0

    def release(self, arriving: int) -> None:
        """Open the gate of all processes of this host."""
        del arriving
        self.gate.release()

    def arrive(self) -> None:
        """Let the GPU write a word behind the gate."""
        self._rounds += 1
        self.device.use()
        self.gate.hold(self.device, self._lane.stream)
        self.gate.tell(self.device, self._lane.stream, self._offset, self._rounds)

    def arrived(self) -> int:
        """When this process saw that word, in ns."""
        end = time.monotonic() + self.options.timeout
        while self._seen.value != self._rounds:
            if time.monotonic() > end or self.signals.cancelled.is_set():
                raise MeasurementTimeout("waiting at the start barrier without work", self.options.timeout)
        return time.monotonic_ns()

    def wait(self) -> None:
        """Wait for the release in a host thread.

        Raises:
            BackendError: If it was cancelled, or the gate was not opened in time.
        """
        end = time.monotonic() + self.options.timeout
        while not self.gate.is_open:
            if time.monotonic() > end:
                raise MeasurementTimeout("waiting at the start barrier of this host", self.options.timeout)
            time.sleep(0)  # let other threads run
        if self.signals.cancelled.is_set():
            raise BackendError("the copies were cancelled")

    def cancel(self) -> None:
        """Release the streams of this process, and those of others, whose measurement is void too."""
        self.signals.cancelled.set()
        self.gate.abandon()

    def close(self) -> None:
        """Release what does not belong to the backend."""
        if self.signals.stuck.is_set():
            return
        if self.nccl is not None:
            self.nccl.close()
        self._lane.destroy()
        self.gate.free()
        if self._ticks is not None:
            self._ticks.free()


class SharedBinder(Binder):
    """Bind transfers whose buffers exist, some of them in other processes.

    Attributes:
        pieces: The transfers of the Measurement, in its order, with the addresses of their buffers.
    """

    def __init__(self, side: GpuEndpoint, pieces: Sequence[LocalTransfer]) -> None:
        timed = any(p.moves and (p.transfer.is_paced or p.transfer.start) for p in pieces)
        super().__init__(
            side.pool, lambda _: side.device, lambda _: side.contents, side.options, Peers(),
            side.ticks() if timed else None,
        )  # fmt: skip
        self._side, self._pieces = side, pieces
        self._sent = [piece for piece in pieces if piece.means == NCCL]

    def bind(self, index: int, transfer: Transfer, engines: int, sharing: int = 1) -> BoundCopy:
        """Fill what this process owns and prepare what it enqueues; the first NCCL message stands for all."""
        del engines, sharing
        piece, device = self._pieces[index], self._side.device
        source, destination = (
            GpuBuffer(memory, False, address, 0, transfer.bytes, _nothing)
            for memory, address in (
                (transfer.source, piece.source),
                (transfer.destination, piece.destination),
            )
        )
        bound = BoundCopy(
            transfer, device, Buffers((source,), destination), amount=float(transfer.bytes),
            fills=piece.owns_source, verifies=piece.owns_destination,
        )  # fmt: skip
        keys = keys_of(self._options.seed, piece.index)[:2]
        self._fill(bound, keys)
        if piece in self._sent[:1]:
            from ..nccl.channel import Send

            assert self._side.nccl is not None
            lane = self._lane(device)
            moves = [Send(p.address, p.transfer.bytes, p.peer, p.owns_source) for p in self._sent]
            bound.lanes.append((lane, self._side.nccl.work(moves, lane)))
        elif piece.moves and piece.means not in TWO_SIDED:
            if reason := "" if transfer.engine is Engine.CE else unfit(transfer):
                raise BackendError(reason)
            self._work(bound, keys, 1)
        return bound


class GpuPart:
    """Part of a Measurement that one process executes, fills or verifies."""

    def __init__(self, side: GpuEndpoint, pieces: Sequence[LocalTransfer]) -> None:
        self._side, self._pieces = side, pieces
        self._sent = [p for p in pieces if p.means == NCCL]
        self._messages = [p for p in pieces if p.means == MPI]
        #: Transfers with work in streams; all NCCL messages are behind the first.
        self._streamed = [p for p in pieces if (p.moves and p.means not in TWO_SIDED) or p in self._sent[:1]]
        self._copies = 0
        self._moves = [
            Move(p.address, p.transfer.bytes, p.peer, p.index, p.owns_source) for p in self._messages
        ]
        self._runner = ThreadPoolExecutor(1, "messages")
        self._running: Future[list[TransferTiming]] | None = None
        self._prepared: GpuPrepared | None = None

    def fill(self) -> None:
        """Fill the sources and poison the destinations of this GPU, and bind what it enqueues."""
        side, pieces = self._side, self._pieces
        measurement = Measurement(tuple(piece.transfer for piece in pieces), ())
        binder = SharedBinder(side, pieces)
        self._prepared = GpuPrepared(
            measurement, [1] * len(pieces), binder, side.gate, side.signals, side.options
        )

    def repeat(self, times: Mapping[int, int]) -> None:
        """From now on, make the copies of some transfers several times."""
        assert self._prepared is not None
        self._prepared.repeat([times.get(piece.index, 1) for piece in self._pieces])

    def arm(self, copies: int) -> None:
        """Enqueue behind the gate, and start the thread that sends and receives with MPI."""
        assert self._prepared is not None
        self._copies = copies
        with starting_threads():
            self._running = self._runner.submit(self._send, copies) if self._moves else None
        self._prepared.arm(copies)

    def finish(self) -> list[TransferTiming]:
        """Wait for streams and threads."""
        assert self._prepared is not None
        sample = self._prepared.finish(self._copies)
        timings = [
            TransferTiming(sent_piece.index, seconds, amount, sample.wall)
            for piece, seconds, amount in zip(self._streamed, sample.seconds, sample.amounts, strict=True)
            for sent_piece in (self._sent if piece.means == NCCL else (piece,))
        ]
        timeout = self._side.options.timeout
        if self._running is not None:
            try:
                timings += self._running.result(timeout)
            except TimeoutError:
                raise MeasurementTimeout("sending and receiving by MPI", timeout) from None
        return timings

    def verify(self) -> None:
        """Verify the destinations of this GPU, and poison them again."""
        assert self._prepared is not None
        self._prepared.verify()

    def abandon(self) -> None:
        """Let all enqueued work run out."""
        self._side.cancel()
        if self._prepared is not None:
            self._prepared.abandon()
        if self._running is not None:
            self._running.exception(self._side.options.timeout)

    def close(self) -> None:
        """Release the streams."""
        self._runner.shutdown(wait=False)
        if self._prepared is not None:
            self._prepared.__exit__()

    def _send(self, copies: int) -> list[TransferTiming]:
        """Send and receive with MPI, starting at the release."""
        side = self._side
        assert side.messenger is not None
        side.device.use()
        side.wait()
        start = time.monotonic_ns()
        side.messenger.move(self._moves, copies)
        seconds = (time.monotonic_ns() - start) * NANO
        return [
            TransferTiming(p.index, seconds, float(p.transfer.bytes * copies), seconds)
            for p in self._messages
        ]


def _nothing() -> None:
    """Do nothing: the buffers belong to the pool of the job."""
