"""Thresholds of values: which are judged, by which ranges, and what is said of them."""

from __future__ import annotations

from ..units import GIB, KIB, MIB

# Published rates

#: This number of models, at least, says what is usual of a kind of link.
#: Why: Two may share a property that others lack.
LEAST_MODELS = 3
#: Another model may be slower than the slowest of them by this fraction.
#: Why: The memory of H100 NVL, of which no row is, reaches 0.76 of its line rate; the slowest model 0.79.
#: Source: BabelStream
OTHER_MODELS = 0.06
#: A value may be slower than the slowest published one of its model by this fraction.
#: Why: Good machines of one model differ by 1 to 2%, and the next one to be published may be the slowest.
#: Source: recorded runs
SAME_MODEL = 0.02
#: A value below this fraction of the lowest usual one of its model fails.
#: Why: Real machines of one model differ by 1 to 5%; a fifth below the slowest published one is a defect.
FAR_BELOW = 0.8
#: Two directions of a PCIe link that are alike differ by at most this fraction.
#: Why: They differ by 5% on eleven H200 hosts, and by 12% on eight RTX 4090s, whose slots differ.
#: Source: recorded runs
DIRECTIONS = 0.2
#: Of copies in both directions at once over PCIe, the slower may be this fraction slower than the faster one.
#: Why: On good hosts they differ by 0 to 31%, as the memory of the host decides which of them waits.
#: Source: 44 recorded runs of H100 and H200
DIRECTIONS_AT_ONCE = 0.45
#: "As fast as expected" is said from this share of the typical value on.
#: Why: Machines of one model differ by at most 7% in paths that other programs do not disturb.
#: Source: recorded runs
AS_EXPECTED = 0.93
#: PCIe links are alike from this generation on.
#: Why: Of PCIe 3, virtual machines reach 0.6 of the line rate, which cloud operators accept, others 0.83.
ALIKE_PCIE = 4
#: Collectives of a host are compared from this array on.
#: Why: Sources give the largest of a curve, which rises by 3 to 5% from 1 to 8 GiB, by 10 to 15% from 256
#: MiB.
LARGE_ARRAY = GIB  # B
#: All-reduces by a ring are alike from this number of ranks on.
#: Why: Two ranks are slower.
RING_RANKS = 4
#: Other collectives by a ring are alike from this number of ranks on.
#: Why: On four H200s, all-gather and reduce-scatter of 1 GiB reached 0.92 of the all-reduce in ten checks.
#: Source: recorded runs
OTHER_RING_RANKS = 8
#: A rate is one of the lowest line rate that it exceeds by at most this fraction.
#: Why: It leaves room for clocks and rounding; line rates differ by more.
OVER_LINE = 0.02
#: Collectives of several hosts are compared from this array on.
#: Why: Published rates rise by up to 14% from 1 to 8 GiB, by 6% from 2.
LARGE_OF_HOSTS = 2 * GIB  # B
#: Collectives of more hosts are not compared.
#: Why: It is the largest number of published rates; larger networks have other bottlenecks.
MOST_HOSTS = 16
#: The bus bandwidth of a ring is at most this fraction of the rate of NVLink.
#: Why: NCCL counts 20, 20.6 and 40.1 GB/s of links with 25, 26.6 and 50.
#: Source: NCCL: topo.h
RING_OF_NVLINK = 0.77

# Dips in curves

#: A size dips if the next larger one has this many times its rate, and takes DIP_TIME.
#: Why: Switches between algorithms change the rate of published curves by at most a factor of two.
DIP_RISE = 8.0
#: The fraction of the time of a dip that the next larger size takes at most.
#: Why: Where start-up dominates, the rate grows with the size, and the time does not fall.
DIP_TIME = 0.5
#: A size dips if it has at most this fraction of the rate of the next smaller one.
#: Why: It is far less than after a switch between algorithms: half in published curves.
DIP_FALL = 0.2
#: From this size on, a size dips if both a smaller and a larger one are faster.
#: Why: There, starting an operation matters less.
DIP_LARGE = 512 * KIB  # B
#: Such a size dips at this fraction of the rate of both.
#: Why: Of the posted curves in the tests, only those of posts about such dips have one.
DIP_VALLEY = 0.75
#: A collective of NCCL dips at this fraction of the rate of a smaller size, if no larger one is faster again.
#: Why: As for DIP_VALLEY.
DIP_HALF = 0.5
#: The first size of a curve is not compared up to this size.
#: Why: It is slow because it warms up.
DIP_WARMED_UP = 64 * KIB  # B

# Values and their ranges

#: A value that is above its limit by a larger fraction is implausible.
#: Why: Clocks are not exact.
ABOVE_LIMIT = 0.01
#: A value that is above the lowest passing one by a smaller fraction gets a warning.
#: Why: Copies from the host of two H200s varied by as much in eleven checks.
NEAR_LOWEST = 0.05
#: The median of a few samples is that of many within this number of standard errors.
#: Why: Of a hundred values that vary by chance, none is outside.
CHANCE_ERRORS = 3.5
#: Samples that vary excuse at most this fraction.
#: Why: More is not chance, and a defect may be its cause.
MOST_CHANCE = 0.08
#: Links that are loaded at least this fraction as much as the busiest one limit a value.
#: Why: Links that limit together are loaded nearly alike.
LIMITING = 0.9
#: A value below this fraction of the typical one passes no range.
#: Why: Ranges of collectives between hosts begin at a fifth of what the NICs carry.
FAR_FROM_TYPICAL = 0.5
#: A rate of host memory whose capacity was read fails below this fraction of the lowest usual one.
#: Why: Smaller differences can be other work on the host.
FAR_BELOW_MEMORY = 0.5
#: A published gate below this fraction of the lowest expected value is meaningless.
#: Why: A link at half its speed passes it.
MEANINGLESS = 1 / 3

# Caches of hosts

#: Caches may keep at most this share of a buffer since it was read before.
#: Why: A larger share would allow any rate.
KEPT_OF_BUFFER = 0.5
#: A working set of at most this share of a cache stays in it.
#: Why: Other data uses the cache, too.
FITS = 0.5
#: In a virtual machine, a working set of at most this share of a cache stays in it.
#: Why: Of two H100s' host, 1 MiB of 2 MiB took 25 ns instead of 6 to 8 in one of a dozen runs.
#: Source: recorded runs
FITS_BESIDE = 0.25
#: A working set is clearly in a shared cache from this many times the next smaller cache on.
#: Why: It is also by as much smaller than the shared cache.
CLEARLY_SHARED = 4
#: A cache is slow above this many times its usual latency, relative to the other small cache.
#: Why: The clock changes both alike; this leaves room for other work.
SLOW_CACHE = 1.9
#: A last cache that saves less than this fraction of the memory's latency is missing.
#: Why: A cache that works saves clearly more.
SAVED = 0.1
#: The highest latency of a shared cache over that of memory, where none is published.
#: Why: A virtual machine may get little of the cache, but memory is not faster.
NO_SLOWER = 1.5
#: The lowest rate of copies in the caches of cores, over that of the memory in the same run.
#: Why: A cache that works is faster than memory.
SMALL_CACHE = 1.2
#: The lowest rate of copies in larger caches, over that of the memory in the same run.
#: Why: Others may use a shared cache.
LARGE_CACHE = 0.3
#: The lowest latency under load, over that without.
#: Why: Less is a mistake of the measurement.
LOADED_LEAST = 0.6
#: The highest latency under load over that without, where none is published.
#: Why: Queues of a loaded memory are long, and less is no evidence of a defect.
LOADED_MOST = 15.0

# Sizes that are judged

#: Ranges of smaller buffers allow for the start of each copy.
#: Why: Caches, those of GPUs up to 126 MB, may keep them.
JUDGED_BYTES = 256 * MIB  # B
#: As JUDGED_BYTES, for copies by GPUs between memories.
#: Why: The path between these limits them, not a cache.
JUDGED_COPY_BYTES = 128 * MIB  # B
#: Lists of blocks and files are judged if one copy takes this long at its lowest rate.
#: Why: The start of a copy takes up to 1% of it.
JUDGED_COPY_S = 1e-3  # s
#: A list of blocks is judged if each block takes this long at the lowest rate.
#: Why: It is eight times the submission of a block, which takes up to 2 µs.
JUDGED_BLOCK_S = 16e-6  # s
#: As JUDGED_BLOCK_S, for blocks that a kernel moves.
#: Why: It has nothing to submit for a block.
JUDGED_KERNEL_BLOCK_S = 1e-6  # s
#: The highest rate of copies of small buffers within a GPU, over the rate of its memory.
#: Why: A cache keeps a part of them.
MOST_CACHED = 1.5

# Values of logs

#: The lowest value of a log over a measured one.
#: Why: Kernels of other tools may be slower, and logs show no clocks, slots or virtual machines. Published
#: are 0.72 to 0.78 of the line rate of memory, 0.61 of PCIe 3 to a T4 in a virtual machine.
#: Source: BabelStream, p2pBandwidthLatencyTest; Azure accepts 0.57 to 0.63 for V100s
WIDER = 0.9
#: The lowest share of the line rate of copies in both directions between host and GPU.
#: Why: 11 of 31 GB/s is a warning below 0.336.
LEAST_BOTH_WAYS = 0.32
#: Collectives between hosts are judged from this array on.
#: Why: Latencies between hosts dominate smaller ones.
LEAST_ARRAY_BYTES = GIB  # B
#: Collectives between hosts are judged from this part of a rank on.
#: Why: As for LEAST_ARRAY_BYTES.
LEAST_PART_BYTES = 32 * MIB  # B
#: The lowest rate of RDMA over the line rate of a NIC.
#: Why: Published are 0.91 (40 Gb/s Ethernet), 0.93 (100 Gb/s, packets of 1 KiB); with NEAR_LOWEST, they pass
#: from 0.88.
#: Source: published rates
LEAST_OF_LINE = 0.88 / 1.05
#: The typical rate of RDMA over the line rate of a NIC.
#: Why: Published is 0.98 (100 Gb/s Ethernet, packets of 4 KiB; InfiniBand of 100 and 200 Gb/s).
#: Source: published rates
TYPICAL_OF_LINE = 0.97
#: Messages of RDMA are judged from this size on.
#: Why: Smaller ones need more queue pairs than one.
LEAST_MESSAGE_BYTES = 64 * KIB  # B
#: Messages of MPI are judged from this size on.
#: Why: Smaller ones need more than one at a time.
LEAST_OF_MPI_BYTES = MIB  # B
#: NVLink may connect up to this number of GPUs of several hosts; of more, the NICs limit.
#: Why: The largest such machine, DGX GH200, has 256 GPUs; an NVL72 has 72.
#: Source: data sheets
MOST_OF_NVLINK = 256

# Lists of blocks

#: Methods that differ by less are equally good.
#: Why: A change of method for less is not worth it.
EQUAL_METHODS = 0.03
#: The model of a method does not hold if its median relative error is larger.
#: Why: A model that is further off misleads.
MODEL_ERROR = 0.15
#: Blocks are large from this fraction of the fastest rate on.
#: Why: Larger ones hardly gain.
NEARLY_FULL = 0.9
#: The slowest of several GPUs is named if rates differ by more than this factor.
#: Why: It leaves room for slots and sockets that differ.
GPUS_APART = 1.2
#: The fewest thread blocks that reach this share of the fastest rate saturate the link.
#: Why: Rates of neighbours on the flat part of a curve differ by 1 to 3%.
#: Source: recorded runs
SATURATED = 0.95

# Notes of a run

#: A pair is measured again if it is below its typical value by more than this fraction.
#: Why: Other transfers may have disturbed it.
AGAIN_FRACTION = 0.05
#: Values are slower together than separately by more than this fraction.
#: Why: Smaller differences are noise.
SLOWED_FRACTION = 0.02
#: A value is slow at this many times the fastest median of its column.
#: Why: All its samples are above those of the fastest, too.
SLOW_ROW = 1.5
#: A process is a straggler if it starts later than this fraction of the time of the operation.
#: Why: A smaller delay hardly changes the value.
STRAGGLER_FRACTION = 0.1
#: A process is a straggler if it starts later than this.
#: Why: Of short operations, the fraction alone is a delay that is usual.
STRAGGLER_S = 5e-6  # s
#: Transfers ran one after another if each needed this fraction of its typical time after the last.
#: Why: Later ones of transfers that run together end within less.
ONE_AFTER_ANOTHER = 0.9
#: The first of them ended within this many times its typical time.
#: Why: It had no other beside it.
FIRST_ALONE = 1.15
#: Ends are evidence of it if the earlier one is at this fraction of the later one or more.
#: Why: A transfer that ends far later is slow by itself.
FAR_ENDS = 0.2

# Reports of nccl-tests

#: A run passes if it reaches this fraction of the requested bandwidth.
#: Why: It is that of the program.
#: Source: nccl-tests: common.cu
ACCEPTED = 0.9
#: An iteration is a spike if a process needs more than this many times the mean.
#: Why: Smaller differences are usual.
SPIKE = 1.5
