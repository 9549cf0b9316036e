"""Collectives as testcases: time, algorithm bandwidth and bus bandwidth over the size, out of place and in
place.
"""

from __future__ import annotations

from collections.abc import Sequence

from ..collectives.data_types import BY_NAME
from ..collectives.operations import OPERATIONS, CollectiveOp, Setting
from ..hardware.devices import kind_of
from ..hardware.topology import Machine
from ..measurement import Axis, Measurement, Place, Reduce, Unit
from ..model import Collective, Engine, Memory, MemoryKind
from ..units import GIB, MIB
from .base import Layout, Pattern, Plan, PlanOptions, Testcase, size_axis

#: Labels of the rows of each table.
PLACES = ("out-of-place", "in-place")
#: The collectives of the quick tier, which acceptance tests use.
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
        name: Name of the testcase; empty for the name of the operation.
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
    in_place: bool = False, room: int = 0,
) -> Collective:  # fmt: skip
    """A call of a collective on an array of a size, in bytes; ``room`` as in ``Collective``."""
    operation, width = setting.operation, setting.type.bytes
    counted = operation.moved(operation.counts(size // width, width, ranks), width, ranks)
    return Collective(
        operation.name, setting.type.name, setting.operator, setting.root, size, counted, ranks, ends,
        in_place, room or size, operation.traffic,
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
    """The GPUs of a collective if their links determine its limit: they are in one host."""
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
