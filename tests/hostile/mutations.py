"""Mutated lines of transfers. None may end in anything but a UsageError.

python -m tests.hostile.mutations [--inputs N] [--seed N]
"""

from __future__ import annotations

import argparse
import random
from collections import Counter
from pathlib import Path

import wirespeed
from wirespeed.backends import describe
from wirespeed.errors import UsageError
from wirespeed.features.transfers.program import of_line
from wirespeed.hardware.topology import Machine
from wirespeed.judging.judge import judge
from wirespeed.results.store import decode, encode

LINES = (
    "gpu0 -> gpu1",
    "numa0 -> gpu0 4MiB # comment",
    "gpu0 -> gpu1; gpu1 -> gpu0 1MiB sm blocks=8 threads=64",
    "near(gpu*) -> gpu* ce 256MiB copies=3",
    "latency gpu0 <- gpu1; load gpu[0-3,6] to gpu1 sm",
    "pageable(numa0) -> gpu0 by gpu1 and gpus from gpus",
    "load numa0 -> numa1 threads=3; latency numa1 <- numa1",
    "load gpu1 to gpu0 1GiB; near gpus to gpus",
    "gpu0 -> gpu1, gpu2 sm 64MiB; gpu3 -> gpu[0-2] by gpu3",
    "gpu0 -> gpu0\nrank0 -> rank1.gpu1 # comment",
)
PARTS = (
    "gpu", "gpu99", "numa0", "rank1", "void", "->", "<-", ";", ",", "(", ")", "[", "]", "*", "$", "=", "-",
    ".", "near(", "pageable(", "by ", "load ", "latency ", "sm", "0", "-1", "1e9", "99999999999999999999",
    "rate=", "1GB/s", "start=", "50us", "blocks=", "threads=[", "µ", "\x00", "\x1b[31m", "\u202e", "\n", "\t",
    "\ud800", "é" * 100, '"',
    "'", "{", "}", "all_reduce", "true", "#", "x" * 500,
)  # fmt: skip


def mutated(rng: random.Random, text: str) -> str:
    """Return a text with one to four changes."""
    for _ in range(rng.choice((1, 1, 2, 4))):
        at = rng.randrange(len(text) + 1)
        change = rng.randrange(4)
        if change == 0:
            text = text[:at] + text[at + rng.randrange(1, 6) :]
        elif change == 1:
            text = text[:at] + rng.choice(PARTS) + text[at:]
        elif change == 2:
            start = rng.randrange(len(text) + 1)
            text = text[:at] + text[start : start + rng.randrange(1, 20)] + text[at:]
        else:
            text = text[:at] + rng.choice(PARTS) + text[at + 1 :]
    return text


def survives(text: str, machine: Machine) -> str:
    """Parse, plan and measure a text; return ``valid``, or ``refused`` if it ends in a UsageError."""
    try:
        case = of_line(text).testcase
        case.plan(machine)
    except UsageError as error:
        assert str(error)
        return "refused"
    document = wirespeed.run([case], machine=machine, samples=1, copies=1)
    judge(decode(encode(document), Path("a.json")))
    return "valid"


def run(inputs: int, seed: int) -> Counter[str]:
    """Try mutated lines on simulated machines; return how many were valid or refused."""
    rng = random.Random(seed)
    machines = [describe(f"simulated:{name}") for name in ("dgx-a100-8", "hgx-h200-2", "pcie-2-no-p2p")]
    found: Counter[str] = Counter()
    for _ in range(inputs):
        text = mutated(rng, rng.choice(LINES))
        try:
            found[survives(text, rng.choice(machines))] += 1
        except BaseException:
            print(repr(text))
            raise
    return found


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--inputs", type=int, default=10_000)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    print(dict(run(options.inputs, options.seed)))
