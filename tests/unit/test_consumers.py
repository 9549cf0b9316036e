"""``--for``: what each program that acts on a check gets, whatever happens."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import msgspec
import pytest

import wirespeed
from wirespeed.cli.consumers import CONSUMERS, Answer, answer, requested, translated
from wirespeed.cli.main import main
from wirespeed.errors import ExitCode

#: What each consumer documents, by our exit code.
EXPECTED = {
    "nagios": {"PASS": 0, "FAIL": 2, "USAGE": 3, "WARN": 1, "NOT_JUDGED": 3, "RUN": 3, "INTERRUPTED": 3},
    "npd": {"PASS": 0, "FAIL": 1, "USAGE": 2, "WARN": 0, "NOT_JUDGED": 2, "RUN": 2, "INTERRUPTED": 2},
    "slurm": {"PASS": 0, "FAIL": 1, "USAGE": 0, "WARN": 0, "NOT_JUDGED": 0, "RUN": 0, "INTERRUPTED": 0},
    "aicr": {"PASS": 0, "FAIL": 1, "USAGE": 1, "WARN": 0, "NOT_JUDGED": 2, "RUN": 1, "INTERRUPTED": 1},
}
EXPECTED |= dict.fromkeys(("nhc", "gpud"), EXPECTED["slurm"])
GOOD = ["--machine", "simulated:dgx-a100-8", "-t", "device_to_device_memcpy_read_ce"]
BAD = ["--machine", "simulated:dgx-a100-8+nvlinks=6@gpu3", "-t", "device_to_device_memcpy_read_ce"]
CHECK = ["check", "--no-save", "--allow-simulated"]


@pytest.mark.parametrize("name", CONSUMERS)
def test_every_exit_code_is_translated(name: str) -> None:
    assert EXPECTED.keys() == CONSUMERS.keys()
    assert {code.name: CONSUMERS[name].code(code) for code in ExitCode} == EXPECTED[name]
    assert CONSUMERS[name].code(77) == EXPECTED[name]["RUN"]  # no exit code of ours


@pytest.mark.parametrize("name", CONSUMERS)
def test_the_only_line_on_standard_output_is_the_reason(
    name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([*CHECK, *BAD, "--for", name]) == EXPECTED[name]["FAIL"]
    out, err = capsys.readouterr()
    word = "CRITICAL" if name == "nagios" else "FAIL"
    begin = "WIRESPEED FAIL: dgx-a100-8: " if CONSUMERS[name].mark else f"dgx-a100-8 {word}: "
    assert re.fullmatch(rf"{begin}.*gpu3.*\n", out)
    assert ("; remedy: reset the GPU" in out) == (CONSUMERS[name].most_bytes == 4096)
    assert (" | " in out) == (name == "nagios")
    assert "GPU memory" in err or "GPU" in err  # the report
    assert "only a failure of the hardware" not in err  # which this is
    assert main([*CHECK, *BAD, f"--for={name}", "-q"]) == EXPECTED[name]["FAIL"]
    assert capsys.readouterr().out == out


@pytest.mark.parametrize("name", CONSUMERS)
def test_refused_arguments_are_no_failure_of_the_machine(
    name: str, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    for arguments in (
        ["check", "--bad-option"],  # refused by argparse
        ["check", "--precision", "many"],
        ["check", "--from", str(tmp_path / "none.json")],  # refused by us
        ["check", "--machine", "simulated:dgx-a100-8"],
        ["nonsense"],
        ["list"],  # has no such option
        [*CHECK, *GOOD, "-o", "-"],
    ):
        consumer = ["--for", name]
        assert main([*arguments, *consumer]) == EXPECTED[name]["USAGE"], arguments
        out, err = capsys.readouterr()
        word = "UNKNOWN" if name == "nagios" else "ERROR"
        marked = rf"WIRESPEED {word}: \S+: .+\n" if CONSUMERS[name].mark else rf"\S+ {word}: .+\n"
        assert re.fullmatch(marked, out), out
        assert "error:" in err
        assert ("only a failure of the hardware" in err) == (EXPECTED[name]["USAGE"] == 0)


def test_a_run_that_fails_is_no_failure_of_the_machine(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    (tmp_path / "taken").write_text("theirs")
    output = ["-o", str(tmp_path / "taken" / "a.json")]
    assert main([*CHECK[:1], *CHECK[2:], *GOOD, *output, "--for", "slurm"]) != 1
    assert capsys.readouterr().out.startswith("WIRESPEED ")


@pytest.mark.parametrize("error", [ValueError("x\ny"), KeyboardInterrupt(), MemoryError(), OSError(5, "I/O")])
def test_a_crash_is_no_failure_of_the_machine(
    error: BaseException, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from wirespeed.cli import check

    def crash(*_: object) -> int:
        raise error

    monkeypatch.setattr(check, "main", crash)
    assert main(["check", "--for", "slurm"]) == 0
    out, err = capsys.readouterr()
    assert re.fullmatch(r"WIRESPEED (ERROR|INTERRUPTED): .*\n", out)
    assert ("Traceback" in err) == isinstance(error, ValueError)
    assert main(["check", "--for", "npd"]) == 2


def test_unknown_consumers_are_refused(capsys: pytest.CaptureFixture[str]) -> None:
    for arguments in (["check", "--for", "zabbix"], ["check", "--for"]):
        assert requested(arguments) is None
        with pytest.raises(SystemExit) as end:
            main(arguments)
        assert end.value.code == 2
    assert "nagios" in capsys.readouterr().err
    assert requested(["check", "--force", "--format", "json", "--", "--for", "npd"]) is None
    assert translated(3, ["check"]) == 3 and translated(3, ["check", "--for", "slurm"]) == 0


@pytest.mark.parametrize("name", CONSUMERS)
def test_the_line_fits_and_keeps_the_host(name: str) -> None:
    consumer = CONSUMERS[name]
    line = consumer.line(Answer(1, "NVLink gpu3–nvswitch ↔ ü\n\x1b[31m" + 9000 * "x", "node17"))
    assert len(line.encode()) == consumer.most_bytes and line.isascii() and line.isprintable()
    assert line.endswith("...") and "gpu3-nvswitch" in line
    assert line.startswith("WIRESPEED FAIL: node17: " if consumer.mark else "node17 ")
    assert len(consumer.line(Answer(1, "slow", 9000 * "h"))) <= consumer.most_bytes


def test_figures_survive_a_long_reason_and_nothing_else_looks_like_them() -> None:
    figures = ("gpu_gpu=276GB/s;;249:;0;300", "host_gpu=26GB/s;;20:;0;31.5")
    line = CONSUMERS["nagios"].line(Answer(1, "a|b" + 9000 * "x", "node|17", "replace it", figures))
    text, _, last = line.partition(" | ")
    assert len(line) == 4096 and text.startswith("node/17 CRITICAL: a/bxx") and "|" not in text
    assert last.split() == [*figures]
    assert "|" not in CONSUMERS["aicr"].line(Answer(1, "slow", "node17", "replace it", figures))


def test_the_termination_log_gets_the_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    log = tmp_path / "termination-log"
    aicr = replace(CONSUMERS["aicr"], log=log)
    assert answer(aicr, lambda: Answer(1, "slow", "a")) == 1
    assert not log.exists()  # it is created by the kubelet only
    log.touch()
    assert answer(aicr, lambda: Answer(4, "busy", "a")) == 2
    assert log.read_text() == "a NOT JUDGED: busy\n"
    assert CONSUMERS["aicr"].log == Path("/dev/termination-log")


def test_several_runs_are_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name, machine in (("a", GOOD), ("b", BAD)):
        main(["run", *machine, "-q", "-o", str(tmp_path / f"{name}.json")])
    files = [str(tmp_path / f"{name}.json") for name in "ab"]
    capsys.readouterr()
    assert main(["check", *files, "--allow-simulated", "--for", "nagios"]) == 2
    out = capsys.readouterr().out
    assert re.fullmatch(r"1 of 2 runs CRITICAL: b: .*gpu3.* \| runs=2;;;0 fail=1;;;0 .* pass=1;;;0 .*\n", out)


def test_the_line_names_every_run_that_fails_by_cause(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    slow = "simulated:hgx-h200-2+speed@numa0-gpu1=0.5"
    for name, machine in {"good": "simulated:hgx-h200-2", "slow": slow}.items():
        main(
            ["run", "-t", "0", "4", "--machine", machine, "-q", "--tier", "quick", "-o", f"{tmp_path}/{name}"]
        )
    good, bad = (wirespeed.load(tmp_path / name) for name in ("good", "slow"))
    for i in range(12):
        document = bad if i in (3, 7, 11) else good
        host = replace(document.machine, host=f"node{i:02}")
        wirespeed.save(msgspec.structs.replace(document, machine=host), tmp_path / f"run{i}.json")
    command = ["check", str(tmp_path), "--allow-simulated", "-q", "--for"]
    capsys.readouterr()
    assert main([*command, "nagios"]) == 2
    out = capsys.readouterr().out
    assert out.startswith("3 of 12 runs CRITICAL: node03, node07, node11: ") and "gpu1" in out
    assert "; remedy: " in out and " fail=3;;;0 " in out and out.count("node") == 3
    assert main([*command, "slurm"]) == 1
    assert capsys.readouterr().out.startswith("WIRESPEED FAIL: 3 of 12 runs: node03, node07, node11: ")


def test_doctor_answers_too(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["doctor", "--no-measure", "--machine", BAD[1], "--for", "nagios"]) != 0
    assert re.fullmatch(r"dgx-a100-8 \w+: .*gpu3.*; remedy: .*\n", capsys.readouterr().out)


@pytest.mark.parametrize(
    ("faults", "code"),
    [
        *(
            (fault, 3)
            for fault in ("busy-gpu@gpu0", "busy-cpus", "confined", "nccl-settings", "lowered@gpu0", "shm")
        ),
        *(
            pytest.param(fault, 3, marks=pytest.mark.long)
            for fault in ("nccl-disabled", "huge-pages", "nps4", "bandwidth-mode@gpu1")
        ),
        ("confidential", 0),  # judged by the other GPU, not by the links
        ("pcie-width@gpu0", 1),
        ("pcie-width@gpu0+busy-gpu@gpu1", 1),
        ("speed@gpu0-gpu1=0.5+huge-pages", 1),
        ("corrupt@gpu0->gpu1+busy-gpu@gpu0", 1),
        ("gone@gpu1+confined", 1),
    ],
)  # fmt: skip
def test_what_is_no_hardware_never_drains(faults: str, code: int, capsys: pytest.CaptureFixture[str]) -> None:
    """What the user, another process or the host's configuration causes is a warning."""
    machine = ["--machine", f"simulated:hgx-h200-2+{faults}"]
    assert main([*CHECK, *machine, "-q", "--for", "slurm"]) == (1 if code == 1 else 0)
    assert main([*CHECK, *machine, "-q"]) == code


@pytest.mark.parametrize(
    ("faults", "code"),
    [
        ("rtx5090-4+iommu", 3),
        ("rtx5090-4+iommu+speed@gpu1-numa0=0.7", 1),
        ("rtx5090-4+iommu+speed@gpu1-numa0=0.1", 1),
        ("pcie-4-switched+acs@pcie0", 3),  # of 32 slow values, 8 are faster than it predicts
        ("pcie-4-switched+acs@pcie0+speed@gpu1=0.4", 1),
    ],
)
def test_a_setting_excuses_no_value_that_is_slower_than_it_predicts(faults: str, code: int) -> None:
    assert main([*CHECK, "--machine", f"simulated:{faults}", "-q"]) == code


def test_a_variable_cannot_set_it(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("WIRESPEED_FOR", "slurm")
    assert main([*CHECK, *BAD, "-q"]) == 2
    out, err = capsys.readouterr()
    assert not out and "WIRESPEED_FOR: for can only be given on the command line" in err


@pytest.fixture
def process(tmp_path: Path) -> Callable[..., subprocess.CompletedProcess[str]]:
    def run(*arguments: str, **streams: object) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "wirespeed", *arguments]
        return subprocess.run(command, text=True, timeout=120, cwd=tmp_path, **streams)  # type: ignore

    return run


@pytest.mark.parametrize("closed", ["stdout", "stderr"])
def test_a_full_disk_is_no_failure_of_the_machine(
    closed: str, process: Callable[..., subprocess.CompletedProcess[str]]
) -> None:
    with Path("/dev/full").open("w") as full:
        other = {"stdout", "stderr"} - {closed}
        streams = {closed: full, other.pop(): subprocess.PIPE}
        good = process(*CHECK, *GOOD, "--for", "slurm", **streams)
        usage = process("check", "--bad", "--for", "slurm", **streams)
    assert (good.returncode, usage.returncode) == (0, 0), (good, usage)
    if closed == "stderr":
        assert usage.stdout.startswith("WIRESPEED ERROR: ")


def test_what_libraries_print_does_not_precede_the_line(capfd: pytest.CaptureFixture[str]) -> None:
    def noisy() -> int:
        os.write(1, b"NCCL version 2.27.3\n")
        subprocess.run(["echo", "a process"], check=True)
        print("a report")
        return Answer(1, "slow", "a")

    assert answer(CONSUMERS["slurm"], noisy) == 1
    out, err = capfd.readouterr()
    assert out == "WIRESPEED FAIL: a: slow\n" and "NCCL" in err and "process" in err and "report" in err
    os.write(1, b"restored")
    assert capfd.readouterr().out == "restored"


def test_a_run_that_is_ended_is_no_failure_of_the_machine(tmp_path: Path) -> None:
    file = tmp_path / "run.json"
    command = [
        sys.executable, "-m", "wirespeed", "check", "--tier", "standard", "-o", str(file), "--for", "slurm",
    ]  # fmt: skip
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        while not file.exists():  # the first values are saved
            assert process.poll() is None
            time.sleep(0.02)
        process.send_signal(signal.SIGTERM)
        out, _ = process.communicate(timeout=120)
    assert process.returncode == 0 and out.startswith(b"WIRESPEED INTERRUPTED: "), out


def test_the_page_for_operators_has_all_codes() -> None:
    page = (Path(__file__).parents[2] / "docs" / "operate.md").read_text()
    codes = re.findall(r"^\| (\d+) \| ([^|]*) \|", page, re.M)
    assert [int(code) for code, _ in codes] == [int(code) for code in ExitCode]
    rows = re.findall(r"^\| (`\w+`(?:, `\w+`)*) \|((?: \d[^|]*\|){5}) (\d+)", page, re.M)
    shown = {}
    for names, cells, most_bytes in rows:
        passed, warned, failed, unjudged, other = (
            int(re.findall(r"\d", cell)[0]) for cell in cells.split("|")[:5]
        )
        for name in re.findall(r"\w+", names):
            shown[name] = {
                "PASS": passed, "WARN": warned, "FAIL": failed, "NOT_JUDGED": unjudged,
                "USAGE": other, "RUN": other, "INTERRUPTED": other,
            }  # fmt: skip
            assert CONSUMERS[name].most_bytes == int(most_bytes)
    assert shown == EXPECTED


@pytest.mark.parametrize(
    ("faults", "names"),
    [
        ("rtx5090-4+iommu+speed@gpu1-numa0=0.1", "numa0 runs at "),
        ("pcie-4-switched+acs@pcie0+speed@gpu1=0.4", "gpu1 runs at "),
        ("dgx-a100-8+nccl-settings+pcie-width=8@gpu2", "PCIe link gpu2-pcie1 runs at "),
        ("dgx-a100-8+pcie-width=8@gpu2", "a PCIe link runs at reduced width"),
    ],
)
def test_the_headline_of_a_failure_is_hardware_and_no_setting(
    faults: str, names: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([*CHECK, "--machine", f"simulated:{faults}"]) == 1
    (line,) = (line for line in capsys.readouterr().out.splitlines() if line.startswith("FAIL  "))
    assert line.startswith(f"FAIL  {names}")
