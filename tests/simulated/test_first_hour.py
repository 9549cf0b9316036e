"""What a new user types wrong, and what a folder of other files says: one clear line, with what is meant."""

from __future__ import annotations

import os
import pty
import re
import subprocess
import sys
from pathlib import Path

import pytest

from wirespeed.cli.main import main

A100 = "simulated:dgx-a100-8"


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "80")
    return tmp_path


def call(*words: str, capsys: pytest.CaptureFixture[str]) -> tuple[int, str, str]:
    try:
        code = int(main(list(words)))
    except SystemExit as error:  # argparse
        code = int(error.code or 0)
    out, err = capsys.readouterr()
    return code, out, err


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("check --format nagios", "invalid choice: 'nagios' (did you mean --for nagios?); choose from text"),
        ("check --for prometheus", "'prometheus' (did you mean --format prometheus?)"),
        ("check --format jsn", "invalid choice: 'jsn' (did you mean 'json'?)"),
        ("run --gpus 0,1", "unrecognized arguments: --gpus 0,1 (did you mean --devices?)"),
        ("run --sise 3MiB", "(did you mean --size?)"),
        ("check --iters 5", "(did you mean --samples?)"),
    ],
)
def test_what_is_meant_is_named(capsys: pytest.CaptureFixture[str], line: str, says: str) -> None:
    code, out, err = call(*line.split(), capsys=capsys)
    assert code == 2 and not out and says in err and err.count("\n") == 1


def test_the_value_of_an_unknown_option_means_nothing(
    capsys: pytest.CaptureFixture[str], folder: Path
) -> None:
    (folder / "csv").write_text("")
    assert "did you mean" not in call("list", "--xyz", "csv", capsys=capsys)[2]


@pytest.mark.parametrize("command", ["show", "doctor", "history", "compare", "report"])
def test_a_folder_of_other_files_is_one_line(
    capsys: pytest.CaptureFixture[str], folder: Path, command: str
) -> None:
    (folder / "other").mkdir()
    for i in range(70):
        (folder / "other" / f"{i:02}.json").write_text('{"a": 1}')
    more = ["other"] if command == "compare" else []
    code, out, err = call(command, "other", *more, capsys=capsys)
    assert code == (5 if command == "doctor" else 2) and not out
    assert (
        "70 files (other/00.json, other/01.json, other/02.json and 67 more): the file is not a saved" in err
    )
    assert len(err.splitlines()) <= 2


@pytest.mark.skipif(not hasattr(pty, "openpty"), reason="no terminals")
def at_a_terminal(folder: Path, words: list[str], **more: str) -> tuple[int, str]:
    """The exit code and the output of a command whose standard output is a terminal."""
    theirs, ours = pty.openpty()
    environment = {**os.environ, "COLUMNS": "60", "TERM": "xterm-256color", **more}
    environment.pop("NO_COLOR", None)
    done = subprocess.Popen(
        [sys.executable, "-m", "wirespeed", *words],
        stdout=ours, stderr=subprocess.DEVNULL, env=environment, cwd=folder,
    )  # fmt: skip
    os.close(ours)
    text = b""
    while True:
        try:
            part = os.read(theirs, 4096)
        except OSError:  # the other end is closed
            break
        if not part:
            break
        text += part
    os.close(theirs)
    return done.wait(), text.decode().replace("\r", "")


def test_qualify_has_a_header_colours_and_what_to_do(folder: Path) -> None:
    words = ["qualify", "--machine", f"{A100}x16+nic=0.5@node7.3", "--no-save"]
    code, text = at_a_terminal(folder, words)
    plain = re.sub(r"\x1b\[[0-9;]*m", "", text)
    assert code == 1 and "\x1b[1;31mFAIL\x1b[0m" in text and plain.startswith("wirespeed ")
    assert plain.count("SIMULATED") == 1 and "\n      1 slow part, 15 of 16 nodes usable\n" in plain
    assert "  remedy   check cable, switch port" in plain and "\n  confirm  rdma statistic\n" in plain
    assert "slow = below 95% of the median" in plain
    assert max(len(line) for line in plain.splitlines() if "simulated:" not in line) <= 60


@pytest.mark.parametrize("words", [
    ["check", "--machine", A100, "-t", "4", "--allow-simulated", "--no-save"], ["p2p", "--machine", A100],
    ["blocks", "--machine", A100, "--sizes", "4KiB", "--no-save"], ["run", "--help"],
    ["qualify", "--machine", f"{A100}x4", "--no-save"],
])  # fmt: skip
def test_a_dumb_terminal_gets_no_escape_codes(folder: Path, words: list[str]) -> None:
    assert "\x1b" in at_a_terminal(folder, words)[1]
    assert "\x1b" not in at_a_terminal(folder, words, TERM="dumb")[1]


@pytest.mark.parametrize(
    ("machine", "says"),
    [
        ("dgx-a100", "is neither a simulated machine nor a machine file (did you mean 'dgx-a100-8'?)"),
        ("dgx-a100-8+nvlink=6@gpu3", "unknown simulated fault 'nvlink=6' (did you mean 'nvlinks'?)"),
    ],
)
def test_a_simulated_machine_or_fault_that_is_meant_is_named(
    capsys: pytest.CaptureFixture[str], machine: str, says: str
) -> None:
    code, out, err = call("list", "--machine", f"simulated:{machine}", capsys=capsys)
    assert code == 2 and not out and says in err


def test_help_searches_for_several_words(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = call("help", "exit", "codes", capsys=capsys)
    assert code == 0 and "130" in out


def test_no_transfer_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    code, _, err = call("transfer", "", "--machine", A100, capsys=capsys)
    assert code == 2 and err.rstrip("\n").count("\n") == 0


@pytest.mark.parametrize("name", ["blocks", "compare", "doctor", "history", "import", "p2p"])
def test_help_of_a_page_that_is_a_command_shows_the_page(
    capsys: pytest.CaptureFixture[str], name: str
) -> None:
    command = "check" if name == "doctor" else name
    code, out, _ = call("help", name, capsys=capsys)
    assert (
        code == 0 and not out.startswith("usage") and out.endswith(f"Options: wirespeed {command} --help\n")
    )
