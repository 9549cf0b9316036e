"""The facts of two nodes of a job, which explain what is slow between them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from ..backends.host.nic_facts import of_interface
from ..hardware.facts import Fact, Facts, Known
from ..terminal import one_line
from ..worlds.crew import Crew
from .path_mtu import largest_packet
from .tcp_probe import TcpProbe, route_mtu

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
    facts = crew.ask(tasks_of_two(first, interfaces, addresses), patience, read_facts)
    return (*facts_told(first, facts), *facts_told(first, mtus))


def tasks_of_two(
    first: Mapping[str, int], interfaces: Mapping[str, str], addresses: Mapping[int, str]
) -> dict[int, list[Any]]:
    """The tasks for the first ranks of two nodes that make them read their facts."""
    (a, i), (b, j) = first.items()
    return {i: [FACTS, interfaces[a], addresses[j]], j: [FACTS, interfaces[b], addresses[i]]}


def facts_told(first: Mapping[str, int], answers: Mapping[int, Any]) -> tuple[Fact, ...]:
    """The facts that ranks read, each with the name of its host."""
    return tuple(
        msgspec.structs.replace(fact, host=host)
        for host, rank in first.items()
        for fact in msgspec.convert(answers.get(rank, []), list[Fact])
    )


def facts_of(host: str, facts: Sequence[Fact]) -> tuple[Fact, ...]:
    """The facts of a host, without its name."""
    return tuple(msgspec.structs.replace(fact, host="") for fact in facts if fact.host == host)


def read_facts(task: Sequence[Any]) -> Any:
    """The facts of this node, with those of the interface by which another one reaches it."""
    from ..backends import describe, facts

    _, interface, address = task
    found = list(facts(describe(None)))
    if interface:
        found += [*of_interface(str(interface)), _route(str(interface), str(address))]
    return msgspec.to_builtins([fact.checked() for fact in found])


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
