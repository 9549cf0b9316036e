"""Sending memory of GPUs by MPI and NCCL: whether it can be done, and what is called."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("cuda.bindings", reason="cuda-bindings is not installed")

from wirespeed.backends.distributed.exchange import heard, told
from wirespeed.backends.gpu import mpi_aware
from wirespeed.backends.nccl import library
from wirespeed.backends.nccl.channel import NcclMessages
from wirespeed.errors import (
    BackendError,
    BackendLost,
    MeasurementTimeout,
    OutOfMemory,
    Unreachable,
    VerificationError,
    WirespeedError,
)
from wirespeed.hardware.devices import Gpu
from wirespeed.worlds.mpi import Move

GPU = Gpu(0, "NVIDIA H200", "00000000:06:00", backend="cuda")


@pytest.mark.parametrize(
    ("script", "expected"),
    [
        ("raise SystemExit(0)", ""),
        ("import os; os.kill(os.getpid(), 11)", "ended with signal 11"),
        ("raise SystemExit(3)", "arrived wrong"),
        (
            "import sys; print('no MPI here', file=sys.stderr); sys.exit(4)",
            "could not test whether this MPI is GPU-aware: no MPI here",
        ),
        ("raise RuntimeError('out of luck')", "the test process failed: RuntimeError: out of luck"),
        ("import time; time.sleep(60)", "did not end within 1 s"),
    ],
)
def test_a_process_of_its_own_tries_whether_mpi_is_gpu_aware(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, script: str, expected: str
) -> None:
    child = tmp_path / "python"
    child.write_text(f"#!{sys.executable}\nimport os\nassert 'PMIX_RANK' not in os.environ\n{script}\n")
    child.chmod(0o755)
    monkeypatch.setattr(mpi_aware.sys, "executable", str(child))
    found = mpi_aware.unaware(GPU, 1.0, {"PMIX_RANK": "3", "OMPI_MCA_pml": "ucx"})
    assert bool(found) == bool(expected) and expected in found
    assert not expected or "not end" in expected or "could not test" in found or "libucx-cu13" in found


def test_without_a_gpu_that_process_says_so_and_nothing_crashes() -> None:
    if Path("/proc/driver/nvidia/version").exists():
        pytest.skip("there is a GPU")
    assert "this MPI is not GPU-aware: the test process failed" in mpi_aware.unaware(GPU, 20.0)


@pytest.fixture
def nccl(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """NCCL's bindings that note what is called."""
    calls: list[tuple[Any, ...]] = []
    module: Any = ModuleType("nccl.bindings.nccl")
    module.calls, module.NCCLError = calls, type("NCCLError", (Exception,), {})
    module.UniqueId = SimpleNamespace(from_buffer=lambda raw: ("id", bytes(raw)))
    module.Config = lambda: "config"
    module.comm_init_rank_config = lambda *a: calls.append(("init", *a)) or "comm"
    for name in ("send", "recv", "group_start", "group_end", "comm_abort"):
        setattr(module, name, lambda *a, name=name: calls.append((name, *a)))
    monkeypatch.setattr(library, "bindings", lambda: module)
    yield module


def test_all_that_a_rank_sends_and_receives_is_one_operation(nccl: Any) -> None:
    driver = SimpleNamespace(synchronize=lambda stream: nccl.calls.append(("synchronize", stream)))
    lane: Any = SimpleNamespace(stream=7, device=SimpleNamespace(use=lambda: None, driver=driver))
    both = [Move(0x100, 64, 1, True), Move(0x200, 64, 1, False)]
    work = NcclMessages(2, 0, b"x" * 128).work(both, lane)
    assert nccl.calls[0] == ("init", 2, ("id", b"x" * 128), 0, "config")
    group = [("group_start",), ("send", 0x100, 64, 1, 1, "comm", 7), ("recv", 0x200, 64, 1, 1, "comm", 7),
             ("group_end",)]  # fmt: skip
    assert nccl.calls[1:] == [*group, ("synchronize", 7)]  # connected before there is a gate
    nccl.calls.clear()
    work.warm_up()
    work.put(2)
    assert nccl.calls == group * 3

    def fails() -> None:
        raise nccl.NCCLError("no route")

    nccl.group_end = fails
    with pytest.raises(BackendError, match="NCCL failed: no route"):
        work.put(1)


def test_nccl_that_is_missing_or_fails(nccl: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*_: object) -> None:
        raise nccl.NCCLError("unhandled system error")

    nccl.get_unique_id = nccl.comm_init_rank_config = fails
    assert library.refuses(0) == ("NCCL failed: unhandled system error", b"")
    assert library.refuses(1) == ("", b"")
    with pytest.raises(BackendError, match="cannot connect the ranks"):
        NcclMessages(2, 0, b"x" * 128)

    def missing() -> None:
        raise ImportError("No module named 'nccl'")

    monkeypatch.setattr(library, "bindings", missing)
    assert "NCCL cannot be used: No module named 'nccl'" in library.refuses(0)[0]


@pytest.mark.parametrize(
    "error",
    [BackendError("a"), BackendLost("b"), Unreachable("c"), OutOfMemory("d"), VerificationError("t", 8, 2, 9),
     MeasurementTimeout("waiting", 1.0)],
)  # fmt: skip
def test_errors_are_told_to_other_processes(error: WirespeedError) -> None:
    again = heard("rank 1", told(error))
    assert type(again) is type(error) and str(error) in str(again)
    if isinstance(error, VerificationError):
        assert isinstance(again, VerificationError)
        assert (again.offset, again.wrong, again.words) == (8, 2, 9)
    else:
        assert "rank 1" in str(again)
