"""Thresholds of clusters: which nodes, NICs, cables and switches are slow."""

from __future__ import annotations

from . import row

# fmt: off
_NODES = "Nodes of a qualification"
AS_SLOW = row(0.85, _NODES,
    "On a rail that is slow as a whole, a part is named, too, below this share of the others.",
    "It leaves room for differences between nodes that are slow alike.")
MOST_ALIKE = row(0.5, _NODES,
    "From this share of the nodes of a rail on, all are slow alike, and none is named.",
    "Their median is slow itself.")
LEAST_SLOW = row(0.05, _NODES,
    "A part is slow if it is below the median by at least this share.",
    "A smaller loss is not worth a repair.")
SIGMAS = row(3.3, _NODES,
    "A part is slow if a value is below the median by this many standard deviations.",
    "One of 2,000 values of a normal distribution is.")
SIGMAS_OF_MEDIAN = row(6.0, _NODES,
    "A part is slow if its median is below that of all by this many of its standard deviations.",
    "Noise is estimated from few values, and many parts are compared.")
MOST_PATHS = row(0.75, _NODES,
    "A part of several paths or rails is slow if this share of them is.",
    "A few of its paths may be slow because of their other ends.")
FEWEST_OF_BLOCK = row(3, _NODES,
    "Switches of a block with fewer nodes cannot be distinguished from its nodes.",
    "Of two slow nodes, both may be slow themselves.")
FEWEST_PATHS = row(2, _NODES,
    "A node, a NIC or a cable is slow if this number of its paths is.",
    "One slow path may be slow because of its other end.")
FEWEST_OF_SPINE = row(5, _NODES,
    "A spine switch is slow if this number of paths between blocks is.",
    "Fewer slow paths may have slow ends.")
LEAST_OF_SPINE = row(0.04, _NODES,
    "A spine switch is slow if this share of the paths between blocks is.",
    "Of 16 spine switches, each carries 6%.")
LESS_WITHIN = row(4.0, _NODES,
    "A spine switch is slow if paths within blocks are slow this many times less often.",
    "These lead through no spine switch.")
FEWEST_VALUES = row(4, _NODES,
    "The deviation of the values of a part counts from this number of values on.",
    "The deviation of fewer is too uncertain.")
