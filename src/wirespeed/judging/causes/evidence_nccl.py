"""The signs of settings of NCCL, and of transports that it does not use, in the facts of a host."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import combinations

from ...data.causes import Weight
from ...hardware.facts import Facts, Known
from ...hardware.link_graph import MachineVertices
from ...hardware.topology import LinkKind, Machine
from .evidence_nic import selection
from .record import Sign

#: Settings of transports between the GPUs of a host.
WITHIN_A_HOST = ("NCCL_P2P_DISABLE", "NCCL_P2P_LEVEL", "NCCL_SHM_DISABLE")
#: Settings that disable a transport with one of these values.
_DISABLING = {"NCCL_P2P_LEVEL": ("LOC", "0"), "NCCL_NET": ("SOCKET",)}


def nccl_settings(machine: Machine, facts: Facts) -> Iterator[Sign]:
    """Yield settings that disable nothing, and concern no NIC."""
    selected = any(selection(machine, facts))  # a cause with its own remedy
    settings = [
        setting
        for setting in facts.several(Known.NCCL_VARIABLES)
        if not disables(setting, machine)
        and not _is_default(setting)
        and not (selected and "NCCL_IB_" in setting)
    ]
    if settings:
        yield Sign("", ", ".join(settings) + _used(facts), settings=tuple(settings))


def nccl_disabled(machine: Machine, facts: Facts) -> Iterator[Sign]:
    """Yield settings that disable a transport, or that NCCL does not use one that the machine has."""
    if settings := [one for one in facts.several(Known.NCCL_VARIABLES) if disables(one, machine)]:
        yield Sign("", ", ".join(settings) + _used(facts), settings=tuple(settings))
    elif facts.text(Known.NCCL_NETWORK).endswith("/Socket"):
        yield Sign("", "NCCL used TCP sockets between the hosts", Weight.CONDITION)
    elif len({rank.host for rank in machine.ranks}) <= 1 and all_linked(machine):
        transports = facts.several(Known.NCCL_TRANSPORTS)
        if slow := [transport for transport in transports if not transport.startswith("P2P")]:
            yield Sign("", f"NVLink connects all GPUs, but NCCL used {', '.join(slow)}")


def _used(facts: Facts) -> str:
    """Which transports NCCL used; empty if that is unknown."""
    network = facts.text(Known.NCCL_NETWORK)
    transports = [*facts.several(Known.NCCL_TRANSPORTS), *([network] if network else [])]
    return f"; NCCL used {', '.join(transports)}" if transports else ""


def all_linked(machine: Machine) -> bool:
    """Whether every two GPUs can access each other and are connected by NVLink or its switches."""
    vertices = MachineVertices(machine)
    ends: dict[str, set[str]] = {gpu.name: set() for gpu in machine.gpus}
    for link in machine.links:
        if link.kind is LinkKind.NVLINK:
            ends.setdefault(vertices.of(link.source).device, set()).add(vertices.of(link.destination).device)
    return len(machine.gpus) > 1 and all(
        b.name in a.peers and (b.name in ends[a.name] or ends[a.name] & ends[b.name])
        for a, b in combinations(machine.gpus, 2)
    )


def _is_default(setting: str) -> bool:
    """Whether a setting leaves a transport enabled, as without it."""
    name, _, value = setting.rpartition(": ")[2].partition("=")
    return name.endswith("_DISABLE") and value.strip() == "0"


def disables(setting: str, machine: Machine) -> bool:
    """Whether a setting disables a transport that the GPUs of a host can use."""
    name, _, value = setting.rpartition(": ")[2].partition("=")
    if name in WITHIN_A_HOST and len(machine.gpus) == 1:
        return False
    return value.strip().upper() in _DISABLING.get(name, ()) or (
        name.endswith("_DISABLE") and value.strip() not in ("0", "")
    )
