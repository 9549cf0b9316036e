"""Cause in, cause out: which cause does ``check --explain`` name for each simulated one?

For each machine, cause, seed and tier, a place and an amount are drawn, the machine is measured in virtual
time, judged and diagnosed. Prints which causes were ranked first for which, and how often a wrong cause was
called likely. Causes that lower no value by 10 % count separately: only their facts can show them.

    python benchmarks/diagnose.py [--seeds 20] [--machines dgx-a100-8,l40s-8] [--tiers quick,full] [--jobs 8]
    python benchmarks/diagnose.py --spread --seeds 200 --healthy 1000

With ``--spread``, the seeds of a cause are spread over its machines and tiers; else, each has all seeds. The
tier ``adaptive`` measures what `wirespeed check --explain` measures. With ``--no-facts``, the runs are
diagnosed by their values only.
"""

from __future__ import annotations

import argparse
import multiprocessing
import random
import time
from collections import Counter, defaultdict
from dataclasses import dataclass, replace
from functools import lru_cache

from msgspec import structs

import wirespeed
from wirespeed.backends.simulated import parse
from wirespeed.backends.simulated.machines import MACHINES
from wirespeed.data.causes import EFFECTS
from wirespeed.document import Document
from wirespeed.hardware.devices import Fault, FaultKind
from wirespeed.hardware.link_graph import MachineVertices
from wirespeed.judging.diagnosis import diagnose
from wirespeed.judging.explain_steps import Adaptive
from wirespeed.results.cells import Key, placed

#: A value that falls by less shows nothing.
CHANGED = 0.1
#: Range of the amounts of causes that may have any.
AMOUNTS = (0.25, 0.85)
NONE = "none"
#: The tier that ``check --explain`` chooses.
ADAPTIVE = "adaptive"


@dataclass(frozen=True)
class Job:
    """One diagnosis: ``cause`` is ``none`` for a healthy machine."""

    machine: str
    cause: str
    seed: int
    tier: str
    facts: bool = True


@dataclass(frozen=True)
class Result:
    """What was found for a Job."""

    job: Job
    where: str
    changed: bool
    first: str
    placed: bool  #: at the right place
    there: str
    likely: tuple[str, ...]
    seconds: float
    testcases: int  #: number of testcases with values


def measured(spec: str, faults: tuple[Fault, ...], tier: str, seed: int) -> Document:
    """Measure a simulated machine."""
    machine = replace(parse(spec), faults=faults)
    following = Adaptive() if tier == ADAPTIVE else None
    return wirespeed.run(
        machine=machine, tier="quick" if following else tier, seed=seed, samples=3, copies=1,
        following=following,
    )  # fmt: skip


@lru_cache(maxsize=4)
def values(spec: str, tier: str) -> dict[Key, float]:
    """Return the values of a good machine."""
    document = measured(spec, (), "quick" if tier == ADAPTIVE else tier, 0)
    return {one.key: one.cell.value for one in placed(document) if one.cell.value and one.cell.expected}


def one(job: Job) -> Result:
    """Draw a place and an amount, measure, and diagnose."""
    tier = "quick" if job.tier == ADAPTIVE else job.tier  # to compare with the quick tier
    draw = random.Random(f"{job.machine} {job.cause} {job.seed} {tier}")  # the same without facts
    machine = parse(job.machine)
    faults: tuple[Fault, ...] = ()
    if job.cause != NONE:
        effect = EFFECTS[job.cause]
        place = draw.choice(effect.places(machine))
        possible = [a for a in effect.amounts if effect.factor(machine, place, a) < 1]
        amount = (
            draw.choice(possible) if possible else effect.usual if effect.amounts else draw.uniform(*AMOUNTS)
        )
        faults = (Fault(FaultKind.CAUSE, place, round(amount, 2), job.cause),)
    document = measured(job.machine, faults, job.tier, job.seed)
    if not job.facts:
        document = structs.replace(document, facts=())
    good = values(job.machine, job.tier)
    changed = any(
        one.cell.value is not None and one.cell.value <= good[one.key] * (1 - CHANGED)
        for one in placed(document)
        if one.key in good
    )
    start = time.perf_counter()
    found = diagnose(document, wirespeed.judge(document)).findings
    seconds = time.perf_counter() - start
    first = found[0].cause.name if found else NONE
    where, vertices = faults[0].where if faults else "", MachineVertices(machine)
    return Result(
        job, f"{where} {faults[0].factor if faults else ''}", changed, first,
        bool(found and vertices.of(found[0].place).device == vertices.of(where).device),
        found[0].place if found else "",
        tuple(f.cause.name for f in found if f.likely), seconds,
        len({one.key.testcase for one in placed(document) if one.cell.value}),
    )  # fmt: skip


def main() -> None:
    """Run all jobs and print the tables."""
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    arguments.add_argument("--seeds", type=int, default=5)
    arguments.add_argument("--healthy", type=int, default=20, help="seeds of good machines")
    arguments.add_argument("--spread", action="store_true", help="each seed on one machine, in one tier")
    arguments.add_argument("--machines", default=",".join(name for name in MACHINES if name != "nvl72"))
    arguments.add_argument("--causes", default="")
    arguments.add_argument("--tiers", default="quick,standard,full")
    arguments.add_argument("--jobs", type=int, default=multiprocessing.cpu_count())
    arguments.add_argument("--no-facts", action="store_true", help="diagnose by values only")
    arguments.add_argument("--verbose", action="store_true", help="print each wrong diagnosis")
    options = arguments.parse_args()
    chosen = options.causes.split(",") if options.causes else list(EFFECTS)
    jobs = []
    for cause in (*chosen, NONE):
        conditions = [
            (machine, tier)
            for machine in options.machines.split(",")
            if cause == NONE or EFFECTS[cause].places(parse(machine))
            for tier in options.tiers.split(",")
        ]
        for seed in range(options.healthy if cause == NONE else options.seeds) if conditions else ():
            at = conditions if not options.spread else [conditions[seed % len(conditions)]]
            jobs += [Job(machine, cause, seed, tier, not options.no_facts) for machine, tier in at]
    jobs.sort(key=lambda job: (job.machine, job.tier))  # a process keeps the values of a few good machines
    with multiprocessing.Pool(options.jobs) as pool:
        results = list(pool.imap_unordered(one, jobs, chunksize=4))
    report(results, options.verbose)


def report(results: list[Result], verbose: bool) -> None:
    """Print the confusions, and the rates that count."""
    table: dict[tuple[str, bool], Counter[str]] = defaultdict(Counter)
    for result in results:
        table[result.job.cause, result.changed][result.first] += 1
    print(f"{'cause':18} {'changes':7} {'runs':>5} {'first':>7}  taken for")
    for (cause, changed), found in sorted(table.items(), key=lambda item: (not item[0][1], item[0][0])):
        runs = sum(found.values())
        others = ", ".join(f"{name} {n}" for name, n in found.most_common() if name != cause)
        print(
            f"{cause:18} {'values' if changed else 'nothing':7} {runs:5} {found[cause] / runs:7.1%}  {others}"
        )
    faulty = [one for one in results if one.job.cause != NONE and one.changed]
    good = [one for one in results if one.job.cause == NONE]
    right = sum(one.first == one.job.cause for one in faulty)
    at = sum(one.first == one.job.cause and one.placed for one in faulty)
    wrong = sum(any(name != one.job.cause for name in one.likely) for one in results)
    print(
        f"\nfaults that lower a value by 10 %: {len(faulty)};"
        f" the cause is first in {right / max(1, len(faulty)):.2%},"
        f" at its place in {at / max(1, len(faulty)):.2%}"
    )
    for tier in dict.fromkeys(one.job.tier for one in faulty):
        own = [one.first == one.job.cause for one in faulty if one.job.tier == tier]
        print(f"  {tier:9} {len(own):5} {sum(own) / len(own):7.2%}")
    print(f"good machines: {len(good)}, with a cause: {sum(one.first != NONE for one in good)}")
    print(f"wrong likely cause: {wrong} of {len(results)} ({wrong / max(1, len(results)):.2%})")
    times = sorted(one.seconds for one in results)
    print(f"diagnosis: median {times[len(times) // 2]:.2f} s, longest {times[-1]:.2f} s")
    for cause in dict.fromkeys(one.job.cause for one in results):
        counts = sorted(one.testcases for one in results if one.job.cause == cause)
        print(f"testcases for {cause:18} median {counts[len(counts) // 2]:3}, {counts[0]} to {counts[-1]}")
    if verbose:
        for one in sorted(results, key=lambda one: str(one.job)):
            wrong_likely = any(name != one.job.cause for name in one.likely)
            if (
                wrong_likely
                or (one.first != one.job.cause and one.changed)
                or one.job.cause == NONE != one.first
            ):
                print(
                    one.job.machine,
                    one.job.tier,
                    one.job.seed,
                    one.job.cause,
                    one.where,
                    "->",
                    one.first,
                    one.likely,
                )


if __name__ == "__main__":
    main()
