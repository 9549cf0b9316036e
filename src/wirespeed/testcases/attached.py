"""Testcases of each kind of device except NUMA nodes and GPUs: its own memory, and copies with the host."""

from __future__ import annotations

from ..hardware.devices import DeviceKind, added
from ..hardware.topology import Machine
from ..measurement import Axis
from ..model import Access, Memory, MemoryKind, Transfer
from .base import Cells, Pattern, Plan, PlanOptions, Testcase, single
from .patterns import attached, within

_HOST_ROW = Axis("CPU", ("host",))


def _with_host(kind: DeviceKind, *, to_host: bool) -> Pattern:
    """1 x devices: copies between each device and the host memory nearest to it; the device executes."""
    group_of = attached(kind)

    def pattern(machine: Machine, case: Testcase, options: PlanOptions) -> Plan:
        group, size = group_of(machine), case.buffer_size(machine, options)
        if reason := group.lacks(1):
            return Plan.waive(reason)
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
        return single(case, _HOST_ROW, group.axis, cells)

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


TESTCASES = tuple(case for kind in added() for case in of_kind(kind))
