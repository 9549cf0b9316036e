"""The thresholds that decide verdicts and causes, each with its meaning, its reason, and its source."""

from __future__ import annotations

from collections.abc import Iterator

from ..units import KIB, MIB

#: Source of a threshold that no publication gives.
CHOSEN = "chosen"


class Threshold(float):
    """A number that decides a verdict.

    Attributes:
        subject: What it is about; a heading of the documentation.
        meaning: What it separates.
        reason: Why it is this number.
        source: Where it is from, ``chosen`` if no publication gives one.
        unit: Its unit: ``B``, ``B/s``, ``s``, ``%``; empty for a fraction or a number.
    """

    def __new__(
        cls, value: float, subject: str, meaning: str, reason: str, source: str = CHOSEN, *, unit: str = ""
    ) -> Threshold:
        """A threshold with this value."""
        self = super().__new__(cls, value)
        self.subject, self.meaning, self.reason = subject, meaning, reason
        self.source, self.unit = source, unit
        return self

    subject: str
    meaning: str
    reason: str
    source: str
    unit: str


_GPUS = "GPUs"
THROTTLED_PERCENT = Threshold(
    10, _GPUS, "A GPU is throttled if it was for a larger share of the time that it was measured.",
    "Throttling during fewer of the samples hardly moves their median.", unit="%",
)  # fmt: skip
LEAST_OBSERVED_S = Threshold(
    1.0, _GPUS, "The share of throttled time counts if the GPU was observed for this time.",
    "A share of a shorter time is that of few readings.", unit="s",
)  # fmt: skip
TOO_FAST = Threshold(
    1.2, _GPUS, "A counter of throttled time that is faster than time by this factor counts something else.",
    "Time and counter are read one after the other, which allows a small excess.",
)  # fmt: skip
LOW_CLOCK = Threshold(
    0.9, _GPUS, "Clocks of a GPU under load are low below this fraction of the highest.",
    "GeForce GPUs compute in P2, at a memory clock that is up to 8% below the highest one.",
)  # fmt: skip
USUAL_LIMIT = Threshold(
    0.99, _GPUS, "A limit of power or of a clock is lowered below this fraction of its default.",
    "It leaves room for rounding of both numbers.",
)  # fmt: skip
BUSY_PERCENT = Threshold(
    5, _GPUS, "A GPU is in use if its utilisation before the run is higher.",
    "It leaves room for a monitor that reads the GPU.", unit="%",
)  # fmt: skip
USUAL_BAR_BYTES = Threshold(
    256 * MIB, _GPUS, "A larger BAR1 that is smaller than the memory is the largest of the firmware.",
    "It is the size of BAR1 of GPUs of NVIDIA without Resizable BAR.", unit="B",
)  # fmt: skip

_LINKS = "PCIe links"
RETRIED = Threshold(
    80, _LINKS, "More corrected errors of a link during a run are a defect.",
    "It is the limit of a published health check.", "DCGM: default of max_pcie_replays",
)  # fmt: skip
CORRECTED = Threshold(
    1000, _LINKS, "More corrected errors of a link since the start of the system are a sign.",
    "Some corrected errors happen on good links, too.",
)  # fmt: skip

_HOST = "Hosts"
SHM_BYTES = Threshold(
    512 * MIB, _HOST, "A smaller /dev/shm is too small for NCCL.",
    "Containers get 64 MB by default; this is clearly more.", "Docker: default of --shm-size", unit="B",
)  # fmt: skip
MEMLOCK_BYTES = Threshold(
    8 * MIB, _HOST, "A lower limit of locked memory is too low for RDMA.",
    "It is the default of current kernels; RDMA needs more.",
    "Linux: MLOCK_LIMIT since 5.16", unit="B",
)  # fmt: skip
PRESSURE_PERCENT = Threshold(
    10, _HOST, "CPUs are busy if tasks waited for one in a larger share of the last 10 s.",
    "It leaves room for short tasks.", unit="%",
)  # fmt: skip
BUSY_CPUS = Threshold(
    0.5, _HOST, "CPUs are busy if more tasks run than this fraction of the number of CPUs.",
    "With two CPUs for each core, every core is in use then.",
)  # fmt: skip
LEAST_MEMORY = Threshold(
    0.5, _HOST, "A memory limit below this fraction of the memory of the host is noted.",
    "Half of the memory is that of one of two sockets.",
)  # fmt: skip
ENOUGH_BYTES = Threshold(
    0.95, _HOST, "This fraction of an expected number of bytes is sufficient.",
    "Firmware and kernel keep some of the memory, and ECC some of that of a GPU.",
)  # fmt: skip
ENOUGH_OF_BASELINE = Threshold(
    0.99, _HOST, "This fraction of the bytes of a baseline is sufficient.",
    "Of good machines of the same model it is known how much is kept.",
)  # fmt: skip
EVEN_GPUS = Threshold(
    4, _HOST, "Several groups of GPUs are compared from this number of GPUs on.",
    "Of fewer GPUs, no division between groups is the usual one.",
)  # fmt: skip
EVEN_HALF = Threshold(
    4, _HOST, "Of two groups of GPUs, one of this size shows how large the other should be.",
    "Eight GPUs at two sockets are four at each.",
)  # fmt: skip

_NICS = "NICs and networks"
PORT_ERRORS = Threshold(
    100, _NICS, "More errors of a port during a run are a defect.", "A crowded network loses some packets.",
)  # fmt: skip
PORT_ERRORS_BEFORE = Threshold(
    1000, _NICS, "More errors of a port since its driver was loaded are a note.",
    "It is some per day of a month.",
)  # fmt: skip
FAST_GBITS = Threshold(
    25, _NICS, "The MTU of interfaces and ports with this speed in Gbit/s or more counts.",
    "The slower an interface is, the less the number of packets limits it.",
)  # fmt: skip
SMALL_MTU = Threshold(
    1500, _NICS, "Packets of this size or less are small.", "It is the default of Ethernet.", "IEEE 802.3",
    unit="B",
)  # fmt: skip
ROCE_MTU = Threshold(
    4200, _NICS, "Packets of RoCE are small below this MTU.",
    "It holds the largest packets of RoCE, 4,096 bytes, and their headers.", "IBA specification", unit="B",
)  # fmt: skip
LEAST_RDMA = Threshold(
    0.75, _NICS, "A path over RDMA is slow below this share of what its NICs carry.",
    "Two DGX Sparks with 200 Gbit/s reach 161 to 190, with one of two endpoints 98 to 106.",
    "dgx-spark-playbooks, issues 25, 102 and 108",
)  # fmt: skip
LEAST_TCP = Threshold(
    0.75, _NICS, "A path over TCP is slow below this share of what its NICs carry.",
    "It is the share over RDMA.",
)  # fmt: skip
MOST_TCP = Threshold(
    25e9 / 8, _NICS, "Of TCP, no higher rate is expected.",
    "Processors manage at least this; a faster network is limited by them, not by itself.", unit="B/s",
)  # fmt: skip
LEAST_BOTH = Threshold(
    0.6, _NICS, "Each direction is slow below this share of what its NICs carry if both are used at once.",
    "Ports and PCIe are full duplex, and no public threshold is known; this leaves room for what both "
    "directions share: memory, and over TCP processors.",
)  # fmt: skip

_NODES = "Nodes of a qualification"
AS_SLOW = Threshold(
    0.85, _NODES, "On a rail that is slow as a whole, a part is named, too, below this share of the others.",
    "It leaves room for differences between nodes that are slow alike.",
)  # fmt: skip
MOST_ALIKE = Threshold(
    0.5, _NODES, "From this share of the nodes of a rail on, all are slow alike, and none is named.",
    "Their median is slow itself.",
)  # fmt: skip
LEAST_SLOW = Threshold(
    0.05, _NODES, "A part is slow if it is below the median by at least this share.",
    "A smaller loss is not worth a repair.",
)  # fmt: skip
SIGMAS = Threshold(
    3.3, _NODES, "A part is slow if a value is below the median by this many standard deviations.",
    "One of 2,000 values of a normal distribution is.",
)  # fmt: skip
SIGMAS_OF_MEDIAN = Threshold(
    6.0, _NODES, "A part is slow if its median is below that of all by this many of its standard deviations.",
    "Noise is estimated from few values, and many parts are compared.",
)  # fmt: skip
MOST_PATHS = Threshold(
    0.75, _NODES, "A part of several paths or rails is slow if this share of them is.",
    "A few of its paths may be slow because of their other ends.",
)  # fmt: skip
FEWEST_OF_BLOCK = Threshold(
    3, _NODES, "Switches of a block with fewer nodes cannot be distinguished from its nodes.",
    "Of two slow nodes, both may be slow themselves.",
)  # fmt: skip
FEWEST_PATHS = Threshold(
    2, _NODES, "A node, a NIC or a cable is slow if this number of its paths is.",
    "One slow path may be slow because of its other end.",
)  # fmt: skip
FEWEST_OF_SPINE = Threshold(
    5, _NODES, "A spine switch is slow if this number of paths between blocks is.",
    "Fewer slow paths may have slow ends.",
)  # fmt: skip
LEAST_OF_SPINE = Threshold(
    0.04, _NODES, "A spine switch is slow if this share of the paths between blocks is.",
    "Of 16 spine switches, each carries 6%.",
)  # fmt: skip
LESS_WITHIN = Threshold(
    4.0, _NODES, "A spine switch is slow if paths within blocks are slow this many times less often.",
    "These lead through no spine switch.",
)  # fmt: skip
FEWEST_VALUES = Threshold(
    4, _NODES, "The deviation of the values of a part counts from this number of values on.",
    "The deviation of fewer is too uncertain.",
)  # fmt: skip

_PEERS = "Peer access"
PEER_OF_HOST = Threshold(
    0.6, _PEERS, "A pair is slow below this fraction of the copies through the host.",
    "A program can use these instead; hosts that forward well reach 0.8 and more.",
)  # fmt: skip
PEER_OF_MIRROR = Threshold(
    0.5, _PEERS, "A pair is slow below this fraction of its other direction.",
    "Links have the same rate in both directions; this leaves room for disturbances.",
)  # fmt: skip
PEER_OF_PEERS = Threshold(
    0.5, _PEERS, "A pair is slow below this fraction of the median of pairs that are joined alike.",
    "As for the other direction.",
)  # fmt: skip
PEER_OF_LINE = Threshold(
    0.5, _PEERS, "A pair is slow below this fraction of the line rate of its NVLinks.",
    "Protocols take less than half of a link.",
)  # fmt: skip
ENOUGH_PAIRS = Threshold(
    4, _PEERS, "The median of pairs that are joined alike counts from this number of pairs on.",
    "Of three, both directions of one slow pair would decide it.",
)  # fmt: skip
GOOD_SHARE = Threshold(
    0.5, _PEERS, "The weight of good pairs that a cause concerns, of that of the bad ones that it explains.",
    "A cause that also concerns pairs that work explains less.",
)  # fmt: skip

_PUBLISHED = "Published rates"
LEAST_MODELS = Threshold(
    3, _PUBLISHED, "This number of models, at least, says what is usual of a kind of link.",
    "Two may share a property that others lack.",
)  # fmt: skip
OTHER_MODELS = Threshold(
    0.06, _PUBLISHED, "Another model may be slower than the slowest of them by this fraction.",
    "The memory of H100 NVL, of which no row is, reaches 0.76 of its line rate; the slowest model 0.79.",
    "BabelStream",
)  # fmt: skip
SAME_MODEL = Threshold(
    0.02, _PUBLISHED, "A value may be slower than the slowest published one of its model by this fraction.",
    "Good machines of one model differ by 1 to 2%, and the next one to be published may be the slowest.",
    "recorded runs",
)  # fmt: skip
FAR_BELOW = Threshold(
    0.8, _PUBLISHED, "A value below this fraction of the lowest usual one of its model fails.",
    "Real machines of one model differ by 1 to 5%; a fifth below the slowest published one is a defect.",
)  # fmt: skip
DIRECTIONS = Threshold(
    0.2, _PUBLISHED, "Two directions of a PCIe link that are alike differ by at most this fraction.",
    "They differ by 5% on eleven H200 hosts, and by 12% on eight RTX 4090s, whose slots differ.",
    "recorded runs",
)  # fmt: skip
AS_EXPECTED = Threshold(
    0.93, _PUBLISHED, "\"As fast as expected\" is said from this share of the typical value on.",
    "Machines of one model differ by at most 7% in paths that other programs do not disturb.",
    "recorded runs",
)  # fmt: skip

_VALUES = "Values beside others"
FEWEST_CELLS = Threshold(
    4, _VALUES, "Fewer comparable values do not say what is normal.",
    "The upper quartile of fewer values is hardly more than one of them.",
)  # fmt: skip
NORMAL = Threshold(
    0.75, _VALUES, "This quantile of comparable values is normal.",
    "It is a good value even if half of the values are slow.",
)  # fmt: skip
LOW_FRACTION = Threshold(
    0.06, _VALUES, "A value is low if it is below its peers by this fraction.",
    "It leaves room for differences between good links.",
)  # fmt: skip
LOW_DEVIATIONS = Threshold(
    5, _VALUES, "A value is low if it is below its peers by this many of their deviations.",
    "Many values are compared, and the deviation is estimated from few.",
)  # fmt: skip
MANY_CELLS = Threshold(
    200, _VALUES, "As many comparable values show how much they vary.",
    "A tenth of fewer is too few to estimate the deviation from its smallest.",
)  # fmt: skip
LOW_CHANCE = Threshold(
    0.01, _VALUES, "Of many values, it is below by more deviations: by chance, one is in this share of runs.",
    "Of 80,000 values, five deviations are reached by chance.",
)  # fmt: skip
ACQUITTAL_MARGIN = Threshold(
    0.07, _VALUES, "A value without enough peers acquits a link if it is below the typical one by no more.",
    "It is a little more than LOW_FRACTION.",
)  # fmt: skip
FULL_LINK = Threshold(
    0.98, _VALUES, "A value that depends only on a link, and loads it by this fraction, shows its speed.",
    "It leaves room for rounding of limits.",
)  # fmt: skip
CARRIED = Threshold(
    0.85, _VALUES, "A low value that loads a link by this fraction shows how much the link carries at least.",
    "What protocols use of a link is no payload.",
)  # fmt: skip
CLEARLY_MORE = Threshold(
    1.25, _VALUES, "A link is not slow if it carries this many times more than any low value.",
    "The memory of a storage device is a little faster than its link.",
)  # fmt: skip
DIFFERENT = Threshold(
    1.1, _VALUES, "Two predictions are distinguished by values that differ by this factor.",
    "It is a larger difference than LOW_FRACTION.",
)  # fmt: skip
DEPENDS = Threshold(
    0.5, _VALUES, "A value depends on a link that its transfers load by this fraction.",
    "A link at half its speed then limits the value.",
)  # fmt: skip
UNLIKE = Threshold(
    0.75, _VALUES, "Rates that should be alike are named if one is below this fraction of the other.",
    "It leaves room for differences between good ones.",
)  # fmt: skip
UNLIKE_BYTES = Threshold(
    MIB, _VALUES, "Rates of smaller buffers are not compared.", "They vary by themselves.", unit="B",
)  # fmt: skip
SAME_RATE = Threshold(
    0.01, _VALUES, "Rates of links of GPUs that differ by less are equal.", "It leaves room for rounding.",
)  # fmt: skip
CONFIDENTIAL = Threshold(
    0.7, _VALUES, "In confidential computing mode, a GPU is slow below this fraction of the median of GPUs.",
    "A thread of the host encrypts, and some GPUs are at the other socket than its CPU; copies of pageable "
    "memory, which a thread moves too, differ by a fifth.",
)  # fmt: skip

_WAYS = "Pairs of GPUs beside other ways"
WAY_OF_HOST = Threshold(
    0.9, _WAYS, "A pair below this fraction of copies through the host is better copied that way.",
    "A smaller gain is not worth another way.",
)  # fmt: skip
WAY_OF_OTHERS = Threshold(
    0.75, _WAYS, "A pair is slow below this fraction of the slower of two ways, or of its other direction.",
    "Two ways share no start-up, and forwarding within a root complex costs some rate.",
    "measured pairs of good hosts: 0.8 and more",
)  # fmt: skip
MOST_PAIRS = Threshold(
    4, _WAYS, "More slow pairs have something in common, and are not named.",
    "The more pairs are slow, the less likely each has its own cause.",
)  # fmt: skip
FORWARDED = Threshold(
    0.4, _WAYS, "From this fraction of its reference on, a slow pair may be forwarded so without a fault.",
    "Some hosts, mostly of AMD, forward copies at this fraction or more, and correctly.",
)  # fmt: skip

_CURVES = "Dips in curves"
DIP_RISE = Threshold(
    8.0, _CURVES, "A size dips if the next larger one has this many times its rate, and takes DIP_TIME.",
    "Switches between algorithms change the rate of published curves by at most a factor of two.",
)  # fmt: skip
DIP_TIME = Threshold(
    0.5, _CURVES, "The fraction of the time of a dip that the next larger size takes at most.",
    "Where start-up dominates, the rate grows with the size, and the time does not fall.",
)  # fmt: skip
DIP_FALL = Threshold(
    0.2, _CURVES, "A size dips if it has at most this fraction of the rate of the next smaller one.",
    "It is far less than after a switch between algorithms: half in published curves.",
)  # fmt: skip
DIP_LARGE = Threshold(
    512 * KIB, _CURVES, "From this size on, a size dips if both a smaller and a larger one are faster.",
    "There, starting an operation matters less.", unit="B",
)  # fmt: skip
DIP_VALLEY = Threshold(
    0.75, _CURVES, "Such a size dips at this fraction of the rate of both.",
    "Of the posted curves in the tests, only those of posts about such dips have one.",
)  # fmt: skip
DIP_HALF = Threshold(
    0.5, _CURVES, "A collective of NCCL dips at this fraction of the rate of a smaller size, if no larger "
    "one is faster again.", "As for DIP_VALLEY.",
)  # fmt: skip
DIP_WARMED_UP = Threshold(
    64 * KIB, _CURVES, "The first size of a curve is not compared up to this size.",
    "It is slow because it warms up.", unit="B",
)  # fmt: skip

_RANGES = "Values and their ranges"
ABOVE_LIMIT = Threshold(
    0.01, _RANGES, "A value that is above its limit by a larger fraction is implausible.",
    "Clocks are not exact.",
)  # fmt: skip
NEAR_LOWEST = Threshold(
    0.05, _RANGES, "A value that is above the lowest passing one by a smaller fraction gets a warning.",
    "Copies from the host of two H200s varied by as much in eleven checks.",
)  # fmt: skip
CHANCE_ERRORS = Threshold(
    3.5, _RANGES, "The median of a few samples is that of many within this number of standard errors.",
    "Of a hundred values that vary by chance, none is outside.",
)  # fmt: skip
MOST_CHANCE = Threshold(
    0.08, _RANGES, "Samples that vary excuse at most this fraction.",
    "More is not chance, and a defect may be its cause.",
)  # fmt: skip
LIMITING = Threshold(
    0.9, _RANGES, "Links that are loaded at least this fraction as much as the busiest one limit a value.",
    "Links that limit together are loaded nearly alike.",
)  # fmt: skip
FAR_FROM_TYPICAL = Threshold(
    0.5, _RANGES, "A value below this fraction of the typical one passes no range.",
    "Ranges of collectives between hosts begin at a fifth of what the NICs carry.",
)  # fmt: skip
FAR_BELOW_MEMORY = Threshold(
    0.5, _RANGES, "A rate of host memory whose capacity was read fails below this fraction of the lowest "
    "usual one.", "Smaller differences can be other work on the host.",
)  # fmt: skip


def all_thresholds() -> Iterator[tuple[str, Threshold]]:
    """Yield all thresholds with their names, in their order."""
    yield from ((name, value) for name, value in globals().items() if isinstance(value, Threshold))
