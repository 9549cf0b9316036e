"""Testcases of the STREAM kernels, in the memory of GPUs or NUMA nodes."""

from __future__ import annotations

from collections.abc import Callable

from ..model import Access, Engine, Operation
from ..topology import Machine
from .base import Testcase
from .patterns import Grouping, within

#: Operation, number of arrays that count (each that is read or written, as J. D. McCalpin counts), formula.
KERNELS = (
    (Operation.COPY, 2, "b = a"),
    (Operation.SCALE, 2, "b = s a"),
    (Operation.ADD, 3, "c = a + b"),
    (Operation.TRIAD, 3, "c = a + s b"),
    (Operation.READ, 1, "sum of a, nothing stored"),
    (Operation.WRITE, 1, "a = s, nothing loaded"),
)


def stream(
    prefix: str,
    group: Grouping,
    engine: Engine,
    executed: str,
    title: str,
    size: int | Callable[[Machine], int],
) -> tuple[Testcase, ...]:
    """A testcase per kernel; ``executed`` completes the description."""
    return tuple(
        Testcase(
            f"{prefix}_stream_{operation}",
            f"STREAM: {formula}, {executed}",
            within(group),
            f"STREAM {operation} {title}bandwidth",
            engine,
            Access.LOCAL,
            operation,
            size,
            counted=arrays,
            counts=f"{arrays} array{'s' * (arrays > 1)}, as STREAM counts",
        )
        for operation, arrays, formula in KERNELS
    )
