"""A feature of another package: its command, testcase and format are offered like those of this package."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

FEATURE = """
from wirespeed.features import Command, Feature, Named

FEATURE = Feature(
    "greetings", package="greetings", commands={"hello": Command("command", "say hello")},
    testcases=("command:TESTCASES",), formats=(Named("greeting", "command:render"),),
)
"""
COMMAND = """
from dataclasses import replace

from wirespeed.cli.parser import Parser
from wirespeed.testcases.device import TESTCASES as OF_DEVICES

TESTCASES = (replace(OF_DEVICES[0], name="greeting_copy", index=None),)

def parser(name):
    return Parser(name, "Say hello.", ())

def main(name, argv):
    parser(name).parse_args(argv)
    print("hello from", name)
    return 0

def render(judged, style):
    return f"{len(judged.document.testcases)} testcase greets"
"""


@pytest.fixture
def installed(tmp_path: Path) -> Path:
    """A folder with the package, as pip would install it."""
    package, about = tmp_path / "greetings", tmp_path / "greetings-1.dist-info"
    package.mkdir()
    about.mkdir()
    (package / "__init__.py").write_text(FEATURE)
    (package / "command.py").write_text(COMMAND)
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: greetings\nVersion: 1\n")
    (about / "entry_points.txt").write_text("[wirespeed.features]\ngreetings = greetings:FEATURE\n")
    return tmp_path


def test_it_is_offered_like_our_own(installed: Path) -> None:
    environment = os.environ | {"PYTHONPATH": str(installed)}

    def run(*arguments: str) -> str:
        command = [sys.executable, "-P", "-m", "wirespeed", *arguments]
        return subprocess.run(command, env=environment, check=True, capture_output=True, text=True).stdout

    assert run("hello") == "hello from hello\n"
    assert "  hello      say hello\n" in run("--help")
    machine = ["--machine", "simulated:dgx-a100-8"]
    assert "greeting_copy" in run("list", *machine)
    run("run", "-t", "greeting_copy", *machine, "-o", str(installed / "run.json"))
    assert run("report", str(installed / "run.json"), "--format", "greeting") == "1 testcase greets"
