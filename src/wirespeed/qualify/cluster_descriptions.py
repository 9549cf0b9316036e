"""Descriptions of simulated clusters: the text behind ``--machine``, and files."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence

import msgspec

from ..errors import MachineError
from ..files import LARGEST_WRITTEN, read
from ..qualification import OWN_PARTS, PartKind
from ..spelling import unknown_name
from ..terminal import neutral
from .simulated_cluster import ClusterFault, SimulatedCluster, block_names, node_names
from .switches import hosts_of

#: Words of faults in the name of a machine, e.g. ``nic=0.5@node17.3``.
_KINDS = {
    "node": PartKind.NODE, "gpu": PartKind.GPU, "nic": PartKind.NIC, "cable": PartKind.CABLE,
    "leaf": PartKind.LEAF, "trunk": PartKind.TRUNK, "spine": PartKind.SPINE, "pcie": PartKind.HOST_LINK,
    "memory": PartKind.MEMORY,
}  # fmt: skip
#: What the place of a fault is, if it is not a node.
_PLACES = {PartKind.LEAF: "block", PartKind.TRUNK: "block", PartKind.SPINE: "spine"}
#: Most digits of a rail.
_DIGITS = 3
#: Most rails, and most spine switches of a rail, of a simulated cluster.
_MOST_RAILS, _MOST_SPINES = 64, 1024
#: Nodes of a block of a simulated cluster of many nodes, and of one with few.
_BLOCK, _SMALL_BLOCK = 32, 8
#: Maximum number of nodes of a simulated cluster.
_MOST_NODES = 16384


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
        raise MachineError(
            f"unknown fault {text!r} of a cluster; write node=0.5@node17, gpu=0.5@node17.3, "
            "pcie=0.5@node17.3, memory=0.5@node17, nic=0.5@node17.3, cable=0.5@node17.3 (what it sends; "
            "with <- at the end: what it receives), leaf=0.5@block2.3, trunk=0.5@block2.3, spine=0.5@spine1, "
            "lost@node3, or noise=3%"
        )
    what = _PLACES.get(kind, "node")
    places = {"node": nodes, "block": blocks, "spine": [f"spine{i}" for i in range(spines)]}[what]
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
            f"the fault {text!r} has no place: write {places[0]} to {places[-1]}, with .0 to .{rails - 1} "
            "for the rail"
        )
    return ClusterFault(kind, places.index(name), rail, float(match[2]), not match[4])


class ClusterFile(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A file that describes a simulated cluster, in TOML.

    Attributes:
        machine: Name of the simulated machine that each node is, e.g. ``dgx-a100-8``.
        leaves: Name of each leaf switch (there is one for each rail) -> its nodes, as a list of hosts of
            Slurm.
        spines: Number of spine switches of a rail.
        rails: Number of rails; 0 for one per GPU.
        rate: Bandwidth of a rail in one direction, e.g. ``46 GB/s``.
        noise: Relative standard deviation of a value, e.g. ``1%``.
        faults: Faults, written as behind the name of a machine.
    """

    machine: str
    leaves: dict[str, str]
    spines: int = 4
    rails: int = 0
    rate: str = "46 GB/s"
    noise: str = "1%"
    faults: tuple[str, ...] = ()


def parse_cluster(spec: str, *, seed: int = 0, spares: int = 0) -> SimulatedCluster | None:
    """The cluster of a text such as ``dgx-a100-8x64+nic=0.5@node17.3+noise=3%``; None for one machine.

    Args:
        spec: Name of a machine and number of nodes, or a file that ends in ``.toml`` (`ClusterFile`); then
            faults.
        seed: Seed of the noise.
        spares: Number of nodes at the end that are spares.

    Raises:
        MachineError: If there is no such machine, file, fault or place.
    """
    from ..backends.simulated.machines import MACHINES

    name, *suffixes = spec.split("+")
    if name.endswith(".toml"):
        return _cluster_of(_read(name), suffixes, seed, spares)
    match = re.fullmatch(r"(.+)x(\d{1,5})", name)
    if match is None or match[1] not in MACHINES:
        return None
    count = int(match[2])
    _check_count(count)
    size = _BLOCK if count > 128 else _SMALL_BLOCK
    nodes, blocks = node_names(count), block_names(count, size)
    leaves = {block: nodes[i * size : (i + 1) * size] for i, block in enumerate(dict.fromkeys(blocks))}
    return _cluster(ClusterFile(match[1], {}), leaves, suffixes, seed, spares)


def _check_count(count: int) -> None:
    if not 2 <= count <= _MOST_NODES:
        raise MachineError(f"a simulated cluster has 2 to {_MOST_NODES} nodes, not {count}")


def _read(name: str) -> ClusterFile:
    """The description in a file."""
    try:
        content = neutral(msgspec.toml.decode(read(name, LARGEST_WRITTEN)))
        if wrong := unknown_name(content, ClusterFile):
            raise msgspec.ValidationError(str(wrong))
        return msgspec.convert(content, ClusterFile)
    except OSError as error:
        raise MachineError(f"cannot read {name}: {error.strerror or error}") from None
    except (ValueError, RecursionError) as error:  # also of very long numbers
        raise MachineError(f"{name} does not describe a cluster: {error}") from None


def _cluster_of(file: ClusterFile, suffixes: Sequence[str], seed: int, spares: int) -> SimulatedCluster:
    leaves = {block: tuple(hosts_of(hosts)) for block, hosts in file.leaves.items()}
    names = [name for nodes in leaves.values() for name in nodes]
    _check_count(len(names))
    if twice := next((name for name, times in Counter(names).items() if times > 1), None):
        raise MachineError(f"two leaf switches have the node {twice}")
    return _cluster(file, leaves, [*file.faults, *suffixes], seed, spares)


def _cluster(
    file: ClusterFile, leaves: Mapping[str, Sequence[str]], suffixes: Sequence[str], seed: int, spares: int
) -> SimulatedCluster:
    """The cluster of leaf switches and their nodes, with faults."""
    from ..backends.simulated.machines import MACHINES
    from ..units import parse_fraction, parse_rate

    if file.machine not in MACHINES:
        raise MachineError(f"unknown machine {file.machine!r}; choose one of {', '.join(MACHINES)}")
    machine = MACHINES[file.machine]()
    names = tuple(name for nodes in leaves.values() for name in nodes)
    rails = file.rails or max(1, len(machine.gpus))
    for what, number, most in (("rails", rails, _MOST_RAILS), ("spine switches", file.spines, _MOST_SPINES)):
        if not 1 <= number <= most:
            raise MachineError(f"a simulated cluster has 1 to {most} {what}, not {number}")
    if not 0 <= spares < len(names):
        raise MachineError(f"of {len(names)} nodes, 0 to {len(names) - 1} can be spares, not {spares}")
    faults, missing, noise = [], set(), parse_fraction(file.noise)
    for text in suffixes:
        if text.startswith("noise="):
            noise = parse_fraction(text.removeprefix("noise="))
        elif lost := re.fullmatch(r"lost@(.+)", text):
            if lost[1] not in names:
                raise MachineError(f"the fault {text!r} has no place: write {names[0]} to {names[-1]}")
            missing.add(names.index(lost[1]))
        else:
            faults.append(
                parse_cluster_fault(text, names, list(leaves), rails, file.spines, bool(machine.gpus))
            )
    return SimulatedCluster(
        len(names), rails=rails, peak=parse_rate(file.rate), noise=noise, faults=tuple(faults),
        missing=frozenset(missing), seed=seed, model=machine.gpus[0].model if machine.gpus else "",
        spares=spares, spines=file.spines, names=names,
        blocks_of=tuple(block for block, nodes in leaves.items() for _ in nodes), machine=file.machine,
        has_gpus=bool(machine.gpus),
    )  # fmt: skip
