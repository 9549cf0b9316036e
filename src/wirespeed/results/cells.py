"""Every cell of a Document with a unique key, so that Documents can be compared."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from typing import NamedTuple

from ..document import Document, TestcaseResult
from ..hardware.topology import Machine
from ..measurement import Unit
from ..model import Engine
from ..tables import Cell, Table

#: End of the names of further runs of a testcase in one log.
_AGAIN = re.compile(r"_\d+$")


def without_number(name: str) -> str:
    """The name of a testcase, of which a log has several runs, without the number of the run."""
    return _AGAIN.sub("", name)


class Key(NamedTuple):  # a tuple, because there are many
    """Location of a cell.

    Attributes:
        testcase: Name of the testcase.
        table: Key of the table.
        row, column: Labels of row and column.
        bytes: Counted bytes of one copy.
    """

    testcase: str
    table: str
    row: str
    column: str
    bytes: int = 0

    @property
    def tested(self) -> str:
        """The name of the testcase without the number of a further run of it in one log."""
        return without_number(self.testcase)

    @property
    def number(self) -> str:
        """What its testcase has behind that name: ``_2`` of the second run; empty of the first."""
        return self.testcase.removeprefix(self.tested)

    @property
    def place(self) -> str:
        """Table, row and column as text; empty for a whole testcase."""
        return " ".join(filter(None, (self.table, self.row, self.column)))


class Placed(NamedTuple):
    """A cell with its context.

    Attributes:
        key: Location of the cell.
        cell: The cell.
        unit: Unit of its value.
        result: Result of its testcase.
    """

    key: Key
    cell: Cell
    unit: Unit
    result: TestcaseResult


def key_of(result: TestcaseResult, table: Table, cell: Cell) -> Key:
    """The key of a cell of a table of a testcase."""
    row, column = table.rows.labels[cell.row], table.columns.labels[cell.column]
    return Key(result.name, table.key, row, column, cell.bytes)


def placed(document: Document) -> Iterator[Placed]:
    """Every cell of a Document, in order, those without a value included."""
    for result in document.testcases:
        for table in result.tables:
            for cell in table.cells:
                yield Placed(key_of(result, table, cell), cell, table.unit, result)


def busy_devices(place: Placed, machine: Machine) -> dict[str, str]:
    """The devices of a cell that another process used while it was measured, and how."""
    busy = place.result.busy
    if not busy or place.cell.value is None:
        return {}
    ends = {end for i, *_ in place.cell.links for end in machine.links[i].ends}
    devices = ends | {place.key.row, place.key.column}
    if place.result.engine != Engine.CPU:  # busy CPUs slow threads, not copy engines
        devices -= {node.name for node in machine.numa}
    return {device: use for device, use in busy.items() if device in devices}


def model_of(machine: Machine) -> str:
    """What comparable machines have in common: CPU and GPUs."""
    counts = Counter(gpu.model for gpu in machine.gpus)
    cores = sum(len(node.cores) for node in machine.numa)
    ranks = [f"{len(machine.ranks)} ranks"] if machine.ranks else []
    cpu = f"{machine.cpu or 'CPU of unknown model'}, {cores} cores, {len(machine.numa)} NUMA nodes"
    others = [machine.counts[kind] for kind in machine.counts if kind.name in machine.others]
    return "; ".join([cpu, *(f"{n} x {model}" for model, n in counts.items()), *others, *ranks])
