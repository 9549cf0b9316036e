"""Facts: what was read of a machine without measuring, or why it could not be read."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from enum import StrEnum
from functools import cached_property
from typing import Annotated

import msgspec

#: The mode of transparent huge pages in which the kernel gives none.
NO_HUGE_PAGES = "never"


class Known(StrEnum):
    """Names of the facts that causes are derived from."""

    # Of the host.
    SHM = "size of /dev/shm"
    MEMLOCK = "limit of locked memory"
    CPUS = "CPUs that this process may use"
    CPUS_ONLINE = "CPUs of the host"
    NODES = "NUMA nodes that this process may use"
    NODES_ONLINE = "NUMA nodes of the host"
    CPU_QUOTA = "CPU quota"
    GOVERNOR = "CPU governors"
    NUMA_BALANCING = "NUMA balancing"
    HUGE_PAGES = "transparent huge pages"
    NODES_PER_SOCKET = "NUMA nodes per socket"
    IOMMU = "IOMMU"
    KERNEL_OPTIONS = "kernel options for PCI and IOMMU"
    HYPERVISOR = "hypervisor"
    MACHINE_ID = "machine ID"  #: hashed
    DIMM_BYTES = "memory of a controller"
    DIMM_ERRORS = "corrected memory errors"
    CPU_DESIGN = "vendor, family and model of the CPU"
    MODULES = "memory modules"
    MEMORY_CHANNELS = "memory channels in use"
    MEMORY_LIMIT = "memory limit of the control group"
    BOARD = "board"
    # Of a NUMA node.
    MEMORY_RATE = "line rate of the memory"
    MEMORY_RATE_MOST = "highest possible line rate of the memory"
    MEMORY_RATE_SOURCE = "source of the line rate"
    MEMORY_LATENCY = "latency of the memory by the firmware"
    # Of the host.
    LOAD = "running tasks"
    PRESSURE = "time in which tasks waited for a CPU"
    PEERMEM = "nvidia_peermem"
    REGISTRY_KEYS = "registry keys of the driver"
    DRIVER_KERNEL = "version of the driver's kernel module"
    DRIVER_LIBRARY = "version of the driver's library"
    MEMORY_OF_HOST = "memory of the host"
    NODES_WITH_CPUS = "NUMA nodes with CPUs"
    CONTAINER = "container"
    NICS = "RDMA devices"
    DRIVER_LOADED = "NVIDIA kernel module"
    GPUS_ON_BUS = "NVIDIA GPUs on the PCI bus"
    GPUS_OF_DRIVER = "GPUs that the driver shows"
    GPUS_LOST = "GPUs that fell off the bus"
    NCCL_VARIABLES = "NCCL settings"
    NCCL_TRANSPORTS = "transports of NCCL"
    NCCL_NETWORK = "network between hosts of NCCL"
    NCCL_GDR = "GPUDirect RDMA of NCCL"
    NCCL_NVLS = "NVLS of NCCL"
    NCCL_PLUGINS = "network plug-ins of NCCL"
    NCCL_PLUGINS_ELSEWHERE = "network plug-ins outside the search path"
    RDMA_FILES = "device files of RDMA"
    # Of a GPU.
    IOMMU_GROUP = "IOMMU group"
    NUMA_NODE = "NUMA node of the GPU"
    SWITCH = "PCIe switch"
    BRIDGES = "PCIe bridges up to the root port"
    BRIDGE_GROUPS = "IOMMU groups of the bridges"
    ACS_REDIRECTS = "bridges whose ACS redirects"
    PCIE_WIDTH = "PCIe width"
    PCIE_WIDTH_POSSIBLE = "possible PCIe width"
    PCIE_GENERATION_POSSIBLE = "possible PCIe generation"
    PCIE_GENERATION_OF_GPU = "PCIe generation of the GPU"
    PCIE_NARROWEST = "narrowest PCIe link"
    # If a link above a device supports less than the device: the address of its lower end, what both of its
    # ends support, and what the device supports.
    PCIE_LIMITING = "slowest PCIe link by design"
    PCIE_LIMITING_KIND = "kind of the slowest PCIe link"
    PCIE_LIMITING_RATE = "rate of the slowest PCIe link"
    PCIE_KIND = "PCIe link of the device itself"
    AER = "PCIe errors that were not corrected"
    AER_CORRECTED = "corrected PCIe errors"
    BAR1 = "size of BAR1"
    BAR1_MOST = "largest size of BAR1 that the GPU supports"
    DISPLAY = "display at the GPU"
    VBIOS = "VBIOS"
    MEMORY = "size of the memory"
    NVLINKS = "active NVLinks"
    NVLINKS_INACTIVE = "inactive NVLinks"
    NVLINK_ERRORS = "NVLink errors"
    FABRIC = "NVLink fabric"
    FABRIC_HEALTH = "problems of the NVLink fabric"
    FABRIC_CLUSTER = "cluster of the NVLink fabric"
    FABRIC_CLIQUE = "clique of the NVLink fabric"
    BANDWIDTH_MODE = "NVLink bandwidth mode"
    THROTTLED = "throttle reasons"
    POWER_LIMIT = "power limit"
    POWER_LIMIT_USUAL = "default power limit"
    MEMORY_CLOCK = "memory clock of applications"
    MEMORY_CLOCK_POSSIBLE = "maximum memory clock"
    ECC_ERRORS = "uncorrected memory errors"
    REMAP_PENDING = "row remapping pending"
    REMAP_FAILED = "row remapping failed"
    MIG = "MIG mode"
    CONFIDENTIAL = "confidential computing"
    GPUDIRECT = "GPUDirect RDMA of the GPU"
    PERSISTENCE = "persistence mode"
    UTILISATION = "utilisation"
    PROCESSES = "processes"
    # Of a pair of GPUs (``gpu0->gpu1``), as NVML reports them: ``ok`` or the reason why not.
    P2P_READ = "peer reads by NVML"
    P2P_WRITE = "peer writes by NVML"
    P2P_ATOMICS = "peer atomics by NVML"
    # Of a NIC, which also has the PCIe width. What is possible is what both ends of the link support.
    NIC_DRIVER = "driver of the NIC"
    NIC_ADDRESS = "PCI address"
    NIC_CARD = "card of the NIC"  #: hashed; all endpoints of a card have the same
    NIC_FIRMWARE = "firmware of the NIC"
    PCIE_GENERATION = "PCIe generation"
    DRIVE_ADDRESS = "PCI address of the drive"  #: of an NVMe drive, which also has the PCIe width
    # Of a port of a NIC: it is the NIC if that has only one, else NIC:PORT.
    PORT_STATE = "state of the port"
    PORT_PHYSICAL = "physical state of the port"
    PORT_LAYER = "link layer of the port"
    PORT_RATE = "rate of the port"
    PORT_INTERFACE = "network interface of the port"
    PORT_ERRORS = "errors of the port"
    PORT_ERROR_KINDS = "kinds of errors of the port"
    PORT_LOST = "lost links of the port"
    PORT_CONGESTION = "congestion notifications of the port"
    PORT_RETRIED = "errors of the port during the run"
    PORT_USED = "use of the port by the run"
    PORT_MTU = "MTU of the port"
    PORT_GIDS = "types of the GIDs of the port"  #: ``3: RoCE v2``
    PORT_GIDS_IN_USE = "number of GIDs of the port"
    # Of a network interface by which nodes reach each other.
    INTERFACE_KIND = "kind of the network interface"
    BOND_WITHOUT_LINK = "interfaces of the bond without a link"
    INTERFACE_SPEED = "speed of the network interface"
    INTERFACE_MTU = "MTU of the network interface"
    INTERFACE_LOST = "lost links of the network interface during the run"
    PATH_MTU = "MTU of the path to the other node"  #: the largest packet that arrives
    ROUTE_MTU = "MTU of the route to the other node"  #: as far as the kernel knows
    ROUTE_INTERFACE = "network interface of the route to the other node"
    INTERFACE_ADDRESS = "address of the network interface"  #: IPv4, with the length of its prefix
    # Of a GPU on the PCI bus, by its address; it also has a NUMA node and a PCIe switch. Of a slot.
    PCI_DRIVER = "driver of the PCI device"
    PCI_MODEL = "ID of the PCI device"
    PCI_VENDOR = "vendor of the GPU"  #: of GPUs and accelerators of others than NVIDIA
    DEVICE_FILE = "device file"
    SLOT = "slot"
    # Of a GPU, while it was measured: the highest clocks, and the lowest number of its P-state.
    SM_CLOCK_SEEN = "highest SM clock of the run"
    MEMORY_CLOCK_SEEN = "highest memory clock of the run"
    P_STATE_SEEN = "fastest P-state of the run"
    THROTTLED_TIME = "throttled time"
    THROTTLED_BY = "throttled by"
    OBSERVED = "observed time"
    PCIE_RETRIED = "PCIe errors during the run"
    PCIE_FAILED = "uncorrected PCIe errors during the run"
    NVLINK_RETRIED = "NVLink errors during the run"
    NVLINK_FAILED = "NVLink recoveries during the run"
    PCIE_LOADED = "slowest PCIe link during copies"
    PCIE_GENERATION_LOADED = "PCIe generation during copies"
    PCIE_GENERATION_LOADED_POSSIBLE = "possible PCIe generation of this link"
    PCIE_WIDTH_LOADED = "PCIe width during copies"
    PCIE_WIDTH_LOADED_POSSIBLE = "possible PCIe width of this link"


#: Counter of a GPU or NIC -> what its increase during a run is.
COUNTED = {
    "PCIe replays": Known.PCIE_RETRIED,
    "PCIe NAKs received": Known.PCIE_RETRIED,
    "PCIe NAKs sent": Known.PCIE_RETRIED,
    "PCIe receiver errors": Known.PCIE_RETRIED,
    "PCIe bad TLPs": Known.PCIE_RETRIED,
    "PCIe bad DLLPs": Known.PCIE_RETRIED,
    "PCIe LCRC errors": Known.PCIE_RETRIED,
    "PCIe lane errors": Known.PCIE_RETRIED,
    "corrected PCIe errors of all ports": Known.PCIE_RETRIED,
    "PCIe non-fatal errors": Known.PCIE_FAILED,
    "PCIe fatal errors": Known.PCIE_FAILED,
    "uncorrected PCIe errors of all ports": Known.PCIE_FAILED,
    "NVLink CRC errors": Known.NVLINK_RETRIED,
    "NVLink replays": Known.NVLINK_RETRIED,
    "CRC errors of all NVLinks": Known.NVLINK_RETRIED,
    "replays of all NVLinks": Known.NVLINK_RETRIED,
    "integrity errors of all NVLinks": Known.NVLINK_RETRIED,
    "NVLink recoveries": Known.NVLINK_FAILED,
    "recoveries of all NVLinks": Known.NVLINK_FAILED,
    "link recoveries of all NVLinks": Known.NVLINK_FAILED,
    "failed link recoveries of all NVLinks": Known.NVLINK_FAILED,
    "errors of the port": Known.PORT_RETRIED,
}

#: Reading of a GPU -> what its best value during a run is, and whether the best one is the highest.
SEEN = {
    "SM clock": (Known.SM_CLOCK_SEEN, True),
    "memory clock": (Known.MEMORY_CLOCK_SEEN, True),
    "P-state": (Known.P_STATE_SEEN, False),
}

#: Value of a fact that is on or off; of peer access that NVML allows.
ON, OFF, OK = "on", "off", "ok"
#: State of the NVLink fabric of a GPU with nothing to report.
FABRIC_READY = "ready, or there is none"
#: Values of the device file of a GPU: there is none; the administrator excluded the GPU from the driver.
ABSENT, EXCLUDED = "absent", "excluded"
#: Largest number that a fact may have; an unlimited quantity is a text.
_LARGEST = 1e18
UNLIMITED = "unlimited"
#: Hypervisor of the Windows Subsystem for Linux.
WSL = "WSL2"
#: Value of a fact; None if it cannot be read.
FactValue = Annotated[float, msgspec.Meta(ge=-_LARGEST, le=_LARGEST)] | str | tuple[str, ...] | None
#: Why a file of the kernel, below ``/sys`` or ``/proc``, has no fact.
NOT_SHOWN = "the kernel does not show it here"


class Fact(msgspec.Struct, frozen=True, omit_defaults=True):
    """Something read of a machine.

    Attributes:
        name: Name of the fact.
        value: The value; None if it cannot be read.
        unit: Unit of a number; empty for a count.
        device: Device that it is about; empty for the host.
        reason: Why it cannot be read.
        host: Host that it is about; empty for the host of the first process.
    """

    name: str
    value: FactValue = None
    unit: str = ""
    device: str = ""
    reason: str = ""
    host: str = ""

    @classmethod
    def of(
        cls, name: str, value: FactValue, unit: str = "", device: str = "", *, why: str = NOT_SHOWN
    ) -> Fact:
        """A fact that was looked up; ``why`` is the reason if the value is None."""
        return cls(name, value, unit, device, "" if value is not None else why)

    def checked(self) -> Fact:
        """The fact as a file would have it: numbers are floats, and impossible ones are unreadable."""
        if not isinstance(self.value, (int, float)):
            return self
        if abs(self.value) <= _LARGEST:  # false for NaN
            return msgspec.structs.replace(self, value=float(self.value))
        return msgspec.structs.replace(self, value=None, reason="the number is impossible")


class Facts:
    """Facts of one host by device and name.

    Attributes:
        facts: The facts; of two with one name and device, the last counts.
        host: The host whose facts are looked up; empty for the host of the first process.
    """

    def __init__(self, facts: Iterable[Fact], host: str = "") -> None:
        self.host = host
        self._all = tuple(facts)
        self._facts = {(fact.device, fact.name): fact for fact in self._all if fact.host == host}

    @cached_property
    def of_each_host(self) -> tuple[Facts, ...]:
        """The facts of each host, first of the first process."""
        hosts: dict[str, list[Fact]] = {"": []}
        for fact in self._all:
            hosts.setdefault(fact.host, []).append(fact)
        return tuple(Facts(facts, host) for host, facts in hosts.items())

    def __iter__(self) -> Iterator[Fact]:
        return iter(self._facts.values())

    def without(self, name: str) -> Facts:
        """The facts of all hosts without a name."""
        return Facts((fact for fact in self._all if fact.name != name), self.host)

    def devices(self) -> tuple[str, ...]:
        """The devices that facts are about, in order; the host, which has no name, is not one."""
        return tuple(dict.fromkeys(device for device, _ in self._facts if device))

    def number(self, name: str, device: str = "") -> float | None:
        """A number; None if it is unknown or a text."""
        value = self._value(name, device)
        return float(value) if isinstance(value, (int, float)) else None

    def text(self, name: str, device: str = "") -> str:
        """A text; empty if it is unknown or another kind of value."""
        value = self._value(name, device)
        return value if isinstance(value, str) else ""

    def several(self, name: str, device: str = "") -> tuple[str, ...]:
        """Several texts; none if they are unknown."""
        value = self._value(name, device)
        return value if isinstance(value, tuple) else ()

    def knows(self, name: str, device: str = "") -> bool:
        """Whether a fact could be read."""
        return self._value(name, device) is not None

    def unreadable(self, name: str, device: str = "") -> str:
        """Why a fact cannot be read; empty if it was read, or if nobody tried."""
        fact = self._facts.get((device, name))
        return fact.reason if fact and fact.value is None else ""

    def _value(self, name: str, device: str) -> FactValue:
        fact = self._facts.get((device, name))
        return fact.value if fact else None
