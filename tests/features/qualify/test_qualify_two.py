"""Qualification of two nodes: judged by what their NICs carry, and no words that contradict each other."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from msgspec.structs import replace

from tests.unit.test_benchmarks import benchmark
from wirespeed.cli.main import main
from wirespeed.data.causes import NODE_FAULTS
from wirespeed.features.qualify.procedure import Procedure
from wirespeed.features.qualify.simulated_cluster import SimulatedCluster
from wirespeed.hardware.facts import Fact, Known
from wirespeed.judging.qualification_verdict import remedy_of, unexplained
from wirespeed.qualification import (
    EndMemory,
    PartKind,
    Qualification,
    QualifiedNode,
    RailLimit,
    SlowPart,
    Stage,
    part_name,
)
from wirespeed.results.store import load
from wirespeed.units import MIB

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
    assert code == 0 and out.endswith(" is slow 2 of 2 nodes usable")
    assert "expected: node1: " in out and "compared with" not in out
    assert "cause" not in out and "third" not in out


def test_both_ends_of_a_slow_path_are_in_doubt(capsys: pytest.CaptureFixture[str]) -> None:
    slow = f"{TWO}+nic=0.5@node1.3"
    code, out = qualified(slow, capsys)
    assert code == 1 and " 1 slow part, 0 of 2 nodes usable, 2 in doubt " in out
    assert "slow: path between node0 and node1 of rail 3: " in out
    assert "in doubt: node0, node1: other partners show which is slow" in out
    _, out = qualified(slow, capsys, "--exclude-format", "json")
    assert json.loads(out) == {"exclude": [], "in_doubt": ["node0", "node1"], "use": []}
    code, out = qualified(f"{TWO.replace('x2', 'x3')}+nic=0.5@node1.3", capsys)
    assert (
        code == 1
        and "drain: node1 FAIL" in out
        and " 1 slow part, 2 of 3 nodes usable remedy drain node1 confirm " in out
    )


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
    assert "no reading of the nodes explains it remedy " in out


@pytest.mark.parametrize("name", NODE_FAULTS)
@pytest.mark.parametrize("noise", ["1%", "5%"])
def test_each_cause_is_named_at_each_node(name: str, noise: str) -> None:
    program, fault = benchmark("qualify_two"), NODE_FAULTS[name]
    text = f"{name}={fault.amount:g}" if fault.amount else name
    assert program.named("dgx-spark-2", text, fault.cause, noise, 2) == 2


@pytest.mark.parametrize(
    ("fault", "text"),
    [
        ("hca@node1", "NCCL_IB_HCA leaves out mlx5_1, mlx5_3, mlx5_5, mlx5_7"),
        ("rate=200@node1", "mlx5_1, mlx5_3, mlx5_5, mlx5_7: 200 Gbit/s"),
        ("bond@node1", "eth0: eth1 without a link"),
        ("acs@node1", "ACS of 0000:12:01.0 redirects"),
        ("iommu@node1", "the IOMMU translates"),
    ],
)
def test_causes_at_nodes_with_eight_nics(fault: str, text: str, capsys: pytest.CaptureFixture[str]) -> None:
    code, out = qualified(f"simulated:dgx-a100-8x2+{fault}", capsys)
    assert code == 1 and text in out


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
    assert code == 1 and "of 50 GB/s (46%) that the NICs carry" in out
    assert "expected: node0: 50 GB/s per rail (--nics); slow below 37.5 GB/s" in out


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


def saved(machine: str, tmp_path: Path, *more: str) -> tuple[int, Path]:
    file = tmp_path / "run.json"
    return main(["qualify", "--machine", machine, "-q", "-o", str(file), *more]), file


def test_messages_are_in_every_view(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """16 to 64 MiB, in one and both directions, of host and GPU memory: record, text, page."""
    code, file = saved(SPARKS, tmp_path)
    found = load(str(file)).qualification
    assert code == 0 and found
    rounds = [each for each in found.rounds if each.stage is Stage.SIZES]
    assert {(each.memory, each.both) for each in rounds} == {
        (memory, both) for memory in EndMemory for both in (False, True)
    }
    assert all(each.sizes == (16 * MIB, 32 * MIB, 64 * MIB) for each in rounds)
    assert all(curve.large == pytest.approx(23e9, rel=0.05) for curve in found.curves)
    main(["show", str(file)])
    text = " ".join(capsys.readouterr().out.split())
    page = tmp_path / "two.html"
    assert main(["report", str(file), "-o", str(page)]) == 0
    for view in (text, page.read_text()):
        assert "messages, GPU memory: node0 to node1 2" in view
        assert "messages, host memory, both at once: node0 to node1 2" in view


def test_a_rail_that_is_slow_in_both_directions_at_once(tmp_path: Path) -> None:
    """Each direction by itself is as fast as it should be."""
    code, file = saved(f"{TWO}+duplex=0.5@node1.3", tmp_path)
    found = load(str(file)).qualification
    assert code == 1 and found
    (part,) = found.culprits
    assert (part.kind, part.rail, part.both, part.memory) == (PartKind.PATH, 3, True, None)
    assert part.limited and part.confirmed and 0.4 < part.value / part.expected < 0.5
    assert sum(each.stage is Stage.SIZES and each.both for each in found.rounds) > 2  # measured again


def test_a_path_that_is_slow_from_gpu_memory_only(capsys: pytest.CaptureFixture[str]) -> None:
    """Messages from host memory show that the network is good (Mooncake, issue 1459)."""
    code, out = qualified(f"{SPARKS}+gpudirect@node1", capsys)
    assert code == 1 and "slow: path between node0 and node1 (GPU memory): 7." in out
    code, out = qualified(f"{SPARKS}+mtu=1500@node1", capsys)
    assert code == 1 and "slow: path between node0 and node1: 1" in out  # from both


def test_messages_of_slow_networks_are_small() -> None:
    """64 MiB over 50 MB/s would take seconds each."""
    found = Procedure(SimulatedCluster(2, rails=1, peak=50e6, has_gpus=False)).run()
    assert found.curves and {size // MIB for curve in found.curves for size in curve.rates} == {4, 8, 16}


def test_many_nodes_that_are_all_slow_fail_by_what_their_nics_carry(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Peers explain nothing; two of the nodes are examined, and show why."""
    code, file = saved("simulated:dgx-a100-8x200+mtu=1500@*", tmp_path)
    document = load(str(file))
    assert code == 1 and document.qualification
    (part,) = document.qualification.culprits
    assert part.kind is PartKind.ALIKE and part.limited and part.confirmed and len(part.nodes) == 200
    assert len(document.qualification.in_doubt) == 200 and not document.qualification.excluded
    assert {fact.host for fact in document.facts} == {f"node{node}" for node in part.nodes[:2]}
    main(["check", "--allow-simulated", str(file)])
    out = " ".join(capsys.readouterr().out.split())
    assert "all rails of all 200 nodes: 27" in out and "of 50 GB/s (5" in out
    assert "MTU 1500 at 400 Gbit/s" in out and "0 of 200 nodes usable, 200 in doubt" in out
    assert main(["report", str(file), "-o", str(tmp_path / "many.html")]) == 0


@pytest.mark.parametrize("count", [3, 16])
def test_a_rail_of_all_nodes_is_one_part(count: int, capsys: pytest.CaptureFixture[str]) -> None:
    """Of each kind: slow by the NICs, without a fact that explains it."""
    code, out = qualified(f"simulated:dgx-a100-8x{count}+node=0.07@*", capsys)
    assert code == 1 and f"slow: all rails of all {count} nodes: 3." in out
    assert "no reading of the nodes explains it" in out
    assert "all are as slow as their partners" in out
    code, out = qualified("simulated:dgx-spark-2+node=0.07@*", capsys)
    assert code == 1 and "path between node0 and node1" in out  # two have no peers


def test_given_nics_judge_many_nodes(capsys: pytest.CaptureFixture[str]) -> None:
    code, out = qualified("simulated:dgx-a100-8x16", capsys, "--nics", "8x800G")
    assert code == 1 and "all rails of all 16 nodes: 4" in out and "100 GB/s per rail (--nics)" in out
    code, out = qualified("simulated:dgx-a100-8x16", capsys, "--nics", "8x400G")
    assert code == 0 and "expected" not in out and "messages" not in out


def test_slow_nodes_among_good_ones_are_named_by_their_peers(capsys: pytest.CaptureFixture[str]) -> None:
    """Their limits say nothing more: most rails reach theirs."""
    code, out = qualified("simulated:dgx-a100-8x16+nic=0.5@node3.2+leaf=0.6@block1.5", capsys)
    assert code == 1 and "node3's NIC of rail 2" in out and "leaf switch of block1 of rail 5" in out
    assert "that the NICs carry" not in out and "2 slow parts, 15 of 16 nodes usable remedy" in out


@pytest.mark.parametrize(
    ("faults", "parts"),
    [
        ("nic=0.3@*.2", ["rail 2 of all 16 nodes"]), ("cable=0.3@*.5", ["rail 5 of all 16 nodes"]),
        ("leaf=0.3@block0.2", ["leaf switch of block0 of rail 2"]),
        ("mtu=1500@*+nic=0.3@node3.2", ["all rails of all 16 nodes", "node3's NIC of rail 2"]),
        ("mtu=1500@*+node=0.3@node3", ["all rails of 15 of 16 nodes", "node3"]),
        ("node=0.3@node1+gpudirect@*", ["all rails of all 16 nodes"]),
    ],
)  # fmt: skip
def test_parts_that_explain_all_nodes_of_a_rail_are_the_rail(
    faults: str, parts: list[str], tmp_path: Path
) -> None:
    """One switch that all share explains it; slower ones than the others are named, too."""
    code, file = saved(f"simulated:dgx-a100-8x16+{faults}", tmp_path)
    found = load(str(file)).qualification
    assert code == 1 and found
    assert [part_name(part, found.nodes) for part in found.culprits] == parts
    assert all(part.confirmed for part in found.culprits)


def test_no_time_for_messages_is_a_warning(capsys: pytest.CaptureFixture[str]) -> None:
    code, out = qualified(SPARKS, capsys, "--within", "20.5s")
    assert code == 3 and "warning: no time was left for large messages" in out


@pytest.mark.parametrize(
    ("fault", "cause", "remedy"),
    [
        ("gpudirect@node1", "peermem", "modprobe nvidia-peermem"),
        ("generation=3@node1", "nic-pcie", "reseat the card or riser"),
        ("mtu=1500@node2", "mtu", "set 9000 at both ends"),
        ("iommu@node3", "iommu", "boot with iommu=pt"),
    ],
)
def test_a_node_among_four_gets_its_cause_in_every_form(
    fault: str, cause: str, remedy: str, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    file, html, node = tmp_path / "four.json", tmp_path / "four.html", fault.partition("@")[2]
    assert main(["qualify", "--machine", f"simulated:dgx-a100-8x4+{fault}", "-o", str(file)]) == 1
    out = " ".join(capsys.readouterr().out.split())
    assert f"likely cause: {node}: " in out and remedy in out and f"drain: {node} " in out
    main(["check", "--from", str(file), "--allow-simulated", "--format", "json"])
    causes = json.loads(capsys.readouterr().out)["runs"][0]["causes"]
    assert (causes[0]["cause"], causes[0]["host"]) == (cause, node)
    assert main(["report", str(file), "-o", str(html)]) == 0
    assert remedy in html.read_text()


def test_a_slow_node_without_a_known_cause_has_none(capsys: pytest.CaptureFixture[str]) -> None:
    code, out = qualified("simulated:dgx-a100-8x4+nic=0.5@node1.3", capsys)
    assert code == 1 and "cause" not in out and "drain: node1" in out


def test_remedies_over_tcp_name_interfaces_and_no_rdma() -> None:
    nodes = tuple(QualifiedNode(name, rails=1) for name in "ab")
    path = SlowPart(PartKind.PATH, (0, 1), 0, value=1e9, expected=12e9, limited=True)
    limits = tuple(RailLimit(i, -1, ("ens1",), 12e9, least=9e9) for i in range(2))
    document = load("tests/recorded/two-h200.json")
    for transport, facts in (
        ("TCP", ()),
        ("NCCL over TCP", (Fact(Known.INTERFACE_KIND, "physical", device="ens1"),)),
    ):
        found = Qualification(nodes, culprits=(path,), transport=transport, limits=limits)
        advice = unexplained(replace(document, facts=facts), found)
        assert "a: ens1; b: ens1" in advice.do and "ethtool ens1" in advice.command
        assert "ib_write_bw" not in advice.command and "power" not in advice.do
    assert "rdma" not in remedy_of(SlowPart(PartKind.NIC, (0,), 0), over_tcp=True).command
    assert "rdma" in remedy_of(SlowPart(PartKind.NIC, (0,), 0), over_tcp=False).command
    found = Qualification(nodes, culprits=(path,), transport="NCCL over InfiniBand", limits=limits)
    assert "ib_write_bw" in unexplained(replace(document, facts=()), found).command
