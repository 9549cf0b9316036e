"""nvbandwidth's text output, for scripts that read it by position.

Bidirectional testcases print one table for each part, like nvbandwidth. Reports of a simulated machine
say so in the line of every device and in a note.
"""

from __future__ import annotations

from msgspec.structs import replace

from ..document import Cell, Document, Status, Table, TestcaseResult
from ..model import Axis
from ..topology import Machine
from ..units import displayed
from ..version import __version__
from . import Style

#: The versions of the programs whose format this is.
COMPATIBLE = {"nvbandwidth": "v0.8", "sailbandwidth": "v2.1.0"}
_WIDTH = 10
#: Names of the axes whose labels are counts, and of the axis of pairs.
_COUNTS, _PAIR = ("threads", "blocks"), "pair"
#: Number of the testcase whose title has no unit.
_BISECT = 47
_SMALLER = (
    "NOTE: The buffer size is smaller than the default of 512 MiB; the default is suggested "
    "to reach peak bandwidth."
)
_NOTICE = (
    "NOTE: The reported results may not reflect the full capabilities of the platform.\n"
    "Performance can vary with software drivers, hardware clocks, and system topology.\n\n"
)


def render(document: Document, style: Style) -> str:
    """Return the whole report."""
    parts = [header(document), *(testcase(document.machine, result, style) for result in document.testcases)]
    return "".join([*parts, footer(document)])


def version(program: str = "nvbandwidth") -> str:
    """Return the two lines at the start of every output."""
    return f"{program} Version: {COMPATIBLE[program]}\nBuilt from Git version: wirespeed {__version__}\n\n"


def header(document: Document, program: str = "nvbandwidth") -> str:
    """Return versions, host and devices."""
    machine = document.machine
    size = document.options.get("size")
    note = _SMALLER + "\n" if isinstance(size, int) and size < 512 * 2**20 else ""
    lines = [
        f"CUDA Runtime Version: {machine.cuda}",
        f"CUDA Driver Version: {machine.cuda}",
        f"Driver Version: {machine.driver or 'none'}",
        "",
        machine.host or document.host,
        *(f"Device {i}: {device}" for i, device in enumerate(devices(machine))),
        *(f"Process {rank.index} ({rank.host}): device {rank.device}" for rank in machine.ranks),
    ]
    note += "".join(f"NOTE: {warning}\n" for warning in document.warnings)
    return version(program) + note + "\n".join(lines) + "\n\n"


def devices(machine: Machine) -> list[str]:
    """Return the display name of every GPU: model and bus ID."""
    mark = " SIMULATED" if machine.simulated else ""
    return [f"{gpu.model}{mark} ({gpu.bus_id})" for gpu in machine.gpus]


def testcase(machine: Machine, result: TestcaseResult, style: Style) -> str:
    """Return the output of one testcase: its tables, or the reason why it has none.

    Parameters
    ----------
    machine : Machine
        The measured machine.
    result : TestcaseResult
        The result.
    style : Style
        Whether to show samples and fractions of the limit.

    Returns
    -------
    str
        The lines.
    """
    if result.status is Status.WAIVED:
        return f"Waived: {result.name}: {result.reason}\n\n"
    if result.status is Status.NOT_FOUND:
        return f"ERROR: {result.reason}\n\n"
    text = [f"Running {result.name}.\n"]
    for table in result.tables:
        if style.verbose:
            text.append(_samples(table))
        text.append(_table(machine, result, table))
        if style.utilization and "device_to_device" in result.name:
            text.append(_utilization(machine, table))
    if result.status is not Status.PASSED:
        text.append(f"ERROR: {result.name}: {result.reason}\n\n")
    text += [f"WARNING: {warning}\n" for warning in result.warnings]
    return "".join(text)


def footer(document: Document) -> str:
    """Return the closing notice."""
    ended = f"ERROR: the run ended early: {document.interrupted}\n" if document.interrupted else ""
    simulated = "NOTE: SIMULATED: no hardware was measured.\n" if document.simulated else ""
    return ended + simulated + _NOTICE


def title(result: TestcaseResult, table: Table) -> str:
    """Return a table's title with the unit in parentheses, as parsers of nvbandwidth's output expect."""
    if result.index == _BISECT:
        return table.title
    return f"{table.title} ({displayed(table.unit)[1]})"


def _numbers(axis: Axis, machine: Machine) -> list[str]:
    """Return rows or columns as numbers: index of the device or rank, pair of ranks, count, else position."""
    numbers = {gpu.name: str(gpu.index) for gpu in machine.gpus}
    numbers |= {node.name: str(node.index) for node in machine.numa}
    numbers |= {str(rank.index): str(rank.index) for rank in machine.ranks}
    if axis.name in _COUNTS or (axis.name == _PAIR and machine.ranks):
        numbers |= {label: label for label in axis.labels}
    return [numbers.get(label, str(i)) for i, label in enumerate(axis.labels)]


def _value(cell: Cell | None, scale: float) -> str:
    """Return the text of a cell."""
    return "N/A" if cell is None or cell.value is None else f"{cell.value / scale:.2f}"


def _table(machine: Machine, result: TestcaseResult, table: Table) -> str:
    """Return a table with its title and the sum of its values."""
    scale = displayed(table.unit)[0]
    total = sum(table.values()) / scale
    lines = [title(result, table), *_lines(machine, table, scale), "", f"SUM {result.key(table)} {total:.2f}"]
    return "\n".join([*lines, "", ""])


def _lines(machine: Machine, table: Table, scale: float) -> list[str]:
    """Return the line of column numbers and one line for each row."""
    rows = _numbers(table.rows, machine)
    texts = [[_value(cell, scale) for cell in cells] for cells in table.grid()]
    indent = max([2, *map(len, rows)])
    return [
        label.rjust(indent) + "".join(text.rjust(_WIDTH) for text in line)
        for label, line in zip(["", *rows], [_numbers(table.columns, machine), *texts], strict=True)
    ]


def _utilization(machine: Machine, table: Table) -> str:
    """Return measured value over limit in percent; empty if no limit is known."""
    cells = tuple(
        replace(cell, value=100 * cell.value / cell.limit if cell.value and cell.limit else None)
        for cell in table.cells
    )
    if not any(cell.value for cell in cells):
        return ""
    heading = f"{table.title.removesuffix(' bandwidth')} utilization ratio (%)"
    return "\n".join([heading, *_lines(machine, replace(table, cells=cells), 1.0), "", ""])


def _samples(table: Table) -> str:
    """Return one line per sample; ``-v`` shows them before the table."""
    scale, unit = displayed(table.unit)
    lines = [
        f"\tSample {i}: {table.rows.labels[cell.row]}->{table.columns.labels[cell.column]}: "
        f"{value / scale:.2f} {unit}\n"
        for cell in table.cells
        for i, value in enumerate(cell.samples)
    ]
    return "".join(lines)
