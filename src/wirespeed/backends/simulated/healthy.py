"""What the system of a simulated machine reports."""

from __future__ import annotations

from collections.abc import Iterator

from ...effects import (
    CONTROLLER_BYTES,
    EFFECTS,
    USUAL_CLOCK_HZ,
    device_of,
    generation_of,
    gpus_at,
    nvlinks_of,
)
from ...facts import Fact, Known
from ...topology import FaultKind, LinkKind, Machine
from ...units import GIB


def facts_of(machine: Machine) -> Iterator[Fact]:
    """Yield the facts of a good machine, then those that its faults change; the last one counts."""
    yield from healthy(machine)
    for fault in machine.faults:
        if fault.kind is FaultKind.BUSY:
            yield from EFFECTS["busy-gpu"].facts(machine, fault.where, BUSY_FACTOR)
        if fault.kind is FaultKind.CAUSE and _is_local(machine, fault.where):
            yield from EFFECTS[fault.cause].facts(machine, fault.where, fault.factor)


#: What another process that keeps a GPU busy leaves of it.
BUSY_FACTOR = 0.03


def _is_local(machine: Machine, place: str) -> bool:
    """Return whether a place is on the first host, which the facts are about."""
    hosts = {str(rank.index): rank.host for rank in machine.ranks}
    return hosts.get(place.partition("/")[0]) in (None, *(rank.host for rank in machine.ranks[:1]))


def healthy(machine: Machine) -> Iterator[Fact]:
    """Yield what the system of a good machine reports, for those facts that effects change."""
    cpus = sum(len(node.cpus) for node in machine.numa)
    for name, value in (
        (Known.SHM, 64.0 * GIB), (Known.MEMLOCK, "unlimited"), (Known.CPUS, cpus), (Known.CPUS_ONLINE, cpus),
        (Known.NODES_PER_SOCKET, 1), (Known.IOMMU, ("identity",)), (Known.PRESSURE, 0.0), (Known.LOAD, 0.5),
        (Known.NCCL_VARIABLES, ()), (Known.HYPERVISOR, "off"), (Known.GOVERNOR, ("performance",)),
        (Known.NUMA_BALANCING, "off"),
    ):  # fmt: skip
        yield Fact(name, value)
    for node in machine.numa:
        yield Fact(Known.DIMM_BYTES, CONTROLLER_BYTES, "B", f"mc{node.index}")
    for gpu in machine.gpus:
        vertex = next((v for v in gpus_at(machine, "") if device_of(v) == gpu.name), gpu.name)
        linked = any(link.kind is LinkKind.NVLINK and link.source == vertex for link in machine.links)
        generation = generation_of(machine, vertex)
        for name, value in (
            (Known.IOMMU_GROUP, "1"), (Known.SWITCH, "none"), (Known.PCIE_WIDTH, 16),
            (Known.PCIE_WIDTH_POSSIBLE, 16), (Known.PCIE_NARROWEST, gpu.bus_id),
            (Known.PCIE_GENERATION_POSSIBLE, generation), (Known.PCIE_GENERATION_OF_GPU, generation),
            (Known.AER, 0), (Known.AER_CORRECTED, 0), (Known.BAR1, gpu.memory_bytes),
            (Known.MEMORY, gpu.memory_bytes), (Known.NVLINKS, nvlinks_of(machine, gpu.name) if linked else 0),
            (Known.NVLINKS_INACTIVE, 0), (Known.NVLINK_ERRORS, ()), (Known.FABRIC, "ready, or there is none"),
            (Known.FABRIC_HEALTH, ()), (Known.BANDWIDTH_MODE, "full"), (Known.THROTTLED, ()),
            (Known.MEMORY_CLOCK, USUAL_CLOCK_HZ), (Known.MEMORY_CLOCK_POSSIBLE, USUAL_CLOCK_HZ),
            (Known.ECC_ERRORS, 0),
            (Known.REMAP_PENDING, "off"), (Known.REMAP_FAILED, "off"), (Known.MIG, "off"),
            (Known.CONFIDENTIAL, "off"), (Known.UTILISATION, 0), (Known.PROCESSES, 0),
            (Known.NUMA_NODE, f"{gpu.numa}"),
        ):  # fmt: skip
            yield Fact(name, value, device=gpu.name)
