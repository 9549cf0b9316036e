"""Readers for sysfs and procfs files. A file that cannot be read gives None, never an exception."""

from __future__ import annotations

from pathlib import Path

from ...units import KIB

#: cgroup v1 writes this (rounded to pages) or more for "no limit"; no machine has as much memory.
_NO_LIMIT = 2**60


def read(path: Path) -> str | None:
    """Return the stripped text of a file; None if it is missing, unreadable or empty."""
    try:
        return path.read_text(errors="replace").strip("\n\0 ") or None
    except (OSError, ValueError):  # a NUL in a name that another file gave
        return None


def number(path: Path) -> int | None:
    """Return the decimal number in a file; None if there is none."""
    text = read(path)
    return int(text) if text is not None and text.isascii() and text.isdecimal() else None


def cpu_list(text: str) -> tuple[int, ...]:
    """Return the numbers in a list such as ``0-3,8``; empty if it is not a list."""
    numbers: list[int] = []
    for part in text.split(","):
        first, _, last = part.strip().partition("-")
        if not first.isdecimal() or not (last or first).isdecimal():
            return ()
        numbers.extend(range(int(first), int(last or first) + 1))
    return tuple(numbers)


def meminfo(path: Path) -> dict[str, int]:
    """Return field -> bytes of ``/proc/meminfo`` or of a node's ``meminfo``."""
    fields: dict[str, int] = {}
    for line in (read(path) or "").splitlines():
        name, _, value = line.partition(":")
        words = value.split()
        if name.split() and words and words[0].isdecimal():
            fields[name.split()[-1]] = int(words[0]) * (KIB if words[1:] == ["kB"] else 1)
    return fields


def available_bytes(root: Path = Path("/"), node: int | None = None) -> int | None:
    """Return how much memory can be touched before the kernel kills a process for it.

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


def _cgroup_rooms(root: Path) -> list[int]:
    """Return the remaining bytes of each control group, from this process's up to the root."""
    rooms = []
    for line in (read(root / "proc/self/cgroup") or "").splitlines():
        _, controllers, group = (*line.split(":", 2), "", "")[:3]
        if controllers == "":
            top, names = root / "sys/fs/cgroup", ("memory.max", "memory.current")
        elif "memory" in controllers.split(","):
            top, names = root / "sys/fs/cgroup/memory", ("memory.limit_in_bytes", "memory.usage_in_bytes")
        else:
            continue
        # In a container the path is often that of the host; then only the top is readable.
        folder = top / group.strip("/")
        for place in (folder, *(p for p in folder.parents if p.is_relative_to(top))):
            limit, used = (number(place / name) for name in names)
            if limit is not None and used is not None and limit < _NO_LIMIT:
                rooms.append(max(0, limit - used + _page_cache(place / "memory.stat")))
    return rooms


def _page_cache(stat: Path) -> int:
    """Return the bytes of a control group's page cache, which the kernel drops before it kills."""
    fields = dict(line.split(maxsplit=1) for line in (read(stat) or "").splitlines() if " " in line)
    return sum(
        int(fields.get(f"total_{name}", fields.get(name, "0"))) for name in ("active_file", "inactive_file")
    )
