"""Host memory on a NUMA node: mapped, bound, verified, and kept for later Measurements."""

from __future__ import annotations

import ctypes
import mmap
import os
import platform
import re
from collections.abc import Callable
from dataclasses import dataclass

from ...errors import BackendError, BackendLost, OutOfMemory
from ...units import KIB, MIB, format_size
from ..system_files import HERE, TreePath
from .procfs import available_bytes, read

#: Size of a huge page on supported CPUs, and alignment of buffers.
GRANULE = 2 * MIB
#: What to do if buffers are not in huge pages.
HUGE_REMEDY = (
    "enable them (`echo madvise | sudo tee /sys/kernel/mm/transparent_hugepage/enabled`) and free memory, "
    "or do not require them"
)
#: Memory that is left to other processes.
RESERVE_BYTES = 128 * MIB
#: Buffers of earlier rounds stay mapped, so that the next round gets other pages, while they need at most
#: this fraction of the memory that is left.
RETIRED_SHARE = 0.25
#: Number of the system call mbind by architecture. Source: the kernel's syscall tables.
_MBIND = {"x86_64": 237, "aarch64": 235, "riscv64": 235, "ppc64le": 259, "s390x": 268}

_PROT_NONE = 0
_MPOL_BIND = 2

_libc = ctypes.CDLL(None, use_errno=True)
_libc.mmap.restype = ctypes.c_void_p
_libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, *[ctypes.c_int] * 3, ctypes.c_long]
_libc.munmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
_libc.mprotect.argtypes = _libc.madvise.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
_libc.syscall.restype = ctypes.c_long


@dataclass(eq=False)
class HostBuffer:
    """Memory of one node. ``holds`` names its contents, so that they need not be built again.

    Mappings are always separated by inaccessible pages, so that the kernel lists each separately.
    """

    address: int
    bytes: int
    node: int
    mapping: tuple[int, int]
    holds: tuple[int, ...] | None = None
    checked: bool = True  #: whether the kernel reported the node of its pages


#: Makes the kernel place every page of a buffer, from threads of its node if it has CPUs.
Toucher = Callable[[HostBuffer], None]


class HostBufferPool:
    """Buffers by node, kept until memory is needed or the pool is closed.

    Attributes:
        several: Whether the machine has several nodes, so that the node of a page must be verified.
        available: Return the bytes that can still be touched on a node; None if unknown.
        root: Folder that contains ``proc``.
    """

    def __init__(
        self,
        several: bool,
        available: Callable[[int | None], int | None] = lambda node: available_bytes(node=node),
        root: TreePath = HERE,
    ) -> None:
        self._several = several
        self._available = available
        self._root = root
        self._free: list[HostBuffer] = []
        self._retired: list[HostBuffer] = []
        self._mapped: set[HostBuffer] = set()

    def take(self, node: int, size: int, touch: Toucher, holds: tuple[int, ...] | None = None) -> HostBuffer:
        """A buffer of at least ``size`` bytes, preferably one that already ``holds`` something.

        Raises:
            OutOfMemory: If there is not enough memory.
            BackendError: If the pages are on another node.
        """
        fitting = [b for b in self._free if b.node == node and b.bytes >= size]
        if fitting:
            buffer = min(fitting, key=lambda b: (holds is None or b.holds != holds, b.bytes))
            self._free.remove(buffer)
            return buffer
        size = -(-size // GRANULE) * GRANULE
        self._make_room(node, size)
        buffer = self._map(node, size)
        try:
            bound = not self._several or _bind(buffer)
            touch(buffer)
            self._check_place(buffer, bound)
        except BackendLost:  # threads still write to it
            raise
        except BaseException:
            self._unmap(buffer)
            raise
        return buffer

    def give(self, buffer: HostBuffer) -> None:
        """Take back a buffer."""
        self._free.append(buffer)

    def renew(self) -> None:
        """Use other memory from now on.

        The kernel would give the pages of a buffer that is unmapped to the next one. Therefore unused buffers
        stay mapped for a while.
        """
        self._retired += self._free
        self._free.clear()
        while self._retired:
            room = self._available(None)
            if room is not None and sum(b.bytes for b in self._retired) <= RETIRED_SHARE * room:
                break
            self._unmap(self._retired.pop(0))

    def close(self) -> None:
        """Unmap all memory, used or not."""
        for buffer in tuple(self._mapped):
            self._unmap(buffer)
        self._free.clear()
        self._retired.clear()

    def _make_room(self, node: int, size: int) -> None:
        """Free unused buffers until there is room, before a page is touched."""
        where = node if self._several else None
        while (room := self._available(where)) is not None and room - RESERVE_BYTES < size:
            unused = self._retired or self._free
            if not unused:
                raise OutOfMemory(
                    f"not enough memory on numa{node}: requested a buffer of {format_size(size)}, "
                    f"{format_size(max(0, room - RESERVE_BYTES))} is available "
                    f"({format_size(RESERVE_BYTES)} is reserved for other processes); choose a smaller size"
                )
            self._unmap(unused.pop(0))

    def _map(self, node: int, size: int) -> HostBuffer:
        reserved = size + 2 * GRANULE  # the rest stays inaccessible, on both sides
        start = _libc.mmap(None, reserved, _PROT_NONE, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS, -1, 0)
        if start == ctypes.c_void_p(-1).value:
            raise OutOfMemory(f"mmap of {format_size(size)} for numa{node} failed: {_last_error()}")
        address = -(-(start + 1) // GRANULE) * GRANULE
        buffer = HostBuffer(address, size, node, (start, reserved))
        self._mapped.add(buffer)
        if _libc.mprotect(address, size, mmap.PROT_READ | mmap.PROT_WRITE):
            message = _last_error()
            self._unmap(buffer)
            raise OutOfMemory(f"mapping {format_size(size)} for numa{node} failed: {message}")
        # Fails if the kernel has no transparent huge pages; then small pages are used.
        _libc.madvise(address, size, mmap.MADV_HUGEPAGE)
        return buffer

    def _unmap(self, buffer: HostBuffer) -> None:
        self._mapped.discard(buffer)
        if _libc.munmap(*buffer.mapping):
            raise BackendError(f"munmap of {format_size(buffer.bytes)} failed: {_last_error()}")

    def _check_place(self, buffer: HostBuffer, bound: bool) -> None:
        """Verify with the kernel that the pages of a buffer are on its node."""
        if not self._several:
            return
        pages = _pages_by_node(self._root, buffer.address)
        buffer.checked = pages is not None
        if pages is not None and set(pages) != {buffer.node}:
            places = ", ".join(f"{n} pages on numa{node}" for node, n in sorted(pages.items())) or "no page"
            how = "bound with mbind" if bound else "touched by its threads, because mbind is not permitted"
            raise BackendError(
                f"memory for numa{buffer.node} ({how}) is on other nodes: {places}; "
                "allow this process that node's memory (cpuset, container settings)"
            )


def huge_bytes(address: int, root: TreePath = HERE) -> int | None:
    """The bytes in huge pages of the mapping at an address; None if the kernel does not report it."""
    section = re.compile(rf"^{address:x}-.*?^AnonHugePages: +\d+", re.MULTILINE | re.DOTALL)
    line = read(root / "proc/self/smaps", section)
    return int(line.split()[-1]) * KIB if line else None


def _bind(buffer: HostBuffer) -> bool:
    """Bind untouched memory to its node; return False if the kernel does not permit it."""
    number = _MBIND.get(platform.machine())
    if number is None:
        return False
    bits = 8 * ctypes.sizeof(ctypes.c_ulong)
    words = buffer.node // bits + 1
    mask = (ctypes.c_ulong * words)()
    mask[buffer.node // bits] = 1 << buffer.node % bits
    arguments = (buffer.address, buffer.bytes, _MPOL_BIND, ctypes.addressof(mask), words * bits + 1, 0)
    return bool(_libc.syscall(ctypes.c_long(number), *(ctypes.c_ulong(a) for a in arguments)) == 0)


def _pages_by_node(root: TreePath, address: int) -> dict[int, int] | None:
    """Node -> pages of the mapping at an address; None if the kernel does not report it."""
    for line in (read(root / "proc/self/numa_maps") or "").splitlines():
        start, *fields = line.split()
        if int(start, 16) == address:
            counts = (f[1:].split("=") for f in fields if f[0] == "N" and f[1:2].isdecimal())
            return {int(node): int(pages) for node, pages in counts}
    return None


def _last_error() -> str:
    return os.strerror(ctypes.get_errno())
