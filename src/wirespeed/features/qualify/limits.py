"""What the facts of nodes say: what the NICs at both ends carry, and what explains a slow path of two nodes.
Two nodes have no others to compare with, and of many all may be as slow; but a port says how fast it is, a
PCIe link how many lanes and which generation both of its ends support, and what carried the bytes is counted.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import median
from types import MappingProxyType
from typing import Any

import msgspec

from ...backends.host.nic_facts import of_interface
from ...hardware import pcie
from ...hardware.facts import ON, Fact, Facts, Known
from ...judging.causes.evidence_nic import port_of, sibling
from ...qualification import PartKind, Qualification, RailLimit, SlowPart
from ...statistics import grouped
from ...terminal import one_line
from ...thresholds.clusters import AS_SLOW, MOST_ALIKE
from ...thresholds.facts import LEAST_BOTH, LEAST_RDMA, LEAST_TCP, MOST_TCP
from ...worlds.crew import Crew
from .node_facts import addresses, route_interface, route_mtu
from .path_mtu import largest_packet
from .tcp_probe import TcpProbe

_GBIT_BYTES = 1e9 / 8


def _chosen(facts: Facts, used: Collection[str]) -> list[list[str]]:
    """The active ports of a node that carry data, those of one physical port together."""
    active = [port for port in facts.devices() if facts.text(Known.PORT_STATE, port) == "ACTIVE"]
    groups = grouped((port_of(facts, port), port) for port in active)
    return [group for group in groups.values() if not used or set(group) & set(used)]


#: Model and network of a port -> the rate of the fastest ones of all nodes, in Gbit/s.
Fastest = Mapping[tuple[str, ...], float]


def fastest(nodes: Iterable[tuple[Facts, Collection[str]]]) -> Fastest:
    """What ports of each model reach on some node: a port at a lower rate does not define what it carries.

    Args:
        nodes: Facts of each node, and the ports that carried data; none for all that are active.
    """
    found: dict[tuple[str, ...], float] = {}
    for facts, used in nodes:
        for port in (port for group in _chosen(facts, used) for port in group):
            kind = sibling(facts, port)
            found[kind] = max(found.get(kind, 0.0), facts.number(Known.PORT_RATE, port) or 0.0)
    return found


def of_rdma(
    node: int, facts: Facts, rails: int, used: Collection[str] = (), reached: Fastest = MappingProxyType({})
) -> list[RailLimit]:
    """What the RDMA ports of a node carry for each of its rails; nothing if the speed of one is unknown.

    Endpoints that share a port of a card are one port with the PCIe links of all: if only one of them
    carries data, the port still could.

    Args:
        node: The node.
        facts: Its facts.
        rails: Number of rails, which share the ports.
        used: The ports that carried data; empty for all that are active.
        reached: What ports of these models reach elsewhere.
    """
    chosen = _chosen(facts, used)
    rates = [
        max(max(rate, reached.get(sibling(facts, port), 0.0)) if rate else 0.0
            for port in group for rate in [facts.number(Known.PORT_RATE, port) or 0.0])
        for group in chosen
    ]  # fmt: skip
    if not rates or not all(rates):
        return []
    links = [[slot(facts, port) for port in group] for group in chosen]
    known = all(all(group) for group in links)
    speed = sum(rates) * _GBIT_BYTES / rails
    # A port is limited by its own links, not by those of others.
    carried = (
        sum(min(rate * _GBIT_BYTES, sum(group)) for rate, group in zip(rates, links, strict=True)) / rails
        if known
        else 0.0
    )
    devices = tuple(port for group in chosen for port in group)
    rate = min(speed, carried) if carried else speed
    return [RailLimit(node, -1, devices, speed, carried, LEAST_RDMA * rate, LEAST_BOTH * rate)]


def of_user(node: int, rate: float, rails: int) -> RailLimit:
    """What the NICs of a node carry for each of its rails, as the user gives it for all in B/s."""
    return RailLimit(
        node, -1, port=rate / rails, least=LEAST_RDMA * rate / rails, both=LEAST_BOTH * rate / rails
    )


def slot(facts: Facts, port: str) -> float:
    """What the PCIe link of a port carries with the lanes and generation that both ends support; or 0."""
    nic = port.partition(":")[0]
    lanes = facts.number(Known.PCIE_WIDTH_POSSIBLE, nic)
    generation = facts.number(Known.PCIE_GENERATION_POSSIBLE, nic)
    found = pcie.rate(int(generation or 0), int(lanes or 0))
    return found[0] if found else 0.0


def of_tcp(node: int, facts: Facts, interface: str) -> list[RailLimit]:
    """What a network interface carries; nothing if it is virtual, or its speed is unknown."""
    speed = facts.number(Known.INTERFACE_SPEED, interface)
    if not speed:
        return []
    port = speed * _GBIT_BYTES
    least, both = LEAST_TCP * min(port, MOST_TCP), LEAST_BOTH * min(port, MOST_TCP / 2)
    return [RailLimit(node, -1, (interface,), port, 0, least, both)]


def use_of(ports: Sequence[str], used: Collection[str], host: str) -> list[Fact]:
    """Facts: which ports of a host carried data."""
    return [Fact(Known.PORT_USED, ON if port in used else "off", device=port, host=host) for port in ports]


def below_limits(qualification: Qualification) -> list[SlowPart]:
    """The paths of two nodes that reach less than their NICs carry, the slowest first; not confirmed yet."""
    if not qualification.has_limits:
        return []
    middle = {path: median(values) for path, values in qualification.paths.items()}
    return below(qualification, middle)


def below(
    qualification: Qualification, rates: Mapping[tuple[int, int, int], float], *, both: bool = False
) -> list[SlowPart]:
    """The paths whose rates are below their limits, the slowest first; not confirmed yet.

    Args:
        qualification: What carries the rails.
        rates: Source, target and rail -> rate in bytes per second.
        both: Whether both directions were measured at once.
    """
    found: dict[tuple[int, int], list[tuple[tuple[int, int], float]]] = {}
    for (source, target, rail), value in rates.items():
        limit = qualification.limit_of((source, target), rail)
        if limit and value < (limit.both if both else limit.least):
            found.setdefault((min(source, target), rail), []).append(((source, target), value))
    slow = []
    for (_, rail), ways in found.items():
        ends, value = min(ways, key=lambda way: way[1])
        limit = qualification.limit_of(ends, rail)
        if limit is None:
            continue
        slow.append(
            SlowPart(
                PartKind.PATH, tuple(sorted(ends)) if len(ways) > 1 else ends, rail,
                None if len(ways) > 1 else True, value=value, expected=limit.rate, partners=1, limited=True,
            )
        )  # fmt: skip
    return sorted(slow, key=lambda part: part.value)


@dataclass
class _Rail:
    """The paths of a rail of many nodes.

    Attributes:
        reaches: Node -> whether a path of it reaches its limit, or has none.
        paths: Share of what the NICs carry, source, target, rate and what they carry, of each path.
    """

    reaches: dict[int, bool] = field(default_factory=dict)
    paths: list[tuple[float, int, int, float, float]] = field(default_factory=list)


def below_alike(qualification: Qualification, known: Sequence[SlowPart]) -> list[SlowPart]:
    """The rails of many nodes that reach less than their NICs carry with all partners; not confirmed yet.

    Peers do not show them if most are as slow. A rail of a node counts if each of its paths, in both
    directions, is below what carries it at both ends.

    Args:
        qualification: Paths and limits of more than two nodes.
        known: Slow parts that explain some of them already.

    Returns:
        Of most nodes a part for each rail, or one for all of them, whose first two nodes are the ends of a
        typical path; of few a NIC each. The slowest first.
    """
    if qualification.is_one_pair:
        return []
    least = {(limit.node, limit.rail): limit for limit in qualification.limits if limit.least}
    if not least:
        return []
    rails: dict[int, _Rail] = {}
    for (source, target, number), values in qualification.paths.items():
        rail, value = rails.setdefault(number, _Rail()), median(values)
        ends = [least.get((node, number)) or least.get((node, -1)) for node in (source, target)]
        limit = min((end for end in ends if end), key=lambda end: end.least) if all(ends) else None
        for node in (source, target):
            reaches = limit is None or value >= limit.least
            rail.reaches[node] = rail.reaches.get(node, False) or reaches
        if limit is not None:
            rail.paths.append((value / limit.rate, source, target, value, limit.rate))
    found: list[SlowPart] = []
    for number, rail in rails.items():
        nodes = [node for node, reaches in rail.reaches.items() if not reaches]
        typical = median([path[3] for path in rail.paths if {path[1], path[2]} <= {*nodes}] or [0.0])
        here = [part for part in known if part.rail in (number, -1)]
        if len(nodes) == len(rail.reaches) and not any({*nodes} <= {*part.nodes} for part in here):
            # Parts that explain only some of all nodes of a rail are the rail, but for slower ones.
            here = [part for part in here if part.value < AS_SLOW * typical]
        explained = {node for part in here for node in part.nodes}
        nodes = [node for node in nodes if node not in explained]
        slow = sorted(path for path in rail.paths if path[1] in nodes and path[2] in nodes)
        if slow and len(nodes) >= MOST_ALIKE * len(rail.reaches):
            _, *pair, value, rate = slow[len(slow) // 2]
            others = sorted(set(nodes) - set(pair))
            found.append(
                SlowPart(
                    PartKind.ALIKE, (*pair, *others), number, value=value, expected=rate,
                    partners=len(others) + 1, limited=True,
                )
            )  # fmt: skip
            continue
        for node in nodes:
            mine = sorted(path for path in rail.paths if node in path[1:3])
            _, source, target, value, rate = mine[len(mine) // 2]
            partners = len({end for path in mine for end in path[1:3]}) - 1
            found.append(
                SlowPart(
                    PartKind.NIC, (node,), number, value=value, expected=rate, partners=partners, limited=True
                )
            )
    found.sort(key=lambda part: part.value / part.expected)
    alike = [part for part in found if part.kind is PartKind.ALIKE]
    if len(alike) == len(rails) > 1:
        first = alike[0].nodes[:2]
        others = sorted({node for part in alike for node in part.nodes} - set(first))
        of_few = [part for part in found if part.kind is not PartKind.ALIKE]
        return [msgspec.structs.replace(alike[0], rail=-1, nodes=(*first, *others)), *of_few]
    return found


#: Tasks: read the facts of a node, and measure how large packets may be on the way to another one.
FACTS, MTU = "facts", "mtu"


def facts_of_two(
    crew: Crew, first: Mapping[str, int], interfaces: Mapping[str, str], probe: TcpProbe,
    ports: Mapping[int, int], patience: float,
) -> tuple[Fact, ...]:  # fmt: skip
    """The facts of two nodes, which explain what is slow between them.

    Args:
        crew: The processes.
        first: Host -> its first rank.
        interfaces: Host -> its network interface.
        probe: Rank 0's end of connections.
        ports: Rank -> port on which it listens.
        patience: Maximum time, in s.
    """
    addresses = crew.world.addresses()
    (a, i), (b, j) = first.items()
    # First what little messages say: larger ones may not arrive.
    ways = {
        i: [MTU, interfaces[a], (addresses[j], ports[j]), addresses[j]],
        j: [MTU, interfaces[b], None, addresses[i]],
    }
    mtus = crew.ask(ways, patience, lambda task: read_mtus(probe, task))
    tasks = {i: [FACTS, interfaces[a], addresses[j]], j: [FACTS, interfaces[b], addresses[i]]}
    facts = crew.ask(tasks, patience, read_facts)
    return tuple(
        msgspec.structs.replace(fact, host=host)
        for answers in (facts, mtus)
        for host, rank in first.items()
        for fact in msgspec.convert(answers.get(rank, []), list[Fact])
    )


def facts_of(host: str, facts: Sequence[Fact]) -> tuple[Fact, ...]:
    """The facts of a host, without its name."""
    return tuple(msgspec.structs.replace(fact, host="") for fact in facts if fact.host == host)


def read_facts(task: Sequence[Any]) -> Any:
    """The facts of this node, with those of the interface by which another one reaches it."""
    from ...backends import describe, facts

    _, interface, address = task
    found = list(facts(describe(None)))
    if interface:
        found += [*of_interface(str(interface)), _route(str(interface), str(address))]
        found += [fact for fact in _ways(str(address)) if fact not in found]
    return msgspec.to_builtins([fact.checked() for fact in found])


def _ways(address: str) -> Iterator[Fact]:
    """Yield by which interface this node sends to another one, and the addresses and speeds of all."""
    if used := route_interface(address):
        yield Fact(Known.ROUTE_INTERFACE, used)
    for name, own in addresses().items():
        yield Fact(Known.INTERFACE_ADDRESS, own, device=name)
        yield from (fact for fact in of_interface(name) if fact.name == Known.INTERFACE_SPEED)


def _route(interface: str, address: str) -> Fact:
    return Fact.of(Known.ROUTE_MTU, route_mtu(address) or None, "B", interface, why="there is no route")


def read_mtus(probe: TcpProbe, task: Sequence[Any]) -> Any:
    """The MTUs of this node's interface, of its route to another node, and of the way there."""
    _, interface, place, address = task
    own = Facts(of_interface(str(interface))).number(Known.INTERFACE_MTU, str(interface)) if interface else 0
    if not own:
        return []
    try:
        with probe.connection((str(place[0]), int(place[1])) if place else None, 0) as control:
            way = largest_packet(control, int(own), first=place is not None)
    except OSError as error:
        found = Fact.of(Known.PATH_MTU, None, "B", interface, why=one_line(str(error)))
    else:
        found = Fact.of(Known.PATH_MTU, way or None, "B", interface, why="no datagram arrives")
    # Behind the datagrams, whose size routers may have reported.
    facts = (Fact(Known.INTERFACE_MTU, own, "B", interface), found, _route(interface, str(address)))
    return msgspec.to_builtins([fact.checked() for fact in facts])
