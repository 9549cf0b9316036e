"""How often faults of peer access are named: pair, kind and cause, on simulated machines; and false alarms.

    python benchmarks/peer_access.py [CASES [HEALTHY]]

Each case has a fault at one to three pairs of two to eight GPUs, and facts that speak for one cause or none.
Prints one line per measure; exits with 1 if one is missed.
"""

from __future__ import annotations

import random
import sys
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace

from msgspec.structs import replace as with_fields

import wirespeed
from wirespeed.backends.simulated import parse
from wirespeed.document import Document
from wirespeed.features.p2p.causes import find_peers
from wirespeed.hardware.devices import Fault, FaultKind
from wirespeed.hardware.facts import Fact, Known
from wirespeed.hardware.topology import LinkKind, Machine
from wirespeed.judging.verdict import Verdict
from wirespeed.peer_access import Pair, PeerVerdict

MACHINES = ("rtx3090-4", "rtx4090-2", "rtx5090-4", "rtxpro6000-4", "l40s-8", "pcie-4-switched", "hgx-b200-8")
#: Fault -> what the pair must be.
KINDS = {
    FaultKind.DROPPED: PeerVerdict.HANGS,
    FaultKind.CORRUPT: PeerVerdict.WRONG,
    FaultKind.LATE: PeerVerdict.WRONG,
    FaultKind.UNSEEN: PeerVerdict.HANGS,
    FaultKind.BOTH_WAYS: PeerVerdict.WRONG,
    FaultKind.HANG: PeerVerdict.HANGS,
    FaultKind.SLOW: PeerVerdict.SLOW,
}


@dataclass(frozen=True)
class Case:
    """A machine with a fault, what its facts say, and what must be found.

    Attributes:
        machine: The machine with its faults.
        facts: Facts that replace those of the machine.
        expected: Pair -> its verdict.
        cause: The cause that the facts speak for; empty if they speak for none.
    """

    machine: Machine
    facts: tuple[Fact, ...]
    expected: dict[Pair, PeerVerdict]
    cause: str


def facts_for(cause: str, pairs: list[Pair], machine: Machine) -> Iterator[Fact]:
    """Yield facts that speak for a cause at some pairs."""
    gpus = sorted({end for pair in pairs for end in pair})
    if cause == "acs":
        yield from (Fact(Known.ACS_REDIRECTS, (f"0000:00:{gpu[3:]:>02}.1",), device=gpu) for gpu in gpus)
    elif cause == "iommu":
        yield Fact(Known.IOMMU, ("DMA-FQ",))
    elif cause == "bar1":
        yield from (Fact(Known.BAR1, 256.0 * 2**20, "B", gpu) for gpu in {pair[1] for pair in pairs})
    elif cause == "p2p-status":
        yield from (Fact(Known.P2P_WRITE, "chipset not supported", device="->".join(pair)) for pair in pairs)
    elif cause == "pcie-width":
        for gpu in gpus:
            yield Fact(Known.PCIE_WIDTH, 4, device=gpu)


def cases(count: int, seed: int) -> Iterator[Case]:
    """Yield random cases."""
    choose = random.Random(seed)
    for _ in range(count):
        machine = parse(choose.choice(MACHINES))
        if len(machine.gpus) > 2:
            machine = machine.only(sorted(choose.sample([g.index for g in machine.gpus],
                                                        choose.randint(2, len(machine.gpus)))))  # fmt: skip
        names = [gpu.name for gpu in machine.gpus]
        every = [(a, b) for a in names for b in names if a != b]
        pairs = choose.sample(every, min(len(every), choose.randint(1, 3)))
        kind = choose.choice(list(KINDS))
        linked = any(
            link.kind is LinkKind.NVLINK for link in machine.links
        )  # which no cause of PCIe concerns
        possible = [""] if linked else ["", "acs", "iommu"]
        if kind is FaultKind.SLOW:
            possible += [] if linked else ["bar1", "pcie-width"]
        elif KINDS[kind] is not PeerVerdict.SLOW:
            possible += ["p2p-status"] if linked else ["p2p-status", "bar1"]
        cause = choose.choice(possible)
        faults = tuple(Fault(kind, "->".join(pair), 0.2) for pair in pairs)
        found = dict.fromkeys(pairs, KINDS[kind])
        yield Case(replace(machine, faults=faults), tuple(facts_for(cause, pairs, machine)), found, cause)


def measured(case: Case, seed: int) -> Document:
    document = wirespeed.p2p(case.machine, seed=seed)
    return with_fields(document, facts=(*document.facts, *case.facts))


def failures(count: int, seed: int = 1) -> Counter[str]:
    """The number of cases in which something is not named."""
    missed: Counter[str] = Counter()
    for number, case in enumerate(cases(count, seed)):
        findings = find_peers(measured(case, number))
        assert findings is not None
        missed["cases"] += 1
        missed["pairs and kinds"] += findings.bad != case.expected
        if case.cause:
            missed["cases with facts"] += 1
            missed["causes"] += case.cause not in [finding.cause.name for finding in findings.causes[:2]]
        missed["verdicts"] += findings.verdict not in (Verdict.FAIL, Verdict.WARN)
        text = " ".join(" ".join(finding.repair) for finding in findings.causes)
        missed["replaced devices"] += "replace" in text
    return missed


def false_alarms(count: int) -> int:
    """The number of healthy machines of which something is reported."""
    alarms = 0
    for number in range(count):
        findings = find_peers(wirespeed.p2p(parse(MACHINES[number % len(MACHINES)]), seed=number))
        alarms += findings is None or findings.verdict is not Verdict.PASS
    return alarms


def main() -> int:
    count, healthy = (int(text) for text in (*sys.argv[1:3], *("1000", "200")[len(sys.argv[1:3]) :]))
    found = failures(count)
    for name in ("pairs and kinds", "verdicts", "replaced devices"):
        print(f"{name}: {found[name]} of {found['cases']} wrong")
    print(f"causes: {found['causes']} of {found['cases with facts']} not among the first two")
    alarms = false_alarms(healthy)
    print(f"false alarms: {alarms} of {healthy} healthy machines")
    return int(bool(alarms or any(found[name] for name in ("pairs and kinds", "verdicts", "causes"))))


if __name__ == "__main__":
    sys.exit(main())
