"""What the system of a simulated machine reports."""

from __future__ import annotations

from collections.abc import Iterator

from msgspec import structs

from ...faults import FaultKind
from ...hardware.effects import CONTROLLER_BYTES, EFFECTS, USUAL_CLOCK_HZ, generation_of, root_port
from ...hardware.facts import FABRIC_READY, OFF, ON, Fact, Known
from ...hardware.network import MachineVertices, nvlinks_of
from ...hardware.topology import LinkKind, Machine
from ...units import GIB
from .. import pci


def facts_of(machine: Machine) -> Iterator[Fact]:
    """Yield the facts of a good machine, then those that its faults change; the last one counts."""
    others = list(dict.fromkeys(rank.host for rank in machine.ranks))[1:]
    good = tuple(healthy(machine))
    yield from good
    for host in others:
        yield from (structs.replace(fact, host=host) for fact in good)
    for fault in machine.faults:
        if fault.kind is FaultKind.NO_PEERS:
            for gpu in machine.gpus:
                for other in (p.name for p in machine.gpus if p is not gpu and p.name not in gpu.peers):
                    yield Fact(Known.P2P_WRITE, "chipset not supported", device=f"{gpu.name}->{other}")
        hosts = ("", *others) if not fault.where else (MachineVertices(machine).of(fault.where).host,)
        if fault.kind is FaultKind.BUSY:
            changed = EFFECTS["busy-gpu"].facts(machine, fault.where, BUSY_FACTOR)
        elif fault.kind is FaultKind.CAUSE:
            changed = EFFECTS[fault.cause].facts(machine, fault.where, fault.factor)
        else:
            continue
        for fact in {(new.device, new.name): new for new in changed}.values():
            yield from (structs.replace(fact, host=host) for host in hosts)


#: Time for which a simulated system was observed, in s.
OBSERVED_S = 30.0
#: What another process that keeps a GPU busy leaves of it.
BUSY_FACTOR = 0.03


def _present(machine: Machine) -> Iterator[Fact]:
    """Yield what the machine has: its memory, and its GPUs as the PCI bus and the driver show them."""
    shown = [pci.address(gpu.bus_id) for gpu in machine.gpus]
    gone = [fault.where for fault in machine.faults if fault.kind is FaultKind.GONE]
    for name, value in (
        (Known.NODES_ONLINE, len(machine.numa)), (Known.NODES_WITH_CPUS, len(machine.numa)),
        (Known.NICS, ()), (Known.CONTAINER, OFF),
    ):  # fmt: skip
        yield Fact(name, value)
    yield Fact(Known.MEMORY_OF_HOST, sum(node.memory_bytes for node in machine.numa), "B")
    if shown or gone:
        yield Fact(Known.DRIVER_LOADED, ON)
        yield Fact(Known.GPUS_ON_BUS, tuple(sorted({*shown, *gone})))
        yield Fact(Known.GPUS_OF_DRIVER, tuple(shown))
        yield Fact(Known.GPUS_LOST, ())
    for address in (*shown, *gone):
        yield Fact(Known.PCI_DRIVER, "nvidia", device=address)
        yield Fact(Known.DEVICE_FILE, ON, device=address)


def healthy(machine: Machine) -> Iterator[Fact]:
    """Yield what the system of a good machine reports, for those facts that effects change."""
    cpus = sum(len(node.cpus) for node in machine.numa)
    for name, value in (
        (Known.SHM, 64.0 * GIB), (Known.MEMLOCK, "unlimited"), (Known.CPUS, cpus), (Known.CPUS_ONLINE, cpus),
        (Known.NODES_PER_SOCKET, 1), (Known.IOMMU, ("identity",)), (Known.PRESSURE, 0.0), (Known.LOAD, 0.5),
        (Known.NCCL_VARIABLES, ()), (Known.HYPERVISOR, "off"), (Known.GOVERNOR, ("performance",)),
        (Known.NUMA_BALANCING, "off"),
        (Known.NCCL_TRANSPORTS, ("P2P/CUMEM" if any(gpu.peers for gpu in machine.gpus) else "SHM/direct",)),
    ):  # fmt: skip
        yield Fact(name, value)
    yield from _present(machine)
    for node in machine.numa:
        yield Fact(Known.DIMM_BYTES, CONTROLLER_BYTES, "B", f"mc{node.index}")
    vertices = MachineVertices(machine)
    for gpu in machine.gpus:
        vertex = next((v.name for v in vertices.gpus if v.device == gpu.name), gpu.name)
        linked = any(link.kind is LinkKind.NVLINK and link.source == vertex for link in machine.links)
        generation = generation_of(machine, vertex)
        for name, value in (
            (Known.IOMMU_GROUP, "1"), (Known.SWITCH, "none"), (Known.PCIE_WIDTH, 16),
            (Known.BRIDGES, (root_port(gpu.index),)), (Known.BRIDGE_GROUPS, ("1",)),
            (Known.ACS_REDIRECTS, ()),
            (Known.PCIE_WIDTH_POSSIBLE, 16), (Known.PCIE_NARROWEST, gpu.bus_id),
            (Known.PCIE_GENERATION_POSSIBLE, generation), (Known.PCIE_GENERATION_OF_GPU, generation),
            (Known.AER, 0), (Known.AER_CORRECTED, 0), (Known.BAR1, gpu.memory_bytes),
            (Known.MEMORY, gpu.memory_bytes), (Known.NVLINKS, nvlinks_of(machine, gpu.name) if linked else 0),
            (Known.NVLINKS_INACTIVE, 0), (Known.NVLINK_ERRORS, ()), (Known.FABRIC, FABRIC_READY),
            (Known.FABRIC_HEALTH, ()), (Known.BANDWIDTH_MODE, "full"), (Known.THROTTLED, ()),
            (Known.MEMORY_CLOCK, USUAL_CLOCK_HZ), (Known.MEMORY_CLOCK_POSSIBLE, USUAL_CLOCK_HZ),
            (Known.ECC_ERRORS, 0),
            (Known.REMAP_PENDING, "off"), (Known.REMAP_FAILED, "off"), (Known.MIG, "off"),
            (Known.CONFIDENTIAL, "off"), (Known.UTILISATION, 0), (Known.PROCESSES, 0),
            (Known.NUMA_NODE, f"{gpu.numa}"), (Known.THROTTLED_TIME, 0.0), (Known.THROTTLED_BY, "nothing"),
            (Known.OBSERVED, OBSERVED_S), (Known.PCIE_RETRIED, 0), (Known.PCIE_FAILED, 0),
            (Known.NVLINK_RETRIED, 0), (Known.NVLINK_FAILED, 0), (Known.PCIE_LOADED, gpu.bus_id),
            (Known.PCIE_GENERATION_LOADED, generation), (Known.PCIE_GENERATION_LOADED_POSSIBLE, generation),
        ):  # fmt: skip
            yield Fact(name, value, device=gpu.name)
