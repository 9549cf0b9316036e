"""How often ``qualify`` judges two simulated nodes right: each cause at each node, and healthy runs.

    python benchmarks/qualify_two.py [--healthy 1000] [--runs 5] [--seed 0]

Prints for each cause and noise how often the slow path fails with that cause named, and how many of the
healthy runs have an alarm: a verdict other than pass.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from functools import cache

import msgspec

import wirespeed
from wirespeed.data.causes import NODE_FAULTS
from wirespeed.document import Document
from wirespeed.features.qualify.procedure import Procedure
from wirespeed.features.qualify.simulated_cluster import parse_cluster
from wirespeed.judging.diagnosis import diagnose
from wirespeed.judging.qualification_verdict import verdict_of
from wirespeed.judging.verdict import Verdict

NOISES = ("1%", "5%")
#: Names of faults of which clusters other than DGX Sparks have no place.
_OF_SPARK = ("endpoint", "hca")


@cache
def described(machine: str) -> Document:
    """A run on a simulated machine that measured nothing."""
    return wirespeed.described(f"simulated:{machine}")


def judged(spec: str, seed: int) -> tuple[Verdict, set[tuple[str, str]], float]:
    """The verdict on a simulated pair, the causes that are named with their nodes, and the virtual time."""
    cluster = parse_cluster(spec, seed=seed)
    assert cluster
    qualification = Procedure(cluster, seed=seed).run()
    document = described(cluster.machine)
    found = diagnose(msgspec.structs.replace(document, qualification=qualification, facts=cluster.facts))
    causes = {(each.cause.name, each.host) for each in found.findings if each.cells}
    return verdict_of(qualification), causes, cluster.seconds()


def faults(machine: str) -> Iterator[tuple[str, str]]:
    """The faults with a cause that a cluster can have, with their amounts, and the names of the causes."""
    for fault in NODE_FAULTS.values():
        if machine.startswith("dgx-spark") or fault.name not in _OF_SPARK:
            yield f"{fault.name}={fault.amount:g}" if fault.amount else fault.name, fault.cause


def named(machine: str, text: str, cause: str, noise: str, runs: int, first: int = 0) -> int:
    """In how many runs, with the fault at each node by turns, the path fails and the cause is named."""
    count = 0
    for seed in range(first, first + runs):
        node = f"node{seed % 2}"
        verdict, causes, seconds = judged(f"{machine}+{text}@{node}+noise={noise}", seed)
        right = {name for name, host in causes if host == node or name == "node-settings"}
        count += verdict is Verdict.FAIL and cause in right and seconds <= 20
    return count


def alarms(machine: str, noise: str, runs: int, first: int = 0) -> int:
    """How many of the healthy runs do not pass."""
    spec, seeds = f"{machine}+noise={noise}", range(first, first + runs)
    return sum(judged(spec, seed)[0] is not Verdict.PASS for seed in seeds)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--healthy", type=int, default=1000, help="healthy runs (default: 1000)")
    parser.add_argument("--runs", type=int, default=5, help="runs of each cause and noise (default: 5)")
    parser.add_argument("--seed", type=int, default=0, help="first seed of the noise (default: 0)")
    options = parser.parse_args()
    for machine in ("dgx-spark-2", "dgx-a100-8x2"):
        for noise in NOISES:
            for text, cause in faults(machine):
                count = named(machine, text, cause, noise, options.runs, options.seed)
                print(f"{machine}, noise {noise}: {text}: {cause} named in {count} of {options.runs}")
            count = alarms(machine, noise, options.healthy, options.seed)
            print(f"{machine}, noise {noise}: {count} alarms in {options.healthy} healthy runs", flush=True)


if __name__ == "__main__":
    main()
