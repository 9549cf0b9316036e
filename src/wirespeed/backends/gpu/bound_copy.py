"""A Transfer bound to buffers, streams and arguments."""

from __future__ import annotations

from collections.abc import Callable
from ctypes import c_double
from dataclasses import dataclass, field, replace
from typing import Any

from ...errors import MeasurementTimeout, VerificationError
from ...model import BUFFERS, Engine, Memory, MemoryKind, Operation, Role, Transfer
from ...options import RunOptions
from ...peer_access import FLAG_S
from ...units import KIB
from ..test_data import keys_of
from .blocks import BlockCopies, Lists
from .contents import SCALAR, Contents, Expected, Region, near, pattern_of
from .device import Device, Peers, TimedStream
from .gpu_driver import Arguments, narrow, pointer, wide
from .launch_config import WORD, shape
from .memory import GpuBuffer, GpuBufferPool
from .stream_ops import FLAGS, Axpy, Chase, EngineCopy, Kernel, Signal, SignalAnswer, Work

_SUMS_BYTES = 2 * WORD
#: Alignment of the parts of a copy.
_ALIGNMENT_BYTES = 4 * KIB


@dataclass(frozen=True)
class Buffers:
    """The buffers of a Transfer."""

    sources: tuple[GpuBuffer, ...]
    destination: GpuBuffer | None


@dataclass(eq=False)
class BoundCopy:
    """A Transfer that is ready to be enqueued.

    Attributes:
        lanes: Its streams with their work; the first one times the transfer.
        expected: Required content of its destinations after a sample.
        fills, verifies: Whether this process fills the sources; and poisons and verifies the destination.
    """

    transfer: Transfer
    device: Device
    buffers: Buffers
    lanes: list[tuple[TimedStream, Work]] = field(default_factory=list)
    expected: list[Expected] = field(default_factory=list)
    amount: float = 0.0  #: amount of one copy: bytes of a buffer, or accesses
    fills: bool = True
    verifies: bool = True
    sharing: int = 1  #: transfers that share its source or its destination
    sums: int = 0  #: for a read: address of the sum that the kernel computes, and of the correct sum

    @property
    def lane(self) -> TimedStream:
        """The stream that times the transfer."""
        return self.lanes[0][0]

    @property
    def measured(self) -> bool:
        """Whether the transfer is measured; otherwise it is load."""
        return self.transfer.role is Role.MEASURED

    @property
    def held(self) -> bool:
        """Whether its copies can be enqueued behind a closed gate. The host copies pageable memory itself."""
        return MemoryKind.PAGEABLE not in (self.transfer.source.kind, self.transfer.destination.kind)

    def awaited(self) -> list[Expected]:
        """What its destinations must contain after all enqueued work."""
        work = self.lanes[0][1] if self.lanes else None
        if isinstance(work, Axpy):
            return [replace(expected, scalar=work.scalar) for expected in self.expected]
        return self.expected

    def check_account(self) -> None:
        """Check the sum of a read, the final positions of a chase, or that flags were answered.

        Raises:
            VerificationError: If it is wrong. All words count as wrong, because the wrong ones are unknown.
            MeasurementTimeout: If a GPU waited for a flag for too long.
        """
        work = self.lanes[0][1] if self.lanes else None
        words = self.transfer.bytes // WORD
        if isinstance(work, Signal) and work.unanswered():
            ends = self.transfer.source.device, self.transfer.destination.device
            raise MeasurementTimeout("waiting for the flag of {} on {}".format(*ends), FLAG_S)
        if isinstance(work, Chase) and (strayed := work.strayed()):
            text = f"{self.transfer} ({strayed} multiprocessors left the cycle)"
            raise VerificationError(text, 0, words, words)
        if self.sums and isinstance(work, Kernel):
            total, of_pass = self.device.words(self.sums, 2)
            if (total - of_pass * work.done) % 2**64:
                raise VerificationError(str(self.transfer), 0, words, words)


class Binder:
    """Bind the transfers of one Measurement.

    ``taken``, ``reached``, ``lanes`` and ``fillers`` record what they use.

    Args:
        device, contents: Return the open GPU with a name, and the Contents that fill and compare on a GPU.
    """

    def __init__(
        self,
        pool: GpuBufferPool,
        device: Callable[[str], Device],
        contents: Callable[[Device], Contents],
        options: RunOptions,
        peers: Peers,
    ) -> None:
        self.taken: list[GpuBuffer] = []
        self.reached: list[tuple[Device, Device]] = []
        self.peers = peers
        self.lanes: list[TimedStream] = []
        self.fillers: set[Contents] = set()
        self._pool, self._device, self._contents, self._options = pool, device, contents, options

    def bind(self, index: int, transfer: Transfer, engines: int, sharing: int = 1) -> BoundCopy:
        """Allocate and fill the buffers of a transfer, and prepare its work.

        Args:
            engines: Number of streams over which a copy by copy engine is spread.
            sharing: Number of transfers that share its source or destination, including itself.
        """
        executor = self._device(transfer.executor.device)
        for end in transfer.ends:
            if end.kind is MemoryKind.DEVICE and end.device != executor.name:
                self._reach(executor, self._device(end.device))
        sources, destinations = BUFFERS[transfer.operation]
        split = transfer.engine is Engine.SM_SPLIT
        size = _aligned(transfer.bytes) + transfer.bytes if split else transfer.bytes
        buffers = Buffers(
            tuple(self.take(transfer.source, size, executor) for _ in range(sources)),
            self.take(transfer.destination, size, executor) if destinations else None,
        )
        bound = BoundCopy(transfer, executor, buffers, amount=float(transfer.bytes), sharing=sharing)
        keys = keys_of(self._options.seed, index)[:2]
        if transfer.operation is Operation.CHASE:
            self._chase(bound)
            return bound
        if transfer.operation is Operation.SIGNAL:
            self._signal(bound)
            return bound
        lists = None
        if transfer.scattered is not None:
            assert buffers.destination is not None
            pools = buffers.sources[0], buffers.destination
            lists = Lists(self.take, transfer, executor, pools, self._options.seed)
        self._fill(bound, keys, lists)
        if lists is not None:
            lane = self._lane(executor)
            bound.lanes.append((lane, BlockCopies(lane, transfer, lists)))
        else:
            self._work(bound, keys, engines)
        return bound

    def _reach(self, device: Device, other: Device) -> None:
        """Let a GPU access the memory of another."""
        self.peers.take(device, other)
        self.reached.append((device, other))

    def give_back(self) -> None:
        """Give back buffers, peer access and streams."""
        for buffer in self.taken:
            self._pool.give(buffer)
        for pair in self.reached:
            self.peers.give(*pair)
        for lane in self.lanes:
            lane.destroy()
        self.taken.clear()
        self.reached.clear()
        self.lanes.clear()

    def _work(self, bound: BoundCopy, keys: tuple[int, int], engines: int) -> None:
        if bound.transfer.engine is Engine.CE:
            self._engine_copies(bound, engines)
        elif bound.transfer.engine is Engine.CUBLAS:
            self._axpy(bound)
        else:
            self._kernel(bound, keys)

    def take(self, memory: Memory, size: int, executor: Device) -> GpuBuffer:
        """A buffer that ``give_back`` returns to the pool."""
        how = self._options
        buffer = self._pool.take(memory, size, executor, how.virtual_memory, how.affinity, how.huge_pages)
        self.taken.append(buffer)
        return buffer

    def _fill(self, bound: BoundCopy, keys: tuple[int, int], lists: Lists | None = None) -> None:
        """Fill the sources and poison the destinations; in a copy both ways, each half is both."""
        transfer, buffers = bound.transfer, bound.buffers
        pattern = pattern_of(transfer.operation)
        filled = buffers.sources if bound.fills else ()
        regions = [(self._region(bound, b), k) for b, k in zip(filled, keys, strict=False)]
        text = str(transfer)
        if buffers.destination is not None and bound.verifies:
            there = self._region(bound, buffers.destination)
            bound.expected.append(Expected(there, transfer.operation, keys, text))
            if transfer.engine is Engine.SM_SPLIT:
                offset = _aligned(transfer.bytes)
                regions.append((self._region(bound, buffers.destination, offset), keys[1]))
                back = self._region(bound, buffers.sources[0], offset)
                bound.expected.append(
                    Expected(back, transfer.operation, keys[::-1], f"{text}, the opposite direction")
                )
        for region, seed in regions:
            filler = self._filler(region.device)
            if lists is not None:
                ends = lists.destination.device, lists.source.device
                assert buffers.destination is not None and transfer.scattered is not None
                filler.fill_blocks(*ends, buffers.destination.address, transfer.scattered, seed)
            else:
                filler.fill(region, pattern, seed)
        for expected in bound.expected:
            self._filler(expected.region.device).poison(expected)

    def _lane(self, device: Device) -> TimedStream:
        # A stream that made other copies before can delay a peer's: with reused streams, concurrent pulls of
        # two GPUs from each other ran one after the other.
        self.lanes.append(TimedStream(device))
        return self.lanes[-1]

    def _region(self, bound: BoundCopy, buffer: GpuBuffer, offset: int = 0) -> Region:
        device = near(buffer, bound.device, self._device)
        staging = None
        if not buffer.address:
            staging = self.take(Memory(device.name, MemoryKind.DEVICE), bound.transfer.bytes, device)
        return Region(device, buffer, bound.transfer.bytes, offset, staging)

    def _filler(self, device: Device) -> Contents:
        contents = self._contents(device)
        self.fillers.add(contents)
        return contents

    def _engine_copies(self, bound: BoundCopy, engines: int) -> None:
        size, source, destination = bound.transfer.bytes, bound.buffers.sources[0], bound.buffers.destination
        assert destination is not None
        to, origin = destination.address or destination.host, source.address or source.host
        part_bytes = _aligned(-(-size // engines))
        for begin in range(0, size, part_bytes):
            lane, size_here = self._lane(bound.device), min(part_bytes, size - begin)
            bound.lanes.append((lane, EngineCopy(lane, to + begin, origin + begin, size_here)))

    def _axpy(self, bound: BoundCopy) -> None:
        transfer, buffers = bound.transfer, bound.buffers
        assert buffers.destination is not None
        x, y = (buffer.address for buffer in buffers.sources)
        if transfer.operation is Operation.TRIAD:  # c = a + s b
            x, y = y, x
        lane = self._lane(bound.device)
        work = Axpy(lane, transfer.operation, x, y, buffers.destination.address, transfer.bytes)
        bound.lanes.append((lane, work))

    def _kernel(self, bound: BoundCopy, keys: tuple[int, int]) -> None:
        transfer, device, buffers = bound.transfer, bound.device, bound.buffers
        form = shape(transfer, device.multiprocessors, device.shared_memory, bound.sharing)
        bound.amount = float(transfer.bytes * form.passes)
        origin = [pointer(buffer.address) for buffer in buffers.sources]
        to = [pointer(buffers.destination.address)] if buffers.destination is not None else []
        size = wide(transfer.bytes)
        values: list[Any] = [*to, *origin, size]
        passes: int | None = None
        if transfer.operation is Operation.COPY:
            if transfer.engine is Engine.SM_SPLIT:
                values.append(wide(_aligned(transfer.bytes)))
            elif transfer.engine is Engine.SM_BULK:
                values.append(narrow(form.chunk))
            passes = len(values)
            values.append(narrow(1))
        elif transfer.operation is Operation.WRITE:
            values.append(wide(keys[0]))
        elif transfer.operation is Operation.READ:
            bound.sums = self._account(bound, keys[0])
            values.append(pointer(bound.sums))
        else:
            second = origin[1] if len(origin) > 1 else pointer(0)
            values = [to[0], origin[0], second, size, c_double(SCALAR)]
        lane = self._lane(device)
        bound.lanes.append((lane, Kernel(lane, form, Arguments(*values), values.index(size), passes)))

    def _account(self, bound: BoundCopy, seed: int) -> int:
        """Two words on the GPU: the sum that a read computes, and the correct sum of one pass."""
        transfer, contents = bound.transfer, self._filler(bound.device)
        account = self._scratch(bound.device, _SUMS_BYTES)
        contents.zero(account, _SUMS_BYTES)
        words = transfer.bytes // WORD
        contents.total(words, pattern_of(transfer.operation), seed, account + WORD)
        return account

    def _scratch(self, device: Device, size: int) -> int:
        """The address of bytes in the memory of a GPU."""
        self.taken.append(self._pool.take(Memory(device.name, MemoryKind.DEVICE), size, device, False, False))
        return self.taken[-1].address

    def _chase(self, bound: BoundCopy) -> None:
        device = bound.device
        ends = self._scratch(device, WORD * device.multiprocessors)
        lane = self._lane(device)
        kernel = "chase_bulk" if bound.transfer.engine is Engine.SM_BULK else "chase"
        work = Chase(lane, bound.buffers.sources[0], bound.transfer.bytes, ends, kernel)
        bound.amount = float(work.accesses)
        bound.lanes.append((lane, work))

    def _signal(self, bound: BoundCopy) -> None:
        """Flags in the memory of both GPUs; what their kernels saw stands behind the flags."""
        assert bound.buffers.destination is not None
        here, there = bound.buffers.sources[0].address, bound.buffers.destination.address
        other = self._device(bound.transfer.destination.device)
        self._reach(other, bound.device)
        ends = (Signal, bound.device, there, here), (SignalAnswer, other, here, there)
        for kind, device, theirs, mine in ends:
            self._filler(device).zero(mine, bound.transfer.bytes)
            lane = self._lane(device)
            bound.lanes.append((lane, kind(lane, theirs, mine, mine + bound.transfer.bytes - _SUMS_BYTES)))
        bound.amount = float(FLAGS)


def _aligned(size: int) -> int:
    return -(-size // _ALIGNMENT_BYTES) * _ALIGNMENT_BYTES
