"""How far runs of one machine differ by more than their rounds show, by kind of value."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum

from .measurement import Measurement, Place, Reduce
from .model import Engine, MemoryKind


class NoiseKind(StrEnum):
    """Kinds of values that vary alike."""

    LATENCY = "latency of host memory"
    HOST = "host memory"
    LINK = "host ↔ GPU"
    GPU = "GPU"


#: Standard deviation between runs that no round of a run shows, as a fraction of the value: states that last
#: longer than a run, such as the two rates, 2 % apart, of copies from an H100 to a virtual machine. From 20
#: and more fresh processes on two virtual machines (`docs/results`).
UNSEEN: Mapping[NoiseKind, float] = {
    NoiseKind.LATENCY: 0.03,
    NoiseKind.HOST: 0.02,
    NoiseKind.LINK: 0.008,
    NoiseKind.GPU: 0.002,
}


def kind_of(measurement: Measurement, place: Place) -> NoiseKind:
    """What the value of a Place varies with from run to run."""
    kinds = {end.kind for transfer in measurement.transfers for end in transfer.ends}
    if measurement.collective:
        kinds |= {end.kind for end in measurement.collective.members}
    by_cpus = bool(measurement.transfers) and all(t.engine is Engine.CPU for t in measurement.transfers)
    if by_cpus or MemoryKind.DEVICE not in kinds:
        return NoiseKind.LATENCY if place.reduce is Reduce.LATENCY else NoiseKind.HOST
    return NoiseKind.GPU if kinds == {MemoryKind.DEVICE} else NoiseKind.LINK
