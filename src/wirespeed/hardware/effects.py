"""The effects of causes of slow paths on a machine, and what its system then reports. Pure: ``doctor``
predicts every measured value from a changed machine, and simulated machines behave like it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, replace
from typing import Any

from ..units import GIB, MIB
from .facts import NO_HUGE_PAGES, ON, Fact, Known
from .network import MachineVertices, nvlinks_of
from .topology import Link, LinkKind, Machine

#: Memory clock and memory of a controller that simulated systems report.
USUAL_CLOCK_HZ, CONTROLLER_BYTES = 1.5e9, 64 * GIB
#: Returns every place where a cause can be: a device, a switch, or empty for the whole machine.
Places = Callable[[Machine], tuple[str, ...]]

#: Value of a fact.
Value = float | str | tuple[str, ...]
#: Yields what the system reports if a cause is at a place, by an amount.
Reports = Callable[[Machine, str, float], Iterator[Fact]]


@dataclass(frozen=True)
class Effect:
    """What a cause does to a machine.

    Attributes:
        name: Name of the cause.
        places: Returns the places where it can be.
        apply: Returns the machine as it behaves then, for a place and a factor of the speed.
        facts: Yields what the system reports then, for a place and an amount.
        amounts: Possible amounts; empty if the amount may be any factor between 0 and 1.
        factor: Returns the factor of the speed for a place and an amount.
        usual: Amount if none is given.
        collectives: Whether it affects only collectives.
        reroutes: Whether data takes another route, which is harder to predict than a slower link.
        partial: Whether it may slow only some of the links of its place.
        witnesses: Facts of a device each of which, where it is known and does not speak for the cause, rules
            it out.
    """

    name: str
    places: Places
    apply: Callable[[Machine, str, float], Machine]
    facts: Reports
    amounts: tuple[float, ...] = ()
    factor: Callable[[Machine, str, float], float] = lambda machine, place, amount: amount
    usual: float = 0.5
    collectives: bool = False
    reroutes: bool = False
    partial: bool = False
    witnesses: tuple[str, ...] = ()


def _gpus(machine: Machine) -> tuple[str, ...]:
    return tuple(gpu.name for gpu in MachineVertices(machine).gpus)


def _sockets(machine: Machine) -> tuple[str, ...]:
    return tuple(node.name for node in machine.numa if machine.links_at(f"{node.name}-{node.name}"))


def _everywhere(kind: LinkKind) -> Places:
    return lambda machine: ("",) if any(link.kind is kind for link in machine.links) else ()


def _with(kind: LinkKind) -> Places:
    """The GPUs with links of a kind."""

    def places(machine: Machine) -> tuple[str, ...]:
        ends = {end for link in machine.links if link.kind is kind for end in link.ends}
        return tuple(gpu for gpu in _gpus(machine) if gpu in ends)

    return places


def _switches(machine: Machine) -> tuple[str, ...]:
    ends = {end for link in machine.links if link.kind is LinkKind.PCIE for end in link.ends}
    return tuple(sorted(ends - set(_gpus(machine)) - {node.name for node in machine.numa}))


def root_port(index: int) -> str:
    """The address of the root port above a GPU of a simulated machine."""
    return f"0000:00:{index + 1:02x}.1"


def _isolating(machine: Machine) -> tuple[str, ...]:
    """The switches; without any, the whole machine: its root ports."""
    return _switches(machine) or (("",) if len(_with(LinkKind.PCIE)(machine)) > 1 else ())


def _slots(machine: Machine) -> tuple[str, ...]:
    """What has a PCIe link towards the host: GPUs and switches."""
    return (*_with(LinkKind.PCIE)(machine), *_switches(machine))


def scaled(machine: Machine, chosen: Collection[int], factor: float) -> Machine:
    """A machine with some links at a fraction of their capacity."""
    links = tuple(
        replace(link, capacity=link.capacity * factor) if i in chosen and link.capacity else link
        for i, link in enumerate(machine.links)
    )
    return replace(machine, links=links)


def _slower(*kinds: LinkKind) -> Callable[[Machine, str, float], Machine]:
    """A function that slows down the links of some kinds at a place, or everywhere."""

    def apply(machine: Machine, place: str, factor: float) -> Machine:
        chosen = {
            i for i, link in enumerate(machine.links) if link.kind in kinds and place in ("", *link.ends)
        }
        return scaled(machine, chosen, factor)

    return apply


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
    return _with(LinkKind.PCIE)(machine) if connected and len(machine.numa) > 1 else ()


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
    by_pcie = set(_with(LinkKind.PCIE)(machine))
    linked = _with(LinkKind.NVLINK)(machine)
    return ("",) if linked and by_pcie.issuperset(linked) else ()


def _each_replaceable(machine: Machine) -> tuple[str, ...]:
    return ("", *_with(LinkKind.NVLINK)(machine)) if _replaceable(machine) else ()


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


def _host(name: Known, value: Callable[[float], Value]) -> Reports:
    """A function that reports a fact of the host."""

    def facts(machine: Machine, place: str, amount: float) -> Iterator[Fact]:
        yield Fact(name, value(amount))

    return facts


def _each(name: Known, value: Callable[[float], Value], unit: str = "") -> Reports:
    """A function that reports a fact of every GPU at a place."""

    def facts(machine: Machine, place: str, amount: float) -> Iterator[Fact]:
        for gpu in MachineVertices(machine).gpus_at(place):
            yield Fact(name, value(amount), unit, gpu.device)

    return facts


def _together(*several: Reports) -> Reports:
    """A function that reports several facts."""

    def facts(machine: Machine, place: str, amount: float) -> Iterator[Fact]:
        for reports in several:
            yield from reports(machine, place, amount)

    return facts


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


_PCIE, _NVLINK = LinkKind.PCIE, LinkKind.NVLINK
#: Amount and usual amount of what is there, or is not.
_WHOLE: dict[str, Any] = {"amounts": (1.0,), "usual": 1.0}
#: All effects, with the names of their causes.
EFFECTS = {effect.name: effect for effect in (
    Effect("fabric", _each_replaceable, _without_nvlink, _each(Known.FABRIC, lambda _: "not started"),
           **_WHOLE, reroutes=True),
    Effect("nvlinks", _with(_NVLINK), _slower(_NVLINK), _of_missing_links, factor=_of_links),
    Effect("pcie-width", _slots, _upwards, _each(Known.PCIE_WIDTH, lambda lanes: lanes), (8.0, 4.0, 2.0, 1.0),
           lambda machine, place, lanes: lanes / 16, 8.0, witnesses=(Known.PCIE_WIDTH_LOADED,)),
    Effect("pcie-generation", _slots, _upwards, _each(Known.PCIE_GENERATION_LOADED, lambda n: n),
           (5.0, 4.0, 3.0, 2.0, 1.0), _of_generation, 3.0),
    Effect("throttled", _gpus, _memory_of_gpus, _together(
        _each(Known.THROTTLED_TIME, lambda f: round(100 * (1 - f)), "%"),
        _each(Known.THROTTLED_BY, lambda _: "thermal slowdown"))),
    Effect("bandwidth-mode", lambda machine: (*_everywhere(_NVLINK)(machine), *_with(_NVLINK)(machine)),
           _slower(_NVLINK), _each(Known.BANDWIDTH_MODE, lambda f: "half" if f <= 0.5 else "3/4"),
           (0.75, 0.5)),
    Effect("nccl-disabled", _replaceable, _without_nvlink, _together(
        _host(Known.NCCL_VARIABLES, lambda _: ("NCCL_P2P_DISABLE=1",)),
        _host(Known.NCCL_TRANSPORTS, lambda _: ("SHM/direct",))), **_WHOLE, collectives=True, reroutes=True),
    Effect("nccl-settings", _everywhere(_NVLINK), _slower(_NVLINK, _PCIE),
           _host(Known.NCCL_VARIABLES, lambda _: ("NCCL_MAX_NCHANNELS=1",)), collectives=True),
    Effect("busy-gpu", _gpus, _slower(*LinkKind), _together(
        _each(Known.UTILISATION, lambda f: round(100 * (1 - f)), "%"),
        _each(Known.PROCESSES, lambda _: 1)), partial=True),
    Effect("busy-cpus", _host_nodes, _memory_of_sockets, _host(Known.PRESSURE, lambda f: 100 * (1 - f))),
    Effect("pcie-errors", _with(_PCIE), _upwards, _each(Known.PCIE_FAILED, lambda _: 20.0), usual=0.9),
    Effect("nvlink-errors", _with(_NVLINK), _slower(_NVLINK), _each(Known.NVLINK_RETRIED, lambda _: 4000.0),
           usual=0.9),
    Effect("dimms", lambda machine: _sockets(machine) if len(machine.numa) > 1 else (), _memory_of_sockets,
           _of_dimms, tuple(float(k) for k in range(1, 8)), lambda machine, place, count: count / 8, 4.0),
    Effect("confined", _host_nodes, _memory_of_sockets, _of_cpus),
    Effect("acs", _isolating, _split, _of_isolation, **_WHOLE, reroutes=True),
    Effect("iommu", lambda machine: ("",) if len(_with(_PCIE)(machine)) > 1 else (), _translated,
           _host(Known.IOMMU, lambda _: ("DMA-FQ",)), usual=0.3, reroutes=True),
    Effect("wrong-numa", _movable, _moved, _each(Known.NUMA_NODE, lambda _: "unknown"), **_WHOLE,
           reroutes=True),
    Effect("bar1", _with(_PCIE), _unchanged, _each(Known.BAR1, lambda _: 256.0 * MIB, "B"), **_WHOLE),
    Effect("lowered", _gpus, _memory_of_gpus, _each(Known.MEMORY_CLOCK, lambda f: f * USUAL_CLOCK_HZ)),
    Effect("nvlinks-inactive", _everywhere(_NVLINK), _slower(_NVLINK), _of_missing_links, factor=_of_links),
    Effect("confidential", _everywhere(_PCIE), _slower(_PCIE), _each(Known.CONFIDENTIAL, lambda _: ON)),
    Effect("huge-pages", _everywhere(_PCIE), _slower(_PCIE),
           _host(Known.HUGE_PAGES, lambda _: NO_HUGE_PAGES)),
    Effect("nodes-per-socket", _host_nodes, _memory_of_sockets, _host(Known.NODES_PER_SOCKET, lambda n: n),
           (2.0, 4.0), lambda machine, place, nodes: 1 / nodes, 4.0),
    Effect("mig", _gpus, _unchanged, _each(Known.MIG, lambda _: ON), **_WHOLE),
    Effect("ecc", _gpus, _unchanged, _each(Known.REMAP_PENDING, lambda _: ON), **_WHOLE),
    Effect("shm", _everywhere(LinkKind.MEMORY), _unchanged, _host(Known.SHM, lambda _: 64.0 * MIB), **_WHOLE),
)}  # fmt: skip
