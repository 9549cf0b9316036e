"""Output files: only our own files are replaced, whole, and never through a name that others can predict."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import wirespeed
from wirespeed.cli.main import main
from wirespeed.errors import StorageError, UsageError
from wirespeed.results import store

_RUN = ["run", "-t", "0", "--samples", "2", "--copies", "1", "--machine", "simulated:hgx-h200-2"]
_DOCUMENT = wirespeed.run(["0"], machine="simulated:hgx-h200-2", samples=2, copies=1)


@pytest.fixture
def run_json(tmp_path: Path) -> Path:
    path = tmp_path / "run.json"
    wirespeed.save(_DOCUMENT, path)
    return path


def error(capsys: Any) -> str:
    text: str = capsys.readouterr().err
    assert text.count("\n") == 1 and text.startswith("wirespeed: error: ")
    return text


@pytest.mark.parametrize(
    "content", ["notes", "{}", '{"wirespeed_baseline": 1}', "[1]", "\xff", '{"a": [' * 9999]
)
def test_a_run_replaces_no_other_file(content: str, tmp_path: Path, capsys: Any) -> None:
    path = tmp_path / "notes"
    path.write_text(content)
    assert main([*_RUN, "-o", str(path)]) == 2
    assert "exists and is not a saved run" in error(capsys) and path.read_text() == content
    with pytest.raises(UsageError, match="is not a saved run"):
        wirespeed.run(["0"], machine="simulated:hgx-h200-2", output=path)
    assert main([*_RUN, "-o", str(path), "--force"]) == 0
    assert wirespeed.load(path).good


@pytest.mark.parametrize(
    "command",
    [
        ["check", "--allow-simulated", "-t", "0", "--machine", "simulated:hgx-h200-2", "-o"],
        ["nvbandwidth", "-t", "0", "--machine", "simulated:hgx-h200-2", "-o"],
        ["all_reduce_perf", "--machine", "simulated:hgx-h200-2", "-b", "8", "-e", "8", "--output"],
    ],
    ids=lambda command: command[0],
)  # fmt: skip
def test_other_commands_neither(command: list[str], tmp_path: Path, capsys: Any) -> None:
    path = tmp_path / "notes"
    path.write_text("notes")
    assert main([*command, str(path)]) == (1 if command[0] == "nvbandwidth" else 2)
    assert "exists and is not a saved run" in capsys.readouterr().err and path.read_text() == "notes"
    main([*command, str(path), "--force"])
    assert wirespeed.load(path)


def test_a_run_replaces_saved_runs_and_empty_files(run_json: Path, tmp_path: Path) -> None:
    empty = tmp_path / "empty"
    empty.touch()
    for path in (run_json, empty):
        assert main([*_RUN, "-o", str(path)]) == 0
        assert wirespeed.load(path).good


def test_a_baseline_replaces_only_baselines(run_json: Path, tmp_path: Path, capsys: Any) -> None:
    before, path = run_json.read_bytes(), tmp_path / "baseline.json"
    assert main(["baseline", "make", str(run_json), "-o", str(run_json)]) == 2
    assert "exists and is not a baseline" in error(capsys) and run_json.read_bytes() == before
    for _ in range(2):
        assert main(["baseline", "make", str(run_json), "-o", str(path)]) == 0
    assert main(["baseline", "make", str(run_json), "-o", str(run_json), "--force"]) == 0
    assert run_json.read_bytes() == path.read_bytes()


def test_a_report_replaces_no_saved_run(run_json: Path, capsys: Any) -> None:
    before = run_json.read_bytes()
    assert main(["report", str(run_json), "-o", str(run_json), "--format", "csv"]) == 2
    assert "is a saved run" in error(capsys) and run_json.read_bytes() == before


def test_the_copy_of_a_run_on_a_full_disk_follows_no_link(tmp_path: Path, monkeypatch: Any) -> None:
    shared, victim, path = tmp_path / "tmp", tmp_path / "victim", tmp_path / "d.json"
    shared.mkdir()
    victim.write_text("precious")
    (shared / "d.json").symlink_to(victim)
    monkeypatch.setattr(store.tempfile, "gettempdir", lambda: str(shared))
    saver = store.Saver(path)

    def full(*_: object) -> None:
        raise StorageError("the disk is full")

    monkeypatch.setattr(store, "save", full)
    with pytest.raises(StorageError, match="the disk is full; the results were saved to") as caught:
        saver.run_ended(_DOCUMENT)
    copy = Path(str(caught.value).rpartition(" ")[2])
    assert wirespeed.load(copy) == _DOCUMENT and copy.stat().st_mode & 0o777 == 0o600
    assert victim.read_text() == "precious"


def test_the_first_reason_counts_if_there_is_no_room_for_a_copy(tmp_path: Path, monkeypatch: Any) -> None:
    saver = store.Saver(tmp_path / "d.json")

    def full(*_: object) -> None:
        raise StorageError("the disk is full")

    monkeypatch.setattr(store, "save", full)
    monkeypatch.setattr(store.tempfile, "gettempdir", lambda: str(tmp_path / "none"))
    with pytest.raises(StorageError, match=r"^the disk is full$"):
        saver.run_ended(_DOCUMENT)


@pytest.mark.parametrize("name", ["/dev/stdout", "/dev/fd/1", "/proc/self/fd/1", "-"])
def test_standard_output_by_any_name(name: str, tmp_path: Path) -> None:
    out = tmp_path / "o"
    with out.open("w") as file:
        file.write("before\n")
        file.flush()
        command = [sys.executable, "-m", "wirespeed", *_RUN, "-o", name]
        subprocess.run(command, stdout=file, stderr=subprocess.DEVNULL, check=True)
    assert list(tmp_path.iterdir()) == [out]
    before, _, document = out.read_bytes().partition(b"\n")
    assert before == b"before" and store.decode(document, "o").good


def test_another_open_file(tmp_path: Path) -> None:
    out = tmp_path / "o"
    with out.open("w") as file:
        store.write(Path(f"/dev/fd/{file.fileno()}"), b"all")
        store.write(Path(f"/dev/fd/{file.fileno()}"), b" of it")
    assert out.read_text() == "all of it" and list(tmp_path.iterdir()) == [out]


@pytest.mark.parametrize("command", ["run", "report", "baseline"])
def test_links_that_lead_nowhere(command: str, run_json: Path, tmp_path: Path, capsys: Any) -> None:
    loop = tmp_path / "loop.csv"
    loop.symlink_to(loop)
    arguments = {
        "run": [*_RUN, "-o"], "report": ["report", str(run_json), "-o"],
        "baseline": ["baseline", "make", str(run_json), "-o"],
    }[command]  # fmt: skip
    assert main([*arguments, str(loop)]) == 1
    assert "Too many levels of symbolic links" in error(capsys) and os.path.lexists(loop)
