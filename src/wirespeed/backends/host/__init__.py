"""The host backend: CPU memory, measured by pinned threads of numba kernels.

``topology`` describes the machine and needs no library. ``backend`` measures and imports numba, so it is
imported only when measuring starts.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from ...facts import Fact
    from ...topology import Machine
    from ..base import Backend


def discover(machine: Machine) -> Machine:
    """Add this host's NUMA nodes, cores, caches and memory to a Machine."""
    from . import host_discovery as topology

    return topology.discover(machine)


def facts(machine: Machine, root: Path) -> Iterator[Fact]:
    """Yield the facts of this host."""
    from . import host_facts

    del machine
    return host_facts.facts(root)


def connect(machine: Machine) -> Backend | None:
    """Return the backend for the CPUs of this host; None for a simulated machine."""
    if machine.simulated or not machine.numa:
        return None
    from .backend import HostBackend

    return HostBackend(machine)
