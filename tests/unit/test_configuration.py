"""Defaults of options from files and variables, and completion of words."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from wirespeed.cli.configuration import arguments, settings
from wirespeed.cli.main import main

MACHINE = "simulated:hgx-h200-2"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder below one with a project file, and a home with another."""
    (below := tmp_path / "project" / "a" / "b").mkdir(parents=True)
    (tmp_path / "home").mkdir()
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "home"))
    monkeypatch.chdir(below)
    return tmp_path


def write(folder: Path, where: str, text: str) -> None:
    (folder / where / "wirespeed.toml").write_text(text)


def test_the_command_line_comes_before_variables_before_the_project_before_the_user(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(folder, "home", '[defaults]\ntimeout = "1s"\nseed = 1\n[run]\ntestcase = ["a"]\nno-verify = true\n')
    write(
        folder,
        "project",
        '[defaults]\ntimeout = "2s"\n[run]\nno-verify = false\n[check]\ngates = ["aws", "oci"]\n',
    )
    monkeypatch.setenv("WIRESPEED_SEED", "3")
    monkeypatch.setenv("WIRESPEED_JOB_SECRET", "none of the options")
    options = {"timeout": True, "seed": True, "testcase": True, "no-verify": False}
    assert arguments("run", options) == ["--timeout=2s", "--seed=3", "--testcase=a"]
    assert arguments("check", {"gates": True}) == ["--gates=aws", "--gates=oci"]
    assert {one.origin for one in settings()} >= {"WIRESPEED_SEED"}


def test_options_have_the_configured_defaults(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write(
        folder,
        "project",
        '[run]\ntestcase = ["38"]\n[defaults]\nformat = "json"\nmachine = "simulated:hgx-h200-2"\n',
    )
    assert main(["run", "-t", "0", "-o", "run.json"]) == 0
    assert [case["name"] for case in json.loads(capsys.readouterr().out)["testcases"]] == [
        "device_local_copy", "host_to_device_memcpy_ce",
    ]  # fmt: skip
    assert main(["config"]) == 0
    assert "run.testcase = 38" in (text := capsys.readouterr().out) and str(folder) in text
    assert main(["nvbandwidth", "-l"]) == 0  # the options of other programs are not ours
    assert "testcase" not in capsys.readouterr().err


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[run]\ntimeot = 1\n", "run has no option 'timeot' (did you mean 'timeout'?)"),
        ("timeout = 1\n", "'timeout' is not in a table"),
        ("[run]\nforce = true\n", "force can only be given on the command line"),
        ("[run]\ntimeout = true\n", "timeout needs a value"),
        ("[run]\nno-verify = 3\n", "no-verify is true or false"),
        ("[run]\nsize = []\n", "run.size must be"),
        ("[run\n", "Expected"),
        ('[run]\ntimeout = "soon"\n', "'soon' is not a"),
    ],
)
def test_what_is_wrong_in_a_file_is_one_line(
    folder: Path, capsys: pytest.CaptureFixture[str], text: str, message: str
) -> None:
    write(folder, "project", text)
    try:
        code = main(["run", "--machine", MACHINE])
    except SystemExit as error:
        code = int(str(error.code))
    error_text = capsys.readouterr().err
    assert code == 2 and message in error_text and len(error_text.splitlines()) == 1


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("wirespeed ch", ["check "]),
        ("wirespeed run -t host_lat", ["host_latency", "host_latency_ladder"]),
        ("wirespeed check --machine simulated:dgx", ["simulated:dgx-a100-8 "]),
        ("wirespeed --prec", ["--precision "]),
        ("wirespeed run --tier q", ["quick "]),
        ("wirespeed all_reduce_perf --minb", ["--minbytes "]),
    ],
)
def test_words_are_completed(tmp_path: Path, line: str, words: list[str]) -> None:
    out = tmp_path / "words"
    environment = os.environ | {
        "COMP_LINE": line, "COMP_POINT": str(len(line)), "COMP_TYPE": "9", "_ARGCOMPLETE": "1",
        "_ARGCOMPLETE_SHELL": "bash", "_ARGCOMPLETE_STDOUT_FILENAME": str(out),
    }  # fmt: skip
    subprocess.run([sys.executable, "-m", "wirespeed"], env=environment, timeout=60, check=True)
    assert out.read_text().split("\v") == words


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_shells_get_what_they_evaluate(shell: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["completion", shell]) == 0
    assert "wirespeed" in capsys.readouterr().out
