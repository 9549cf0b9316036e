"""The method of qualify, on simulated clusters: pairs, inference, confirmation, groups, switches, faults."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from pathlib import Path

import msgspec
import numpy as np
import pytest
from msgspec.structs import replace

import wirespeed
from wirespeed.cli.main import main
from wirespeed.errors import MachineError, UsageError
from wirespeed.features.qualify import slurm as switches
from wirespeed.features.qualify.cluster import Values
from wirespeed.features.qualify.cluster_faults import ClusterFault, NicModel
from wirespeed.features.qualify.inference import Paths, explain, normal_paths, reference_of, threshold_of
from wirespeed.features.qualify.limits import below_alike
from wirespeed.features.qualify.messages import confirmed_by_sizes, sizes_at
from wirespeed.features.qualify.pairing import groups_of, matchings, representatives
from wirespeed.features.qualify.procedure import PAIR_ROUNDS, Procedure
from wirespeed.features.qualify.simulated_cluster import SimulatedCluster, parse_cluster
from wirespeed.features.qualify.text import certainty
from wirespeed.judging.judge import judge
from wirespeed.judging.qualification_verdict import verdict_of
from wirespeed.judging.verdict import Verdict
from wirespeed.qualification import (
    OF_NODE,
    EndMemory,
    PartKind,
    Qualification,
    QualifiedNode,
    RailLimit,
    Round,
    SlowPart,
    Stage,
    compact,
    part_name,
)
from wirespeed.thresholds.clusters import FEWEST_PAIR_ROUNDS
from wirespeed.units import KIB


def qualified(spec: str, seed: int = 0, within: float = float("inf")) -> Qualification:
    cluster = parse_cluster(spec, seed=seed)
    assert cluster is not None
    return Procedure(cluster, within=within, seed=seed).run()


def named(found: Qualification) -> list[str]:
    return [part_name(culprit, found.nodes) for culprit in found.culprits]


class TestMatchings:
    BLOCKS = tuple(f"block{i // 8}" for i in range(24))

    def test_each_node_has_one_partner_in_a_round_and_many_over_all(self) -> None:
        rounds = matchings(self.BLOCKS, range(24), 7, seed=1)
        for pairs in rounds:
            ends = [node for pair in pairs for node in pair]
            assert sorted(ends) == list(range(24))
        partners = {frozenset(pair) for pairs in rounds for pair in pairs}
        assert len(partners) > 0.9 * 7 * 12

    def test_across_blocks_and_within_them_by_turns(self) -> None:
        first, second = matchings(self.BLOCKS, range(24), 2, seed=1)
        assert all(self.BLOCKS[a] != self.BLOCKS[b] for a, b in first)
        assert all(self.BLOCKS[a] == self.BLOCKS[b] for a, b in second)

    def test_of_an_odd_number_another_node_is_left_out(self) -> None:
        rounds = matchings([""] * 5, range(5), 6, seed=0)
        out = {node for pairs in rounds for node in set(range(5)) - {each for pair in pairs for each in pair}}
        assert all(len(pairs) == 2 for pairs in rounds) and len(out) > 1

    def test_groups_are_blocks_and_representatives_cross_them(self) -> None:
        inside = groups_of(self.BLOCKS, range(24))
        assert [len(group) for group in inside] == [8, 8, 8]
        assert all(len({self.BLOCKS[node] for node in group}) == 3 for group in representatives(inside))
        assert {len(group) for group in groups_of([""] * 16, range(16))} == {4}


class TestInference:
    def paths(self, slow: dict[tuple[int, int], float]) -> Paths:
        """All paths of six nodes with one rail; those that are slow with their factor."""
        ends = [(a, b) for a in range(6) for b in range(6) if a != b]
        values = np.array([46e9 * slow.get(end, 1.0) for end in ends])
        source, target = np.array(ends).T
        return Paths(source, target, np.zeros(len(ends), dtype=np.int64), values)

    def explained(
        self, paths: Paths, blocks: Sequence[str] = ("",) * 6, rails: int = 1, variation: float = 0.0
    ) -> tuple[SlowPart, ...]:
        """The slow parts that explain paths."""
        return explain(paths, blocks, rails, *normal_paths(paths, rails, variation))[0]

    def test_nothing_is_slow(self) -> None:
        reference, noise = normal_paths(self.paths({}), 1)
        assert reference == 46e9 and threshold_of(noise) == pytest.approx(0.95)
        assert explain(self.paths({}), [""] * 6, 1, reference, noise) == ((), 0.0)

    def test_both_directions_are_a_nic_and_one_is_a_cable(self) -> None:
        both = {(2, i): 0.5 for i in range(6)} | {(i, 2): 0.5 for i in range(6)}
        (nic,) = self.explained(self.paths(both))
        assert (nic.kind, nic.nodes, nic.partners) == (PartKind.NIC, (2,), 5)
        (cable,) = self.explained(self.paths({(i, 3): 0.6 for i in range(6)}))
        assert (cable.kind, cable.nodes, cable.sends) == (PartKind.CABLE, (3,), False)
        assert cable.value == pytest.approx(0.6 * 46e9)

    def test_one_slow_path_blames_nobody(self) -> None:
        assert self.explained(self.paths({(0, 1): 0.5})) == ()

    def test_two_nodes_have_only_their_path(self) -> None:
        ends = np.array([0, 1, 0, 1]), np.array([1, 0, 1, 0])
        values = np.array([46e9, 20e9, 46e9, 20e9])
        (path,) = self.explained(Paths(*ends, np.zeros(4, dtype=np.int64), values), ["", ""])
        assert path.kind is PartKind.PATH and set(path.nodes) == {0, 1}

    def test_values_that_vary_while_they_are_measured_lower_the_threshold(self) -> None:
        slow = {(2, i): 0.85 for i in range(6)} | {(i, 2): 0.85 for i in range(6)}
        assert self.explained(self.paths(slow))
        assert self.explained(self.paths(slow), variation=0.2) == ()
        _, noise = normal_paths(self.paths(slow), 1, variation=0.2)
        assert threshold_of(noise) == pytest.approx(1 - 3.3 * 0.2)

    def of_blocks(
        self, factor: Callable[[int, int, int], float], rails: int = 1
    ) -> list[tuple[str, str, float]]:
        """What explains the paths of three blocks of four nodes, from source, target and rail to a factor."""
        ends = np.array([(a, b, r) for a in range(12) for b in range(12) for r in range(rails) if a != b])
        values = np.array([46e9 * factor(a, b, r) for a, b, r in ends.tolist()])
        found = self.explained(Paths(*ends.T, values), [f"b{i // 4}" for i in range(12)], rails)
        return [(c.kind, c.block or f"{c.nodes[0]}.{c.rail}", round(c.value / 46e9, 2)) for c in found]

    def test_paths_of_a_spine_switch_that_are_slow_by_chance_are_no_second_one(self) -> None:
        """Those that share its links with others are slow by different factors."""

        def factor(a: int, b: int, rail: int) -> float:
            return 1.0 if a // 4 == b // 4 or (7 * a + 3 * b) % 4 else 0.9 if a % 2 else 0.7

        (spine,) = self.of_blocks(factor)
        assert spine[0] is PartKind.SPINE

    @pytest.mark.parametrize(("within", "count"), [(2, 1), (3, 0)])
    def test_slow_paths_within_blocks_do_not_lead_through_a_spine_switch(
        self, within: int, count: int
    ) -> None:
        """A quarter of those between are slow; a sixteenth of those within, 2.25 of 36, may be."""
        inside = [(0, 1), (4, 6), (11, 9)][:within]

        def factor(a: int, b: int, rail: int) -> float:
            return 0.7 if (a, b) in inside or (a // 4 != b // 4 and not (7 * a + 3 * b) % 4) else 1.0

        assert [kind for kind, *_ in self.of_blocks(factor)] == [PartKind.SPINE] * count

    def test_a_switch_half_of_whose_paths_are_fast_is_not_slow(self) -> None:
        """Paths from the slow leaf switch to the trunk are as slow as the trunk; its others are not."""

        def factor(a: int, b: int, rail: int) -> float:
            ends = {a // 4, b // 4}
            return 0.3 if len(ends) == 2 and 1 in ends else 0.6 if 2 in ends else 1.0

        assert self.of_blocks(factor) == [(PartKind.TRUNK, "b1", 0.3), (PartKind.LEAF, "b2", 0.6)]

    def test_a_node_half_of_whose_paths_are_fast_is_not_slow(self) -> None:
        def factor(a: int, b: int, rail: int) -> float:
            slow = {(0, 0): 0.5, (0, 1): 0.7, (1, 1): 0.6}
            return min(slow.get((a, rail), 1.0), slow.get((b, rail), 1.0))

        assert self.of_blocks(factor, rails=2) == [
            (PartKind.NIC, "0.0", 0.5), (PartKind.NIC, "1.1", 0.6), (PartKind.NIC, "0.1", 0.7),
        ]  # fmt: skip

    def test_the_reference_is_that_of_the_fast_paths(self) -> None:
        values = np.array([46e9] * 4 + [20e9] * 6)
        assert reference_of(values) == (46e9, 0.0)
        assert reference_of(np.zeros(0)) == (0.0, 0.0)


@pytest.mark.parametrize(
    ("fault", "name"),
    [
        ("node=0.7@node5", "node5"),
        ("gpu=0.5@node5.3", "node5's GPU 3"),
        ("pcie=0.5@node5.3", "node5's link between host and GPU 3"),
        ("nic=0.5@node17.3", "node17's NIC of rail 3"),
        ("cable=0.6@node9.1", "node9's cable of rail 1 (sending)"),
        ("cable=0.6@node9.1<-", "node9's cable of rail 1 (receiving)"),
        ("leaf=0.7@block2.4", "leaf switch of block2 of rail 4"),
        ("trunk=0.7@block1.2", "trunk of block1 of rail 2"),
        ("spine=0.7@spine1.2", "spine switches of rail 2"),
        ("spine=0.7@spine1", "spine switches"),
    ],
)
@pytest.mark.parametrize("seed", [0, 1])
def test_each_kind_of_part_is_named_and_nothing_else(fault: str, name: str, seed: int) -> None:
    found = qualified(f"dgx-a100-8x32+{fault}+noise=2%", seed)
    assert named(found) == [name]
    (culprit,) = found.culprits
    # Flows that share a link by chance look like a slow spine switch, so that it is only a warning.
    assert culprit.confirmed is found.fails is (culprit.kind is not PartKind.SPINE)
    assert verdict_of(found) is (Verdict.FAIL if culprit.confirmed else Verdict.WARN)
    assert found.excluded == ((f"node{culprit.nodes[0]}",) if culprit.kind in OF_NODE else ())


def test_a_slow_spine_switch_beside_other_slow_parts() -> None:
    """One that is slower than a trunk of the same rail, and the paths of a slow NIC are not taken for it."""
    for seed in range(5):
        found = qualified("dgx-a100-8x128+spine=0.6@spine2.1+nic=0.5@node3.1+trunk=0.7@block2.1", seed)
        assert set(named(found)) == {
            "node3's NIC of rail 1", "trunk of block2 of rail 1", "spine switches of rail 1",
        }  # fmt: skip
        (spine,) = (culprit for culprit in found.culprits if culprit.kind is PartKind.SPINE)
        assert 0.15 < spine.share < 0.35


def test_a_node_that_is_lost_while_it_measures_itself_again_is_no_slow_part() -> None:
    class Lost(SimulatedCluster):
        """Only the first measurement answers."""

        def own(self, nodes):
            values = super().own(nodes)
            return {} if self.asked else setattr(self, "asked", True) or values

    cluster = Lost(16, 8, 8, faults=(ClusterFault(PartKind.GPU, 3, 2),))
    cluster.asked = False  # type: ignore[attr-defined]
    found = Procedure(cluster).run()
    assert not found.culprits and [each.stage for each in found.rounds].count(Stage.OWN) == 1


def test_nodes_none_of_which_answers_are_missing() -> None:
    class Gone(SimulatedCluster):
        def own(self, nodes):
            return {}

    assert all(node.missing == "does not answer" for node in Procedure(Gone(4, 8, 8)).run().nodes)


def test_nodes_without_gpus_measure_their_memory() -> None:
    found = qualified("cpu-2-socketsx16+memory=0.6@node4")
    assert named(found) == ["node4's host memory of NUMA node 0"] and found.excluded == ("node4",)
    assert found.rounds[0].parts == (PartKind.MEMORY,) and found.nodes[0].rails == 1


@pytest.mark.parametrize("kind", ["leaf", "trunk"])
def test_a_switch_that_is_slow_by_little_is_not_many_slow_nics(kind: str) -> None:
    for seed in range(5):
        found = qualified(f"dgx-a100-8x128+{kind}=0.88@block3.2+noise=3%", seed)
        (culprit,) = found.culprits
        assert culprit.kind in (PartKind.LEAF, PartKind.TRUNK) and culprit.block == "block3"


def test_a_good_cluster_takes_few_rounds_and_passes() -> None:
    found = qualified("dgx-a100-8x64")
    assert not found.fails and found.compared and not found.culprits and not found.excluded
    stages = [each.stage for each in found.rounds]
    assert stages.count(Stage.PAIRS) == FEWEST_PAIR_ROUNDS < PAIR_ROUNDS
    assert Stage.CONFIRM not in stages and Stage.GROUPS in stages


def test_several_parts_of_different_depths() -> None:
    faults = "+nic=0.5@node3.0+cable=0.75@node20.7+leaf=0.6@block3.2+node=0.8@node40"
    assert set(named(qualified(f"dgx-a100-8x64{faults}"))) == {
        "node3's NIC of rail 0", "node20's cable of rail 7 (sending)", "leaf switch of block3 of rail 2",
        "node40",
    }  # fmt: skip


def test_missing_nodes_are_findings() -> None:
    found = qualified("dgx-a100-8x16+lost@node3+nic=0.5@node7.1")
    assert found.fails and found.excluded == ("node3", "node7")
    assert found.chosen == tuple(f"node{i}" for i in range(16) if i not in (3, 7))


def test_a_value_that_was_slow_once_is_no_finding() -> None:
    for seed in range(10):
        cluster = SimulatedCluster(72, 8, 8, seed=seed, transient=0.002)
        found = Procedure(cluster, seed=seed).run()
        assert not found.fails, named(found)


def test_groups_that_are_slow_only_together_are_measured_twice() -> None:
    class Together(SimulatedCluster):
        """Rings that hold nodes 1 and 5 are slow; no pair is."""

        def groups(self, groups):
            values = super().groups(groups)
            return np.where([{1, 5} <= set(group) for group in groups], values / 2, values)

    found = Procedure(Together(16, 8, 8), seed=0).run()
    (culprit,) = found.culprits
    assert culprit.kind is PartKind.BETWEEN and culprit.nodes == tuple(range(8))
    assert culprit.confirmed and found.fails and not found.excluded
    assert sum(tuple(range(8)) in each.groups for each in found.rounds) == 2


@pytest.mark.parametrize("block", [1, 32])
@pytest.mark.parametrize("rails", [1, 8])
def test_a_nic_of_which_one_direction_is_fast_again_is_a_cable(rails: int, block: int) -> None:
    """As measured over MPI on a busy machine: what node 1 received was slow in some rounds."""

    class Busy(SimulatedCluster):
        shares = iter([0.98, 0.84, 0.81, 0.52])

        def pairs(self, pairs: Sequence[tuple[int, int]]) -> Values:
            values = super().pairs(pairs)
            for i, pair in enumerate(pairs):
                if 1 in pair:
                    values[i, 1 - pair.index(1)] *= next(self.shares, 1.0)
            return values

    found = Procedure(Busy(3, block, rails, faults=(ClusterFault(PartKind.CABLE, 1, 0, 0.5),))).run()
    of_rail = " of rail 0" if rails > 1 else ""
    assert named(found) == [f"node1's cable{of_rail} (sending)"] and found.culprits[0].confirmed


def test_rounds_without_time_are_left_out_and_noted() -> None:
    found = qualified("dgx-a100-8x16+nic=0.5@node3.0", within=30)
    assert sum(each.seconds for each in found.rounds) <= 30
    assert any(doubt.startswith("no time was left for") for doubt in found.doubts)
    # Suspects that could not be confirmed are no failure.
    if found.culprits:
        assert not found.culprits[0].confirmed and not found.fails


@pytest.mark.parametrize("noise", [0.05, 0.1, 0.15, 0.2, 0.3, 0.4, 0.6])
def test_noise_alone_blames_nobody(noise: float) -> None:
    for nodes, rails in ((8, 1), (16, 8), (72, 8)):
        for seed in range(5):
            found = Procedure(SimulatedCluster(nodes, 8, rails, noise=noise, seed=seed), seed=seed).run()
            assert not found.culprits and not found.fails
    assert found.compared == (noise < 0.15)
    assert 0.9 * noise < found.noise < 1.4 * noise


def test_what_was_not_compared_is_no_pass() -> None:
    document = wirespeed.run(["host_stream_copy"], machine="simulated:dgx-a100-8", samples=2, copies=1)
    short = replace(document, qualification=qualified("dgx-a100-8x16", within=20))
    assert short.qualification.doubts == ("no time was left for collectives of groups",)
    assert judge(short).verdict is Verdict.WARN
    assert "warning: no time was left for collectives of groups" in wirespeed.render(short, "table")
    varying = SimulatedCluster(16, 8, 8)
    varied = np.random.default_rng(1).uniform(1e12, 2e12, (16, 8))
    varying.own = lambda nodes: {PartKind.GPU: varied}  # type: ignore[method-assign]
    found = Procedure(varying, seed=0).run()
    assert not found.culprits and found.doubts[0].startswith("GPUs by themselves were not compared")
    assert verdict_of(found) is Verdict.WARN


def test_too_much_noise_and_too_few_nodes_are_not_judged() -> None:
    noisy = Procedure(SimulatedCluster(8, 8, 1, noise=0.4), seed=0).run()
    assert not noisy.compared and noisy.has_peers
    two = Procedure(SimulatedCluster(2, 8, 1, nic=NicModel(gbits=0)), seed=0).run()
    assert not two.compared and not two.has_peers and not two.varies
    assert "They are equally fast" in "".join(certainty(two))
    noisy = Procedure(SimulatedCluster(2, 8, 1, noise=0.4, nic=NicModel(gbits=0)), seed=0).run()
    assert noisy.varies and not noisy.compared
    assert "".join(certainty(noisy)).startswith("Not judged: measured paths vary by ")
    early = replace(two, rounds=two.rounds[:1], noise=0.0, threshold=0.0)
    assert "equally fast" not in "".join(certainty(early)) and not early.varies


@pytest.mark.long
def test_4096_nodes_take_seconds() -> None:
    started = time.process_time()
    found = qualified("dgx-a100-8x4096+nic=0.5@node4000.3")
    assert named(found) == ["node4000's NIC of rail 3"]
    assert time.process_time() - started < 30  # about two, and more where lines are counted


def test_a_seed_makes_the_same_choice() -> None:
    assert qualified("dgx-a100-8x16", seed=4) == qualified("dgx-a100-8x16", seed=4)
    assert qualified("dgx-a100-8x16", seed=4) != qualified("dgx-a100-8x16", seed=5)


@pytest.mark.parametrize(
    ("spec", "says"),
    [
        ("dgx-a100-8x16+nic=0.5@node16.0", "write node0 to node15, with .0 to .7"),
        ("dgx-a100-8x16+leaf=0.5@block2.0", "write block0 to block1"),
        ("dgx-a100-8x16+nic=0.5@block0.0", "write node0 to node15"),
        ("dgx-a100-8x16+nic=1.5@node0.0", "unknown fault"),
        ("dgx-a100-8x16+fire=0.5@node0", "unknown fault"),
        ("dgx-a100-8x2+mtuu=1500@node0", "did you mean 'mtu'"),
        ("dgx-a100-8x16+lost@node99", "write node0 to node15"),
        ("dgx-a100-8x16+memory=0.5@node3", "nodes with GPUs do not measure it"),
        ("cpu-2-socketsx16+pcie=0.5@node3", "nodes without GPUs do not measure it"),
        ("dgx-a100-8x1", "2 to 16384 nodes, not 1"),
        ("dgx-a100-8x99999", "2 to 16384 nodes"),
        ("dgx-a100-8x16+noise=much", "much"),
    ],
)
def test_bad_clusters(spec: str, says: str) -> None:
    with pytest.raises((MachineError, UsageError), match=says):
        parse_cluster(spec)


def test_one_machine_is_no_cluster() -> None:
    assert parse_cluster("dgx-a100-8") is None
    assert parse_cluster("nowherex16") is None


class TestSwitches:
    def test_lists_of_hosts(self) -> None:
        assert switches.hosts_of("rack[01-03,20],login") == ["rack01", "rack02", "rack03", "rack20", "login"]
        assert switches.hosts_of("r[0-1]n[0-1]x") == ["r0n0x", "r0n1x", "r1n0x", "r1n1x"]
        assert switches.hosts_of("") == []

    @pytest.mark.parametrize(
        "text",
        ["n[3-1]", "n[]", "n[,]", "n[1-]", "n[--]", "n[[1-2]]", "n[1-2", "n]1", "a,,b", "n[0-99999999]",
         "n[0-999]m[0-999]x[0-9]", "n[0-9999999999999999999]", ",".join(["n[0-99999]"] * 3)],
    )  # fmt: skip
    def test_hostile_lists_are_one_clear_line(self, text: str) -> None:
        with pytest.raises(UsageError) as error:
            switches.hosts_of(text)
        assert "\n" not in str(error.value) and len(str(error.value)) < 200

    def test_a_list_is_made_compact_and_read_again(self) -> None:
        hosts = ["node1", "node2", "node3", "node7", "login", "rack01", "rack02"]
        assert compact(hosts) == "node[1-3,7],rack[01-02],login"
        assert sorted(switches.hosts_of(compact(hosts))) == sorted(hosts)
        assert compact(["node5"]) == "node5" and compact([]) == ""

    def test_topology_of_a_file(self, tmp_path: Path) -> None:
        file = tmp_path / "topology.txt"
        file.write_text(
            "SwitchName=leaf0 Level=0 LinkSpeed=1 Nodes=node[0-1]\n"
            "SwitchName=leaf1 Level=0 LinkSpeed=1 Nodes=node[2-3]\n"
            "SwitchName=spine Level=1 LinkSpeed=1 Nodes=node[0-3] Switches=leaf[0-1]\n"
        )
        leaves = switches.topology(str(file), {})
        assert leaves == {"node0": "leaf0", "node1": "leaf0", "node2": "leaf1", "node3": "leaf1"}

    @pytest.mark.parametrize("text", ["", "nothing of the kind", "SwitchName=spine Level=1 Nodes=node0"])
    def test_a_file_without_leaf_switches_is_refused(self, text: str, tmp_path: Path) -> None:
        file = tmp_path / "topology.txt"
        file.write_text(text)
        with pytest.raises(UsageError, match="names no leaf switch"):
            switches.topology(str(file), {})

    def test_a_file_that_is_missing_is_one_line(self, capsys: pytest.CaptureFixture[str]) -> None:
        assert main(["qualify", "--topology", "/nowhere"]) == 2
        error = capsys.readouterr().err
        assert "/nowhere" in error and error.count("\n") == 1

    def test_slurm_is_asked_only_in_its_jobs(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        scontrol = tmp_path / "scontrol"
        scontrol.write_text("#!/bin/sh\necho 'SwitchName=s0 Level=0 Nodes=a[1-2]'\n")
        scontrol.chmod(0o755)
        monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
        assert switches.topology(None, {}) == {}
        assert switches.topology(None, {"SLURM_JOB_ID": "1"}) == {"a1": "s0", "a2": "s0"}


@pytest.mark.parametrize(
    "bad",
    [
        {"culprits": (SlowPart(PartKind.NIC, (5,)),)},
        {"culprits": (SlowPart(PartKind.NIC, ()),)},
        {"culprits": (SlowPart(PartKind.PATH, (0,)),)},
    ],
)
def test_a_document_that_names_other_nodes_is_refused(bad: dict[str, tuple[SlowPart, ...]]) -> None:
    from wirespeed.qualification import QualifiedNode

    with pytest.raises(ValueError, match="node"):
        Qualification((QualifiedNode("a"), QualifiedNode("b")), **bad)


def test_older_runs_stay_readable() -> None:
    """With rounds that are no longer measured, and fields that are gone."""
    older = {"stage": "latency", "groups": [[0, 1]], "values": [[4e-6]]}
    nodes = [{"name": "a"}, {"name": "b"}]
    found = msgspec.convert(
        {"nodes": nodes, "rounds": [older], "wrongly_blamed": 1e-7, "limit": 1}, Qualification
    )
    assert found.rounds[0].values == ((4e-6,),) and not found.paths


class Silent(SimulatedCluster):
    """Two nodes without data between them; the second one may be lost on the way."""

    lost = ""

    def pairs(self, pairs: Sequence[tuple[int, int]]) -> Values:
        first, second = self.nodes
        self.nodes = (first, replace(second, missing=self.lost))
        return super().pairs(pairs) * np.nan


@pytest.mark.parametrize("lost", ["", "does not answer (rank 1)"])
def test_a_node_is_not_missing_because_its_only_partner_is(lost: str) -> None:
    cluster = Silent(2)
    cluster.lost = lost
    missing = [node.missing for node in Procedure(cluster).run().nodes]
    assert missing == ["", lost] if lost else all("a firewall may block" in text for text in missing)


class TestMessages:
    """Rates of large messages, and what they show."""

    def test_one_value_of_each_size_is_the_median_of_its_rounds(self) -> None:
        rounds = [
            Round(Stage.SIZES, ((0, 1),) * 2, ((value, 2 * value), (None, value)), sizes=(64, 128),
                  memory=EndMemory.HOST)
            for value in (1.0, 3.0, 7.0)
        ]  # fmt: skip
        found = Qualification((QualifiedNode("a"), QualifiedNode("b")), tuple(rounds))
        there, back = found.curves
        assert (there.source, there.target, there.rates) == (0, 1, {64: 3.0})
        assert (back.source, back.target, back.rates) == (1, 0, {64: 6.0, 128: 3.0})

    @pytest.mark.parametrize(
        "wrong",
        [
            {"sizes": (64,)}, {"sizes": (64, 0)}, {"memory": None},
            {"groups": ((0, 1), (0,))}, {"groups": ((0, 1), (0, 1, 0))},
        ],
    )  # fmt: skip
    def test_rounds_of_a_file_that_contradict_themselves_are_refused(self, wrong: dict[str, object]) -> None:
        values: dict[str, object] = {"groups": ((0, 1),) * 2, "values": ((1.0, 1.0),) * 2, "sizes": (64, 128)}
        each = Round(Stage.SIZES, **(values | {"memory": EndMemory.HOST} | wrong))  # type: ignore[arg-type]
        with pytest.raises(ValueError, match="sizes, memory and two ends"):
            Qualification((QualifiedNode("a"), QualifiedNode("b")), (each,))

    @pytest.mark.parametrize(("rate", "confirmed"), [(10.0, False), (9.9, True)])
    def test_only_messages_in_one_direction_confirm_what_is_slow_in_one(
        self, rate: float, confirmed: bool
    ) -> None:
        """Both directions at once may be slower: they have a limit of their own."""
        rounds = [
            Round(Stage.SIZES, ((0, 1),), ((value, value),), sizes=(2**26,), memory=EndMemory.HOST, both=both)
            for both, value in ((False, rate), (True, 6.0))
        ]
        limits = tuple(RailLimit(node, -1, port=12, least=10, both=5) for node in range(2))
        nodes = (QualifiedNode("a"), QualifiedNode("b"))
        part = SlowPart(PartKind.PATH, (0, 1), 0, value=9.0, expected=12.0, limited=True)
        found = Qualification(nodes, tuple(rounds), limits=limits)
        left, slow = confirmed_by_sizes(found, (0, 1), [part], [EndMemory.HOST])
        assert (left, [each.confirmed for each in slow]) == ([] if confirmed else [part], [True] * confirmed)

    def test_slow_networks_have_smaller_messages(self) -> None:
        sizes = {rate: [size // KIB for size in sizes_at(rate)] for rate in (1e9, 50e6, 0.0)}
        assert sizes == {1e9: [16384, 32768, 65536], 50e6: [4096, 8192, 16384], 0.0: [128, 256, 512]}

    def test_more_connections_decide_on_rails_of_many_nodes(self) -> None:
        """One connection was slow; messages over more of them reach what the NICs carry."""
        cluster = parse_cluster("dgx-a100-8x8+node=0.5@*")
        good = parse_cluster("dgx-a100-8x8")
        assert cluster and good
        cluster.sizes = good.sizes  # type: ignore[method-assign]
        found = Procedure(cluster).run()
        assert not found.culprits and not found.doubts and verdict_of(found) is Verdict.PASS
        assert "all rails of all 8 nodes had slow paths, but not with large messages" in found.notes

    def test_a_few_nodes_below_their_limits_where_nothing_else_is_judged(self) -> None:
        """Values vary too much to compare parts with their median."""
        found = qualified("dgx-a100-8x32+nic=0.1@node5.2+noise=25%")
        assert found.threshold < 0.5
        (part,) = found.culprits
        assert part_name(part, found.nodes) == "node5's NIC of rail 2" and part.limited and part.confirmed

    def test_parts_that_are_no_rails_explain_nothing(self) -> None:
        """Host memory has the index of a NUMA node, of which a node with one rail may have more."""
        found = qualified("cpu-2-socketsx4")
        memory = SlowPart(PartKind.MEMORY, (3,), 1, value=1.0, expected=2.0, confirmed=True)
        assert found.limits and below_alike(found, [memory]) == []

    def test_healthy_nodes_reach_their_limits_with_some_partner(self) -> None:
        for seed in range(10):
            assert not qualified("dgx-a100-8x64+noise=5%", seed).culprits
