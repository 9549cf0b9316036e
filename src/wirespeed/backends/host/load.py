"""CPU use of other processes."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Collection

from ..tree import HERE, TreePath
from .procfs import read

#: Minimum time between two readings, in s: the kernel counts in ticks of 1 to 10 ms.
_WINDOW_S = 0.2
#: CPU use of an idle machine with its daemons: this number of CPUs plus this fraction of all.
_IDLE_CPUS, _IDLE_SHARE = 0.5, 0.10


class CpuLoad:
    """CPU use of other processes on some CPUs since the last reading.

    Parameters
    ----------
    cpus : Collection[int]
        Numbers of the logical CPUs.
    root : TreePath
        Folder that contains ``proc``.
    own : callable
        Return the CPU time of this process, all threads, in s.
    now, sleep : callable
        The clock, and a function that waits until the first window is long enough.
    """

    def __init__(
        self,
        cpus: Collection[int],
        root: TreePath = HERE,
        own: Callable[[], float] = time.process_time,
        now: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._names = {f"cpu{cpu}" for cpu in cpus}
        self._stat, self._own, self._now, self._sleep = root / "proc/stat", own, now, sleep
        self._ticks = os.sysconf("SC_CLK_TCK")
        self._last = self._read()
        self._others: float | None = None

    def others(self) -> float:
        """The average number of CPUs that other processes used since the last reading; 0 if unknown.

        A reading that follows too soon repeats the previous result; the first one waits.
        """
        if self._last is None:
            return 0.0
        elapsed = self._now() - self._last[0]
        if elapsed < _WINDOW_S and self._others is not None:
            return self._others
        if elapsed < _WINDOW_S:
            self._sleep(_WINDOW_S - elapsed)
        read = self._read()
        if read is None:
            return 0.0
        (before, busy, own), (after, busy_now, own_now) = self._last, read
        self._last = read
        self._others = max(0.0, (busy_now - busy) - (own_now - own)) / (after - before)
        return self._others

    def busy(self) -> str:
        """Describe the CPU use of other processes if it exceeds that of an idle machine; else empty."""
        count, others = len(self._names), self.others()
        if others <= max(_IDLE_CPUS, _IDLE_SHARE * count):
            return ""
        return f"in use: other processes take {others:.1f} of {count} CPUs"

    def _read(self) -> tuple[float, float, float] | None:
        """The time, the busy time of the CPUs, and the CPU time of this process, in s."""
        ticks = 0
        for line in (read(self._stat) or "").splitlines():
            name, *counts = line.split()
            if name in self._names:
                # user, nice, system, (idle, iowait,) irq, softirq; without steal and guest time.
                ticks += sum(int(counts[i]) for i in (0, 1, 2, 5, 6))
        if not ticks:
            return None
        return self._now(), ticks / self._ticks, self._own()
