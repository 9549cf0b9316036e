"""Thresholds of facts: from which number on what a device, link or host reports is evidence of a cause."""

from __future__ import annotations

from ..units import MIB
from . import row

# fmt: off
_GPUS = "GPUs"
THROTTLED_PERCENT = row(10, _GPUS,
    "A GPU is throttled if it was for a larger share of the time that it was measured.",
    "Throttling during fewer of the samples hardly moves their median.", unit="%")
LEAST_OBSERVED_S = row(1.0, _GPUS,
    "The share of throttled time counts if the GPU was observed for this time.",
    "A share of a shorter time is that of few readings.", unit="s")
TOO_FAST = row(1.2, _GPUS,
    "A counter of throttled time that is faster than time by this factor counts something else.",
    "Time and counter are read one after the other, which allows a small excess.")
LOW_CLOCK = row(0.9, _GPUS,
    "Clocks of a GPU under load are low below this fraction of the highest.",
    "GeForce GPUs compute in P2, at a memory clock that is up to 8% below the highest one.")
USUAL_LIMIT = row(0.99, _GPUS,
    "A limit of power or of a clock is lowered below this fraction of its default.",
    "It leaves room for rounding of both numbers.")
BUSY_PERCENT = row(5, _GPUS,
    "A GPU is in use if its utilisation before the run is higher.",
    "It leaves room for a monitor that reads the GPU.", unit="%")
USUAL_BAR_BYTES = row(256 * MIB, _GPUS,
    "A larger BAR1 that is smaller than the memory is the largest of the firmware.",
    "It is the size of BAR1 of GPUs of NVIDIA without Resizable BAR.", unit="B")

_LINKS = "PCIe links"
RETRIED = row(80, _LINKS,
    "More corrected errors of a link during a run are a defect.",
    "It is the limit of a published health check.", "DCGM: default of max_pcie_replays")
CORRECTED = row(1000, _LINKS,
    "More corrected errors of a link since the start of the system are a sign.",
    "Some corrected errors happen on good links, too.")

_HOST = "Hosts"
SHM_BYTES = row(512 * MIB, _HOST,
    "A smaller /dev/shm is too small for NCCL.",
    "Containers get 64 MB by default; this is clearly more.", "Docker: default of --shm-size", unit="B")
MEMLOCK_BYTES = row(8 * MIB, _HOST,
    "A lower limit of locked memory is too low for RDMA.",
    "It is the default of current kernels; RDMA needs more.", "Linux: MLOCK_LIMIT since 5.16", unit="B")
PRESSURE_PERCENT = row(10, _HOST,
    "CPUs are busy if tasks waited for one in a larger share of the last 10 s.",
    "It leaves room for short tasks.", unit="%")
BUSY_CPUS = row(0.5, _HOST,
    "CPUs are busy if more tasks run than this fraction of the number of CPUs.",
    "With two CPUs for each core, every core is in use then.")
LEAST_MEMORY = row(0.5, _HOST,
    "A memory limit below this fraction of the memory of the host is noted.",
    "Half of the memory is that of one of two sockets.")
ENOUGH_BYTES = row(0.95, _HOST,
    "This fraction of an expected number of bytes is sufficient.",
    "Firmware and kernel keep some of the memory, and ECC some of that of a GPU.")
ENOUGH_OF_BASELINE = row(0.99, _HOST,
    "This fraction of the bytes of a baseline is sufficient.",
    "Of good machines of the same model it is known how much is kept.")
EVEN_GPUS = row(4, _HOST,
    "Several groups of GPUs are compared from this number of GPUs on.",
    "Of fewer GPUs, no division between groups is the usual one.")
EVEN_HALF = row(4, _HOST,
    "Of two groups of GPUs, one of this size shows how large the other should be.",
    "Eight GPUs at two sockets are four at each.")

_NICS = "NICs and networks"
PORT_ERRORS = row(100, _NICS,
    "More errors of a port during a run are a defect.", "A crowded network loses some packets.")
PORT_ERRORS_BEFORE = row(1000, _NICS,
    "More errors of a port since its driver was loaded are a note.", "It is some per day of a month.")
FAST_GBITS = row(25, _NICS,
    "The MTU of interfaces and ports with this speed in Gbit/s or more counts.",
    "The slower an interface is, the less the number of packets limits it.")
SMALL_MTU = row(1500, _NICS,
    "Packets of this size or less are small.", "It is the default of Ethernet.", "IEEE 802.3", unit="B")
ROCE_MTU = row(4200, _NICS,
    "Packets of RoCE are small below this MTU.",
    "It holds the largest packets of RoCE, 4,096 bytes, and their headers.", "IBA specification", unit="B")
LEAST_RDMA = row(0.75, _NICS,
    "A path over RDMA is slow below this share of what its NICs carry.",
    "Two DGX Sparks with 200 Gbit/s reach 161 to 190, with one of two endpoints 98 to 106.",
    "dgx-spark-playbooks, issues 25, 102 and 108")
LEAST_TCP = row(0.75, _NICS,
    "A path over TCP is slow below this share of what its NICs carry.", "It is the share over RDMA.")
MOST_TCP = row(25e9 / 8, _NICS,
    "Of TCP, no higher rate is expected.",
    "Processors manage at least this; a faster network is limited by them, not by itself.", unit="B/s")
LEAST_BOTH = row(0.6, _NICS,
    "Each direction is slow below this share of what its NICs carry if both are used at once.",
    "Ports and PCIe are full duplex, and no public threshold is known; this leaves room for what both "
    "directions share: memory, and over TCP processors.")
