"""``wirespeed check``, ``compare`` and ``baseline`` on simulated machines, well and with faults."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

import wirespeed
from tests.conftest import SPECS, still
from wirespeed.cli.main import main
from wirespeed.document import Status
from wirespeed.features.fleet import screen as many_runs
from wirespeed.judging.criteria import Criteria
from wirespeed.judging.judge import judge
from wirespeed.judging.judged import Judged
from wirespeed.judging.run_summary import run_summary
from wirespeed.judging.verdict import Verdict
from wirespeed.reports import Style
from wirespeed.reports import comparisons as compare_screen
from wirespeed.reports.checked_runs import CheckedRun
from wirespeed.screens import check as check_screen
from wirespeed.screens.machine import render_machine
from wirespeed.tables import THROTTLED, Quantity
from wirespeed.units import MIB

Golden = Callable[[str, str], None]
QUICK = ["--tier", "quick", "--samples", "1", "--copies", "1"]
CHECK = ["check", *QUICK, "--allow-simulated", "--machine"]

#: Fault -> (machine, what must be named, how its values are called).
FAULTS = {
    "a link is down": ("hgx-h200-2+down@gpu0-gpu1", "NVLink gpu0-gpu1", "fail"),
    "a GPU's NVLinks are down": ("dgx-a100-8+down@gpu3-nvswitch", "NVLink gpu3-nvswitch", "fail"),
    "PCIe at half width": ("hgx-h200-2+speed@numa0-gpu1=0.5", "PCIe link gpu1-numa0", "fail"),
    "a throttled GPU": ("dgx-a100-8+speed@gpu5=0.6", "gpu5", "fail"),
    "a GPU that is slow everywhere": ("hgx-h200-2+speed@gpu1=0.6", "gpu1", "fail"),
    "slow memory": ("dgx-a100-8+speed@gpu2-gpu2=0.5", "memory of gpu2", "fail"),
    "an impossible value": ("hgx-h200-2+speed@gpu0-gpu1=3", "", "implausible"),
}


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "80")
    return tmp_path


def run(*arguments: str, capsys: pytest.CaptureFixture[str]) -> tuple[int, str, str]:
    code = main(arguments)
    out, err = capsys.readouterr()
    return code, out, err


def test_a_simulated_machine_is_refused_before_it_is_measured(
    capsys: pytest.CaptureFixture[str], folder: Path
) -> None:
    # It hangs as soon as it is measured.
    code, out, err = run("check", "--machine", "simulated:hgx-h200-2+stuck", capsys=capsys)
    assert code == 2 and not out and "--allow-simulated" in err and len(err.splitlines()) == 1
    wirespeed.run(["0"], machine="simulated:hgx-h200-2", output="d.json")
    assert run("check", "--from", "d.json", capsys=capsys)[0] == 2
    from_option = run("check", "--from", "d.json", "--allow-simulated", capsys=capsys)
    assert from_option == run("check", "d.json", "--allow-simulated", capsys=capsys) and from_option[0] == 0


def test_several_saved_runs_are_a_row_each(capsys: pytest.CaptureFixture[str]) -> None:
    """The worst is first, and its verdict is the exit code, in whatever order they are named."""
    for name, fault in (("good", ""), ("bad", "+nvlinks=6@gpu0")):
        wirespeed.run(["4"], machine=f"simulated:hgx-h200-2{fault}", output=f"{name}.json")
    judged = ["check", "--allow-simulated", "--from"]
    for sources in (["good.json", "--from", "bad.json"], ["bad.json", "good.json"]):
        code, out, _ = run(*judged, *sources, capsys=capsys)
        assert code == 1 and re.findall(r"^(PASS|FAIL)  (\w+) +(✖ )?\d+$", out, re.M) == [
            ("FAIL", "bad", "✖ "), ("PASS", "good", "")
        ]  # fmt: skip
        assert "bad:\n  NVLink" in out and "good:" not in out and "2 runs: 1 FAIL, 1 PASS; -v shows" in out
    code, out, _ = run(*judged, "good.json", "bad.json", "-v", capsys=capsys)
    assert (
        "\ngood.json:\nwirespeed " in out
        and "\nPASS  the testcase measured is as fast" in out
        and "\nFAIL  NVLink" in out
    )
    code, out, _ = run(*judged, "good.json", "good.json", "--gates", "azure", "-q", capsys=capsys)
    assert code == 0 and not out
    assert run("check", "--from", "good.json", "none.json", capsys=capsys)[0] == 2


def test_a_check_is_saved_by_default(
    capsys: pytest.CaptureFixture[str], folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    check = [*CHECK, "simulated:hgx-h200-2", "-t", "4"]
    code, out, err = run(*check, "--format", "json", capsys=capsys)
    (path,) = folder.glob("wirespeed-*.json")
    assert code == 0 and json.loads(out)["runs"][0]["verdict"] == "pass"
    page = f"HTML page: wirespeed report {path.name} -o {path.stem}.html"
    assert err == f"saved to {path.name}\n{page}\n"
    assert wirespeed.load(path).options["tier"] == "quick"
    shown = run("check", "--allow-simulated", "--from", path.name, capsys=capsys)[1]
    command = f"{sys.executable} -m wirespeed check --allow-simulated --from - < {path.name}"
    assert subprocess.run(command, shell=True, capture_output=True, text=True).stdout == shown
    path.unlink()
    with monkeypatch.context() as patch:
        patch.setattr("sys.argv", [".venv/bin/wirespeed"])  # after `make run`
        patch.setenv("PATH", "/nowhere")
        err = run(*check, "-o", "a.json", capsys=capsys)[2]
    assert err == "saved to a.json\nHTML page: .venv/bin/wirespeed report a.json -o a.html\n"
    (folder / "a.json").unlink()
    assert run(*check, "--no-save", "-q", capsys=capsys) == (0, "", "") and not list(folder.iterdir())
    assert run(*check, "--no-save", "-o", "a.json", capsys=capsys)[0] == 2
    (folder / "a b").mkdir()
    assert "report 'a b/wirespeed-" in run(*check, "-o", "a b/", capsys=capsys)[2]
    (saved,) = folder.glob("a b/*.json")
    out = run("check", "--allow-simulated", "--from", str(saved), capsys=capsys)[1]
    assert "PASS" in out and list(folder.iterdir()) == [folder / "a b"]  # what is only judged is not saved
    monkeypatch.setattr("os.access", lambda *_: False)
    code, _, err = run(*check, capsys=capsys)
    assert code == 5 and err.count("\n") == 1 and "pass -o FOLDER/, or --no-save" in err


def test_at_a_prompt_everything_is_one_line() -> None:
    document = wirespeed.run(["4", "0"], machine="simulated:dgx-a100-8+speed@gpu3->nvswitch=0.5")
    check = judge(document)
    assert (
        repr(check)
        == "<Check (simulated): fail; values: 7 fail, 57 pass; likely cause: NVLink gpu3->nvswitch>"
    )
    assert repr(document.machine) == "<Machine dgx-a100-8 (simulated): 2 NUMA nodes, 8 GPUs, 52 links>"
    started = document.started
    assert repr(wirespeed.compare(document, document)) == (
        f"<Comparison (simulated): 64 same; {started} → {started}>"
    )
    assert re.fullmatch(r"<Baseline \(simulated\): 64 values of .*>", repr(wirespeed.baseline([document])))


def test_reports_judge_by_overrides_and_baselines(capsys: pytest.CaptureFixture[str], folder: Path) -> None:
    machine = "simulated:hgx-h200-2"
    wirespeed.run(["4"], machine=machine, output="good.json")
    wirespeed.run(["4"], machine=f"{machine}+speed@gpu0-gpu1=0.9", output="slow.json")
    wirespeed.run(["4"], machine=f"{machine}+speed@gpu0-gpu1=0.5", output="bad.json")
    assert run("baseline", "make", "good.json", "-o", "base.json", capsys=capsys)[0] == 0
    (folder / "known.toml").write_text('[[override]]\nlink = "gpu0-gpu1"\nreason = "a known fault"\n')
    for form, fails in {
        "junit": "<failure",
        "prometheus": 'verdict="fail"} 1',
        "html": "verdict fail",
    }.items():
        shown = ["--format", form]
        assert fails not in run("show", "slow.json", *shown, capsys=capsys)[1]
        assert fails in run("show", "slow.json", *shown, "--baseline", "base.json", capsys=capsys)[1]
        assert fails in run("show", "bad.json", *shown, capsys=capsys)[1]
        assert fails not in run("show", "bad.json", *shown, "--overrides", "known.toml", capsys=capsys)[1]
        written = ["-o", "report.txt", *shown]
        assert run("report", "slow.json", *written, "--baseline", "base.json", capsys=capsys)[0] == 0
        assert fails in (folder / "report.txt").read_text()


@pytest.mark.parametrize("name", sorted(set(SPECS) - {"nvl72"}))
def test_healthy_machines_pass_and_are_marked(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = run(*CHECK, SPECS[name], capsys=capsys)
    assert code == 0 and "SIMULATED" in out.splitlines()[1] and out.count("SIMULATED") == 1
    assert (
        re.search(r"^PASS  everything (judged|measured) is as fast as expected", out, re.M)
        and "slow:" not in out
    )
    assert max(map(len, out.splitlines())) <= 80


@pytest.mark.parametrize("fault", FAULTS)
def test_faults_fail_and_are_named_and_can_be_accepted(
    fault: str, capsys: pytest.CaptureFixture[str], folder: Path
) -> None:
    machine, culprit, verdict = FAULTS[fault]
    code, out, _ = run(*CHECK, f"simulated:{machine}", "-o", "run.json", capsys=capsys)
    assert code == 1 and re.search(rf"^{verdict} ", out, re.M)
    slow = re.findall(r"^(?:slow: |[A-Z]+  )(.*?)(?: runs)? at \d+% of expected", out, re.M)
    assert slow == ([culprit] if culprit else [])
    assert max(map(len, out.splitlines())) <= 80 and len(out.splitlines()) <= 50

    where = machine.partition("@")[2].partition("=")[0]
    (folder / "known.toml").write_text(f'[[override]]\nlink = "{where}"\nreason = "a known fault"\n')
    again = ["check", "--from", "run.json", "--allow-simulated"]
    code, out, _ = run(*again, "--overrides", "known.toml", capsys=capsys)
    assert code == 0 and f"{where}: a known fault" in out and "SIMULATED" in out


def test_wrong_data_fails_and_cannot_be_accepted(capsys: pytest.CaptureFixture[str], folder: Path) -> None:
    (folder / "known.toml").write_text('[[override]]\ntestcase = "*memcpy*"\nreason = "who cares"\n')
    arguments = [*CHECK, "simulated:hgx-h200-2+corrupt@gpu1->gpu0", "-t", "4", "0"]
    code, out, _ = run(*arguments, "--overrides", "known.toml", capsys=capsys)
    assert code == 1 and "failed: wrong data" in out


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "missing required field"),
        ("x", "not a valid overrides file"),
        ('[[override]]\nreason = "r"\n', "must name a link, testcase, row or column"),
        ('[[override]]\nlink = "gpu0-gpu1"\nreason = " "\n', "has no reason"),
        ('[[override]]\nlink = "gpu0-gpu1"\n', "missing required field `reason`"),
        ('[[override]]\nlink = "gpu0-gpu1"\nreason = "r"\naccept = 2.0\n', "use 0 to 1"),
        (
            '[[override]]\nlnk = "gpu0-gpu1"\nreason = "r"\n',
            "unknown name 'lnk' in override[0] (did you mean 'link'?)",
        ),
        ('[[override]]\nlink = "gpu0-gpu7"\nreason = "r"\n', "has no effect: the machine has no link"),
        ('[[override]]\ntestcase = "none*"\nreason = "r"\n', "matches no measured value"),
    ],
)
def test_overrides_that_cannot_be_are_refused(
    text: str, says: str, capsys: pytest.CaptureFixture[str], folder: Path
) -> None:
    (folder / "o.toml").write_text(text)
    code, _, err = run(*CHECK, "simulated:hgx-h200-2", "-t", "4", "--overrides", "o.toml", capsys=capsys)
    assert code == 2 and says in err and len(err.splitlines()) == 1
    code, _, err = run(*CHECK, "simulated:hgx-h200-2", "--overrides", "none.toml", capsys=capsys)
    assert code == 2 and "cannot read the overrides none.toml" in err


def test_an_override_accepts_no_more_than_it_says() -> None:
    from wirespeed.results.overrides import Override

    document = wirespeed.run(["0"], machine="simulated:hgx-h200-2+speed@numa0-gpu1=0.5")
    for accept, verdict in ((0.5, Verdict.PASS), (0.9, Verdict.FAIL), (None, Verdict.PASS)):
        override = Override("x8", link="numa0-gpu1", accept=accept)
        assert judge(document, Criteria((override,))).verdict is verdict
    fast = wirespeed.run(["0"], machine="simulated:hgx-h200-2+speed@numa0-gpu1=3")
    assert judge(fast, Criteria((Override("x8", link="numa0-gpu1", accept=0.1),))).verdict is Verdict.FAIL


def test_waiting_for_an_idle_machine(capsys: pytest.CaptureFixture[str]) -> None:
    machine = "simulated:hgx-h200-2"
    code, _, err = run(*CHECK, f"{machine}+busy", "-t", "0", "--wait-idle", "10ms", capsys=capsys)
    assert code == 4 and err == (
        "wirespeed: error: timed out after 0.01 s while waiting for an idle machine: "
        "gpu0 is in use by a simulated load; gpu1 is in use by a simulated load; "
        "numa0 is in use by a simulated load\n"
    )
    assert run(*CHECK, machine, "-t", "0", "--wait-idle", "10ms", capsys=capsys)[0] == 0


def test_waiting_does_not_use_up_the_time_limit(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The limit holds from the start of the process, but for the time of waiting."""
    began: list[float] = []
    measure = wirespeed.api.run
    monkeypatch.setattr("wirespeed.api.wait_idle", lambda machine, seconds: 600.0)
    monkeypatch.setattr("wirespeed.api.run", lambda **given: began.append(given["since"]) or measure(**given))
    for waiting in ([], ["--wait-idle", "1h"]):
        command = [*CHECK, "simulated:hgx-h200-2", "-t", "0", "--within", "20s", *waiting]
        assert run(*command, capsys=capsys)[0] == 0
    assert began[1] - began[0] == pytest.approx(600.0, abs=1.0)


def test_devices_that_something_else_uses_are_not_judged(capsys: pytest.CaptureFixture[str]) -> None:
    arguments = [*CHECK, "simulated:hgx-h200-2+busy@gpu1+speed@numa0-gpu1=0.5", "-t", "0", "4", "38"]
    code, out, _ = run(*arguments, capsys=capsys)
    assert code == 4 and re.search(r"^BUSY  gpu1 is in use by", out, re.M)
    assert re.search(r"^ +2 values OK, 4 not judged; 3 testcases · data verified$", out, re.M)
    assert (
        "slow:" not in out and out.count("gpu1 is in use by a simulated load") == 1 and "warning" not in out
    )
    assert "run     wirespeed check --wait-idle" in out and "noticed" not in out
    code, out, _ = run(*arguments, "--ignore-busy", capsys=capsys)
    assert code == 1 and "FAIL  PCIe link numa0->gpu1 runs at 51% of expected" in out
    assert "cause: another process uses the GPU (gpu1)" in out
    # What fails on another device fails; busy CPUs say nothing of copy engines.
    code, out, _ = run(
        *CHECK, "simulated:hgx-h200-2+busy@gpu1+speed@gpu0-gpu0=0.5", "-t", "38", capsys=capsys
    )
    assert code == 1
    # Some processes run on most hosts: what is as expected nevertheless passes.
    host = "simulated:cpu-2-sockets+busy@numa0"
    code, out, _ = run(*CHECK, host, "-t", "host_stream_copy", capsys=capsys)
    assert (
        code == 0
        and "      2 values OK; 1 testcase · data verified\n" in out
        and "warning: numa0 was in use" in out
    )
    code, out, _ = run(*CHECK, f"{host}+speed@numa0-numa0=0.3", "-t", "host_stream_copy", capsys=capsys)
    assert code == 4 and "      1 value OK, 1 not judged; 1 testcase · data verified\n" in out
    code, out, _ = run(*CHECK, "simulated:hgx-h200-2+busy@numa0", "-t", "0", capsys=capsys)
    assert code == 0 and "numa0 was in use" in out


def test_wrong_data_of_one_way_is_summed_up(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = run(*CHECK, "simulated:dgx-a100-8+corrupt@gpu3->gpu5", capsys=capsys)
    assert code == 1 and re.search(r"^FAIL  gpu3->gpu5 delivers wrong data in 1[0-9] testcases$", out, re.M)
    assert "remedy  do not use this path" in out and "wrong data: gpu3->gpu5" not in out


def test_what_cannot_be_judged_is_no_pass(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = run(*CHECK, "simulated:nvl72", "-t", "message_mpi_host", capsys=capsys)
    assert (
        code == 4
        and "\nNOT JUDGED  no value could be judged; this is not a pass\n" in out
        and "latency needs a baseline). To judge it: wirespeed baseline FILE..." in " ".join(out.split())
    )
    code, out, _ = run(*CHECK, "simulated:cpu-2-sockets", "-t", "0", capsys=capsys)  # it has no GPU
    assert code == 4 and "no value could be judged" in out
    code, out, _ = run(*CHECK, "simulated:hgx-h200-2", "-t", "0", "--size", "64KiB", capsys=capsys)
    assert code == 4 and "starting a copy takes longer than moving its bytes" in " ".join(out.split())


def test_a_value_under_its_peers_is_a_warning(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = run(*CHECK, "simulated:dgx-a100-8+speed@gpu3-nvswitch=0.88", capsys=capsys)
    assert code == 3 and "WARN  NVLink gpu3-nvswitch runs at 88% of what its peers reach" in out
    assert "below its peers: NVLink gpu3-nvswitch" in out


def test_baselines(capsys: pytest.CaptureFixture[str], folder: Path) -> None:
    machine = "simulated:hgx-h200-2"
    for seed in range(3):
        wirespeed.run(["4", "32"], machine=machine, seed=seed, output=f"good{seed}.json")
    wirespeed.run(["4", "32"], machine=f"{machine}+speed@gpu0-gpu1=0.93", output="slow.json")
    goods = [f"good{seed}.json" for seed in range(3)]
    code, out, _ = run("baseline", "make", *goods, "-o", "base.json", capsys=capsys)
    assert code == 0 and out.startswith("SIMULATED: ") and "4 values of 3 runs" in out
    judged = ["--baseline", "base.json", "--allow-simulated"]
    code, out, _ = run("check", "--from", "good0.json", *judged, capsys=capsys)
    assert code == 0 and "4 values OK; 2 testcases" in out and "not judged" not in out
    code, out, _ = run("check", "--from", "slow.json", *judged, capsys=capsys)
    assert code == 1 and "below the baseline of 3 runs" in out and "FAIL  NVLink gpu0-gpu1" in out
    assert run("check", "--from", "slow.json", *judged, "--tolerance", "9%", capsys=capsys)[0] == 0
    assert run("check", "--from", "slow.json", "--allow-simulated", capsys=capsys)[0] == 0

    for arguments, says in (
        (["check", "--allow-simulated", "--machine", "simulated:ppu-8", "--baseline", "base.json"],
         "has no machine like"),
        (["check", "-t", "host_latency", "--baseline", "base.json"], "is from a simulated machine"),
        (["check", "--baseline", "good0.json"], "is not a baseline"),
        (["check", "--baseline", "none.json"], "cannot read none.json"),
    ):  # fmt: skip
        code, _, err = run(*arguments, capsys=capsys)
        assert code == 2 and says in err and len(err.splitlines()) == 1
    wirespeed.run(["4"], machine=f"{machine}+corrupt", output="bad.json")
    code, _, err = run("baseline", "make", "bad.json", "-o", "base.json", capsys=capsys)
    assert code == 2 and "is not usable: device_to_device_memcpy_read_ce: failed" in err
    assert run("baseline", "make", "good0.json", "-o", "none/b.json", capsys=capsys)[0] == 5


def test_a_latency_above_its_baseline_fails() -> None:
    from msgspec.structs import replace

    document = wirespeed.run(["32"], machine="simulated:hgx-h200-2")
    baseline = wirespeed.baseline([document])
    (table,) = document.testcases[0].tables
    cells = tuple(replace(cell, value=(cell.value or 0) * 1.2) for cell in table.cells)
    result = replace(document.testcases[0], tables=(replace(table, cells=cells),))
    slow = wirespeed.judge(replace(document, testcases=(result,)), baseline=baseline)
    assert slow.verdict is Verdict.FAIL and "20.0% above the baseline of 1 run" in slow.judgements[0].why
    assert wirespeed.judge(document, baseline=baseline).verdict is Verdict.PASS


def test_what_the_state_says_is_shown() -> None:
    from msgspec.structs import replace

    document = wirespeed.run(["0"], machine="simulated:hgx-h200-2+speed@numa0-gpu1=0.5")
    before, after = (
        (
            Quantity("gpu1", "PCIe width", width), Quantity("gpu0", THROTTLED, (reason,)),
            Quantity("gpu0", "power", power, "W"),
        )
        for width, reason, power in ((16.0, "idle", 80.0), (8.0, "power cap", 400.0))
    )  # fmt: skip
    result = replace(document.testcases[0], state_before=before, state_after=after)
    document = replace(document, testcases=(result,))
    text = check_screen.render(Judged(document), Style())
    assert "  gpu1 PCIe width: 16 → 8\n" in text
    assert "  gpu0 throttle reasons: idle → power cap\n" in text and "power:" not in text


def plain(text: str) -> str:
    text = re.sub(r"\x1b(\[[0-9;]*m|\]8;[^\x1b]*\x1b\\)", "", text)
    return "\n".join(line.rstrip() for line in text.splitlines()) + "\n"


def both(name: str, render: Callable[[Style], str], golden: Golden) -> None:
    """Compare with golden files, with and without colour; colour is only added."""
    text, coloured = render(Style()), render(Style(color=True))
    coloured = re.sub(r"\x1b\]8;id=\d+;file://\S+?/docs/", "\x1b]8;;file:///docs/", coloured)
    golden(f"{name}.txt", text)
    golden(f"{name}-colour.txt", coloured)
    assert plain(coloured) == text and coloured != text
    assert max(map(len, text.splitlines())) <= 80


@pytest.mark.parametrize(
    ("name", "machine"),
    [
        ("healthy", "hgx-h200-2"),
        ("half-width", "dgx-a100-8+speed@gpu3-pcie1=0.5"),
        ("throttled", "dgx-a100-8+speed@gpu5=0.6"),
        ("impossible", "hgx-h200-2+speed@gpu0-gpu1=3"),
        ("links-down", "hgx-h200-2+nvlinks=9@gpu0"),
        ("busy", "hgx-h200-2+busy@gpu1"),
        ("defect", "hgx-h200-2+ecc@gpu1"),
        ("wrong-data", "hgx-h200-2+corrupt@gpu1->gpu0"),
    ],
)
def test_golden_checks(name: str, machine: str, golden: Golden) -> None:
    document = still(wirespeed.run(machine=f"simulated:{machine}", tier="quick"))
    judged = Judged(document)
    both(f"check/{name}", lambda style: check_screen.render(judged, style), golden)


def test_golden_nodes(golden: Golden) -> None:
    """A row for each node, the worst first, and what is wrong with it."""
    rows = []
    for i, fault in enumerate(("", "+nvlinks=9@gpu0", "+busy@gpu1", "+speed@numa0-gpu1=0.5")):
        machine = wirespeed.machine(f"simulated:hgx-h200-2{fault}")
        names = ["host_to_device_memcpy_ce", "device_to_device_memcpy_read_ce", "all_reduce"]
        document = wirespeed.run(names, machine=replace(machine, host=f"node{i}"), tier="quick")
        judged = Judged(document, file=f"{i}.json")
        rows.append(CheckedRun(run_summary(judged), ("1 gate failed",) * (i // 3)))
    both("check/nodes", lambda style: many_runs.render(rows, style), golden)
    both("check/nodes-once", lambda style: many_runs.render(rows[:1], style), golden)
    again = [replace(run, node=replace(run.node, host="node0")) for run in rows]
    assert "\nPASS  0 " in many_runs.render(again, Style())  # then the files tell them apart


def test_golden_comparison(golden: Golden) -> None:
    first, second = (
        still(wirespeed.run(["0", "4", "32", "38"], machine=f"simulated:hgx-h200-2{fault}", seed=seed))
        for seed, fault in ((0, ""), (1, "+speed@gpu0-gpu1=0.9+speed@gpu1-gpu1=1.1"))
    )
    comparison = wirespeed.compare(first, second)
    assert comparison.regressed
    both("compare/slower", lambda style: compare_screen.text(comparison, style), golden)


@pytest.mark.parametrize("name", ["dgx-a100-8", "pcie-2-no-p2p"])
def test_golden_machine(name: str, golden: Golden) -> None:
    both(f"machine/{name}", lambda style: render_machine(wirespeed.machine(SPECS[name]), style), golden)


def test_comparing(capsys: pytest.CaptureFixture[str], folder: Path) -> None:
    machine = "simulated:hgx-h200-2"
    wirespeed.run(["0", "4"], machine=machine, output="a.json")
    wirespeed.run(["0", "4"], machine=machine, seed=1, output="same.json")
    wirespeed.run(["0", "4"], machine=f"{machine}+speed@gpu0-gpu1=0.9", output="slow.json")
    wirespeed.run(["0", "4"], machine=f"{machine}+corrupt@gpu0->gpu1", output="bad.json")
    wirespeed.run(["38"], machine=machine, output="other.json")
    assert run("compare", "a.json", "same.json", capsys=capsys)[0] == 0
    code, out, _ = run("compare", "a.json", "slow.json", capsys=capsys)
    assert code == 1 and "2 worse, 2 same" in out and "−10." in out
    assert run("compare", "slow.json", "a.json", capsys=capsys)[0] == 0
    assert run("compare", "a.json", "slow.json", "--least", "20%", capsys=capsys)[0] == 0
    code, out, _ = run("compare", "a.json", "bad.json", capsys=capsys)
    assert code == 1 and "lost" in out and "wrong data" in out
    code, _, err = run("compare", "a.json", "other.json", capsys=capsys)
    assert code == 2 and "no cell has a value on both sides" in err


def test_saved_runs_are_not_saved_again(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert main(["check", "--from", "a.json", "-o", str(tmp_path / "b.json")]) == 2
    assert "files are saved ones" in capsys.readouterr().err


def test_a_gpu_without_free_memory_is_busy_and_no_failure(capsys: pytest.CaptureFixture[str]) -> None:
    machine = "simulated:hgx-h200-2+full@gpu0"
    code, out, _ = run(*CHECK, machine, "-t", "0", "38", capsys=capsys)
    assert code == 4
    assert "BUSY  gpu0's memory is in use by a simulated load" in out and "FAIL" not in out
    assert "kernel log" not in out
    document = wirespeed.run(["0", "38"], machine=machine)
    for result in document.testcases:
        assert result.status is Status.NO_MEMORY
        assert result.reason.startswith("not enough memory on gpu0: ") and "0 B is free" in result.reason
        (cells,) = [table.cells for table in result.tables]
        assert [cell.value is None for cell in cells] == [True, False]
    junit = wirespeed.render(document, "junit")
    assert 'errors="0"' in junit and 'failures="0"' in junit
    assert "out of memory" in wirespeed.render(document)


def test_default_buffers_shrink_to_the_free_memory_and_chosen_ones_do_not() -> None:
    machine = "simulated:hgx-h200-2+full@gpu0=300MiB"
    document = wirespeed.run(["0", "38"], machine=machine)
    copies, local = document.testcases
    assert [cell.bytes for cell in copies.tables[0].cells] == [256 * MIB, 512 * MIB]
    assert copies.warnings == (
        "buffers of 256 MiB in place of 512 MiB: not enough memory on gpu0: 512 MiB requested, "
        "300 MiB is free",
    )
    assert copies.status is Status.PASSED
    assert local.status is Status.NO_MEMORY, "smaller buffers would be in a cache"
    for options in ({"size": "512MiB"}, {"sizes": "256MiB:512MiB:x2"}):
        (chosen,) = wirespeed.run(["0"], machine=machine, **options).testcases
        assert chosen.status is Status.NO_MEMORY and "512 MiB requested" in chosen.reason


@pytest.mark.parametrize(
    "fault", ["", "+nvlinks=6@gpu3", "+gen3@gpu3", "+busy@gpu1", "+corrupt@gpu3", "+gone@gpu3"]
)
def test_verdict_cause_and_key_figures_are_the_end_of_one_screen(
    fault: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    code, out, err = run(*CHECK, f"simulated:dgx-a100-8{fault}", capsys=capsys)
    lines = [*out.splitlines(), *err.splitlines()][-23:]  # the prompt takes one
    (verdict,) = [i for i, line in enumerate(lines) if re.match(r"(PASS|FAIL|BUSY)  ", line)]
    assert len([line for line in lines[:verdict] if re.search(r"(GB/s|failed)  ─", line)]) == 5, (
        "the key figures"
    )
    assert code in (0, 1, 4)
    assert fault != "+nvlinks=6@gpu3" or any("remedy" in line for line in lines[verdict:])
