"""What a user names is opened alike by every command: saved runs, logs of other tools, and folders of them.

Options that do nothing, and files that would be lost, are refused.
"""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

import wirespeed
from wirespeed.cli.main import main
from wirespeed.errors import ExitCode, NotARun, UsageError
from wirespeed.results.opening import open_run

LOG = Path(__file__).parents[1] / "data" / "published" / "nvbandwidth-a100-readme.txt"
#: Commands that read runs, before and after the names.
COMMANDS = {
    "check": ("check {}", 4), "doctor": ("doctor {}", 4), "show": ("show {}", 0),
    "report": ("report {} -o page.html", 0), "compare": ("compare {} --to {}", 0),
}  # fmt: skip


def call(command: str, capsys: pytest.CaptureFixture[str]) -> tuple[int, str, str]:
    try:
        code = main(command.split())
    except SystemExit as end:
        code = int(str(end.code))
    found = capsys.readouterr()
    return code, found.out, found.err


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a saved run, its copy in a folder with a log, and a text."""
    monkeypatch.chdir(tmp_path)
    document = wirespeed.run(
        ["host_to_device_memcpy_ce"], machine="simulated:hgx-h200-2", tier="quick", output="run.json"
    )
    assert document.good
    (tmp_path / "runs").mkdir()
    shutil.copy("run.json", "runs/node1.json")
    shutil.copy(LOG, "runs/node2.log")
    Path("runs/notes.txt").write_text("bandwidthTest and nvbandwidth were run\n")
    Path("notes.txt").write_text("not a log\n")
    return tmp_path


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_reads_logs(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    line, code = COMMANDS[command]
    found, out, err = call(line.format(LOG, LOG), capsys)
    assert found == code and "error" not in err
    assert "nvbandwidth" in out or command in ("report", "check", "compare")


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_reads_folders(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    line, _ = COMMANDS[command]
    allowed = " --allow-simulated"
    code, out, err = call(line.format("runs", "runs") + allowed, capsys)
    assert code in (0, 4)
    assert "left out of runs: 1 other file; only *.json files and logs are read" in err
    assert command not in ("show", "doctor") or ("runs/node1.json:" in out and "runs/node2.log:" in out)


@pytest.mark.parametrize("command", COMMANDS)
def test_what_is_neither_is_refused_in_one_line(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    line, _ = COMMANDS[command]
    for name, says in {
        "notes.txt": "neither a saved run nor a log",
        "gone.json": "cannot read gone.json",
    }.items():
        code, _, err = call(line.format(name, name), capsys)
        assert code == 2 and says in err and err.count("\n") == 1, err


def test_the_machine_of_a_log_can_be_given(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = call(f"check {LOG} --machine dgx-a100-40g-8", capsys)
    assert code == 0 and "72 values OK" in out
    code, _, err = call("check run.json --allow-simulated --machine dgx-a100-40g-8", capsys)
    assert code == 2 and "--machine is for logs of other tools: run.json is a saved run" in err


def test_a_default_machine_is_not_that_of_saved_runs(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("WIRESPEED_MACHINE", "simulated:one-gpu")
    monkeypatch.setenv("WIRESPEED_DEVICES", "0")
    assert call("check run.json --allow-simulated", capsys)[0] == 0


def test_a_log_that_ended_early_does_not_vanish(capsys: pytest.CaptureFixture[str]) -> None:
    """A node whose log has only its first line, or is cut, is a row of the table like the others."""
    Path("runs/node3.out").write_text("# nccl-tests version 2.17.6\n")
    Path("runs/node4.log").write_text('{"nvbandwidth": {"Driver Version": ')
    code, out, _ = call("check runs --allow-simulated", capsys)
    assert code == ExitCode.RUN and "2 ERROR" in out
    assert "a log of nccl-tests without values" in " ".join(out.split()) and "JSON is broken" in out


def test_a_broken_run_is_not_taken_for_a_log() -> None:
    Path("cut.json").write_bytes(Path("run.json").read_bytes()[:500])
    with pytest.raises(NotARun, match="is not a saved run of wirespeed"):
        open_run("cut.json")
    Path("cut.log").write_text('{"nvbandwidth": {"Driver Version": ')
    with pytest.raises(UsageError, match="the JSON is broken or incomplete at line 1"):
        open_run("cut.log")


@pytest.mark.parametrize(
    ("command", "says"),
    [
        (
            "check --from run.json -t 0 --devices 0 --size 1KiB",
            "-t/--testcase, --devices, --size have no effect",
        ),
        ("check -t 0 run.json", "-t/--testcase has no effect on saved runs"),
        ("check run.json --dry-run", "--dry-run has no effect on saved runs"),
        ("check run.json --wait-idle 1s --force", "--wait-idle, --force have no effect on saved runs"),
        ("check run.json --tolerance 2%", "--tolerance has no effect without --baseline"),
        ("check run.json --all-cells", "--all-values has no effect without --format prometheus"),
        ("doctor run.json --tier full", "--tier has no effect on saved runs"),
        ("doctor run.json -o x.json", "-o saves a new measurement"),
        ("doctor --no-measure -t 0", "-t/--testcase has no effect because --no-measure"),
        ("run --dry-run -t 0 -o x.json", "-o/--output has no effect with --dry-run"),
        ("run --dry-run --format csv -t 0", "--format has no effect with --dry-run"),
        ("show run.json --all-cells", "--all-values has no effect"),
        ("report run.json --all-cells", "--all-values has no effect"),
        ("show run.json -t 0 nope", "the run has no testcase 'nope'"),
        ("show run.json -p host nope_", "the run has no testcase 'nope_'"),
        ("show run.json -t host_to_device_memcpy_c", "(did you mean 'host_to_device_memcpy_ce'?)"),
    ],
)
def test_input_that_does_nothing_is_named(
    command: str, says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    code, _, err = call(command, capsys)
    assert code == 2 and says in err and err.count("\n") == 1, err


def test_a_file_behind_testcases_is_a_file(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = call("show -t 0 run.json runs/node1.json", capsys)
    assert code == 0 and "run.json:\n" in out and "runs/node1.json:\n" in out
    code, out, _ = call("show run.json -p host_to runs/node1.json", capsys)
    assert code == 0 and out.count("host_to_device_memcpy_ce") == 2


@pytest.mark.parametrize("format", ["html", "csv", "markdown", "junit", "prometheus", "table"])
def test_a_report_replaces_reports_only(format: str, capsys: pytest.CaptureFixture[str]) -> None:
    target = Path("x.txt")
    target.write_text("precious: wirespeed 1.0\n")
    line = f"report run.json --format {format} -o x.txt"
    code, _, err = call(line, capsys)
    assert code == 2 and "x.txt exists; choose another name, or --force to replace it" in err
    assert target.read_text() == "precious: wirespeed 1.0\n"
    assert call(f"{line} --force", capsys)[0] == ExitCode.PASS
    assert call(line, capsys)[0] == ExitCode.PASS  # a report of ours, as in a nightly job
    code, _, err = call(f"report run.json --format {format} -o run.json", capsys)
    assert code == 2 and "is a saved run" in err


@pytest.mark.parametrize("command", COMMANDS)
def test_simulated_runs_are_allowed_alike(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    line, _ = COMMANDS[command]
    assert call(line.format("run.json", "runs/node1.json") + " --allow-simulated", capsys)[0] == 0


@pytest.mark.parametrize("devices", ["gpu1", "GPU1", "1", "gpu1-gpu1"])
def test_gpus_by_name(devices: str, capsys: pytest.CaptureFixture[str]) -> None:
    line = f"run -t 0 --machine simulated:hgx-h200-2 --no-save --tier quick --devices {devices}"
    code, out, _ = call(line, capsys)
    assert code == 0 and "gpu1" in out and "gpu0" not in out
