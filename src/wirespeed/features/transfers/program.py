"""Testcases from parsed lines: tables, axes and expectations around the transfers."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Annotated, Any, Literal

import msgspec

from ...collectives.operations import OPERATIONS
from ...errors import UsageError
from ...hardware.topology import Machine
from ...measurement import Axis, Expectation, Measurement, Place, Reduce, Unit
from ...model import Collective, Engine, Role, Transfer
from ...options import PlanOptions
from ...testcases.table import Layout, Plan, Testcase, WaivedCell
from ...units import format_size
from .resolve import Defaults, Labelled, devices_of, resolve
from .syntax import Devices, Line, Source

#: Name of the testcase of a line without a name.
LINE = "transfers"
#: Keys of the tables if a testcase has rates and latencies.
RATES, TIMES = "bandwidth", "latency"
#: How a value is made: of each transfer, of the first, the sum of the rates, all bytes over the wall time.
EACH, FIRST, SUM, WALL = "each", "first", "sum", "wall"
REDUCTIONS = (EACH, FIRST, SUM, WALL)
#: Axes of numbers, and the default of a transfer that each one changes.
AXES = {"sizes": "size", "blocks": "blocks", "threads": "threads"}
#: Which bytes count, if the file does not say.
COUNTS = "every copied byte once"
_Count = Annotated[int, msgspec.Meta(ge=1, le=2**31 - 1)]


class LabelledValue(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A cell that a measurement fills, with its place given by labels.

    Attributes:
        row, column: Labels.
        table: Key of the table.
        reduce: How the times become the value.
        of: Numbers of the transfers that it is made of, from 0.
    """

    row: str
    column: str
    table: str = ""
    reduce: Literal["first", "sum", "wall", "latency"] = "first"
    of: Annotated[tuple[Annotated[int, msgspec.Meta(ge=0)], ...], msgspec.Meta(min_length=1)] = (0,)


#: Returns the expectation of a cell: machine, testcase, table, row, column.
ExpectedCell = Callable[[Machine, str, str, str, str], Expectation]


@dataclass(frozen=True)
class WantedValues:
    """What a measurement expects of its values.

    Attributes:
        of_limit: Lowest fraction of the limit of the links.
        least: Lowest rate, in B/s.
        most: Highest latency, in s.
        like: Returns the expectation of a cell from a baseline.
    """

    of_limit: float | None = None
    least: float | None = None
    most: float | None = None
    like: ExpectedCell | None = None

    def of(self, unit: Unit, machine: Machine, cell: tuple[str, str, str, str]) -> Expectation | None:
        """The expectation of a cell; None if nothing is expected of values of this unit."""
        if self.like is not None:
            return self.like(machine, *cell)
        if unit is Unit.TIME:
            return Expectation(most=self.most) if self.most else None
        expectation = Expectation(self.of_limit, self.least)
        return expectation if expectation != Expectation() else None


class ExpectText(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What a file expects of the values of a measurement: `WantedValues`, in words."""

    of_limit: Annotated[float, msgspec.Meta(gt=0, le=1)] | None = None
    least: str | None = None
    most: str | None = None
    like: str | None = None


class MeasurementText(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A measurement as a file has it.

    Attributes:
        name: Name of the testcase.
        transfers: The transfers; several texts are one line.
        label: Label of the rows.
        reduce: Which values are reported; empty for each and, of several rates, the sum.
        sizes, blocks, threads: An axis: values for the transfers that do not name one.
        each: An axis of devices, for which ``$`` stands in the line.
        expect: What is expected of the values.
        values: Cells by their labels; empty for cells made from ``reduce``.
        waived: Why the cells of ``values`` cannot be measured.
        independent: As in ``Measurement``.
    """

    name: Annotated[str, msgspec.Meta(min_length=1)]
    transfers: str | tuple[str, ...] = ()
    label: str = ""
    reduce: str | tuple[str, ...] = ()
    sizes: str | tuple[str, ...] = ()
    blocks: tuple[_Count, ...] = ()
    threads: tuple[_Count, ...] = ()
    each: str = ""
    expect: ExpectText | None = None
    values: tuple[LabelledValue, ...] = ()
    waived: str = ""
    independent: bool = False


@dataclass(frozen=True)
class Definition:
    """Transfers that start together, over an axis, and what is reported of them.

    Attributes:
        text: What the file says.
        line: The transfers; None if they cannot be measured.
        reduce: Which values are reported; empty for each and, of several rates, the sum.
        sizes: An axis of sizes, in bytes.
        each: An axis of devices.
        each_source: Text of the axis of devices.
        expect: What is expected of the values.
    """

    text: MeasurementText
    line: Line | None
    reduce: tuple[str, ...] = ()
    sizes: tuple[int, ...] = ()
    each: tuple[Devices, ...] = ()
    each_source: Source | None = None
    expect: WantedValues | None = None

    @property
    def axis(self) -> tuple[str, tuple[int, ...]]:
        """Name and values of its axis; empty if it has none."""
        axes = {"sizes": self.sizes, "blocks": self.text.blocks, "threads": self.text.threads}
        return next(((name, values) for name, values in axes.items() if values), ("", ()))


class TestcaseText(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A testcase as a file has it, whose tables measurements fill.

    Attributes:
        name: Name of the testcase.
        description: What is measured; empty for the text of the lines.
        counts: Which bytes count.
        engine: What moves the bytes.
        table: Its tables; empty for tables made from the definitions.
    """

    name: str
    description: str = ""
    counts: str = ""
    engine: Engine = Engine.CE
    table: tuple[Layout, ...] = ()

    def testcase(self, definitions: Sequence[Definition]) -> Testcase:
        """The testcase that plans measurements on a machine."""

        def plan(machine: Machine, case: Testcase, options: PlanOptions) -> Plan:
            builder = _Builder(self, definitions, machine, options)
            for definition in definitions:
                builder.add(definition)
            return builder.plan()

        texts = "; ".join(" ".join(text.split()) for d in definitions if d.line for text in d.line.texts)
        return Testcase(
            self.name, self.description or texts, plan, "", self.engine, counts=self.counts, written=True
        )


#: What starts together.
Works = tuple[Transfer | Collective, ...]


@dataclass(frozen=True)
class _Row:
    """A row of a table that is made from a definition: its label, unit, and the values of its cells."""

    label: str
    unit: Unit
    column: int
    place: Place
    measurement: int


@dataclass
class _Builder:
    """Collects the Measurements of a group, then makes its tables."""

    group: TestcaseText
    definitions: Sequence[Definition]
    machine: Machine
    options: PlanOptions
    works: list[tuple[Works, Definition, list[Place]]] = field(default_factory=list)
    rows: list[_Row] = field(default_factory=list)
    waived: list[WaivedCell] = field(default_factory=list)

    def add(self, definition: Definition) -> None:
        if definition.text.values:
            self._add_placed(definition)
            return
        assert definition.line is not None
        if self.group.table:
            raise definition.line.source.error(
                f"the tables of {self.group.name!r} are given, so the measurement needs values", 0
            )
        if {d.axis for d in self.definitions} != {definition.axis}:
            raise definition.line.source.error(
                f"the measurements of {self.group.name!r} share a table and need the same axis", 0
            )
        axis = definition.each_source
        devices = devices_of(definition.each, axis, self.machine) if axis else [""]
        name, values = definition.axis
        for device in devices:
            for column, value in enumerate(values or (0,)):
                changed: dict[str, Any] = {AXES[name]: value} if name else {}
                defaults = replace(Defaults(self.options.size, device=device), **changed)
                works = resolve(definition.line, self.machine, defaults)
                self._add_made(definition, works, device, column)

    def _add_placed(self, definition: Definition) -> None:
        """Add a measurement whose cells are given by labels."""
        layouts = {layout.key: layout for layout in self.group.table}
        places = []
        for value in definition.text.values:
            if value.table not in layouts:
                raise UsageError(f"{self.group.name}: there is no table {value.table!r}")
            layout = layouts[value.table]
            rows, columns = layout.rows.labels, layout.columns.labels
            if value.row not in rows or value.column not in columns:
                raise UsageError(
                    f"{self.group.name}: the table {value.table!r} has no row {value.row!r} with a column "
                    f"{value.column!r}"
                )
            at = rows.index(value.row), columns.index(value.column)
            place = Place(value.table, *at, Reduce(value.reduce), value.of)
            if definition.expect:
                cell = self.group.name, value.table, value.row, value.column
                place = replace(place, expect=definition.expect.of(layout.unit, self.machine, cell))
            places.append(place)
        if definition.line is None:
            self.waived += [WaivedCell(p.table, p.row, p.column, definition.text.waived) for p in places]
            return
        labelled = resolve(definition.line, self.machine, Defaults(self.options.size))
        works = tuple(each.work for each in labelled)
        for place in places:
            if why := _misplaced(place, layouts[place.table].unit, works):
                raise definition.line.source.error(why, 0)
        self.works.append((works, definition, places))

    def _add_made(self, definition: Definition, works: Sequence[Labelled], device: str, column: int) -> None:
        """Add a measurement whose cells follow from its reductions."""
        values = list(_values(works, definition, self.group.name))
        index = len(self.works)
        for label, unit, place in values:
            prefix = " ".join(filter(None, (definition.text.label, device)))
            text = prefix if prefix and len(values) == 1 else " ".join(filter(None, (prefix, label)))
            self.rows.append(_Row(text, unit, column, place, index))
        self.works.append((tuple(labelled.work for labelled in works), definition, []))

    def plan(self) -> Plan:
        """The plan of everything that was added; what the machine cannot do is waived."""
        tables = self.group.table or self._tables()
        measurements = []
        for works, definition, places in self.works:
            if definition.expect and definition.line and not any(place.expect for place in places):
                raise definition.line.source.error(
                    "no value is of the expected kind: of_limit and least judge rates, most latencies", 0
                )
            if reason := _barrier(self.machine, works):
                self.waived += [WaivedCell(p.table, p.row, p.column, reason) for p in places]
            else:
                measurements.append(Measurement(works, tuple(places), definition.text.independent))
        return Plan(tables, tuple(measurements), tuple(self.waived))

    def _tables(self) -> tuple[Layout, ...]:
        """Make the tables of rows that were collected, and the places of their cells."""
        units = list(dict.fromkeys(row.unit for row in self.rows))
        name, values = self.definitions[0].axis
        layouts = []
        for unit in units:
            kind = TIMES if unit is Unit.TIME else RATES
            key = kind if len(units) > 1 else ""
            of_unit = [row for row in self.rows if row.unit is unit]
            labels = _unique([(row.label, row.column) for row in of_unit])
            distinct = tuple(dict.fromkeys(labels))
            columns = _axis(name, values) if name else Axis("", (kind,))
            layout = Layout(key, f"{self.group.name}: {kind}", Axis("transfer", distinct), columns, unit)
            layouts.append(layout)
            for row, label in zip(of_unit, labels, strict=True):
                _, definition, places = self.works[row.measurement]
                place = replace(row.place, table=key, row=distinct.index(label), column=row.column)
                if definition.expect:
                    cell = self.group.name, key, label, columns.labels[row.column]
                    place = replace(place, expect=definition.expect.of(unit, self.machine, cell))
                places.append(place)
        return tuple(layouts)


def _misplaced(place: Place, unit: Unit, works: Sequence[Transfer | Collective]) -> str:
    """Why a value cannot be made of the transfers that a file names; empty if it can."""
    if any(i >= len(works) for i in place.transfers):
        return f"a value names a transfer that is not one of {len(works)}"
    if any(isinstance(work, Collective) for work in works):
        return "next to a collective, values are chosen by reduce"
    if all(work.role is Role.LOAD for work in works):
        return "nothing is measured: every transfer is a load"
    latency = {_is_latency(works[i]) for i in place.transfers}
    if latency != {place.reduce is Reduce.LATENCY} or latency != {unit is Unit.TIME}:
        return 'a value of latencies has reduce = "latency" and the unit "s", others have neither'
    return ""


def _unique(cells: Sequence[tuple[str, int]]) -> list[str]:
    """A label for each cell, so that no two have the same label and column."""
    counts: dict[tuple[str, int], int] = {}
    labels = []
    for label, column in cells:
        number = counts[label, column] = counts.get((label, column), 0) + 1
        labels.append(label if number == 1 else f"{label} #{number}")
    return labels


def _axis(name: str, values: Sequence[int]) -> Axis:
    if name == "sizes":
        labels = tuple(format_size(value) for value in values)
        return Axis("buffer size", labels, tuple(map(float, values)), "B")
    return Axis(name, tuple(map(str, values)), tuple(map(float, values)))


def _values(
    works: Sequence[Labelled], definition: Definition, name: str
) -> Iterator[tuple[str, Unit, Place]]:
    """Yield label, unit and place of each value of a measurement."""
    assert definition.line is not None
    source = definition.line.source
    measured = [i for i, labelled in enumerate(works) if labelled.work.role is Role.MEASURED]
    if not measured:
        raise source.error("nothing is measured: every transfer is a load", 0, len(source.text))
    rates = [i for i in measured if not _is_latency(works[i].work)]
    wanted = definition.reduce or (EACH, SUM)
    for reduction in wanted:
        if reduction in (EACH, FIRST):
            for i in measured if reduction == EACH else measured[:1]:
                work = works[i].work
                if isinstance(work, Collective):
                    factor = OPERATIONS[work.operation].factor(work.ranks)
                    yield works[i].label, Unit.RATE, Place("", 0, 0, Reduce.BUS, (i,), factor)
                elif _is_latency(work):
                    yield works[i].label, Unit.TIME, Place("", 0, 0, Reduce.LATENCY, (i,))
                else:
                    yield works[i].label, Unit.RATE, Place("", 0, 0, Reduce.FIRST, (i,))
        elif len(rates) > 1 and not any(isinstance(works[i].work, Collective) for i in rates):
            kind = Reduce.SUM if reduction == SUM else Reduce.WALL
            yield reduction, Unit.RATE, Place("", 0, 0, kind, tuple(rates))
        elif definition.reduce:
            raise source.error(f"{reduction} needs at least two transfers with rates", 0, len(source.text))


def _is_latency(work: Transfer | Collective) -> bool:
    return isinstance(work, Transfer) and work.operation.is_latency


def _barrier(machine: Machine, works: Sequence[Transfer | Collective]) -> str:
    """Why a GPU cannot reach the memory of another; empty if all can."""
    peers = {gpu.name: gpu.peers for gpu in machine.gpus}
    for work in works:
        if isinstance(work, Transfer) and work.executor.rank is None and work.executor.device in peers:
            executor = work.executor.device
            for end in work.ends:
                if end.device in peers and end.device != executor and end.device not in peers[executor]:
                    return f"{executor} has no peer access to {end.device}"
    return ""
