"""Cables that lose packets: what TCP sent again. Short paths hide losses, which cost them little time."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median

from ...qualification import PartKind, Round, SlowPart, Stage
from ...thresholds.clusters import FEWEST_PARTNERS, OF_OTHERS, SENT_AGAIN, TIMES_AGAIN


def lossy(rounds: Sequence[Round]) -> list[SlowPart]:
    """The nodes whose packets are lost with most of their partners, the worst first.

    Args:
        rounds: All rounds; those of pairs and of confirmation count.

    Returns:
        Not confirmed: no path has to be slower for it.
    """
    paths = [
        (source, target, share)
        for each in rounds
        if each.stage in (Stage.PAIRS, Stage.CONFIRM)
        for group, losses in zip(each.groups, each.losses, strict=False)
        for source, target, share in zip(group, group[::-1], losses, strict=False)
        if share is not None
    ]
    found = []
    for sends in (True, False):
        of_node: dict[int, dict[int, float]] = {}
        for source, target, share in paths:
            node, partner = (source, target) if sends else (target, source)
            of_node.setdefault(node, {})[partner] = share
        for node, shares in of_node.items():
            others = sorted(share for *ends, share in paths if ends[0 if sends else 1] != node)
            usual = others[int(OF_OTHERS * (len(others) - 1))] if others else 1.0
            value = median(shares.values())
            if len(shares) >= FEWEST_PARTNERS and value >= max(SENT_AGAIN, TIMES_AGAIN * usual):
                found.append(
                    SlowPart(
                        PartKind.LOSSY,
                        (node,),
                        sends=sends,
                        value=value,
                        expected=usual,
                        partners=len(shares),
                    )
                )
    return sorted(found, key=lambda part: -part.value)
