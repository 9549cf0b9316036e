"""Thresholds of causes: which values are low beside others, and which part explains them best."""

from __future__ import annotations

from ..units import MIB
from . import row

# fmt: off
_PEERS = "Peer access"
PEER_OF_HOST = row(0.6, _PEERS,
    "A pair is slow below this fraction of the copies through the host.",
    "A program can use these instead; hosts that forward well reach 0.8 and more.")
PEER_OF_MIRROR = row(0.5, _PEERS,
    "A pair is slow below this fraction of its other direction.",
    "Links have the same rate in both directions; this leaves room for disturbances.")
PEER_OF_PEERS = row(0.5, _PEERS,
    "A pair is slow below this fraction of the median of pairs that are joined alike.",
    "As for the other direction.")
PEER_OF_LINE = row(0.5, _PEERS,
    "A pair is slow below this fraction of the line rate of its NVLinks.",
    "Protocols take less than half of a link.")
ENOUGH_PAIRS = row(4, _PEERS,
    "The median of pairs that are joined alike counts from this number of pairs on.",
    "Of three, both directions of one slow pair would decide it.")
GOOD_SHARE = row(0.5, _PEERS,
    "The weight of good pairs that a cause concerns, of that of the bad ones that it explains.",
    "A cause that also concerns pairs that work explains less.")

_VALUES = "Values beside others"
FEWEST_CELLS = row(4, _VALUES,
    "Fewer comparable values do not say what is normal.",
    "The upper quartile of fewer values is hardly more than one of them.")
NORMAL = row(0.75, _VALUES,
    "This quantile of comparable values is normal.",
    "It is a good value even if half of the values are slow.")
LOW_FRACTION = row(0.06, _VALUES,
    "A value is low if it is below its peers by this fraction.",
    "It leaves room for differences between good links.")
LOW_DEVIATIONS = row(5, _VALUES,
    "A value is low if it is below its peers by this many of their deviations.",
    "Many values are compared, and the deviation is estimated from few.")
MANY_CELLS = row(200, _VALUES,
    "As many comparable values show how much they vary.",
    "A tenth of fewer is too few to estimate the deviation from its smallest.")
LOW_CHANCE = row(0.01, _VALUES,
    "Of many values, it is below by more deviations: by chance, one is in this share of runs.",
    "Of 80,000 values, five deviations are reached by chance.")
ACQUITTAL_MARGIN = row(0.07, _VALUES,
    "A value without enough peers acquits a link if it is below the typical one by no more.",
    "It is a little more than LOW_FRACTION.")
FULL_LINK = row(0.98, _VALUES,
    "A value that depends only on a link, and loads it by this fraction, shows its speed.",
    "It leaves room for rounding of limits.")
CARRIED = row(0.85, _VALUES,
    "A low value that loads a link by this fraction shows how much the link carries at least.",
    "What protocols use of a link is no payload.")
CLEARLY_MORE = row(1.25, _VALUES,
    "A link is not slow if it carries this many times more than any low value.",
    "The memory of a storage device is a little faster than its link.")
DIFFERENT = row(1.1, _VALUES,
    "Two predictions are distinguished by values that differ by this factor.",
    "It is a larger difference than LOW_FRACTION.")
DEPENDS = row(0.5, _VALUES,
    "A value depends on a link that its transfers load by this fraction.",
    "A link at half its speed then limits the value.")
UNLIKE = row(0.75, _VALUES,
    "Rates that should be alike are named if one is below this fraction of the other.",
    "It leaves room for differences between good ones.")
UNLIKE_BYTES = row(MIB, _VALUES,
    "Rates of smaller buffers are not compared.", "They vary by themselves.", unit="B")
SAME_RATE = row(0.01, _VALUES,
    "Rates of links of GPUs that differ by less are equal.", "It leaves room for rounding.")
CONFIDENTIAL = row(0.7, _VALUES,
    "In confidential computing mode, a GPU is slow below this fraction of the median of GPUs.",
    "A thread of the host encrypts, and some GPUs are at the other socket than its CPU; copies of "
    "pageable memory, which a thread moves too, differ by a fifth.")

_WAYS = "Pairs of GPUs beside other ways"
WAY_OF_HOST = row(0.9, _WAYS,
    "A pair below this fraction of copies through the host is better copied that way.",
    "A smaller gain is not worth another way.")
WAY_OF_OTHERS = row(0.75, _WAYS,
    "A pair is slow below this fraction of the slower of two ways, or of its other direction.",
    "Two ways share no start-up, and forwarding within a root complex costs some rate.",
    "measured pairs of good hosts: 0.8 and more")
MOST_PAIRS = row(4, _WAYS,
    "More slow pairs have something in common, and are not named.",
    "The more pairs are slow, the less likely each has its own cause.")
FORWARDED = row(0.4, _WAYS,
    "From this fraction of its reference on, a slow pair may be forwarded so without a fault.",
    "Some hosts, mostly of AMD, forward copies at this fraction or more, and correctly.")
