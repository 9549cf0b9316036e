"""``wirespeed p2p`` on simulated machines: what people and programs read, and what ``check`` tries first."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

import wirespeed
from tests.conftest import with_long
from wirespeed.cli.main import main
from wirespeed.document import Status
from wirespeed.judging.verdict import Verdict
from wirespeed.peer_access import ALL, PeerMechanism
from wirespeed.results.store import load

ACS = "simulated:rtx5090-4+acs"
ONE_WAY = "simulated:rtx3090-4+dropped@gpu0->gpu2"


def printed(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str]:
    code = main(list(arguments))
    return code, capsys.readouterr().out


def test_the_screen_has_matrix_verdict_cause_settings_and_repair(capsys: pytest.CaptureFixture[str]) -> None:
    code, out = printed(capsys, "p2p", "--machine", ACS)
    assert code == 1
    lines = out.splitlines()
    assert "gpu1     H           H     H" in lines and "H hangs" in lines
    text = " ".join(out.split())
    assert "FAIL peer access hangs for all pairs: gpu1 never sees the flag that gpu0 wrote" in text
    assert "likely cause: PCIe ACS redirects" in text and "setpci -s 0000:00:01.1 ECAP_ACS+6.w=0000" in text
    assert "export NCCL_P2P_DISABLE=1" in text and "--disable-custom-all-reduce" in text
    assert "replace" not in text and text.count("SIMULATED: no hardware was measured") == 1


def test_all_mechanisms_are_shown_on_request(capsys: pytest.CaptureFixture[str]) -> None:
    _, out = printed(capsys, "p2p", "-v", "--machine", ONE_WAY)
    assert "gpu0 -> gpu2: hangs: data before its flag, waiting for the flag of gpu0 on gpu2" in " ".join(
        out.split()
    )
    assert "export CUDA_VISIBLE_DEVICES=0,1,3" in out


@pytest.mark.parametrize(
    ("machine", "code", "lines"),
    [
        (ACS, 1, ["export NCCL_P2P_DISABLE=1"]),
        ("simulated:rtx4090-2", 4, []),  # a simulated machine never passes
        ("simulated:rtx4090-2+slow=0.1", 3, ["export NCCL_P2P_DISABLE=1"]),
        ("simulated:pcie-2-no-p2p", 4, []),
        ("simulated:gh200-1", 4, []),
    ],
)
def test_scripts_get_only_exports(
    capsys: pytest.CaptureFixture[str], machine: str, code: int, lines: list[str]
) -> None:
    assert printed(capsys, "p2p", "--env", "--machine", machine) == (code, "".join(f"{x}\n" for x in lines))


def test_programs_get_stable_keys(capsys: pytest.CaptureFixture[str]) -> None:
    code, out = printed(capsys, "p2p", "--json", "--machine", ONE_WAY)
    answer = json.loads(out)
    assert code == 1 and answer["wirespeed_p2p"] == 1 and answer["verdict"] == "fail"
    assert answer["pairs"]["0->1"]["verdict"] == "works"
    assert answer["pairs"]["0->2"]["verdict"] == "hangs"
    assert answer["pairs"]["0->2"]["mechanisms"]["store"]["verdict"] == "wrong data"
    assert answer["environment"] == {"NCCL_P2P_DISABLE": "1"} and answer["working_group"] == [0, 1, 3]
    assert answer.keys() >= {"sentence", "gpus", "causes", "options", "unusable", "not_read", "seconds"}


def test_a_saved_run_is_shown_again_and_by_every_format(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    bad, good = str(tmp_path / "bad.json"), str(tmp_path / "good.json")
    first = printed(capsys, "p2p", "--machine", ONE_WAY, "-o", bad)
    assert printed(capsys, "p2p", bad) == first
    printed(capsys, "p2p", "--machine", ONE_WAY.partition("+")[0], "-o", good)
    assert load(good).peers == wirespeed.load(good).peers
    assert load(bad).command == f"wirespeed p2p --machine {ONE_WAY} -o {bad}"
    assert "wirespeed_peer_access" in printed(capsys, "show", "--format", "prometheus", bad)[1]
    assert "gpu0-&gt;gpu2 hangs" in printed(capsys, "show", "--format", "junit", bad)[1]
    code, changes = printed(capsys, "compare", good, bad)
    assert code == 1 and "copy gpu0 gpu2" in changes
    assert printed(capsys, "compare", bad, good)[0] == 0
    assert printed(capsys, "check", "--allow-simulated", good)[0] == 0


@pytest.mark.parametrize(
    "arguments",
    [
        ["--env", "--json"],
        ["--machine", "simulated:rtx3090-4+dropped@gpu0->gpu9"],
        ["--machine", "simulated:nvl72"],
        ["run.json", "--short"],
    ],
)
def test_wrong_arguments(capsys: pytest.CaptureFixture[str], arguments: list[str]) -> None:
    try:
        code = main(["p2p", *arguments])
    except SystemExit as end:  # argparse
        code = int(end.code or 0)
    assert code == 2


def test_a_run_without_attempts_has_nothing_to_show(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    file = str(tmp_path / "run.json")
    main(["run", "-t", "device_local_copy", "--machine", "simulated:rtx4090-2", "-o", file])
    assert main(["p2p", file]) == 2


@pytest.mark.parametrize("command", ["check", "doctor"])
def test_a_machine_whose_peers_hang_is_diagnosed_and_not_waited_for(
    capsys: pytest.CaptureFixture[str], command: str
) -> None:
    options = ["--allow-simulated", "--no-save"] if command == "check" else []
    code, out = printed(capsys, command, "--machine", ACS, *options)
    text = " ".join(out.split())
    assert code == 1 and "peer access hangs for all pairs" in text
    assert "replace" not in text


@pytest.mark.parametrize("fault", with_long(["lost@gpu3", "hang@gpu3", "stuck@gpu3"], "lost@gpu3"))
def test_a_gpu_that_cannot_be_used_is_named_and_the_others_are_measured(
    capsys: pytest.CaptureFixture[str], fault: str
) -> None:
    for command in ("check", "doctor"):
        options = ["--no-save", "--allow-simulated"] if command == "check" else []
        code, out = printed(capsys, command, "--machine", f"simulated:dgx-a100-8+{fault}", *options)
        text = " ".join(out.split())
        assert code == 1 and "FAIL gpu3 cannot be used any more" in text
        assert "look for Xid errors of gpu3 in the kernel log; reset gpu3, or restart the node" in text
        assert "1043 values OK" in text and "left out" not in text and "nothing is slow" not in text
        assert "NCCL_P2P_DISABLE" not in text and "0 slow values" not in text


def test_a_pair_that_hangs_over_nvlink_leaves_the_other_pairs_measured() -> None:
    machine = "simulated:hgx-b200-8+hang@gpu3->gpu5"
    document = wirespeed.check(machine=machine).document
    pairs = next(r for r in document.testcases if r.name == "device_to_device_memcpy_read_ce")
    reasons = {cell.reason for cell in pairs.tables[0].cells if cell.value is None and cell.reason}
    measured = [cell for cell in pairs.tables[0].cells if cell.value is not None]
    assert "peer access gpu3 -> gpu5 hangs" in reasons and len(measured) == 8 * 7 - 2
    reduce = next(r for r in document.testcases if r.name == "all_reduce")
    assert reduce.status is Status.WAIVED and reduce.reason == "peer access gpu3 -> gpu5 hangs"
    assert not any(r.status is Status.TIMED_OUT for r in document.testcases)


@pytest.mark.parametrize(
    ("machine", "named", "exports"),
    [
        ("hgx-b200-8+hang@gpu3->gpu5", "gpu3 or gpu5", False),
        ("dgx-a100-8+unseen@gpu1", "gpu1", False),
        ("dgx-a100-8+unseen", "these GPUs", False),
        ("rtx5090-4+lost@gpu2", "gpu2", False),
        ("hgx-h200-2+mechanism=ipc@gpu0-gpu1", "", True),  # a container can separate processes
        ("pcie-4-switched+unseen", "", True),  # over PCIe, the platform may redirect what is written
        ("dgx-a100-8+corrupt@gpu3", "", True),
    ],
)
def test_settings_are_no_remedy_of_defective_hardware(
    capsys: pytest.CaptureFixture[str], machine: str, named: str, exports: bool
) -> None:
    _, out = printed(capsys, "p2p", "--machine", f"simulated:{machine}")
    text = " ".join(out.split())
    assert ("export NCCL_" in text) is exports
    assert ("Xid errors of" in text) is bool(named) and (f"reset {named}, or restart" in text) is bool(named)


def test_doctor_counts_only_testcases_that_were_measured(capsys: pytest.CaptureFixture[str]) -> None:
    _, out = printed(capsys, "doctor", "--machine", "simulated:dgx-a100-8+error@gpu3")
    measured, possible = re.search(r"measured (\d+) of (\d+) testcases", out).groups()  # type: ignore[union-attr]
    assert int(measured) < int(possible)
    assert "290 values failed" in out


def test_check_measures_the_rest_of_a_machine_whose_data_is_wrong(capsys: pytest.CaptureFixture[str]) -> None:
    machine = "simulated:rtx3090-4+corrupt@gpu0->gpu1"
    code, out = printed(capsys, "check", "--allow-simulated", "--no-save", "--machine", machine)
    text = " ".join(out.split())
    assert code == 1 and "FAIL gpu0->gpu1 delivers wrong data in" in text and "host memory" in text
    assert "do not use this path; export NCCL_P2P_DISABLE=1; then: " in text and "replace" not in text


@pytest.mark.parametrize(
    "fault",
    with_long(
        ["late", "both-ways", "dropped", "unseen", "slow=0.5", *(f"mechanism={m}" for m in ALL)],
        "dropped",
        *(f"mechanism={m}" for m in ALL if m not in (PeerMechanism.COPY, PeerMechanism.DESCRIPTOR)),
    ),
)
def test_check_finds_what_p2p_finds(capsys: pytest.CaptureFixture[str], fault: str) -> None:
    """Whatever is wrong between two of four GPUs: no pass, and no exit code 0 for a scheduler."""
    machine = ["--machine", f"simulated:rtx5090-4+{fault}@gpu0->gpu1"]
    code, out = printed(capsys, "p2p", *machine)
    assert code != 0 and "gpu0 -> gpu1" in " ".join(out.split())
    judged = ["check", "--allow-simulated", "--no-save", *machine]
    code, out = printed(capsys, *judged)
    assert code == 1 and "FAIL" in out
    no_wrong_data = fault in ("slow=0.5", "dropped", "unseen", "mechanism=flag")  # slow, or it hangs
    assert ("data verified" in out) is no_wrong_data
    assert main([*judged, "--for", "slurm"]) == 1


def test_a_slow_pair_is_slow_in_testcases_too() -> None:
    def rates(machine: str) -> dict[tuple[str, str], float]:
        case = "device_to_device_memcpy_write_ce"
        (table,) = wirespeed.run([case], machine=machine, samples=3, seed=1).testcases[0].tables[:1]
        names = [f"gpu{i}" for i in range(4)]
        return {(names[c.row], names[c.column]): c.value or 0.0 for c in table.cells}

    good, slow = rates("simulated:rtx5090-4"), rates("simulated:rtx5090-4+slow=0.5@gpu0->gpu1")
    changed = {pair: slow[pair] / good[pair] for pair in good if slow[pair] < 0.9 * good[pair]}
    assert changed == {("gpu0", "gpu1"): pytest.approx(0.5, rel=0.05)}


def test_a_named_testcase_is_measured_without_trying_peers(capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["check", "-t", "device_local_copy", "--allow-simulated", "--no-save", "--machine", ACS]
    assert printed(capsys, *arguments)[0] == 0


SIGNALS = "device_to_device_signal_latency"


@pytest.mark.parametrize(("machine", "most"), [("hgx-h200-2", 12e-6), ("rtx5090-4", 25e-6)])
def test_the_round_trip_of_a_flag_is_a_testcase_with_a_range(machine: str, most: float) -> None:
    document = wirespeed.run([SIGNALS], machine=f"simulated:{machine}", samples=3)
    judged = wirespeed.judge(document).judgements
    assert {one.verdict for one in judged} == {Verdict.PASS} and len(judged) in (2, 12)
    assert all(one.value is not None and one.value < most for one in judged)


def test_a_flag_that_is_never_seen_ends_its_testcase() -> None:
    document = wirespeed.run([SIGNALS], machine="simulated:rtx5090-4+unseen@gpu0->gpu2", samples=3)
    assert document.testcases[0].status is Status.TIMED_OUT
    assert "waiting for the flag of gpu0 on gpu2" in document.testcases[0].reason


@pytest.mark.parametrize("form", [["--json"], ["--env"], ["--for", "nagios"], ["-q"]])
def test_programs_get_nothing_besides_their_answer(
    form: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    saved = tmp_path / "run.json"
    main(["p2p", "--machine", "simulated:rtx5090-4+acs", *form, "-o", str(saved)])
    out, err = capsys.readouterr()
    assert err == "" and saved.exists()
    lines = {"--json": None, "--env": 1, "--for": 1, "-q": 0}[form[0]]
    assert lines is None or out.count("\n") == lines
    assert main(["doctor", "-q", str(saved)]) == 1 and capsys.readouterr() == ("", "")
