"""What ended in a crash of the process ends as an error of one line."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from wirespeed.backends import describe
from wirespeed.backends.host.memory import HostBufferPool
from wirespeed.errors import BackendLost, MachineError
from wirespeed.hardware.topology import load
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


def test_a_machine_file_with_peers_that_do_not_exist_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "machine.json"
    path.write_text(describe("simulated:hgx-h200-2").to_json().decode().replace('"gpu1"', '"gpu7"', 1))
    with pytest.raises(MachineError, match="gpu0 has the peer gpu7, which does not exist"):
        load(path)
