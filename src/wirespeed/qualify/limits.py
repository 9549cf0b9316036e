"""What two nodes should reach: what the NICs at both ends carry, by their facts.

Two nodes have no others to compare with. A port says how fast it is, a PCIe link how many lanes and which
generation both of its ends support; what carried the bytes is counted. Below a share of that, a path is slow.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from statistics import median

from ..backends import pci
from ..hardware.facts import ON, Fact, Facts, Known
from ..judging.cause import port_of
from ..qualification import PartKind, Qualification, RailLimit, SlowPart

#: Least share of what its NICs carry that a path over RDMA reaches. Two DGX Sparks with 200 Gbit/s reach 161
#: to 190, with one of two endpoints 98 to 106 (dgx-spark-playbooks, issues 25, 102 and 108).
LEAST_RDMA = 0.75
#: The same over TCP, of what processors manage at least: a faster network is limited by them, not by itself.
LEAST_TCP, MOST_TCP = 0.75, 25e9 / 8
_GBIT_BYTES = 1e9 / 8


def of_rdma(node: int, facts: Facts, rails: int, used: Collection[str] = ()) -> list[RailLimit]:
    """What the RDMA ports of a node carry for each rail; nothing if the speed of one is unknown.

    Endpoints that share a port of a card are one port with the PCIe links of all: if only one of them
    carries data, the port still could.

    Args:
        node: The node.
        facts: Its facts.
        rails: Number of rails, which share the ports.
        used: The ports that carried data; empty for all that are active.
    """
    active = [port for port in facts.devices() if facts.text(Known.PORT_STATE, port) == "ACTIVE"]
    groups: dict[str, list[str]] = {}
    for port in active:
        groups.setdefault(port_of(facts, port), []).append(port)
    chosen = [group for group in groups.values() if not used or set(group) & set(used)]
    rates = [max((facts.number(Known.PORT_RATE, port) or 0.0) for port in group) for group in chosen]
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
    least = LEAST_RDMA * (min(speed, carried) if carried else speed)
    return [RailLimit(node, rail, devices, speed, carried, least) for rail in range(rails)]


def slot(facts: Facts, port: str) -> float:
    """What the PCIe link of a port carries with the lanes and generation that both ends support; or 0."""
    nic = port.partition(":")[0]
    lanes = facts.number(Known.PCIE_WIDTH_POSSIBLE, nic)
    generation = facts.number(Known.PCIE_GENERATION_POSSIBLE, nic)
    found = pci.rate(int(generation or 0), int(lanes or 0))
    return found[0] if found else 0.0


def of_tcp(node: int, facts: Facts, interface: str) -> list[RailLimit]:
    """What a network interface carries; nothing if it is virtual, or its speed is unknown."""
    speed = facts.number(Known.INTERFACE_SPEED, interface)
    if not speed:
        return []
    port = speed * _GBIT_BYTES
    return [RailLimit(node, 0, (interface,), port, 0, LEAST_TCP * min(port, MOST_TCP))]


def use_of(ports: Sequence[str], used: Collection[str], host: str) -> list[Fact]:
    """Facts: which ports of a host carried data."""
    return [Fact(Known.PORT_USED, ON if port in used else "off", device=port, host=host) for port in ports]


def below_limits(qualification: Qualification) -> list[SlowPart]:
    """The paths of two nodes that reach less than their NICs carry, the slowest first; not confirmed yet."""
    if not qualification.has_limits:
        return []
    middle = {path: median(values) for path, values in qualification.paths.items()}
    found: dict[tuple[int, int], list[tuple[tuple[int, int], float]]] = {}
    for (source, target, rail), value in middle.items():
        limit = qualification.limit_of((source, target), rail)
        if limit and value < limit.least:
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
