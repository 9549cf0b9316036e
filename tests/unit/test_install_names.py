"""Executables with the names of other programs."""

from __future__ import annotations

import errno
import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from wirespeed.cli.commands import executables
from wirespeed.cli.main import main

PROGRAMS = executables()


def test_the_names_run_this_installation(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = tmp_path / "a b"
    for _ in range(2):  # its own files are replaced
        assert main(["install-names", str(folder)]) == 0
    assert {file.name for file in folder.iterdir()} == set(PROGRAMS)
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
    assert main(["install-names", str(tmp_path)]) == 5
    assert "nvbandwidth" in (text := capsys.readouterr().err) and "alltoall_perf, " not in text
    assert "alltoall_perf" in text and len(text.splitlines()) == 1
    assert {file.name for file in tmp_path.iterdir()} == {"nvbandwidth", "alltoall_perf"}
    assert main(["install-names", str(tmp_path / "nvbandwidth")]) == 5
    assert "cannot write" in capsys.readouterr().err


def test_no_predictable_name_is_written_through(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (victim := tmp_path / "victim").write_text("precious")
    (folder := tmp_path / "names").mkdir()
    planted = {folder / f"{peer}.{os.getpid()}" for peer in PROGRAMS} | {
        folder / f".{peer}." for peer in PROGRAMS
    }
    for one in planted:
        one.symlink_to(victim)
    assert main(["install-names", str(folder)]) == 0
    assert victim.read_text() == "precious" and all(one.is_symlink() for one in planted)
    assert {*folder.iterdir()} == planted | {folder / peer for peer in PROGRAMS}


def test_a_full_disk_leaves_no_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", full)
    assert main(["install-names", str(tmp_path)]) == 5
    assert "No space left" in capsys.readouterr().err and not list(tmp_path.iterdir())


def test_others_can_replace_none_of_them(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = os.umask(0)
    try:
        assert main(["install-names", str(tmp_path / "a" / "b")]) == 0
    finally:
        os.umask(before)
    for one in (tmp_path / "a", *(tmp_path / "a").rglob("*")):
        assert stat.S_IMODE(one.stat().st_mode) == 0o755


def test_modules_of_the_current_folder_are_not_imported(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["install-names", str(tmp_path / "bin")]) == 0
    for name in ("wirespeed", "argparse", "msgspec", "multiprocessing"):
        (tmp_path / f"{name}.py").write_text("raise SystemExit('planted')")
    run = [str(tmp_path / "bin" / "nvbandwidth"), "--list"]
    done = subprocess.run(run, cwd=tmp_path, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0 and "device_local_copy" in done.stdout and "planted" not in done.stderr


def test_names_of_programs_for_mpirun_run_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["install-names", str(tmp_path)]) == 0
    plain, for_mpirun = ((tmp_path / f"all_reduce_perf{end}").read_text() for end in ("", "_mpi"))
    assert plain.replace(" all_reduce_perf ", " all_reduce_perf_mpi ") == for_mpirun != plain
    monkeypatch.setattr(
        sys, "argv", ["/usr/local/bin/alltoall_perf_mpi", "--machine", "simulated:hgx-h200-2"]
    )
    capsys.readouterr()
    assert main() == 0
    text = capsys.readouterr().out
    assert "# Collective test starting: alltoall_perf_mpi\n" in text
    assert "# Collective test concluded: alltoall_perf_mpi\n" in text


def test_a_link_with_the_name_of_a_program_is_that_program(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["/opt/nccl/nvbandwidth", "--list"])
    assert main() == 0
    assert "device_local_copy" in capsys.readouterr().out


def test_a_link_with_the_reproducers_name_takes_its_five_numbers(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert "gpudirect_p2p_overalloc" in PROGRAMS
    monkeypatch.setattr(sys, "argv", ["/opt/gpudirect_p2p_overalloc", "5", "3", "1024", "1000", "1"])
    assert main() == 2
    assert "P2P_SIZE must be from 1 to BUFFER_SIZE + OVERALLOC_SIZE" in capsys.readouterr().err
