"""Testcase and Plan: a testcase is data, a plan is what it means on one Machine."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from ..model import Access, Axis, Engine, Measurement, Operation, Place, Reduce, Transfer, Unit
from ..options import PlanOptions as PlanOptions
from ..options import Tier as Tier
from ..topology import Machine
from ..units import MIB

DEFAULT_SIZE = 512 * MIB


@dataclass(frozen=True)
class Layout:
    """An empty table: its key (``""``, ``"read1"``), title, axes and unit.

    ``rows_alike``: rows should have equal times, so that those are marked that are slow for their column.
    ``engine``: the engine that fills ``{engine}`` in the title, unless messages move the bytes.
    """

    key: str
    title: str
    rows: Axis
    columns: Axis
    unit: Unit
    rows_alike: bool = False
    engine: Engine | None = None


@dataclass(frozen=True)
class WaivedCell:
    """A cell that cannot be measured on this machine, and why."""

    table: str
    row: int
    column: int
    reason: str


@dataclass(frozen=True)
class Plan:
    """What a Testcase means on one Machine. ``reason`` says why nothing can be measured."""

    tables: tuple[Layout, ...] = ()
    measurements: tuple[Measurement, ...] = ()
    waived: tuple[WaivedCell, ...] = ()
    reason: str = ""

    @staticmethod
    def waive(reason: str) -> Plan:
        """A plan with nothing in it, and why."""
        return Plan(reason=reason)


Pattern = Callable[[Machine, "Testcase", PlanOptions], Plan]


@dataclass(frozen=True)
class Testcase:
    """One row of the table of testcases.

    Parameters
    ----------
    pattern
        Turns a Machine into Measurements: who talks to whom.
    title
        Title of its table, without the unit; ``{part}`` is filled where there are several, and ``{engine}``
        once it is known whether messages move the bytes.
    size
        Default bytes of a buffer, where they depend on the machine as a function of it.
    fixed_size
        Whether the size is part of what is measured, so that the user's choice does not apply.
    counted
        How often each byte of a buffer counts in the rate.
    counts
        The same in words, for people.
    tier
        The lowest tier that runs it.
    index
        Its number in nvbandwidth's list, None where nvbandwidth has no such testcase.
    swept
        Returns the pattern for several sizes; None: each cell becomes a curve.
    """

    __test__ = False  # pytest: not a class of tests

    name: str
    description: str
    pattern: Pattern
    title: str
    engine: Engine
    access: Access = Access.READ
    operation: Operation = Operation.COPY
    size: int | Callable[[Machine], int] = DEFAULT_SIZE
    fixed_size: bool = False
    counted: int = 1
    counts: str = "every copied byte once"
    unit: Unit = Unit.RATE
    tier: Tier = Tier.QUICK
    index: int | None = None
    swept: Callable[[tuple[int, ...]], Pattern] | None = None

    def plan(self, machine: Machine, options: PlanOptions = PlanOptions()) -> Plan:
        """Return what this testcase measures on a Machine; touches no hardware."""
        plan = self.pattern(machine, self, options)
        return _shaped(plan, options) if options.blocks or options.threads else plan

    def buffer_size(self, machine: Machine, options: PlanOptions) -> int:
        """Bytes of a buffer: the user's choice, or this testcase's default for the machine."""
        if options.size and not self.fixed_size:
            return options.size
        return self.size if isinstance(self.size, int) else self.size(machine)


#: Engines whose kernels can be given a shape.
_KERNELS = (Engine.SM, Engine.SM_BULK, Engine.SM_SPLIT)


def _shaped(plan: Plan, options: PlanOptions) -> Plan:
    """Return a plan whose copy kernels have the blocks and threads that the user chose."""

    def shape(transfer: Transfer) -> Transfer:
        if transfer.engine not in _KERNELS or transfer.operation is not Operation.COPY:
            return transfer
        executor = transfer.executor
        blocks, threads = executor.blocks or options.blocks, executor.threads or options.threads
        return replace(transfer, executor=replace(executor, blocks=blocks, threads=threads))

    measurements = tuple(
        replace(m, works=tuple(map(shape, m.transfers))) if m.transfers else m for m in plan.measurements
    )
    return replace(plan, measurements=measurements)


#: Row, column, and the transfers of a Measurement or the reason why there is none.
Cells = list[tuple[int, int, tuple[Transfer, ...] | str]]


def single(
    case: Testcase,
    rows: Axis,
    columns: Axis,
    cells: Cells,
    reduce: Reduce = Reduce.FIRST,
) -> Plan:
    """A Plan with one table and a Measurement for each cell."""
    measurements, waived = [], []
    for row, column, content in cells:
        if isinstance(content, str):
            waived.append(WaivedCell("", row, column, content))
        else:
            over = tuple(range(len(content))) if reduce is not Reduce.FIRST else (0,)
            measurements.append(Measurement(content, (Place("", row, column, reduce, over),)))
    return _plan((Layout("", case.title, rows, columns, case.unit),), measurements, waived)


def both_ways(case: Testcase, rows: Axis, columns: Axis, cells: Cells) -> Plan:
    """A Plan with a table for each of two opposite transfers, and one for their sum."""
    part = case.access.value
    keys = (f"{part}1", f"{part}2", "total")
    measurements, waived = [], []
    for row, column, content in cells:
        if isinstance(content, str):
            waived += [WaivedCell(key, row, column, content) for key in keys]
        else:
            places = (
                Place(keys[0], row, column, Reduce.FIRST, (0,)),
                Place(keys[1], row, column, Reduce.FIRST, (1,)),
                Place(keys[2], row, column, Reduce.SUM, (0, 1)),
            )
            measurements.append(Measurement(content, places))
    tables = tuple(
        Layout(key, case.title.format(part=key.capitalize(), engine="{engine}"), rows, columns, case.unit)
        for key in keys
    )
    return _plan(tables, measurements, waived)


def _plan(
    tables: tuple[Layout, ...], measurements: Sequence[Measurement], waived: Sequence[WaivedCell]
) -> Plan:
    reason = "" if measurements or not waived else waived[0].reason
    return Plan(tables, tuple(measurements), tuple(waived), reason)
