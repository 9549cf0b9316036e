"""Faults of simulated clusters: what is slow, and for those with a cause what nodes report of their NICs."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from ...data.causes import NODE_FAULTS, CauseFault
from ...errors import MachineError
from ...hardware.facts import ON, Fact, FactValue, Known
from ...qualification import OWN_PARTS, PartKind
from ...terminal import meant


@dataclass(frozen=True)
class NicModel:
    """The NIC of a rail of each node.

    Attributes:
        names: Its endpoints for a rail with number ``{}``; several are one port of a card with several links.
        gbits: Speed of the port, in Gbit/s.
        lanes, generation: Of the PCIe link of each endpoint.
    """

    names: tuple[str, ...] = ("mlx5_{}",)
    gbits: float = 400
    lanes: int = 16
    generation: int = 5


#: The NIC of a rail of most clusters.
ONE_ENDPOINT = NicModel()
#: That of a DGX Spark: one port of 200 Gbit/s behind two PCIe links (dgx-spark-playbooks, pull request 103).
SPARK = NicModel(("rocep1s0f{}", "roceP2p1s0f{}"), 200, 4, 5)
#: Share of the speed of its port that a rail reaches.
OF_PORT = 0.92
#: MTU of RoCE and of Ethernet's default, in bytes.
_JUMBO = 9000.0
#: What stands for each node in a fault.
EACH = "*"
_GIDS = ("0: IB/RoCE v1", "1: RoCE v2", "2: IB/RoCE v1", "3: RoCE v2")
#: Places of facts: each endpoint of the NICs, and the second endpoint of each.
_ENDPOINTS, _SECOND = "each endpoint", "each second endpoint"
#: Network interface by which simulated nodes reach each other.
_INTERFACE = "eth0"


def factor_of(fault: CauseFault, amount: float, nic: NicModel) -> float:
    """Factor of the rate of the rails of a node with a fault."""
    return _SPEEDS[fault.speed](amount, nic) if fault.speed else fault.factor


def _changes(fault: CauseFault, amount: float, nics: Sequence[str]) -> Iterator[tuple[Known, FactValue, str]]:
    """Yield the names, values and places of the facts that a fault changes."""
    for change in fault.reports:
        value = _VALUES[change.by](nics) if change.by else change.value
        for device in {_ENDPOINTS: nics, _SECOND: nics[1::2]}.get(change.at, (change.at,)):
            yield change.fact, amount if value is None else value, device


def _first_endpoints(nics: Sequence[str]) -> tuple[str, ...]:
    """A setting of NCCL that selects every second endpoint: of cards with two, the first of each."""
    return (f"NCCL_IB_HCA=={','.join(nics[::2])}",)


def _by_port(gbits: float, nic: NicModel) -> float:
    return min(1.0, gbits / nic.gbits)


def _by_lanes(lanes: float, nic: NicModel) -> float:
    return min(1.0, lanes / nic.lanes)


def _by_generation(generation: float, nic: NicModel) -> float:
    return float(min(1.0, 2.0 ** (generation - nic.generation)))


#: Names in ``causes.toml`` -> functions of an amount and the NIC of a rail, and of the endpoints of a node.
_SPEEDS: dict[str, Callable[[float, NicModel], float]] = {
    "by_port": _by_port, "by_lanes": _by_lanes, "by_generation": _by_generation,
}  # fmt: skip
_VALUES: dict[str, Callable[[Sequence[str]], FactValue]] = {"first_endpoints": _first_endpoints}


@dataclass(frozen=True)
class NodeFault:
    """A fault with a cause at a node, or at each (-1)."""

    fault: CauseFault
    node: int
    amount: float


def parse_node_fault(
    text: str, nodes: Sequence[str], nic: NicModel, rails: int, *, has_gpus: bool
) -> NodeFault | None:
    """Parse a fault such as ``mtu=1500@node1`` or ``endpoint@node0``; None if its name is another one.

    Raises:
        MachineError: If it has no such place or amount.
    """
    match = re.fullmatch(r"(\w{1,40})(?:=(\d{1,6}))?@([^@]{1,200})", text)
    fault = NODE_FAULTS.get(match[1]) if match else None
    if match is None or fault is None:
        return None
    if match[3] not in (*nodes, EACH):
        raise MachineError(f"the fault {text!r} has no place: write {nodes[0]} to {nodes[-1]}, or {EACH}")
    if bool(match[2]) > bool(fault.amount) or (match[2] and not int(match[2])):
        example = f"{fault.name}={fault.amount:g}" if fault.amount else fault.name
        raise MachineError(f"the fault {text!r} has another amount; write {example}@{match[3]}")
    if fault.name == "endpoint" and len(nic.names) < 2:
        raise MachineError(f"the fault {text!r} has no place: each NIC has only one endpoint")
    if fault.name == "hca" and len(nic.names) * rails < 2:
        raise MachineError(f"the fault {text!r} has no place: each node has only one NIC")
    if fault.of_gpus and not has_gpus:
        raise MachineError(f"the fault {text!r} has no place: these nodes have no GPUs")
    node = -1 if match[3] == EACH else nodes.index(match[3])
    return NodeFault(fault, node, float(match[2] or fault.amount))


def facts_of(
    names: Mapping[int, str], nic: NicModel, rails: int, faults: Sequence[NodeFault]
) -> Iterator[Fact]:
    """Yield the facts of good nodes, then those that their faults change; the last one counts.

    Args:
        names: Index -> name of the nodes.
        nic: Their NICs, one for each rail.
        rails: Number of rails.
        faults: Their faults.
    """
    endpoints = [name.format(rail) for rail in range(rails) for name in nic.names]
    name: Known
    value: FactValue
    for index, host in names.items():
        for name, value in (
            (Known.NCCL_VARIABLES, ()), (Known.GOVERNOR, ("performance",)), (Known.NODES_ONLINE, 2),
            (Known.PEERMEM, ON), (Known.NODES_PER_SOCKET, 1), (Known.DRIVER_KERNEL, "580.159"),
        ):  # fmt: skip
            yield Fact(name, value, host=host)
        for name in (Known.INTERFACE_MTU, Known.PATH_MTU, Known.ROUTE_MTU):
            yield Fact(name, _JUMBO, "B", _INTERFACE, host=host)
        yield Fact(Known.INTERFACE_LOST, 0, device=_INTERFACE, host=host)
        for i, device in enumerate(endpoints):
            rail, endpoint = divmod(i, len(nic.names))
            for name, value, unit in (
                (Known.NIC_DRIVER, "mlx5_core", ""), (Known.NIC_CARD, f"card{rail}", ""),
                (Known.NIC_ADDRESS, f"{endpoint:04x}:{rail + 1:02x}:00.0", ""),
                (Known.NIC_FIRMWARE, "28.45.4028", ""), (Known.NUMA_NODE, f"{2 * rail // rails}", ""),
                (Known.PCIE_WIDTH, nic.lanes, ""), (Known.PCIE_WIDTH_POSSIBLE, nic.lanes, ""),
                (Known.PCIE_GENERATION, nic.generation, ""),
                (Known.PCIE_GENERATION_POSSIBLE, nic.generation, ""),
                (Known.PCIE_NARROWEST, f"{endpoint:04x}:{rail + 1:02x}:00.0", ""),
                (Known.PORT_STATE, "ACTIVE", ""), (Known.PORT_PHYSICAL, "LinkUp", ""),
                (Known.PORT_LAYER, "Ethernet", ""), (Known.PORT_RATE, nic.gbits, "Gbit/s"),
                (Known.PORT_MTU, _JUMBO, "B"), (Known.PORT_GIDS, _GIDS, ""), (Known.PORT_USED, ON, ""),
            ):  # fmt: skip
                yield Fact(name, value, unit, device, host=host)
        for fault in faults:
            if fault.node in (index, -1):
                for name, value, device in _changes(fault.fault, fault.amount, endpoints):
                    yield Fact(name, value, "", device, host=host)


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
        near = meant(re.split("[=@]", text)[0], [*_KINDS, *NODE_FAULTS])
        raise MachineError(
            f"unknown fault {text!r} of a cluster{near}; write node=0.5@node17, gpu=0.5@node17.3, "
            "pcie=0.5@node17.3, memory=0.5@node17, nic=0.5@node17.3, cable=0.5@node17.3 (what it sends; "
            "with <- at the end: what it receives), duplex=0.5@node17.3 (if it sends and receives at once), "
            "leaf=0.5@block2.3, trunk=0.5@block2.3, spine=0.5@spine1, lost@node3, noise=3%, or a cause such "
            f"as mtu=1500@node1 ({', '.join(NODE_FAULTS)}); @{EACH} is each node"
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
