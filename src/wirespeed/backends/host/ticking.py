"""A clock in memory for those who can wait for a word but cannot read a clock: streams of GPUs."""

from __future__ import annotations

from .compiled import compiled
from .intrinsics import atomic_load, atomic_store, now_ns, spin_hint

#: Offsets of the words: the time in µs, and the number of the round that has started and that is to stop.
CLOCK, STARTED, STOP = (i * 128 for i in range(3))
_NS_PER_TICK = 1000


@compiled("void(int64, int64)")
def tick(page: int, serial: int) -> None:
    """Write the time since a round has started, until it is stopped."""
    while atomic_load(page + STARTED) != serial:
        if atomic_load(page + STOP) == serial:
            return
        spin_hint()
    zero = now_ns()
    before = -1
    while atomic_load(page + STOP) != serial:
        ticks = (now_ns() - zero) // _NS_PER_TICK
        if ticks != before:
            atomic_store(page + CLOCK, ticks)
            before = ticks
        spin_hint()
