"""What speaks for the causes of NICs. A sign lists the NICs of a host, because those of a job are many."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

from ..facts import ON, Facts, Known
from ..topology import Machine
from ..units import many
from .cause import Sign, Weight

_ACTIVE, _INFINIBAND = "ACTIVE", "InfiniBand"
#: States of a port with a cable: a link exists, or is set up. Source: IBA specification, PortState and
#: PortPhysicalState.
_CONNECTED = {"INIT", "ARMED", "ACTIVE_DEFER", "LinkUp", "PortConfigurationTraining", "LinkErrorRecovery"}
#: Errors of a port during a run that are no defect: a crowded network loses some packets.
_FEW = 100
#: Number of NICs that are named in the evidence of errors.
_WORST = 3


def down(machine: Machine, facts: Facts) -> Iterator[Sign]:
    """Yield the ports that are not active although others of their link layer are."""
    del machine
    states = {port: state for port in facts.devices() if (state := facts.text(Known.PORT_STATE, port))}
    layers = {port: facts.text(Known.PORT_LAYER, port) for port in states}
    by_sign: dict[tuple[Weight, str], list[str]] = defaultdict(list)
    for port, state in states.items():
        peers = [other for other in states if layers[other] == layers[port] and states[other] == _ACTIVE]
        if state != _ACTIVE and peers and (weight := _weight(facts, port, peers)):
            physical = facts.text(Known.PORT_PHYSICAL, port)
            text = ", ".join(filter(None, (state, physical)))
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
    enabled = facts.text(Known.PORT_INTERFACE, port) == ON
    return Weight.DEFECT if lost and enabled else Weight.CONDITION


def _chosen(facts: Facts, port: str) -> bool | None:
    """Return whether NCCL_IB_HCA names a port; None if it does not say, or names a group of NICs.

    ``=`` in front of the list asks for whole names instead of their beginnings, ``^`` for all others.
    """
    for setting in facts.several(Known.NCCL_VARIABLES):  # those of the environment, which win, come first
        name, _, value = setting.rpartition(": ")[2].partition("=")
        if name == "NCCL_IB_HCA" and (names := value.strip().lstrip("^=")):
            others, exact = value.strip().startswith("^"), "=" in value.partition(names)[0]
            listed = names.split(",")
            if others is any(_is_named(port, entry, exact) for entry in listed):
                return False
            return True if not others and any(_is_named(port, entry, True) for entry in listed) else None
    return None


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
    del machine
    for name, when in ((Known.PORT_RETRIED, "during"), (Known.PORT_ERRORS, "before")):
        counts = {port: count for port in facts.devices() if (count := facts.number(name, port))}
        worst = sorted(counts, key=lambda port: -counts[port])
        texts = [f"{port}: {_kinds(facts, name, port, counts[port])}" for port in worst[:_WORST]]
        if more := worst[_WORST:]:
            texts.append(f"{many(len(more), 'other port')} with up to {counts[more[0]]:.0f} errors each")
        if texts:
            many_now = name is Known.PORT_RETRIED and counts[worst[0]] > _FEW
            weight = Weight.DEFECT if many_now else Weight.CONDITION
            yield Sign("", f"{'; '.join(texts)} {when} the run", weight)
            return


def _kinds(facts: Facts, name: Known, port: str, count: float) -> str:
    """Return the errors of a port by kind, as far as the kinds are known."""
    kinds = facts.several(Known.PORT_ERROR_KINDS, port) if name is Known.PORT_ERRORS else ()
    return ", ".join(kinds) or many(int(count), "error")


def pcie(machine: Machine, facts: Facts) -> Iterator[Sign]:
    """Yield the NICs with fewer lanes than both ends of a link support, and those at an older generation."""
    del machine
    for now, possible, at, prefix, weight in (
        (Known.PCIE_WIDTH, Known.PCIE_WIDTH_POSSIBLE, Known.PCIE_NARROWEST, "x", Weight.DEFECT),
        (Known.PCIE_GENERATION, Known.PCIE_GENERATION_POSSIBLE, Known.NIC_ADDRESS, "generation ",
         Weight.CONDITION),
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
