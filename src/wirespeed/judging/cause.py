"""What a cause is: a record whose evidence yields the signs that the facts of a host contain.

Facts of a run: what the state of the hardware, read again and again, says about the whole of it.

What speaks for the causes of NICs. A sign lists the NICs of a host, because those of a job are many.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from ipaddress import IPv4Interface
from itertools import permutations

from ..document import Document, TestcaseResult, courses
from ..hardware.facts import COUNTED, OFF, ON, SEEN, Fact, Facts, Known
from ..hardware.network import MachineVertices
from ..hardware.topology import LinkKind, Machine
from ..tables import THROTTLED_BY, Quantity
from ..terminal import brief
from ..units import many, times


class Weight(StrEnum):
    """What a cause says of the machine on its own."""

    DEFECT = "defect"  #: wrong on any machine: reported even if nothing is slow
    BUSY = "busy"  #: another process uses a device: no defect, but reported, too
    NOTE = "note"  #: no defect, or not measured here, but worth knowing: reported, and changes no verdict
    CONDITION = "condition"  #: common on good machines: reported if it may explain slow cells


def heaviest(signs: Iterable[Sign], cause: Cause) -> Weight:
    """Return the heaviest weight of signs of a cause: a defect, then a device in use."""
    weights = {sign.weight or cause.weight for sign in signs}
    return next((weight for weight in Weight if weight in weights), cause.weight)


@dataclass(frozen=True)
class Sign:
    """Something in the facts that speaks for a cause.

    Attributes:
        device: Device that it is about; empty for the host.
        text: What was found, as a sentence without a full stop.
        weight: Whether it is a defect on its own; None for the weight of the cause.
        host: Host that it is about; empty for the host of the first process.
        at: PCI address for the command that confirms it; empty for that of the device.
        settings: Settings that it is about, ``NAME=value``: of the runs of a log, those with one of them.
    """

    device: str
    text: str
    weight: Weight | None = None
    host: str = ""
    at: str = ""
    settings: tuple[str, ...] = ()


def devices_at(machine: Machine, place: str, hosts: Collection[str]) -> set[tuple[str, str]]:
    """Return host and name of the GPUs at a place that facts are about; a NUMA node stands for itself.

    Facts name the hosts in ``hosts``, and always the first, whose name is empty.
    """
    vertices = MachineVertices(machine)
    there = vertices.gpus_at(place) or (vertices.of(place),)
    return {(vertex.host, vertex.device) for vertex in there if not vertex.host or vertex.host in hosts}


def speaking(
    signs: Iterable[Sign], machine: Machine, place: str, hosts: Collection[str], *, of_all: bool
) -> list[Sign]:
    """Return the signs of a cause that speak for it at a place: those about its host or a device there.

    With ``of_all``, signs of devices count only together: a slow GPU does not accuse its switch.
    """
    local = devices_at(machine, place, hosts)
    of_hosts = {(host, "") for host, _ in local}
    about = [sign for sign in signs if (sign.host, sign.device) in local | of_hosts or sign.device == place]
    is_partial = of_all and all(sign.device for sign in about)
    return [] if is_partial and not local <= {(sign.host, sign.device) for sign in about} else about


#: Yields what the facts of one host contain.
Evidence = Callable[[Machine, Facts], Iterator[Sign]]


@dataclass(frozen=True)
class Cause:
    """Something that makes paths slow.

    Attributes:
        name: Short name; also the anchor in ``docs/doctor.md``.
        title: What is the case, for people.
        weight: Whether it is a defect on its own.
        slows: Kinds of the links that it slows down.
        evidence: Yields what speaks for it, from the facts of one host.
        confirm: Command that confirms it, with the places of the device as in ``at_device``.
        remedy: What to do.
        collectives: Whether it slows only collectives down.
        shows: What the command shows then, for people; empty if that is plain.
        between: Yields what speaks for it in the facts of several hosts together, each with a host.
        setting: Whether the user, another process or the configuration of the host causes it, so that slow
            values are no failure of the hardware.
    """

    name: str
    title: str
    weight: Weight
    slows: frozenset[LinkKind]
    evidence: Evidence
    confirm: str
    remedy: str
    collectives: bool = False
    shows: str = ""
    between: Callable[[Facts], Iterator[Sign]] | None = None
    setting: bool = False

    def __repr__(self) -> str:
        return brief(f"Cause {self.name}: {self.title}")

    def signs(self, machine: Machine, facts: Facts) -> Iterator[Sign]:
        """Yield what speaks for it in the facts of all hosts, each with its host."""
        for of_host in facts.of_each_host:
            for sign in self.evidence(machine, of_host):
                yield replace(sign, host=of_host.host)
        if self.between:
            yield from self.between(facts)


#: Shortest time, in s, in which a share of throttled time means something.
_MIN_OBSERVED_S = 1.0
#: A counter of throttled time that increases faster than time, beyond this fraction, counts something else.
_TOO_FAST = 1.2


def facts_of(document: Document) -> Facts:
    """Return the facts of a Document: those that were read, and those of the run."""
    return Facts((*document.facts, *_increases(document), *_throttled(document), *_best(document)))


def _best(document: Document) -> Iterator[Fact]:
    """Yield the highest clocks and the fastest P-state of each GPU, while or just after it was measured."""
    for course in courses(document.testcases, SEEN):
        first = course[0]
        name, is_highest = SEEN[first.name]
        values = [reading.value for reading in course if isinstance(reading.value, (int, float))]
        if len(values) > 1:
            best = max(values) if is_highest else min(values)
            yield Fact(name, best, first.unit, first.device, host=first.host)


def _increases(document: Document) -> Iterator[Fact]:
    """Yield by how much the error counters of each GPU increased, of several of one kind the most."""
    increases: dict[tuple[str, str, Known], float] = {}
    for course in courses(document.testcases, COUNTED):
        first = course[0]
        if len(course) > 1 and (name := COUNTED.get(first.name)) is not None:
            key = (first.host, first.device, name)
            increases[key] = max(increases.get(key, 0.0), _increase(course))
    for (host, device, name), count in increases.items():
        yield Fact(name, count, device=device, host=host)


def _throttled(document: Document) -> Iterator[Fact]:
    """Yield how long each GPU of this host was throttled in the testcases that used it, and why."""
    observed: dict[str, float] = defaultdict(float)
    throttled: dict[str, dict[str, float]] = defaultdict(lambda: defaultdict(float))
    for result in document.testcases:
        counted: dict[str, dict[str, float]] = defaultdict(dict)
        for course in courses([result]):
            first = course[0]
            if first.name.startswith(THROTTLED_BY) and not first.host and len(course) > 1:
                counted[first.device][first.name.removeprefix(THROTTLED_BY)] = _increase(course)
        for device in counted.keys() & _used(document, result) if counted else ():
            observed[device] += result.seconds
            for reason, seconds in counted[device].items():
                throttled[device][reason] += seconds
    for device, seconds in observed.items():
        if seconds < _MIN_OBSERVED_S:
            continue
        times = {reason: time for reason, time in throttled[device].items() if time <= seconds * _TOO_FAST}
        reason = max(times, key=lambda reason: times[reason], default="")
        share = min(times.get(reason, 0.0) / seconds, 1.0)
        yield Fact(Known.THROTTLED_TIME, 100 * share, "%", device)
        yield Fact(Known.THROTTLED_BY, reason if share else "nothing", device=device)
        yield Fact(Known.OBSERVED, seconds, "s", device)


def _used(document: Document, result: TestcaseResult) -> set[str]:
    """Return the devices of this host whose links the cells of a testcase load."""
    links, vertices = document.machine.links, MachineVertices(document.machine)
    used = {link[0] for table in result.tables for cell in table.cells for link in cell.links}
    return {at.device for i in used for at in map(vertices.of, links[i].ends) if not at.host}


def _increase(course: Sequence[Quantity]) -> float:
    """Return the increase of a counter; 0 if it was reset."""
    numbers = [reading.value for reading in course if isinstance(reading.value, (int, float))]
    return max(0.0, numbers[-1] - numbers[0]) if numbers else 0.0


_ACTIVE, _INFINIBAND = "ACTIVE", "InfiniBand"
#: States of a port with a cable: a link exists, or is set up. Source: IBA specification, PortState and
#: PortPhysicalState.
_CONNECTED = {"INIT", "ARMED", "ACTIVE_DEFER", "LinkUp", "PortConfigurationTraining", "LinkErrorRecovery"}
#: Errors of a port during a run that are no defect: a crowded network loses some packets.
_FEW = 100
#: Errors of a port since its driver was loaded that need no note: some per day of a month.
_FEW_BEFORE = 1000
#: Number of NICs that are named in the evidence of errors.
_WORST = 3


def down(machine: Machine, facts: Facts) -> Iterator[Sign]:
    """Yield the ports that are not active although others of their link layer are."""
    states = {port: state for port in facts.devices() if (state := facts.text(Known.PORT_STATE, port))}
    layers = {port: facts.text(Known.PORT_LAYER, port) for port in states}
    by_sign: dict[tuple[Weight, str], list[str]] = defaultdict(list)
    for port, state in states.items():
        peers = [other for other in states if layers[other] == layers[port] and states[other] == _ACTIVE]
        if state != _ACTIVE and peers and (weight := _weight(facts, port, peers)):
            text = ", ".join(filter(None, (state, facts.text(Known.PORT_PHYSICAL, port))))
            text += f"; {many(len(peers), f'other {layers[port]} port')} active"
            by_sign[weight, text].append(port)
    for (weight, text), ports in by_sign.items():
        yield Sign("", f"{', '.join(ports)}: {text}", weight)


def _weight(facts: Facts, port: str, active: list[str]) -> Weight | None:
    """Return whether it is a defect that a port is not active; None if NCCL must not use it."""
    chosen = _chosen(facts, port)
    if chosen is False:
        return None
    if chosen or {facts.text(name, port) for name in (Known.PORT_STATE, Known.PORT_PHYSICAL)} & _CONNECTED:
        return Weight.DEFECT
    lost = bool(facts.number(Known.PORT_LOST, port))
    if facts.text(Known.PORT_LAYER, port) == _INFINIBAND:
        spare = _card(facts, port) in {_card(facts, other) for other in active}
        return Weight.CONDITION if spare and not lost else Weight.DEFECT
    return Weight.DEFECT if lost and facts.text(Known.PORT_INTERFACE, port) == ON else Weight.CONDITION


def _chosen(facts: Facts, port: str) -> bool | None:
    """Return whether NCCL_IB_HCA names a port; None if it does not say, or names a group of NICs.

    ``=`` in front of the list asks for whole names instead of their beginnings, ``^`` for all others.
    """
    value = _setting(facts, "NCCL_IB_HCA")
    if not (names := value.lstrip("^=")):
        return None
    others, exact, listed = value.startswith("^"), "=" in value[: -len(names)], names.split(",")
    if others is any(_is_named(port, entry, exact) for entry in listed):
        return False
    return True if not others and any(_is_named(port, entry, True) for entry in listed) else None


def _is_named(port: str, name: str, exact: bool) -> bool:
    """Return whether an entry of NCCL_IB_HCA, NIC or NIC:PORT, is about a port."""
    (nic, _, number), (named, _, only) = port.partition(":"), name.partition(":")
    return (nic == named if exact else nic.startswith(named)) and (not only or (number or "1") == only)


def _card(facts: Facts, port: str) -> str:
    """Return the PCI bus of the card of a port, which its functions share; else the name of the NIC."""
    nic = port.partition(":")[0]
    return facts.text(Known.NIC_ADDRESS, nic).rpartition(":")[0] or nic


def errors(machine: Machine, facts: Facts) -> Iterator[Sign]:
    """Yield the ports with errors, those with the most first: during the run, else before it."""
    for name, when in ((Known.PORT_RETRIED, "during"), (Known.PORT_ERRORS, "before")):
        counts = {port: count for port in facts.devices() if (count := facts.number(name, port))}
        worst = sorted(counts, key=lambda port: -counts[port])
        texts = [f"{port}: {_kinds(facts, name, port, counts[port])}" for port in worst[:_WORST]]
        if more := worst[_WORST:]:
            texts.append(f"{many(len(more), 'other port')} with up to {counts[more[0]]:.0f} errors each")
        during = name is Known.PORT_RETRIED
        if texts:
            often = counts[worst[0]] > (_FEW if during else _FEW_BEFORE)
            weight = (Weight.DEFECT if during else Weight.NOTE) if often else Weight.CONDITION
            yield Sign("", f"{'; '.join(texts)} {when} the run", weight)
            return


def _kinds(facts: Facts, name: Known, port: str, count: float) -> str:
    """Return the errors of a port by kind, as far as the kinds are known."""
    kinds = facts.several(Known.PORT_ERROR_KINDS, port) if name is Known.PORT_ERRORS else ()
    return ", ".join(kinds) or many(int(count), "error")


def pcie(machine: Machine, facts: Facts) -> Iterator[Sign]:
    """Yield the NICs with fewer lanes than both ends of a link support, and those at an older generation."""
    for now, possible, at, prefix, weight in (
        (Known.PCIE_WIDTH, Known.PCIE_WIDTH_POSSIBLE, Known.PCIE_NARROWEST, "x", Weight.DEFECT),
        (Known.PCIE_GENERATION, Known.PCIE_GENERATION_POSSIBLE, Known.NIC_ADDRESS, "generation ",
         Weight.NOTE),
    ):  # fmt: skip
        by_text: dict[str, list[str]] = defaultdict(list)
        for nic in _nics(facts):
            runs, most = facts.number(now, nic), facts.number(possible, nic)
            if runs and most and runs < most:
                text = f"{prefix}{runs:.0f}, both ends support {prefix}{most:.0f}"
                by_text[text].append(f"{nic} ({facts.text(at, nic)})")
        for text, nics in by_text.items():
            yield Sign("", f"{', '.join(nics)}: {text}", weight)


def plugin(machine: Machine, facts: Facts) -> Iterator[Sign]:
    """Yield that NCCL finds no plug-in on a host with EFA."""
    count = [facts.text(Known.NIC_DRIVER, nic) for nic in _nics(facts)].count("efa")
    missing = not facts.several(Known.NCCL_PLUGINS) and not facts.unreadable(Known.NCCL_PLUGINS)
    if count and machine.gpus and missing:
        elsewhere = facts.several(Known.NCCL_PLUGINS_ELSEWHERE)
        hint = f"; it does not search {', '.join(elsewhere)}" if elsewhere else ""
        yield Sign("", f"{many(count, 'EFA device')}, but the loader finds no libnccl-net*.so{hint}")


def _nics(facts: Facts) -> list[str]:
    return [device for device in facts.devices() if facts.text(Known.NIC_DRIVER, device)]


#: Speed in Gbit/s from which on packets of this size in bytes or less are small, and the size that RoCE needs
#: for its largest packets (4,096 bytes and their headers).
_FAST, _SMALL_MTU, _ROCE_MTU = 25, 1500, 4200


def endpoints(machine: Machine, facts: Facts) -> Iterator[Sign]:
    """Yield the active endpoints of a port of a card that carry nothing while another one of it does."""
    uses = {port: use for port in facts.devices() if (use := facts.text(Known.PORT_USED, port))}
    for port, use in uses.items():
        used = [
            other for other, of in uses.items() if of == ON and port_of(facts, other) == port_of(facts, port)
        ]
        if use == OFF and used and facts.text(Known.PORT_STATE, port) in ("", _ACTIVE):
            yield Sign("", f"{port} carries nothing, {', '.join(used)} of the same card and port all data")


def port_of(facts: Facts, port: str) -> str:
    """Return what the endpoints of one physical port have in common: the card and the PCI function.

    The endpoints of a card at several PCIe links have the same image GUID, and the function of its PCI
    address is the number of the port (ConnectX-7 of a DGX Spark: rocep1s0f0 and roceP2p1s0f0).
    """
    nic, _, number = port.partition(":")
    card, address = facts.text(Known.NIC_CARD, nic), facts.text(Known.NIC_ADDRESS, nic)
    return f"{card}.{address.rpartition('.')[2]}:{number}" if card and address else port


def small_packets(machine: Machine, facts: Facts) -> Iterator[Sign]:
    """Yield the fast ports and interfaces with a small MTU."""
    by_text: dict[str, list[str]] = defaultdict(list)
    for device in facts.devices():
        mtu, rate = facts.number(Known.PORT_MTU, device), facts.number(Known.PORT_RATE, device)
        if mtu and rate and rate >= _FAST and mtu < _ROCE_MTU and facts.text(Known.PORT_USED, device) != OFF:
            by_text[f"MTU {mtu:.0f} at {rate:.0f} Gbit/s"].append(device)
        own, speed = facts.number(Known.INTERFACE_MTU, device), facts.number(Known.INTERFACE_SPEED, device)
        if own and speed and speed >= _FAST and own <= _SMALL_MTU:
            by_text[f"MTU {own:.0f} at {speed:g} Gbit/s"].append(device)
    for text, devices in by_text.items():
        yield Sign("", f"{', '.join(devices)}: {text}")


def small_way(facts: Facts) -> Iterator[Sign]:
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
    """Return a number of the only interface by which a host reaches the other one."""
    return next((facts.number(name, device) for device in facts.devices() if facts.knows(name, device)), None)


def selection(machine: Machine, facts: Facts) -> Iterator[Sign]:
    """Yield the active ports that NCCL_IB_HCA leaves out, and a GID that is none of RoCE v2."""
    ports = [port for port in facts.devices() if facts.text(Known.PORT_STATE, port) == _ACTIVE]
    out = [port for port in ports if _chosen(facts, port) is False]
    if out:
        yield Sign("", f"NCCL_IB_HCA leaves out {', '.join(out)}")
    index = _setting(facts, "NCCL_IB_GID_INDEX")
    for port in ports if index.isdecimal() else ():
        gids = dict(text.split(": ", 1) for text in facts.several(Known.PORT_GIDS, port) if ": " in text)
        if gids and facts.text(Known.PORT_LAYER, port) == "Ethernet" and gids.get(index) != _ROCE_2:
            best = [number for number, kind in gids.items() if kind == _ROCE_2]
            hint = f"; RoCE v2 has {', '.join(best)}" if best else ""
            yield Sign("", f"NCCL_IB_GID_INDEX={index} is {gids.get(index, 'no GID')} of {port}{hint}")


_ROCE_2 = "RoCE v2"


def _setting(facts: Facts, name: str) -> str:
    """Return the value of a setting of NCCL, first of the environment; empty if it is not set."""
    for setting in facts.several(Known.NCCL_VARIABLES):
        key, _, value = setting.rpartition(": ")[2].partition("=")
        if key == name and value.strip():
            return value.strip()
    return ""


def far(machine: Machine, facts: Facts) -> Iterator[Sign]:
    """Yield the NICs whose NUMA node is unknown on a host with several, or differs from that of all GPUs."""
    nodes = {f"{gpu.numa}" for gpu in machine.gpus if gpu.numa is not None}
    online = facts.number(Known.NODES_ONLINE) or 0
    for nic in _nics(facts):
        node = facts.text(Known.NUMA_NODE, nic)
        if online > 1 and node == "unknown":
            yield Sign("", f"{nic}: its NUMA node is unknown")
        elif online > 1 and node and nodes and node not in nodes:
            yield Sign("", f"{nic} is at NUMA node {node}, the GPUs at {', '.join(sorted(nodes))}")


def whole_sockets(machine: Machine, facts: Facts) -> Iterator[Sign]:
    """Yield that sockets of AMD are one NUMA node each, and GPUs reach NICs through the CPU, not a switch."""
    gpus = [gpu.name for gpu in machine.gpus if facts.text(Known.SWITCH, gpu.name) == "none"]
    is_amd = "AMD" in facts.text(Known.CPU_DESIGN)
    if is_amd and gpus and _nics(facts) and facts.number(Known.NODES_PER_SOCKET) == 1:
        below = f"{', '.join(gpus)} below {'a root port' if len(gpus) == 1 else 'root ports'} of an AMD CPU"
        yield Sign("", f"1 NUMA node per socket, {below}")


def lost_links(machine: Machine, facts: Facts) -> Iterator[Sign]:
    """Yield the network interfaces that lost their links during the run."""
    for device in facts.devices():
        if count := facts.number(Known.INTERFACE_LOST, device):
            yield Sign("", f"{device}: {times(int(count))}")


#: Kinds of interfaces that forward packets by software.
_SOFTWARE = ("bridge", "tun", "wireguard", "vxlan", "geneve", "macvlan", "ipvlan")


def detour(machine: Machine, facts: Facts) -> Iterator[Sign]:
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


def ways(facts: Facts) -> Iterator[Sign]:
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


#: Facts that should be the same on all hosts of a job.
_COMMON = (
    Known.NCCL_VARIABLES, Known.DRIVER_KERNEL, Known.NIC_FIRMWARE, Known.PEERMEM, Known.GOVERNOR,
    Known.NODES_PER_SOCKET, Known.IOMMU, Known.PORT_MTU, Known.INTERFACE_MTU,
)  # fmt: skip


def differing(facts: Facts) -> Iterator[Sign]:
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
    """Return the values of a fact of all devices of a host as a text; None if it is not known."""
    values = {
        ", ".join(fact.value) if isinstance(fact.value, tuple) else f"{fact.value:g}"
        if isinstance(fact.value, (int, float)) else fact.value
        for fact in facts if fact.name == name and fact.value is not None
    }  # fmt: skip
    return ", ".join(sorted(values)) if values else None
