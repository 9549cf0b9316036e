"""A GPU in a job of several processes: exported buffers, and a gate in shared memory."""

from __future__ import annotations

import ctypes
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TYPE_CHECKING

from ...errors import BackendError, MeasurementTimeout, starting_threads
from ...measurement import Measurement, Sample
from ...model import Engine, Transfer
from ..distributed.job_process import LINE, NCCL, TWO_SIDED, Endpoint, JobContext, LocalTransfer
from ..test_data import keys_of
from .bound_copy import Binder, BoundCopy, Buffers
from .contents import Contents
from .device import Device, Peers, TimedStream
from .gate import Gate
from .gpu_driver import FABRIC, IPC, VMM_FD
from .launch_config import unfit
from .memory import GpuBuffer, GpuBufferPool
from .mpi_aware import unaware
from .prepared import GpuPrepared, Signals
from .sharing import DescriptorSharing, FabricSharing, IpcSharing, pinned

if TYPE_CHECKING:
    from ..nccl.channel import NcclMessages


class GpuEndpoint(Endpoint):
    """The GPU of one process."""

    def __init__(self, job: JobContext, device: Device, contents: Contents, pool: GpuBufferPool) -> None:
        super().__init__(job)
        self.device = self.where = device
        self.contents, self.pool = contents, pool
        self.signals = Signals()
        self.gate = Gate(device, job.options.timeout, job.page)
        self.nccl: NcclMessages | None = None
        #: On one host the first two are as fast as the third and need no permission. The first is also fast
        #: if a process does not see the other's GPU; copy engines were 6% slower with the second.
        self.mechanisms = {
            IPC: IpcSharing(),
            VMM_FD: DescriptorSharing(job.descriptors, job.options.timeout),
            FABRIC: FabricSharing(),
        }
        self.pinned = pinned
        self._offset = LINE * (1 + job.place[0])
        self._seen = ctypes.c_uint32.from_address(job.page.address + self._offset)
        self._lane = TimedStream(device)
        self._rounds = 0

    def can_send(self, means: str) -> tuple[str, bytes]:
        """Why NCCL or MPI cannot move memory of this GPU, and NCCL's identifier."""
        if means == NCCL:
            from ..nccl.library import refuses

            return refuses(self._world.rank)
        reason, data = super().can_send(means)
        return reason or unaware(self.device.gpu, self.options.timeout), data

    def connect(self, means: str, told: Sequence[bytes]) -> None:
        """Connect NCCL; MPI is connected when it starts."""
        if means == NCCL:
            from ..nccl.channel import NcclMessages

            self.device.use()
            self.nccl = NcclMessages(self._world.size, self._world.rank, told[0])

    def bind(self, pieces: Sequence[LocalTransfer]) -> SharedPrepared:
        self.signals.cancelled.clear()
        return SharedPrepared(self, pieces)

    def begin(self) -> None:
        self.gate.close_all()

    def release(self, arriving: int) -> None:
        """Open the gate of all processes of this host: waiting streams are not counted."""
        del arriving
        self.gate.release()

    def arrive(self) -> None:
        """Let the GPU write a word behind the gate."""
        self._rounds += 1
        self.device.use()
        self.gate.hold(self.device, self._lane.stream)
        self.gate.write(self.device, self._lane.stream, self._offset, self._rounds)

    def arrived(self) -> int:
        """When this process saw that word, in ns."""
        end = time.monotonic() + self.options.timeout
        while self._seen.value != self._rounds:
            if time.monotonic() > end or self.signals.cancelled.is_set():
                raise MeasurementTimeout("waiting at the start barrier without work", self.options.timeout)
        return time.monotonic_ns()

    def wait(self) -> None:
        """Wait for the release in a host thread that uses the GPU."""
        self.device.use()
        end = time.monotonic() + self.options.timeout
        while not self.gate.is_open:
            if time.monotonic() > end:
                raise MeasurementTimeout("waiting at the start barrier of this host", self.options.timeout)
            time.sleep(0)  # let other threads run
        if self.signals.cancelled.is_set():
            raise BackendError("the copies were cancelled")

    def cancel(self) -> None:
        """Release the streams of this process and of others, whose measurement is void too."""
        self.signals.cancelled.set()
        self.gate.release()

    def close(self) -> None:
        """Release what does not belong to the backend."""
        if self.signals.stuck.is_set():
            return
        if self.nccl is not None:
            self.nccl.close()
        self._lane.destroy()
        self.gate.free()


class SharedBinder(Binder):
    """Bind transfers whose buffers exist, some of them in other processes.

    Attributes:
        pieces: The transfers of the Measurement, in its order, with the addresses of their buffers.
    """

    def __init__(self, side: GpuEndpoint, pieces: Sequence[LocalTransfer]) -> None:
        super().__init__(side.pool, lambda _: side.device, lambda _: side.contents, side.options, Peers())
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
            from ...worlds.mpi import Move

            assert self._side.nccl is not None
            lane = self._lane(device)
            moves = [Move(p.address, p.transfer.bytes, p.peer, p.owns_source) for p in self._sent]
            bound.lanes.append((lane, self._side.nccl.work(moves, lane)))
        elif piece.moves and piece.means not in TWO_SIDED:
            if reason := "" if transfer.engine is Engine.CE else unfit(transfer):
                raise BackendError(reason)
            self._work(bound, keys, 1)
        return bound


class SharedPrepared(GpuPrepared):
    """Transfers between processes, with a thread that sends and receives by MPI."""

    def __init__(self, side: GpuEndpoint, pieces: Sequence[LocalTransfer]) -> None:
        self._runner = ThreadPoolExecutor(1, "messages")
        self._running: list[Future[object]] = []
        super().__init__(
            Measurement(tuple(piece.transfer for piece in pieces), ()), [1] * len(pieces),
            SharedBinder(side, pieces), side.gate, side.signals, side.options,
        )  # fmt: skip

    def arm(self, copies: int, beside: Sequence[tuple[int, Callable[[], object]]] = ()) -> None:
        with starting_threads():
            self._running = [self._runner.submit(call) for _, call in beside]
        super().arm(copies)

    def finish(self) -> Sample:
        sample, timeout = super().finish(), self._options.timeout
        for running in self._running:
            try:
                running.result(timeout)
            except TimeoutError:
                raise MeasurementTimeout("sending and receiving by MPI", timeout) from None
        return sample

    def abandon(self) -> None:
        self._signals.cancelled.set()
        super().abandon()
        for running in self._running:
            running.exception(self._options.timeout)

    def __exit__(self, *_: object) -> None:
        self._runner.shutdown(wait=False)
        super().__exit__()


def _nothing() -> None:
    """Do nothing: the buffers belong to the pool of the job."""
