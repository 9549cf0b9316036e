"""Which faults does a run with a time limit find?

    python benchmarks/within.py [--machines dgx-a100-8,hgx-b200-8] [--limits 10,20,60] [--factor 0.8]

On simulated machines, every single fault of ``localise.py`` (each GPU with all its links, each memory,
each link in both directions and in one) lowers its rate by 20 %. The machine is checked with each limit,
in virtual time that contains what start, buffers, verification and end take (``hardware.durations``). A
fault is noticed if a value fails or a cause is named, and named if it is the likely cause. Prints a
table in Markdown. The exit code is 1 if a healthy machine is not passed, or if a fault is not named
within 20 s.
"""

from __future__ import annotations

import argparse
import dataclasses
import sys
from pathlib import Path

import wirespeed
from wirespeed.backends.simulated import parse
from wirespeed.document import Document
from wirespeed.judging.check import Check
from wirespeed.judging.judge import judge
from wirespeed.judging.verdict import Verdict

sys.path.insert(0, str(Path(__file__).parent))

import localise

#: The limit within which every fault must be found, in s.
GOAL_S = 20.0
#: Seed of the noise of the simulated machines.
SEED = 1


def checked(spec: str, within: float) -> tuple[Document, Check]:
    """Return a run with a limit, and its judgement."""
    machine = dataclasses.replace(parse(spec), noise=localise.NOISE)
    document = wirespeed.run(machine=machine, tier="quick", within=within, seed=SEED)
    return document, judge(document)


def main() -> int:
    """Print what is found within each limit."""
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    arguments.add_argument("--machines", default="dgx-a100-8,hgx-b200-8")
    arguments.add_argument("--limits", default="10,20,60")
    arguments.add_argument("--factor", type=float, default=0.8)
    options = arguments.parse_args()
    missed = False
    print("| machine | limit | values measured | faults | noticed | named |\n|---|---|---|---|---|---|")
    for name in options.machines.split(","):
        faults = list(localise.faults(parse(name)))
        for within in map(float, options.limits.split(",")):
            document, check = checked(name, within)
            measured = sum(one.value is not None for one in check.judgements)
            everything = measured + sum(result.left_out for result in document.testcases)
            if check.culprits or check.verdict in (Verdict.FAIL, Verdict.IMPLAUSIBLE):
                print(f"healthy {name} within {within:g} s: {check}", file=sys.stderr)
                missed = True
            noticed = named = 0
            for fault in faults:
                _, check = checked(f"{name}+speed@{fault.where}={options.factor}", within)
                bad = check.culprits or check.verdict is Verdict.FAIL
                is_named = any(fault.suspects & set(culprit.suspects) for culprit in check.culprits)
                noticed, named = noticed + bool(bad), named + is_named
                if not is_named:
                    print(f"{name} within {within:g} s: {fault.where}: {check}", file=sys.stderr)
            missed |= within == GOAL_S and named < len(faults)
            print(
                f"| `{name}` | {within:g} s | {measured} of {everything} | {len(faults)} "
                f"| {noticed} | {named} |",
                flush=True,
            )
    return int(missed)


if __name__ == "__main__":
    raise SystemExit(main())
