"""How much of the CPUs other processes use."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Collection
from pathlib import Path

from .procfs import read

#: The kernel counts in ticks of 1 to 10 ms: a shorter window says nothing, in s.
_WINDOW_S = 0.2
#: An idle machine runs daemons and whoever asks it: this many CPUs, and this part of all of them.
_IDLE_CPUS, _IDLE_SHARE = 0.5, 0.10


class CpuLoad:
    """Watches some CPUs: what others than this process do there, since the last look.

    Parameters
    ----------
    cpus
        Numbers of the logical CPUs.
    root
        Where ``proc`` is.
    own
        Returns the CPU time of this process, all threads, in s.
    now, sleep
        The clock, and what waits for the first window to be long enough.
    """

    def __init__(
        self,
        cpus: Collection[int],
        root: Path = Path("/"),
        own: Callable[[], float] = time.process_time,
        now: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._names = {f"cpu{cpu}" for cpu in cpus}
        self._stat, self._own, self._now, self._sleep = root / "proc/stat", own, now, sleep
        self._ticks = os.sysconf("SC_CLK_TCK")
        self._last = self._read()
        self._found: float | None = None

    def others(self) -> float:
        """Return how many CPUs other processes used on average since the last look; 0 where unknown.

        A look that follows too soon repeats what the one before it found; the first one waits.
        """
        if self._last is None:
            return 0.0
        elapsed = self._now() - self._last[0]
        if elapsed < _WINDOW_S and self._found is not None:
            return self._found
        if elapsed < _WINDOW_S:
            self._sleep(_WINDOW_S - elapsed)
        read = self._read()
        if read is None:
            return 0.0
        (before, busy, own), (after, busy_now, own_now) = self._last, read
        self._last = read
        self._found = max(0.0, (busy_now - busy) - (own_now - own)) / (after - before)
        return self._found

    def busy(self) -> str:
        """Return what others use of the CPUs, where that is more than on an idle machine; else empty."""
        count, others = len(self._names), self.others()
        if others <= max(_IDLE_CPUS, _IDLE_SHARE * count):
            return ""
        return f"in use: other processes take {others:.1f} of {count} CPUs"

    def _read(self) -> tuple[float, float, float] | None:
        """Return the time, how long the CPUs were busy, and the CPU time of this process, in s."""
        ticks = 0
        for line in (read(self._stat) or "").splitlines():
            name, *counts = line.split()
            if name in self._names:
                # user, nice, system, (idle, iowait,) irq, softirq; what is stolen or of guests is not added.
                ticks += sum(int(counts[i]) for i in (0, 1, 2, 5, 6))
        if not ticks:
            return None
        return self._now(), ticks / self._ticks, self._own()
