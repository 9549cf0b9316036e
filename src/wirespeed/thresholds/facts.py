"""Thresholds of facts: from which number on what a device, link or host reports is evidence of a cause."""

from __future__ import annotations

from ..units import MIB

# GPUs

#: A GPU is throttled if it was for a larger share of the time that it was measured.
#: Why: Throttling during fewer of the samples hardly moves their median.
THROTTLED_PERCENT = 10  # %
#: The share of throttled time counts if the GPU was observed for this time.
#: Why: A share of a shorter time is that of few readings.
LEAST_OBSERVED_S = 1.0  # s
#: A counter of throttled time that is faster than time by this factor counts something else.
#: Why: Time and counter are read one after the other, which allows a small excess.
TOO_FAST = 1.2
#: Clocks of a GPU under load are low below this fraction of the highest.
#: Why: GeForce GPUs compute in P2, at a memory clock that is up to 8% below the highest one.
LOW_CLOCK = 0.9
#: A limit of power or of a clock is lowered below this fraction of its default.
#: Why: It leaves room for rounding of both numbers.
USUAL_LIMIT = 0.99
#: A GPU is in use if its utilisation before the run is higher.
#: Why: It leaves room for a monitor that reads the GPU.
BUSY_PERCENT = 5  # %
#: A larger BAR1 that is smaller than the memory is the largest of the firmware.
#: Why: It is the size of BAR1 of GPUs of NVIDIA without Resizable BAR.
USUAL_BAR_BYTES = 256 * MIB  # B

# PCIe links

#: More corrected errors of a link during a run are a defect.
#: Why: It is the limit of a published health check.
#: Source: DCGM: default of max_pcie_replays
RETRIED = 80
#: More corrected errors of a link since the start of the system are a sign.
#: Why: Some corrected errors happen on good links, too.
CORRECTED = 1000

# Hosts

#: A smaller /dev/shm is too small for NCCL.
#: Why: Containers get 64 MB by default; this is clearly more.
#: Source: Docker: default of --shm-size
SHM_BYTES = 512 * MIB  # B
#: A lower limit of locked memory is too low for RDMA.
#: Why: It is the default of current kernels; RDMA needs more.
#: Source: Linux: MLOCK_LIMIT since 5.16
MEMLOCK_BYTES = 8 * MIB  # B
#: CPUs are busy if tasks waited for one in a larger share of the last 10 s.
#: Why: It leaves room for short tasks.
PRESSURE_PERCENT = 10  # %
#: CPUs are busy if more tasks run than this fraction of the number of CPUs.
#: Why: With two CPUs for each core, every core is in use then.
BUSY_CPUS = 0.5
#: A memory limit below this fraction of the memory of the host is noted.
#: Why: Half of the memory is that of one of two sockets.
LEAST_MEMORY = 0.5
#: This fraction of an expected number of bytes is sufficient.
#: Why: Firmware and kernel keep some of the memory, and ECC some of that of a GPU.
ENOUGH_BYTES = 0.95
#: This fraction of the bytes of a baseline is sufficient.
#: Why: Of good machines of the same model it is known how much is kept.
ENOUGH_OF_BASELINE = 0.99
#: Several groups of GPUs are compared from this number of GPUs on.
#: Why: Of fewer GPUs, no division between groups is the usual one.
EVEN_GPUS = 4
#: Of two groups of GPUs, one of this size shows how large the other should be.
#: Why: Eight GPUs at two sockets are four at each.
EVEN_HALF = 4

# NICs and networks

#: More errors of a port during a run are a defect.
#: Why: A crowded network loses some packets.
PORT_ERRORS = 100
#: More errors of a port since its driver was loaded are a note.
#: Why: It is some per day of a month.
PORT_ERRORS_BEFORE = 1000
#: The MTU of interfaces and ports with this speed in Gbit/s or more counts.
#: Why: The slower an interface is, the less the number of packets limits it.
FAST_GBITS = 25
#: Packets of this size or less are small.
#: Why: It is the default of Ethernet.
#: Source: IEEE 802.3
SMALL_MTU = 1500  # B
#: Packets of RoCE are small below this MTU.
#: Why: It holds the largest packets of RoCE, 4,096 bytes, and their headers.
#: Source: IBA specification
ROCE_MTU = 4200  # B
#: A path over RDMA is slow below this share of what its NICs carry.
#: Why: Two DGX Sparks with 200 Gbit/s reach 161 to 190, with one of two endpoints 98 to 106.
#: Source: dgx-spark-playbooks, issues 25, 102 and 108
LEAST_RDMA = 0.75
#: A path over TCP is slow below this share of what its NICs carry.
#: Why: It is the share over RDMA.
LEAST_TCP = 0.75
#: Of TCP, no higher rate is expected.
#: Why: Processors manage at least this; a faster network is limited by them, not by itself.
MOST_TCP = 25e9 / 8  # B/s
#: Each direction is slow below this share of what its NICs carry if both are used at once.
#: Why: Ports and PCIe are full duplex, and no public threshold is known; this leaves room for what both
#: directions share: memory, and over TCP processors.
LEAST_BOTH = 0.6
