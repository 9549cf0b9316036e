"""Settings of NCCL, and transports that it does not use: what they say of a host, and of a run of a log."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator
from dataclasses import replace
from itertools import combinations

from ..document import Document, TestcaseResult
from ..hardware.facts import Facts, Known
from ..hardware.network import MachineVertices
from ..hardware.topology import LinkKind, Machine
from ..results.cells import Key, placed
from .cause import Sign, Weight, facts_of, selection

#: Name of the cause that a transport is disabled.
DISABLED = "nccl-disabled"
#: Settings of transports between the GPUs of a host.
_WITHIN_A_HOST = ("NCCL_P2P_DISABLE", "NCCL_P2P_LEVEL", "NCCL_SHM_DISABLE")
#: Settings that disable a transport with one of these values.
_DISABLING = {"NCCL_P2P_LEVEL": ("LOC", "0"), "NCCL_NET": ("SOCKET",)}


def others(machine: Machine, facts: Facts) -> Iterator[Sign]:
    """Yield settings that disable nothing, and are not those of a NIC."""
    selected = any(selection(machine, facts))  # a cause with its own remedy
    settings = [
        setting
        for setting in facts.several(Known.NCCL_VARIABLES)
        if not _disables(setting, machine)
        and not _is_default(setting)
        and not (selected and "NCCL_IB_" in setting)
    ]
    if settings:
        yield Sign("", ", ".join(settings) + _used(facts), settings=tuple(settings))


def disabled(machine: Machine, facts: Facts) -> Iterator[Sign]:
    """Yield settings that disable a transport, or that NCCL does not use one that the machine has."""
    if settings := [one for one in facts.several(Known.NCCL_VARIABLES) if _disables(one, machine)]:
        yield Sign("", ", ".join(settings) + _used(facts), settings=tuple(settings))
    elif facts.text(Known.NCCL_NETWORK).endswith("/Socket"):
        yield Sign("", "NCCL used TCP sockets between the hosts", Weight.CONDITION)
    elif len({rank.host for rank in machine.ranks}) <= 1 and _all_linked(machine):
        transports = facts.several(Known.NCCL_TRANSPORTS)
        if slow := [transport for transport in transports if not transport.startswith("P2P")]:
            yield Sign("", f"NVLink connects all GPUs, but NCCL used {', '.join(slow)}")


def _used(facts: Facts) -> str:
    """Return which transports NCCL used; empty if that is unknown."""
    network = facts.text(Known.NCCL_NETWORK)
    transports = [*facts.several(Known.NCCL_TRANSPORTS), *([network] if network else [])]
    return f"; NCCL used {', '.join(transports)}" if transports else ""


def _all_linked(machine: Machine) -> bool:
    """Return whether every two GPUs can access each other and are connected by NVLink or its switches."""
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


def _disables(setting: str, machine: Machine) -> bool:
    """Return whether a setting disables a transport that the GPUs of a host can use."""
    name, _, value = setting.rpartition(": ")[2].partition("=")
    if name in _WITHIN_A_HOST and len(machine.gpus) == 1:
        return False
    return value.strip().upper() in _DISABLING.get(name, ()) or (
        name.endswith("_DISABLE") and value.strip() not in ("0", "")
    )


def disabling(document: Document, result: TestcaseResult) -> frozenset[str]:
    """What disables the transport that a collective of a log would use: settings of its run.

    Within a host, that is peer access over NVLink, or shared memory if NVLinks do not connect all GPUs. Of a
    log of one run, the transports that NCCL printed are those of its collectives.
    """
    if not (document.imported and result.collective):
        return frozenset()
    machine = document.machine
    found = [setting for setting in result.settings if _disables(setting, machine)]
    if found and is_within_a_host(document, result):
        names = _WITHIN_A_HOST[: 2 if _all_linked(machine) else 3]
        found = [setting for setting in found if setting.partition("=")[0] in names]
    if not found and len(document.imported) == 1:
        signs = (disabled(machine, of_host) for of_host in facts_of(document).of_each_host)
        found = [sign.text for own in signs for sign in own if not sign.settings]
    return frozenset(found)


def is_within_a_host(document: Document, result: TestcaseResult) -> bool:
    """Whether all ranks of a collective of a log are of one host."""
    ranks = result.collective.ranks if result.collective else 1
    several = len({rank.host for rank in document.ranks}) > 1
    return not several and ranks <= max(1, len(document.machine.gpus))


def disabled_cells(
    document: Document, slow: Collection[Key], facts: Facts, helping: Collection[str]
) -> Iterator[tuple[Sign, set[Key]]]:
    """Yield what disables the transport of slow collectives of a log, with these.

    Shared memory and sockets explain any lower rate. Within a host, shared memory is not faster than PCIe.

    Args:
        document: The log.
        slow: The slow values.
        facts: Its facts.
        helping: Settings without which the same test is slower.
    """
    rates = [link.capacity for link in document.machine.links if link.kind in (LinkKind.PCIE, LinkKind.C2C)]
    most = max((rate for rate in rates if rate), default=math.inf)
    cells = [
        (key, disabling(document, result) - set(helping))
        for key, cell, _, result in placed(document)
        if key in slow and ((cell.value or 0.0) < most or not is_within_a_host(document, result))
    ]  # fmt: skip
    for of_host in facts.of_each_host:
        for sign in disabled(document.machine, of_host):
            if keys := {key for key, by in cells if not by.isdisjoint({*sign.settings, sign.text})}:
                yield replace(sign, host=of_host.host), keys
