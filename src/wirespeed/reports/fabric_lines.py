"""Where each process of a job is in the NVLink fabric, in lines of nvbandwidth's text since 0.11."""

from __future__ import annotations

from collections.abc import Iterator

from ..document import Document
from ..facts import FABRIC_READY, Facts, Known


def fabric_lines(document: Document) -> list[str]:
    """The cluster and clique of the GPU of each process, then a warning for each whose fabric is not healthy.

    nvbandwidth prints both before the testcases; its words are not published. Processes whose GPU is in no
    fabric have no line.
    """
    placed, unhealthy = list[str](), list[str]()
    ranks = document.machine.ranks
    width = len(str(len(ranks) - 1))
    for rank in ranks:
        facts = Facts(document.facts, "" if rank.host == ranks[0].host else rank.host)
        who = f"Process {rank.index:>{width}} ({rank.host})"
        cluster = facts.text(Known.FABRIC_CLUSTER, rank.device)
        clique = facts.number(Known.FABRIC_CLIQUE, rank.device)
        if cluster and clique is not None:
            placed.append(f"{who}: fabric cluster {cluster}, clique {clique:.0f}")
        unhealthy += [
            f"WARNING: {who}: NVLink fabric: {problem}" for problem in _problems(facts, rank.device)
        ]
    return placed + unhealthy


def _problems(facts: Facts, device: str) -> Iterator[str]:
    """What NVML reports of the fabric of a GPU: that it has not joined, and each problem."""
    if (state := facts.text(Known.FABRIC, device)) not in ("", FABRIC_READY):
        yield state
    yield from facts.several(Known.FABRIC_HEALTH, device)
