"""Readers for files of sysfs and procfs. A file that cannot be read gives None, never an exception."""

from __future__ import annotations

import re
from collections.abc import Iterator

from ...units import KIB
from ..system_files import HERE, TreePath

#: No number of the kernel that is read here has more digits.
_MOST_DIGITS = 15
#: No kernel numbers more CPUs or NUMA nodes. Source: NR_CPUS in the configuration of Linux.
_MOST_CPUS = 8192
#: cgroup v1 writes this (rounded to pages) or more for "no limit"; no machine has as much memory.
NO_LIMIT = 2**60
#: The first CPU's section is sufficient; on large machines the whole file takes milliseconds.
FIRST_CPU = re.compile(r"\A\s*\S.*?(?=\n\n|\Z)", re.DOTALL)
#: Of the table of mounts: /dev/shm, and whether the root belongs to a container. The rest may be private.
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
        # In a container the path is often the host's; then only the top is readable.
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
