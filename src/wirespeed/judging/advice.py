"""What to do if no cause with a remedy is known: for slow places, wrong data, busy devices."""

from __future__ import annotations

from collections import Counter

from ..document import Document
from ..topology import LinkKind
from ..units import many
from .overview import Overview, PathKind, failures, path_kind
from .verdicts import Check, Verdict

#: What to do, and a command that helps; empty if there is none.
_Step = tuple[str, str]

#: Kind of a slow link -> what to do.
_LINKS: dict[str, _Step] = {
    LinkKind.NVLINK: ("check the cable or bridge, and the fabric manager", "nvidia-smi nvlink -s"),
    LinkKind.PCIE: ("check slot and riser, width and generation", "sudo lspci -vv | grep LnkSta:"),
    LinkKind.C2C: ("check the state of its links", "nvidia-smi c2c -s"),
    LinkKind.SOCKET: ("check the BIOS settings of the links between sockets", "numactl --hardware"),
    LinkKind.NETWORK: ("check cable, switch port and error counters of the NIC", "rdma statistic"),
}
_GPU_MEMORY = "check memory clock and ECC", "nvidia-smi -q -d CLOCK,ECC"
_HOST_MEMORY = "check memory modules and NUMA settings", "sudo dmidecode -t memory"
_GPU = "check clocks, power and temperature", "nvidia-smi -q -d PERFORMANCE,POWER,TEMPERATURE"
_HOST = "check clocks and power settings of the CPU, and its memory modules", "sudo dmidecode -t memory"
_PAIR = "check peer access and the route between the two", "nvidia-smi topo -m"
_BUSY = "wait for idle devices, or judge anyway with --ignore-busy", "wirespeed check --wait-idle 5min"
_WRONG = "do not use this path; replace the defective device or link", ""
_ABOVE = (
    "compare the capacities with data sheets; docs/limits.md says how to correct them",
    "wirespeed machine",
)
_FAILED = "look for errors of the device in the kernel log", "sudo dmesg | tail"
_NO_CAUSE = "docs/slow.md has the steps from a low value to its cause", ""
_MEMORY = (
    "unknown capacity of host memory; give channels x MT/s of a NUMA node:\n"
    "wirespeed check --host-memory 8x4800   (sudo dmidecode -t memory)"
)


#: Maximum number of reasons why no value was judged.
_REASONS = 2


def advice(document: Document, check: Check, found: Overview) -> list[tuple[str, str]]:
    """Return what to do and a command, each with its name; empty if the cause in ``found`` has a remedy."""
    if found.finding is not None or found.word == "INTERRUPTED":
        return []
    do, command = _step(document, check, found)
    return [(name, text) for name, text in (("what to do", do), ("with", command)) if text]


def first_step(document: Document, check: Check, found: Overview) -> tuple[str, str]:
    """Return what to do about the verdict, and a command that helps; empty if there is nothing to do."""
    if found.finding is not None and found.word != "INTERRUPTED":
        return found.finding.cause.remedy, ""
    if found.word == "NOT JUDGED":
        reasons = Counter(one.why for one in check.judgements if one.verdict is Verdict.UNKNOWN and one.why)
        why = "; ".join(f"{many(n, 'value')}: {why}" for why, n in reasons.most_common(_REASONS))
        return f"judge by a baseline of good machines (--baseline); {why}" if why else "", ""
    steps = dict(advice(document, check, found))
    return steps.get("what to do", ""), steps.get("with", "")


def missing(document: Document, check: Check) -> str:
    """Return how to give the capacity of host memory; empty if it is known or was not required."""
    required = any(
        one.verdict in (Verdict.UNKNOWN, Verdict.BUSY)
        and one.limit is None
        and path_kind(one.key.testcase) is PathKind.HOST_MEMORY
        for one in check.judgements
    )
    return _MEMORY if required and document.machine.unknown_memories else ""


def _step(document: Document, check: Check, found: Overview) -> _Step:
    """Return what to do, and a command."""
    if check.corrupted:
        return _WRONG
    if check.culprits:
        return _at(check.culprits[0].names[0])
    if failures(document):
        return _FAILED
    if any(one.verdict is Verdict.IMPLAUSIBLE for one in check.judgements):
        return _ABOVE
    if found.verdict in (Verdict.FAIL, Verdict.WARN):
        return _NO_CAUSE
    return _BUSY if found.verdict is Verdict.BUSY else ("", "")


def _at(place: str) -> _Step:
    """Return what to do about a slow place: ``pcie numa0-gpu1``, ``memory of gpu1``, ``gpu1``, a pair."""
    kind, _, of = place.partition(" ")
    if kind in _LINKS:
        return _LINKS[kind]
    if kind == LinkKind.MEMORY:
        return _GPU_MEMORY if "gpu" in of else _HOST_MEMORY
    return _PAIR if "->" in kind else _GPU if "gpu" in kind else _HOST
