"""Thresholds of clusters: which nodes, NICs, cables and switches are slow."""

# Nodes of a qualification

#: On a rail that is slow as a whole, a part is named, too, below this share of the others.
#: Why: It leaves room for differences between nodes that are slow alike.
AS_SLOW = 0.85
#: From this share of the nodes of a rail on, all are slow alike, and none is named.
#: Why: Their median is slow itself.
MOST_ALIKE = 0.5
#: A part is slow if it is below the median by at least this share.
#: Why: A smaller loss is not worth a repair.
LEAST_SLOW = 0.05
#: A part is slow if a value is below the median by this many standard deviations.
#: Why: One of 2,000 values of a normal distribution is.
SIGMAS = 3.3
#: A part is slow if its median is below that of all by this many of its standard deviations.
#: Why: Noise is estimated from few values, and many parts are compared.
SIGMAS_OF_MEDIAN = 6.0
#: A part of several paths or rails is slow if this share of them is.
#: Why: A few of its paths may be slow because of their other ends.
MOST_PATHS = 0.75
#: Switches of a block with fewer nodes cannot be distinguished from its nodes.
#: Why: Of two slow nodes, both may be slow themselves.
FEWEST_OF_BLOCK = 3
#: A node, a NIC or a cable is slow if this number of its paths is.
#: Why: One slow path may be slow because of its other end.
FEWEST_PATHS = 2
#: A spine switch is slow if this number of paths between blocks is.
#: Why: Fewer slow paths may have slow ends.
FEWEST_OF_SPINE = 5
#: A spine switch is slow if this share of the paths between blocks is.
#: Why: Of 16 spine switches, each carries 6%.
LEAST_OF_SPINE = 0.04
#: A spine switch is slow if paths within blocks are slow this many times less often.
#: Why: These lead through no spine switch.
LESS_WITHIN = 4.0
#: The deviation of the values of a part counts from this number of values on.
#: Why: The deviation of fewer is too uncertain.
FEWEST_VALUES = 4
#: A cable is lossy if at least this share is sent again.
#: Why: A crowded network loses some packets.
SENT_AGAIN = 0.002
#: A cable is lossy if this many times as much is sent again as on other paths.
#: Why: A processor that is busy makes TCP send again, too.
TIMES_AGAIN = 2.0
#: The quantile of other paths with which a lossy one is compared.
#: Why: Some of the others may be lossy, too.
OF_OTHERS = 0.9
#: A cable is lossy if its node has this number of partners or more.
#: Why: With fewer, their cables may be the lossy ones.
FEWEST_PARTNERS = 3
#: This quantile of paths is fast.
#: Why: It is so even if most of them are slow.
FASTEST = 0.9
#: A path that is below the fastest by a smaller share is not slow.
#: Why: It leaves room for noise that is not known.
FAST_FRACTION = 0.15
#: A path that is below the fastest by fewer standard deviations is not slow.
#: Why: The fastest tenth begins 1.28 above the median; what is 2.5 below still counts.
FAST_SIGMAS = 3.8
#: A part of one path is not slow if more than this share of its paths is faster.
#: Why: A path is not faster than any of its parts; the other half may be chance.
MOST_FASTER = 0.5
#: More pairs are measured from this share of unexplained slow paths between blocks on.
#: Why: A slow spine switch, which few paths show, may be the cause.
UNEXPLAINED = 0.02
#: The relative deviation that is assumed of fewer than FEWEST_VALUES.
#: Why: It leaves room for a network that others use.
ASSUMED_NOISE = 0.03
#: A cluster is not judged if parts are slow only below this share of the median.
#: Why: Its paths vary too much.
LEAST_THRESHOLD = 0.5
#: What sends this share of the bytes of a node carries its data.
#: Why: Other programs send, too.
CARRIES = 0.5
#: A device that sends this share of them takes part.
#: Why: Less is what other programs send.
TAKES_PART = 0.05
#: Clocks of nodes that differ by more, beyond the time to ask, are reported.
#: Why: Synchronised ones differ by far less.
CLOCKS_APART_S = 2.0  # s
#: A path over RDMA gets a warning below this share of the speed of its NICs.
#: Why: The same is assumed of transfers between hosts (data/efficiencies.toml).
USUAL_RDMA = 0.8
#: Nothing is suspected before this number of rounds of pairs.
#: Why: The deviation of a part counts from as many values on, as for FEWEST_VALUES.
FEWEST_PAIR_ROUNDS = 4
#: All paths of two nodes may be slow after this number of rounds.
#: Why: There are no other paths to compare with, and more rounds of two nodes show nothing new.
CLEAR_PAIR_ROUNDS = 2
#: The median of this number of the largest sizes of messages is judged.
#: Why: Start-up slows smaller ones.
JUDGED_SIZES = 3

# Nodes of a fleet

#: A node is an outlier if it differs from its peers by more than this many of their deviations.
#: Why: Many values are compared.
OUTLIER_DEVIATIONS = 5.0
#: A node is an outlier if it differs from the median of its peers by more than this fraction.
#: Why: A smaller difference is not worth a repair.
OUTLIER_FRACTION = 0.03
#: A node with fewer GPUs lacks some if this many times as many nodes of its family have more.
#: Why: Fewer may be another model of the family.
MORE_WITH_ALL = 3
#: Fewer nodes have no peers.
#: Why: Their deviation means nothing.
MIN_PEERS = 5
#: Each of two groups has this number of nodes or more.
#: Why: Fewer are outliers.
GROUP_NODES = 3
#: Each of two groups has this fraction of the nodes or more.
#: Why: As for GROUP_NODES.
GROUP_FRACTION = 0.03
#: The medians of two groups are apart by this many sums of both deviations.
#: Why: The halves of one normal distribution are about one such sum apart.
GROUP_DEVIATIONS = 4.0
#: The empty range between two groups, as a fraction of the distance of their medians.
#: Why: Nodes of one group leave none.
GROUP_GAP = 0.2
#: An attribute separates two groups if it predicts the group of this fraction of each.
#: Why: A node may be in the wrong group by chance.
SEPARATED = 0.9
