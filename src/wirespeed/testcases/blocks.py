"""Testcases of block lists: which way to move the scattered blocks of a KV cache.

Each method has a table of block sizes and numbers of blocks for each path. The time of a value is from the
first call to the last byte, with the submission, because an application waits for all of it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import partial

from ..errors import UsageError
from ..hardware.topology import Machine
from ..measurement import Axis, Measurement, Place, Reduce, Unit
from ..model import BlockList, Engine, Executor, Memory, MemoryKind, Method, Transfer
from ..units import GIB, KIB, MIB, format_size
from .base import Layout, Pattern, Plan, PlanOptions, Testcase, WaivedCell
from .patterns import NO_CPU, NO_GPU, nodes

#: Beginning of the names of these testcases.
PREFIX = "blocks_"
#: Directions of block lists, as in the names of the testcases.
DIRECTIONS = ("host_to_device", "device_to_host", "device_to_device", "host")
#: Block sizes of a map, in bytes, and numbers of blocks. Around 28 KiB the batch call of a driver may change.
SIZES = (*(size * KIB for size in (1, 4, 8, 16, 24, 28, 64, 256)), MIB, 4 * MIB)
COUNTS = (16, 64, 256, 1024, 4096, 16384, 65536)
#: Largest number of bytes that one list moves, and the part of a memory that its pools may take.
MOST_BYTES, _SHARE = GIB, 8
#: Block sizes are multiples of this: a cache line of CPUs, whole elements of the kernels of GPUs.
GRANULE = 64
#: Method -> engine that moves the bytes of a GPU.
_ENGINES = {
    Method.LOOP: Engine.CE,
    Method.BATCH: Engine.CE,
    Method.KERNEL: Engine.SM,
    Method.KERNEL_BULK: Engine.SM_BULK,
    Method.STAGED: Engine.CE,
}


@dataclass(frozen=True)
class BlockPath:
    """A path of block lists.

    Attributes:
        source, destination: Where the pools are.
        executor: What moves the blocks by a method.
        methods: The methods, each with the reason why it is not possible here, or an empty text.
        most: Largest number of bytes of a list.
    """

    source: Memory
    destination: Memory
    executor: Callable[[Method], Executor]
    methods: dict[Method, str]
    most: int

    def __str__(self) -> str:
        return f"{self.source}->{self.destination}"

    @property
    def is_submitted(self) -> bool:
        """Whether calls return before the bytes are there: CPUs copy while they are called."""
        return MemoryKind.PAGEABLE not in (self.source.kind, self.destination.kind)

    def transfer(self, method: Method, block: int, blocks: int) -> Transfer:
        """The transfer of a list."""
        return Transfer(
            self.source, self.destination, self.executor(method),
            _ENGINES[method] if self.is_submitted else Engine.CPU, block * blocks,
            scattered=BlockList(method, block, blocks),
        )  # fmt: skip


def key_of(path: str, method: Method) -> str:
    """The key of the table of a path and a method."""
    return f"{path} {method}"


def submission_key(key: str) -> str:
    """The key of the table of submissions that belongs to one of rates."""
    return f"{key} {Reduce.SUBMISSION}"


def of_key(testcase: str, key: str) -> tuple[str, Method] | None:
    """The path and the method of a table; None if it is not one of these testcases."""
    path, _, method = key.rpartition(" ")
    known = testcase.startswith(PREFIX) and path and method in set(Method)
    return (path, Method(method)) if known else None


#: Returns the paths of a direction.
Paths = Callable[[Machine], Iterator[BlockPath]]


def _most(machine: Machine, *memories: Memory) -> int:
    """The largest list whose pools fit into the memories, in bytes."""
    sizes = {device.name: device.memory_bytes for device in (*machine.gpus, *machine.numa)}
    known = [size for memory in memories if (size := sizes.get(memory.device, 0))]
    return min([MOST_BYTES, *(size // _SHARE for size in known)])


def _gpu(name: str, method: Method) -> Executor:
    del method
    return Executor(name)


def _of_gpus(*, to: bool, host: bool) -> Paths:
    """The paths between each GPU and the nearest host memory, or within each GPU and to its first peer."""

    def paths(machine: Machine) -> Iterator[BlockPath]:
        for gpu in machine.gpus:
            own = Memory(gpu.name, MemoryKind.DEVICE)
            methods = dict.fromkeys(Method, "")
            if not gpu.has_bulk_copy:
                reason = f"{gpu.name} has no bulk copies (compute capability 9.0 or later)"
                methods[Method.KERNEL_BULK] = reason
            if host:
                others = [Memory(f"numa{gpu.numa}", MemoryKind.PINNED)]
            else:
                del methods[Method.STAGED]  # there is nothing that one contiguous copy would save
                others = [own, *(Memory(peer, MemoryKind.DEVICE) for peer in gpu.peers[:1])]
            for other in others:
                ends = (other, own) if to else (own, other)
                yield BlockPath(*ends, partial(_gpu, gpu.name), methods, _most(machine, *ends))

    return paths


def _of_nodes(machine: Machine) -> Iterator[BlockPath]:
    """The paths within the memory of each NUMA node: by one core, or by all."""
    for party in nodes(machine).parties:
        cpus = party.executor.cpus

        def executor(method: Method, party: Executor = party.executor) -> Executor:
            some = party.cpus[:1] if method is Method.LOOP else party.cpus
            return Executor(party.device, cpus=some)

        methods = dict.fromkeys((Method.LOOP, Method.KERNEL), "" if cpus else NO_CPU)
        yield BlockPath(party.memory, party.memory, executor, methods, _most(machine, party.memory))


def over(paths_of: Paths, none: str, chosen: tuple[int, ...] = ()) -> Pattern:
    """The pattern of a table of block sizes and numbers for each path and method.

    Raises:
        UsageError: If a block size is not a multiple of ``GRANULE``.
    """
    if wrong := next(filter(None, map(_unfit, chosen)), ""):
        raise UsageError(wrong)

    def pattern(machine: Machine, case: Testcase, options: PlanOptions) -> Plan:
        del case
        if wrong := _unfit(options.size or GRANULE):
            return Plan.waive(wrong)
        sizes = chosen or ((options.size,) if options.size else SIZES)
        counts = options.block_counts or COUNTS
        rows = Axis("block size", tuple(map(format_size, sizes)), tuple(map(float, sizes)), "B")
        columns = Axis("blocks", tuple(map(str, counts)), tuple(map(float, counts)))
        layouts, measurements, waived = list[Layout](), list[Measurement](), list[WaivedCell]()
        for path in paths_of(machine):
            for method, lacking in path.methods.items():
                key = key_of(str(path), method)
                title, submitted = f"blocks {path} by {method}", submission_key(key)
                layouts.append(Layout(key, title, rows, columns, Unit.RATE))
                if path.is_submitted:
                    layouts.append(Layout(submitted, f"{title}, submission", rows, columns, Unit.TIME))
                for i, block in enumerate(sizes):
                    for j, blocks in enumerate(counts):
                        if reason := lacking or _too_large(block * blocks, path.most):
                            keys = (key, submitted) if path.is_submitted else (key,)
                            waived += [WaivedCell(table, i, j, reason) for table in keys]
                            continue
                        transfer = path.transfer(method, block, blocks)
                        places = [Place(key, i, j)]
                        if path.is_submitted:
                            places.append(Place(submitted, i, j, Reduce.SUBMISSION))
                        measurements.append(Measurement((transfer,), tuple(places)))
        if not layouts:
            return Plan.waive(none)
        return Plan(tuple(layouts), tuple(measurements), tuple(waived))

    return pattern


def _unfit(size: int) -> str:
    """Why blocks cannot have this size; empty if they can."""
    return f"the size of a block must be a multiple of {GRANULE} B, not {size} B" if size % GRANULE else ""


def _too_large(size: int, most: int) -> str:
    """Why a list cannot have this size; empty if it can."""
    return f"{format_size(size)} is too much: a list moves {format_size(most)} at most" if size > most else ""


def of_directions(machine: Machine, directions: Iterable[str] = ()) -> list[Testcase]:
    """The testcases of directions; default: between host and GPUs, without a GPU within the host.

    Raises:
        UsageError: If there is no such direction, or it requires a GPU that the machine has not.
    """
    wanted = tuple(directions) or (DIRECTIONS[:2] if machine.gpus else DIRECTIONS[3:])
    for direction in wanted:
        if direction not in DIRECTIONS:
            raise UsageError(f"there is no direction {direction!r}; choose from {', '.join(DIRECTIONS)}")
        if not machine.gpus and direction != DIRECTIONS[3]:
            raise UsageError(f"{direction} requires a GPU, and no GPU was found; choose {DIRECTIONS[3]}")
    return [case for case in TESTCASES if case.name.removeprefix(PREFIX) in wanted]


def _row(name: str, does: str, paths: Paths, engine: Engine, none: str) -> Testcase:
    return Testcase(
        f"{PREFIX}{name}",
        f"scattered blocks {does}, by each method, over block size and number; with the submission",
        over(paths, none),
        "blocks",
        engine,
        size=MIB,
        tier="full",
        swept=partial(over, paths, none),
    )


#: In the order of a map: host to GPU, GPU to host, GPU to GPU, host to host.
TESTCASES = (
    _row("host_to_device", "from host memory to each GPU", _of_gpus(to=True, host=True), Engine.CE, NO_GPU),
    _row("device_to_host", "from each GPU to host memory", _of_gpus(to=False, host=True), Engine.CE, NO_GPU),
    _row("device_to_device", "within each GPU and to its first peer", _of_gpus(to=False, host=False),
         Engine.CE, NO_GPU),
    _row("host", "within the memory of each NUMA node", _of_nodes, Engine.CPU, NO_CPU),
)  # fmt: skip
