"""The backend on drivers and GPUs that refuse what the usual ones do, by a fake driver."""

from __future__ import annotations

import ctypes
import os
import re
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

import pytest

pytest.importorskip("cuda.bindings")

from cuda.bindings import driver as real

from tests.fakes.cuda import FakeCuda
from tests.threads import together, worlds
from wirespeed.backends.cuda import compiler
from wirespeed.backends.cuda import cuda_driver as backend_module
from wirespeed.backends.cuda.cuda_driver import CudaBackend, CudaDriver
from wirespeed.backends.cuda.nvml import Nvml
from wirespeed.backends.distributed.exchange import Exchange
from wirespeed.backends.distributed.job_process import JobContext, LocalTransfer
from wirespeed.backends.distributed.shared_pool import SharedBufferPool
from wirespeed.backends.distributed.synchronised_start import share_page
from wirespeed.backends.gpu import memory
from wirespeed.backends.gpu.contents import Contents
from wirespeed.backends.gpu.device import Device, Peers, TimedStream
from wirespeed.backends.gpu.gate import Gate
from wirespeed.backends.gpu.gpu_driver import Monitor
from wirespeed.backends.gpu.job_process import GpuEndpoint
from wirespeed.backends.gpu.memory import GpuBufferPool
from wirespeed.backends.gpu.prepared import GpuPrepared
from wirespeed.errors import BackendError, OutOfMemory, Unreachable
from wirespeed.hardware.devices import Gpu, NumaNode
from wirespeed.hardware.topology import Machine
from wirespeed.measurement import Measurement, Place
from wirespeed.model import Engine, Executor, Memory, MemoryKind, Operation, Role, Transfer
from wirespeed.options import RunOptions
from wirespeed.units import MIB
from wirespeed.worlds.base import World
from wirespeed.worlds.descriptors import Descriptors, SharedMemory
from wirespeed.worlds.launchers import alone

Cuda = Callable[..., FakeCuda]


@pytest.fixture
def cuda(monkeypatch: pytest.MonkeyPatch) -> Cuda:
    """Returns a fake driver in the place of the real one."""
    monkeypatch.setattr(backend_module, "compiled", lambda *_, **__: compiler.ELF)
    monkeypatch.setattr(CudaBackend, "_monitor", lambda self: Monitor())
    return lambda *arguments, **more: FakeCuda(*arguments, **more).install(monkeypatch)


@pytest.fixture
def page() -> Iterator[SharedMemory]:
    """Memory of the gate of several processes."""
    memory = SharedMemory.create(4096)
    yield memory
    memory.unmap()
    os.close(memory.descriptor)


def gpu(index: int) -> Gpu:
    return Gpu(index, "NVIDIA H200", f"00000000:00:{6 + index:02x}", compute_capability="9.0", backend="cuda")


def machine(gpus: int, **more: Any) -> Machine:
    names = [f"gpu{i}" for i in range(gpus)]
    return Machine(
        "test",
        numa=(NumaNode(0, (0, 1), memory_bytes=2**34),),
        gpus=tuple(replace(gpu(i), peers=tuple(n for n in names if n != f"gpu{i}")) for i in range(gpus)),
        **more,
    )


def transfer(source: int, destination: int, executor: int, **more: Any) -> Transfer:
    ends = (Memory(f"gpu{i}", MemoryKind.DEVICE) for i in (source, destination))
    return Transfer(*ends, Executor(f"gpu{executor}"), **{"engine": Engine.CE, "bytes": MIB, **more})


# The gate.


@pytest.mark.parametrize(
    ("attributes", "call"),
    [
        ({}, "cuStreamWaitValue32"),  # as on Hopper, where the attribute of the first version is 0
        ({"CAN_USE_64_BIT_STREAM_MEM_OPS": 0}, "cuLaunchKernel"),
        ({"CAN_USE_64_BIT_STREAM_MEM_OPS": 0, "CAN_USE_STREAM_MEM_OPS_V1": 1}, "cuLaunchKernel"),
        ({"INTEGRATED": 1}, "cuLaunchKernel"),
    ],
)
def test_a_gpu_whose_streams_cannot_wait_has_a_kernel_that_does(
    cuda: Cuda, attributes: dict[str, int], call: str
) -> None:
    fake = cuda(attributes=attributes)
    where = Device(gpu(0), CudaDriver(), 0)
    gate = Gate(where, 1.0)
    gate.close_all()
    gate.hold(where, 1)
    assert fake.calls[-1] == call
    assert fake.launched == (["spin"] if call == "cuLaunchKernel" else [])


@pytest.mark.parametrize("can_wait", [0, 1])
def test_a_gate_between_processes_without_stream_memory_operations(
    cuda: Cuda, can_wait: int, page: SharedMemory
) -> None:
    not_supported = real.CUresult.CUDA_ERROR_NOT_SUPPORTED
    refused = (
        {} if can_wait else dict.fromkeys(("cuStreamWaitValue32", "cuStreamWriteValue32"), not_supported)
    )
    fake = cuda(attributes={"CAN_USE_64_BIT_STREAM_MEM_OPS": can_wait}, refused=refused)
    where = Device(gpu(0), CudaDriver(), 0)
    gate = Gate(where, 1.0, page)
    loaded = fake.calls.count("cuFuncLoad")
    gate.close_all()
    gate.hold(where, 1)
    gate.write(where, 1, 64, 5)
    assert ctypes.c_uint32.from_address(page.address + 64).value == 5
    assert fake.launched == ([] if can_wait else ["spin", "tell"])
    if not can_wait:  # what is loaded behind a closed gate waits for it
        assert loaded == 1 and fake.calls.index("cuLaunchKernel") > max(
            i for i, name in enumerate(fake.calls) if name == "cuFuncLoad"
        )


def test_what_opens_an_earlier_round_opens_no_later_one(cuda: Cuda) -> None:
    cuda()
    gate = Gate(Device(gpu(0), CudaDriver(), 0), 1.0)
    gate.close_all()
    late = gate.serial
    gate.release()
    assert gate.is_open
    gate.close_all()
    gate.open(late)
    assert not gate.is_open
    gate.release()
    gate.open(late)
    assert gate.is_open


def test_the_timer_of_a_full_queue_opens_the_round_of_its_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """A call that waits for room behind a closed gate would wait for ever; a late one must do no harm."""
    from wirespeed.backends.gpu import prepared as module

    opened: list[int] = []
    told = threading.Event()

    class Rounds:
        serial = 7

        def open(self, serial: int) -> None:
            opened.append(serial)
            told.set()

    rounds = Rounds()
    monkeypatch.setattr(module, "_QUEUE_FULL_S", 0.05)
    stuck = GpuPrepared.__new__(GpuPrepared)
    stuck._gate = rounds  # type: ignore[assignment]
    with stuck._unblocking(1000):
        rounds.serial = 8
        assert told.wait(5)
    assert opened == [7]
    told.clear()
    with stuck._unblocking(2):  # so few fill no queue: nobody watches
        assert not told.wait(0.2)


@pytest.mark.parametrize("can_wait", [0, 1])
def test_many_processes_on_one_host(cuda: Cuda, can_wait: int) -> None:
    """Each sees its GPU let go at a place of its own in the memory of the gate."""
    fake = cuda(1, attributes={"CAN_USE_64_BIT_STREAM_MEM_OPS": can_wait})
    count = 72

    def one(world: World) -> tuple[int, int]:
        exchange = Exchange(world, lambda: None)
        descriptors = Descriptors()
        page = share_page(exchange, descriptors, 10.0)
        options = RunOptions(timeout=10.0)
        job = JobContext(world, descriptors, page, (world.rank, count), "gpu0", (), options)
        side = GpuEndpoint(
            job,
            Device(gpu(0), CudaDriver(), 0),
            cast(Contents, None),
            cast(GpuBufferPool, None),
        )
        side.begin()
        exchange.gather(None, "closing the gates")
        side.arrive()
        side.arrived()
        exchange.gather(None, "arriving")
        seen = ctypes.string_at(page.address, page.bytes)
        exchange.close()
        descriptors.close()
        return page.bytes, sum(byte != 0 for byte in seen)

    assert together(worlds(count), one) == [(8192, count)] * count
    assert fake.calls.count("cuStreamWaitValue32") == count * can_wait


def test_messages_from_pinned_memory(cuda: Cuda) -> None:
    """Buffers of the host of a GPU are pinned, found again, and freed; those of the GPU are not."""
    fake = cuda(1)

    def one(world: World) -> None:
        descriptors, exchange = Descriptors(), Exchange(world, lambda: None)
        page = share_page(exchange, descriptors, 10.0)
        job = JobContext(world, descriptors, page, (0, 1), "gpu0", (), RunOptions())
        nothing = cast(Contents, None), cast(GpuBufferPool, None)
        side = GpuEndpoint(job, Device(gpu(0), CudaDriver(), 0), *nothing)
        pool = SharedBufferPool(side)
        pinned, own = Memory("numa0", MemoryKind.PINNED, 0), Memory("gpu0", MemoryKind.DEVICE, 0)
        taken = [pool.take(memory, side.plain, 4096) for memory in (pinned, own)]
        assert fake.calls.count("cuMemHostAlloc") == 1 and fake.calls.count("cuMemAlloc") == 1
        pool.give_back()
        assert pool.take(pinned, side.plain, 4096) is taken[0]
        pool.free()
        assert fake.calls.count("cuMemFreeHost") == 1 and fake.calls.count("cuMemFree") == 1
        exchange.close()
        descriptors.close()

    together(worlds(1), one)


def piece(index: int, means: str = "ipc", **more: Any) -> LocalTransfer:
    plan = {"owns_source": False, "owns_destination": False, "moves": False, **more}
    address = {"source": 2**20 * (index + 1), "destination": 2**21 * (index + 1)}
    return LocalTransfer(index, transfer(0, 1, 0), means, **address, **plan)


class Queue:
    """What NCCL enqueues in a stream."""

    loops = False

    def __init__(self, moves: list[Any]) -> None:
        self.moves, self.copies = moves, 0

    def warm_up(self) -> None: ...

    def put(self, copies: int) -> None:
        self.copies += copies


def test_each_process_fills_verifies_and_enqueues_its_part(
    cuda: Cuda, monkeypatch: pytest.MonkeyPatch, page: SharedMemory
) -> None:
    """Of six transfers three are enqueued here: two copies, and in one queue both messages by NCCL."""
    fake = cuda()
    backend, descriptors = CudaBackend(machine(2)), Descriptors()
    job = JobContext(alone(), descriptors, page, (0, 1), "gpu0", (), RunOptions(timeout=5.0))
    side = backend.side(job)
    queues: list[Queue] = []

    class Nccl:
        def work(self, moves: list[Any], lane: Any) -> Queue:
            queues.append(Queue(moves))
            return queues[-1]

        def close(self) -> None: ...

    side.nccl = cast(Any, Nccl())
    pieces = [
        piece(0, owns_source=True, moves=True),  # written to another process
        piece(1, "nccl", owns_source=True, moves=True),
        piece(2, owns_destination=True),  # another process writes it
        piece(3, owns_destination=True, moves=True),  # read from another process
        piece(4, "nccl", owns_destination=True, moves=True),
        piece(5, owns_source=True),  # another process reads it
    ]
    part = side.part(pieces)
    part.fill()
    assert (fake.launched.count("fill"), fake.launched.count("compare")) == (3, 3)
    copies = fake.calls.count("cuMemcpyAsync")
    side.begin()
    part.arm(4)
    assert not side.gate.is_open
    side.release(0)
    timings = part.finish()
    assert [t.number for t in timings] == [0, 1, 4, 3]
    assert [t.amount for t in timings] == [4.0 * MIB] * 4
    assert fake.calls.count("cuMemcpyAsync") == copies + 2 * (4 + 1)  # one each to warm up
    (queue,) = queues
    assert queue.copies == 4
    assert [(move.address, move.sends) for move in queue.moves] == [(2**20 * 2, True), (2**21 * 5, False)]
    part.verify()
    assert fake.launched.count("compare") == 6
    part.verify()  # nothing ran since
    assert fake.launched.count("compare") == 6
    part.close()
    idle = side.part(pieces[2:3])  # here nothing is enqueued
    idle.fill()
    side.begin()
    idle.arm(1)
    assert idle.finish() == []
    idle.verify()
    assert fake.launched.count("compare") == 8
    idle.abandon()
    idle.close()
    side.close()
    backend.close()
    descriptors.close()


# Times.


@pytest.mark.parametrize("milliseconds", [-1.0, 0.0])
def test_a_time_that_cannot_be_is_no_measurement(cuda: Cuda, milliseconds: float) -> None:
    cuda(milliseconds=milliseconds)
    backend = CudaBackend(machine(1))
    with (
        backend.prepare(
            Measurement((transfer(0, 0, 0),), (Place("", 0, 0),)), RunOptions(timeout=5)
        ) as prepared,
        pytest.raises(BackendError, match=r"events are .* s apart"),
    ):
        prepared.sample(1)


def test_a_load_that_ended_early_is_repeated(cuda: Cuda, monkeypatch: pytest.MonkeyPatch) -> None:
    fake = cuda(2)
    times = iter([0.010, 0.001, 0.010, 0.010, 0.014, 0.010, 0.010, 0.014, 0.010])
    monkeypatch.setattr(TimedStream, "elapsed", lambda lane, start, stop: next(times))
    backend = CudaBackend(machine(2))
    works = (transfer(0, 1, 0), replace(transfer(1, 0, 1), role=Role.LOAD))
    with backend.prepare(Measurement(works, (Place("", 0, 0),)), RunOptions(timeout=5)) as prepared:
        enqueued = []
        for copies in (1, 1, 20):
            before = fake.calls.count("cuMemcpyAsync")
            sample = prepared.sample(copies)
            enqueued.append(fake.calls.count("cuMemcpyAsync") - before - 2)  # without the warm-up of each
    assert enqueued == [1 + 1, 1 + 15, 20 + 20 * 15]  # it lasts 1.5 times as long
    assert sample.amounts[1] == 15 * sample.amounts[0]
    backend.close()


PINNED = Memory("numa0", MemoryKind.PINNED)
TO_GPU = replace(transfer(0, 0, 0), source=PINNED)


def test_confidential_computing_waives_what_the_driver_does_not_encrypt() -> None:
    backend = CudaBackend(machine(2, confidential=True))
    chase = transfer(1, 1, 0, engine=Engine.SM, operation=Operation.CHASE)
    for waived in ((replace(TO_GPU, engine=Engine.SM),), (chase,), (TO_GPU, transfer(0, 1, 0))):
        assert "confidential computing mode" in (backend.refuses(Measurement(waived, ())) or "")
    assert backend.refuses(Measurement((transfer(0, 1, 0),), ())) is None
    assert backend.refuses(Measurement((TO_GPU,), ())) is None


def test_confidential_computing_times_copies_with_the_host_by_its_clock(cuda: Cuda) -> None:
    """In memory that the driver allocated: it must not be registered (NVIDIA's notes RN-12523-001)."""
    fake = cuda(2)
    backend = CudaBackend(machine(2, confidential=True))
    with backend.prepare(Measurement((TO_GPU,), (Place("", 0, 0),)), RunOptions(timeout=5)) as prepared:
        elapsed = fake.calls.count("cuEventElapsedTime")
        sample = prepared.sample(3)
        assert fake.calls.count("cuEventElapsedTime") == elapsed
    assert len(sample.seconds) == 1 and 0 < sample.seconds[0] == sample.wall
    assert sample.amounts == (3 * TO_GPU.bytes,)
    assert "cuMemHostRegister" not in fake.calls and "cuMemHostAlloc" in fake.calls
    backend.close()


def test_bulk_copies_follow_pointers_with_a_kernel_of_their_own(cuda: Cuda) -> None:
    fake = cuda(2)
    backend = CudaBackend(machine(2))
    for engine, kernel in ((Engine.SM, "chase"), (Engine.SM_BULK, "chase_bulk")):
        chase = transfer(1, 1, 0, engine=engine, operation=Operation.CHASE)
        with backend.prepare(Measurement((chase,), ()), RunOptions(timeout=5)) as prepared:
            prepared.sample(1)
        assert kernel in fake.launched
    backend.close()


# Huge pages.


@pytest.mark.parametrize(
    ("found", "says"),
    [
        (MIB, "only 1 MiB of a buffer of 2 MiB on numa0 is in huge pages; enable them"),
        (None, "an unknown part of a buffer of 2 MiB on numa0 is in huge pages"),
        (2 * MIB, ""),
    ],
)
def test_host_memory_that_must_be_in_huge_pages(
    cuda: Cuda, monkeypatch: pytest.MonkeyPatch, found: int | None, says: str
) -> None:
    cuda(1)
    monkeypatch.setattr(memory, "huge_bytes", lambda address: found)
    backend = CudaBackend(machine(1))
    measurement = Measurement((replace(transfer(0, 0, 0), source=Memory("numa0", MemoryKind.PINNED)),), ())
    with backend.prepare(measurement, RunOptions(timeout=5, affinity=False)):
        pass  # not required
    backend.close()
    options = RunOptions(timeout=5, affinity=False, huge_pages=True)
    if says:
        with pytest.raises(BackendError, match=re.escape(says)):
            backend.prepare(measurement, options)
    else:
        with backend.prepare(measurement, options):
            pass
    backend.close()


# Peers.


def test_more_peers_than_the_driver_allows(cuda: Cuda) -> None:
    fake = cuda(16, most_peers=8)
    backend = CudaBackend(machine(16))
    for other in range(1, 16):
        with backend.prepare(
            Measurement((transfer(other, 0, 0),), (Place("", 0, 0),)), RunOptions(timeout=5)
        ) as prepared:
            assert (0, other) in fake.enabled
            prepared.sample(1)
            prepared.verify()
    assert fake.calls.count("cuCtxDisablePeerAccess") == 8  # once, when there was no room
    backend.close()


def test_more_peers_at_once_than_the_driver_allows_are_waived(cuda: Cuda) -> None:
    fake = cuda(16, most_peers=8)
    backend = CudaBackend(machine(16))
    pulls = tuple(transfer(other, 0, 0) for other in range(1, 10))
    with pytest.raises(Unreachable, match="maximum number of peers is in use"):
        backend.prepare(Measurement(pulls, ()), RunOptions(timeout=5))
    with backend.prepare(Measurement(pulls[1:], ()), RunOptions(timeout=5)):
        assert fake.enabled == {(0, other) for other in range(2, 10)}


def test_peers_stay_enabled_where_there_is_room(cuda: Cuda) -> None:
    fake = cuda(2)
    first, second = (Device(gpu(i), CudaDriver(), i) for i in (0, 1))
    peers = Peers()
    for _ in range(3):
        peers.take(first, second)
        peers.give(first, second)
    assert fake.calls.count("cuCtxEnablePeerAccess") == 1


# Code for GPUs that are newer than NVRTC.


def test_ptx_that_the_driver_refuses(cuda: Cuda, monkeypatch: pytest.MonkeyPatch) -> None:
    unsupported = real.CUresult.CUDA_ERROR_UNSUPPORTED_PTX_VERSION
    fake = cuda(refused={"cuModuleLoadData": unsupported})
    with pytest.raises(BackendError, match=r"^cuModuleLoadData failed"):
        CudaDriver().module("source", 0)
    monkeypatch.setattr(backend_module, "compiled", lambda *_, **__: b"// PTX\0")
    fake.attributes["COMPUTE_CAPABILITY_MAJOR"] = 13
    with pytest.raises(BackendError, match=r"NVRTC .* does not know sm_130, .*UNSUPPORTED_PTX.*newer NVRTC"):
        CudaDriver().module("source", 0)


def test_the_libraries_are_those_that_are_installed() -> None:
    wheels = {"nvidia-cuda-nvrtc", "nvidia-cuda-nvrtc-cu12"}
    assert wheels & CudaBackend(machine(1)).libraries().keys()
    assert set(backend_module._PACKAGES) >= wheels


def test_a_gpu_whose_memory_another_process_uses_has_no_room(cuda, monkeypatch) -> None:
    cuda(refused={"cuDevicePrimaryCtxRetain": real.CUresult.CUDA_ERROR_OUT_OF_MEMORY})
    memory = SimpleNamespace(free=300 * MIB, total=80 * 2**30)
    other = SimpleNamespace(pid=2**22 + 1, usedGpuMemory=78 * 2**30)
    answers = {"nvmlDeviceGetMemoryInfo": memory, "nvmlDeviceGetComputeRunningProcesses": [other]}
    library = SimpleNamespace(
        NVMLError=RuntimeError,
        nvmlInit=lambda: None,
        nvmlDeviceGetHandleByPciBusId=lambda bus: 0,
        **{name: lambda handle, answer=answer: answer for name, answer in answers.items()},
    )
    nvml = Nvml(library)
    monkeypatch.setattr(CudaBackend, "_monitor", lambda self: nvml)
    backend = CudaBackend(machine(1))
    work = Measurement((transfer(0, 0, 0),), (Place("", 0, 0),))
    with pytest.raises(OutOfMemory, match=r"gpu0 to begin: 300 MiB of 80 GiB is free; in use by .*78 GiB"):
        backend.prepare(work, RunOptions())
    assert backend.busy() == {"gpu0": f"in use by a process (PID {2**22 + 1}, 78 GiB)"}
