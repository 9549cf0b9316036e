"""A GPU in a job of several processes: exported buffers, and a gate in shared memory."""

from __future__ import annotations

import ctypes
import time
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

from ...errors import BackendError, MeasurementTimeout, VerificationError
from ...model import Measurement, Memory, MemoryKind, Operation, Sample, Transfer
from ...units import NANO
from ...worlds.mpi import Messages, MessagesRefused, Move
from ..distributed.endpoint import LINE, JobContext, LocalTransfer, TransferTiming
from ..distributed.transports import MPI, NCCL
from ..shared_memory import Mechanism
from .bound_copy import Binder, BoundCopy, Buffers
from .device import Device, Peers, TimedStream
from .driver import finished
from .fill_verify import Contents, Expected, Pattern, Region, key
from .gate import Gate, GateKind
from .ipc import FABRIC, IPC, VMM_FD, DescriptorSharing, FabricSharing, IpcSharing
from .launch_config import unfit
from .memory import GpuBuffer
from .mpi_aware import unaware
from .prepared import CudaPrepared, Signals

if TYPE_CHECKING:
    from ..nccl.channel import NcclMessages

_SLEEP = 1e-3


class CudaEndpoint:
    """The GPU of one process."""

    #: On one host the first two are as fast as the third and need no permission. The first is also fast if a
    #: process does not see the other's GPU; copy engines were 6 % slower with the second.
    means = (IPC, VMM_FD, FABRIC)
    plain = IPC

    def __init__(self, job: JobContext, device: Device, contents: Contents, kind: GateKind) -> None:
        self.device, self.contents, self.options = device, contents, job.options
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

    def sharing(self, means: str) -> Mechanism:
        """Return a mechanism for sharing memory."""
        return self._sharings[means]

    def place(self, memory: Memory) -> Any:
        """Return the GPU: it holds or uses every buffer of this process."""
        del memory
        return self.device

    def can_send(self, means: str) -> tuple[str, bytes]:
        """Return why NCCL or MPI cannot move memory of this GPU, and NCCL's identifier."""
        if means == NCCL:
            from ..nccl.channel import refuses

            return refuses(self._world.rank)
        try:
            self.messenger = Messages(self._world)
        except MessagesRefused as error:
            return str(error), b""
        return unaware(self.device.ordinal, self.options.timeout), b""

    def connect(self, means: str, told: Sequence[bytes]) -> None:
        """Connect NCCL; MPI is connected when it starts."""
        if means == NCCL:
            from ..nccl.channel import NcclMessages

            self.device.use()
            self.nccl = NcclMessages(self._world.size, self._world.rank, told[0])

    def part(self, pieces: Sequence[LocalTransfer]) -> CudaPart:
        """Bind the pieces of a Measurement."""
        self.signals.cancelled.clear()
        return CudaPart(self, pieces)

    def begin(self) -> None:
        """Close the gate."""
        self.gate.close_all()

    def threads(self, transfers: Sequence[Transfer], messengers: int) -> int:
        """Return 0: waiting streams are not counted."""
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
        """Return when this process saw that word, in ns."""
        end = time.monotonic() + self.options.timeout
        while self._seen.value != self._rounds:
            if time.monotonic() > end or self.signals.cancelled.is_set():
                raise MeasurementTimeout("waiting at the gate without work", self.options.timeout)
        return time.monotonic_ns()

    def wait(self) -> None:
        """Wait for the release in a host thread.

        Raises
        ------
        BackendError
            If it was cancelled, or the gate was not opened in time.
        """
        end = time.monotonic() + self.options.timeout
        while not self.gate.is_open:
            if time.monotonic() > end:
                raise MeasurementTimeout("waiting at the gate of this host", self.options.timeout)
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


class _RankBinder(Binder):
    """Bind transfers whose buffers exist, some of them in other processes."""

    def __init__(
        self, side: CudaEndpoint, pieces: Sequence[LocalTransfer], together: Sequence[LocalTransfer]
    ) -> None:
        super().__init__(_NONE, lambda _: side.device, lambda _: side.contents, side.options, Peers())
        self._side, self._pieces, self._together = side, pieces, together

    def bind(self, index: int, transfer: Transfer, engines: int, sharing: int = 1) -> BoundCopy:
        """Prepare the work of a piece; all NCCL messages are one piece."""
        del engines, sharing
        piece = self._pieces[index]
        buffers = Buffers((_buffer(transfer.source, piece.source, transfer.bytes),),
                          _buffer(transfer.destination, piece.destination, transfer.bytes))  # fmt: skip
        bound = BoundCopy(transfer, self._side.device, buffers, amount=float(transfer.bytes))
        if piece.means == NCCL:
            from ..nccl.channel import Send

            assert self._side.nccl is not None
            lane = TimedStream(self._side.device)
            self.lanes.append(lane)
            moves = [Send(p.address, p.transfer.bytes, p.peer, p.owns_source) for p in self._together]
            bound.lanes.append((lane, self._side.nccl.work(moves, lane)))
            return bound
        if reason := "" if transfer.engine.value == "ce" else unfit(transfer):
            raise BackendError(reason)
        keys = _keys(self._side, piece)
        self.work(bound, keys, 1)
        return bound


class CudaPart:
    """Part of a Measurement that one process copies, fills and compares."""

    def __init__(self, side: CudaEndpoint, pieces: Sequence[LocalTransfer]) -> None:
        self._side = side
        self._sent = [p for p in pieces if p.means == NCCL]
        self._messages = [p for p in pieces if p.means == MPI]
        #: Work enqueued in streams; all NCCL messages are behind the first.
        self._streamed = [p for p in pieces if p.moves and p.means not in (NCCL, MPI)] + self._sent[:1]
        self._owned = [p for p in pieces if p.owns_destination]
        self._sources = [p for p in pieces if p.owns_source]
        self._copies = 0
        self._moves = [
            Move(p.address, p.transfer.bytes, p.peer, p.index, p.owns_source) for p in self._messages
        ]
        self._runner = ThreadPoolExecutor(1, "messages")
        self._running: Future[list[TransferTiming]] | None = None
        self._prepared: CudaPrepared | None = None
        if self._streamed:
            measurement = Measurement(tuple(p.transfer for p in self._streamed), ())
            binder = _RankBinder(side, self._streamed, self._sent)
            engines = [1] * len(self._streamed)
            self._prepared = CudaPrepared(
                measurement, engines, binder, _NONE, side.gate, side.signals, side.options
            )

    def fill(self) -> None:
        """Fill the sources and poison the destinations of this GPU."""
        contents = self._side.contents
        for piece in self._sources:
            region = _region(self._side, piece.transfer.source, piece.source, piece.transfer.bytes)
            contents.fill(region, Pattern.BITS, _keys(self._side, piece)[0])
        for piece in self._owned:
            contents.poison(self._expected(piece))
        self._settle("filling buffers")

    def arm(self, copies: int) -> None:
        """Enqueue behind the gate, and start the threads that send and receive with MPI."""
        self._copies = copies
        self._running = self._runner.submit(self._send, copies) if self._moves else None
        if self._prepared is not None:
            self._prepared.arm(copies)

    def finish(self) -> list[TransferTiming]:
        """Wait for streams and threads."""
        timings = []
        if self._prepared is not None:
            sample = self._prepared.finish(self._copies)
            timings += self._timings(sample)
        timeout = self._side.options.timeout
        if self._running is not None:
            try:
                timings += self._running.result(timeout)
            except TimeoutError:
                raise MeasurementTimeout("sending and receiving by MPI", timeout) from None
        return timings

    def _timings(self, sample: Sample) -> list[TransferTiming]:
        timings = []
        for piece, seconds, amount in zip(self._streamed, sample.seconds, sample.amounts, strict=True):
            all_of_it = self._sent if piece.means == NCCL else (piece,)
            timings += [TransferTiming(each.index, seconds, amount, sample.wall) for each in all_of_it]
        return timings

    def verify(self) -> None:
        """Compare the destinations of this GPU, and poison them again."""
        contents = self._side.contents
        for piece in self._owned:
            contents.compare(self._expected(piece))
        self._settle("comparing buffers")
        for expected, wrong, index in contents.found():
            if wrong:
                raise VerificationError(expected.text, 8 * index, wrong, expected.words)

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

    def _expected(self, piece: LocalTransfer) -> Expected:
        transfer = piece.transfer
        region = _region(self._side, transfer.destination, piece.destination, transfer.bytes)
        return Expected(region, Operation.COPY, _keys(self._side, piece), str(transfer))

    def _settle(self, stage: str) -> None:
        """Wait for requested fills and comparisons."""
        event = self._side.contents.flush()
        start = time.monotonic()
        while not finished(event):
            if self._side.signals.cancelled.is_set():
                raise BackendError(f"{stage} was cancelled")
            if time.monotonic() - start > self._side.options.timeout:
                raise MeasurementTimeout(stage, self._side.options.timeout)
            time.sleep(min((time.monotonic() - start) / 64, _SLEEP))


def _keys(side: CudaEndpoint, piece: LocalTransfer) -> tuple[int, int]:
    seed = side.options.seed
    return key(seed, piece.index, 0), key(seed, piece.index, 1)


def _region(side: CudaEndpoint, memory: Memory, address: int, size: int) -> Region:
    return Region(side.device, _buffer(memory, address, size), size)


def _buffer(memory: Memory, address: int, size: int) -> GpuBuffer:
    assert memory.kind is MemoryKind.DEVICE
    return GpuBuffer(memory, False, address, 0, size, _nothing)


def _nothing() -> None:
    """Do nothing: the buffers belong to the pool of the job."""


class _NoPool:
    """Replacement for a pool; these transfers bring their own buffers."""

    def give(self, buffer: GpuBuffer) -> None:
        """Do nothing: nothing was taken."""


_NONE: Any = _NoPool()
