"""The host backend: CPU memory, measured by pinned threads that run C functions. ``host_discovery`` describes
the machine and needs no library; ``backend`` loads numpy and the C functions when measuring starts.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..system_files import HERE, TreePath

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ...hardware.facts import Fact
    from ...hardware.topology import Machine
    from ..base import Backend


def discover(machine: Machine, root: TreePath = HERE) -> Machine:
    """Add this host's NUMA nodes, cores, caches and memory to a Machine."""
    from .host_discovery import discover

    return discover(machine, root)


def facts(machine: Machine, root: TreePath) -> Iterator[Fact]:
    """Yield the facts of this host."""
    from . import host_facts, memory_facts, nic_facts, other_device_facts

    yield from host_facts.facts(root)
    yield from memory_facts.facts(machine, root)
    yield from nic_facts.facts(root)
    yield from other_device_facts.facts(root)
    yield from host_facts.inventory(root)


def connect(machine: Machine) -> Backend | None:
    """The backend for the CPUs of this host; None for a simulated machine."""
    if machine.simulated or not machine.numa:
        return None
    from .backend import HostBackend

    return HostBackend(machine)
