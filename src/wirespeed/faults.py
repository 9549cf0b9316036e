"""What is wrong at a destination, and whether the source or the way is to blame.

Faults of simulated machines, as data.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

#: Largest number of wrong words that are listed.
MOST_LISTED = 4096


@dataclass(frozen=True)
class WrongWord:
    """One wrong word.

    Attributes:
        index: Position in the buffer, in words of 8 bytes.
        expected, actual: What it should be, and what it is.
        source: What the source contains there.
        before: What the destination contained before the copy.
    """

    index: int
    expected: int
    actual: int
    source: int
    before: int


@dataclass(frozen=True)
class WrongWords:
    """The wrong words of a destination whose source could be read, too.

    Attributes:
        listed: The first of them.
        ever, always: Bits that are wrong in at least one of all, and in each of them.
        source_wrong: How many are wrong at the source.
        unwritten: How many still are what the destination contained before.
        copied: How many others are what the source contains.
    """

    listed: tuple[WrongWord, ...]
    ever: int
    always: int
    source_wrong: int
    unwritten: int
    copied: int

    def blame(self, wrong: int) -> str:
        """What the comparison with the source says of all ``wrong`` words."""
        if self.unwritten == wrong:
            return "they were never written"
        if not self.source_wrong:
            return "the source is intact"
        if self.copied == wrong:
            return "the source has the same wrong words"
        return f"{self.source_wrong} of them are wrong at the source, too"


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
    DROPPED = "dropped"  #: what a GPU writes to the memory of another vanishes without an error
    LATE = "late"  #: data that a GPU writes to another arrives after its flag
    UNSEEN = "unseen"  #: flags that a GPU sets in the memory of another are never seen
    BOTH_WAYS = "both-ways"  #: data between two GPUs is lost if both write at once
    SLOW = "slow"  #: the speed of copies from one GPU to another is multiplied by a factor
    NO_PEERS = "no-peers"  #: the driver offers no peer access
    CAUSE = "cause"  #: a cause of slow paths, with what the system then reports

    @property
    def of_pairs(self) -> bool:
        """Whether the fault is one of peer access between two GPUs."""
        return self in _OF_PAIRS

    @property
    def of_links(self) -> bool:
        """Whether the fault is one of links, not of transfers."""
        return self in (FaultKind.SPEED, FaultKind.DOWN)


_OF_PAIRS = (
    FaultKind.DROPPED, FaultKind.LATE, FaultKind.UNSEEN, FaultKind.BOTH_WAYS, FaultKind.SLOW,
    FaultKind.NO_PEERS,
)  # fmt: skip


@dataclass(frozen=True)
class Fault:
    """A fault of a simulated machine. Its description, and so the expected ranges, stay the same.

    Attributes:
        kind: Kind of the fault.
        where: Prefix of the text of the affected transfers (``gpu0->gpu1``); for a fault of links, a text as
            in ``Machine.links_at``; of pairs, ``gpu0->gpu1``, ``gpu0-gpu1`` (both directions), ``gpu0`` (all
            pairs with it) or empty; for a cause, its place; for a GPU that is gone, its PCI address; for
            noise, its level.
        factor: Factor of the speed of links or copies; for a cause, its amount; for a full memory, its free
            bytes; for noise, its relative standard deviation.
        cause: Name of a cause.
    """

    kind: FaultKind
    where: str = ""
    factor: float = 1.0
    cause: str = ""

    def concerns(self, source: str, destination: str) -> bool:
        """Whether a fault of pairs is one of a GPU that accesses the memory of another."""
        a, b = source, destination
        return self.where in ("", a, b, f"{a}->{b}", f"{a}-{b}", f"{b}-{a}")
