"""Readers for sysfs and procfs files. A file that cannot be read gives None, never an exception.

CPU use of other processes.
"""

from __future__ import annotations

import math
import os
import re
import time
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator

from ...units import KIB
from ..tree import HERE, TreePath

#: No number of the kernel that is read here has more digits.
_MOST_DIGITS = 15
#: No kernel numbers more CPUs or NUMA nodes. Source: NR_CPUS in the configuration of Linux.
_MOST_CPUS = 8192
#: cgroup v1 writes this (rounded to pages) or more for "no limit"; no machine has as much memory.
NO_LIMIT = 2**60
#: The first CPU's section is sufficient; on large machines the whole file takes milliseconds.
FIRST_CPU = re.compile(r"\A\s*\S.*?(?=\n\n|\Z)", re.DOTALL)
#: Of the table of mounts: /dev/shm, and whether the root is that of a container. The rest may be private.
_MOUNTS = re.compile(r"^\S+ (?:/dev/shm tmpfs .*$|/ overlay\b)", re.MULTILINE)
_ALLOWED = re.compile(r"^(?:Cpus|Mems)_allowed_list:.*$", re.MULTILINE)


def read(path: TreePath, keep: re.Pattern[str] | None = None) -> str | None:
    """The stripped text of a file, or what matches; None if it is missing, unreadable or empty."""
    return (path.read(keep) or "").strip("\n\0 ") or None


def whole(text: str | None) -> int | None:
    """A decimal number; None if it is not one, or too large for anything that a kernel reports."""
    fits = text is not None and text.isascii() and text.isdecimal() and len(text) <= _MOST_DIGITS
    return int(text) if text is not None and fits else None


def number(path: TreePath) -> int | None:
    """The decimal number in a file; None if there is none."""
    return whole(read(path))


def allowed(root: TreePath) -> dict[str, tuple[int, ...]]:
    """The ``Cpus`` and ``Mems`` (NUMA nodes) that this process may use; without those unknown."""
    lines = (read(root / "proc/self/status", _ALLOWED) or "").splitlines()
    return {line.partition("_")[0]: cpu_list(line.partition(":")[2]) for line in lines}


def mounts(root: TreePath) -> dict[str, str]:
    """Folder -> line of the table of mounts, for /dev/shm and the root of a container.

    Of several mounts of one folder, the last is seen.
    """
    lines = (read(root / "proc/self/mounts", _MOUNTS) or "").splitlines()
    return {words[1]: line for line in lines if len(words := line.split()) > 2}


def first_cpu(root: TreePath) -> dict[str, str]:
    """Field -> value of the first CPU in ``/proc/cpuinfo``; empty if there is no such file."""
    fields: dict[str, str] = {}
    for line in (read(root / "proc/cpuinfo", FIRST_CPU) or "").splitlines():
        name, _, value = line.partition(":")
        fields.setdefault(name.strip(), value.strip())
    return fields


def cpu_list(text: str) -> tuple[int, ...]:
    """The numbers in a list such as ``0-3,8``; empty if it is not a list."""
    numbers: list[int] = []
    for part in text.split(","):
        first, _, last = part.strip().partition("-")
        low, high = whole(first), whole(last or first)
        if low is None or high is None or high >= _MOST_CPUS:
            return ()
        numbers.extend(range(low, high + 1))
    return tuple(dict.fromkeys(numbers))


def meminfo(path: TreePath) -> dict[str, int]:
    """Field -> bytes of ``/proc/meminfo`` or of a node's ``meminfo``."""
    fields: dict[str, int] = {}
    for line in (read(path) or "").splitlines():
        name, _, words = line.partition(":")
        value, *unit = words.split() or ("",)
        number = whole(value)
        if name.split() and number is not None:
            fields[name.split()[-1]] = number * (KIB if unit == ["kB"] else 1)
    return fields


def available_bytes(root: TreePath = HERE, node: int | None = None) -> int | None:
    """How much memory can be touched before the kernel kills a process for it.

    The minimum of the machine's memory, the remaining memory of every control group around this process, and
    the memory of the NUMA ``node``; page cache counts as available. None if nothing is known.
    """
    limits = [meminfo(root / "proc/meminfo").get("MemAvailable"), *_cgroup_rooms(root)]
    if node is not None:
        fields = meminfo(root / f"sys/devices/system/node/node{node}/meminfo")
        if "MemFree" in fields:
            cached = ("Active(file)", "Inactive(file)", "SReclaimable")
            limits.append(fields["MemFree"] + sum(fields.get(name, 0) for name in cached))
    return min((limit for limit in limits if limit is not None), default=None)


def control_groups(
    root: TreePath, controller: str, keep: re.Pattern[str] | None = None
) -> Iterator[tuple[TreePath, int]]:
    """The folders of the control groups around this process, the innermost first, and their version, 1 or 2.

    ``keep`` is what may be read of the list of groups.
    """
    for line in (read(root / "proc/self/cgroup", keep) or "").splitlines():
        _, controllers, group = (*line.split(":", 2), "", "")[:3]
        if controllers and controller not in controllers.split(","):
            continue
        top = root / "sys/fs/cgroup" / (controller if controllers else "")
        # In a container the path is often that of the host; then only the top is readable.
        folder = top / group.strip("/")
        for place in (folder, *(p for p in folder.parents if p.is_relative_to(top))):
            yield place, 1 if controllers else 2


def flat_keyed(text: str | None) -> dict[str, str]:
    """The lines of a file with a name and a value each."""
    return dict(line.split(maxsplit=1) for line in (text or "").splitlines() if " " in line.strip())


def _cgroup_rooms(root: TreePath) -> list[int]:
    """The remaining bytes of each control group, from this process's up to the root."""
    rooms = []
    for place, version in control_groups(root, "memory"):
        names = (
            ("memory.limit_in_bytes", "memory.usage_in_bytes")
            if version == 1
            else ("memory.max", "memory.current")
        )
        limit, used = (number(place / name) for name in names)
        if limit is not None and used is not None and limit < NO_LIMIT:
            rooms.append(max(0, limit - used + _page_cache(place / "memory.stat")))
    return rooms


def _page_cache(stat: TreePath) -> int:
    """The bytes of a control group's page cache, which the kernel drops before it kills."""
    fields = flat_keyed(read(stat))
    return sum(
        whole(fields.get(f"total_{name}", fields.get(name))) or 0 for name in ("active_file", "inactive_file")
    )


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
        """Describe the CPU use of other processes if it exceeds that of an idle machine; else empty.

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
