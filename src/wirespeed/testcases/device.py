"""Testcases between a host and its GPUs, among the GPUs of one process, and within a GPU, with the names,
order and definitions of nvbandwidth; the receiver executes all reads. Every other kind of device has
testcases of its memory, and of copies with the host.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from itertools import accumulate, chain

from ..hardware.devices import DeviceKind, added
from ..hardware.topology import Machine
from ..measurement import Axis, Measurement, Place, Reduce, Unit
from ..model import Access, Engine, Executor, Memory, MemoryKind, Operation, Role, Transfer
from ..units import KIB, MIB
from .base import DEFAULT_SIZE, Cells, Layout, Pattern, Plan, PlanOptions, Testcase, count_axis, single
from .host import powers, stream
from .patterns import (
    Parties,
    attached,
    bulk,
    chase,
    chasing,
    copy,
    gpus,
    of_parties,
    pairs,
    pairs_both_ways,
    signals,
    star,
    within,
)

HOST_ROW = Axis("CPU", ("host",))
#: Bytes through which a GPU follows pointers.
CHASE_SIZE = 2 * MIB
#: Bytes with the flags of one GPU for another.
SIGNAL_SIZE = 4 * KIB


def _nearest(machine: Machine, column: int, kind: MemoryKind = MemoryKind.PINNED) -> Memory:
    return Memory(f"numa{machine.gpus[column].numa}", kind)


def host(*, to_device: bool, opposite: bool = False, others: bool = False) -> Pattern:
    """1 x GPUs: copies between each GPU and the host memory nearest to it; the GPU executes.

    Args:
        to_device: Whether the copies go to the GPU.
        opposite: Whether the other direction runs too: on copy engines as load with buffers of twice the
            size, on SMs in the same kernel, whose warps alternate.
        others: Whether all other GPUs do the same as load. In the quick tier one Measurement has the rates of
            all GPUs, each of which is the load of the others.
    """

    @of_parties(gpus, 1)
    def pattern(machine: Machine, case: Testcase, options: PlanOptions, group: Parties, size: int) -> Plan:
        split = opposite and case.engine is not Engine.CE

        def copies(index: int, role: Role) -> list[Transfer]:
            kind = MemoryKind.PAGEABLE if options.pageable else MemoryKind.PINNED
            gpu, near = group.parties[index], _nearest(machine, index, kind)
            ends = (near, gpu.memory) if to_device else (gpu.memory, near)
            if split:  # half of the buffer goes each way
                return [Transfer(*ends, gpu.executor, Engine.SM_SPLIT, max(1, size // 2), role)]
            load = 2 * size  # a load must outlast what it disturbs
            amount = size if role is Role.MEASURED else load
            transfers = [Transfer(*ends, gpu.executor, case.engine, amount, role)]
            if opposite:
                transfers.append(Transfer(*ends[::-1], gpu.executor, case.engine, load, Role.LOAD))
            return transfers

        if others and options.concurrent:
            of_each = [copies(column, Role.MEASURED) for column in range(len(group.parties))]
            firsts = accumulate((len(transfers) for transfers in of_each[:-1]), initial=0)
            places = tuple(Place("", 0, j, Reduce.FIRST, (first,)) for j, first in enumerate(firsts))
            layout = Layout("", case.title, HOST_ROW, group.axis, case.unit)
            return Plan((layout,), (Measurement(tuple(chain(*of_each)), places),))
        cells: Cells = []
        for column in range(len(group.parties)):
            transfers = copies(column, Role.MEASURED)
            for other in range(len(group.parties)) if others else ():
                transfers += copies(other, Role.LOAD) if other != column else []
            cells.append((0, column, tuple(transfers)))
        return single(case, HOST_ROW, group.axis, cells)

    return pattern


def host_total(*, to_device: bool) -> Pattern:
    """1 x 1: one copy between each GPU and the host memory nearest to it, all at once; the total."""

    @of_parties(gpus, 1)
    def pattern(machine: Machine, case: Testcase, options: PlanOptions, group: Parties, size: int) -> Plan:
        transfers = []
        for index, gpu in enumerate(group.parties):
            near = _nearest(machine, index)
            ends = (near, gpu.memory) if to_device else (gpu.memory, near)
            transfers.append(Transfer(*ends, gpu.executor, case.engine, size))
        cells: Cells = [(0, 0, tuple(transfers))]
        return single(case, HOST_ROW, Axis("GPUs", ("all",)), cells, Reduce.WALL)

    return pattern


@of_parties(gpus, 1)
def chase_host(machine: Machine, case: Testcase, options: PlanOptions, group: Parties, size: int) -> Plan:
    """Plan 1 x GPUs: each GPU follows pointers through its nearest host memory."""
    cells: Cells = [
        (0, j, (chasing(case, Executor(gpu.label), _nearest(machine, j), size),))
        for j, gpu in enumerate(group.parties)
    ]
    return single(case, HOST_ROW, group.axis, cells, Reduce.LATENCY)


_TO, _FROM, _BOTH = "CPU(row) -> GPU(column)", "CPU(row) <- GPU(column)", "CPU(row) <-> GPU(column)"
_PULL, _PUSH, _PAIR = "GPU(row) -> GPU(column)", "GPU(row) <- GPU(column)", "GPU(row) <-> GPU(column) {part}"
_READ, _WRITE = Access.READ, Access.WRITE
Rows = tuple[Testcase, ...]
_LOADED = "the other direction runs as load (copy engine) or in the same kernel (SM)"


def _row(
    name: str, arrow: str, access: Access, pattern: Pattern, description: str, engine: Engine, kind: str
) -> Testcase:
    title = f"memcpy {kind.upper()} {arrow} bandwidth"
    return Testcase(f"{name}_{kind}", description, pattern, title, engine, access)


def _between(engine: Engine, kind: str, need: Callable[[Pattern], Pattern] = lambda pattern: pattern) -> Rows:
    """The four testcases of pairs of GPUs; ``kind`` is the engine in nvbandwidth's terms."""

    def row(name: str, arrow: str, access: Access, pattern: Pattern, description: str) -> Testcase:
        return _row(f"device_to_device_{name}", arrow, access, need(pattern), description, engine, kind)

    return (
        row("memcpy_read", _PULL, _READ, pairs(gpus),
            "the row's GPU pulls from the column's memory"),
        row("memcpy_write", _PUSH, _WRITE, pairs(gpus),
            "the row's GPU pushes to the column's memory"),
        row("bidirectional_memcpy_read", _PAIR, _READ, pairs_both_ways(gpus),
            "both GPUs of a pair pull from each other at once; each rate and the sum"),
        row("bidirectional_memcpy_write", _PAIR, _WRITE, pairs_both_ways(gpus),
            "both GPUs of a pair push to each other at once; each rate and the sum"),
    )  # fmt: skip


def _copies(engine: Engine) -> Rows:
    """The sixteen testcases that exist for copy engines and for SM kernels."""

    def row(name: str, arrow: str, access: Access, pattern: Pattern, description: str) -> Testcase:
        return _row(name, arrow, access, pattern, description, engine, engine)

    return (
        row("host_to_device_memcpy", _TO, _READ, host(to_device=True),
            "host to GPU; the GPU executes"),
        row("device_to_host_memcpy", _FROM, _WRITE, host(to_device=False),
            "GPU to host; the GPU executes"),
        row("host_to_device_bidirectional_memcpy", _BOTH, _READ, host(to_device=True, opposite=True),
            f"host to GPU while {_LOADED}; one direction is reported"),
        row("device_to_host_bidirectional_memcpy", _BOTH, _WRITE, host(to_device=False, opposite=True),
            f"GPU to host while {_LOADED}; one direction is reported"),
        *_between(engine, engine),
        row("all_to_host_memcpy", _FROM, _WRITE, host(to_device=False, others=True),
            "GPU to host while all other GPUs do the same as load"),
        row("all_to_host_bidirectional_memcpy", _BOTH, _WRITE,
            host(to_device=False, opposite=True, others=True),
            "GPU to host while it and all other GPUs copy both ways as load"),
        row("host_to_all_memcpy", _TO, _READ, host(to_device=True, others=True),
            "host to GPU while all other GPUs do the same as load"),
        row("host_to_all_bidirectional_memcpy", _BOTH, _READ,
            host(to_device=True, opposite=True, others=True),
            "host to GPU while it and all other GPUs copy both ways as load"),
        row("all_to_one_write", _PUSH, _WRITE, star(gpus, column_executes=False, reduce=Reduce.WALL),
            "all peers push to the column's GPU at once; total into it"),
        row("all_to_one_read", _PULL, _READ, star(gpus, column_executes=False, reduce=Reduce.WALL),
            "all peers pull from the column's GPU at once; total out of it"),
        row("one_to_all_write", _PULL, _WRITE, star(gpus, column_executes=True, reduce=Reduce.WALL),
            "the column's GPU pushes to all peers at once; total out of it"),
        row("one_to_all_read", _PUSH, _READ, star(gpus, column_executes=True, reduce=Reduce.WALL),
            "the column's GPU pulls from all peers at once; total into it"),
    )  # fmt: skip


_LATENCIES = (
    Testcase(
        "host_device_latency_sm",
        "the GPU follows pointers through pinned host memory: time of one dependent load",
        chase_host, "memory latency SM CPU(row) <-> GPU(column)", Engine.SM,
        size=CHASE_SIZE, fixed_size=True, unit=Unit.TIME, counts="",
    ),
    Testcase(
        "device_to_device_latency_sm",
        "the row's GPU follows pointers through the column's memory: time of one dependent load",
        chase(gpus, diagonal=False), "Device to Device Latency SM GPU(row) <-> GPU(column)", Engine.SM,
        size=CHASE_SIZE, fixed_size=True, unit=Unit.TIME, counts="",
    ),
)  # fmt: skip


@of_parties(gpus, 2)
def sm_scaling(machine: Machine, case: Testcase, options: PlanOptions, group: Parties, size: int) -> Plan:
    """Plan kernels x blocks: ordinary and bulk copies between two GPUs."""
    pairs_there = [(i, j) for i in range(len(group.parties)) for j in range(len(group.parties)) if i != j]
    open_pairs = [(i, j) for i, j in pairs_there if not group.barrier(i, j)]
    if not open_pairs:  # a machine file may name peers that it does not have
        return Plan.waive(group.barrier(*pairs_there[0]) or "")
    here, there = open_pairs[0]
    most = machine.gpus[here].multiprocessors or 128
    counts = powers(most)
    kernels = [(engine, access) for engine in (Engine.SM, Engine.SM_BULK) for access in (_WRITE, _READ)]
    rows = Axis("kernel", tuple(f"{engine} {access}" for engine, access in kernels))
    cells: Cells = []
    for row, (engine, access) in enumerate(kernels):
        by_kernel = replace(case, engine=engine, access=access)
        transfer = copy(by_kernel, group.parties[here], group.parties[there], size)
        for column, blocks in enumerate(counts):
            executor = replace(transfer.executor, blocks=blocks)
            cells.append((row, column, (replace(transfer, executor=executor),)))
    return single(case, rows, count_axis("blocks", counts), cells)


#: Testcases that nvbandwidth does not have.
OWN = (
    Testcase(
        "all_to_host_sum_ce", "all GPUs copy to the host at once; the total",
        host_total(to_device=False), "memcpy CE CPU(row) <- all GPUs total bandwidth", Engine.CE, _WRITE,
        tier="standard",
    ),
    Testcase(
        "host_to_all_sum_ce", "all GPUs copy from the host at once; the total",
        host_total(to_device=True), "memcpy CE CPU(row) -> all GPUs total bandwidth", Engine.CE, _READ,
        tier="standard",
    ),
    *stream("device", gpus, Engine.SM, "by a kernel in the GPU's own memory", "GPU(column) ", DEFAULT_SIZE),
    Testcase(
        "device_saxpy", "z = s x + y in single precision, by a kernel in the GPU's own memory",
        within(gpus), "saxpy GPU(column) bandwidth", Engine.SM, Access.LOCAL, Operation.SAXPY,
        counted=3, counts="3 arrays",
    ),
    Testcase(
        "device_to_device_sm_scaling",
        "copies between the first GPU and its first peer over the number of blocks",
        sm_scaling, "memcpy SM and SM_BULK over blocks, bandwidth", Engine.SM, tier="standard",
    ),
    Testcase(
        "device_to_device_signal_latency",
        "the row's GPU sets a flag in the column's memory, and a kernel there answers: time of a round trip",
        signals(gpus), "round trip of a flag GPU(row) <-> GPU(column)", Engine.SM, _WRITE, Operation.SIGNAL,
        size=SIGNAL_SIZE, fixed_size=True, unit=Unit.TIME, counts="", tier="full",
    ),
)  # fmt: skip
#: Type of numbers -> first letter of its operation in BLAS, precision, operation.
_AXPY = {
    "float16": ("h", "half", Operation.HAXPY),
    "float32": ("s", "single", Operation.SAXPY),
    "float64": ("d", "double", Operation.TRIAD),
}


def saxpy(number: str, cublas: bool) -> Testcase:
    """The testcase of ``z = s x + y``; that in half precision and those by cuBLAS are not in the table.

    Args:
        number: Type of the numbers: ``float16``, ``float32`` or ``float64``.
        cublas: Whether cuBLAS computes it, in place; otherwise a kernel with another vector for the result.
    """
    letter, precision, operation = _AXPY[number]
    known = {case.operation: case for case in (*TESTCASES, *OWN) if case.access is Access.LOCAL}
    if operation in known and not cublas:
        return known[operation]
    text, by = ("y = s x + y", "by cuBLAS") if cublas else ("z = s x + y", "by a kernel")
    return replace(
        known[Operation.SAXPY],
        name=f"device_{letter}axpy{'_cublas' if cublas else ''}",
        description=f"{text} in {precision} precision, {by} in the GPU's own memory",
        title=f"{letter}axpy {'by cuBLAS ' if cublas else ''}GPU(column) bandwidth",
        engine=Engine.CUBLAS if cublas else Engine.SM,
        operation=operation,
    )


_TWICE = "every copied byte once (it is read and written)"
_WITHIN = within(gpus)


def _local(
    name: str, description: str, action: str, engine: Engine, pattern: Pattern = _WITHIN,
    operation: Operation = Operation.COPY, counts: str = _TWICE,
) -> Testcase:  # fmt: skip
    return Testcase(
        f"device_local_{name}", description, pattern, f"{action} GPU(column) bandwidth", engine, Access.LOCAL,
        operation, counts=counts, tier="quick" if engine is Engine.CE else "standard",
    )  # fmt: skip


_LOCAL = _local(
    "copy", "a copy within the GPU's own memory, which moves twice the counted bytes", "memcpy local",
    Engine.CE,
)  # fmt: skip
_BULK_PAIRS = tuple(replace(case, tier="standard") for case in _between(Engine.SM_BULK, "tma", bulk))
_LATER_LOCAL = (
    _local("copy_sm", "a copy by a kernel within the GPU's own memory", "memcpy local SM", Engine.SM),
    _local("read_sm", "a kernel loads the GPU's own memory and stores nothing", "read local SM", Engine.SM,
           operation=Operation.READ, counts="every byte once"),
    _local("write_sm", "a kernel stores to the GPU's own memory and loads nothing", "write local SM",
           Engine.SM, operation=Operation.WRITE, counts="every byte once"),
    Testcase(
        "device_to_device_latency_tma",
        "the row's GPU follows pointers through the column's memory by bulk copies into its shared memory: "
        "time of one dependent copy",
        bulk(chase(gpus, diagonal=False)), "Device to Device Latency TMA GPU(row) <-> GPU(column)",
        Engine.SM_BULK, size=2 * MIB, fixed_size=True, unit=Unit.TIME, counts="", tier="standard",
    ),
    _local("copy_tma", "bulk copies within the GPU's own memory, through shared memory", "memcpy local TMA",
           Engine.SM_BULK, bulk(_WITHIN)),
)  # fmt: skip

#: nvbandwidth's forty-four testcases of one process, in its order.
TESTCASES = tuple(
    replace(case, index=index)
    for index, case in enumerate(
        (*_copies(Engine.CE), *_copies(Engine.SM), *_LATENCIES, *_BULK_PAIRS, _LOCAL, *_LATER_LOCAL)
    )
)
#: Names of those that nvbandwidth 0.8 lacks.
LATER = frozenset(case.name for case in (*_BULK_PAIRS, *_LATER_LOCAL))


def _with_host(kind: DeviceKind, *, to_host: bool) -> Pattern:
    """1 x devices: copies between each device and the host memory nearest to it; the device executes."""

    @of_parties(attached(kind), 1)
    def pattern(machine: Machine, case: Testcase, options: PlanOptions, group: Parties, size: int) -> Plan:
        cells: Cells = []
        nodes = {node.index: node.name for node in machine.numa}
        for column, device in enumerate(machine.others[kind.name]):
            if device.node not in nodes:
                cells.append((0, column, f"the NUMA node of {device.name} is unknown"))
                continue
            party = group.parties[column]
            host = Memory(nodes[device.node], MemoryKind.PINNED)
            ends = (party.memory, host) if to_host else (host, party.memory)
            cells.append((0, column, (Transfer(*ends, party.executor, case.engine, size),)))
        return single(case, HOST_ROW, group.axis, cells)

    return pattern


def of_kind(kind: DeviceKind) -> tuple[Testcase, ...]:
    """The testcases of a kind of device; none if it executes no transfers."""
    if not kind.engines:
        return ()
    name, (noun, _), engine = kind.name, kind.words, kind.engines[0]
    return (
        Testcase(f"{name}_local_copy", f"each {noun} copies within its own memory", within(attached(kind)),
                 f"{noun} local copy", engine),
        Testcase(f"{name}_from_host", f"each {noun} reads the host memory nearest to it",
                 _with_host(kind, to_host=False), f"memcpy CPU(row) -> {noun}(column) bandwidth", engine),
        Testcase(f"{name}_to_host", f"each {noun} writes to the host memory nearest to it",
                 _with_host(kind, to_host=True), f"memcpy CPU(row) <- {noun}(column) bandwidth", engine,
                 Access.WRITE),
    )  # fmt: skip


ATTACHED = tuple(case for kind in added() for case in of_kind(kind))
