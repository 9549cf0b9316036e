"""Thresholds of values: which are judged, by which ranges, and what is said of them."""

from __future__ import annotations

from ..units import KIB
from . import row

# fmt: off
_PUBLISHED = "Published rates"
LEAST_MODELS = row(3, _PUBLISHED,
    "This number of models, at least, says what is usual of a kind of link.",
    "Two may share a property that others lack.")
OTHER_MODELS = row(0.06, _PUBLISHED,
    "Another model may be slower than the slowest of them by this fraction.",
    "The memory of H100 NVL, of which no row is, reaches 0.76 of its line rate; the slowest model 0.79.",
    "BabelStream")
SAME_MODEL = row(0.02, _PUBLISHED,
    "A value may be slower than the slowest published one of its model by this fraction.",
    "Good machines of one model differ by 1 to 2%, and the next one to be published may be the slowest.",
    "recorded runs")
FAR_BELOW = row(0.8, _PUBLISHED,
    "A value below this fraction of the lowest usual one of its model fails.",
    "Real machines of one model differ by 1 to 5%; a fifth below the slowest published one is a defect.")
DIRECTIONS = row(0.2, _PUBLISHED,
    "Two directions of a PCIe link that are alike differ by at most this fraction.",
    "They differ by 5% on eleven H200 hosts, and by 12% on eight RTX 4090s, whose slots differ.",
    "recorded runs")
AS_EXPECTED = row(0.93, _PUBLISHED,
    '"As fast as expected" is said from this share of the typical value on.',
    "Machines of one model differ by at most 7% in paths that other programs do not disturb.",
    "recorded runs")

_CURVES = "Dips in curves"
DIP_RISE = row(8.0, _CURVES,
    "A size dips if the next larger one has this many times its rate, and takes DIP_TIME.",
    "Switches between algorithms change the rate of published curves by at most a factor of two.")
DIP_TIME = row(0.5, _CURVES,
    "The fraction of the time of a dip that the next larger size takes at most.",
    "Where start-up dominates, the rate grows with the size, and the time does not fall.")
DIP_FALL = row(0.2, _CURVES,
    "A size dips if it has at most this fraction of the rate of the next smaller one.",
    "It is far less than after a switch between algorithms: half in published curves.")
DIP_LARGE = row(512 * KIB, _CURVES,
    "From this size on, a size dips if both a smaller and a larger one are faster.",
    "There, starting an operation matters less.", unit="B")
DIP_VALLEY = row(0.75, _CURVES,
    "Such a size dips at this fraction of the rate of both.",
    "Of the posted curves in the tests, only those of posts about such dips have one.")
DIP_HALF = row(0.5, _CURVES,
    "A collective of NCCL dips at this fraction of the rate of a smaller size, if no larger one is faster "
    "again.",
    "As for DIP_VALLEY.")
DIP_WARMED_UP = row(64 * KIB, _CURVES,
    "The first size of a curve is not compared up to this size.", "It is slow because it warms up.", unit="B")

_RANGES = "Values and their ranges"
ABOVE_LIMIT = row(0.01, _RANGES,
    "A value that is above its limit by a larger fraction is implausible.", "Clocks are not exact.")
NEAR_LOWEST = row(0.05, _RANGES,
    "A value that is above the lowest passing one by a smaller fraction gets a warning.",
    "Copies from the host of two H200s varied by as much in eleven checks.")
CHANCE_ERRORS = row(3.5, _RANGES,
    "The median of a few samples is that of many within this number of standard errors.",
    "Of a hundred values that vary by chance, none is outside.")
MOST_CHANCE = row(0.08, _RANGES,
    "Samples that vary excuse at most this fraction.", "More is not chance, and a defect may be its cause.")
LIMITING = row(0.9, _RANGES,
    "Links that are loaded at least this fraction as much as the busiest one limit a value.",
    "Links that limit together are loaded nearly alike.")
FAR_FROM_TYPICAL = row(0.5, _RANGES,
    "A value below this fraction of the typical one passes no range.",
    "Ranges of collectives between hosts begin at a fifth of what the NICs carry.")
FAR_BELOW_MEMORY = row(0.5, _RANGES,
    "A rate of host memory whose capacity was read fails below this fraction of the lowest usual one.",
    "Smaller differences can be other work on the host.")
