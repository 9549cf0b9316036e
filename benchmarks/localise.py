"""Measure precision and recall of the likely cause, with injected faults.

    python benchmarks/localise.py [HEALTHY_SEEDS] [FAULTY_SEEDS]

On simulated machines of eight GPUs, every link (both directions and one direction), every memory and every
GPU with all its links is slowed down, as a single fault and in pairs. Every cell of every seed has 1 % of
independent noise. A fault is found if it is named. For a link that is slow in one direction, naming the link
without a direction counts, too, because requests and data of both directions share it. Two faults at the same
device are not tested. The exit code is 1 if a goal is missed: all single faults of 10 % or more are found and
nothing else is named, and nothing is named on healthy machines.
"""

from __future__ import annotations

import dataclasses
import random
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations

from msgspec.structs import replace

import wirespeed
from wirespeed.backends.simulated import parse
from wirespeed.document import Document
from wirespeed.hardware.topology import LinkKind, Machine
from wirespeed.judging.judge import judge
from wirespeed.judging.localise import suspects_of_links
from wirespeed.judging.suspects import Suspect, SuspectKind

MACHINES = ("dgx-a100-8", "ppu-8")
TESTCASES = (
    "host_to_device_memcpy_ce", "device_to_host_memcpy_ce", "host_to_all_memcpy_ce", "all_to_host_memcpy_ce",
    "host_to_device_bidirectional_memcpy_ce", "device_to_host_bidirectional_memcpy_ce",
    "device_to_device_memcpy_read_ce", "device_to_device_memcpy_write_ce", "device_local_copy",
    "device_to_device_bidirectional_memcpy_write_ce", "device_to_device_memcpy_write_sm",
)  # fmt: skip
NOISE = 0.01
FACTORS = (0.9, 0.8, 0.5, 0.25)
#: Number of random pairs of faults per machine.
PAIRS = 150


@dataclass(frozen=True)
class Fault:
    """A fault of the simulated machine.

    Attributes:
        where: Links that are slow, as in ``Machine.links_at``.
        suspects: Suspects, each of which is correct.
        ends: Vertices of the links.
    """

    where: str
    suspects: frozenset[Suspect]
    ends: frozenset[str]


def faults(machine: Machine) -> Iterator[Fault]:
    """Yield every single fault of links and devices that the GPUs of a machine use."""
    for gpu in machine.gpus:
        yield Fault(gpu.name, frozenset({Suspect(SuspectKind.GPU, (gpu.name,))}), frozenset({gpu.name}))
    for link, suspects in zip(machine.links, suspects_of_links(machine), strict=True):
        ends = frozenset({link.source, link.destination})
        if not any("gpu" in end or "pcie" in end for end in ends):
            continue
        if link.kind is LinkKind.MEMORY:
            yield Fault(f"{link.source}-{link.source}", frozenset(suspects), ends)
            continue
        yield Fault(f"{link.source}->{link.destination}", frozenset(suspects), ends)
        if link.source < link.destination:
            yield Fault(f"{link.source}-{link.destination}", frozenset(suspects[1:]), ends)


def measured(spec: str) -> Document:
    """Return a run without noise."""
    machine = parse(spec)
    return wirespeed.run(TESTCASES, machine=dataclasses.replace(machine, noise=0.0), samples=1, copies=1)


def noisy(document: Document, seed: int) -> Document:
    """Return a Document whose cells have 1 % of noise."""
    draw = random.Random(seed)
    return replace(
        document,
        testcases=tuple(
            replace(
                result,
                tables=tuple(
                    replace(
                        table,
                        cells=tuple(
                            replace(cell, value=cell.value * (1 + draw.gauss(0, NOISE)))
                            if cell.value
                            else cell
                            for cell in table.cells
                        ),
                    )
                    for table in result.tables
                ),
            )
            for result in document.testcases
        ),
    )


def named(document: Document) -> list[set[Suspect]]:
    """Return the suspects of each culprit; several if they explain the same cells."""
    return [set(culprit.suspects) for culprit in judge(document).culprits]


@dataclass
class Score:
    """Counts over runs.

    Attributes:
        injected, named, right: Number of faults, of culprits, and of faults that a culprit names.
    """

    injected: int = 0
    named: int = 0
    right: int = 0

    def add(self, injected: Sequence[Fault], found: Sequence[set[Suspect]]) -> bool:
        """Count one run; return whether exactly the injected faults were named."""
        right = sum(any(fault.suspects & culprit for culprit in found) for fault in injected)
        self.injected += len(injected)
        self.named += len(found)
        self.right += right
        return right == len(injected) == len(found)

    def __str__(self) -> str:
        precision, recall = self.right / max(1, self.named), self.right / max(1, self.injected)
        return f"precision {precision:8.3%}  recall {recall:8.3%}  of {self.injected} injected"


def main() -> int:
    """Print precision and recall for each machine and number of faults."""
    healthy = int(sys.argv[1]) if len(sys.argv) > 1 else 1000
    seeds = int(sys.argv[2]) if len(sys.argv) > 2 else 3
    missed = False
    for name in MACHINES:
        started = time.perf_counter()
        sound = measured(name)
        wrong = sum(bool(named(noisy(sound, seed))) for seed in range(healthy))
        print(
            f"{name:<12} healthy   named in {wrong} of {healthy} seeds   "
            f"{time.perf_counter() - started:.0f} s"
        )
        missed |= wrong > 0
        every = list(faults(parse(name)))
        for factor in FACTORS:
            score = Score()
            for fault in every:
                document = measured(f"{name}+speed@{fault.where}={factor}")
                for seed in range(seeds):
                    found = named(noisy(document, seed))
                    if not score.add([fault], found):
                        texts = [" or ".join(sorted(map(str, culprit))) for culprit in found]
                        print(f"    {fault.where} x {factor}, seed {seed}: named {texts}")
            missed |= score.right < max(score.injected, score.named)
            print(f"{name:<12} 1 fault   x {factor:<5} {score}   {time.perf_counter() - started:.0f} s")
        draw = random.Random(0)
        score = Score()
        for first, second in draw.sample([*combinations(every, 2)], PAIRS):
            if first.ends & second.ends:
                continue
            document = measured(f"{name}+speed@{first.where}=0.8+speed@{second.where}=0.5")
            score.add([first, second], named(noisy(document, draw.randrange(2**32))))
        print(f"{name:<12} 2 faults  {' ':7} {score}   {time.perf_counter() - started:.0f} s")
    return int(missed)


if __name__ == "__main__":
    raise SystemExit(main())
