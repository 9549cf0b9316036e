"""Testcases of storage: blocks between a file in a named folder and host memory, over size and depth.

Each is measured with threads that make one call at a time, and with the queues of an io_uring.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from ..hardware.devices import STORAGE, Storage
from ..hardware.topology import Machine
from ..measurement import Axis, Measurement, Place, Unit
from ..model import Access, Engine, Executor, FileCalls, Memory, MemoryKind, Transfer
from ..units import KIB, MIB, format_size
from .base import Layout, Pattern, Plan, PlanOptions, Testcase, WaivedCell
from .patterns import NO_CPU

#: Beginning of the names of these testcases.
PREFIX = "storage_"
NO_STORAGE = "no folder is named: add --storage DIR"
#: Default block sizes in bytes, and numbers of calls at a time.
SEQUENTIAL, RANDOM, DEPTHS = (MIB, 4 * MIB, 16 * MIB), (4 * KIB,), (1, 4, 16, 64)
#: Block sizes are multiples of this: a page, which is at least a block of any device.
GRANULE = 4 * KIB
#: The part of the memory of a NUMA node that buffers may take.
_SHARE = 8


def over(
    engine: Engine, reads: bool, random: bool, usual: tuple[int, ...], chosen: tuple[int, ...] = ()
) -> Pattern:
    """The pattern of a table of block sizes and depths for each storage device."""

    def pattern(machine: Machine, case: Testcase, options: PlanOptions) -> Plan:
        devices: tuple[Storage, ...] = machine.others.get(STORAGE.name, ())
        if not devices:
            return Plan.waive(NO_STORAGE)
        sizes = chosen or ((options.size,) if options.size else usual)
        rows = Axis("block size", tuple(map(format_size, sizes)), tuple(map(float, sizes)), "B")
        columns = Axis("calls at a time", tuple(map(str, DEPTHS)), tuple(map(float, DEPTHS)))
        layouts, measurements, waived = list[Layout](), list[Measurement](), list[WaivedCell]()
        for device in devices:
            executor, memory_bytes = _executor(machine, device)
            cached = "" if device.past_cache else ", page cache"
            host, file = Memory(executor.device, MemoryKind.PAGEABLE), Memory(device.name, MemoryKind.FILE)
            ends = (file, host) if reads else (host, file)
            path = f"{ends[0]}->{ends[1]}"
            layouts.append(Layout(path, f"{case.title} {path}{cached}", rows, columns, Unit.RATE))
            for i, block in enumerate(sizes):
                for j, depth in enumerate(DEPTHS):
                    moved = block * depth
                    if not executor.cpus:
                        reason = NO_CPU
                    else:
                        reason = _unfit(block) or _too_large(moved, device, memory_bytes)
                    if reason:
                        waived.append(WaivedCell(path, i, j, reason))
                        continue
                    transfer = Transfer(*ends, executor, engine, moved, calls=FileCalls(block, depth, random))
                    measurements.append(Measurement((transfer,), (Place(path, i, j),)))
        return Plan(tuple(layouts), tuple(measurements), tuple(waived))

    return pattern


def _executor(machine: Machine, device: Storage) -> tuple[Executor, int]:
    """The CPUs next to a device, else those of the first node with some, and the memory there in bytes."""
    usable = [node for node in machine.numa if node.cpus and node.memory_bytes]
    node = next((node for node in usable if node.index == device.node), usable[0] if usable else None)
    return (Executor(node.name, cpus=node.cpus), node.memory_bytes) if node else (Executor("numa0"), 0)


def _unfit(size: int) -> str:
    """Why blocks cannot have this size; empty if they can."""
    return f"blocks of storage must be a multiple of {GRANULE} B, not {size} B" if size % GRANULE else ""


def _too_large(moved: int, device: Storage, memory_bytes: int) -> str:
    """Why calls cannot have this size and depth; empty if they can."""
    if 2 * moved > device.memory_bytes:
        most = format_size(device.memory_bytes)
        return f"requires a larger file than the {most} of {device.name}; give a larger --storage-size"
    if moved > memory_bytes // _SHARE:
        return "requires larger buffers than an eighth of the memory of the NUMA node"
    return ""


def _rows(name: str, does: str, access: Access, random: bool, usual: tuple[int, ...]) -> Iterator[Testcase]:
    """A testcase for each engine."""
    reads = access is Access.READ
    for engine, suffix, by in ((Engine.IO, "", ""), (Engine.IO_URING, "_io_uring", " by io_uring")):
        yield Testcase(
            f"{PREFIX}{name}{suffix}",
            f"{does} a file in the folder of --storage{by}, over block size and calls at a time",
            over(engine, reads, random, usual),
            f"storage {name.replace('_', ' ')}{by}",
            engine,
            access,
            size=usual[0],
            counts="every byte of a block once",
            tier="full",
            swept=partial(over, engine, reads, random, usual),
        )


TESTCASES = (
    *_rows("read", "sequential reads of", Access.READ, False, SEQUENTIAL),
    *_rows("write", "sequential writes of", Access.WRITE, False, SEQUENTIAL),
    *_rows("random_read", "reads in random order of", Access.READ, True, RANDOM),
)
