"""The signs of causes at NICs in the facts of a host; a sign lists all NICs that it is about."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator

from ...data.causes import Weight
from ...hardware.facts import OFF, ON, Facts, Known
from ...hardware.topology import Machine
from ...statistics import grouped
from ...thresholds.facts import PORT_ERRORS, PORT_ERRORS_BEFORE
from ...units import many, some
from .record import Sign

_ACTIVE, _INFINIBAND, _ETHERNET = "ACTIVE", "InfiniBand", "Ethernet"
#: States of a port with a cable: a link exists, or is set up. Source: IBA specification, PortState and
#: PortPhysicalState.
_CONNECTED = {"INIT", "ARMED", "ACTIVE_DEFER", "LinkUp", "PortConfigurationTraining", "LinkErrorRecovery"}
#: Number of NICs that are named in the evidence of errors.
_WORST = 3
_ROCE_2 = "RoCE v2"
#: Variable of NCCL, and the interface that it must not use between hosts.
_INTERFACES, _LOOPBACK = "NCCL_SOCKET_IFNAME", "lo"


def nic_down(machine: Machine, facts: Facts) -> Iterator[Sign]:
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
    """Whether it is a defect that a port is not active; None if NCCL must not use it."""
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
    """Whether NCCL_IB_HCA names a port; None if it does not say, or names a group of NICs.

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
    """Whether an entry of NCCL_IB_HCA, NIC or NIC:PORT, is about a port."""
    (nic, _, number), (named, _, only) = port.partition(":"), name.partition(":")
    return (nic == named if exact else nic.startswith(named)) and (not only or (number or "1") == only)


def _card(facts: Facts, port: str) -> str:
    """The PCI bus of the card of a port, which its functions share; else the name of the NIC."""
    nic = port.partition(":")[0]
    return facts.text(Known.NIC_ADDRESS, nic).rpartition(":")[0] or nic


def nic_errors(machine: Machine, facts: Facts) -> Iterator[Sign]:
    """Yield the ports with errors, those with the most first: during the run, else before it."""
    for name, when in ((Known.PORT_RETRIED, "during"), (Known.PORT_ERRORS, "before")):
        counts = {port: count for port in facts.devices() if (count := facts.number(name, port))}
        worst = sorted(counts, key=lambda port: -counts[port])
        texts = [f"{port}: {_kinds(facts, name, port, counts[port])}" for port in worst[:_WORST]]
        if more := worst[_WORST:]:
            texts.append(f"{many(len(more), 'other port')} with up to {counts[more[0]]:.0f} errors each")
        during = name is Known.PORT_RETRIED
        if texts:
            often = counts[worst[0]] > (PORT_ERRORS if during else PORT_ERRORS_BEFORE)
            weight = (Weight.DEFECT if during else Weight.NOTE) if often else Weight.CONDITION
            yield Sign("", f"{'; '.join(texts)} {when} the run", weight)
            return


def _kinds(facts: Facts, name: Known, port: str, count: float) -> str:
    """The errors of a port by kind, as far as the kinds are known."""
    kinds = facts.several(Known.PORT_ERROR_KINDS, port) if name is Known.PORT_ERRORS else ()
    return ", ".join(kinds) or many(int(count), "error")


def nic_pcie(machine: Machine, facts: Facts) -> Iterator[Sign]:
    """Yield the NICs with fewer lanes than both ends of a link support, and those at an older generation."""
    for now, possible, at, prefix, weight in (
        (Known.PCIE_WIDTH, Known.PCIE_WIDTH_POSSIBLE, Known.PCIE_NARROWEST, "x", Weight.DEFECT),
        (Known.PCIE_GENERATION, Known.PCIE_GENERATION_POSSIBLE, Known.NIC_ADDRESS, "generation ",
         Weight.NOTE),
    ):  # fmt: skip
        by_text: dict[str, list[str]] = defaultdict(list)
        for nic in _nics(facts):
            if text := lacking(facts, nic, now, possible, prefix):
                by_text[text].append(f"{nic} ({facts.text(at, nic)})")
        for text, nics in by_text.items():
            yield Sign("", f"{', '.join(nics)}: {text}", weight)


def lacking(facts: Facts, device: str, now: Known, possible: Known, prefix: str = "") -> str:
    """What a link has less of than both of its ends support, in words; empty if it has all."""
    runs, most = facts.number(now, device), facts.number(possible, device)
    return (
        f"{prefix}{runs:.0f}, both ends support {prefix}{most:.0f}" if runs and most and runs < most else ""
    )


def plugin_missing(machine: Machine, facts: Facts) -> Iterator[Sign]:
    """Yield that NCCL finds no plug-in on a host with EFA."""
    count = [facts.text(Known.NIC_DRIVER, nic) for nic in _nics(facts)].count("efa")
    missing = not facts.several(Known.NCCL_PLUGINS) and not facts.unreadable(Known.NCCL_PLUGINS)
    if count and machine.gpus and missing:
        elsewhere = facts.several(Known.NCCL_PLUGINS_ELSEWHERE)
        hint = f"; it does not search {', '.join(elsewhere)}" if elsewhere else ""
        yield Sign("", f"{many(count, 'EFA device')}, but the loader finds no libnccl-net*.so{hint}")


def _nics(facts: Facts) -> list[str]:
    return [device for device in facts.devices() if facts.text(Known.NIC_DRIVER, device)]


def nic_endpoint(machine: Machine, facts: Facts) -> Iterator[Sign]:
    """Yield the active endpoints of a port of a card that carry nothing while another one of it does."""
    uses = {port: use for port in facts.devices() if (use := facts.text(Known.PORT_USED, port))}
    for port, use in uses.items():
        used = [
            other for other, of in uses.items() if of == ON and port_of(facts, other) == port_of(facts, port)
        ]
        if use == OFF and used and facts.text(Known.PORT_STATE, port) in ("", _ACTIVE):
            yield Sign("", f"{port} carries nothing, {', '.join(used)} of the same card and port all data")


def port_of(facts: Facts, port: str) -> str:
    """What the endpoints of one physical port have in common: the card and the PCI function.

    The endpoints of a card at several PCIe links have the same image GUID, and the function of its PCI
    address is the number of the port (ConnectX-7 of a DGX Spark: rocep1s0f0 and roceP2p1s0f0).
    """
    nic, _, number = port.partition(":")
    card, address = facts.text(Known.NIC_CARD, nic), facts.text(Known.NIC_ADDRESS, nic)
    return f"{card}.{address.rpartition('.')[2]}:{number}" if card and address else port


def selection(machine: Machine, facts: Facts) -> Iterator[Sign]:
    """Yield the active ports that NCCL_IB_HCA leaves out, and a GID that is none of RoCE v2."""
    ports = _active(facts)
    out = [port for port in ports if _chosen(facts, port) is False]
    if out:
        yield Sign("", f"NCCL_IB_HCA leaves out {', '.join(out)}")
    index = _setting(facts, "NCCL_IB_GID_INDEX")
    for port in ports if index.isdecimal() else ():
        gids = dict(text.split(": ", 1) for text in facts.several(Known.PORT_GIDS, port) if ": " in text)
        if gids and facts.text(Known.PORT_LAYER, port) == _ETHERNET and gids.get(index) != _ROCE_2:
            best = [number for number, kind in gids.items() if kind == _ROCE_2]
            hint = f"; RoCE v2 has {', '.join(best)}" if best else ""
            yield Sign("", f"NCCL_IB_GID_INDEX={index} is {gids.get(index, 'no GID')} of {port}{hint}")


def _setting(facts: Facts, name: str) -> str:
    """The value of a setting of NCCL, first of the environment; empty if it is not set."""
    for setting in facts.several(Known.NCCL_VARIABLES):
        key, _, value = setting.rpartition(": ")[2].partition("=")
        if key == name and value.strip():
            return value.strip()
    return ""


def whole_sockets(machine: Machine, facts: Facts) -> Iterator[Sign]:
    """Yield that sockets of AMD are one NUMA node each, and GPUs reach NICs through the CPU, not a switch."""
    gpus = [gpu.name for gpu in machine.gpus if facts.text(Known.SWITCH, gpu.name) == "none"]
    is_amd = "AMD" in facts.text(Known.CPU_DESIGN)
    if is_amd and gpus and _nics(facts) and facts.number(Known.NODES_PER_SOCKET) == 1:
        below = f"{', '.join(gpus)} below {'a root port' if len(gpus) == 1 else 'root ports'} of an AMD CPU"
        yield Sign("", f"1 NUMA node per socket, {below}")


def nics_and_gpus(machine: Machine, facts: Facts) -> bool:
    """Whether a host has RDMA devices and GPUs."""
    return bool(machine.gpus and _nics(facts))


def _active(facts: Facts) -> list[str]:
    return [port for port in facts.devices() if facts.text(Known.PORT_STATE, port) == _ACTIVE]


def rdma_files(machine: Machine, facts: Facts) -> Iterator[Sign]:
    """That the files by which programs use RDMA are missing."""
    if facts.text(Known.RDMA_FILES) == OFF:
        yield Sign("", f"{some(_nics(facts))} exist, but not /dev/infiniband/uverbs*")


def nic_isolated(machine: Machine, facts: Facts) -> Iterator[Sign]:
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
        text = f"{some(pairs)}: ACS of {some(list(bridges))} redirects"
        yield Sign("", text, at=next(iter(bridges)))


def nic_no_gid(machine: Machine, facts: Facts) -> Iterator[Sign]:
    """The active RoCE ports without a GID."""
    ports = [
        port for port in _active(facts)
        if facts.text(Known.PORT_LAYER, port) == _ETHERNET and facts.number(Known.PORT_GIDS_IN_USE, port) == 0
    ]  # fmt: skip
    if ports:
        yield Sign("", f"{some(ports)}: all GIDs are empty")


def nic_slower(machine: Machine, facts: Facts) -> Iterator[Sign]:
    """The active ports that are slower than others of the same model and link layer."""
    for ports in grouped((sibling(facts, port), port) for port in _active(facts)).values():
        rates = {port: rate for port in ports if (rate := facts.number(Known.PORT_RATE, port))}
        most = max(rates.values(), default=0.0)
        for rate, slower in grouped((rate, port) for port, rate in rates.items() if rate < most).items():
            others = [port for port, best in rates.items() if best == most]
            yield Sign("", f"{some(slower)}: {rate:g} Gbit/s; {some(others)}: {most:g}")


def nic_slower_between(facts: Facts) -> Iterator[Sign]:
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


def sibling(facts: Facts, port: str) -> tuple[str, ...]:
    """Equal for ports of the same model and link layer."""
    nic = port.partition(":")[0]
    names = (Known.NIC_DRIVER, Known.PCI_MODEL)
    return *(facts.text(name, nic) for name in names), facts.text(Known.PORT_LAYER, port)


def nic_lanes(machine: Machine, facts: Facts) -> Iterator[Sign]:
    """The endpoints of one card that have different numbers of lanes."""
    for lanes in unequal_lanes(facts):
        text = ", ".join(f"{nic}: x{width:.0f}" for nic, width in lanes.items())
        yield Sign("", text, at=facts.text(Known.NIC_ADDRESS, min(lanes, key=lambda nic: lanes[nic])))


def unequal_lanes(facts: Facts) -> Iterator[dict[str, float]]:
    """The possible lanes of the endpoints of each card whose endpoints differ in them."""
    cards = grouped((card, nic) for nic in _nics(facts) if (card := facts.text(Known.NIC_CARD, nic)))
    for nics in cards.values():
        lanes = {nic: width for nic in nics if (width := facts.number(Known.PCIE_WIDTH_POSSIBLE, nic))}
        if len(set(lanes.values())) > 1:
            yield lanes


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


def peermem(machine: Machine, facts: Facts) -> Iterator[Sign]:
    if any(facts.text(Known.GPUDIRECT, device) == OFF for device in facts.devices()):
        return  # these GPUs never have it
    found = []
    network = facts.text(Known.NCCL_NETWORK)
    if facts.text(Known.NCCL_GDR) == OFF and not network.endswith("/Socket"):
        found.append(f"NCCL used {network} between the hosts without GPUDirect RDMA")
    of_job = facts.host or len({rank.host for rank in machine.ranks}) > 1
    if of_job and machine.gpus and facts.text(Known.PEERMEM) == OFF:
        found.append("the module nvidia_peermem is not loaded")
    if found:
        yield Sign("", "; ".join(found))


def nic_numa(machine: Machine, facts: Facts) -> Iterator[Sign]:
    """Yield the NICs far from all GPUs, and the NUMA nodes with GPUs that have no NIC.

    A NIC is far if a host with several nodes does not know its node, or no GPU is there. A node lacks a NIC
    if another one with GPUs has one, and there are enough NICs.
    """
    gpus = grouped((f"{gpu.numa}", gpu.name) for gpu in machine.gpus if gpu.numa is not None)
    of_nics = {nic: facts.text(Known.NUMA_NODE, nic) for nic in _nics(facts)}
    for nic, node in of_nics.items() if (facts.number(Known.NODES_ONLINE) or 0) > 1 else ():
        if node == "unknown":
            yield Sign("", f"{nic}: its NUMA node is unknown")
        elif node and gpus and node not in gpus:
            yield Sign("", f"{nic} is at NUMA node {node}, the GPUs at {', '.join(sorted(gpus))}")
    nics = grouped((node, nic) for nic, node in of_nics.items())
    is_enough = len(of_nics) >= len(gpus) and bool(nics.keys() & gpus.keys())
    for node, names in gpus.items() if is_enough and all(node.isdecimal() for node in nics) else ():
        if node not in nics:
            where = "; ".join(f"{some(there)} at {at}" for at, there in nics.items())
            yield Sign("", f"no NIC is at NUMA node {node} of {some(names)} ({where})")


def nic_selection(machine: Machine, facts: Facts) -> Iterator[Sign]:
    yield from selection(machine, facts)
    yield from loopback(facts.several(Known.NCCL_VARIABLES))
