"""The effects of causes of slow paths on a machine, and what its system then reports. Pure: ``doctor``
predicts every measured value from a changed machine, and simulated machines behave like it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from dataclasses import replace

import msgspec

from ..terminal import meant
from ..units import GIB
from .facts import Fact, FactValue, Known
from .link_graph import MachineVertices, nvlinks_of
from .topology import Link, LinkKind, Machine

#: Memory clock and memory of a controller that simulated systems report.
USUAL_CLOCK_HZ, CONTROLLER_BYTES = 1.5e9, 64 * GIB


class ReportedFact(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A fact that a machine reports if a cause is there.

    Attributes:
        fact: Name of the fact.
        value: Its value; None for the amount of the cause.
        by: Name of the function that makes the value of the amount; empty if there is none.
        unit: Unit of the value.
        at: Places: ``gpus`` for each GPU at the place of the cause, empty for the host; in clusters, devices
            and endpoints of NICs, too.
    """

    fact: Known
    value: int | FactValue = None
    by: str = ""
    unit: str = ""
    at: str = ""


class Effect(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What a cause does to a machine. Functions of this module have the names that the fields give.

    Attributes:
        where: Function that returns every place where it can be: a device, a switch, or empty for the whole
            machine.
        does: Function that returns the machine as it behaves then, for a place and a factor of the speed.
        of: Kind of the links that its places have; None if ``where`` asks for none.
        links: Kinds of the links that it slows down, if ``does`` is ``slower``.
        reports: Facts that the system reports then.
        reporter: Function that yields further ones, for a place and an amount; empty if there is none.
        amounts: Possible amounts; empty if the amount may be any factor between 0 and 1.
        speed: Function that returns the factor of the speed for a place and an amount; empty if the amount
            is the factor.
        usual: Amount if none is given.
        collectives: Whether it affects only collectives.
        reroutes: Whether data takes another route, which is harder to predict than a slower link.
        partial: Whether it may slow only some of the links of its place.
        witnesses: Facts of a device each of which, where it is known and does not speak for the cause, rules
            it out.
        name: Name of the cause.
    """

    where: str
    does: str
    of: LinkKind | None = None
    links: tuple[LinkKind, ...] = ()
    reports: tuple[ReportedFact, ...] = ()
    reporter: str = ""
    amounts: tuple[float, ...] = ()
    speed: str = ""
    usual: float = 0.5
    collectives: bool = False
    reroutes: bool = False
    partial: bool = False
    witnesses: tuple[Known, ...] = ()
    name: str = ""

    def __post_init__(self) -> None:
        named: list[tuple[str, str, Collection[str]]] = [
            ("where", self.where, _WHERE), ("does", self.does, _DOES), ("speed", self.speed, {"", *_SPEEDS}),
            ("reporter", self.reporter, {"", *_REPORTERS}),
            *(("by", change.by, {"", *_VALUES}) for change in self.reports),
        ]  # fmt: skip
        for field, name, known in named:
            if name not in known:
                names = sorted(filter(None, known))
                raise ValueError(f"{field} is {name!r}{meant(name, names)}; write one of {', '.join(names)}")
        if self.of is None and self.where in _OF_LINKS:
            raise ValueError(f"{self.where!r} requires the kind of the links: add of")
        if not (self.reports or self.reporter):
            raise ValueError("it reports nothing; add reports or reporter")

    def places(self, machine: Machine) -> tuple[str, ...]:
        """Every place where it can be: a device, a switch, or empty for the whole machine."""
        if self.of is not None and (of_links := _OF_LINKS.get(self.where)):
            return of_links(machine, self.of)
        return _WHERE[self.where](machine)

    def apply(self, machine: Machine, place: str, factor: float) -> Machine:
        """The machine as it behaves then."""
        if self.does == _SLOWER:
            return _slower(machine, place, factor, self.links)
        return _DOES[self.does](machine, place, factor)

    def factor(self, machine: Machine, place: str, amount: float) -> float:
        """The factor of the speed."""
        return _SPEEDS[self.speed](machine, place, amount) if self.speed else amount

    def facts(self, machine: Machine, place: str, amount: float) -> Iterator[Fact]:
        """Yield what the system reports if it is at a place, by an amount."""
        for change in self.reports:
            value = _VALUES[change.by](amount) if change.by else change.value
            value = amount if value is None else value
            gpus = [gpu.device for gpu in MachineVertices(machine).gpus_at(place)] if change.at else [""]
            for device in gpus:
                yield Fact(change.fact, value, change.unit, device)
        if self.reporter:
            yield from _REPORTERS[self.reporter](machine, place, amount)


def _gpus(machine: Machine) -> tuple[str, ...]:
    return tuple(gpu.name for gpu in MachineVertices(machine).gpus)


def _sockets(machine: Machine) -> tuple[str, ...]:
    return tuple(node.name for node in machine.numa if machine.links_at(f"{node.name}-{node.name}"))


def _several_sockets(machine: Machine) -> tuple[str, ...]:
    return _sockets(machine) if len(machine.numa) > 1 else ()


def _everywhere(machine: Machine, kind: LinkKind) -> tuple[str, ...]:
    return ("",) if any(link.kind is kind for link in machine.links) else ()


def _with(machine: Machine, kind: LinkKind) -> tuple[str, ...]:
    """The GPUs with links of a kind."""
    ends = {end for link in machine.links if link.kind is kind for end in link.ends}
    return tuple(gpu for gpu in _gpus(machine) if gpu in ends)


def _everywhere_and_with(machine: Machine, kind: LinkKind) -> tuple[str, ...]:
    return (*_everywhere(machine, kind), *_with(machine, kind))


def _several_with(machine: Machine, kind: LinkKind) -> tuple[str, ...]:
    return ("",) if len(_with(machine, kind)) > 1 else ()


def _switches(machine: Machine) -> tuple[str, ...]:
    ends = {end for link in machine.links if link.kind is LinkKind.PCIE for end in link.ends}
    return tuple(sorted(ends - set(_gpus(machine)) - {node.name for node in machine.numa}))


def root_port(index: int) -> str:
    """The address of the root port above a GPU of a simulated machine."""
    return f"0000:00:{index + 1:02x}.1"


def _isolating(machine: Machine) -> tuple[str, ...]:
    """The switches; without any, the whole machine: its root ports."""
    return _switches(machine) or (("",) if len(_with(machine, LinkKind.PCIE)) > 1 else ())


def _slots(machine: Machine) -> tuple[str, ...]:
    """What has a PCIe link towards the host: GPUs and switches."""
    return (*_with(machine, LinkKind.PCIE), *_switches(machine))


def scaled(machine: Machine, chosen: Collection[int], factor: float) -> Machine:
    """A machine with some links at a fraction of their capacity."""
    links = tuple(
        replace(link, capacity=link.capacity * factor) if i in chosen and link.capacity else link
        for i, link in enumerate(machine.links)
    )
    return replace(machine, links=links)


def _slower(machine: Machine, place: str, factor: float, kinds: Collection[LinkKind] = ()) -> Machine:
    """Slow down the links of some kinds at a place, or everywhere."""
    chosen = {i for i, link in enumerate(machine.links) if link.kind in kinds and place in ("", *link.ends)}
    return scaled(machine, chosen, factor)


def _upwards(machine: Machine, place: str, factor: float) -> Machine:
    """Slow down the PCIe link of a GPU or switch towards the host."""
    gpus = set(_gpus(machine)) - {place}
    chosen = {
        i
        for i, link in enumerate(machine.links)
        if link.kind is LinkKind.PCIE and place in link.ends
        and gpus.isdisjoint(link.ends)
    }  # fmt: skip
    return scaled(machine, chosen, factor)


def _memory_of_gpus(machine: Machine, place: str, factor: float) -> Machine:
    chosen = {
        machine.links_at(f"{gpu.name}-{gpu.name}")[0] for gpu in MachineVertices(machine).gpus_at(place)
    }
    return scaled(machine, chosen, factor)


def _memory_of_sockets(machine: Machine, place: str, factor: float) -> Machine:
    chosen = {machine.links_at(f"{node}-{node}")[0] for node in ([place] if place else _sockets(machine))}
    return scaled(machine, chosen, factor)


def _split(machine: Machine, place: str, factor: float) -> Machine:
    """Send traffic between the devices below a switch through the root: it enters and leaves separately.

    Traffic between root ports goes there anyway.
    """
    if not place:
        return machine
    up, down, below = f"{place} up", f"{place} down", set(_gpus(machine))

    def moved(link: Link) -> Link:
        if link.destination == place:
            return replace(link, destination=up if link.source in below else down)
        if link.source == place:
            return replace(link, source=down if link.destination in below else up)
        return link

    return replace(machine, links=tuple(map(moved, machine.links)))


#: Rate of a connection within a root complex that limits nothing, in B/s.
_UNLIMITED = 1e15


def _translated(machine: Machine, place: str, factor: float) -> Machine:
    """Send traffic between PCIe devices through translation, at a fraction of the rate of a PCIe link."""
    nodes = {node.name for node in machine.numa}
    links: list[Link] = []
    fastest = 0.0
    for link in machine.links:
        if link.kind is LinkKind.PCIE and link.destination in nodes:
            link = replace(link, destination=f"{link.destination} in")
            fastest = max(fastest, link.capacity or 0.0)
        elif link.kind is LinkKind.PCIE and link.source in nodes:
            link = replace(link, source=f"{link.source} out")
        links.append(link)
    for node in sorted(nodes):
        ways = ((f"{node} in", node), (node, f"{node} out"))
        links += [Link(*ends, LinkKind.PCIE, _UNLIMITED, latency=0.0) for ends in ways]
        links += [
            Link(f"{node} in", f"{other} out", LinkKind.PCIE, fastest * factor or None, latency=0.0)
            for other in sorted(nodes)
        ]
    return replace(machine, links=tuple(links))


def _moved(machine: Machine, place: str, factor: float) -> Machine:
    """Attach a GPU to the other socket."""
    device = MachineVertices(machine).of(place).device
    own = next((gpu.numa for gpu in machine.gpus if gpu.name == device), None)
    others = [node.name for node in machine.numa if node.index != own]

    def moved(link: Link) -> Link:
        if link.kind is not LinkKind.PCIE or place not in link.ends:
            return link
        ends = (place, others[-1]) if link.source == place else (others[-1], place)
        return replace(link, source=ends[0], destination=ends[1])

    return replace(machine, links=tuple(map(moved, machine.links)))


def _movable(machine: Machine) -> tuple[str, ...]:
    connected = any(link.kind is LinkKind.SOCKET for link in machine.links)
    return _with(machine, LinkKind.PCIE) if connected and len(machine.numa) > 1 else ()


def _without_nvlink(machine: Machine, place: str, factor: float) -> Machine:
    """Disconnect NVLinks; the other links keep their indices."""
    links = tuple(
        replace(link, source="none", destination="nothing")
        if link.kind is LinkKind.NVLINK and place in ("", *link.ends)
        else link
        for link in machine.links
    )
    return replace(machine, links=links)


def _replaceable(machine: Machine) -> tuple[str, ...]:
    """The whole machine if all GPUs reach each other by PCIe, too."""
    by_pcie = set(_with(machine, LinkKind.PCIE))
    linked = _with(machine, LinkKind.NVLINK)
    return ("",) if linked and by_pcie.issuperset(linked) else ()


def _each_replaceable(machine: Machine) -> tuple[str, ...]:
    return ("", *_with(machine, LinkKind.NVLINK)) if _replaceable(machine) else ()


def _host_nodes(machine: Machine) -> tuple[str, ...]:
    return ("",) if _sockets(machine) else ()


def generation_of(machine: Machine, place: str) -> int:
    """The PCIe generation of 16 lanes at the rate of a device's or switch's link; 0 if unknown."""
    links = (link for link in machine.links if link.kind is LinkKind.PCIE and link.source == place)
    fastest = max((link.capacity or 0.0 for link in links), default=0.0)
    generations = {3: 15.75e9, 4: 31.5e9, 5: 63e9, 6: 121e9}
    return next((n for n, rate in generations.items() if 0 < fastest < rate * 1.3), 0)


def _of_generation(machine: Machine, place: str, amount: float) -> float:
    own = generation_of(machine, place)
    return float(2.0 ** (amount - own)) if 0 < amount < own else 1.0


def _of_links(machine: Machine, place: str, amount: float) -> float:
    """The fraction that some active links are; an amount below 1 is a fraction itself."""
    if amount < 1:
        return amount
    return amount / (nvlinks_of(machine, MachineVertices(machine).of(place).device) or 18)


def _of_isolation(machine: Machine, place: str, amount: float) -> Iterator[Fact]:
    for device in machine.gpus if not place else ():
        yield Fact(Known.IOMMU_GROUP, f"{20 + device.index}", device=device.name)
        yield Fact(Known.BRIDGE_GROUPS, (f"{10 + device.index}",), device=device.name)
        yield Fact(Known.ACS_REDIRECTS, (root_port(device.index),), device=device.name)
    if not place:
        return
    for i, gpu in enumerate(MachineVertices(machine).gpus_at(place)):
        yield Fact(Known.SWITCH, place, device=gpu.device)
        yield Fact(Known.IOMMU_GROUP, f"{place} {i}", device=gpu.device)


def _of_missing_links(machine: Machine, place: str, amount: float) -> Iterator[Fact]:
    for gpu in MachineVertices(machine).gpus_at(place):
        count = nvlinks_of(machine, gpu.device) or 18
        active = round(count * _of_links(machine, place, amount))
        yield Fact(Known.NVLINKS, active, device=gpu.device)
        yield Fact(Known.NVLINKS_INACTIVE, count - active, device=gpu.device)


def _of_dimms(machine: Machine, place: str, amount: float) -> Iterator[Fact]:
    for node in machine.numa:
        if node.name == place:
            yield Fact(Known.DIMM_BYTES, CONTROLLER_BYTES * amount / 8, "B", f"mc{node.index}")


def _of_cpus(machine: Machine, place: str, amount: float) -> Iterator[Fact]:
    yield Fact(Known.CPUS, round(amount * sum(len(node.cpus) for node in machine.numa)))


def _unchanged(machine: Machine, place: str, factor: float) -> Machine:
    return machine


#: Value of ``does`` for the function that needs kinds of links.
_SLOWER = "slower"
#: Names in ``causes.toml`` -> functions: places with links of a kind, and all places.
_OF_LINKS = {
    "everywhere": _everywhere, "with_links": _with, "everywhere_and_with_links": _everywhere_and_with,
    "several_with_links": _several_with,
}  # fmt: skip
_WHERE: dict[str, Callable[..., tuple[str, ...]]] = {
    "gpus": _gpus, "several_sockets": _several_sockets, "host_nodes": _host_nodes, "slots": _slots,
    "isolating": _isolating, "movable": _movable, "replaceable": _replaceable,
    "each_replaceable": _each_replaceable, **_OF_LINKS,
}  # fmt: skip
_DOES: dict[str, Callable[[Machine, str, float], Machine]] = {
    _SLOWER: _slower, "upwards": _upwards, "memory_of_gpus": _memory_of_gpus,
    "memory_of_sockets": _memory_of_sockets, "split": _split, "translated": _translated, "moved": _moved,
    "without_nvlink": _without_nvlink, "unchanged": _unchanged,
}  # fmt: skip
#: Names of what an amount does to the speed -> functions.
_SPEEDS: dict[str, Callable[[Machine, str, float], float]] = {
    "of_nvlinks": _of_links,
    "of_generation": _of_generation,
    "of_16_lanes": lambda machine, place, lanes: lanes / 16,
    "of_8_modules": lambda machine, place, count: count / 8,
    "of_nodes": lambda machine, place, nodes: 1 / nodes,
}
_REPORTERS: dict[str, Callable[[Machine, str, float], Iterator[Fact]]] = {
    "isolation": _of_isolation, "missing_nvlinks": _of_missing_links, "fewer_modules": _of_dimms,
    "fewer_cpus": _of_cpus,
}  # fmt: skip
#: Names of values of facts -> functions of the amount.
_VALUES: dict[str, Callable[[float], FactValue]] = {
    "lost_percent": lambda factor: round(100 * (1 - factor)),
    "lost_time": lambda factor: 100 * (1 - factor),
    "nvlink_mode": lambda factor: "half" if factor <= 0.5 else "3/4",
    "usual_clock": lambda factor: factor * USUAL_CLOCK_HZ,
}
