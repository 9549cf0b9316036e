"""Messages and shared buffers between two processes with a GPU each."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import wirespeed
from wirespeed.backends import discover
from wirespeed.document import Document, Status, TestcaseResult

pytestmark = pytest.mark.gpu


def run(path: Path, command: str, *arguments: str) -> Document:
    if len(discover().gpus) < 2:
        pytest.skip("two GPUs are needed")
    done = subprocess.run(
        [sys.executable, "-m", "wirespeed", command, *arguments, "-o", str(path)],
        capture_output=True, text=True, timeout=300,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    return wirespeed.load(path)


def passed_or_waived(result: TestcaseResult, why: tuple[str, ...]) -> None:
    """Accept a result that is waived only for what this host may lack."""
    if result.status is Status.WAIVED:
        assert any(text in result.reason for text in why), result.reason
    else:
        assert result.status is Status.PASSED, result.reason


def test_messages_and_sharing_as_testcases(tmp_path: Path) -> None:
    document = run(
        tmp_path / "d.json", "run", "-p", "message", "sharing", "--processes", "2", "--samples", "3",
        "--copies", "20", "--size", "64MiB",
    )  # fmt: skip
    results = {result.name: result for result in document.testcases}
    assert len(results) == 10
    assert results["sharing_ipc_gpu"].status is Status.PASSED
    assert results["sharing_vmm_fd_gpu"].status is Status.PASSED
    assert results["sharing_shm_host"].status is Status.PASSED
    passed_or_waived(results["sharing_fabric_gpu"], ("IMEX", "not supported", "NOT_SUPPORTED"))
    for name in ("message_nccl_gpu", "sharing_nccl_gpu"):
        passed_or_waived(results[name], ("NCCL cannot be used",))
    for name in ("message_mpi_host", "message_mpi_gpu", "sharing_mpi_gpu", "sharing_mpi_host"):
        assert "not started by MPI" in results[name].reason
    for result in results.values():
        assert all(cell.value for t in result.tables for cell in t.cells) or result.status is Status.WAIVED


def test_the_front_ends(tmp_path: Path) -> None:
    document = run(
        tmp_path / "s.json", "overalloc", "--sweep", "--means", "ipc,vmm-fd", "--buffer", "64MiB",
        "--repeats", "2",
    )  # fmt: skip
    assert [r.name for r in document.testcases] == ["overalloc_ipc_gpu", "overalloc_vmm_fd_gpu"]
    assert {len(c.samples) for r in document.testcases for t in r.tables for c in t.cells} == {2}
