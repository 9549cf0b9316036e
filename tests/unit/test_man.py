"""The manual page: all commands and options, as valid roff."""

from __future__ import annotations

import re
import shutil
import subprocess

import pytest

from wirespeed.cli import man
from wirespeed.cli.commands import ABOUT, SHOWN, programs
from wirespeed.cli.main import main


@pytest.fixture(scope="module")
def page() -> str:
    return man.page()


def test_every_command_and_option_is_there(page: str, capsys: pytest.CaptureFixture[str]) -> None:
    sections = {part.splitlines()[0].replace("\\-", "-"): part for part in page.split(".SS wirespeed ")[1:]}
    assert sections.keys() == {*SHOWN, programs()[0], *(f"self {name}" for name in ABOUT)}
    for name in ("run", "check", "report", "nvbandwidth", "all_reduce_perf"):
        try:
            main([name, "--help"])
        except SystemExit as end:
            assert not end.code
        options = set(re.findall(r"--[a-z]\w[\w-]*", capsys.readouterr().out)) - {"--help"}
        described = sections[name].replace("\\-", "-")
        assert len(options) > 8 and [one for one in options if one not in described] == []


def test_the_command_prints_it(page: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["self", "man"]) == 0
    assert capsys.readouterr().out == page
    assert page.isascii() and page.startswith(".TH WIRESPEED 1 ") and "\\e" not in page


@pytest.mark.skipif(shutil.which("groff") is None, reason="no groff")
def test_it_is_valid(page: str) -> None:
    command = ["groff", "-man", "-ww", "-Tutf8", "-P-c"]
    done = subprocess.run(command, input=page, capture_output=True, text=True, check=True)
    assert not done.stderr
    text = re.sub(".\b", "", done.stdout)
    assert "exit codes" in text and "--host-memory 8x4800" in text
    assert re.search(r"\n +zsh:  add  eval \"\$\(wirespeed self completion zsh\)\"", text)


def test_texts_are_never_requests() -> None:
    assert man._escaped(".SH x") == "\\&.SH x" and man._escaped("a\\b – c-d") == "a\\eb \\[u2013] c\\-d"
