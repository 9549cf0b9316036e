"""Start offsets and rates on GPUs, by a fake driver that notes what is enqueued."""

from __future__ import annotations

import ctypes
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import pairwise
from typing import Any

import pytest

pytest.importorskip("cuda.bindings")

from tests.conftest import own_time
from tests.fakes.cuda import FakeCuda
from wirespeed.backends.cuda import compiler, cuda_driver
from wirespeed.backends.cuda.cuda_driver import CudaBackend
from wirespeed.backends.gpu.device import TimedStream
from wirespeed.backends.gpu.gate import Ticks, pieces_of
from wirespeed.backends.gpu.gpu_driver import Monitor
from wirespeed.backends.gpu.prepared import GpuPrepared
from wirespeed.hardware.devices import Gpu, NumaNode
from wirespeed.hardware.topology import Machine
from wirespeed.measurement import Measurement
from wirespeed.model import Engine, Executor, Memory, MemoryKind, Operation, Role, Transfer
from wirespeed.options import RunOptions
from wirespeed.units import KIB, MIB

OPTIONS = RunOptions(timeout=5)


class Noting(FakeCuda):
    """Notes the streams, and what is enqueued in them: waits with their values, copies with their sizes."""

    def __init__(self, **more: Any) -> None:
        super().__init__(2, **more)
        self.enqueued: list[tuple[str, Any, int]] = []
        self.started = False

    def cuStreamWaitValue32(self, stream: Any, address: int, value: int, flags: Any) -> None:
        self.enqueued.append(("wait", stream, value))

    def cuMemcpyAsync(self, to: Any, origin: Any, size: int, stream: Any) -> None:
        self.enqueued.append(("copy", stream, size))

    def cuEventRecord(self, event: Any, stream: Any) -> None:
        self.enqueued.append(("event", stream, event))

    def cuStreamWriteValue32(self, stream: int, address: int, value: int, flags: int) -> None:
        self.enqueued.append(("clock", stream, value))
        super().cuStreamWriteValue32(stream, address, value, flags)

    def cuLaunchKernel(self, kernel: str, *rest: Any) -> None:
        super().cuLaunchKernel(kernel, *rest)
        pointers = ctypes.cast(rest[-2], ctypes.POINTER(ctypes.c_void_p))
        index = {"read": 1, "write": 1}.get(kernel, 2)
        if kernel not in ("fill", "compare", "total", "spin", "tell"):
            size = ctypes.c_uint64.from_address(pointers[index]).value
            self.enqueued.append(("launch", rest[7], size))

    def of(self, stream: Any, *kinds: str) -> list[int]:
        return [value for kind, where, value in self.enqueued if where == stream and kind in kinds]


@pytest.fixture
def cuda(monkeypatch: pytest.MonkeyPatch) -> Callable[..., Noting]:
    monkeypatch.setattr(cuda_driver, "compiled", lambda *_, **__: compiler.ELF)
    monkeypatch.setattr(CudaBackend, "_monitor", lambda self: Monitor())

    def make(**more: Any) -> Noting:
        fake = Noting(**more)
        fake.install(monkeypatch)
        return fake

    return make


@pytest.fixture
def backend() -> Iterator[CudaBackend]:
    gpus = tuple(
        Gpu(i, "NVIDIA H200", f"00000000:00:{6 + i:02x}", compute_capability="9.0", backend="cuda",
            peers=(f"gpu{1 - i}",)) for i in range(2)
    )  # fmt: skip
    backend = CudaBackend(Machine("test", numa=(NumaNode(0, (0, 1), memory_bytes=2**34),), gpus=gpus))
    yield backend
    backend.close()


def transfer(source: int, destination: int, **more: Any) -> Transfer:
    ends = (Memory(f"gpu{i}", MemoryKind.DEVICE) for i in (source, destination))
    plan = {"engine": Engine.CE, "bytes": MIB, **more}
    return Transfer(*ends, Executor(f"gpu{source}"), **plan)


def prepared(backend: CudaBackend, *transfers: Transfer) -> GpuPrepared:
    measurement = Measurement(transfers, ())
    assert backend.refuses(measurement) is None
    return backend.prepare(measurement, OPTIONS)


def streams(one: GpuPrepared) -> list[Any]:
    return [bound.lane.stream for bound in one._bound]


@pytest.mark.parametrize("engine", [Engine.CE, Engine.SM, Engine.SM_BULK])
def test_pieces_are_followed_by_waits_until_they_are_due(
    cuda: Callable[..., Noting], backend: CudaBackend, engine: Engine
) -> None:
    fake = cuda()
    with prepared(backend, transfer(0, 1, engine=engine, rate=2.5e9)) as one:
        (stream,) = streams(one)
        fake.enqueued.clear()
        sample = one.sample(2)
        one.verify()
    _, warm_up, *parts = fake.of(stream, "wait", "copy", "launch")
    sizes, dues = parts[::2], parts[1::2]
    assert warm_up > 0 and len(sizes) == 8 and sum(sizes) == 2 * MIB
    assert dues == [round(sum(sizes[: i + 1]) / 2.5e9 * 1e6) for i in range(8)]
    assert sample.amounts == (2 * MIB,)


@pytest.mark.parametrize(
    ("operation", "counted"), [(Operation.READ, 1), (Operation.WRITE, 1), (Operation.TRIAD, 3)]
)
def test_other_kernels_are_cut_into_pieces_too(
    cuda: Callable[..., Noting], backend: CudaBackend, operation: Operation, counted: int
) -> None:
    fake = cuda()
    one = transfer(0, 0, engine=Engine.SM, operation=operation, counted=counted, rate=counted * 2.5e9)
    with prepared(backend, one) as bound:
        (stream,) = streams(bound)
        fake.enqueued.clear()
        bound.sample(3)
        work = bound._bound[0].paced[0].work
        assert work.done == 3 + 1  # and the warm-up
    assert fake.of(stream, "wait")[-1] == round(3 * MIB / 2.5e9 * 1e6)


def test_small_copies_share_a_wait(cuda: Callable[..., Noting], backend: CudaBackend) -> None:
    fake = cuda()
    with prepared(backend, transfer(0, 1, bytes=4 * KIB, rate=1e9)) as one:
        (stream,) = streams(one)
        fake.enqueued.clear()
        one.sample(50)
    _, *dues = fake.of(stream, "wait")
    assert len(fake.of(stream, "copy")) == 50 + 1
    assert len(dues) == 4 and dues[-1] == round(50 * 4 * KIB / 1e9 * 1e6)
    assert all(later - before >= 50 for before, later in pairwise(dues[:-1]))


def test_transfers_begin_after_their_offsets(cuda: Callable[..., Noting], backend: CudaBackend) -> None:
    fake = cuda()
    works = (
        transfer(0, 1, start=70e-6), transfer(1, 0),
        transfer(0, 1, role=Role.LOAD, start=30e-6), transfer(1, 0, role=Role.LOAD),
    )  # fmt: skip
    with prepared(backend, *works) as one:
        late, first, load, plain = streams(one)
        start = one._bound[0].lane.start
        fake.enqueued.clear()
        one.sample(1)
    assert [kind for kind, stream, _ in fake.enqueued if stream == first][:4] == [
        "wait",
        "copy",
        "clock",
        "event",
    ]
    assert [fake.of(s, "wait")[1:] for s in (late, first, load, plain)] == [[70], [], [30], []]
    own = [(kind, value) for kind, stream, value in fake.enqueued if stream == late]
    assert own[own.index(("wait", 70)) + 1] == ("event", start)  # the time before it is not counted


def test_a_paced_load_begins_with_the_clock_and_lasts_as_long_as_the_others(
    cuda: Callable[..., Noting], backend: CudaBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake = cuda()
    works = (transfer(0, 1), transfer(1, 0, role=Role.LOAD, rate=1e9))
    with prepared(backend, *works) as one:
        load = one._bound[1].lane
        monkeypatch.setattr(
            TimedStream,
            "elapsed",
            lambda lane, *_: one._counts[1] * 1.05e-3 if lane is load else 0.1e-3 * one._counts[0],
        )
        counts = []
        for copies in (1, 40, 40, 40):
            sample = one.sample(copies)
            counts.append(one._counts[1])
            assert sample.amounts[1] == one._counts[1] * MIB
        assert fake.of(load.stream, "wait")[1] == 0
    assert counts == [1, 6, 6, 6]  # 1.5 times the 4 ms of the others


def test_what_is_due_much_later_is_enqueued_later(
    cuda: Callable[..., Noting], backend: CudaBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A queue that is full of waits would stop the thread that serves the other streams."""
    fake = cuda()
    clock = [0.0]
    monkeypatch.setattr(Ticks, "now", property(lambda self: clock[0]))
    with prepared(backend, transfer(0, 1, bytes=8 * MIB, rate=0.2e9)) as one:
        (stream,) = streams(one)
        fake.enqueued.clear()
        one._gate.close_all()
        one.arm(1)
        enqueued = [len(fake.of(stream, "copy")) - 1]

        def sleep(seconds: float) -> None:
            enqueued.append(len(fake.of(stream, "copy")) - 1)
            clock[0] += 5e-3

        monkeypatch.setattr("wirespeed.backends.gpu.prepared.time", own_time(sleep=sleep))
        one._gate.release()
        one.finish()
    assert enqueued[:4] == [31, 31, 46, 62]  # of 128 pieces of 64 KiB, 10 ms ahead
    assert sum(fake.of(stream, "copy")[1:]) == 8 * MIB


def test_the_clock_waits_for_the_start_and_can_be_abandoned(
    cuda: Callable[..., Noting], backend: CudaBackend
) -> None:
    fake = cuda()
    device = prepared(backend, transfer(0, 1))._bound[0].device
    ticks = Ticks(device, 5.0)
    for _ in range(2):
        ticks.reset()
        time.sleep(0.002)
        assert ticks.now == 0.0 and ticks._word.value == 2**32 - 1
        ticks.begin(device, 1)
        deadline = time.monotonic() + 5
        while ticks.now < 0.002 and time.monotonic() < deadline:
            time.sleep(0)
        assert 0.002 <= ticks.now < 5
        ticks.stop()
    ticks.reset()
    ticks.abandon()
    assert ticks._word.value == 2**31 - 1
    ticks.free()
    assert "cuMemFreeHost" in fake.calls


def test_a_gpu_whose_streams_cannot_wait_spins(cuda: Callable[..., Noting], backend: CudaBackend) -> None:
    fake = cuda(attributes={"CAN_USE_64_BIT_STREAM_MEM_OPS": 0})
    with prepared(backend, transfer(0, 1, start=1e-6), transfer(1, 0, rate=5e9)) as one:
        before = len([name for name in fake.calls if name == "cuFuncLoad"])
        one.sample(1)
        assert len([name for name in fake.calls if name == "cuFuncLoad"]) <= before + 2  # spin, on each GPU
    assert fake.launched.count("spin") >= 2 + 1 + 2 and "tell" in fake.launched


def test_several_engines_are_chosen_at_full_speed(cuda: Callable[..., Noting], backend: CudaBackend) -> None:
    cuda()
    one = transfer(0, 1, bytes=32 * MIB, rate=10e9, start=1e-6)
    options = replace(OPTIONS, all_engines=True)
    with backend.prepare(Measurement((one,), ()), options) as bound:
        lanes = [work.pieces for work in bound._bound[0].paced]
        sample = bound.sample(1)
    assert len(set(lanes)) == 1 and sample.amounts == (32 * MIB,)


def test_a_broadcast_is_one_launch_and_each_destination_is_verified(
    cuda: Callable[..., Noting], backend: CudaBackend
) -> None:
    fake = cuda()
    one = transfer(
        0, 1, engine=Engine.SM, also=(Memory("gpu0", MemoryKind.DEVICE), Memory("numa0", MemoryKind.PINNED))
    )
    seen: list[tuple[int, ...]] = []

    def launch(kernel: str, *rest: Any) -> None:
        if kernel == "copy_broadcast":
            pointers = ctypes.cast(rest[-2], ctypes.POINTER(ctypes.c_void_p))
            words = [ctypes.c_uint64.from_address(pointers[i] or 0).value for i in range(10)]
            counts = [ctypes.c_uint32.from_address(pointers[i] or 0).value for i in (10, 11)]
            seen.append((*words, *counts))
        fake.launched.append(kernel)

    fake.cuLaunchKernel = launch  # type: ignore[method-assign]
    with prepared(backend, one) as bound:
        bound.sample(3)
        bound.verify()
        buffers = bound.buffers[0]
        addresses = [buffer.address for buffer in buffers.destinations]
    assert seen[-1] == (*addresses, 0, 0, 0, 0, 0, buffers.sources[0].address, MIB, 3, 3)
    assert fake.launched.count("compare") == 2 * 3  # all are poisoned and verified
    ce = backend.refuses(Measurement((replace(one, engine=Engine.CE),), ()))
    assert ce is not None and "only a copy by a kernel" in ce


def test_pieces_take_100_us_or_have_64_kib() -> None:
    assert pieces_of(512 * MIB, 10e9, 1) == 536
    assert pieces_of(512 * MIB, 10e9, 4) == 134  # the host enqueues those of four transfers
    assert pieces_of(512 * MIB, 1e6, 1) == 8192
    assert pieces_of(4 * KIB, 10e9, 1) == 1
