"""Faults of simulated clusters without a cause: what is slow, and how it is written."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from ..errors import MachineError
from ..qualification import OWN_PARTS, PartKind
from ..terminal import meant
from .simulated_facts import EACH, FAULTS

#: Words of faults in the name of a machine, e.g. ``nic=0.5@node17.3``.
_KINDS = {
    "node": PartKind.NODE, "gpu": PartKind.GPU, "nic": PartKind.NIC, "cable": PartKind.CABLE,
    "leaf": PartKind.LEAF, "trunk": PartKind.TRUNK, "spine": PartKind.SPINE, "pcie": PartKind.HOST_LINK,
    "memory": PartKind.MEMORY, "duplex": PartKind.NIC,
}  # fmt: skip
#: What the place of a fault is, if it is not a node.
_PLACES = {PartKind.LEAF: "block", PartKind.TRUNK: "block", PartKind.SPINE: "spine"}
#: Most digits of a rail.
_DIGITS = 3


@dataclass(frozen=True)
class ClusterFault:
    """A fault of a simulated cluster.

    Attributes:
        kind: What is slow.
        where: Index of the node (-1: each), of the block of a leaf switch or trunk, or of the spine switch.
        rail: Its rail; of a GPU, its index; not used for nodes. Of a spine switch: -1 for all rails.
        factor: Factor of its bandwidth.
        sends: Of a cable: whether what the node sends is slow, or what it receives.
        both: Of a NIC: whether it is slow only while it sends and receives.
    """

    kind: PartKind
    where: int
    rail: int = 0
    factor: float = 0.5
    sends: bool = True
    both: bool = False


def parse_cluster_fault(
    text: str, nodes: Sequence[str], blocks: Sequence[str], rails: int, spines: int, has_gpus: bool
) -> ClusterFault:
    """Parse a fault such as ``nic=0.5@node17.3``, ``leaf=0.7@block2.0`` or ``node=0.5@node3``.

    Args:
        text: The fault.
        nodes, blocks: Names of the nodes and of the blocks.
        rails, spines: Numbers of rails, and of the spine switches of each.
        has_gpus: Whether the nodes have GPUs.

    Raises:
        MachineError: If there is no such fault or place.
    """
    match = re.fullmatch(r"(\w+)=(0?\.\d{1,6})@([^@<]{1,200})(<-)?", text)
    kind = _KINDS.get(match[1]) if match else None
    if match is None or kind is None:
        near = meant(re.split("[=@]", text)[0], [*_KINDS, *FAULTS])
        raise MachineError(
            f"unknown fault {text!r} of a cluster{near}; write node=0.5@node17, gpu=0.5@node17.3, "
            "pcie=0.5@node17.3, memory=0.5@node17, nic=0.5@node17.3, cable=0.5@node17.3 (what it sends; "
            "with <- at the end: what it receives), duplex=0.5@node17.3 (if it sends and receives at once), "
            "leaf=0.5@block2.3, trunk=0.5@block2.3, spine=0.5@spine1, lost@node3, noise=3%, or a cause such "
            f"as mtu=1500@node1 ({', '.join(FAULTS)}); @{EACH} is each node"
        )
    what = _PLACES.get(kind, "node")
    places = {"node": (*nodes, EACH), "block": blocks, "spine": [f"spine{i}" for i in range(spines)]}[what]
    name, _, end = match[3].rpartition(".")
    if match[3] in places:
        name, rail = match[3], -1 if kind is PartKind.SPINE else 0
    else:
        rail = int(end) if end.isdecimal() and len(end) <= _DIGITS else rails
    if kind in OWN_PARTS and has_gpus is (kind is PartKind.MEMORY):
        which = "with" if has_gpus else "without"
        raise MachineError(f"the fault {text!r} has no place: nodes {which} GPUs do not measure it")
    if name not in places or rail >= rails:
        raise MachineError(
            f"the fault {text!r} has no place: write {places[0]} to "
            f"{places[-2] if places[-1] == EACH else places[-1]}, with .0 to .{rails - 1} for the rail"
        )
    where = -1 if name == EACH else places.index(name)
    return ClusterFault(kind, where, rail, float(match[2]), not match[4], match[1] == "duplex")
