"""Simulated machines, and the backend that measures them."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ...hardware.facts import Fact
    from ...hardware.topology import Machine
    from ..base import Backend
    from ..system_files import TreePath


def connect(machine: Machine) -> Backend | None:
    """The backend for a simulated machine; None for any other."""
    if not machine.simulated:
        return None
    from .backend import SimulatedBackend

    return SimulatedBackend(machine)


def facts(machine: Machine, root: TreePath) -> Iterator[Fact]:
    """Yield what the system of a simulated machine would report."""
    from .faults import facts_of

    del root
    return facts_of(machine) if machine.simulated else iter(())


def parse(spec: str) -> Machine:
    """The simulated machine of a text such as ``dgx-a100-8+corrupt@gpu0->gpu1``.

    The text names a predefined machine or a machine file. ``+KIND`` or ``+KIND@TRANSFER`` adds a fault of
    transfers, ``+down@LINK`` or ``+speed@LINK=FACTOR`` a fault of links, ``+gone@GPU`` a GPU that is on the
    PCI bus but not shown by the driver, ``+dropped@gpu0->gpu1`` and others a fault of peer access,
    ``+CAUSE=AMOUNT@PLACE`` a cause that ``doctor`` knows, with what the system reports then.

    Raises:
        MachineError: If the machine or fault does not exist.
    """
    from dataclasses import replace
    from pathlib import Path

    from ...errors import MachineError
    from ...hardware.topology import load
    from ...terminal import meant
    from .faults import parse_fault, without_gone, without_peers
    from .machines import MACHINES

    name, *suffixes = spec.split("+")
    if name in MACHINES:
        machine = MACHINES[name]()
    elif Path(name).is_file():
        machine = load(name)
    else:
        raise MachineError(
            f"{name!r} is neither a simulated machine nor a machine file{meant(name, MACHINES)}; "
            f"choose from {', '.join(MACHINES)}"
        )
    machine, gone, others = without_gone(suffixes, machine)
    faults = (*gone, *(parse_fault(text, machine) for text in others))
    encrypts = machine.confidential or any(fault.cause == "confidential" for fault in faults)
    machine = replace(machine, simulated=True, faults=(*machine.faults, *faults), confidential=encrypts)
    return without_peers(machine)
