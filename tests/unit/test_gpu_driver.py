"""The seam of GPUs: another driver than CUDA's measures, verifies and shares, without CUDA's bindings."""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import wirespeed
from tests.fakes import gpu as fake
from tests.fakes.gpu import MemoryBackend, MemoryDriver
from wirespeed.backends.distributed.job_process import Handle
from wirespeed.backends.gpu import bound_copy, stream_ops
from wirespeed.backends.gpu.device import Peers
from wirespeed.backends.gpu.gpu_driver import FABRIC, IPC, VMM_FD, driver_of
from wirespeed.backends.gpu.sharing import GpuBuffers
from wirespeed.document import TestcaseResult
from wirespeed.errors import BackendError
from wirespeed.hardware.devices import Gpu, NumaNode
from wirespeed.hardware.topology import Machine
from wirespeed.measurement import Measurement
from wirespeed.model import Engine, Executor, Memory, MemoryKind, Operation, Transfer
from wirespeed.options import RunOptions
from wirespeed.testcases.device import saxpy
from wirespeed.testcases.selections import narrow
from wirespeed.units import KIB, MIB

MACHINE = Machine(
    "in memory",
    numa=(NumaNode(0, (0, 1), memory_bytes=2**34),),
    gpus=tuple(
        Gpu(i, "in memory", f"00000000:00:{6 + i:02x}", compute_capability="1.0", backend=MemoryBackend.name,
            peers=(f"gpu{1 - i}",)) for i in range(2)
    ),
)  # fmt: skip

GPU0, GPU1 = (Memory(f"gpu{i}", MemoryKind.DEVICE) for i in range(2))


@pytest.fixture
def driver(monkeypatch: pytest.MonkeyPatch) -> Iterator[MemoryDriver]:
    """A driver in memory, of which nothing is left; CUDA's bindings and NVML cannot be imported."""
    for module in ("cuda", "cuda.bindings", "pynvml"):
        monkeypatch.setitem(sys.modules, module, None)
    monkeypatch.delitem(sys.modules, "wirespeed.backends.cuda.cuda_driver", raising=False)
    driver = MemoryDriver()
    monkeypatch.setattr(fake, "opened", [driver])
    yield driver
    assert driver.left == {}


@pytest.fixture
def backend(driver: MemoryDriver) -> Iterator[MemoryBackend]:
    backend = MemoryBackend(MACHINE)
    yield backend
    backend.close()


def measured(backend: MemoryBackend, testcase: str, **options: Any) -> TestcaseResult:
    document = wirespeed.run(
        [testcase],
        machine=MACHINE,
        backends=[backend],
        sizes=(MIB + 9,),
        samples=2,
        affinity=False,
        **options,
    )
    assert document.libraries == {"driver": "in memory"}
    return document.testcases[0]


@pytest.mark.parametrize(
    ("testcase", "cells"),
    [
        ("host_to_device_memcpy_ce", 2),
        ("device_to_host_bidirectional_memcpy_ce", 2),
        ("device_to_device_memcpy_read_ce", 2),
        ("device_to_device_bidirectional_memcpy_write_ce", 2),
        ("device_local_copy", 2),
    ],
)
@pytest.mark.parametrize("virtual_memory", [False, True])
def test_a_testcase_on_another_driver(
    backend: MemoryBackend, testcase: str, cells: int, virtual_memory: bool
) -> None:
    result = measured(backend, testcase, virtual_memory=virtual_memory)
    assert result.status == "passed", result.reason
    rates = [rate for rate in result.tables[0].values() if rate is not None]
    assert len(rates) == cells and all(0 < rate < 1e13 for rate in rates)


def test_a_kernel_on_another_driver(backend: MemoryBackend) -> None:
    result = measured(backend, "device_to_device_memcpy_read_sm")
    assert result.status == "passed", result.reason


def test_flags_between_two_gpus_on_another_driver(
    backend: MemoryBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in (stream_ops, bound_copy):
        monkeypatch.setattr(module, "FLAGS", 8)  # each wait is a turn of the streams in memory
    result = measured(backend, "device_to_device_signal_latency", copies=3)
    assert result.status == "passed", result.reason
    assert [cell.value is not None for cell in result.tables[0].cells] == [True, True]


def test_a_flag_that_no_gpu_answers_is_a_time_out(
    backend: MemoryBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    def silent(*values: int) -> Iterator[bool]:
        yield from ()

    monkeypatch.setitem(fake._KERNELS, "peer_pong", silent)
    result = measured(backend, "device_to_device_signal_latency")
    assert result.status == "timed out" and "waiting for the flag of gpu0 on gpu1" in result.reason


@pytest.mark.parametrize(
    ("source", "destination"),
    [(GPU0, Memory("numa0", MemoryKind.PINNED)), (GPU1, GPU1), (GPU1, GPU0)],
)
def test_only_another_gpu_with_peer_access_answers_a_flag(
    backend: MemoryBackend, source: Memory, destination: Memory
) -> None:
    flags = Transfer(source, destination, Executor("gpu0"), Engine.SM, 4 * KIB, operation=Operation.SIGNAL)
    reason = backend.refuses(Measurement((flags,), ())) or ""
    assert "only another GPU with peer access in both directions" in reason


def test_a_copy_that_goes_wrong_is_found(driver: MemoryDriver, backend: MemoryBackend) -> None:
    """Also in the last byte, of a word that is not complete."""

    def damage(address: int, size: int) -> None:
        ctypes.c_uint8.from_address(address + size - 1).value ^= 1

    driver.damage = damage
    result = measured(backend, "device_to_device_memcpy_read_ce")
    assert result.status == "failed" and f"offset {MIB + 8}" in result.reason


@pytest.mark.parametrize("number", ["float16", "float32", "float64"])
def test_a_library_adds_vectors_in_place(driver: MemoryDriver, backend: MemoryBackend, number: str) -> None:
    """The numbers of copies are odd and even; the sum stays exact, and a part that is wrong is found."""
    case = narrow(saxpy(number, cublas=True), columns=["gpu0"])
    for copies in (1, 2, 7):
        (result,) = wirespeed.run(
            [case],
            machine=MACHINE,
            backends=[backend],
            size=MIB + 8,
            samples=3,
            copies=copies,
            affinity=False,
        ).testcases
        assert result.status == "passed", result.reason
        assert result.tables[0].cells[0].bytes == 3 * (MIB + 8)
    assert driver.blas.scalars[-8:] == [3, -6, 6, -6, 6, -6, 6, -6]


def test_a_library_that_adds_nothing_is_found(
    monkeypatch: pytest.MonkeyPatch, backend: MemoryBackend
) -> None:
    monkeypatch.setattr(fake.MemoryBlas, "bind_axpy", lambda *_: lambda scalar: None)
    case = narrow(saxpy("float32", cublas=True), columns=["gpu0"])
    for copies in (1, 2):
        (result,) = wirespeed.run(
            [case], machine=MACHINE, backends=[backend], size=MIB, samples=1, copies=copies, affinity=False
        ).testcases
        assert result.status == "failed" and "wrong" in result.reason


def test_what_a_library_cannot_do_is_refused(monkeypatch: pytest.MonkeyPatch, backend: MemoryBackend) -> None:
    own, other = (Memory(f"gpu{i}", MemoryKind.DEVICE) for i in range(2))
    add = Transfer(own, own, Executor("gpu0"), Engine.CUBLAS, MIB, operation=Operation.SAXPY)
    assert backend.refuses(Measurement((add,), ())) is None
    for wrong, reason in (
        (replace(add, operation=Operation.COPY), "does not support copy, only saxpy, haxpy, triad"),
        (replace(add, destination=other), "the GPU's own memory"),
    ):
        assert reason in (backend.refuses(Measurement((wrong,), ())) or "")
    monkeypatch.delattr(MemoryBackend, "without_blas")
    assert "no library of linear algebra" in (backend.refuses(Measurement((add,), ())) or "")


def test_what_waits_for_the_gate_does_not_run(backend: MemoryBackend) -> None:
    ends = (Memory(f"gpu{i}", MemoryKind.DEVICE) for i in range(2))
    transfer = Transfer(*ends, Executor("gpu0"), engine=Engine.CE, bytes=MIB)
    with backend.prepare(Measurement((transfer,), ()), RunOptions(timeout=5)) as prepared:
        lane = prepared._bound[0].lane
        prepared._gate.close_all()
        prepared.arm(3)
        assert not lane.is_idle
        prepared._gate.release()
        prepared.finish()
        assert lane.is_idle
        prepared.verify()


def test_peers_give_way(driver: MemoryDriver, backend: MemoryBackend) -> None:
    driver.most_peers = 1
    measured(backend, "device_to_device_memcpy_read_ce")
    assert driver.peers == [0]  # first GPU 1 was the peer of GPU 0
    driver.most_peers = 0
    driver.peers.clear()
    backend._peers = Peers()
    result = measured(backend, "device_to_device_memcpy_read_ce")
    assert result.status == "waived" and "maximum number of peers is in use" in result.reason


def test_a_gpu_that_the_driver_hides(driver: MemoryDriver, backend: MemoryBackend) -> None:
    driver.gpus = 1
    result = measured(backend, "device_to_device_memcpy_read_ce")
    assert "memory does not let this process use gpu1 at 00000000:00:07; look again" in result.reason


# Buffers of pairs, and sharing.


@pytest.fixture
def ends(driver: MemoryDriver) -> Iterator[tuple[GpuBuffers, GpuBuffers]]:
    first, last = (GpuBuffers(gpu, 5.0) for gpu in MACHINE.gpus)
    yield first, last
    for place in (first, last):
        place.close()
        place.where.close()


@pytest.mark.parametrize("mechanism", [IPC, VMM_FD, FABRIC])
def test_memory_is_shared(ends: tuple[GpuBuffers, GpuBuffers], mechanism: str) -> None:
    owner, user = ends
    data = np.arange(4 * KIB, dtype=np.uint8)
    exporting, opening = owner.sharing(mechanism), user.sharing(mechanism)
    allocation = exporting.allocate(owner.where, data.size)
    owner.write(allocation.address, data)
    opened = opening.open(user.where, exporting.export(allocation))
    local = user.allocate(data.size)
    user.copy(local, opened.address, data.size)
    assert np.array_equal(user.read(local, data.size), data)
    user.free(local)
    opened.release()
    allocation.release()


def test_memory_that_cannot_be_shared_says_why(
    driver: MemoryDriver, ends: tuple[GpuBuffers, GpuBuffers], monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuses(*_: object) -> None:
        raise BackendError("not permitted")

    place = ends[0]
    with pytest.raises(BackendError, match="memory of a GPU is shared by ipc, vmm-fd, fabric, not by shm"):
        place.sharing("shm")
    monkeypatch.setattr(driver, "map_memory", refuses)
    monkeypatch.setattr(driver, "create_memory", lambda device, size, mechanism: (0, size))
    with pytest.raises(
        BackendError, match="4 KiB could not be mapped for gpu0: not permitted; weave a fabric"
    ):
        place.sharing(FABRIC).allocate(place.where, 4 * KIB)
    monkeypatch.setattr(driver, "import_memory", refuses)
    with pytest.raises(BackendError, match=r"^not permitted; weave a fabric"):
        place.sharing(FABRIC).open(place.where, Handle(FABRIC, b"0", 0, 4 * KIB))


def test_the_driver_of_a_backend() -> None:
    with pytest.raises(BackendError, match="the backend host offers no access to the memory of its GPUs"):
        driver_of("host")


def test_without_the_bindings_cuda_says_what_to_install(driver: MemoryDriver) -> None:
    with pytest.raises(BackendError, match=r"CUDA driver cannot be used.*pip install 'wirespeed\[cuda\]'"):
        driver_of("cuda")
