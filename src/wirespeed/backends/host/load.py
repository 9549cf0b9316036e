"""The use of CPUs by other processes, and whether this process has to wait for its CPUs."""

from __future__ import annotations

import math
import os
import time
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable

from ..system_files import HERE, TreePath
from .procfs import control_groups, flat_keyed, read, whole

#: Minimum time between two readings, in s: the kernel counts in ticks of 1 to 10 ms.
_WINDOW_S = 0.2
#: CPU use of an idle machine with its daemons: this number of CPUs plus this fraction of all.
_IDLE_CPUS, _IDLE_SHARE = 0.5, 0.10
#: Measuring threads share their CPUs if on average more than this number waits for one. On machines with 32
#: CPUs it was about 0.3 or less when idle, and 0.5 to 1.4 with one busy CPU: few runs, from which this was
#: chosen. Shorter waits, in s, show nothing.
_SHARED, _SHORTEST_WAIT_S = 0.5, 0.05
_NS = 1e-9
#: Time for which a control group had used up its CPU time, in each version: key, unit in s.
_THROTTLED = {1: ("throttled_time", 1e-9), 2: ("throttled_usec", 1e-6)}


class CpuLoad:
    """CPU use of other processes on some CPUs since the last reading.

    Attributes:
        cpus: Numbers of the logical CPUs.
        root: Folder that contains ``proc``.
        threads: Return the CPU and the thread ID of each measuring thread.
        own: Return the CPU time of this process, all threads, in s.
        now, sleep: The clock, and a function that waits until the first window is long enough.
    """

    def __init__(
        self,
        cpus: Collection[int],
        root: TreePath = HERE,
        threads: Callable[[], Iterable[tuple[int, int]]] = tuple,
        own: Callable[[], float] = time.process_time,
        now: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._names = {f"cpu{cpu}" for cpu in cpus}
        self._root, self._stat, self._tasks = root, root / "proc/stat", root / "proc/self/task"
        self._own, self._now, self._sleep, self._threads = own, now, sleep, threads
        self._ticks = os.sysconf("SC_CLK_TCK")
        self._last = self._read()
        self._others: float | None = None
        self._scheduled: dict[tuple[int, int], tuple[float, float]] = {}
        self._throttled_before = self._throttled()

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
        """Describe the CPU use of other processes if it exceeds the use of an idle machine; else empty.

        One busy CPU of many is within that, but its thread delays all threads that wait for each other.
        """
        count, others, waiting = len(self._names), self.others(), self._waiting()
        if others > max(_IDLE_CPUS, _IDLE_SHARE * count):
            return f"in use by other processes ({others:.1f} of {count} CPUs)"
        if waiting > _SHARED:
            return f"in use by other processes ({waiting:.1f} measuring threads waited for a CPU on average)"
        return ""

    def _waiting(self) -> float:
        """How many of the measuring threads waited for their CPUs on average, while they measured.

        Whatever takes one CPU may move from one to the next, and threads that wait for each other all wait.
        """
        before, self._scheduled = self._scheduled, {}
        used: dict[int, list[tuple[float, float]]] = defaultdict(list)
        for cpu, thread in self._threads():
            # Times in ns: on a CPU, and waiting for one. Source: Documentation/scheduler/sched-stats.rst
            words = (read(self._tasks / f"{thread}/schedstat") or "").split()
            ran, waited = (whole(word) for word in (*words, "", "")[:2])
            if ran is None or waited is None:
                continue
            self._scheduled[cpu, thread] = (ran * _NS, waited * _NS)
            ran_before, waited_before = before.get((cpu, thread), (0.0, 0.0))
            if ran * _NS > ran_before:
                used[cpu].append((ran * _NS - ran_before, waited * _NS - waited_before))
        # Threads of this process that share a CPU wait for each other.
        alone = [times[0] for times in used.values() if len(times) == 1]
        throttled_before, self._throttled_before = self._throttled_before, self._throttled()
        total = math.fsum(waiting for _, waiting in alone) - (self._throttled_before - throttled_before)
        return len(alone) * total / math.fsum(map(sum, alone)) if total >= _SHORTEST_WAIT_S else 0.0

    def _throttled(self) -> float:
        """How long CPUs were denied because the quota was used up, the sum of all CPUs, in s."""
        total = 0.0
        for place, version in control_groups(self._root, "cpu"):
            key, unit = _THROTTLED[version]
            total += (whole(flat_keyed(read(place / "cpu.stat")).get(key)) or 0) * unit
        return total

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
