"""Testcase and Plan: a testcase is data, and its plan is its Measurements on one Machine."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from ..hardware.topology import Machine
from ..measurement import Axis, Measurement, Place, Reduce, Unit
from ..model import Access, Engine, Operation, Transfer
from ..options import PlanOptions as PlanOptions
from ..options import Tier as Tier
from ..terminal import brief
from ..units import MIB, format_size

#: Default size of a buffer, in bytes.
DEFAULT_SIZE = 512 * MIB


@dataclass(frozen=True)
class Layout:
    """An empty table.

    Attributes:
        key: Key of the table in its testcase, such as ``""`` or ``"read1"``.
        title: Title without the unit.
        rows, columns: The axes.
        unit: Base unit of the values.
        rows_alike: Whether rows should have equal times; slow cells of a column are then marked.
        engine: Engine that fills ``{engine}`` in the title, unless messages move the bytes.
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
    """A cell that cannot be measured on this machine.

    Attributes:
        table: Key of the table.
        row, column: Location in the table.
        reason: Why it cannot be measured.
    """

    table: str
    row: int
    column: int
    reason: str


@dataclass(frozen=True)
class Plan:
    """The tables and Measurements of a Testcase on one Machine.

    Attributes:
        tables: The empty tables.
        measurements: The Measurements that fill them.
        waived: Cells that cannot be measured.
        reason: Why nothing can be measured; empty if something can. If all cells are waived, that of the
            first.
    """

    tables: tuple[Layout, ...] = ()
    measurements: tuple[Measurement, ...] = ()
    waived: tuple[WaivedCell, ...] = ()
    reason: str = ""

    def __post_init__(self) -> None:
        if not self.reason and not self.measurements and self.waived:
            object.__setattr__(self, "reason", self.waived[0].reason)

    @staticmethod
    def waive(reason: str) -> Plan:
        """An empty plan with the reason."""
        return Plan(reason=reason)


#: Returns the Measurements of a testcase on a machine.
Pattern = Callable[[Machine, "Testcase", PlanOptions], Plan]


@dataclass(frozen=True)
class Testcase:
    """One row of the table of testcases.

    Attributes:
        name: Unique name.
        description: What is measured, in one phrase.
        pattern: Returns the Measurements on a Machine.
        title: Title of its table, without the unit; ``{part}`` is filled if there are several tables, and
            ``{engine}`` once it is known whether messages move the bytes.
        engine: What moves the bytes.
        access: Whether the Executor reads or writes remote memory.
        operation: What the Executor computes.
        size: Default bytes of a buffer, or a function of the Machine that returns them.
        fixed_size: Whether the size is part of the definition, so that ``--size`` does not apply.
        counted: Number of times that each byte of a buffer counts in the rate.
        counts: Description of the bytes that count; empty for latencies.
        unit: Base unit of the values.
        tier: The lowest tier that runs it.
        index: Number in nvbandwidth's list; None if nvbandwidth has no such testcase.
        swept: Returns the pattern for several sizes; None if a sweep turns each cell into a curve.
        written: Whether the user wrote it, so that an error of its plan is an error of usage.
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
    tier: Tier = "quick"
    index: int | None = None
    swept: Callable[[tuple[int, ...]], Pattern] | None = None
    written: bool = False

    def __repr__(self) -> str:
        """One line; ``wirespeed list`` shows all testcases."""
        return brief(f"Testcase {self.name}: {self.description}")

    def plan(self, machine: Machine, options: PlanOptions = PlanOptions()) -> Plan:
        """The plan of this testcase on a Machine; touches no hardware."""
        plan = self.pattern(machine, self, options)
        return _shaped(plan, options) if options.blocks or options.threads else plan

    def buffer_size(self, machine: Machine, options: PlanOptions) -> int:
        """The bytes of a buffer: ``--size``, or the default for the machine."""
        if options.size and not self.fixed_size:
            return options.size
        return self.size if isinstance(self.size, int) else self.size(machine)


#: Engines whose kernels have a configurable grid.
_KERNELS = (Engine.SM, Engine.SM_BULK, Engine.SM_SPLIT)


def _shaped(plan: Plan, options: PlanOptions) -> Plan:
    """The plan with the requested blocks and threads of copy kernels."""

    def shape(transfer: Transfer) -> Transfer:
        if transfer.engine not in _KERNELS or transfer.operation is not Operation.COPY:
            return transfer
        executor = transfer.executor
        blocks, threads = executor.blocks or options.blocks, executor.threads or options.threads
        return replace(transfer, executor=replace(executor, blocks=blocks, threads=threads))

    measurements = tuple(
        replace(m, works=tuple(shape(work) if isinstance(work, Transfer) else work for work in m.works))
        for m in plan.measurements
    )
    return replace(plan, measurements=measurements)


def size_axis(name: str, sizes: Sequence[int]) -> Axis:
    """An axis of sizes, in bytes."""
    return Axis(name, tuple(map(format_size, sizes)), tuple(map(float, sizes)), "B")


def count_axis(name: str, counts: Sequence[int]) -> Axis:
    """An axis of numbers of something."""
    return Axis(name, tuple(map(str, counts)), tuple(map(float, counts)))


#: Row, column, and either the transfers of a Measurement or the reason why there is none.
Cells = list[tuple[int, int, tuple[Transfer, ...] | str]]


def single(case: Testcase, rows: Axis, columns: Axis, cells: Cells, reduce: Reduce = Reduce.FIRST) -> Plan:
    """A Plan with one table and a Measurement per cell."""
    measurements, waived = [], []
    for row, column, content in cells:
        if isinstance(content, str):
            waived.append(WaivedCell("", row, column, content))
        else:
            over = tuple(range(len(content))) if reduce is not Reduce.FIRST else (0,)
            measurements.append(Measurement(content, (Place("", row, column, reduce, over),)))
    return Plan((Layout("", case.title, rows, columns, case.unit),), tuple(measurements), tuple(waived))


def both_ways(case: Testcase, rows: Axis, columns: Axis, cells: Cells) -> Plan:
    """A Plan with one table for each of two opposite transfers, and one for their sum."""
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
    return Plan(tables, tuple(measurements), tuple(waived))
