"""The signs of causes on the way between hosts, in the facts of one of them or of both."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from ipaddress import IPv4Interface
from itertools import permutations

from ...data.causes import Weight
from ...hardware.facts import OFF, Facts, Known
from ...hardware.topology import Machine
from ...thresholds.facts import FAST_GBITS, ROCE_MTU, SMALL_MTU
from ...units import times
from .record import Sign

#: Kinds of interfaces that forward packets by software.
_SOFTWARE = ("bridge", "tun", "wireguard", "vxlan", "geneve", "macvlan", "ipvlan")
#: Facts that should be the same on all hosts of a job.
_COMMON = (
    Known.NCCL_VARIABLES, Known.DRIVER_KERNEL, Known.NIC_FIRMWARE, Known.PEERMEM, Known.GOVERNOR,
    Known.NODES_PER_SOCKET, Known.IOMMU, Known.PORT_MTU, Known.INTERFACE_MTU,
)  # fmt: skip


def mtu(machine: Machine, facts: Facts) -> Iterator[Sign]:
    """Yield the fast ports and interfaces with a small MTU."""
    by_text: dict[str, list[str]] = defaultdict(list)
    for device in facts.devices():
        mtu, rate = facts.number(Known.PORT_MTU, device), facts.number(Known.PORT_RATE, device)
        if (
            mtu
            and rate
            and rate >= FAST_GBITS
            and mtu < ROCE_MTU
            and facts.text(Known.PORT_USED, device) != OFF
        ):
            by_text[f"MTU {mtu:.0f} at {rate:.0f} Gbit/s"].append(device)
        own, speed = facts.number(Known.INTERFACE_MTU, device), facts.number(Known.INTERFACE_SPEED, device)
        if own and speed and speed >= FAST_GBITS and own <= SMALL_MTU:
            by_text[f"MTU {own:.0f} at {speed:g} Gbit/s"].append(device)
    for text, devices in by_text.items():
        yield Sign("", f"{', '.join(devices)}: {text}")


def path_mtu_between(facts: Facts) -> Iterator[Sign]:
    """Yield the hosts between which only smaller packets arrive than both of their interfaces send.

    It is a defect if larger ones vanish without a message: then the kernel does not know it, and sends them.
    """
    hosts = [of_host for of_host in facts.of_each_host if list(of_host)]
    for here, there in permutations(hosts, 2) if len(hosts) == 2 else ():
        own, way, route = (
            _only(here, name) for name in (Known.INTERFACE_MTU, Known.PATH_MTU, Known.ROUTE_MTU)
        )
        theirs = _only(there, Known.INTERFACE_MTU)
        if own and theirs and way and way < min(own, theirs):
            text = f"MTU {own:.0f} on {here.host}, {theirs:.0f} on {there.host}, {way:.0f} on the way there"
            vanish = bool(route and route > way)
            text += "; larger packets vanish without a message" if vanish else ""
            yield Sign("", text, Weight.DEFECT if vanish else Weight.CONDITION, here.host)


def _only(facts: Facts, name: Known) -> float | None:
    """A number of the only interface by which a host reaches the other one."""
    return next((facts.number(name, device) for device in facts.devices() if facts.knows(name, device)), None)


def link_lost(machine: Machine, facts: Facts) -> Iterator[Sign]:
    """Yield the network interfaces that lost their links during the run."""
    for device in facts.devices():
        if count := facts.number(Known.INTERFACE_LOST, device):
            yield Sign("", f"{device}: {times(int(count))}")


def nic_detour(machine: Machine, facts: Facts) -> Iterator[Sign]:
    """Yield that a bridge or a VPN carries what nodes send to each other."""
    for device in facts.devices():
        if (kind := facts.text(Known.INTERFACE_KIND, device)) in _SOFTWARE:
            yield Sign("", f"{device} is of kind {kind}")


def _address(facts: Facts, interface: str) -> IPv4Interface | None:
    """The address of a network interface; None if it is unknown."""
    try:
        return IPv4Interface(facts.text(Known.INTERFACE_ADDRESS, interface))
    except ValueError:
        return None


def nic_route_between(facts: Facts) -> Iterator[Sign]:
    """Yield the hosts that send to the other one by one of two interfaces in a subnet, or by a slower one."""
    hosts = [of_host for of_host in facts.of_each_host if list(of_host)]
    for here, there in permutations(hosts, 2) if len(hosts) == 2 else ():
        own = {name: at for name in here.devices() if (at := _address(here, name)) and not at.is_loopback}
        used = here.text(Known.ROUTE_INTERFACE)
        if not (mine := own.pop(used, None)):
            continue
        theirs = [at.network for name in there.devices() if (at := _address(there, name))]
        speed = here.number(Known.INTERFACE_SPEED, used)
        for name, at in own.items():
            faster = here.number(Known.INTERFACE_SPEED, name) or 0.0
            is_alike = at.network == mine.network
            if is_alike or (speed and faster > speed and at.network in theirs):
                how = f"{speed:g} Gbit/s, " if speed else ""
                text = f"{here.host} sends to {there.host} by {used} ({how}{mine.ip})"
                rate = f"{faster:g} Gbit/s, " if faster else ""
                where = "is in the same subnet" if is_alike else "reaches it, too"
                yield Sign("", f"{text}; {name} ({rate}{at.ip}) {where}", host=here.host)


def node_settings_between(facts: Facts) -> Iterator[Sign]:
    """Yield the settings in which the two hosts of a job differ, once for each of them."""
    hosts = [of_host for of_host in facts.of_each_host if list(of_host)]
    if len(hosts) != 2:
        return
    texts = [{name: _common(of_host, name) for name in _COMMON} for of_host in hosts]
    found = [
        f"{name}: {texts[0][name] or 'none'} on {hosts[0].host}, "
        f"{texts[1][name] or 'none'} on {hosts[1].host}"
        for name in _COMMON
        if texts[0][name] is not None and texts[1][name] is not None and texts[0][name] != texts[1][name]
    ]
    if found:
        yield Sign("", "; ".join(found), host=hosts[0].host)


def _common(facts: Facts, name: Known) -> str | None:
    """The values of a fact of all devices of a host as a text; None if it is not known."""
    values = {
        ", ".join(fact.value) if isinstance(fact.value, tuple) else f"{fact.value:g}"
        if isinstance(fact.value, (int, float)) else fact.value
        for fact in facts if fact.name == name and fact.value is not None
    }  # fmt: skip
    return ", ".join(sorted(values)) if values else None


def nic_bond(machine: Machine, facts: Facts) -> Iterator[Sign]:
    """The bonds of which an interface has no link."""
    for device in facts.devices():
        if lost := facts.several(Known.BOND_WITHOUT_LINK, device):
            yield Sign("", f"{device}: {', '.join(lost)} without a link")
