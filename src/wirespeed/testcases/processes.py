"""Testcases between the processes of a job, one device each: nvbandwidth's, and the phases of sharing.

nvbandwidth's two ``broadcast`` testcases require NVLink multicast objects and are not implemented. Sharing a
buffer is measured with and without over-allocation: the first rank owns it; the last rank opens it and
copies a part of it, or receives that part.

Collectives as testcases: time, algorithm bandwidth and bus bandwidth, out of place and in place.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from ..collectives.operations import BY_NAME, OPERATIONS, CollectiveOp, Setting
from ..hardware.devices import is_host, kind_of
from ..hardware.topology import Machine
from ..measurement import Axis, Measurement, Place, Reduce, Unit
from ..model import (
    Access,
    BufferAge,
    Collective,
    Engine,
    Memory,
    MemoryKind,
    Message,
    MessagePattern,
    Role,
    Sharing,
)
from ..units import GIB, KIB, MIB, format_size
from .base import GPU, HOST, Layout, Pattern, Plan, PlanOptions, Testcase, ends, size_axis
from .patterns import bisect, pairs, pairs_both_ways, ranks, star

#: What titles call one rank and all ranks: where these own GPUs, and where they own host memory.
_GPUS, _RANKS = {"one": "GPU", "all": "All Gpus"}, {"one": "rank", "all": "all ranks"}
_LATER = {"part": "{part}", "engine": "{engine}"}
_PULL, _PUSH = "{one}(row) -> {one}(column)", "{one}(row) <- {one}(column)"
_PAIR = "{one}(row) <-> {one}(column) {part}"
_READ, _WRITE = Access.READ, Access.WRITE


def _row(name: str, title: str, access: Access, engine: Engine, pattern: Pattern, does: str) -> Testcase:
    return Testcase(f"multinode_{name}_{engine}", does, _anywhere(pattern), title, engine, access)


def _anywhere(pattern: Pattern) -> Pattern:
    """Let CPUs copy, and the title say so, where the ranks own host memory."""

    def planned(machine: Machine, case: Testcase, options: PlanOptions) -> Plan:
        of_hosts = bool(machine.ranks) and is_host(machine.ranks[0].device)
        title = case.title.format_map(_LATER | (_RANKS if of_hosts else _GPUS))
        engine = Engine.CPU if of_hosts else case.engine
        plan = pattern(machine, replace(case, engine=engine, title=title), options)
        return replace(plan, tables=tuple(replace(layout, engine=engine) for layout in plan.tables))

    return planned


def _pairs(engine: Engine) -> tuple[Testcase, ...]:
    def row(name: str, arrow: str, access: Access, pattern: Pattern, does: str) -> Testcase:
        title = f"memcpy {{engine}} {arrow} bandwidth"
        return _row(f"device_to_device_{name}", title, access, engine, pattern, does)

    return (
        row("memcpy_read", _PULL, _READ, pairs(ranks), "the row's rank pulls from the column's memory"),
        row("memcpy_write", _PUSH, _WRITE, pairs(ranks), "the row's rank pushes to the column's memory"),
        row("bidirectional_memcpy_read", _PAIR, _READ, pairs_both_ways(ranks),
            "both ranks of a pair pull from each other at once; each rate and the sum"),
        row("bidirectional_memcpy_write", _PAIR, _WRITE, pairs_both_ways(ranks),
            "both ranks of a pair push to each other at once; each rate and the sum"),
    )  # fmt: skip


_STAR = star(ranks, column_executes=False, reduce=Reduce.SUM)
_TOTAL = "total bandwidth"

#: The eleven, with the numbers that they have in nvbandwidth's build for several processes.
TESTCASES = tuple(
    replace(case, index=index)
    for index, case in zip(
        (44, 45, 46, 47, 48, 49, 50, 51, 52, 53, 56),
        (
            *_pairs(Engine.CE),
            *_pairs(Engine.SM),
            _row("device_to_device_all_to_one_write", "memcpy {engine} {all} -> {one}(column) " + _TOTAL,
                 _WRITE, Engine.SM, _STAR, "all ranks push to the column's memory at once; sum of rates"),
            _row("device_to_device_all_from_one_read", "memcpy {engine} {all} <- {one}(column) " + _TOTAL,
                 _READ, Engine.SM, _STAR, "all ranks pull from the column's memory at once; sum of rates"),
            _row("bisect_write", "Bisect benchmarking, simultaneous write {engine} BW", _WRITE, Engine.CE,
                 bisect(ranks), "every rank pushes to the rank half the job away, all at once"),
        ),
        strict=True,
    )
)  # fmt: skip


#: Size of the buffer and of the copied part, in bytes.
BUFFER, COPIED = GIB, MIB
#: Over-allocations, in bytes; 2 MiB is the granularity of virtual-memory management.
OVER = (0, 1, 4 * KIB, 64 * KIB, MIB, 2 * MIB, 2 * MIB + 1)
#: Memory -> mechanism of sharing -> engine that copies or sends.
MECHANISMS = {
    GPU: {"ipc": Engine.CE, "vmm-fd": Engine.CE, "fabric": Engine.CE, "mpi": Engine.MPI, "nccl": Engine.NCCL},
    HOST: {"shm": Engine.CPU, "mpi": Engine.MPI},
}

#: Tables of the over-allocation reproducer.
WARM_UP, WITH, WITHOUT = "warm-up", "with", "without"
_OPENED = "the last rank opens a buffer of the first rank and copies a part of it"
_SENT = "the first rank sends a part of its buffer to the last rank"


def exact(size: int) -> str:
    """A size to the byte: ``2 MiB + 1 B``."""
    whole = size // MIB * MIB
    return f"{format_size(whole)} + {size - whole} B" if whole and size != whole else format_size(size)


def phases(memory: str, mechanism: str, copied: int, over: tuple[int, ...]) -> Pattern:
    """The pattern over-allocations x phases; each sample visits all, so that drift affects all."""

    def pattern(machine: Machine, case: Testcase, options: PlanOptions) -> Plan:
        pair, size = ends(machine, memory), case.buffer_size(machine, options)
        if isinstance(pair, str):
            return Plan.waive(pair)
        works = tuple(Sharing(*pair, mechanism, size, more, min(copied, size)) for more in over)
        names = works[0].phases
        places = tuple(
            Place("", i, j, Reduce.LATENCY, (i * len(names) + j,))
            for i in range(len(works))
            for j in range(len(names))
        )
        rows = Axis("over-allocated", tuple(map(exact, over)))
        layout = Layout("", case.title, rows, Axis("phase", names), Unit.TIME, rows_alike=True)
        return Plan((layout,), (Measurement(works, places),))

    return pattern


def sharing(
    mechanism: str,
    memory: str,
    buffer: int = BUFFER,
    copied: int = COPIED,
    over: tuple[int, ...] = OVER,
    group: str = "sharing",
) -> Testcase:
    """The testcase of a mechanism and a memory; ``group`` begins its name."""
    does = _SENT if mechanism in ("mpi", "nccl") else _OPENED
    return Testcase(
        f"{group}_{mechanism.replace('-', '_')}_{memory}",
        f"{does}: the time of each phase, with and without over-allocation ({mechanism}, {memory} memory)",
        phases(memory, mechanism, copied, over),
        "time of each phase",
        MECHANISMS[memory][mechanism],
        size=buffer,
        counts="",
        unit=Unit.TIME,
        tier="full",
    )


def reproducer(memory: str, iterations: int, repeats: int, copied: int, buffer: int, more: int) -> Testcase:
    """A testcase that sends from new over-allocated buffers, then from exact ones.

    Args:
        memory: ``gpu`` or ``host``.
        iterations, repeats: Number of new buffers, and of messages from each.
        copied, buffer, more: Size of a message, of a buffer, and of the over-allocation, in bytes. A message
            that is larger than an exact buffer is all of it.
    """

    def pattern(machine: Machine, case: Testcase, options: PlanOptions) -> Plan:
        del options
        pair = ends(machine, memory)
        if isinstance(pair, str):
            return Plan.waive(pair)
        single = Message(*pair, Engine.MPI, copied, MessagePattern.EACH, 1, BufferAge.FRESH, copied)
        repeated = replace(single, count=repeats)

        def of(key: str, row: int, sent: Message) -> Measurement:
            places = tuple(Place(key, row, j, Reduce.LATENCY, (j,)) for j in range(sent.count))
            return Measurement((sent,), places)

        sizes = {WITH: buffer + more, WITHOUT: buffer}
        rows = Axis("allocation", tuple(map(str, range(iterations))))
        columns = Axis("message", tuple(map(str, range(repeats))))
        titles = {key: f"a buffer of {size} bytes ({key} overalloc)" for key, size in sizes.items()}
        small = Layout(
            WARM_UP, "a small buffer", Axis("allocation", ("-1",)), Axis("message", ("0",)), Unit.TIME
        )
        return Plan(
            (small, *(Layout(key, title, rows, columns, Unit.TIME) for key, title in titles.items())),
            (
                of(WARM_UP, 0, single),
                *(
                    of(key, i, replace(repeated, bytes=min(copied, size), room=size))
                    for key, size in sizes.items()
                    for i in range(iterations)
                ),
            ),
        )

    counts = f"{format_size(copied)} of a buffer of {format_size(buffer)}"
    return Testcase(
        f"overalloc_{Engine.MPI}_{memory}", _SENT, pattern, "", Engine.MPI, counts=counts, unit=Unit.TIME,
        tier="full",
    )  # fmt: skip


SHARING = tuple(sharing(mechanism, memory) for memory, known in MECHANISMS.items() for mechanism in known)


#: Labels of the rows of each table.
PLACES = ("out-of-place", "in-place")
#: The collectives of the quick tier: those of acceptance tests.
_QUICK = ("all_reduce", "all_gather", "reduce_scatter", "alltoall")
#: Default size of the array on GPUs and in host memory, in bytes.
_GPU_BYTES, _HOST_BYTES = 1 * GIB, 64 * MIB
#: The default size is at most the memory of a GPU over this number.
_MEMORY_DIVISOR = 8


def collective(
    setting: Setting,
    name: str = "",
    *,
    ranks: int = 0,
    lateness: int = 0,
    cpu_time: bool = False,
    among: Sequence[int] | None = None,
) -> Testcase:
    """The testcase of a collective.

    Args:
        setting: The operation with its arguments.
        name: Name of the testcase; empty for that of the operation.
        ranks: Number of ranks; 0 for all ranks or GPUs of the machine.
        lateness: Number of processes whose delay is measured; 0 to measure none.
        cpu_time: Whether times are CPU times until all operations are enqueued.
        among: Indices of the members that take part, whose links the data uses; None for the first ones;
            empty if the data uses other links, or unknown ones.
    """
    operation = setting.operation

    def over(sizes: tuple[int, ...]) -> Pattern:
        def plan(machine: Machine, case: Testcase, options: PlanOptions) -> Plan:
            ends = members(machine)
            count = ranks or len(ends)
            if count < 2 and not ranks:
                return Plan.waive(
                    "requires at least two GPUs or processes: start processes with mpirun or --processes N"
                )
            if not ranks and (reason := operation.why_not(count)):
                return Plan.waive(reason)
            chosen = sizes or (case.buffer_size(machine, options),)
            chosen_ends = ends[:count] if among is None else tuple(ends[i] for i in among)
            ends = _judged(machine, chosen_ends)
            works = [
                tuple(
                    work_of(setting, size, count, ends, in_place=in_place, room=max(chosen))
                    for in_place in (False, True)
                )
                for size in chosen
            ]
            return _plan(setting, works, lateness, cpu_time)

        return plan

    return Testcase(
        name or operation.name,
        f"{operation.does}; bus bandwidth: {operation.why}",
        over(()),
        "",
        Engine.NCCL,
        size=default_size,
        counts="the array once (algorithm bandwidth), the bytes on each link (bus bandwidth)",
        tier="quick" if name in _QUICK else "standard",
        swept=over,
    )


def work_of(
    setting: Setting, size: int, ranks: int, ends: tuple[Memory, ...], *,
    in_place: bool = False, room: int = 0, role: Role = Role.MEASURED,
) -> Collective:  # fmt: skip
    """A call of a collective on an array of a size, in bytes; ``room`` as in ``Collective``."""
    operation, width = setting.operation, setting.type.bytes
    counted = operation.moved(operation.counts(size // width, width, ranks), width, ranks)
    return Collective(
        operation.name, setting.type.name, setting.operator, setting.root, size, counted, ranks, ends,
        in_place, room or size, operation.traffic, role,
    )  # fmt: skip


def _plan(setting: Setting, works: Sequence[tuple[Collective, ...]], lateness: int, cpu_time: bool) -> Plan:
    """The plan: a curve over the size for each quantity, out of place and in place."""
    sizes = tuple(pair[0].bytes for pair in works)
    rows = Axis("buffers", PLACES)
    columns = size_axis("size", sizes)
    layouts = [
        Layout("time", f"{setting}: {'CPU time' if cpu_time else 'time'}", rows, columns, Unit.TIME),
        Layout("algbw", f"{setting}: algorithm bandwidth", rows, columns, Unit.RATE),
        Layout("busbw", f"{setting}: bus bandwidth", rows, columns, Unit.RATE),
    ]
    from ..tables import LATE

    processes = Axis("process", tuple(f"process {i}" for i in range(lateness)))
    for buffers, key in zip(PLACES, LATE, strict=True) if lateness else ():
        title = f"{setting} {buffers}: delay of each process (samples: its times)"
        layouts.append(Layout(key, title, processes, columns, Unit.TIME))
    factor = setting.operation.factor(works[0][0].ranks)
    measurements = [
        Measurement(
            (work,),
            (
                Place("time", row, column, Reduce.LATENCY, (int(cpu_time),)),
                Place("algbw", row, column),
                Place("busbw", row, column, Reduce.BUS, factor=factor),
                *(Place(LATE[row], i, column, Reduce.LATENESS, (i,)) for i in range(lateness)),
            ),
        )
        for column, pair in enumerate(works)
        for row, work in enumerate(pair)
    ]
    return Plan(tuple(layouts), tuple(measurements))


def members(machine: Machine) -> tuple[Memory, ...]:
    """The memory of each rank: one for each process of a job, or for each GPU."""
    if machine.ranks:
        return tuple(Memory(r.device, kind_of(r.device).memories[0], r.index) for r in machine.ranks)
    return tuple(Memory(gpu.name, MemoryKind.DEVICE) for gpu in machine.gpus)


def _judged(machine: Machine, ends: tuple[Memory, ...]) -> tuple[Memory, ...]:
    """The GPUs of a collective if their links determine its limit: those of one host."""
    one_host = len({rank.host for rank in machine.ranks}) <= 1
    return ends if one_host and all(end.kind is MemoryKind.DEVICE for end in ends) else ()


def default_size(machine: Machine) -> int:
    """1 GiB or the largest power of two that fits, in bytes; less in host memory."""
    if not machine.gpus:
        return _HOST_BYTES
    room = min(gpu.memory_bytes for gpu in machine.gpus) // _MEMORY_DIVISOR
    return min(_GPU_BYTES, 1 << max(20, room.bit_length() - 1))


def names(settings: Sequence[Setting]) -> list[str]:
    """Unique names of testcases for settings: the operation, and arguments that differ."""
    if len(settings) == 1:
        return [settings[0].operation.name]
    return [
        "_".join(filter(None, (s.operation.name, s.type.name, s.operator, f"root{s.root}" * (s.root >= 0))))
        for s in settings
    ]


def usual(operation: CollectiveOp) -> Setting:
    """A collective of floats, with the sum and root 0."""
    operator = "sum" if operation.operator is None else ""
    return Setting(operation, BY_NAME["float"], operator, 0 if operation.rooted else -1)


#: All eleven collectives.
COLLECTIVES = tuple(collective(usual(operation), operation.name) for operation in OPERATIONS.values())
