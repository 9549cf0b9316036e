"""Faults of simulated machines, as data."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class FaultKind(StrEnum):
    """Kinds of faults of a simulated machine."""

    CORRUPT = "corrupt"  #: a destination gets wrong data
    ERROR = "error"  #: a call fails
    LOST = "lost"  #: the device is lost
    HANG = "hang"  #: a call hangs until it is cancelled
    STUCK = "stuck"  #: a call hangs forever
    SPEED = "speed"  #: the speed of links is multiplied by a factor
    DOWN = "down"  #: links are missing
    BUSY = "busy"  #: another process uses the machine
    GONE = "gone"  #: a GPU is on the PCI bus, but the driver does not show it
    FULL = "full"  #: another process uses all of a GPU's memory, or leaves a number of bytes
    NOISE = "noise"  #: times vary between samples, rounds or runs, or slowly
    CAUSE = "cause"  #: a cause of slow paths, with what the system then reports

    @property
    def of_links(self) -> bool:
        """Whether the fault is one of links, not of transfers."""
        return self in (FaultKind.SPEED, FaultKind.DOWN)


@dataclass(frozen=True)
class Fault:
    """A fault of a simulated machine. Its description, and so the expected ranges, stay the same.

    Attributes:
        kind: Kind of the fault.
        where: Prefix of the text of the affected transfers (``gpu0->gpu1``); for a fault of links, a text as
            in ``Machine.links_at``; for a cause, its place; for a GPU that is gone, its PCI address; for
            noise, its level.
        factor: Factor of the speed of links; for a cause, its amount; for a full memory, its free bytes; for
            noise, its relative standard deviation.
        cause: Name of a cause.
    """

    kind: FaultKind
    where: str = ""
    factor: float = 1.0
    cause: str = ""
