"""nvbandwidth's JSON, and sailbandwidth's since 2.2, for programs that read it.

A bidirectional testcase has an entry of its name with the rows of all its tables, as in nvbandwidth, and one
entry for each table. A testcase that failed has neither matrix nor sum, and the object has its ``error``.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from ..document import Document, Status, TestcaseResult
from ..judging.judged import Judged
from ..tables import Cell, Table
from ..terminal import escaped
from ..units import displayed
from ..version import __version__
from .dialects import DIALECTS, Dialect
from .iteration_times import row_of, styled
from .nvbandwidth import TOTAL, arranged, devices, has_failed, notes, processes, title, variation
from .style import DialectName, Style

_STATUS_SAIL = {Status.PASSED: "Passed", Status.WAIVED: "Waived", Status.NOT_FOUND: "ERROR"}


def content(document: Document, style: Style) -> dict[str, object]:
    """What the object under the key ``sailbandwidth`` contains."""
    machine, dialect = document.machine, DIALECTS[style.dialect]
    host = document.hostname
    listed = processes(machine, dialect) or [
        f"{i}: {name}: ({host})" for i, name in enumerate(devices(machine, dialect))
    ]
    members: dict[str, object] = {
        "HGGC Driver Version": machine.driver,
        "HGGC Runtime Version": machine.cuda,
        "PPU Device list": listed or None,
        "version": dialect.json_version,
    }
    if document.testcases:
        members["testcases"] = [_entry(result, style) for result in document.testcases]
    warnings = [*notes(document, style), *document.warnings, *style.ignored]
    warnings += [f"{r.name}: {warning}" for r in document.testcases for warning in r.warnings]
    if warnings:
        members["warning"] = warnings
    return members


def _entry(result: TestcaseResult, style: Style) -> dict[str, object]:
    """A testcase; of a bidirectional one the rows of all tables, and all else of the total."""
    entry: dict[str, object] = {"name": result.name, "status": _STATUS_SAIL.get(result.status, "Error")}
    if result.reason and result.status is not Status.NOT_FOUND:
        entry["reason" if result.status is Status.WAIVED else "error"] = result.reason
    if has_failed(result) or result.status is Status.WAIVED or not result.tables:
        return entry
    dialect = DIALECTS[style.dialect]
    result = arranged(result, dialect)
    last = result.tables[-1]
    scale = displayed(last.unit)[0]
    values = [value / scale for value in last.values()]
    entry |= {
        "bandwidth_description": title(result, last, dialect),
        "bandwidth_matrix": [row_of(row, scale) for table in result.tables for row in table.grid()],
        "sum": math.fsum(values),
    }
    if style.verbose and values:
        entry |= {"min": min(values), "max": max(values), "average": math.fsum(values) / len(values)}
    elif style.verbose:
        entry["average"] = None
    return entry


_STATUS = {Status.PASSED: "Passed", Status.WAIVED: "Waived", Status.NOT_FOUND: "Not Found"}


def render(judged: Judged, style: Style, error: str = "") -> str:
    """One object under the key of the program; ``simulated`` is present only if true.

    Args:
        judged: The run.
        style: How to show it.
        error: Why nothing was run.
    """
    document = judged.document
    dialect = DIALECTS[style.dialect]
    content = _CONTENTS[dialect.json_root](document, style)
    if failed := [result for result in document.testcases if has_failed(result)]:
        content["error"] = "; ".join(f"{result.name}: {result.reason}" for result in failed)
    if document.interrupted:
        content["error"] = f"the run ended early: {document.interrupted}"
    if error:
        content["error"] = error
    if document.simulated:
        content["simulated"] = True
    return dump(content, dialect)


def _content(document: Document, style: Style) -> dict[str, object]:
    machine, dialect = document.machine, DIALECTS[style.dialect]
    host = document.hostname
    content: dict[str, object] = {
        "CUDA Runtime Version": machine.cuda,
        "Driver Version": machine.driver,
        "GPU Device list": [f"{i}: {name}: ({host})" for i, name in enumerate(devices(machine, dialect))],
        "git_version": f"wirespeed {__version__}",
        "version": dialect.json_version,
    }
    if document.testcases:
        content["testcases"] = [entry for result in document.testcases for entry in _entries(result, style)]
    if warnings := [*notes(document, style), *document.warnings]:
        content["warning"] = "; ".join(warnings)
    return content


#: What the only member of the JSON contains, by its key.
_CONTENTS: dict[str, Callable[[Document, Style], dict[str, object]]] = {
    "nvbandwidth": _content,
    "sailbandwidth": content,
}


def dump(content: dict[str, object], dialect: Dialect) -> str:
    """Wrap the content in the top-level object."""
    return escaped(styled({dialect.json_root: content})) + "\n"


def error(message: str, name: DialectName) -> str:
    """An object with the reason why nothing was run."""
    dialect = DIALECTS[name]
    content: dict[str, object] = {"error": message, "version": dialect.json_version}
    if dialect.json_root == "nvbandwidth":
        content["git_version"] = f"wirespeed {__version__}"
    return dump(content, dialect)


def _entries(result: TestcaseResult, style: Style) -> list[dict[str, object]]:
    dialect = DIALECTS[style.dialect]
    status = _STATUS.get(result.status, "Error")
    if result.status is Status.NOT_FOUND and dialect.exact:
        status = "ERROR"
    entry: dict[str, object] = {"name": result.name, "status": status}
    if result.reason:
        entry["reason" if result.status is Status.WAIVED else "error"] = result.reason
    if result.warnings:
        entry["warning"] = "; ".join(result.warnings)
    if has_failed(result) or (result.status is Status.WAIVED and not style.empty_tables) or not result.tables:
        return [entry]
    result = arranged(result, dialect)
    entries = [
        {**entry, "name": result.key(table), **_matrix(result, table, style)} for table in result.tables
    ]
    if dialect.exact and result.tables[-1].key == TOTAL:
        scale = displayed(result.tables[-1].unit)[0]
        rows = [row_of(row, scale) for table in result.tables for row in table.grid()]
        entries.insert(0, {**entries[-1], "name": result.name, "bandwidth_matrix": rows})
    return entries


def _matrix(result: TestcaseResult, table: Table, style: Style) -> dict[str, object]:
    """Values, sum and, if requested, fractions of the limit of a table."""
    scale = displayed(table.unit)[0]
    values = [value / scale for value in table.values()]
    content: dict[str, object] = {
        "bandwidth_description": title(result, table, DIALECTS[style.dialect]),
        "bandwidth_matrix": [row_of(row, scale) for row in table.grid()],
        "sum": math.fsum(values),
    }
    dialect = DIALECTS[style.dialect]
    if dialect.variation == "samples" and (coefficient := variation(result, table, dialect)) is not None:
        content["coefficient_of_variation"] = coefficient
    if style.utilization and any(cell.limit for cell in table.cells):
        content["utilization_matrix"] = [[_utilization(cell) for cell in row] for row in table.grid()]
    if style.verbose and values:
        content |= {"min": min(values), "max": max(values), "average": math.fsum(values) / len(values)}
    return content


def _utilization(cell: Cell | None) -> str:
    """Measured value over limit in percent."""
    if cell is None or not cell.value or not cell.limit:
        return "N/A"
    return f"{100 * cell.value / cell.limit:.6g}"
