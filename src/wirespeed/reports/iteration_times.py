"""Statistics of the times of single iterations, as nccl-tests shows them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Spread:
    """Statistics of iteration times.

    Attributes:
        min, max, mean: Range and mean, in s.
        p50, p95, p99: Percentiles, in s.
        deviation: Standard deviation, in s.
        cv: Standard deviation over mean, in percent.
    """

    min: float
    max: float
    mean: float
    p50: float
    p95: float
    p99: float
    deviation: float
    cv: float


def steady(times: Sequence[float], of_cycle: int, skip: int) -> tuple[float, ...]:
    """Times without the first ``skip`` of each cycle of ``of_cycle`` iterations (0: of all)."""
    return tuple(time for i, time in enumerate(times) if i % (of_cycle or len(times)) >= skip)


def spread(times: Sequence[float]) -> Spread:
    """The statistics that nccl-tests shows, of at least one time in s; percentiles by nearest rank."""
    ordered = sorted(times)
    n = len(ordered)
    mean = math.fsum(ordered) / n
    deviation = math.sqrt(math.fsum((time - mean) ** 2 for time in ordered) / n)

    def rank(percent: int) -> float:
        return ordered[min(n - 1, -(-n * percent // 100) - 1)]

    return Spread(
        ordered[0], ordered[-1], mean, ordered[n // 2], rank(95), rank(99), deviation,
        100 * deviation / mean if mean else 0.0,
    )  # fmt: skip
