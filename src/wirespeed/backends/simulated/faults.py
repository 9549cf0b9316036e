"""Faults of simulated machines: parsing, and the effect of link faults on a machine."""

from __future__ import annotations

import math
import re
from dataclasses import replace

from ...errors import MachineError
from ...topology import Fault, FaultKind, Machine


def parse_fault(text: str, machine: Machine) -> Fault:
    """Parse a fault such as ``corrupt@gpu0->gpu1`` or ``speed@gpu0-gpu1=0.5``.

    Raises
    ------
    MachineError
        If the fault does not exist, or the machine has no such link or device.
    """
    kind, _, where = text.partition("@")
    if kind not in list(FaultKind):
        raise MachineError(f"unknown simulated fault {kind!r}; choose from {', '.join(FaultKind)}")
    fault = Fault(FaultKind(kind), where)
    if fault.kind is FaultKind.SPEED:
        where, _, factor = where.partition("=")
        fault = replace(fault, where=where, factor=_factor(factor, text))
    if not fault.kind.of_links and where and not _is_transfer(where, machine):
        raise MachineError(
            f"machine {machine.name!r} has no transfers {where!r} for the fault {text!r}; "
            "write gpu0 or numa0->gpu0 (`wirespeed machine` lists the devices)"
        )
    if fault.kind.of_links and not machine.links_at(where):
        raise MachineError(
            f"machine {machine.name!r} has no link {where!r} for the fault {text!r}; "
            "write gpu0, gpu0-gpu1 or gpu0->gpu1 (`wirespeed machine --format json` lists the links)"
        )
    return fault


def _is_transfer(where: str, machine: Machine) -> bool:
    """Return whether a text is a prefix of a transfer's text: a source, and possibly more."""
    devices = {gpu.name for gpu in machine.gpus} | {node.name for node in machine.numa}
    begins = re.match(r"(\d+/)?[a-z]+\d+(->|$)", where) is not None
    return begins and devices.issuperset(re.findall(r"[a-z]+\d+", where))


def _factor(text: str, fault: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not 0 < value < 1000:
        raise MachineError(f"the fault {fault!r} requires a factor above 0, such as speed@gpu0-gpu1=0.5")
    return value


def faulty(machine: Machine) -> Machine:
    """Return the machine as it behaves: with the faults applied to its links."""
    links = list(machine.links)
    down: set[int] = set()
    for fault in machine.faults:
        chosen = machine.links_at(fault.where) if fault.kind.of_links else ()
        for i in chosen:
            capacity = links[i].capacity
            if fault.kind is FaultKind.DOWN:
                down.add(i)
            elif capacity is not None:
                links[i] = replace(links[i], capacity=capacity * fault.factor)
    return replace(machine, links=tuple(link for i, link in enumerate(links) if i not in down))
