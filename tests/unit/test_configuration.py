"""Defaults of options from files and variables, and completion of words."""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import wirespeed
from tests.users import OTHER, needs_root
from wirespeed.cli.commands import COMMANDS, functions, programs
from wirespeed.cli.configuration import Settable, chosen, files, known_options, settings
from wirespeed.cli.main import main
from wirespeed.cli.option_groups import machine_names
from wirespeed.cli.parser import Parser

MACHINE = "simulated:hgx-h200-2"
RECORDED = Path(__file__).parents[1] / "recorded" / "two-h200.json"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder below one with a project file, and a home with another."""
    (below := tmp_path / "project" / "a" / "b").mkdir(parents=True)
    (tmp_path / "home").mkdir()
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "home"))
    for name in [
        name for name in os.environ if name.startswith("WIRESPEED_")
    ]:  # those of CI are settings too
        monkeypatch.delenv(name)
    monkeypatch.chdir(below)
    return tmp_path


def write(folder: Path, where: str, text: str) -> None:
    (folder / where / "wirespeed.toml").write_text(text)


def arguments(command: str, options: dict[str, bool]) -> list[str]:
    """What precedes a command line of a command with some options."""
    known = {name: Settable(takes_value, True) for name, takes_value in options.items()}
    return [
        argument for setting in chosen(command, known, settings(files())) for argument in setting.arguments
    ]


def test_the_command_line_comes_before_variables_before_the_project_before_the_user(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(folder, "home", '[defaults]\ntimeout = "1s"\nseed = 1\n[run]\ntestcase = ["a"]\nno-verify = true\n')
    write(
        folder,
        "project",
        '[defaults]\ntimeout = "2s"\n[run]\ntier = "quick"\n[check]\nprefix = ["numa", "host"]\n',
    )
    monkeypatch.setenv("WIRESPEED_SEED", "3")
    monkeypatch.setenv("WIRESPEED_JOB_SECRET", "none of the options")
    options = {"timeout": True, "seed": True, "testcase": True, "no-verify": False, "tier": True}
    assert arguments("run", options) == [
        "--timeout=2s", "--seed=3", "--testcase=a", "--no-verify", "--tier=quick",
    ]  # fmt: skip
    assert arguments("check", {"prefix": True}) == ["--prefix=numa", "--prefix=host"]
    assert {one.origin for one in settings(files())} >= {"WIRESPEED_SEED"}


def test_options_have_the_configured_defaults(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write(
        folder,
        "project",
        '[run]\ntestcase = ["38"]\n[defaults]\nformat = "json"\n',
    )
    assert main(["run", "-t", "0", "-o", "run.json", "--machine", MACHINE]) == 0
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
        ("[run]\nexpct = 1\n", "run has no option 'expct' (did you mean 'expect'?)"),
        ("[check]\nexpct = 1\n", "check has no option 'expct' (did you mean 'expect'?)"),
        ("[defaults]\nexpct = 1\n", "no command has an option 'expct' (did you mean 'expect'?)"),
        ("[defaults]\nwait_idle = 1\n", "no command has an option 'wait_idle' (did you mean 'wait-idle'?)"),
        ('[defaults]\nfor = "slurm"\n', "for can only be given on the command line"),
        ("[chek]\n", "unknown table [chek] (did you mean 'check'?)"),
        ("[expect]\ngpus = 8\n", "unknown table [expect]"),
        ("[nvbandwidth]\nmachine = 1\n", "unknown table [nvbandwidth]"),
        ("[[check]]\nseed = 8\n", "'check' is not in a table"),
        ("timeout = 1\n", "'timeout' is not in a table"),
        ("[run]\nforce = true\n", "force can only be given on the command line"),
        ("[run]\ntimeout = true\n", "timeout needs a value"),
        ("[run]\nhuge-pages = 3\n", "huge-pages is true or false"),
        ("[run]\nsize = []\n", "run.size must be"),
        ("[run\n", "Expected"),
        ('[run]\ntimeout = "soon"\n', "'soon' is not a"),
        ("a = " + "[" * 3000 + "]" * 3000, "it is nested too deeply"),
        ("[run]\nseed = " + "9" * 5000, "Exceeds the limit"),
        ("[run]\nseed = 0x" + "9" * 5000, "run.seed: Exceeds the limit"),
        ("#" * 70_000, "it is larger than 64 KiB"),
        ('[defaults]\noutput = "x.json"\n', "a project's file cannot set 'output'"),
        ('[run]\nmachine = "x.json"\n', "a project's file cannot set 'machine'"),
        ("[run]\nno-verify = true\n", "a project's file cannot set 'no-verify'"),
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
    "command",
    [
        ["check", "--from", str(RECORDED)], ["show", str(RECORDED)], ["list"], ["config"],
        ["check", "--from", str(RECORDED), "--for", "nagios"], ["doctor", str(RECORDED)],
        ["nvbandwidth", "-l"], ["all_reduce_perf", "--machine", MACHINE],
    ],
)  # fmt: skip
def test_a_mistyped_variable_is_an_error_of_every_command(
    command: list[str], folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("WIRESPEED_EXPCT", "gpus=8")
    assert main(command) == (3 if "nagios" in command else 2)
    out, err = capsys.readouterr()
    assert "unknown variable WIRESPEED_EXPCT (did you mean 'WIRESPEED_EXPECT'?)" in err
    assert len(err.splitlines()) == 1 and (not out or " UNKNOWN: unknown variable" in out)


def test_variables_that_are_no_options_are_known(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What programs, tests, CI and documentation here set, and what Kubernetes sets for a Service."""
    root = Path(__file__).parents[2]
    paths = [root / "README.md", root / "tests" / "newcomer.py", root / ".ci" / "run"]
    paths += [
        p for place in ("src", "integrations", "docs", "tests/reports") for p in (root / place).rglob("*")
    ]
    texts = [
        path.read_text() for path in paths if path.suffix in ("", ".py", ".md", ".nhc") and path.is_file()
    ]
    used = {name for text in texts for name in re.findall(r"\bWIRESPEED_[A-Z]+(?:_[A-Z]+)*\b", text)}
    used -= {"WIRESPEED_OPTION"}  # it stands for all options
    assert {"WIRESPEED_CHANNELS", "WIRESPEED_TIMEOUT", "WIRESPEED_REQUIRE_CHROMIUM"} <= used
    of_kubernetes = (
        "SERVICE_HOST",
        "PORT",
        "PORT_80_TCP_ADDR",
        "EXPORTER_SERVICE_PORT_HTTP",
        "X_PORT_53_UDP",
    )
    for name in (*used, *(f"WIRESPEED_{name}" for name in of_kubernetes)):
        monkeypatch.setenv(name, "1")
    options = {name.removeprefix("WIRESPEED_").lower().replace("_", "-") for name in used}
    assert {setting.option for setting in settings(files())} == options & known_options()


def test_a_project_sets_no_files_and_no_acceptance() -> None:
    """An option that says where files are, or what is accepted, is not among those of a project."""
    options: dict[str, argparse.Action] = {}
    for name in [*COMMANDS, *programs()]:
        of = functions(name).parser(name)
        if isinstance(of, Parser):
            options |= {own: of._option_string_actions[f"--{own}"] for own in of.settable()}
    of_projects = {name for name, action in options.items() if getattr(action, "by_project", False)}
    assert {"timeout", "sizes", "tier", "format"} <= of_projects and options.keys() == known_options()
    assert not of_projects & {
        "allow-simulated",
        "ignore-busy",
        "machine",
        "no-verify",
        "devices",
        "tolerance",
    }
    assert not [name for name in of_projects if re.search("FILE|FOLDER|RUN", str(options[name].metavar))]


def test_a_sparse_file_is_not_read(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with (folder / "project" / "wirespeed.toml").open("wb") as file:
        file.truncate(3 * 2**30)
    assert main(["list"]) == 2
    assert "it is larger than 64 KiB" in capsys.readouterr().err


def test_what_is_no_file_is_not_read(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    os.mkfifo(folder / "project" / "wirespeed.toml")
    (folder / "home" / "wirespeed.toml").mkdir()
    assert main(["config"]) == 0
    assert capsys.readouterr().out.count("wirespeed.toml: it is not a regular file") == 2


def test_a_current_folder_that_was_removed_has_no_project(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (gone := tmp_path / "gone").mkdir()
    monkeypatch.chdir(gone)
    gone.rmdir()
    assert main(["list", "--short"]) == 0


def test_nothing_is_read_that_others_can_write(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write(folder, "home", "[run]\nseed = 1\n")
    write(folder, "project", "[run]\nseed = 2\n")
    for place in ("home", "project"):
        (folder / place / "wirespeed.toml").chmod(0o666)
    assert settings(files()) == []
    assert main(["config"]) == 0
    out, err = capsys.readouterr()
    assert out.count("not read") == 2 and "no defaults are configured" in out
    assert err.count("wirespeed: note: not read: ") == 2 and "other users can write it" in err


def test_folders_that_others_can_write_are_not_looked_at(folder: Path) -> None:
    write(folder, "project", "[run]\nseed = 2\n")
    assert len(settings(files())) == 1
    (folder / "project" / "a").chmod(0o777)
    assert settings(files()) == []


@pytest.mark.parametrize("below", ["a/b", "a", "."])
def test_a_file_that_is_not_obeyed_is_named_from_below(
    below: str, folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    write(folder, "project", "[check]\nseed = 8\n")
    (folder / "project").chmod(0o777)
    monkeypatch.chdir(folder / "project" / below)
    assert main(["check", "--from", str(RECORDED), "-q"]) == 0
    file, reason = folder / "project" / "wirespeed.toml", "other users can write it"
    assert capsys.readouterr().err == (
        f"wirespeed: note: not read: {file}: of the folder {folder / 'project'}, {reason}\n"
    )


def test_homes_without_an_entry_have_no_settings(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def unknown() -> Path:
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.setattr(Path, "home", unknown)
    write(folder, "project/a/b", "[run]\nseed = 2\n")
    for variables in ({}, {"HOME": "."}, {"XDG_CONFIG_HOME": "."}, {"HOME": "/proc/nonexistent"}):
        for name in ("HOME", "XDG_CONFIG_HOME"):
            monkeypatch.delenv(name, raising=False)
        for name, value in variables.items():
            monkeypatch.setenv(name, value)
        assert [one.is_project for one in settings(files())] == [True]


@needs_root
@pytest.mark.parametrize("place", ["home", "project", "project/a/b"])
def test_files_of_other_users_are_not_read(place: str, folder: Path) -> None:
    write(folder, place, "[run]\nseed = 2\n")
    assert len(settings(files())) == 1
    os.chown(folder / place / "wirespeed.toml", OTHER, OTHER)
    assert settings(files()) == []
    os.chown(folder / place / "wirespeed.toml", 0, 0)
    os.chown(folder / "project", OTHER, OTHER)  # nothing above one's own folders
    assert len(settings(files())) == (place != "project")


@needs_root
def test_links_of_other_users_are_not_followed(folder: Path) -> None:
    (own := folder / "mine.toml").write_text("[run]\nseed = 2\n")
    link = folder / "home" / "wirespeed.toml"
    link.symlink_to(own)
    assert len(settings(files())) == 1
    os.chown(link, OTHER, OTHER, follow_symlinks=False)
    assert settings(files()) == []


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("wirespeed ch", ["check "]),
        ("wirespeed run -t host_lat", ["host_latency", "host_latency_ladder"]),
        ("wirespeed check --machine simulated:dgx-a", ["simulated:dgx-a100-8 "]),
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


@pytest.mark.parametrize("point", ["abc", "-1", "9" * 5000, "", None])
def test_places_in_no_line(point: str | None) -> None:
    environment = os.environ | {"_ARGCOMPLETE": "1", "COMP_LINE": "wirespeed r"}
    environment |= {} if point is None else {"COMP_POINT": point}
    command = [sys.executable, "-m", "wirespeed", "list"]
    done = subprocess.run(command, env=environment, timeout=60, capture_output=True, text=True)
    assert done.returncode == 2 and len(done.stderr.splitlines()) == 1
    assert "_ARGCOMPLETE is set, but COMP_POINT is not a number" in done.stderr


def test_files_are_completed_wherever_they_are(tmp_path: Path) -> None:
    (tmp_path / "a[1].json").touch()
    (tmp_path / "a[1]").mkdir()
    (tmp_path / "a1.json").touch()
    found = machine_names(f"{tmp_path}/a[")
    assert {one for one in found if one.startswith("/")} == {f"{tmp_path}/a[1].json", f"{tmp_path}/a[1]/"}
    assert not any(one.startswith("/") for one in machine_names(f"{tmp_path}/none/"))


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_shells_get_what_they_evaluate(shell: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["completion", shell]) == 0
    assert "wirespeed" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("command", "variable", "value"),
    [
        ("run -t 0 --no-save", "DEVICES", "0"), ("check -t 0 --no-save --allow-simulated", "DEVICES", "0"),
        ("doctor --no-measure", "DEVICES", "0"), ("p2p --short", "DEVICES", "0,1"),
        ("check --allow-simulated", "FROM", "run.json"),
    ],
)  # fmt: skip
def test_variables_that_change_what_is_measured_are_said(
    command: str, variable: str, value: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    monkeypatch.chdir(tmp_path)
    wirespeed.run(["0"], machine="simulated:hgx-h200-2", output="run.json")
    monkeypatch.setenv(f"WIRESPEED_{variable}", value)
    machine = [] if variable == "FROM" else ["--machine", "simulated:dgx-a100-8"]
    main([*command.split(), *machine])
    assert f"settings: {variable.lower()} = {value.replace(',', ', ') if ',' in value else value}" in (
        " ".join(capsys.readouterr().out.split()).replace("0,1", "0, 1")
    )
