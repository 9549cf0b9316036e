"""Testcases of storage: blocks between a file in a named folder and memory, over size and depth. Host memory
is measured with threads that make one call at a time and with the queues of an io_uring; GPU memory with
threads through host memory, or by cuFile.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from itertools import product

from ...hardware.devices import STORAGE, Storage
from ...hardware.topology import Machine
from ...measurement import Axis, Measurement, Place, Unit
from ...model import Access, Engine, Executor, FileCalls, Memory, MemoryKind, Transfer
from ...options import RunOptions
from ...testcases.base import Layout, Pattern, Plan, PlanOptions, Testcase, WaivedCell
from ...testcases.patterns import NO_CPU, NO_GPU
from ...units import KIB, MIB, format_size

#: Beginning of the names of these testcases.
PREFIX = "storage_"
NO_STORAGE = "no folder is named: add --storage DIR"
#: Default block sizes in bytes, and numbers of calls at a time.
SEQUENTIAL, RANDOM, TO_GPU, DEPTHS = (MIB, 4 * MIB, 16 * MIB), (4 * KIB,), (4 * MIB,), (1, 4, 16, 64)
#: Block sizes are multiples of this: a page, which is at least a block of any device.
GRANULE = 4 * KIB
#: The part of the memory of a NUMA node that buffers may take.
_SHARE = 8


def also_asked(machine: Machine, is_named: bool) -> tuple[str, ...]:
    """The prefixes of testcases that a map of blocks measures too.

    They are prefixes so that storage testcases that cannot run on this machine cause no warning.

    Args:
        machine: The machine.
        is_named: Whether the user named a folder of the storage.
    """
    return (PREFIX,) if is_named or STORAGE.name in machine.others else ()


@dataclass(frozen=True)
class Way:
    """What the calls of a testcase do.

    Attributes:
        reads: Whether they read the file.
        random: Whether the blocks are in random order.
        engine: What makes the calls.
        gpus: Whether the other end is the memory of each GPU instead of the host's.
        usual: Default block sizes, in bytes.
    """

    reads: bool
    random: bool
    engine: Engine
    gpus: bool
    usual: tuple[int, ...]

    def others(self, machine: Machine, executor: Executor) -> list[Memory]:
        """The other ends of the paths of a storage device."""
        if self.gpus:
            return [Memory(gpu.name, MemoryKind.DEVICE) for gpu in machine.gpus]
        return [Memory(executor.device, MemoryKind.PAGEABLE)]

    def transfer(self, device: str, other: Memory, executor: Executor, block: int, depth: int) -> Transfer:
        """The transfer of one block for each call at a time."""
        file = Memory(device, MemoryKind.FILE)
        ends = (file, other) if self.reads else (other, file)
        calls = FileCalls(block, depth, self.random)
        return Transfer(*ends, executor, self.engine, block * depth, calls=calls)


def over(way: Way, chosen: tuple[int, ...] = ()) -> Pattern:
    """The pattern of a table of block sizes and depths for each storage device, and each GPU."""

    def pattern(machine: Machine, case: Testcase, options: PlanOptions) -> Plan:
        devices: tuple[Storage, ...] = machine.others.get(STORAGE.name, ())
        if not devices:
            return Plan.waive(NO_STORAGE)
        if way.gpus and not machine.gpus:
            return Plan.waive(NO_GPU)
        sizes = chosen or ((options.size,) if options.size else way.usual)
        rows = Axis("block size", tuple(map(format_size, sizes)), tuple(map(float, sizes)), "B")
        columns = Axis("calls at a time", tuple(map(str, DEPTHS)), tuple(map(float, DEPTHS)))
        layouts, measurements, waived = list[Layout](), list[Measurement](), list[WaivedCell]()
        for device in devices:
            executor, memory_bytes = _executor_of(machine, device)
            cached = "" if device.past_cache else ", page cache"
            for other in way.others(machine, executor):
                path = f"{device.name}->{other}" if way.reads else f"{other}->{device.name}"
                layouts.append(Layout(path, f"{case.title} {path}{cached}", rows, columns, Unit.RATE))
                for (i, block), (j, depth) in product(enumerate(sizes), enumerate(DEPTHS)):
                    reason = "" if executor.cpus else NO_CPU
                    buffers = block * depth * (2 if way.gpus and way.engine is Engine.IO else 1)
                    reason = (
                        reason or _unfit(block) or _too_large(block * depth, buffers, device, memory_bytes)
                    )
                    if reason:
                        waived.append(WaivedCell(path, i, j, reason))
                        continue
                    transfer = way.transfer(device.name, other, executor, block, depth)
                    measurements.append(Measurement((transfer,), (Place(path, i, j),)))
        return Plan(tuple(layouts), tuple(measurements), tuple(waived))

    return pattern


def _executor_of(machine: Machine, device: Storage) -> tuple[Executor, int]:
    """The CPUs that read and write a device, and the size of the memory there in bytes.

    Those next to the device, else those of the first node with some.
    """
    usable = [node for node in machine.numa if node.cpus and node.memory_bytes]
    near = [node for node in usable if node.index == device.node] or usable
    return (
        (Executor(near[0].name, cpus=near[0].cpus), near[0].memory_bytes) if near else (Executor("numa0"), 0)
    )


def _unfit(size: int) -> str:
    """Why blocks cannot have this size; empty if they can."""
    return f"blocks of storage must be a multiple of {GRANULE} B, not {size} B" if size % GRANULE else ""


def _too_large(moved: int, buffers: int, device: Storage, memory_bytes: int) -> str:
    """Why calls cannot have this size and depth, and buffers of these bytes; empty if they can."""
    if 2 * moved > device.memory_bytes:
        most = format_size(device.memory_bytes)
        return f"requires a larger file than the {most} of {device.name}; give a larger --storage-size"
    if buffers > memory_bytes // _SHARE:
        return "requires larger buffers than an eighth of the memory of the NUMA node"
    return ""


def _row(name: str, does: str, title: str, way: Way) -> Testcase:
    return Testcase(
        f"{PREFIX}{name}",
        f"{does}, over block size and calls at a time",
        over(way),
        f"storage {title}",
        way.engine,
        Access.READ if way.reads else Access.WRITE,
        size=way.usual[0],
        counts="every byte of a block once",
        tier="full",
        swept=partial(over, way),
    )


def _rows(name: str, does: str, reads: bool, random: bool, usual: tuple[int, ...]) -> Iterator[Testcase]:
    """A testcase for each engine."""
    for engine, suffix, by in ((Engine.IO, "", ""), (Engine.IO_URING, "_io_uring", " by io_uring")):
        way = Way(reads, random, engine, False, usual)
        title = f"{name.replace('_', ' ')}{by}"
        yield _row(f"{name}{suffix}", f"{does} a file in the folder of --storage{by}", title, way)


def _rows_of_gpus(name: str, does: str, title: str, reads: bool) -> Iterator[Testcase]:
    """A testcase for each engine."""
    for engine, suffix, by in (
        (Engine.IO, "", " through host memory"),
        (Engine.CUFILE, "_cufile", " by cuFile"),
    ):
        way = Way(reads, False, engine, True, TO_GPU)
        ends = f"{title}{by}" if suffix else title
        yield _row(f"{name}{suffix}", does.format(by=by), ends, way)


TESTCASES = (
    *_rows("read", "sequential reads of", True, False, SEQUENTIAL),
    *_rows("write", "sequential writes of", False, False, SEQUENTIAL),
    *_rows("random_read", "reads in random order of", True, True, RANDOM),
    *_rows_of_gpus("to_device", "a file in the folder of --storage{by} to each GPU", "to GPU", True),
    *_rows_of_gpus("from_device", "each GPU{by} to a file in the folder of --storage", "from GPU", False),
)


def is_named(case: Testcase, options: RunOptions) -> bool:
    """Whether the options name the folder that a testcase of storage measures."""
    return options.storage is not None and case in TESTCASES
