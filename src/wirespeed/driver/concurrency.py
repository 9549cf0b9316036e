"""Whether the transfers of one Measurement really ran at the same time: from their times, one after another
or together.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from functools import cache
from itertools import pairwise

from ..data import efficiencies
from ..hardware.devices import is_host
from ..hardware.limits import allowances
from ..hardware.link_graph import Network
from ..measurement import Measurement, Place, Reduce, Sample, value_of
from ..model import Executor, Memory, Role, Transfer
from ..thresholds.values import FAR_ENDS, FIRST_ALONE, ONE_AFTER_ANOTHER

#: Typical fraction of the limit where no range is known.
_TYPICAL = 0.8


def one_after_another(network: Network, measurement: Measurement, samples: Sequence[Sample]) -> str:
    """A warning if the measured transfers ran one after another; empty if they ran together.

    Transfers that start together and share a link end at the same time, or later ones end within less time
    than they need separately. If a queue or an engine serialises them, each ends a whole duration after
    the one before it. There is no warning for totals that are as high as expected: several copies from one
    GPU to others take turns at its links, and fill them all the same.

    Args:
        network: Links of the machine, for the typical duration of each transfer without others.
        measurement: Transfers that start together.
        samples: Its samples.
    """
    works = measurement.transfers
    measured = [
        i for i, work in enumerate(works) if work.role is Role.MEASURED and not work.operation.is_latency
    ]
    if len(measured) < 2:
        return ""
    ends = sorted((statistics.median(s.seconds[i] for s in samples), i) for i in measured)
    first, earliest = ends[0]
    needed = cache(lambda i: _alone(network, measurement, i, samples[0]))  # computed where times are apart
    serial = all(
        _gpus(works[i]) & _gpus(works[j])  # only those of one GPU share a queue: else, a link is slow
        and before >= FAR_ENDS * later and 0 < ONE_AFTER_ANOTHER * needed(i) <= later - before
        for (before, j), (later, i) in pairwise(ends)
    ) and first <= FIRST_ALONE * needed(earliest)  # fmt: skip
    # Copy engines start the clock of a transfer when its turn comes: its duration does not show the wait.
    queued = all(
        s.wall >= ONE_AFTER_ANOTHER * math.fsum(s.seconds[i] for i in measured)
        and s.wall > FIRST_ALONE * max(s.seconds)
        for s in samples
    )
    if not (serial or queued) or _costs_nothing(network, measurement, samples):
        return ""
    order = ", then ".join(works[i].way for _, i in ends[:3]) + (", ..." if len(ends) > 3 else "")
    if not queued:  # a link at half its rate looks the same
        return (
            f"transfers that started together ended one after another ({order}): either they "
            "share a queue or a copy engine (try the engine sm), or the later ones are slow by themselves "
            "(measure each separately)"
        )
    return (
        f"transfers that started together ran one after another ({order}): their rates are not those of "
        "concurrent transfers; they may share a queue or a copy engine, so try the engine sm"
    )


def _costs_nothing(network: Network, measurement: Measurement, samples: Sequence[Sample]) -> bool:
    """Whether all values are totals (all bytes over the time until the last end), as high as expected."""
    allowed = allowances(network, measurement, efficiencies())
    return all(
        place.reduce is Reduce.WALL and by.expected is not None
        and statistics.median(value_of(place, measurement, s) for s in samples) >= by.expected[0]
        for place, by in zip(measurement.places, allowed, strict=True)
    )  # fmt: skip


def _gpus(work: Transfer) -> set[str]:
    """The GPUs whose queues or copy engines a transfer may use."""
    ends: tuple[Memory | Executor, ...] = (*work.ends, work.executor)
    return {f"{end.rank}/{end.device}" for end in ends if not is_host(end.device)}


def _alone(network: Network, measurement: Measurement, index: int, sample: Sample) -> float:
    """The typical duration of a transfer without others, in s; 0 if unknown."""
    work = measurement.transfers[index]
    alone = Measurement((work,), (Place("", 0, 0),))
    (allowed,) = allowances(network, alone, efficiencies())
    rate = allowed.expected[1] if allowed.expected else (allowed.limit or 0.0) * _TYPICAL
    return sample.amounts[index] * work.counted / rate if rate else 0.0
