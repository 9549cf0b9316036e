"""Measure how reliably ``wirespeed qualify`` finds slow parts of simulated clusters, and at what cost.

    python benchmarks/qualify.py [RUNS] [RUNS_OF_4096]

Clusters of 16, 72, 512 and 4,096 nodes of 8 rails, with 1, 2 and 3 % of noise: without faults (also with 5
to 40 %); with 1 to 5 slow NICs, nodes, cables, leaf switches or trunks, slower by 20 to 50 %; with a depth of
10 %; and with transient faults. A fault is found if a culprit names its node, or the switch of its block and
rail; the kind is right if the kind, the rail and the direction agree, too. A fault that others mask, so that
no path is slower with it, is counted apart. A culprit that belongs to no fault is a false blame, whether it
is confirmed or not. Seconds are those of the processor, for one core.

The peer is written from the description of NVIDIA's cluster-readiness-engine: all_reduce in each block; one
node of each good block together; failed groups are halved down to two nodes; if both halves of a failed group
pass, halves are mixed and the boundary is reported; each suspect is measured with a good node. It passes or
fails, here with the ideal threshold: 90 % of the true value of a healthy group. What can run at the same time
does. It is not asked for the kind of a fault, and finds one of a switch if it names a node of its block.

Costs of both sides. The peer starts a job for each of its tests; wirespeed measures all pairs of a round at
once, in one job:

- jobs: what a scheduler starts: one per test for the peer, one in total for wirespeed;
- rounds: what must be waited for, one after the other; the peer needs only as many if all jobs of a round
  find free nodes at once;
- measurements: pairs, groups or own nodes measured once; one test of the peer is one measurement;
- node-measurements: the sum of the numbers of nodes of all measurements, which is the work.

The goals compare jobs with jobs, and wirespeed's rounds with the peer's tests: what each of them waits for if
jobs run one after the other. Numbers of measurements are reported, but are no goal: one round of pairs of 512
nodes has 256, more than three times the tests of the peer, and no two of them share a node.

The exit code is 1 if a goal is missed.
"""

from __future__ import annotations

import multiprocessing
import random
import resource
import sys
import time
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field, replace

import numpy as np

from wirespeed.features.qualify.cluster_faults import ClusterFault
from wirespeed.features.qualify.procedure import Procedure
from wirespeed.features.qualify.simulated_cluster import SimulatedCluster
from wirespeed.qualification import OF_NODE, OWN_PARTS, PartKind, SlowPart

#: Number of nodes -> nodes of a block.
CLUSTERS = {16: 8, 72: 8, 512: 32, 4096: 32}
RAILS = 8
#: Noise at which only false blame is counted.
LARGE_NOISES = (0.05, 0.1, 0.2, 0.4)
NOISES = (0.01, 0.02, 0.03)
KINDS = (PartKind.NIC, PartKind.NODE, PartKind.CABLE, PartKind.LEAF, PartKind.TRUNK)
SWITCHES = (PartKind.LEAF, PartKind.TRUNK)
MOST_FAULTS = 5
#: Share of the value of a healthy group below which the peer fails a group.
PASSES = 0.9
#: Probability that a value is halved, once.
TRANSIENT = 0.001
#: Goals: recall, right kind, rounds and share of the peer's jobs at 512 nodes, seconds and bytes at 4,096.
RECALL, RIGHT, ROUNDS, QUARTER, SECONDS, BYTES = 0.99, 0.95, 12, 0.25, 10.0, 1e9


def faults(draw: random.Random, nodes: int, count: int, depths: tuple[float, float]) -> list[ClusterFault]:
    """Draw faults, at most one per node and per block."""
    chosen: dict[tuple[bool, int], ClusterFault] = {}
    while len(chosen) < count:
        kind = draw.choice(KINDS)
        where = draw.randrange(nodes // CLUSTERS[nodes] if kind in SWITCHES else nodes)
        factor = 1 - draw.uniform(*depths)
        fault = ClusterFault(kind, where, draw.randrange(RAILS), factor, draw.random() < 0.5)
        chosen.setdefault((kind in SWITCHES, where), fault)
    return list(chosen.values())


def names(culprit: SlowPart, fault: ClusterFault) -> bool:
    """Whether a culprit names the place of a fault."""
    if fault.kind in SWITCHES:
        # With two blocks, the trunk of one cannot be told from that of the other: "block0 or block1".
        return f"block{fault.where}" in culprit.block.split(" or ") and culprit.rail == fault.rail
    return culprit.kind in OF_NODE and fault.where in culprit.nodes


def is_right(culprit: SlowPart, fault: ClusterFault) -> bool:
    """Whether a culprit names the place, kind, rail and direction of a fault."""
    return (
        names(culprit, fault)
        and culprit.kind is fault.kind
        and (fault.kind is PartKind.NODE or culprit.rail == fault.rail)
        and (fault.kind is not PartKind.CABLE or culprit.sends is fault.sends)
    )


@dataclass
class Cost:
    """What a procedure used, summed over runs."""

    jobs: int = 0
    rounds: int = 0
    measurements: int = 0
    node_measurements: int = 0

    def add(self, rounds: Sequence[Sequence[Sequence[int]]], *, one_job: bool) -> None:
        """Add a run."""
        measurements = sum(map(len, rounds))
        self.jobs += 1 if one_job else measurements
        self.rounds += len(rounds)
        self.measurements += measurements
        self.node_measurements += sum(len(group) for groups in rounds for group in groups)


class Peer:
    """Halving by pass or fail."""

    def __init__(self, cluster: SimulatedCluster) -> None:
        self.cluster = cluster
        self.rounds: list[list[list[int]]] = []
        self.named: set[int] = set()

    def passes(self, groups: list[list[int]]) -> list[bool]:
        """Run all_reduce in groups at the same time."""
        if not groups:
            return []
        self.rounds.append(groups)
        least = PASSES * self.cluster.peak * self.cluster.rails
        return [bool(value >= least) for value in self.cluster.groups(groups)]

    def run(self) -> None:
        """Find suspects and boundaries, then measure each suspect with a good node."""
        blocks = self.cluster.blocks
        domains = [[int(i) for i in (blocks == block).nonzero()[0]] for block in range(blocks[-1] + 1)]
        passed = self.passes(domains)
        failed = [group for group, good in zip(domains, passed, strict=True) if not good]
        good_nodes = [node for group, good in zip(domains, passed, strict=True) if good for node in group]
        representatives = [group[0] for group, good in zip(domains, passed, strict=True) if good]
        untested = [representatives] if len(representatives) > 1 else []
        suspects: list[int] = []
        while failed or untested:
            suspects += [node for group in failed if len(group) <= 2 for node in group]
            pairs = [halves(group) for group in failed if len(group) > 2]
            tests = [half for pair in pairs for half in pair if len(half) > 1]
            answers = self.passes(tests + untested)
            good = {tuple(group): answer for group, answer in zip(tests + untested, answers, strict=True)}
            failed = [group for group in untested if not good[tuple(group)]]
            untested, probes = [], []
            for pair in pairs:
                bad = [half for half in pair if not good.get(tuple(half), True)]
                good_nodes += [node for half in pair if half not in bad and len(half) > 1 for node in half]
                if bad:
                    # A single node that was halved from three is suspected with the others.
                    failed += bad
                elif min(map(len, pair)) == 1:
                    suspects += pair[0] + pair[1]
                else:
                    (a, b), (c, d) = halves(pair[0]), halves(pair[1])
                    probes += [a + d, c + b]
                    self.named |= {*pair[0], *pair[1]}  # the boundary
            self.passes(probes)
        suspects = list(dict.fromkeys(suspects))
        good_nodes = [node for node in dict.fromkeys(good_nodes) if node not in suspects]
        while suspects and good_nodes:
            now, suspects = suspects[: len(good_nodes)], suspects[len(good_nodes) :]
            free = list(good_nodes)
            tests = []
            for node in now:
                partner = next((other for other in free if blocks[other] == blocks[node]), free[0])
                free.remove(partner)
                tests.append([node, partner])
            self.named |= {node for node, good in zip(now, self.passes(tests), strict=True) if not good}
        self.named |= set(suspects)


def halves(group: list[int]) -> tuple[list[int], list[int]]:
    """Split a group."""
    return group[: len(group) // 2], group[len(group) // 2 :]


def is_masked(cluster: SimulatedCluster, fault: ClusterFault) -> bool:
    """Whether other faults hide a fault on all of its paths: no measurement can find it."""
    if fault.kind in OWN_PARTS:
        return False
    without = replace(cluster, faults=tuple(other for other in cluster.faults if other is not fault))
    nodes = np.arange(cluster.count)
    inside = nodes if fault.kind is PartKind.SPINE else nodes[nodes == fault.where]
    if fault.kind in (PartKind.LEAF, PartKind.TRUNK):
        inside = np.flatnonzero(cluster.blocks == fault.where)
    a, b = np.repeat(inside, len(nodes)), np.tile(nodes, len(inside))
    a, b = a[a != b], b[a != b]
    return all(np.array_equal(cluster.speeds(*ends), without.speeds(*ends)) for ends in ((a, b), (b, a)))


@dataclass
class Score:
    """Counts over runs."""

    runs: int = 0
    visible: int = 0
    masked: int = 0
    found: int = 0
    right: int = 0
    false: int = 0
    most_rounds: int = 0
    seconds: float = 0.0
    cost: Cost = field(default_factory=Cost)
    peer_cost: Cost = field(default_factory=Cost)
    peer_found: int = 0
    peer_false: int = 0

    def add(
        self,
        nodes: int,
        noise: float,
        count: int,
        seed: int,
        depths: tuple[float, float] = (0.2, 0.5),
        transient: float = 0.0,
    ) -> None:
        """Run once."""
        injected = tuple(faults(random.Random(seed), nodes, count, depths))
        cluster = SimulatedCluster(
            nodes, CLUSTERS[nodes], RAILS, noise=noise, faults=injected, seed=seed, transient=transient
        )
        started = time.process_time()
        result = Procedure(cluster, seed=seed).run()
        self.seconds = max(self.seconds, time.process_time() - started)
        visible = [fault for fault in injected if not is_masked(cluster, fault)]
        self.runs += 1
        self.visible += len(visible)
        self.masked += len(injected) - len(visible)
        self.found += sum(any(names(each, fault) for each in result.culprits) for fault in visible)
        self.right += sum(any(is_right(each, fault) for each in result.culprits) for fault in visible)
        of_switches = any(fault.kind in SWITCHES for fault in injected)
        for culprit in result.culprits:
            # Groups that are slow together belong to a slow switch.
            of_switch = of_switches and culprit.kind is PartKind.BETWEEN
            self.false += not (of_switch or any(names(culprit, fault) for fault in injected))
        self.most_rounds = max(self.most_rounds, len(result.rounds))
        self.cost.add([each.groups for each in result.rounds], one_job=True)

        other = Peer(
            SimulatedCluster(
                nodes, CLUSTERS[nodes], RAILS, noise=noise, faults=injected, seed=seed, transient=transient
            )
        )
        other.run()
        self.peer_cost.add(other.rounds, one_job=False)
        places = [
            set((cluster.blocks == fault.where).nonzero()[0].tolist())
            if fault.kind in SWITCHES
            else {fault.where}
            for fault in injected
        ]
        seen = [place for place, fault in zip(places, injected, strict=True) if fault in visible]
        self.peer_found += sum(not place.isdisjoint(other.named) for place in seen)
        self.peer_false += len(other.named - set().union(*places))


def share(part: int, whole: int) -> str:
    """A fraction in percent, as text."""
    return f"{part / whole:.2%}" if whole else "-"


def costs(cost: Cost, runs: int) -> str:
    """Means of costs, as cells of a table."""
    each = (cost.jobs, cost.rounds, cost.measurements, cost.node_measurements)
    return " | ".join(f"{number / runs:,.1f}" for number in each)


def at_4096() -> tuple[float, float]:
    """Seconds and peak memory in bytes of one run with five faults, including the simulation."""
    score = Score()
    draw = random.Random(1)
    injected = tuple(faults(draw, 4096, MOST_FAULTS, (0.2, 0.5)))
    cluster = SimulatedCluster(4096, CLUSTERS[4096], RAILS, noise=0.03, faults=injected, seed=1)
    started = time.process_time()
    Procedure(cluster, seed=1).run()
    score.seconds = time.process_time() - started
    return score.seconds, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024.0


@dataclass(frozen=True)
class Case:
    """Runs whose sums are a row."""

    nodes: int
    runs: int
    noise: float
    with_faults: bool
    depths: tuple[float, float] = (0.2, 0.5)
    transient: float = 0.0

    def __str__(self) -> str:
        what = "none" if not self.with_faults else "1 to 5, 10 %" if self.is_shallow else "1 to 5, 20 to 50 %"
        what += ", transient ones" if self.transient else ""
        return f"{self.nodes} | {self.noise:.0%} | {what}"

    @property
    def is_shallow(self) -> bool:
        """Whether its faults are too small for the goals."""
        return self.depths[0] < 0.2


def cases_of(nodes: int, runs: int) -> list[Case]:
    """The rows of a number of nodes."""
    cases = [Case(nodes, runs, noise, with_faults) for noise in NOISES for with_faults in (False, True)]
    cases += [Case(nodes, runs, noise, False) for noise in LARGE_NOISES]
    cases += [Case(nodes, runs, 0.03, True, (0.1, 0.1))]
    return cases + [Case(nodes, runs, 0.01, faulty, transient=TRANSIENT) for faulty in (False, True)]


def scored(case: Case) -> Score:
    """All runs of a row."""
    score = Score()
    for seed in range(case.runs):
        count = 1 + seed % MOST_FAULTS if case.with_faults else 0
        score.add(case.nodes, case.noise, count, seed, case.depths, case.transient)
    print(f"done: {case}", file=sys.stderr, flush=True)
    return score


def main() -> int:
    """Print the tables; return 1 if a goal is missed."""
    runs = int(sys.argv[1]) if len(sys.argv) > 1 else 1000
    runs_of_4096 = int(sys.argv[2]) if len(sys.argv) > 2 else 100
    rows, peer_rows, goals = [], [], []
    cases = [case for nodes in CLUSTERS for case in cases_of(nodes, runs if nodes < 4096 else runs_of_4096)]
    with ProcessPoolExecutor(mp_context=multiprocessing.get_context("spawn")) as pool:
        scores = list(pool.map(scored, reversed(cases)))[::-1]  # those that take longest first
    for case, score in zip(cases, scores, strict=True):
        rows.append(
            f"| {case} | {score.runs} | {share(score.found, score.visible)} | "
            f"{share(score.right, score.visible)} | {score.masked} of {score.masked + score.visible} | "
            f"{score.false} | {score.most_rounds} | {score.seconds:.2f} |"
        )
        peer_rows += [
            f"| {case} | wirespeed | {costs(score.cost, score.runs)} | "
            f"{share(score.found, score.visible)} | {score.false} |",
            f"| {case} | peer | {costs(score.peer_cost, score.runs)} | "
            f"{share(score.peer_found, score.visible)} | {score.peer_false} |",
        ]
        if case.transient or case.is_shallow:
            continue
        if not case.with_faults:
            goals.append((f"{case}: no false blame", f"{score.false}", score.false == 0))
            continue
        recall, right = score.found / max(1, score.visible), score.right / max(1, score.visible)
        goals.append((f"{case}: recall at least {RECALL:.0%}", f"{recall:.2%}", recall >= RECALL))
        goals.append((f"{case}: right kind at least {RIGHT:.0%}", f"{right:.2%}", right >= RIGHT))
        if case.nodes == 512:
            rounds = score.most_rounds
            goals.append((f"{case}: at most {ROUNDS} rounds", f"{rounds}", rounds <= ROUNDS))
            for what, cost in (("jobs", score.cost.jobs), ("tests, as rounds", score.cost.rounds)):
                ratio = cost / score.peer_cost.jobs
                name = f"{case}: at most a quarter of the peer's {what}"
                goals.append((name, f"{ratio:.2f} times", ratio <= QUARTER))
    with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as pool:
        seconds, memory = pool.submit(at_4096).result()
    name = "4096 | 3% | 5 faults: at most"
    goals.append((f"{name} {SECONDS:g} s, with the simulation", f"{seconds:.2f} s", seconds <= SECONDS))
    goals.append((f"{name} {BYTES / 1e9:g} GB of memory", f"{memory / 1e9:.2f} GB", memory <= BYTES))
    print(
        "| nodes | noise | faults | runs | recall | right kind | masked | false blame | most rounds "
        "| most s |"
    )
    print("|---" * 10 + "|", *rows, sep="\n", end="\n\n")
    print(
        "| nodes | noise | faults | who | jobs | rounds | measurements | node-measurements | recall "
        "| false blame |",
        "|---" * 10 + "|", *peer_rows, sep="\n", end="\n\n",
    )  # fmt: skip
    print("| nodes | noise | goal | reached | |\n|---|---|---|---|---|")
    for goal, reached, is_reached in goals:
        print(f"| {goal} | {reached} | {'yes' if is_reached else '**no**'} |")
    return int(not all(is_reached for _, _, is_reached in goals))


if __name__ == "__main__":
    raise SystemExit(main())
