"""What ended in a crash of the process ends as an error of one line."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from wirespeed.backends.host.memory import HostBufferPool
from wirespeed.errors import BackendLost
from wirespeed.units import MIB


def test_a_time_out_while_memory_is_filled_is_no_segmentation_fault(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "wirespeed", "run", "-t", "host_stream_copy", "--size", "512MiB"]
    done = subprocess.run(
        [*command, "--timeout", "100ms", "-o", str(tmp_path / "d.json")],
        capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    assert done.returncode == 1, done.stderr
    assert "timed out" in done.stdout + done.stderr


def test_memory_that_threads_may_still_write_to_stays_mapped() -> None:
    pool = HostBufferPool(several=False, available=lambda node: None)

    def stuck(buffer: object) -> None:
        raise BackendLost("threads do not return from touching")

    with pytest.raises(BackendLost):
        pool.take(0, MIB, stuck)
    (buffer,) = pool._mapped
    assert buffer.bytes >= MIB and not pool._free
    pool.close()  # only called once the threads have ended
    assert not pool._mapped
