"""Qualification of two nodes: judged by what their NICs carry, and no words that contradict each other."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.unit.test_benchmarks import benchmark
from wirespeed.cli.main import main
from wirespeed.qualify.simulated_facts import FAULTS
from wirespeed.results.store import load

TWO, SPARKS = "simulated:dgx-a100-8x2", "simulated:dgx-spark-2"
#: 13 of 200 Gbit/s, as in dgx-spark-playbooks, pull request 108.
CAPPED = f"{SPARKS}+node=0.07@node0+node=0.07@node1"


def qualified(machine: str, capsys: pytest.CaptureFixture[str], *more: str) -> tuple[int, str]:
    code = main(["qualify", "--machine", machine, "--no-save", *more])
    return code, " ".join(capsys.readouterr().out.split())


@pytest.mark.parametrize("machine", [TWO, SPARKS])
def test_two_good_nodes_pass_by_what_their_nics_carry(
    machine: str, capsys: pytest.CaptureFixture[str]
) -> None:
    code, out = qualified(machine, capsys)
    assert code == 0 and out.endswith("PASS: 2 of 2 nodes usable")
    assert "expected: node1: " in out and "compared with what the NICs at both ends carry" in out
    assert "cause" not in out and "third" not in out


def test_both_ends_of_a_slow_path_are_in_doubt(capsys: pytest.CaptureFixture[str]) -> None:
    slow = f"{TWO}+nic=0.5@node1.3"
    code, out = qualified(slow, capsys)
    assert code == 1 and out.endswith("FAIL: 1 slow part, 0 of 2 nodes usable, 2 in doubt")
    assert "slow: path between node0 and node1 of rail 3: " in out
    assert "in doubt: node0, node1: other partners show which is slow" in out
    _, out = qualified(slow, capsys, "--exclude-format", "json")
    assert json.loads(out) == {"exclude": [], "in_doubt": ["node0", "node1"], "use": []}
    code, out = qualified(f"{TWO.replace('x2', 'x3')}+nic=0.5@node1.3", capsys)
    assert code == 1 and out.endswith("exclude: node1 FAIL: 1 slow part, 2 of 3 nodes usable")


def test_a_rail_that_is_only_slower_than_others_fails_too(capsys: pytest.CaptureFixture[str]) -> None:
    """At 85 % of the others it reaches what its NICs usually carry: it is compared with the other rails."""
    code, out = qualified(f"{TWO}+nic=0.85@node1.3+noise=0.5%", capsys)
    assert code == 1 and "of rail 3: 39" in out and "that the NICs carry" not in out


def test_all_rails_at_both_ends_fail_within_20_s(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """No fact explains it, and the report says so and what to do."""
    file = tmp_path / "two.json"
    assert main(["qualify", "--machine", CAPPED, "-o", str(file)]) == 1
    out = " ".join(capsys.readouterr().out.split())
    document = load(str(file))
    assert document.seconds <= 20 and document.qualification
    (part,) = document.qualification.culprits
    assert part.limited and part.confirmed and 0.06 < part.value / part.expected < 0.07
    assert "1.6" in out and "of 25 GB/s (6%) that the NICs carry" in out
    assert "cause: no reading of the nodes explains it. Remedy: " in out


@pytest.mark.parametrize("name", FAULTS)
@pytest.mark.parametrize("noise", ["1%", "5%"])
def test_each_cause_is_named_at_each_node(name: str, noise: str) -> None:
    program, fault = benchmark("qualify_two"), FAULTS[name]
    text = f"{name}={fault.amount:g}" if fault.amount else name
    assert program.named("dgx-spark-2", text, fault.cause, noise, 2) == 2


def test_good_nodes_have_no_alarm() -> None:
    """A sample of what benchmarks/qualify_two.py runs a thousand times."""
    program = benchmark("qualify_two")
    assert [program.alarms(machine, noise, 20) for machine in ("dgx-spark-2", "dgx-a100-8x2")
            for noise in program.NOISES] == [0] * 4  # fmt: skip


def test_every_view_names_the_cause(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """Text, check, JSON and page say what is slow, the same cause and its remedy."""
    file = tmp_path / "two.json"
    assert main(["qualify", "--machine", f"{SPARKS}+mtu=1500@node1", "-o", str(file)]) == 1
    text = capsys.readouterr().out
    views = [text]
    for form in ("text", "json", "markdown"):
        assert main(["check", str(file), "--allow-simulated", "--format", form]) == 1
        views.append(capsys.readouterr().out)
    page = tmp_path / "two.html"
    assert main(["report", str(file), "-o", str(page)]) == 0
    views.append(page.read_text())
    for view in (" ".join(view.split()) for view in views):
        assert "path between node0 and node1" in view
        assert "MTU 1500 at 200 Gbit/s" in view and "mtu 9000" in view
    (run,) = json.loads(views[2])["runs"]
    assert run["verdict"] == "fail" and run["causes"][0]["cause"] == "mtu"


def test_one_direction(capsys: pytest.CaptureFixture[str]) -> None:
    code, out = qualified(f"{SPARKS}+cable=0.5@node1", capsys)
    assert code == 1 and "slow: path from node1 to node0: 11." in out


def test_given_nics(capsys: pytest.CaptureFixture[str]) -> None:
    """What the user says of the NICs counts, not their facts."""
    code, out = qualified(SPARKS, capsys, "--nics", "1x400G")
    assert code == 1 and "of 50 GB/s (46%) that the NICs carry (node0: as given by --nics" in out


@pytest.mark.parametrize(
    ("fault", "says"),
    [
        ("mtu=1500@node7", "write node0 to node1"), ("endpoint=3@node0", "write endpoint@node0"),
        ("width=0@node0", "write width=2@node0"), ("tractor@node0", "unknown fault 'tractor@node0'"),
    ],
)  # fmt: skip
def test_faults_that_do_not_exist(fault: str, says: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["qualify", "--machine", f"{SPARKS}+{fault}", "--no-save"]) == 2
    error = capsys.readouterr().err
    assert says in error and error.count("\n") == 1
