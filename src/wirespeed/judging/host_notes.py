"""Notes of slots, drives, NICs and the platform: parts that are slow without a fault, or not measured."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator

from ..data import cpu_sheet
from ..hardware.facts import OFF, WSL, Facts, Known
from ..hardware.topology import Machine
from ..statistics import grouped
from ..units import GB, some
from .cause import Sign, Weight

_ACTIVE, _ETHERNET = "ACTIVE", "Ethernet"
#: Gbit/s in bytes per second.
_GBIT = 1e9 / 8
#: Maximum number of devices that a text names.
_NAMED = 4
#: Corrected errors of a PCIe link since the start of the system happen up to this number.
CORRECTED = 1000
#: Variable of NCCL, and the interface that it must not use between hosts.
_INTERFACES, _LOOPBACK = "NCCL_SOCKET_IFNAME", "lo"


def address_of(machine: Machine, facts: Facts, device: str) -> str:
    """The PCI address of a GPU, NIC or drive; empty if it is unknown."""
    gpus = {gpu.name: f"{gpu.bus_id[4:]}.0" for gpu in machine.gpus if gpu.bus_id and not facts.host}
    known = (facts.text(name, device) for name in (Known.NIC_ADDRESS, Known.DRIVE_ADDRESS))
    return gpus.get(device, "") or next(filter(None, known), "")


def place_of(machine: Machine, device: str, address: str) -> str:
    """Where a link is, by the address of its lower end: a vertex of the machine, else the device below it."""
    vertex = f"pcie:{address}"
    return vertex if any(vertex in link.ends for link in machine.links) else device


def slots(machine: Machine, facts: Facts) -> Iterator[Sign]:
    """The devices that a slot, a switch or a chipset limits; a link that several share counts once."""
    by_link: dict[tuple[str, str, str], list[str]] = defaultdict(list)
    unequal = {nic for lanes in _unequal(facts) for nic in lanes}
    for device in facts.devices():
        at, rate = facts.text(Known.PCIE_LIMITING, device), facts.number(Known.PCIE_LIMITING_RATE, device)
        if not at or not rate or device in unequal or not _matters(facts, device, rate):
            continue
        is_own = at == address_of(machine, facts, device)
        kind, own_kind = (facts.text(name, device) for name in (Known.PCIE_LIMITING_KIND, Known.PCIE_KIND))
        by_link["" if is_own else at, kind, own_kind].append(device)
    for (shared, kind, own_kind), devices in by_link.items():
        rate = facts.number(Known.PCIE_LIMITING_RATE, devices[0]) or 0.0
        names, one = some(devices, _NAMED), len(devices) == 1
        link = f"the link of {shared} above {names}" if shared else f"the slot{'s' * (not one)} of {names}"
        text = (
            f"{link} {'offers' if one or shared else 'offer'} {kind}, at most {rate / GB:.1f} GB/s in each "
            f"direction; the device{'s' * (not one)} could use {own_kind}"
        )
        yield Sign(devices[0] if one else "", text, at=facts.text(Known.PCIE_LIMITING, devices[0]))


def _matters(facts: Facts, device: str, rate: float) -> bool:
    """Whether the link of a device limits it: that of a NIC does if its ports are faster."""
    if not facts.text(Known.NIC_DRIVER, device):
        return True
    ports = (port for port in facts.devices() if port.partition(":")[0] == device)
    return rate < _GBIT * sum(facts.number(Known.PORT_RATE, port) or 0.0 for port in ports)


def drives(machine: Machine, facts: Facts) -> Iterator[Sign]:
    """The NVMe drives whose links run at fewer lanes or an older generation than both ends support."""
    for drive in facts.devices():
        if not (at := facts.text(Known.DRIVE_ADDRESS, drive)):
            continue
        lanes, most = (facts.number(name, drive) for name in (Known.PCIE_WIDTH, Known.PCIE_WIDTH_POSSIBLE))
        now, best = (
            facts.number(name, drive) for name in (Known.PCIE_GENERATION, Known.PCIE_GENERATION_POSSIBLE)
        )
        texts = [f"x{lanes:.0f}, both ends support x{most:.0f}"] if lanes and most and lanes < most else []
        weight = Weight.DEFECT if texts else Weight.NOTE
        texts += (
            [f"generation {now:.0f}, both ends support {best:.0f}"] if now and best and now < best else []
        )
        if texts:
            yield Sign(drive, "; ".join(texts), weight, at=at)


def errors_of_links(machine: Machine, facts: Facts) -> Iterator[Sign]:
    """The NICs and drives with PCIe errors since the system started; those with the same counts together."""
    gpus = {gpu.name for gpu in machine.gpus}
    counts = {
        device: (facts.number(Known.AER, device) or 0, facts.number(Known.AER_CORRECTED, device) or 0)
        for device in facts.devices() if device not in gpus
    }  # fmt: skip
    worst = grouped((count, device) for device, count in counts.items() if count[0] or count[1] > CORRECTED)
    for (failed, corrected), devices in worst.items():
        text = f"{failed:.0f} fatal or non-fatal errors, {corrected:.0f} corrected"
        yield Sign(", ".join(devices), text, at=address_of(machine, facts, devices[0]))


def _nics(facts: Facts) -> list[str]:
    return [device for device in facts.devices() if facts.text(Known.NIC_DRIVER, device)]


def nics_and_gpus(machine: Machine, facts: Facts) -> bool:
    """Whether a host has RDMA devices and GPUs."""
    return bool(machine.gpus and _nics(facts))


def _active(facts: Facts) -> list[str]:
    return [port for port in facts.devices() if facts.text(Known.PORT_STATE, port) == _ACTIVE]


def no_device_files(machine: Machine, facts: Facts) -> Iterator[Sign]:
    """That the files by which programs use RDMA are missing."""
    if facts.text(Known.RDMA_FILES) == OFF:
        yield Sign("", f"{some(_nics(facts), _NAMED)} exist, but not /dev/infiniband/uverbs*")


def redirected(machine: Machine, facts: Facts) -> Iterator[Sign]:
    """The NICs and GPUs below one switch whose traffic ACS sends to the root."""
    found = []
    for nic in _nics(facts):
        above = facts.several(Known.BRIDGES, nic)
        for gpu in machine.gpus:
            # A switch that both are below: its upstream port is above both, and none of them is at the root.
            common = set(above[:-1]) & set(facts.several(Known.BRIDGES, gpu.name)[:-1])
            ports = {
                port for device in (nic, gpu.name) for port in facts.several(Known.ACS_REDIRECTS, device)
                if port not in common and port in {*above[:-1], *facts.several(Known.BRIDGES, gpu.name)[:-1]}
            }  # fmt: skip
            if common and ports:
                found.append((f"{nic} and {gpu.name}", sorted(ports)))
    if found:
        pairs, bridges = [pair for pair, _ in found], dict.fromkeys(p for _, ports in found for p in ports)
        text = f"{some(pairs, _NAMED)}: ACS of {some(list(bridges), _NAMED)} redirects"
        yield Sign("", text, at=next(iter(bridges)))


def without_gid(machine: Machine, facts: Facts) -> Iterator[Sign]:
    """The active RoCE ports without a GID."""
    ports = [
        port for port in _active(facts)
        if facts.text(Known.PORT_LAYER, port) == _ETHERNET and facts.number(Known.PORT_GIDS_IN_USE, port) == 0
    ]  # fmt: skip
    if ports:
        yield Sign("", f"{some(ports, _NAMED)}: all GIDs are empty")


def slower_ports(machine: Machine, facts: Facts) -> Iterator[Sign]:
    """The active ports that are slower than others of the same model and link layer."""
    for ports in grouped((sibling(facts, port), port) for port in _active(facts)).values():
        rates = {port: rate for port in ports if (rate := facts.number(Known.PORT_RATE, port))}
        most = max(rates.values(), default=0.0)
        for rate, slower in grouped((rate, port) for port, rate in rates.items() if rate < most).items():
            others = [port for port, best in rates.items() if best == most]
            yield Sign("", f"{some(slower, _NAMED)}: {rate:g} Gbit/s; {some(others, _NAMED)}: {most:g}")


def slower_than_elsewhere(facts: Facts) -> Iterator[Sign]:
    """The hosts whose active ports are all slower than the fastest ones of another host."""
    fastest = {
        of_host.host: max((of_host.number(Known.PORT_RATE, port) or 0.0 for port in ports), default=0.0)
        for of_host in facts.of_each_host if (ports := _active(of_host))
    }  # fmt: skip
    most = max(fastest.values(), default=0.0)
    for host, rate in fastest.items():
        if 0 < rate < most:
            there = next(other for other, best in fastest.items() if best == most)
            yield Sign("", f"{rate:g} Gbit/s on {host or 'this host'}, {most:g} on {there}", host=host)


def broken_bonds(machine: Machine, facts: Facts) -> Iterator[Sign]:
    """The bonds of which an interface has no link."""
    for device in facts.devices():
        if lost := facts.several(Known.BOND_WITHOUT_LINK, device):
            yield Sign("", f"{device}: {', '.join(lost)} without a link")


def sibling(facts: Facts, port: str) -> tuple[str, ...]:
    """Equal for ports of the same model and link layer."""
    nic = port.partition(":")[0]
    names = (Known.NIC_DRIVER, Known.PCI_MODEL)
    return *(facts.text(name, nic) for name in names), facts.text(Known.PORT_LAYER, port)


def unequal_endpoints(machine: Machine, facts: Facts) -> Iterator[Sign]:
    """The endpoints of one card that have different numbers of lanes."""
    for lanes in _unequal(facts):
        text = ", ".join(f"{nic}: x{width:.0f}" for nic, width in lanes.items())
        yield Sign("", text, at=facts.text(Known.NIC_ADDRESS, min(lanes, key=lambda nic: lanes[nic])))


def _unequal(facts: Facts) -> Iterator[dict[str, float]]:
    """The possible lanes of the endpoints of each card whose endpoints differ in them."""
    cards = grouped((card, nic) for nic in _nics(facts) if (card := facts.text(Known.NIC_CARD, nic)))
    for nics in cards.values():
        lanes = {nic: width for nic in nics if (width := facts.number(Known.PCIE_WIDTH_POSSIBLE, nic))}
        if len(set(lanes.values())) > 1:
            yield lanes


def far_nics(machine: Machine, facts: Facts) -> Iterator[Sign]:
    """The NUMA nodes with GPUs that have no NIC, although another one has, and there are enough NICs."""
    nics = grouped((facts.text(Known.NUMA_NODE, nic), nic) for nic in _nics(facts))
    if not all(node.isdecimal() for node in nics):
        return
    gpus = grouped((f"{gpu.numa}", gpu.name) for gpu in machine.gpus if gpu.numa is not None)
    for node, names in gpus.items():
        if node not in nics and nics.keys() & gpus.keys() and len(_nics(facts)) >= len(gpus):
            where = "; ".join(f"{some(there, _NAMED)} at {at}" for at, there in nics.items())
            yield Sign("", f"no NIC is at NUMA node {node} of {some(names, _NAMED)} ({where})")


def loopback(settings: Iterable[str]) -> Iterator[Sign]:
    """That NCCL may use the loopback interface, by its settings; it leaves it out by default."""
    for setting in settings:
        name, _, value = setting.rpartition(": ")[2].partition("=")
        if name != _INTERFACES or not value:
            continue
        listed = value.lstrip("^=").split(",")
        exact = "=" in value[: len(value) - len(value.lstrip("^="))]
        matches = any(one == _LOOPBACK if exact else one and _LOOPBACK.startswith(one) for one in listed)
        if matches is not value.startswith("^"):
            yield Sign("", f"{name}={value} lets {_LOOPBACK} in", Weight.NOTE)


def apart(machine: Machine, facts: Facts) -> Iterator[Sign]:
    """That the CPUs of this process are at other NUMA nodes than the GPUs, and a limit of the memory."""
    usable = {f"{node.index}" for node in machine.numa if node.cpus}
    far = [gpu for gpu in machine.gpus if gpu.numa is not None and f"{gpu.numa}" not in usable]
    if far and usable and len(machine.numa) > 1 and not facts.host:
        at = ", ".join(sorted({f"{gpu.numa}" for gpu in far}))
        text = f"{some([gpu.name for gpu in far], _NAMED)} at NUMA node {at}"
        yield Sign("", f"{text}, the usable CPUs at {', '.join(sorted(usable))}", Weight.DEFECT)
    limit, total = facts.number(Known.MEMORY_LIMIT), facts.number(Known.MEMORY_OF_HOST)
    if limit and total and limit < total / 2:
        yield Sign("", f"a memory limit of {limit / 2**30:.3g} GiB, of {total / 2**30:.4g} GiB", Weight.NOTE)


def wsl(machine: Machine, facts: Facts) -> Iterator[Sign]:
    """That this is WSL2."""
    if facts.text(Known.HYPERVISOR) == WSL:
        yield Sign("", "WSL2 has no peer access between GPUs, and limits pinned memory")


def empty_channels(machine: Machine, facts: Facts) -> Iterator[Sign]:
    """That fewer memory channels have modules than the CPUs have."""
    modules = facts.number(Known.MODULES)
    used = facts.number(Known.MEMORY_CHANNELS) or modules
    of_socket, nodes_here = facts.number(Known.NODES_PER_SOCKET), facts.number(Known.NODES_WITH_CPUS)
    sheet = cpu_sheet(machine.cpu, facts.text(Known.CPU_DESIGN)) if not facts.host else None
    if not sheet or not of_socket or not nodes_here:
        return
    possible = sheet[1].channels * max(1, round(nodes_here / of_socket))
    if used and used < possible:
        empty = possible - used
        known = f"; {modules:.0f} modules" if modules else ""
        nodes = [node.name for node in machine.numa if node.cpus]
        text = f"{empty:.0f} of {possible:.0f} channels {'is' if empty == 1 else 'are'} empty{known}"
        yield Sign(nodes[0] if len(nodes) == 1 and not facts.host else "", text)
