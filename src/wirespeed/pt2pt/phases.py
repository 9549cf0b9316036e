"""What sharing a buffer costs, phase by phase, and whether allocating a little more than needed changes it.

The first rank owns a buffer, the last one uses a part of it: it opens the owner's memory and copies, or
receives a message.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

from ..backends.sharing import Allocation, Handle, Sharing
from ..errors import BackendError, BackendLost, UsageError
from ..model import Axis, Unit
from ..results.document import Cell, Table
from ..statistics import summarise
from ..units import MIB, format_size, format_time
from .base import Ends, Place, Wire, pattern, verify

ALLOCATE, EXPORT, OPEN, FIRST, NEXT, CLOSE, FREE = (
    "allocate", "export", "open", "first copy", "next copies", "close", "free",
)  # fmt: skip
PHASES = (ALLOCATE, EXPORT, OPEN, FIRST, NEXT, CLOSE, FREE)
#: A cell is slow if it takes so much longer than the fastest of its phase, and every sample of it does
#: take longer than all of that one.
SLOW = 1.5
_NEXT = 10

Rows = Sequence[int]
T = TypeVar("T")


@dataclass
class Times:
    """Phase -> seconds, one for each new allocation; phases that a means does not have are absent."""

    seconds: dict[str, list[float]] = field(default_factory=dict)

    def add(self, found: dict[str, float]) -> None:
        """Note one allocation."""
        for phase, seconds in found.items():
            self.seconds.setdefault(phase, []).append(seconds)


class _Clock:
    """Times the phases of this process."""

    def __init__(self) -> None:
        self.found: dict[str, float] = {}

    def of(self, phase: str, call: Callable[[], T]) -> T:
        """Do it, and note how long it took."""
        start = time.perf_counter()
        result = call()
        self.found[phase] = time.perf_counter() - start
        return result

    def copies(self, call: Callable[[], object]) -> None:
        """Do it once, and then several times more."""
        self.of(FIRST, call)
        start = time.perf_counter()
        for _ in range(_NEXT):
            call()
        self.found[NEXT] = (time.perf_counter() - start) / _NEXT


@dataclass(frozen=True)
class Round:
    """One new allocation.

    Parameters
    ----------
    size, copied
        Bytes of the buffer with what is over, and of those the bytes that are copied.
    at
        Is told each stage before it begins.
    """

    ends: Ends
    place: Place
    size: int
    copied: int
    at: Callable[[str], None]

    @property
    def _what(self) -> str:
        return f"a buffer of {format_size(self.size)}"

    def shared(self, sharing: Sharing) -> dict[str, float]:
        """Let the last rank open the memory of the first one and copy from it.

        Raises
        ------
        VerificationError
            If it has copied something else than is there.
        """
        ends, place, clock = self.ends, self.place, _Clock()
        own: list[Allocation] = []

        def export() -> list[Any]:
            own.append(clock.of(ALLOCATE, lambda: sharing.allocate(place.where, self.size)))
            place.write(own[0].address, pattern(self.copied, 0))
            handle = clock.of(EXPORT, lambda: sharing.export(own[0]))
            return [handle.means, handle.data, handle.offset, handle.bytes]

        self.at(f"allocating and exporting {self._what} by {sharing.name}")
        plain = self._agreed(export if ends.first else None, f"exporting {self._what}")

        def use() -> None:
            local = place.allocate(self.copied)
            opened = clock.of(OPEN, lambda: sharing.open(place.where, Handle(*plain)))
            clock.copies(lambda: place.copy(local, opened.address, self.copied))
            verify(place, local, self.copied, 0, f"{self._what} opened by {sharing.name}")
            clock.of(CLOSE, opened.close)
            place.free(local)

        self.at(f"opening {self._what} by {sharing.name}")
        try:
            self._agreed(use if ends.last else None, f"closing {self._what}")
        finally:
            for allocation in own:
                clock.of(FREE, allocation.release)
        return self._joined(clock.found)

    def _agreed(self, step: Callable[[], T] | None, doing: str) -> T:
        """Return what the one rank that takes a step got; a refusal there is one on all ranks."""
        done, reason = None, ""
        try:
            done = step() if step else None
        except BackendLost:
            raise
        except BackendError as error:
            reason = f"{self.ends.world.me}: {error}"
        everyone = self.ends.world.allgather([done, reason], doing)
        if reasons := [text for _, text in everyone if text]:
            raise UsageError(reasons[0])
        return next((value for value, _ in everyone if value is not None), None)  # type: ignore[return-value]

    def sent(self, wire: Wire | None) -> dict[str, float]:
        """Let the first rank send from its buffer to one of the last rank that is just large enough.

        Raises
        ------
        VerificationError
            If something else came than was sent.
        """
        ends, place, clock = self.ends, self.place, _Clock()
        if wire is not None:
            self.at(f"allocating {self._what} for {wire.name}")
            size = self.size if ends.first else self.copied
            address = clock.of(ALLOCATE, lambda: place.allocate(size))
            place.write(address, pattern(self.copied, 0 if ends.first else 1))
            self.at(f"sending from {self._what} by {wire.name}")
            clock.found[FIRST] = wire.one(address, self.copied)
            clock.found[NEXT] = sum(wire.one(address, self.copied) for _ in range(_NEXT)) / _NEXT
            if ends.last:
                verify(place, address, self.copied, 0, f"{self._what} sent by {wire.name}")
            clock.of(FREE, lambda: place.free(address))
        found = self._joined(clock.found)
        return {phase: found[phase] for phase in PHASES if phase in found}

    def _joined(self, mine: dict[str, float]) -> dict[str, float]:
        """Return the times of both ends; of what both did the first one's, but of copies the last one's."""
        everyone = self.ends.world.allgather(mine, f"timing {self._what}")
        first, last = everyone[0], everyone[-1]
        return {**last, **first, **{p: last[p] for p in (FIRST, NEXT) if p in last}}


def table(over: Rows, times: Sequence[Times]) -> Table:
    """Return over-allocations x phases; ``reason`` marks the slow cells and says how slow."""
    phases = [phase for phase in PHASES if any(phase in t.seconds for t in times)]
    cells = []
    for j, phase in enumerate(phases):
        samples = [tuple(t.seconds.get(phase, ())) for t in times]
        for i, (some, why) in enumerate(zip(samples, slow(samples), strict=True)):
            if some:
                s = summarise(some)
                cells.append(Cell(i, j, s.median, reason=why, copies=1, statistics=s, samples=some))
    names = tuple(exact(size) for size in over[: len(times)])
    rows = Axis("over-allocated", names)
    ordered = tuple(sorted(cells, key=lambda cell: (cell.row, cell.column)))
    return Table("", "time of each phase", Unit.TIME, rows, Axis("phase", tuple(phases)), ordered)


def exact(size: int) -> str:
    """Return a size to the byte: ``2 MiB + 1 B``."""
    whole = size // MIB * MIB
    return f"{format_size(whole)} + {size - whole} B" if whole and size != whole else format_size(size)


def slow(samples: Sequence[Sequence[float]]) -> list[str]:
    """Return for each row of a phase why it is slow; empty where it is not.

    It is where its median is half as long again as the fastest of the phase, or more, and each of its
    samples is above all of that one's.
    """
    medians = [summarise(some).median if some else float("inf") for some in samples]
    best = min(range(len(medians)), key=lambda i: medians[i], default=0)
    found = []
    for some, median in zip(samples, medians, strict=True):
        is_slow = bool(some) and median >= SLOW * medians[best] and min(some) > max(samples[best])
        found.append(f"{median / medians[best]:.3g} times the fastest of this phase" if is_slow else "")
    return found


def warnings(name: str, phases: Table) -> tuple[str, ...]:
    """Return a line for each phase that has slow cells."""
    lines = []
    for j, phase in enumerate(phases.columns.labels):
        cells = [cell for cell in phases.cells if cell.column == j and cell.value is not None]
        marked = [cell for cell in cells if cell.reason]
        if marked:
            fastest = min(cell.value or 0 for cell in cells)
            over = ", ".join(phases.rows.labels[cell.row] for cell in marked)
            slowest = max(cell.value or 0 for cell in marked)
            lines.append(
                f"{name}: {phase} takes up to {format_time(slowest)} in place of {format_time(fastest)} "
                f"with {over} over"
            )
    return tuple(lines)
