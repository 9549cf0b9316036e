"""Testcases of block lists: which way to move the scattered blocks of a KV cache. Each method has a table of
block sizes and numbers of blocks for each path. A time includes the submission, because an application waits
for it too. Lists that move both ways, or between the host and all GPUs, start together; others run while
their GPU computes.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import cached_property, partial

from ...errors import UsageError
from ...hardware.topology import Machine
from ...measurement import Axis, Measurement, Place, Reduce, Unit
from ...model import (
    BlockList,
    Engine,
    Executor,
    Memory,
    MemoryKind,
    Method,
    Operation,
    PoolLayout,
    Role,
    Transfer,
)
from ...testcases.base import Layout, Pattern, Plan, PlanOptions, Testcase, WaivedCell, count_axis, size_axis
from ...testcases.patterns import NO_CPU, NO_GPU, ONE_GPU, nodes
from ...units import GIB, KIB, MIB, format_size

#: Beginning of the names of these testcases.
PREFIX = "blocks_"
#: Directions of block lists, as in the names of the testcases.
DIRECTIONS = (
    "host_to_device", "device_to_host", "device_to_device", "host", "both_ways", "host_to_all", "all_to_host",
)  # fmt: skip
#: The direction that needs no GPU, and those that need several, with those of one GPU.
_WITHIN_HOST, _ALONE = "host", {"host_to_all": "host_to_device", "all_to_host": "device_to_host"}
#: Block sizes of a map, in bytes, and numbers of blocks. Around 28 KiB the batch call of a driver may change.
SIZES = (*(size * KIB for size in (1, 4, 8, 16, 24, 28, 64, 256)), MIB, 4 * MIB)
COUNTS = (16, 64, 256, 1024, 4096, 16384, 65536)
#: Largest number of bytes that one list moves, and the part of a memory that its pools may take.
MOST_BYTES, _SHARE = GIB, 8
#: The same of maps whose numbers of blocks were not chosen: long enough to be judged on links of 50 GB/s
#: (128 MiB, 1 ms), and a quarter of the time of larger lists, which have the same rates.
_MAP_BYTES = 256 * MIB
#: Block sizes are multiples of this: a cache line of CPUs, whole elements of the kernels of GPUs.
GRANULE = 64
#: Arrays of the computation of a GPU that runs next to lists, c = a + s b: size in bytes, and number. Every
#: launch fills the GPU, and is short compared with a step of a model.
COMPUTING_BYTES, _COMPUTING_ARRAYS = 256 * MIB, 3
#: Methods that are measured on the devices whose map is that of another one.
_COMPARED = (Method.BATCH, Method.KERNEL)
#: Key of the table of the computations without lists.
COMPUTATION = "computation"
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
        others: Paths on which lists move at the same time: the opposite one, or those of all other GPUs.
        name: Source and destination, where these are not of this path only.
    """

    source: Memory
    destination: Memory
    executor: Callable[[Method], Executor]
    methods: dict[Method, str]
    most: int
    others: tuple[BlockPath, ...] = ()
    name: str = ""

    def __str__(self) -> str:
        return self.name or f"{self.source}->{self.destination}"

    @property
    def is_submitted(self) -> bool:
        """Whether calls return before the bytes are there: CPUs copy while they are called."""
        return MemoryKind.PAGEABLE not in (self.source.kind, self.destination.kind)

    def transfers(self, scattered: BlockList) -> tuple[Transfer, ...]:
        """The transfer of a list, and those of the lists that move at the same time."""
        method = scattered.method
        own = Transfer(
            self.source, self.destination, self.executor(method),
            _ENGINES[method] if self.is_submitted else Engine.CPU, scattered.block * scattered.blocks,
            scattered=scattered,
        )  # fmt: skip
        return (own, *itertools.chain.from_iterable(path.transfers(scattered) for path in self.others))

    def computes(self, machine: Machine) -> Transfer | None:
        """What the GPU of the path computes next to lists; None for CPUs and for several GPUs."""
        gpus = {path.executor(Method.KERNEL).device for path in (self, *self.others)}
        return _computation(machine, *gpus) if self.is_submitted and len(gpus) == 1 else None


class ListValue(StrEnum):
    """What the values of a table of lists are."""

    RATE = "rate"
    SUBMISSION = "submission"  #: time until the last call has returned
    COMPUTATION = "computation"  #: rate of the computation next to the lists


@dataclass(frozen=True)
class ListTable:
    """A table of lists: block sizes and numbers of blocks on a path by a method.

    Attributes:
        path, method: The path as a text, and the method.
        layout: Which block goes where.
        computing: Whether the GPU computes meanwhile.
        shown: What its values are.
    """

    path: str
    method: Method
    layout: PoolLayout = PoolLayout.RANDOM
    computing: bool = False
    shown: ListValue = ListValue.RATE

    @cached_property
    def key(self) -> str:
        """The key of the table: ``numa0->gpu0 kernel``, ``numa0->gpu0 kernel strided computing``."""
        return f"{self.path} {self.method}{''.join(f' {word}' for word in self._words)}"

    @property
    def title(self) -> str:
        """The title of the table."""
        texts = {COMPUTING: "while the GPU computes", ListValue.COMPUTATION: "rate of the computation"}
        return f"blocks {self.path} by {self.method}" + "".join(
            f", {texts.get(word, word)}" for word in self._words
        )

    @property
    def _words(self) -> tuple[str, ...]:
        return (
            *((self.layout,) if self.layout is not PoolLayout.RANDOM else ()),
            *((COMPUTING,) if self.computing else ()),
            *((self.shown,) if self.shown is not ListValue.RATE else ()),
        )


#: Word in the keys of tables of lists that move while the GPU computes.
COMPUTING = "computing"


def of_key(testcase: str, key: str) -> ListTable | None:
    """The table of lists with a key; None if it is none of these testcases."""
    path, _, rest = key.partition(" ")
    method, *words = rest.split(" ")
    if not testcase.startswith(PREFIX) or not path or method not in set(Method):
        return None
    shown = words[-1] if words and words[-1] in set(ListValue) else ListValue.RATE
    layout = words[0] if words and words[0] in set(PoolLayout) else PoolLayout.RANDOM
    table = ListTable(path, Method(method), PoolLayout(layout), COMPUTING in words, ListValue(shown))
    return table if table.key == key else None


def kind_of(path: str, machine: Machine) -> tuple[str, ...]:
    """The models at both ends of a path, and whether the ends are one: alike devices have one map."""
    models = {gpu.name: gpu.model for gpu in machine.gpus}
    models |= {node.name: f"host memory, {bool(node.cores)}" for node in machine.numa}
    ends = path.replace("<->", "->").split("->")
    return (*(models.get(end, end) for end in ends), str(ends[0] == ends[-1]))


def _places(
    sizes: Sequence[int], counts: Sequence[int], most: int, *, few: bool
) -> Iterator[tuple[int, int]]:
    """Yield the rows and columns that are measured on a path.

    ``few``: on a device like one that has the whole map, small lists, lists of the middle, and the largest
    list, which is judged.
    """
    middle = len(counts) // 2
    fits = [j for j, blocks in enumerate(counts) if sizes[-1] * blocks <= most]
    chosen = {(0, middle), (len(sizes) // 2, middle), (len(sizes) - 1, max(fits, default=0))}
    for place in itertools.product(range(len(sizes)), range(len(counts))):
        if not few or place in chosen:
            yield place


#: Returns the paths of a direction.
Paths = Callable[[Machine], Iterator[BlockPath]]


def _most(machine: Machine, *memories: Memory, lists: int = 1) -> int:
    """The largest list whose pools, and those of as many lists, fit into the memories, in bytes."""
    sizes = {device.name: device.memory_bytes for device in (*machine.gpus, *machine.numa)}
    known = [size for memory in memories if (size := sizes.get(memory.device, 0))]
    return min([MOST_BYTES, *(size // _SHARE // lists for size in known)])


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


def with_host(*, to: bool) -> Paths:
    """The paths between each GPU and the host memory nearest to it."""
    return _of_gpus(to=to, host=True)


def _both_ways(machine: Machine) -> Iterator[BlockPath]:
    """The paths between each GPU and the nearest host memory, with the path back."""
    backs = _of_gpus(to=False, host=True)(machine)
    for there, back in zip(_of_gpus(to=True, host=True)(machine), backs, strict=True):
        yield replace(there, others=(back,), name=f"{there.source}<->{there.destination}")


def _all_gpus(*, to: bool) -> Paths:
    """The path between host memory and all GPUs at once, each with the memory nearest to it."""

    def paths(machine: Machine) -> Iterator[BlockPath]:
        every = list(_of_gpus(to=to, host=True)(machine))
        if len(every) < 2:
            return
        hosts = [path.source if to else path.destination for path in every]
        most = min(_most(machine, *hosts, lists=len(every)), *(path.most for path in every))
        lacking = {
            method: next(filter(None, (path.methods[method] for path in every)), "") for method in Method
        }
        name = "host->all" if to else "all->host"
        yield replace(every[0], methods=lacking, most=most, others=tuple(every[1:]), name=name)

    return paths


def _computation(machine: Machine, gpu: str) -> Transfer:
    """What a GPU computes in its own memory while lists move, on all of its multiprocessors."""
    own = Memory(gpu, MemoryKind.DEVICE)
    size = min(COMPUTING_BYTES, _most(machine, own) // _COMPUTING_ARRAYS // GRANULE * GRANULE)
    return Transfer(own, own, Executor(gpu), Engine.SM, size, Role.LOAD, Operation.TRIAD, _COMPUTING_ARRAYS)


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

    The first GPU of each model, and the first NUMA node, are measured at every point and by every method,
    others like it at a few points by two methods. If both sizes and numbers of blocks are chosen, all are
    measured at every point.

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
        rows = size_axis("block size", sizes)
        columns = count_axis("blocks", counts)
        layouts, measurements, waived = list[Layout](), list[Measurement](), list[WaivedCell]()
        paths, known = list(paths_of(machine)), set[tuple[str, ...]]()
        works = [path.computes(machine) if options.while_computing else None for path in paths]
        for path, work in zip(paths, works, strict=True):
            most = path.most if options.block_counts else min(path.most, _MAP_BYTES)
            few = kind_of(str(path), machine) in known and not (chosen and options.block_counts)
            known.add(kind_of(str(path), machine))
            places = list(_places(sizes, counts, most, few=few))
            for method, lacking in path.methods.items():
                if few and method not in _COMPARED:
                    continue
                for load in (None, *filter(None, (work,))):
                    table = ListTable(str(path), method, options.block_layout, load is not None)
                    tables = [replace(table, shown=shown) for shown in _shown(path, load)]
                    layouts += [
                        Layout(t.key, t.title, rows, columns, _UNITS.get(t.shown, Unit.RATE)) for t in tables
                    ]
                    for i, j in places:
                        block, blocks = sizes[i], counts[j]
                        if reason := lacking or _too_large(block * blocks, most):
                            waived += [WaivedCell(t.key, i, j, reason) for t in tables]
                            continue
                        lists = path.transfers(BlockList(method, block, blocks, options.block_layout))
                        every = tuple(range(len(lists)))
                        rate = Reduce.WALL if path.others else Reduce.FIRST
                        how = {
                            ListValue.RATE: (rate, every),
                            ListValue.SUBMISSION: (Reduce.SUBMISSION, every[:1]),
                            ListValue.COMPUTATION: (Reduce.FIRST, (len(lists),)),
                        }  # fmt: skip
                        shown = tuple(Place(t.key, i, j, *how[t.shown]) for t in tables)
                        measurements.append(Measurement((*lists, *((load,) if load else ())), shown))
        if not layouts:
            return Plan.waive(none)
        if any(works):
            layout, alone = _alone(dict.fromkeys(filter(None, works)))
            layouts.append(layout)
            measurements += alone
        return Plan(tuple(layouts), tuple(measurements), tuple(waived))

    return pattern


#: Units of tables that have no rates.
_UNITS = {ListValue.SUBMISSION: Unit.TIME}


def _shown(path: BlockPath, load: Transfer | None) -> Iterator[ListValue]:
    """Yield what is shown of the lists of a path."""
    yield ListValue.RATE
    if path.is_submitted:
        yield ListValue.SUBMISSION
    if load is not None:
        yield ListValue.COMPUTATION


def _alone(works: Iterable[Transfer]) -> tuple[Layout, list[Measurement]]:
    """The table of the computations without lists, and its Measurements."""
    measured = [replace(work, role=Role.MEASURED) for work in works]
    names = tuple(work.executor.device for work in measured)
    measurements = [Measurement((work,), (Place(COMPUTATION, i, 0),)) for i, work in enumerate(measured)]
    title = "computation without block lists (triad)"
    return Layout(COMPUTATION, title, Axis("GPU", names), Axis("", ("alone",)), Unit.RATE), measurements


def _unfit(size: int) -> str:
    """Why blocks cannot have this size; empty if they can."""
    return f"the size of a block must be a multiple of {GRANULE} B, not {size} B" if size % GRANULE else ""


def _too_large(size: int, most: int) -> str:
    """Why a list cannot have this size; empty if it can."""
    return f"{format_size(size)} is too much: a list holds at most {format_size(most)}" if size > most else ""


def of_directions(
    machine: Machine, directions: Iterable[str] = (), *, computing: bool = False
) -> list[Testcase]:
    """The testcases of directions; default: between host and GPUs, without a GPU within the host.

    Args:
        machine: The machine.
        directions: Some of ``DIRECTIONS``.
        computing: Whether the lists of one GPU are to be measured next to a computation, too.

    Raises:
        UsageError: If there is no such direction, it requires a GPU that the machine has not, or no list of
            the directions can move next to a computation.
    """
    wanted = tuple(directions) or (DIRECTIONS[:2] if machine.gpus else (_WITHIN_HOST,))
    for direction in wanted:
        if direction not in DIRECTIONS:
            raise UsageError(f"there is no direction {direction!r}; choose from {', '.join(DIRECTIONS)}")
        if not machine.gpus and direction != _WITHIN_HOST:
            raise UsageError(f"{direction} requires a GPU, and no GPU was found; choose {_WITHIN_HOST}")
        if len(machine.gpus) == 1 and direction in _ALONE:
            raise UsageError(f"{direction} {ONE_GPU}, and this machine has one; choose {_ALONE[direction]}")
    if computing and {_WITHIN_HOST, *_ALONE}.issuperset(wanted):
        raise UsageError(
            "only lists of one GPU move while it computes; choose a direction such as host_to_device"
        )
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


#: In the order of a map: host to GPU, GPU to host, GPU to GPU, host to host, both ways, all GPUs at once.
TESTCASES = (
    _row("host_to_device", "from host memory to each GPU", _of_gpus(to=True, host=True), Engine.CE, NO_GPU),
    _row("device_to_host", "from each GPU to host memory", _of_gpus(to=False, host=True), Engine.CE, NO_GPU),
    _row("device_to_device", "within each GPU and to its first peer", _of_gpus(to=False, host=False),
         Engine.CE, NO_GPU),
    _row("host", "within the memory of each NUMA node", _of_nodes, Engine.CPU, NO_CPU),
    _row("both_ways", "between host memory and each GPU, both ways at once", _both_ways, Engine.CE, NO_GPU),
    _row("host_to_all", "from host memory to all GPUs at once", _all_gpus(to=True), Engine.CE, ONE_GPU),
    _row("all_to_host", "from all GPUs to host memory at once", _all_gpus(to=False), Engine.CE, ONE_GPU),
)  # fmt: skip
