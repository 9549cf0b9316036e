"""nvbandwidth's text output, for scripts that read it by position, and since 0.11 the lines about the NVLink
fabric. Bidirectional testcases print one table for each part, like nvbandwidth; a simulated machine is named
so in the line of every device and in a note.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from msgspec.structs import replace

from ...document import Document, Status, TestcaseResult
from ...errors import UnknownTestcase
from ...hardware.devices import number_of
from ...hardware.facts import FABRIC_READY, Facts, Known
from ...hardware.topology import Machine, Rank
from ...judging.judged import Judged
from ...measurement import Axis, Unit
from ...model import Executor, Memory, Operation, Transfer
from ...reports.style import Style
from ...tables import Cell, Table
from ...terminal import one_line
from ...testcases.table import find
from ...units import MIB, displayed
from .dialects import DIALECTS, Dialect, called
from .versions import PROCESSES, listed


def is_success(document: Document, dialect: Dialect) -> bool:
    """Whether the program would end with success; sailbandwidth also does if all testcases were waived.

    nvbandwidth ignores unknown testcases. If nothing else was measured, that is a failure here, and so are
    testcases between processes if there is only one: a wrong name or launcher would look like success.
    """
    if not dialect.exact:
        return document.good
    results = document.testcases
    known = all(result.status.good or result.status is Status.NOT_FOUND for result in results)
    alone = not document.machine.ranks
    lost = any(r.status is Status.NOT_FOUND or (alone and r.name.startswith(PROCESSES)) for r in results)
    empty = lost and not any(result.status is Status.PASSED for result in results)
    return known and not empty and not document.interrupted


def list_text(dialect: Dialect, *, several: bool) -> str:
    """The program's list of testcases; for several processes only if there are several."""
    between, after, rule = "\n\t", "\n\n", "=======================\n"
    if dialect.is_new:
        between, after, rule = "\n\t\t", "\n", ""
    return f"{dialect.start()}Index, Name:\n\tDescription\n{rule}" + "".join(
        f"{'-' if case.index is None else case.index}, {case.name}:{between}{case.description}{after}"
        for case in listed(dialect.testcases, several=several)
    )


def fabric_lines(document: Document) -> list[str]:
    """The cluster and clique of the GPU of each process, then a warning for each whose fabric is not healthy.

    nvbandwidth prints both before the testcases; its words are not published. Processes whose GPU is in no
    fabric have no line.
    """
    placed, unhealthy = list[str](), list[str]()
    ranks = document.machine.ranks
    width = len(str(len(ranks) - 1))
    for rank in ranks:
        facts = Facts(document.facts, "" if rank.host == ranks[0].host else rank.host)
        who = f"Process {rank.index:>{width}} ({rank.host})"
        cluster = facts.text(Known.FABRIC_CLUSTER, rank.device)
        clique = facts.number(Known.FABRIC_CLIQUE, rank.device)
        if cluster and clique is not None:
            placed.append(f"{who}: fabric cluster {cluster}, clique {clique:.0f}")
        unhealthy += [
            f"WARNING: {who}: NVLink fabric: {problem}" for problem in _problems(facts, rank.device)
        ]
    return placed + unhealthy


def _problems(facts: Facts, device: str) -> Iterator[str]:
    """What NVML reports of the fabric of a GPU: that it has not joined, and each problem."""
    if (state := facts.text(Known.FABRIC, device)) not in ("", FABRIC_READY):
        yield state
    yield from facts.several(Known.FABRIC_HEALTH, device)


_WIDTH = 10
#: Names of the axes whose labels are counts, and of the axis of pairs.
_COUNTS, _PAIR = ("threads", "blocks"), "pair"
#: The testcase whose title has no unit.
_BISECT = "multinode_bisect_write_ce"
#: Keys of tables: the two directions of a write, and the sum of a bidirectional testcase.
_WRITES, TOTAL = ("write1", "write2"), "total"
#: Testcases of sailbandwidth that use virtual memory.
_VIRTUAL = re.compile(r"device_to_device_(bidirectional_)?memcpy_read_ce|(all_to_one|one_to_all)_\w+_ce")
_SIMULATED = "NOTE: SIMULATED: no hardware was measured.\n"
_NO_RATIOS = "Warning: Unable to display Bandwidth Utilization Ratio Matrix.\n\n"
#: What nvbandwidth calls the samples of a total.
_WHOLE = "Total Bandwidth "


def render(judged: Judged, style: Style) -> str:
    """The text of nvbandwidth, or of the program that ``style.dialect`` names."""
    document = judged.document
    testcases = (testcase(document, result, style) for result in document.testcases)
    return "".join([header(document, style), *testcases, footer(document, style)])


def header(document: Document, style: Style) -> str:
    """Versions, notes, host and devices; in a job of several processes, the processes."""
    machine, dialect = document.machine, DIALECTS[style.dialect]
    about = "".join(f"{note}\n" for note in notes(document, style))
    about += "".join(f"NOTE: {one_line(warning)}\n" for warning in document.warnings)
    about += "".join(
        f"NOTE: {one_line(f'{r.name}: {warning}')}\n" for r in document.testcases for warning in r.warnings
    )
    mpi = f"MPI version: {one_line(document.libraries['mpi'])}\n" if "mpi" in document.libraries else ""
    start = dialect.start() + (mpi if machine.ranks else "") + dialect.opening
    if dialect.opening and document.simulated:
        start += f"{_SIMULATED}\n"
    lines = [*dialect.versions(machine), ""]
    if not machine.ranks:
        lines += [one_line(document.hostname)] if dialect.names != "model" else []
        lines += [f"Device {i}: {one_line(device)}" for i, device in enumerate(devices(machine, dialect))]
    lines += processes(machine, dialect)
    if dialect.names == "bus and function":
        lines += fabric_lines(document)
    lines += ["", *(f"{note}\n" for note in style.ignored)]
    return "".join([start, about, "\n".join(lines), "\n"])


def processes(machine: Machine, dialect: Dialect) -> list[str]:
    """The lines of the processes of a job, with their hosts and devices."""
    width = len(str(len(machine.ranks) - 1))
    return [
        one_line(f"Process {rank.index:>{width}} ({rank.host}): device {_of_rank(rank, machine, dialect)}")
        for rank in machine.ranks
    ]


def notes(document: Document, style: Style) -> list[str]:
    """The notes of nvbandwidth: on a buffer that is smaller than its default, and others."""
    size, dialect = document.options.get("size"), DIALECTS[style.dialect]
    small = isinstance(size, int) and size < dialect.default_mebibytes * MIB
    return [*([dialect.smaller] if small else []), *style.notes]


def devices(machine: Machine, dialect: Dialect) -> list[str]:
    """The display name of every GPU: model and, except in old versions, bus ID."""
    return [_display(gpu.model, gpu.bus_id, machine, dialect) for gpu in machine.gpus]


def _display(model: str, bus_id: str, machine: Machine, dialect: Dialect) -> str:
    function = ".0" if dialect.names == "bus and function" else ""
    bus = "" if dialect.names == "model" else f" ({bus_id}{function})"
    return f"{model}{' SIMULATED' if machine.simulated else ''}{bus}"


def _of_rank(rank: Rank, machine: Machine, dialect: Dialect) -> str:
    """Index and display name of the GPU of a rank; the name of its device if that is no GPU."""
    gpu = next((gpu for gpu in machine.gpus if gpu.name == rank.device), None)
    model = rank.model or (gpu.model if gpu else "")
    if not model:
        return rank.device
    bus_id = rank.bus_id or (gpu.bus_id if gpu else "")
    return f"{number_of(rank.device)}: {_display(model, bus_id, machine, dialect)}"


def testcase(document: Document, result: TestcaseResult, style: Style) -> str:
    """The output of one testcase: its tables, or the reason why it has none."""
    machine, dialect = document.machine, DIALECTS[style.dialect]
    wanted = not (style.empty_tables and result.name.startswith(PROCESSES) and result.tables)
    if result.status is Status.WAIVED and wanted:
        return dialect.waived.format(name=result.name, reason=result.reason)
    if result.status is Status.NOT_FOUND:
        return f"ERROR: {one_line(result.reason)}\n" + ("" if dialect.exact else "\n")
    text = [f"Running {one_line(result.name)}.\n"]
    if style.verbose and dialect.exact:
        text.append(_all_samples(document, result, dialect))
    if has_failed(result):
        return "".join([*text, f"ERROR: {one_line(f'{result.name}: {result.reason}')}\n\n"])
    result = arranged(result, dialect)
    for table in result.tables:
        if style.verbose and not dialect.exact:
            text.append(_samples(table))
        text.append(_table(machine, result, table, style))
        if style.utilization and "device_to_device" in result.name:
            text.append(_utilization(machine, result, table, style))
    return "".join(text)


def has_failed(result: TestcaseResult) -> bool:
    """Whether a testcase failed or was interrupted: it has no table, because a ``SUM`` line means success."""
    return not result.status.good and result.status is not Status.NOT_FOUND


def arranged(result: TestcaseResult, dialect: Dialect) -> TestcaseResult:
    """A result whose tables have nvbandwidth's titles and meaning.

    In one process, nvbandwidth's first write of a pair is that of the column, not that of the row; between
    processes, it is that of the row. Old versions have only one table of a pair, which is that of the row.
    """
    if new := dialect.titles.get(result.name):
        result = replace(result, tables=tuple(replace(table, title=new) for table in result.tables))
    if (part := dialect.parts.get(result.name)) and result.tables:
        only = result.tables[-1 if part == "total" else 0]
        title = re.sub(r" (Read|Write)\d| Total", "", only.title)
        return replace(result, tables=(replace(only, key="", title=title),))
    writes = {table.key: table for table in result.tables if table.key in _WRITES}
    if not writes or result.name.startswith(PROCESSES):
        return result
    first, second = _WRITES
    changes: dict[str, dict[str, Any]]
    if writes.keys() == {first, second}:
        changes = {first: {"cells": writes[second].cells}, second: {"cells": writes[first].cells}}
    else:  # an imported log that ends early has one of them
        name, other = (first, second) if first in writes else (second, first)
        title = writes[name].title.replace(name.capitalize(), other.capitalize())
        changes = {name: {"key": other, "title": title}}
    tables = (replace(table, **changes.get(table.key, {})) for table in result.tables)
    return replace(result, tables=tuple(tables))


def footer(document: Document, style: Style) -> str:
    """The closing notice, after an interruption and the note on a simulated run.

    Versions without a closing notice have that note at the start.
    """
    ended = f"ERROR: the run ended early: {one_line(document.interrupted)}\n" if document.interrupted else ""
    dialect = DIALECTS[style.dialect]
    simulated = _SIMULATED if document.simulated and not dialect.opening else ""
    return ended + simulated + dialect.closing


def title(result: TestcaseResult, table: Table, dialect: Dialect) -> str:
    """A table's title with the unit in parentheses, as parsers of nvbandwidth's output expect."""
    heading = _heading(result, table, dialect)
    return heading if result.name == _BISECT else f"{heading} ({displayed(table.unit)[1]})"


def _heading(result: TestcaseResult, table: Table, dialect: Dialect) -> str:
    """A table's title in the words of a program, which call bulk copies those of SMs."""
    heading = table.title.replace("SM_BULK", "SM") if result.name.startswith(PROCESSES) else table.title
    for word, other in dialect.words.items():
        heading = heading.replace(word, other)
    return heading


def _numbers(axis: Axis, machine: Machine) -> list[str]:
    """Rows or columns as numbers: index of the device or rank, pair of ranks, count, else position."""
    numbers = {gpu.name: str(gpu.index) for gpu in machine.gpus}
    numbers |= {node.name: str(node.index) for node in machine.numa}
    numbers |= {str(rank.index): str(rank.index) for rank in machine.ranks}
    if axis.name in _COUNTS:
        numbers |= {label: label for label in axis.labels}
    if axis.name == _PAIR and machine.ranks:
        ends = {label: label.split("->") for label in axis.labels}
        width = max((len(end) for pair in ends.values() for end in pair), default=0)
        numbers |= {label: "->".join(end.rjust(width) for end in pair) for label, pair in ends.items()}
    return [numbers.get(label, str(i)) for i, label in enumerate(axis.labels)]


def _value(cell: Cell | None, scale: float) -> str:
    return "N/A" if cell is None or cell.value is None else f"{cell.value / scale:.2f}"


def _table(machine: Machine, result: TestcaseResult, table: Table, style: Style) -> str:
    """A table with its title, the sum of its values and, if requested, their range and mean."""
    scale, unit = displayed(table.unit)
    dialect, values = DIALECTS[style.dialect], [value / scale for value in table.values()]
    figures = {"SUM": math.fsum(values)}
    if (coefficient := variation(result, table, dialect)) is not None:
        figures["COEFFICIENT_OF_VARIATION"] = coefficient
    if style.verbose and dialect.exact:
        figures |= _range(values)
    sign = "+" if table.unit.more_is_better else "-"
    lines = _sums(one_line(result.key(table)), figures, f"{sign}{unit}", style)
    heading = title(result, table, dialect)
    return "\n".join([heading, *_lines(machine, table, scale, dialect), "", *lines, "", ""])


def _range(values: Sequence[float]) -> dict[str, float]:
    """Minimum, maximum and mean of the values of a table; empty without values."""
    if not values:
        return {}
    return {"MIN": min(values), "MAX": max(values), "AVG": math.fsum(values) / len(values)}


def _sums(key: str, figures: Mapping[str, float], unit: str, style: Style) -> list[str]:
    """The lines of the sum and the other figures of a table."""
    lines = [f"{name} {key} {value:.2f}" for name, value in figures.items()]
    if style.perf:
        lines[0] = f"&&&& PERF {key} {figures['SUM']:.2f} {unit}"
    return lines


def variation(result: TestcaseResult, table: Table, dialect: Dialect) -> float | None:
    """The coefficient of variation of a table of a result; None if the version prints none.

    It is the mean, over all cells, of that of their samples, 0 without samples; only the last table has one,
    and latencies have none.
    """
    if not dialect.is_new or table.unit is Unit.TIME or table is not result.tables[-1]:
        return None
    coefficients = [cell.statistics.cv for cell in table.cells if cell.statistics is not None]
    return math.fsum(coefficients) / len(coefficients) if coefficients else 0.0


def _lines(machine: Machine, table: Table, scale: float, dialect: Dialect) -> list[str]:
    """The line of column numbers and one line for each row."""
    rows = _numbers(table.rows, machine)
    texts = [[_value(cell, scale) for cell in cells] for cells in table.grid()]
    indent = max([2, *map(len, rows)]) if dialect.padded else 1
    return [
        label.rjust(indent) + "".join(text.rjust(_WIDTH) for text in line)
        for label, line in zip(["", *rows], [_numbers(table.columns, machine), *texts], strict=True)
    ]


def _utilization(machine: Machine, result: TestcaseResult, table: Table, style: Style) -> str:
    """Measured value over limit in percent; empty if no limit is known."""
    dialect = DIALECTS[style.dialect]
    whole = dialect.is_hggc
    if whole and ("memcpy" not in result.name or table is not result.tables[-1]):
        return ""
    cells = tuple(
        replace(cell, value=100 * cell.value / cell.limit if cell.value and cell.limit else None)
        for cell in table.cells
        if not (whole and cell.row == cell.column)
    )
    if not any(cell.value for cell in cells):
        return _NO_RATIOS if whole else ""
    heading, ratios = _heading(result, table, dialect), replace(table, cells=cells)
    lines = _lines(machine, ratios, 1.0, dialect)
    if not whole:
        return "\n".join([f"{heading.removesuffix(' bandwidth')} utilization ratio (%)", *lines, "", ""])
    values = ratios.values()
    figures = {"SUM": math.fsum(values), **(_range(values) if style.verbose else {})}
    sums = _sums(one_line(result.key(table)), figures, "+GB/s", style)
    return "\n".join([f"{heading} utilization ratio matrix (%)", *lines, "", *sums, "", ""])


def _all_samples(document: Document, result: TestcaseResult, dialect: Dialect) -> str:
    """One line per sample of all tables, in nvbandwidth's form and order: cell by cell."""
    moves = _moves(document.machine, result)
    if dialect.is_hggc and document.options.get("virtual_memory") and _VIRTUAL.match(result.name):
        moves = {at: move.replace("Device ", "DeviceVm ") for at, move in moves.items()}
    lines = []
    for table in _sampled(result, dialect):
        scale, unit = displayed(table.unit)
        for cell in table.cells:
            labels = f"{table.rows.labels[cell.row]} -> {table.columns.labels[cell.column]}"
            move = moves.get((table.key, cell.row, cell.column), labels)
            lines += [
                ((cell.row, cell.column, i), f"\tSample {i}: {move}: {value / scale:.2f} {unit}\n")
                for i, value in enumerate(cell.samples)
            ]
    lines.sort(key=lambda line: line[0])  # stable: the parts of a cell remain in order
    return "".join(line for _, line in lines)


def _sampled(result: TestcaseResult, dialect: Dialect) -> Sequence[Table]:
    """The tables whose samples have lines."""
    tables = result.tables if len(result.tables) == 1 else result.tables[:-1]
    if not dialect.is_hggc:
        return tables
    if result.name.startswith(PROCESSES) or tables[-1:] != result.tables[1:2]:
        first = tables[:1]
    else:  # in one process, the first write is that of the column
        first = tables[1:2] if tables[-1].key == _WRITES[1] else tables[:1]
    return [table for table in first if table.unit is not Unit.TIME]


def _moves(machine: Machine, result: TestcaseResult) -> dict[tuple[str, int, int], str]:
    """What the samples of each cell are: ``Host -> Device 0``, or a total."""
    try:
        plan = find(result.name).plan(machine)
    except UnknownTestcase:  # of another package
        return {}
    return {
        (place.table, place.row, place.column): (
            _move(measurement.transfers[place.transfers[0]]) if len(place.transfers) == 1 else _WHOLE
        )
        for measurement in plan.measurements
        for place in measurement.places
        if measurement.transfers
    }


def _move(transfer: Transfer) -> str:
    """The ends of a transfer; for a chase, who follows pointers where."""
    start: Memory | Executor = transfer.source
    end: Memory | Executor = transfer.destination
    if transfer.operation is Operation.CHASE:
        start, end = transfer.executor, transfer.source
    return f"{called(start.rank, start.device)} -> {called(end.rank, end.device)}"


def _samples(table: Table) -> str:
    """One line per sample of a table, in sailbandwidth's form."""
    scale, unit = displayed(table.unit)
    lines = [
        f"\tSample {i}: {table.rows.labels[cell.row]}->{table.columns.labels[cell.column]}: "
        f"{value / scale:.2f} {unit}\n"
        for cell in table.cells
        for i, value in enumerate(cell.samples)
    ]
    return "".join(lines)
