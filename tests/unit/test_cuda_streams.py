"""Streams that cannot wait, by a fake driver."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

pytest.importorskip("cuda.bindings")

from tests.fakes.cuda import FakeCuda
from wirespeed.backends.cuda import compiler, cuda_driver
from wirespeed.backends.cuda.cuda_driver import CudaBackend
from wirespeed.backends.gpu.gpu_driver import Monitor
from wirespeed.backends.gpu.prepared import GpuPrepared
from wirespeed.hardware.devices import Gpu, NumaNode
from wirespeed.hardware.topology import Machine
from wirespeed.measurement import Measurement
from wirespeed.model import Engine, Executor, Memory, MemoryKind, Transfer
from wirespeed.options import RunOptions
from wirespeed.units import MIB

OPTIONS = RunOptions(timeout=5)


@pytest.fixture
def cuda(monkeypatch: pytest.MonkeyPatch) -> Callable[..., FakeCuda]:
    monkeypatch.setattr(cuda_driver, "compiled", lambda *_, **__: compiler.ELF)
    monkeypatch.setattr(CudaBackend, "_monitor", lambda self: Monitor())

    def make(**more: Any) -> FakeCuda:
        fake = FakeCuda(2, **more)
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


def test_a_gpu_whose_streams_cannot_wait_spins(cuda: Callable[..., FakeCuda], backend: CudaBackend) -> None:
    fake = cuda(attributes={"CAN_USE_64_BIT_STREAM_MEM_OPS": 0})
    with prepared(backend, transfer(0, 1), transfer(1, 0)) as one:
        before = len([name for name in fake.calls if name == "cuFuncLoad"])
        one.sample(1)
        assert len([name for name in fake.calls if name == "cuFuncLoad"]) <= before + 2  # spin, on each GPU
    assert fake.launched.count("spin") >= 2
