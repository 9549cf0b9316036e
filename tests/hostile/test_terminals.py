"""Texts of files that try to control a terminal: no command and no format passes them on."""

from __future__ import annotations

import json
import os
import pty
import re
import sys
import termios
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import msgspec
import pytest

import wirespeed
from wirespeed.cli.main import main
from wirespeed.document import Document
from wirespeed.reports import formats
from wirespeed.results.store import decode, encode
from wirespeed.terminal import colored, one_line

MACHINE = "simulated:hgx-h200-2"
#: Title and clipboard (OSC), concealed text (SGR), C1 controls, text direction, backspace, carriage return.
ATTACK = "\x1b]0;owned\x07\x1b]52;c;ZXZpbA==\x1b\\\x1b[8m\x9b2J\x9d0;x\x9c\u202eevil\u2066\u200f\b\r\x7f"
_CONTROL = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u202a-\u202e\u2028\u2029\u2066-\u2069\ufeff]"
)
#: Colours and styles that reports add; "concealed" is none of them.
_OURS = re.compile(r"\x1b\[(?:[0-79]|[34][0-8]|[49]\d|48;5;\d+|38;5;\d+|;)*m")
#: Strings without which a format would have nothing to show.
_KEPT = {
    "status", "kind", "access", "link", "unit", "engine", "operation", "type", "operator", "key", "options",
    "links", "numa", "caches", "peers",
}  # fmt: skip

Show = Callable[..., tuple[int, str]]


def attacking(value: Any, key: str = "") -> Any:
    """Append the attack to every string of plain data."""
    if key in _KEPT:
        return value
    if isinstance(value, str):
        return value + ATTACK
    if isinstance(value, dict):
        return {name: attacking(one, name) for name, one in value.items()}
    return [attacking(one, key) for one in value] if isinstance(value, (list, tuple)) else value


@pytest.fixture(scope="module")
def hostile(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A saved run with transfers, a failure, shared buffers, warnings and state; next to it a collective."""
    machine = "simulated:" + str(Path(__file__).parents[1] / "machines" / "four-ranks.json")
    cases = ["multinode_device_to_device_memcpy_read_ce", "sharing_ipc_gpu", "message_nccl_gpu"]
    plain = msgspec.to_builtins(wirespeed.run(cases, machine=machine, samples=2, copies=1))
    local = wirespeed.run(
        ["0", "4", "all_reduce"], machine=MACHINE + "+corrupt@gpu0->gpu1", samples=2, copies=1
    )
    plain["testcases"] += msgspec.to_builtins(local)["testcases"]
    for result in plain["testcases"]:
        result["warnings"] = ["a warning"]
        result["state_before"] = [{"device": "gpu0", "name": "throttle reasons", "value": ["power"]}]
        for table in result["tables"]:
            for cell in table["cells"]:
                cell.pop("links", None)  # they are of two machines
                cell.pop("shared", None)
    plain |= {"warnings": ["a warning"], "interrupted": "Ctrl-C", "libraries": {"numpy": "1.0"}}
    plain["machine"] |= {"notes": ["a note"]}
    path = tmp_path_factory.mktemp("hostile") / "run.json"
    other = msgspec.to_builtins(wirespeed.run(["all_reduce"], machine=MACHINE, sizes="8:64:x8", samples=2))
    other["options"] |= {"launcher": ATTACK, "transport": ATTACK}
    path.with_name("nccl.json").write_bytes(msgspec.json.encode(attacking(other)))
    evil = attacking(plain)
    for rank, kept in zip(evil["machine"]["ranks"], plain["machine"]["ranks"], strict=True):
        rank["device"] = kept["device"]  # a run whose ranks own no device is refused
    path.write_bytes(msgspec.json.encode(msgspec.convert(evil, Document)))
    return path


@pytest.fixture
def show(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Show:
    """Run a command with a terminal as its output; return the exit code and what the terminal received."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("TERM", "xterm-256color")

    def run(*arguments: object) -> tuple[int, str]:
        theirs, ours = pty.openpty()
        settings = termios.tcgetattr(ours)
        settings[1] &= ~termios.OPOST  # line ends are not changed
        termios.tcsetattr(ours, termios.TCSANOW, settings)
        received = bytearray()

        def receive() -> None:
            with suppress(OSError):  # the end of a terminal
                while data := os.read(theirs, 65536):
                    received.extend(data)

        reader = threading.Thread(target=receive)
        reader.start()
        with os.fdopen(ours, "w", encoding="utf-8") as terminal, monkeypatch.context() as patch:
            patch.setattr(sys, "stdout", terminal)
            patch.setattr(sys, "stderr", terminal)
            assert colored()
            code = main([str(argument) for argument in arguments])
        reader.join(10)
        os.close(theirs)
        return code, received.decode()

    return run


def harmless(text: str) -> bool:
    """Return whether a text contains no control characters except our styles."""
    return not _CONTROL.search(_OURS.sub("", text)) and "\x1b[8m" not in text


@pytest.mark.parametrize("format", formats())
def test_every_format(format: str, hostile: Path, show: Show) -> None:
    collectives = format.startswith("nccl") or format == "iterations"
    file = hostile.with_name("nccl.json") if collectives else hostile
    code, text = show("show", file, "--format", format, "-v")
    assert code == 0 and harmless(text) and "evil" in text
    if format == "json":
        assert msgspec.json.decode(text, type=Document) == wirespeed.load(file)


@pytest.mark.parametrize("command", ["check", "doctor", "run"])
def test_our_links_are_links_and_not_cleaned(command: str, show: Show) -> None:
    """A FAIL with a page of help: only texts of files are neutralised, not what screens add to them."""
    allowed = ["--allow-simulated"] if command == "check" else []
    faulty = f"{MACHINE}+nvlinks=9@gpu0"
    code, text = show(command, *allowed, "--machine", faulty, "--samples", 1, "--copies", 1, "-o", "r.json")
    assert code == 1 and "\u241b" not in text and "\x1b[" in text
    links = re.findall(r"\x1b\]8;id=\d+;(file://[^\x1b]+)\x1b\\([^\x1b]+)\x1b\]8;;\x1b\\", text)
    assert [(link.rpartition("/")[2], shown) for link, shown in links] == [
        ("causes.md#nvlinks", "wirespeed help nvlinks")
    ]


def test_checks_and_comparisons(hostile: Path, show: Show) -> None:
    for arguments in (
        ["check", "--allow-simulated", "-v", "--from", hostile, hostile],
        ["compare", hostile, hostile],
    ):
        _, text = show(*arguments)
        assert harmless(text) and "evil" in text


@pytest.mark.parametrize(
    "command", ["show", "check --from", "compare", "report -o x.html", "baseline make -o x"]
)
@pytest.mark.parametrize("content", [None, "{}", '{"wirespeed_schema": 2, "version": "\\u009b2J"}'])
def test_names_of_files_in_errors(command: str, content: str | None, show: Show, tmp_path: Path) -> None:
    name = f"{ATTACK.replace('/', '')}.json"
    if content is not None:
        (tmp_path / name).write_text(content)
    code, text = show(*command.split(), name, *([name] if command == "compare" else []))
    assert code == 2 and harmless(text) and "evil" in text


def test_names_of_files_that_are_checked_and_written(show: Show, tmp_path: Path) -> None:
    name = f"{ATTACK}.json"
    code, text = show("run", "-t", "0", "--machine", MACHINE, "--samples", 1, "-o", name)
    assert code == 0 and "saved to" in text
    assert harmless(shown(text)) and "evil" in text
    for arguments in (
        ["check", "--allow-simulated", "--from", name, name],
        ["report", name, "-o", f"{name}.html"],
    ):
        code, text = show(*arguments)
        assert code == 0 and harmless(shown(text)) and "evil" in text


def shown(text: str) -> str:
    """Return a text without the cursor movements of progress bars."""
    return re.sub(r"\x1b\[(?:\?25[hl]|\d*[AK])|\r", "", text)


def test_baselines_and_overrides(hostile: Path, show: Show, tmp_path: Path) -> None:
    good = wirespeed.run(["0"], machine=MACHINE, samples=2, copies=1)
    plain = msgspec.to_builtins(good)
    plain["machine"]["cpu"] += ATTACK
    (tmp_path / "good.json").write_bytes(msgspec.json.encode(plain))
    code, text = show("baseline", "make", "good.json", "-o", "base.json")
    assert code == 0 and harmless(text) and "evil" in text
    other = ["check", "--allow-simulated", "--machine", MACHINE, "-t", "0"]
    code, text = show(*other, "--baseline", "base.json")
    assert code == 2 and harmless(text) and "evil" in text
    attack = json.dumps(ATTACK).replace("\x7f", "\\u007f")
    for entry in (f"link = {attack}", f"testcase = {attack}", f"accept = {attack}", f"{attack} = 1"):
        (tmp_path / "known.toml").write_text(f"[[override]]\nreason = {attack}\n{entry}\n")
        code, text = show("check", "--allow-simulated", "--from", "good.json", "--overrides", "known.toml")
        assert code == 2 and harmless(text)
    (tmp_path / "known.toml").write_text(f'[[override]]\nreason = {attack}\ntestcase = "host*"\n')
    code, text = show("check", "--allow-simulated", "--from", "good.json", "--overrides", "known.toml")
    assert code == 0 and harmless(text) and "evil" in text


def test_machines(show: Show, tmp_path: Path) -> None:
    described = attacking(msgspec.to_builtins(wirespeed.machine(MACHINE)))
    described["notes"] = [ATTACK]
    path = tmp_path / "machine.json"
    path.write_bytes(msgspec.json.encode(described))
    for arguments in (
        ["machine", "--machine", path],
        ["machine", "--machine", path, "--format", "json"],
        ["list", "--machine", path],
        ["nvbandwidth", "--machine", f"simulated:{path}", "-t", "0", "-i", 1],
        ["nvbandwidth", "--machine", f"simulated:{path}", "-t", "0", "-i", 1, "-j"],
        ["run", "--machine", f"simulated:{path}", "-t", "0", "--samples", 1, "-o", "run.json"],
    ):
        code, text = show(*arguments)
        assert code == 0 and harmless(shown(text)) and "evil" in text, arguments
    described["links"] = [{**described["links"][0], "source": ATTACK, "capacity": -1}]
    path.write_bytes(msgspec.json.encode(described))
    code, text = show("machine", "--machine", path)
    assert code == 2 and harmless(text) and "has capacity" in text


def test_prompts(hostile: Path) -> None:
    document = wirespeed.load(hostile)
    check, comparison = wirespeed.judge(document), wirespeed.compare(document, document)
    for value in (document, check, comparison, document.machine):
        assert harmless(repr(value))


def test_saved_documents_and_errors_of_the_system_are_harmless(
    capsys: pytest.CaptureFixture[str],
) -> None:
    document = wirespeed.run(["0"], machine="simulated:hgx-h200-2", command="\x9b31m \u202e")
    text = encode(document).decode()
    assert "\x9b" not in text and "\u202e" not in text
    assert decode(text.encode(), "it").command == one_line(document.command) == "\ufffd31m \ufffd"
    assert main(["show", "\x9b31m.json"]) == 2
    assert "\x9b" not in capsys.readouterr().err
