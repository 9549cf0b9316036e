"""A run is judged once, whatever a command shows of it."""

from __future__ import annotations

import sys
from pathlib import Path
from types import FrameType

import pytest

from wirespeed.cli.main import main
from wirespeed.judging import judge

MACHINE = ["--machine", "simulated:hgx-h200-2+gen4@gpu1", "-t", "0", "1", "--samples", "1", "--copies", "1"]


def times_judged(*command: str) -> int:
    """How many times a command calls ``judge``, under whatever name."""
    calls = 0

    def count(frame: FrameType, event: str, _: object) -> None:
        nonlocal calls
        code = frame.f_code
        calls += event == "call" and code.co_name == "judge" and code.co_filename == judge.__file__

    before = sys.getprofile()
    sys.setprofile(count)
    try:
        main(command)
    finally:
        sys.setprofile(before)
    return calls


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> str:
    path = tmp_path_factory.mktemp("runs") / "run.json"
    main(["run", *MACHINE, "-q", "-o", str(path)])
    return str(path)


@pytest.mark.parametrize("command", ["run", "check", "doctor"])
def test_a_measured_run_is_judged_once(
    command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    simulated = ["--allow-simulated"] if command == "check" else []
    assert times_judged(command, *MACHINE, *simulated) == 1
    assert "gpu1" in capsys.readouterr().out


@pytest.mark.parametrize("form", ["table", "html", "markdown", "json", "junit", "prometheus", "csv"])
def test_a_report_judges_the_run_once(form: str, saved: str, capsysbinary: object) -> None:
    assert times_judged("report", saved, "--format", form, "-o", "-") <= 1


def test_a_check_of_a_saved_run_judges_it_once(saved: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert times_judged("check", saved, "--allow-simulated", "-v", "--format", "html", "-o", "-") <= 1
    capsys.readouterr()
    assert times_judged("check", saved, "--allow-simulated", "--gates", "azure") == 1
