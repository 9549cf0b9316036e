"""What commands print on request: parts, lines, nothing."""

from __future__ import annotations

import io
import json
import subprocess
import sys
from pathlib import Path

import pytest

import wirespeed
from wirespeed.cli.main import main

MACHINE = "simulated:hgx-h200-2"


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_show_prints_some_testcases_of_several_runs(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    wirespeed.run(["0", "4", "38"], machine=MACHINE, output="a.json")
    assert main(["show", "a.json", "a.json", "-t", "38", "-p", "host_to"]) == 0
    out = capsys.readouterr().out
    assert out.count("a.json:\n") == 2 and out.count("device_local_copy") >= 2
    assert "host_to_device_memcpy_ce" in out and "memcpy_read_ce" not in out
    assert main(["show", "a.json", "-t", "nosuch"]) == 2
    assert "the run has no testcase 'nosuch'" in capsys.readouterr().err


def test_show_reads_standard_input(folder: Path) -> None:
    wirespeed.run(["38"], machine=MACHINE, output="a.json")
    command = [sys.executable, "-m", "wirespeed", "show", "-", "--format", "csv"]
    text = (folder / "a.json").read_text()
    done = subprocess.run(command, input=text, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0 and done.stdout.count("device_local_copy") == 2


def test_a_run_may_be_quiet_and_leave_no_file(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", "--machine", MACHINE, "-t", "38", "-q", "--no-save"]) == 0
    assert capsys.readouterr().out == "" and not list(folder.iterdir())
    assert main(["run", "--no-save", "-o", "a.json"]) == 2


def test_a_run_of_everything_ends_with_the_answer(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--machine", "simulated:cpu-2-sockets+speed@numa1-numa1=0.3", "--no-save"]) == 1
    out = capsys.readouterr().out
    assert out.index("host memory") < out.index("\nFAIL  memory of numa1") and out.count("\nFAIL") == 1


def test_lists_for_programs(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["list", "--short", "--machine", "simulated:cpu-2-sockets"]) == 0
    short = capsys.readouterr().out.split()
    assert main(["list", "--json", "--machine", "simulated:cpu-2-sockets"]) == 0
    listed = json.load(io.StringIO(capsys.readouterr().out))
    assert [one["name"] for one in listed if one["possible"]] == short and "host_latency" in short
    assert {one["reason"] for one in listed if one["index"] == 0} == {"no GPU was found"}
