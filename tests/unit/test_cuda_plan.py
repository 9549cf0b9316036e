"""What the CUDA backend refuses, and which kernels and grids it chooses."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from wirespeed.backends.cuda import connect
from wirespeed.backends.cuda import cuda_driver as module
from wirespeed.backends.cuda.cuda_driver import CudaBackend
from wirespeed.backends.gpu.launch_config import shape, unfit
from wirespeed.backends.test_data import keys_of
from wirespeed.errors import BackendError
from wirespeed.hardware.devices import Gpu, NumaNode
from wirespeed.hardware.topology import Machine
from wirespeed.measurement import Measurement
from wirespeed.model import Engine, Executor, Memory, MemoryKind, Operation, Role, Transfer
from wirespeed.units import KIB, MIB

H200_SHARED = 232_448
MACHINE = Machine(
    "test",
    driver="580.1",
    cuda=99_000,
    numa=(NumaNode(0, (0, 1)),),
    gpus=(
        Gpu(0, "a", "00000000:00:06", compute_capability="9.0", peers=("gpu1",), backend="cuda"),
        Gpu(1, "b", "00000000:00:07", compute_capability="8.0", backend="cuda"),
    ),
)
GPU0, GPU1 = Memory("gpu0", MemoryKind.DEVICE), Memory("gpu1", MemoryKind.DEVICE)
PINNED, PAGEABLE = Memory("numa0", MemoryKind.PINNED), Memory("numa0", MemoryKind.PAGEABLE)


def copy(engine: Engine = Engine.CE, size: int = MIB, **changes: object) -> Transfer:
    return replace(Transfer(GPU0, GPU1, Executor("gpu0"), engine, size), **changes)  # type: ignore[arg-type]


@pytest.fixture
def backend(monkeypatch: pytest.MonkeyPatch) -> CudaBackend:
    monkeypatch.setattr(module, "version", lambda name: "13.0.0")
    return CudaBackend(MACHINE)


ACCEPTED = [
    copy(),
    copy(Engine.SM, 1),
    copy(Engine.SM_BULK, 3),
    copy(Engine.SM_SPLIT, source=PINNED, destination=GPU0),
    copy(source=PAGEABLE, destination=GPU0),
    copy(Engine.SM, operation=Operation.TRIAD, destination=GPU0, counted=3),
    copy(Engine.SM, operation=Operation.CHASE, source=PINNED, destination=PINNED),
    copy(Engine.SM_BULK, operation=Operation.CHASE),
]
REFUSED = [
    (copy(Engine.CPU), "no engine cpu"),
    (copy(source=replace(GPU0, rank=1)), "between processes"),
    (copy(executor=Executor("gpu0", rank=0)), "between processes"),
    (copy(executor=Executor("gpu7")), "gpu7 is not a GPU"),
    (copy(executor=Executor("numa0")), "numa0 is not a GPU"),
    (
        copy(source=Memory("numa4", MemoryKind.PINNED)),
        "pinned memory of numa4 does not belong to this machine",
    ),
    (copy(source=Memory("gpu4", MemoryKind.DEVICE)), "device memory of gpu4 does not belong to this machine"),
    (copy(executor=Executor("gpu1")), "gpu1 has no peer access to gpu0"),
    (copy(operation=Operation.ADD), "the engine ce does not support add, only copy"),
    (copy(Engine.SM_BULK, operation=Operation.READ), "sm_bulk does not support read, only copy, chase"),
    (copy(Engine.SM, source=PAGEABLE), "kernels cannot access pageable memory"),
    (
        copy(Engine.SM_BULK, source=GPU1, destination=GPU1, executor=Executor("gpu1")),
        "compute capability 9.0 or later; gpu1 has 8.0; use the engine sm",
    ),
    (copy(Engine.SM, 128, operation=Operation.CHASE), "at least 256 bytes"),
    (copy(Engine.SM, 12, operation=Operation.ADD), "a multiple of 8 bytes"),
    (copy(size=0), "has no bytes"),
    (copy(pace=0.5), "full speed"),
    (copy(Engine.SM, executor=Executor("gpu0", threads=33)), "not 33"),
    (copy(Engine.SM, executor=Executor("gpu0", threads=2048)), "not 2048"),
    (copy(Engine.SM, executor=Executor("gpu0", blocks=2**31)), "blocks"),
    (copy(Engine.SM_BULK, executor=Executor("gpu0", threads=65)), "1 to 64 threads per block, not 65"),
    (copy(Engine.SM_SPLIT, executor=Executor("gpu0", blocks=1, threads=32)), "at least two warps"),
]


@pytest.mark.parametrize("transfer", ACCEPTED, ids=str)
def test_accepted(backend: CudaBackend, transfer: Transfer) -> None:
    assert backend.refuses(Measurement((transfer,), ())) is None


@pytest.mark.parametrize(("transfer", "reason"), REFUSED, ids=[reason for _, reason in REFUSED])
def test_refused(backend: CudaBackend, transfer: Transfer, reason: str) -> None:
    assert reason in (backend.refuses(Measurement((transfer,), ())) or "")


def test_measurements_that_cannot_be(backend: CudaBackend) -> None:
    pageable = copy(source=PAGEABLE, destination=GPU0)
    assert "one can run at a time" in (backend.refuses(Measurement((pageable, copy()), ())) or "")
    load = copy(role=Role.LOAD)
    assert backend.refuses(Measurement((load,), ())) == "no transfer is measured"


@pytest.mark.parametrize(
    ("bindings", "cuda", "reason"),
    [
        (None, 13000, "cuda-bindings is missing: pip install 'wirespeed[cuda]'"),
        (None, 12040, "cuda-bindings is missing: pip install 'wirespeed[cuda12]'"),
        (
            None,
            0,
            "cuda-bindings is missing: pip install 'wirespeed[cuda]', or 'wirespeed[cuda12]' for drivers",
        ),
        (
            "13.3.0",
            12040,
            "supports CUDA 12.4, but cuda-bindings requires 13.0: update the driver, or "
            "pip install 'wirespeed[cuda12]'",
        ),
        ("12.9.1", 11080, "supports CUDA 11.8, but cuda-bindings requires 12.0: update the driver"),
        ("13.3.0", 13000, ""),
        ("12.9.1", 13000, ""),
    ],
)
def test_what_is_installed(
    monkeypatch: pytest.MonkeyPatch, bindings: str | None, cuda: int, reason: str
) -> None:
    def version(name: str) -> str:
        if bindings is None:
            raise module.PackageNotFoundError(name)
        return bindings

    monkeypatch.setattr(module, "version", version)
    backend = CudaBackend(replace(MACHINE, cuda=cuda))
    found = backend.refuses(Measurement((copy(),), ())) or ""
    assert reason in found
    assert bool(reason) == bool(found)
    assert backend.libraries()["NVIDIA driver"] == "580.1"
    backend.close()


def test_connect() -> None:
    assert connect(Machine("none")) is None
    assert connect(replace(MACHINE, simulated=True)) is None
    assert connect(MACHINE) is not None


def grid(transfer: Transfer) -> tuple[str, int, int, bool]:
    form = shape(transfer, 132, H200_SHARED)
    return form.kernel, form.blocks, form.threads, form.loops


def test_shapes() -> None:
    large = 512 * MIB
    assert grid(copy(Engine.SM, large)) == ("copy_stride", 264, 1024, True)
    assert grid(copy(Engine.SM, large, destination=GPU0)) == ("copy_cover", 131072, 256, False)
    pull = replace(copy(Engine.SM, large), source=GPU1, destination=GPU0)
    assert grid(pull) == ("copy_stride_deep", 264, 512, True)
    assert grid(copy(Engine.SM, 17)) == ("copy_cover", 1, 1024, True)
    assert grid(copy(Engine.SM, 64 * MIB - 1)) == ("copy_cover", 4096, 1024, True)
    assert grid(copy(Engine.SM, 17, executor=Executor("gpu0", blocks=4))) == ("copy_stride", 4, 1024, True)
    assert grid(copy(Engine.SM_SPLIT, large)) == ("copy_split", 65536, 1024, True)
    assert grid(copy(Engine.SM_SPLIT, large, executor=Executor("gpu0", blocks=4)))[1:3] == (4, 1024)
    assert [shape(copy(Engine.SM_SPLIT, large, executor=Executor("gpu0", blocks=b)), 132, H200_SHARED).passes
            for b in (0, 4)] == [4, 1]  # fmt: skip
    few = copy(Engine.SM_BULK, large, executor=Executor("gpu0", blocks=16))
    assert grid(few) == ("copy_bulk_fine", 16, 1, True)
    assert grid(replace(few, source=GPU1, destination=GPU0)) == ("copy_bulk", 16, 1, True)
    assert grid(copy(Engine.SM_BULK, large)) == ("copy_bulk", 132, 1, True)
    assert grid(copy(Engine.SM, large, operation=Operation.TRIAD)) == ("triad", 32768, 1024, False)
    assert grid(copy(Engine.SM, large, operation=Operation.READ)) == ("read", 264, 1024, False)


@given(st.integers(1, 64), st.sampled_from([232_448, 166_912, 101_376]))
def test_rings_of_bulk_copies_fit(threads: int, shared: int) -> None:
    transfer = copy(Engine.SM_BULK, executor=Executor("gpu0", threads=threads))
    assert unfit(transfer) == ""
    form = shape(transfer, 132, shared)
    assert form.shared <= shared
    assert 128 <= form.chunk <= 16 * KIB
    assert form.chunk % 128 == 0


@pytest.mark.parametrize(
    ("error", "kind", "text"),
    [
        ("CUDA_ERROR_OUT_OF_MEMORY", "OutOfMemory", "cuCall failed: CUDA_ERROR_OUT_OF_MEMORY (why)"),
        ("CUDA_ERROR_ILLEGAL_ADDRESS", "BackendLost", "cuCall failed: CUDA_ERROR_ILLEGAL_ADDRESS (why)"),
        ("CUDA_ERROR_INVALID_VALUE", "BackendError", "cuCall failed: CUDA_ERROR_INVALID_VALUE (why)"),
        (None, "BackendError", "cuCall cannot be called: no driver"),
    ],
)
def test_driver_errors(monkeypatch: pytest.MonkeyPatch, error: str | None, kind: str, text: str) -> None:
    pytest.importorskip("cuda.bindings")
    from wirespeed.backends.cuda import driver as calls

    result = calls.driver.CUresult

    class Explains:
        CUresult = result

        @staticmethod
        def cuGetErrorString(status: object) -> tuple[object, bytes]:
            return result.CUDA_SUCCESS, b"why"

    def cuCall() -> tuple[object]:
        if error is None:
            raise RuntimeError("no driver")
        return (getattr(result, error),)

    monkeypatch.setattr(calls, "driver", Explains)
    with pytest.raises(BackendError) as caught:
        calls.check(cuCall)
    assert type(caught.value).__name__ == kind
    assert str(caught.value) == text


def test_driver_answers() -> None:
    pytest.importorskip("cuda.bindings")
    from wirespeed.backends.cuda.driver import check, driver

    success = driver.CUresult.CUDA_SUCCESS
    assert check(lambda: (success,)) is None
    assert check(lambda: (success, 5)) == 5
    assert check(lambda a, b: (success, a, b), 1, 2) == (1, 2)


def test_no_two_patterns_share_a_key() -> None:
    keys = [key for seed in (0, 1) for transfer in range(-1, 20) for key in keys_of(seed, transfer)]
    assert len(set(keys)) == 2 * 21 * 3
    assert all(0 <= key < 2**64 for key in keys)
