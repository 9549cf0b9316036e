"""Executables with the names of other programs."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from wirespeed.cli.main import PEERS, main


def test_the_names_run_this_installation(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = tmp_path / "a b"
    for _ in range(2):  # its own files are replaced
        assert main(["install-names", str(folder)]) == 0
    assert {file.name for file in folder.iterdir()} == set(PEERS)
    run = [
        str(folder / "all_reduce_perf"),
        "--machine",
        "simulated:hgx-h200-2",
        "-g",
        "2",
        "-b",
        "8",
        "-e",
        "8",
    ]
    done = subprocess.run(run, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0 and "# Collective test starting: all_reduce_perf" in done.stdout


def test_files_of_others_are_kept(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "nvbandwidth").write_text("theirs")
    (tmp_path / "alltoall_perf").symlink_to("nowhere")
    assert main(["install-names", str(tmp_path)]) == 1
    assert "nvbandwidth" in (text := capsys.readouterr().err) and "alltoall_perf, " not in text
    assert "alltoall_perf" in text and len(text.splitlines()) == 1
    assert {file.name for file in tmp_path.iterdir()} == {"nvbandwidth", "alltoall_perf"}
    assert main(["install-names", str(tmp_path / "nvbandwidth")]) == 1
    assert "cannot write" in capsys.readouterr().err


def test_a_link_with_the_name_of_a_program_is_that_program(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["/opt/nccl/nvbandwidth", "--list"])
    assert main() == 0
    assert "device_local_copy" in capsys.readouterr().out
