"""Thresholds of causes: which values are low beside others, and which part explains them best."""

from __future__ import annotations

from ..units import MIB

# Peer access

#: A pair is slow below this fraction of the copies through the host.
#: Why: A program can use these instead; hosts that forward well reach 0.8 and more.
PEER_OF_HOST = 0.6
#: A pair is slow below this fraction of its other direction.
#: Why: Links have the same rate in both directions; this leaves room for disturbances.
PEER_OF_MIRROR = 0.5
#: A pair is slow below this fraction of the median of pairs that are joined alike.
#: Why: As for the other direction.
PEER_OF_PEERS = 0.5
#: A pair is slow below this fraction of the line rate of its NVLinks.
#: Why: Protocols take less than half of a link.
PEER_OF_LINE = 0.5
#: The median of pairs that are joined alike counts from this number of pairs on.
#: Why: Of three, both directions of one slow pair would decide it.
ENOUGH_PAIRS = 4
#: The weight of good pairs that a cause concerns, of that of the bad ones that it explains.
#: Why: A cause that also concerns pairs that work explains less.
GOOD_SHARE = 0.5

# Values beside others

#: Fewer comparable values do not say what is normal.
#: Why: The upper quartile of fewer values is hardly more than one of them.
FEWEST_CELLS = 4
#: This quantile of comparable values is normal.
#: Why: It is a good value even if half of the values are slow.
NORMAL = 0.75
#: A value is low if it is below its peers by this fraction.
#: Why: It leaves room for differences between good links.
LOW_FRACTION = 0.06
#: A value is low if it is below its peers by this many of their deviations.
#: Why: Many values are compared, and the deviation is estimated from few.
LOW_DEVIATIONS = 5
#: As many comparable values show how much they vary.
#: Why: A tenth of fewer is too few to estimate the deviation from its smallest.
MANY_CELLS = 200
#: Of many values, it is below by more deviations: by chance, one is in this share of runs.
#: Why: Of 80,000 values, five deviations are reached by chance.
LOW_CHANCE = 0.01
#: A value without enough peers acquits a link if it is below the typical one by no more.
#: Why: It is a little more than LOW_FRACTION.
ACQUITTAL_MARGIN = 0.07
#: A value that depends only on a link, and loads it by this fraction, shows its speed.
#: Why: It leaves room for rounding of limits.
FULL_LINK = 0.98
#: A low value that loads a link by this fraction shows how much the link carries at least.
#: Why: What protocols use of a link is no payload.
CARRIED = 0.85
#: A link is not slow if it carries this many times more than any low value.
#: Why: The memory of a storage device is a little faster than its link.
CLEARLY_MORE = 1.25
#: Two predictions are distinguished by values that differ by this factor.
#: Why: It is a larger difference than LOW_FRACTION.
DIFFERENT = 1.1
#: A value depends on a link that its transfers load by this fraction.
#: Why: A link at half its speed then limits the value.
DEPENDS = 0.5
#: Rates that should be alike are named if one is below this fraction of the other.
#: Why: It leaves room for differences between good ones.
UNLIKE = 0.75
#: Rates of smaller buffers are not compared.
#: Why: They vary by themselves.
UNLIKE_BYTES = MIB  # B
#: Rates of links of GPUs that differ by less are equal.
#: Why: It leaves room for rounding.
SAME_RATE = 0.01
#: In confidential computing mode, a GPU is slow below this fraction of the median of GPUs.
#: Why: A thread of the host encrypts, and some GPUs are at the other socket than its CPU; copies of pageable
#: memory, which a thread moves too, differ by a fifth.
CONFIDENTIAL = 0.7
#: A value says nothing about links that its transfers load by a smaller fraction, nor they about it.
#: Why: Such a link limits the value only at less than a fifth of its speed.
MATTERS = 0.2

# Pairs of GPUs beside other ways

#: A pair below this fraction of copies through the host is better copied that way.
#: Why: A smaller gain is not worth another way.
WAY_OF_HOST = 0.9
#: A pair is slow below this fraction of the slower of two ways, or of its other direction.
#: Why: Two ways share no start-up, and forwarding within a root complex costs some rate.
#: Source: measured pairs of good hosts: 0.8 and more
WAY_OF_OTHERS = 0.75
#: More slow pairs have something in common, and are not named.
#: Why: The more pairs are slow, the less likely each has its own cause.
MOST_PAIRS = 4
#: From this fraction of its reference on, a slow pair may be forwarded so without a fault.
#: Why: Some hosts, mostly of AMD, forward copies at this fraction or more, and correctly.
FORWARDED = 0.4

# Ranking of causes

#: Standard deviation of the logarithm of a good value beside comparable ones.
#: Why: It is also that of the effect of a slower link, whose load is known only roughly.
#: Source: benchmarks/diagnose.py
FIT_NOISE = 0.02
#: Values this close to a prediction agree with it, and this far below typical ones are low.
#: Why: Most ranges end two or three times as far below typical rates, or rates over another route.
#: Source: benchmarks/diagnose.py
FIT_KNOWN = 0.08
#: A value is at most this many deviations off its prediction.
#: Why: One value, however far off, must not decide.
#: Source: benchmarks/diagnose.py
MOST_DEVIATIONS = 4.0
#: A value is explained if it is predicted at least this far below normal.
#: Why: Less is noise.
#: Source: benchmarks/diagnose.py
LOWERED = 0.03
#: What all comparable values are predicted to lose is subtracted up to this.
#: Why: The rest is for the cause to explain.
#: Source: benchmarks/diagnose.py
MOST_SHARED = 0.12
#: A value shows the rate of a link that its transfers load by this fraction.
#: Why: It is that of CARRIED.
#: Source: benchmarks/diagnose.py
SHOWS_RATE = 0.85
#: A factor of the speed of a link is noise from this on.
#: Why: It leaves room for rounding.
#: Source: benchmarks/diagnose.py
HARDLY_SLOWER = 0.99
#: A cause is examined if this fraction of the values of its links is low, or of the low ones its own.
#: Why: Others cannot win.
#: Source: benchmarks/diagnose.py
SUSPECT = 0.3
#: Points for facts that speak for a cause.
#: Why: These are odds that values near noise cannot turn: points are logarithms of odds.
#: Source: benchmarks/diagnose.py
SUPPORTED = 25.0
#: Points for an amount that had to be estimated, with facts for the cause.
#: Why: It is one more free parameter.
#: Source: benchmarks/diagnose.py
ESTIMATED = -3.0
#: Points for an amount that had to be estimated, without such facts.
#: Why: Neither the cause nor its amount is known.
#: Source: benchmarks/diagnose.py
UNSUPPORTED = -12.0
#: Points for no known cause.
#: Why: It is between causes without facts whose amount is known, and is estimated.
#: Source: benchmarks/diagnose.py
NAMELESS = -6.0
#: Facts that speak for a cause add this fraction of what its predictions gain.
#: Why: Of two causes with facts, the one that explains more wins.
#: Source: benchmarks/diagnose.py
TRUSTED = 0.25
#: The speed of a link differs by up to this fraction from its nominal one.
#: Why: Generations of PCIe encode data in different ways.
#: Source: benchmarks/diagnose.py
ROUGHLY = 0.1
#: Causes that differ by this number of points or less are not distinguished; facts must gain it.
#: Why: It is odds of 55 to 1.
#: Source: benchmarks/diagnose.py
EQUAL_POINTS = 4.0
#: A cause counts if it explains this fraction of the low values that are left.
#: Why: It is most of them.
#: Source: benchmarks/diagnose.py
ENOUGH_EXPLAINED = 0.5
