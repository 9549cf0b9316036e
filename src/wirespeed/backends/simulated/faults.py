"""Faults of simulated machines: from text to data, and what faults of links make of a machine."""

from __future__ import annotations

import math
import re
from dataclasses import replace

from ...errors import MachineError
from ...topology import Fault, FaultKind, Machine


def parse_fault(text: str, machine: Machine) -> Fault:
    """Return the fault that a text such as ``corrupt@gpu0->gpu1`` or ``speed@gpu0-gpu1=0.5`` means.

    Raises
    ------
    MachineError
        If there is no such fault, or the machine has no such link or device.
    """
    kind, _, where = text.partition("@")
    if kind not in list(FaultKind):
        raise MachineError(f"there is no simulated fault {kind!r}; there are {', '.join(FaultKind)}")
    fault = Fault(FaultKind(kind), where)
    if fault.kind is FaultKind.SPEED:
        where, _, factor = where.partition("=")
        fault = replace(fault, where=where, factor=_factor(factor, text))
    if not fault.kind.of_links and where and not _is_transfer(where, machine):
        raise MachineError(
            f"machine {machine.name!r} has no transfers {where!r} for the fault {text!r}; "
            "write gpu0 or numa0->gpu0 (`wirespeed machine` has the devices)"
        )
    if fault.kind.of_links and not machine.links_at(where):
        raise MachineError(
            f"machine {machine.name!r} has no link {where!r} for the fault {text!r}; "
            "write gpu0, gpu0-gpu1 or gpu0->gpu1 (`wirespeed machine --format json` has the links)"
        )
    return fault


def _is_transfer(where: str, machine: Machine) -> bool:
    """Whether a text is the beginning of a transfer's: a source, and perhaps more."""
    devices = {gpu.name for gpu in machine.gpus} | {node.name for node in machine.numa}
    begins = re.match(r"(\d+/)?[a-z]+\d+(->|$)", where) is not None
    return begins and devices.issuperset(re.findall(r"[a-z]+\d+", where))


def _factor(text: str, fault: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not 0 < value < 1000:
        raise MachineError(f"the fault {fault!r} needs a factor of more than 0, as in speed@gpu0-gpu1=0.5")
    return value


def faulty(machine: Machine) -> Machine:
    """Return the machine as it behaves: its links with their faults."""
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
